//! A thread's own free chunks of each pool.
//!
//! Giving a packet back and taking the next one is a few instructions here: no lock, no atomic. A cache that runs
//! empty refills, one that runs full spills, half of itself at a time. Where a thread has no cache of a pool yet, or
//! is ending, chunks go straight home.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::registry::{self, MAX_POOLS};
use super::{Chunk, Inner, Order};
use crate::Packet;
use crate::metadata::{Half, Metadata};

/// The most chunks that a thread keeps of one pool.
const MOST: usize = 512;

/// A thread's free chunks of one pool, oldest first: `slots[head..tail]`. Contiguous, so that batches move in one
/// piece.
pub(super) struct Cache {
    slots: Box<[Chunk]>,
    head: usize,
    tail: usize,
    pool: Arc<Inner>,
}

thread_local! {
    /// This thread's caches by pool number. Plain pointers, so that reading one needs no "is it initialised" check;
    /// they come from `Box::into_raw` and are freed by `detach` alone.
    static CACHES: [Cell<*mut Cache>; MAX_POOLS] = const { [const { Cell::new(ptr::null_mut()) }; MAX_POOLS] };
    /// Brings everything home when the thread ends.
    static AT_EXIT: AtExit = const { AtExit };
}

struct AtExit;

impl Drop for AtExit {
    fn drop(&mut self) {
        for id in 0..=u8::MAX {
            detach(id);
        }
    }
}

impl Cache {
    fn new(pool: Arc<Inner>) -> Self {
        let room = match pool.order {
            // Of a small pool a thread keeps a quarter at most, so that other threads find some too.
            Order::Lifo => MOST.min(pool.capacity / 4).max(1),
            // Everything, with as much room again, so that moving it to the front costs little a chunk.
            Order::Fifo => 2 * pool.capacity,
        };
        pool.caches.fetch_add(1, Ordering::SeqCst);
        Self { slots: vec![Chunk::from_metadata(NonNull::dangling()); room].into(), head: 0, tail: 0, pool }
    }

    /// Takes up to `n` chunks out; fewer only where the pool has no more. `n` is at most what the slots hold.
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

    /// Fills `slots` from the front with packets of metadata `fresh`, which is of a frame inside this pool's chunks,
    /// and lets `write` put each of `contents` into the packet whose turn it is; as many as there are of both. How
    /// many there were.
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
                // SAFETY: a chunk that came from the backing or a cache is live, aligned and nobody else's.
                unsafe { (halves.write(first), halves.add(1).write(second)) };
                write(chunk, content);
                // SAFETY: as above; its metadata was initialised just now, and lies within the pool's checked layout.
                slot.write(unsafe { Packet::from_chunk(chunk.as_metadata()) });
            }
            filled += chunks.len();
        }
        filled
    }

    /// Takes as many chunks as there is room for, or the pool has; how many.
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

    #[inline]
    pub(super) fn push(&mut self, chunks: &[Chunk]) {
        if self.slots.len() - self.tail < chunks.len() {
            return self.push_slowly(chunks);
        }
        self.slots[self.tail..self.tail + chunks.len()].copy_from_slice(chunks);
        self.tail += chunks.len();
    }

    /// Makes room first; what finds none goes home.
    #[cold]
    fn push_slowly(&mut self, chunks: &[Chunk]) {
        if self.pool.order == Order::Lifo {
            self.bring_home((self.tail - self.head).div_ceil(2));
        }
        self.slots.copy_within(self.head..self.tail, 0);
        (self.head, self.tail) = (0, self.tail - self.head);
        let (stay, go) = chunks.split_at(chunks.len().min(self.slots.len() - self.tail));
        self.slots[self.tail..self.tail + stay.len()].copy_from_slice(stay);
        self.tail += stay.len();
        self.pool.bring_home(go);
    }

    /// Takes chunks from the pool: half a cache full, or all there are where the order is that of a queue; `wanted`
    /// at least.
    #[cold]
    fn refill(&mut self, wanted: usize) {
        self.slots.copy_within(self.head..self.tail, 0);
        (self.head, self.tail) = (0, self.tail - self.head);
        let most = match self.pool.order {
            Order::Lifo => wanted.max(self.slots.len() / 2).max(self.tail),
            Order::Fifo => self.slots.len(),
        };
        self.tail += self.pool.take_home(&mut self.slots[self.tail..most]);
    }

    /// Brings the `n` oldest chunks home.
    fn bring_home(&mut self, n: usize) {
        self.pool.bring_home(&self.slots[self.head..self.head + n]);
        self.head += n;
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.bring_home(self.tail - self.head);
        self.pool.caches.fetch_sub(1, Ordering::SeqCst);
        self.pool.release_if_home();
    }
}

