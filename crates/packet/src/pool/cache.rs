//! A thread's own free chunks of each pool.
//!
//! Returning a packet and taking the next one needs a few instructions here, without locks or atomics. An empty cache
//! refills half of its size from the pool; a full cache returns half. The first chunk that a thread takes or returns
//! creates its cache of the pool. On a thread that is ending, and in a closed pool of which the thread has no cache,
//! chunks go directly to the pool.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::registry::{self, MAX_POOLS};
use super::{Chunk, Inner, Order};
use crate::Packet;
use crate::metadata::{Half, Metadata};

/// The largest number of chunks that a thread keeps of one pool.
const MOST: usize = 512;

/// A thread's free chunks of one pool, oldest first: `slots[head..tail]`. They are contiguous, so that a batch is
/// copied in one piece.
pub(super) struct Cache {
    slots: Box<[Chunk]>,
    /// The index of the oldest chunk.
    head: usize,
    /// The index after the latest chunk.
    tail: usize,
    pool: Arc<Inner>,
}

thread_local! {
    /// This thread's caches by pool number. They are plain pointers, so that reading one needs no check for
    /// initialisation. They come from `Box::into_raw`, and only `detach` frees them.
    static CACHES: [Cell<*mut Cache>; MAX_POOLS] = const { [const { Cell::new(ptr::null_mut()) }; MAX_POOLS] };
    /// Returns all chunks to their pools when the thread ends.
    static AT_EXIT: AtExit = const { AtExit };
}

/// Returns the thread's chunks when it is dropped, at the end of the thread.
struct AtExit;

impl Drop for AtExit {
    fn drop(&mut self) {
        for id in 0..=u8::MAX {
            detach(id);
        }
    }
}

impl Cache {
    /// Creates an empty cache. Its size depends on the pool's order of reuse.
    fn new(pool: Arc<Inner>) -> Self {
        let room = match pool.order {
            // A thread keeps at most a quarter of a small pool, so that other threads find free chunks too.
            Order::Lifo => MOST.min(pool.capacity / 4).max(1),
            // Room for all chunks twice, so that moving them to the front costs little per chunk.
            Order::Fifo => 2 * pool.capacity,
        };
        pool.caches.fetch_add(1, Ordering::SeqCst);
        Self { slots: vec![Chunk::from_metadata(NonNull::dangling()); room].into(), head: 0, tail: 0, pool }
    }

    /// Removes up to `n` chunks; fewer only if the pool has no more. `n` must not exceed the number of slots.
    #[inline]
    fn take(&mut self, n: usize) -> &[Chunk] {
        if self.tail - self.head < n {
            self.refill(n);
        }
        let n = n.min(self.tail - self.head);
        match self.pool.order {
            Order::Lifo => {
                self.tail -= n;
                &self.slots[self.tail..self.tail + n]
            }
            Order::Fifo => {
                self.head += n;
                &self.slots[self.head - n..self.head]
            }
        }
    }

    /// Fills `slots` from the front with packets that have the metadata `fresh`, which must describe a frame inside
    /// this pool's chunks. Calls `write` for each packet with the next element of `contents`. Stops at the end of
    /// `slots` or of `contents`, or when the pool has no more chunks. Returns the number of packets.
    #[inline]
    pub(super) fn fill<T>(
        &mut self,
        slots: &mut [MaybeUninit<Packet>],
        fresh: &Metadata,
        contents: &[T],
        write: impl Fn(Chunk, &T),
    ) -> usize {
        let (mut filled, [first, second]) = (0, fresh.halves());
        let wanted = slots.len().min(contents.len());
        while filled < wanted {
            let chunks = self.take((wanted - filled).min(self.slots.len()));
            if chunks.is_empty() {
                break;
            }
            let (slots, contents) = (&mut slots[filled..], &contents[filled..]);
            for ((slot, &chunk), content) in slots.iter_mut().zip(chunks).zip(contents) {
                let halves = chunk.as_metadata().cast::<Half>();
                // SAFETY: a chunk that came from the backing or a cache is live and aligned and has no other owner.
                unsafe { (halves.write(first), halves.add(1).write(second)) };
                write(chunk, content);
                // SAFETY: as above; its metadata was initialised just now, and lies within the pool's checked layout.
                slot.write(unsafe { Packet::from_chunk(chunk.as_metadata()) });
            }
            filled += chunks.len();
        }
        filled
    }

    /// Fills `chunks` from the front until it is full or the pool has no more. Returns the number of chunks taken.
    pub(super) fn take_into(&mut self, chunks: &mut [Chunk]) -> usize {
        let mut filled = 0;
        while filled < chunks.len() {
            let taken = self.take((chunks.len() - filled).min(self.slots.len()));
            if taken.is_empty() {
                break;
            }
            chunks[filled..filled + taken.len()].copy_from_slice(taken);
            filled += taken.len();
        }
        filled
    }

    /// Adds chunks, which have no other owner. If the cache has no room, some chunks go to the backing.
    #[inline]
    pub(super) fn push(&mut self, chunks: &[Chunk]) {
        if self.slots.len() - self.tail < chunks.len() {
            return self.push_slowly(chunks);
        }
        self.slots[self.tail..self.tail + chunks.len()].copy_from_slice(chunks);
        self.tail += chunks.len();
    }

