//! The pools of the process, by number.
//!
//! A chunk carries its pool's number in its metadata. The registry keeps a pool alive until it is closed and all its
//! chunks are returned. Only slow paths use the registry.

use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Inner, PoolError};

/// The largest number of pools in a process: more than one for each worker and device queue.
pub(super) const MAX_POOLS: usize = u8::MAX as usize + 1;

/// The open pools, and the closed pools whose chunks are not all returned, by number.
static POOLS: Mutex<[Option<Arc<Inner>>; MAX_POOLS]> = Mutex::new([const { None }; MAX_POOLS]);

/// Chooses a free number, creates the pool with `make(number)`, and registers the pool.
pub(super) fn add(make: impl FnOnce(u8) -> Inner) -> Result<Arc<Inner>, PoolError> {
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    let id = pools.iter().position(Option::is_none).ok_or(PoolError::TooMany(MAX_POOLS))?;
    let inner = Arc::new(make(id as u8));
    pools[id] = Some(Arc::clone(&inner));
    Ok(inner)
}

/// Returns the pool with this number, if there is one.
pub(super) fn get(id: u8) -> Option<Arc<Inner>> {
    POOLS.lock().unwrap_or_else(PoisonError::into_inner)[usize::from(id)].clone()
}

/// Removes `pool`. Two threads may find at the same time that a pool is idle, and both call this. The second call must
/// not remove a new pool that has taken over the number.
pub(super) fn remove(pool: &Inner) {
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    let last = pools[usize::from(pool.id)].take_if(|registered| ptr::eq(&raw const **registered, pool));
    drop(pools);
    // Unmapping may take a while, so it happens outside the lock.
    drop(last);
}
