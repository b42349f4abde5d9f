//! Which pool a chunk belongs to: the pools of the process by number.
//!
//! A chunk carries its pool's number in its metadata. The registry keeps a pool alive until it is closed and all its
//! chunks are home; only slow paths look here.

use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Inner, PoolError};

/// How many pools a process can have at once: one a worker and device queue, with room to spare.
pub(super) const MAX_POOLS: usize = u8::MAX as usize + 1;

static POOLS: Mutex<[Option<Arc<Inner>>; MAX_POOLS]> = Mutex::new([const { None }; MAX_POOLS]);

pub(super) fn add(make: impl FnOnce(u8) -> Inner) -> Result<Arc<Inner>, PoolError> {
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    let id = pools.iter().position(Option::is_none).ok_or(PoolError::TooMany(MAX_POOLS))?;
    let inner = Arc::new(make(id as u8));
    pools[id] = Some(Arc::clone(&inner));
    Ok(inner)
}

pub(super) fn get(id: u8) -> Option<Arc<Inner>> {
    POOLS.lock().unwrap_or_else(PoisonError::into_inner)[usize::from(id)].clone()
}

/// Forgets `pool`. Whoever sees that it is done with says so, which may be two threads at once: the later one must
/// not take away the pool that has its number by then.
pub(super) fn remove(pool: &Inner) {
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    let last = pools[usize::from(pool.id)].take_if(|registered| ptr::eq(&raw const **registered, pool));
    drop(pools);
    // Unmapping may take a while; not under the lock.
    drop(last);
}