    /// Makes room in the cache, and then adds the chunks. Chunks that still do not fit go to the backing.
    #[cold]
    fn push_slowly(&mut self, chunks: &[Chunk]) {
        if self.pool.order == Order::Lifo {
            self.return_to_backing((self.tail - self.head).div_ceil(2));
        }
        self.slots.copy_within(self.head..self.tail, 0);
        (self.head, self.tail) = (0, self.tail - self.head);
        let (kept, surplus) = chunks.split_at(chunks.len().min(self.slots.len() - self.tail));
        self.slots[self.tail..self.tail + kept.len()].copy_from_slice(kept);
        self.tail += kept.len();
        self.pool.return_to_backing(surplus);
    }

    /// Takes chunks from the pool. In LIFO order, the cache is then half full, or has `wanted` chunks if that is more.
    /// In FIFO order, it is then full. It has fewer chunks if the pool has no more.
    #[cold]
    fn refill(&mut self, wanted: usize) {
        self.slots.copy_within(self.head..self.tail, 0);
        (self.head, self.tail) = (0, self.tail - self.head);
        let most = match self.pool.order {
            Order::Lifo => wanted.max(self.slots.len() / 2).max(self.tail),
            Order::Fifo => self.slots.len(),
        };
        self.tail += self.pool.take_from_backing(&mut self.slots[self.tail..most]);
    }

    /// Returns the `n` oldest chunks to the backing.
    fn return_to_backing(&mut self, n: usize) {
        self.pool.return_to_backing(&self.slots[self.head..self.head + n]);
        self.head += n;
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.return_to_backing(self.tail - self.head);
        self.pool.caches.fetch_sub(1, Ordering::SeqCst);
        self.pool.release_if_idle();
    }
}

/// Calls `f` with this thread's cache of `pool`.
#[inline(always)]
pub(super) fn with<R>(pool: &Arc<Inner>, f: impl FnOnce(&mut Cache) -> R) -> R {
    let cache = get(pool.id);
    if cache.is_null() {
        return with_new(pool, f);
    }
    // SAFETY: a pointer in CACHES is a live box of this thread. `f` cannot reach CACHES: it comes from this crate, its
    // closures only take or return chunks, and returning chunks to the backing never touches a cache. So this is the
    // only reference.
    f(unsafe { &mut *cache })
}

/// Calls `f` with a new cache of `pool`, which this thread keeps.
#[cold]
fn with_new<R>(pool: &Arc<Inner>, f: impl FnOnce(&mut Cache) -> R) -> R {
    detach_closed();
    let mut cache = Box::new(Cache::new(Arc::clone(pool)));
    let result = f(&mut cache);
    // On a thread that is ending, the caches are already gone: `cache` returns its chunks to the backing when it is
    // dropped.
    if AT_EXIT.try_with(|_| ()).is_ok() {
        let raw = Box::into_raw(cache);
        CACHES.with(|caches| caches[usize::from(pool.id)].set(raw));
    }
    result
}

/// Returns this thread's cache of the pool `id`. Null if it has none.
#[inline]
fn get(id: u8) -> *mut Cache {
    CACHES.with(|caches| caches[usize::from(id)].get())
}

/// Takes back the chunks of dropped packets, one run of chunks of the same pool at a time.
///
/// # Safety
/// The caller is the only owner of each chunk, and each chunk's metadata names its pool.
#[inline]
pub(crate) unsafe fn put(chunks: &[Chunk]) {
    let mut rest = chunks;
    // SAFETY: the chunks are live and owned by the caller.
    let pool_of = |chunk: &Chunk| unsafe { chunk.as_metadata().as_ref() }.pool;
    while let Some(first) = rest.first() {
        let id = pool_of(first);
        // Usually all chunks belong to one pool. This test has no branch per chunk.
        let mixed = rest.iter().fold(0, |mixed, chunk| mixed | (pool_of(chunk) ^ id)) != 0;
        let run = if mixed { rest.iter().take_while(|chunk| pool_of(chunk) == id).count() } else { rest.len() };
        let (run, others) = rest.split_at(run);
        let cache = get(id);
        if cache.is_null() {
            put_first(id, run);
        } else {
            // SAFETY: as in `with`; `push` does not change CACHES.
            unsafe { (*cache).push(run) }
        }
        rest = others;
    }
}

/// Takes back chunks of a pool of which this thread has no cache yet.
#[cold]
fn put_first(id: u8, chunks: &[Chunk]) {
    let pool = registry::get(id).expect("a pool stays registered while any of its chunks is out");
    // A closed pool waits for its chunks, so they must not stay in a cache.
    if pool.closed.load(Ordering::SeqCst) {
        pool.return_to_backing(chunks);
    } else {
        with(&pool, |cache| cache.push(chunks));
    }
}

/// Returns this thread's cached chunks of a pool to the backing and removes the cache.
pub(super) fn detach(id: u8) {
    let cache = CACHES.with(|caches| caches[usize::from(id)].replace(ptr::null_mut()));
    if cache.is_null() {
        return;
    }
    // SAFETY: the pointer came from `Box::into_raw` in `with_new` and was removed from CACHES just now, so this is its
    // only use.
    drop(unsafe { Box::from_raw(cache) });
}

/// Removes this thread's caches of closed pools, so that a long-lived thread does not keep the memory of old pools.
fn detach_closed() {
    for id in 0..=u8::MAX {
        let cache = get(id);
        // SAFETY: as in `with`; the reference ends before `detach`.
        if !cache.is_null() && unsafe { &*cache }.pool.closed.load(Ordering::SeqCst) {
            detach(id);
        }
    }
}