/// Runs `f` on this thread's cache of `pool`.
#[inline]
pub(super) fn with<R>(pool: &Arc<Inner>, f: impl FnOnce(&mut Cache) -> R) -> R {
    let cache = get(pool.id);
    if cache.is_null() {
        return with_new(pool, f);
    }
    // SAFETY: a pointer in CACHES is a live box of this thread's; `f` cannot reach CACHES (it is called from this
    // crate with closures that pop chunks, and chunks going home never touch a cache), so this is the only reference.
    f(unsafe { &mut *cache })
}

#[cold]
fn with_new<R>(pool: &Arc<Inner>, f: impl FnOnce(&mut Cache) -> R) -> R {
    detach_closed();
    let mut cache = Box::new(Cache::new(Arc::clone(pool)));
    let result = f(&mut cache);
    // On a thread that is ending the caches have been given up: the rest goes home at once.
    if AT_EXIT.try_with(|_| ()).is_ok() {
        let raw = Box::into_raw(cache);
        CACHES.with(|caches| caches[usize::from(pool.id)].set(raw));
    }
    result
}

#[inline]
fn get(id: u8) -> *mut Cache {
    CACHES.with(|caches| caches[usize::from(id)].get())
}

/// Takes chunks back from packets that are gone, a run of one pool's at a time.
///
/// # Safety
/// The caller owned each of them alone; each one's metadata names its pool.
#[inline]
pub(crate) unsafe fn put(chunks: &[Chunk]) {
    let mut rest = chunks;
    // SAFETY: the chunks are live and the caller's.
    let pool_of = |chunk: &Chunk| unsafe { chunk.as_metadata().as_ref() }.pool;
    while let Some(first) = rest.first() {
        let id = pool_of(first);
        // Mostly all are of one pool, which is seen without a branch for each.
        let mixed = rest.iter().fold(0, |mixed, chunk| mixed | (pool_of(chunk) ^ id)) != 0;
        let run = if mixed { rest.iter().take_while(|chunk| pool_of(chunk) == id).count() } else { rest.len() };
        let (run, others) = rest.split_at(run);
        let cache = get(id);
        if cache.is_null() {
            put_first(id, run);
        } else {
            // SAFETY: as in `with`; pushing does not change CACHES.
            unsafe { (*cache).push(run) }
        }
        rest = others;
    }
}

/// Takes back chunks of a pool of which this thread has no cache yet.
#[cold]
fn put_first(id: u8, chunks: &[Chunk]) {
    let pool = registry::get(id).expect("a pool stays registered while any of its chunks is out");
    // A pool that is being wound up waits for its chunks: none may rest in a cache.
    if pool.closed.load(Ordering::SeqCst) {
        pool.bring_home(chunks);
    } else {
        with(&pool, |cache| cache.push(chunks));
    }
}

/// Brings what this thread has cached of a pool home, and forgets the cache.
pub(super) fn detach(id: u8) {
    let cache = CACHES.with(|caches| caches[usize::from(id)].replace(ptr::null_mut()));
    if cache.is_null() {
        return;
    }
    // SAFETY: the pointer came from `Box::into_raw` in `with_new` and was taken out of CACHES just now, so this is
    // its only use.
    drop(unsafe { Box::from_raw(cache) });
}

/// Forgets this thread's caches of pools that are being wound up, so that a thread that lives long does not keep the
/// memory of pools long gone.
fn detach_closed() {
    for id in 0..=u8::MAX {
        let cache = get(id);
        // SAFETY: as in `with`; the reference ends before `detach`.
        if !cache.is_null() && unsafe { &*cache }.pool.closed.load(Ordering::SeqCst) {
            detach(id);
        }
    }
}
