//! A thread's own free chunks of each pool.
//!
//! Giving a packet back and taking the next one is a few instructions here: no lock, no atomic. A cache that runs
//! empty refills, one that runs full spills, half of itself at a time. Where a thread has no cache of a pool yet, or
//! is ending, chunks go straight home.

use std::cell::Cell;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::registry::{self, MAX_POOLS};
use super::{Chunk, Inner, Order};
use crate::metadata::Metadata;

/// The most chunks that a thread keeps of one pool.
const MOST: usize = 512;

/// A double-ended queue of free chunks, newest at the tail.
pub(super) struct Cache {
    slots: Box<[Chunk]>,
    head: usize,
    len: usize,
    /// Spill above this many.
    limit: usize,
    order: Order,
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
        for id in 0..MAX_POOLS {
            detach(id as u16);
        }
    }
}

impl Cache {
    fn new(pool: Arc<Inner>) -> Self {
        // Of a small pool a thread keeps a quarter at most, so that other threads find some too.
        let limit = match pool.order {
            Order::Lifo => MOST.min(pool.capacity / 4),
            Order::Fifo => pool.capacity,
        };
        let empty = Chunk::from_metadata(NonNull::dangling());
        Self { slots: vec![empty; limit.max(1).next_power_of_two()].into(), head: 0, len: 0, limit, order: pool.order, pool }
    }

    #[inline]
    fn slot(&mut self, position: usize) -> &mut Chunk {
        let mask = self.slots.len() - 1;
        &mut self.slots[position & mask]
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<Chunk> {
        if self.len == 0 {
            return self.refill();
        }
        self.len -= 1;
        Some(match self.order {
            Order::Lifo => *self.slot(self.head + self.len),
            Order::Fifo => {
                self.head += 1;
                *self.slot(self.head - 1)
            }
        })
    }

    #[inline]
    fn push(&mut self, chunk: Chunk) {
        if self.len >= self.limit && !self.spill(chunk) {
            return;
        }
        *self.slot(self.head + self.len) = chunk;
        self.len += 1;
    }

    /// Takes half a cache full from the pool, and one of them out.
    #[cold]
    fn refill(&mut self) -> Option<Chunk> {
        self.head = 0;
        let half = (self.limit / 2).max(1).min(self.slots.len());
        let wanted = match self.order {
            Order::Lifo => half,
            Order::Fifo => self.slots.len(),
        };
        self.len = self.pool.take_home(&mut self.slots[..wanted]);
        if self.len == 0 { None } else { self.pop() }
    }

    /// Brings the older half home, to make room for `chunk`; `false` where the cache holds none at all, and the
    /// chunk itself went home.
    #[cold]
    fn spill(&mut self, chunk: Chunk) -> bool {
        if self.limit == 0 {
            self.pool.bring_home(&[chunk]);
            return false;
        }
        let n = self.len.div_ceil(2);
        self.bring_home(n);
        true
    }

    /// Brings the `n` oldest chunks home.
    fn bring_home(&mut self, n: usize) {
        let start = self.head & (self.slots.len() - 1);
        let (wrapped, straight) = self.slots.split_at(start);
        let straight = &straight[..n.min(straight.len())];
        self.pool.bring_home(straight);
        self.pool.bring_home(&wrapped[..n - straight.len()]);
        self.head += n;
        self.len -= n;
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
    let mut cache = Box::new(Cache::new(Arc::clone(pool)));
    let result = f(&mut cache);
    // On a thread that is ending the caches have been given up: bring the rest home at once.
    if AT_EXIT.try_with(|_| ()).is_ok() {
        let raw = Box::into_raw(cache);
        CACHES.with(|caches| caches[usize::from(pool.id)].set(raw));
    } else {
        let rest = cache.len;
        cache.bring_home(rest);
    }
    result
}

#[inline]
fn get(id: u16) -> *mut Cache {
    CACHES.with(|caches| caches[usize::from(id) % MAX_POOLS].get())
}

/// Takes a chunk back from a packet that is gone.
///
/// # Safety
/// The caller owned the chunk alone, and it is of pool `id`.
#[inline]
pub(crate) unsafe fn put(id: u16, chunk: NonNull<Metadata>) {
    let (cache, chunk) = (get(id), Chunk::from_metadata(chunk));
    if cache.is_null() {
        return put_first(id, chunk);
    }
    // SAFETY: as in `with`; pushing does not reach CACHES.
    unsafe { (*cache).push(chunk) }
}

/// Takes many chunks back, looking up the cache once for each run of chunks of one pool.
///
/// # Safety
/// As for [`put`], for each of them; each chunk's metadata names its pool.
#[inline]
pub(crate) unsafe fn put_all(chunks: impl Iterator<Item = NonNull<Metadata>>) {
    let (mut last, mut cache) = (u16::MAX, ptr::null_mut::<Cache>());
    for chunk in chunks {
        // SAFETY: the chunk is live and the caller's.
        let id = unsafe { chunk.as_ref() }.pool;
        if id != last || cache.is_null() {
            (last, cache) = (id, get(id));
        }
        let chunk = Chunk::from_metadata(chunk);
        if cache.is_null() {
            put_first(id, chunk);
        } else {
            // SAFETY: as in `with`; pushing does not change CACHES, so the pointer stays live.
            unsafe { (*cache).push(chunk) }
        }
    }
}

/// Takes back the first chunk of a pool of which this thread has no cache yet.
#[cold]
fn put_first(id: u16, chunk: Chunk) {
    let pool = registry::get(id).expect("a pool stays registered while any of its chunks is out");
    // A pool that is being wound up waits for its chunks: none may rest in a cache.
    if pool.closed.load(Ordering::SeqCst) {
        pool.bring_home(&[chunk]);
    } else {
        with(&pool, |cache| cache.push(chunk));
    }
}

/// Brings what this thread has cached of a pool home, and forgets the cache.
pub(super) fn detach(id: u16) {
    let cache = CACHES.with(|caches| caches[usize::from(id) % MAX_POOLS].replace(ptr::null_mut()));
    if cache.is_null() {
        return;
    }
    // SAFETY: the pointer came from `Box::into_raw` in `with_new` and was taken out of CACHES just now, so this is
    // its only use.
    let mut cache = unsafe { Box::from_raw(cache) };
    let rest = cache.len;
    cache.bring_home(rest);
}
