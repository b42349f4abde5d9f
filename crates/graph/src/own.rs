//! State that the modules of one worker share and change, for example the sessions of both directions of a firewall.
//!
//! Only one worker uses the state, so no module ever waits for it. But the type system does not know that the modules
//! of a worker run on one thread. So a module borrows the value for a call, with one uncontended exchange of a flag per
//! batch. If two workers get the same value by mistake, the second worker gets `None` while the value is in use, and
//! does not wait.

use try_lock::{Locked, TryLock};

/// A value that one worker's modules share. One module at a time borrows it.
#[derive(Debug)]
pub struct Own<T>(TryLock<T>);

/// A borrowed value of an [`Own`]. Dropping it ends the loan.
pub type Lent<'a, T> = Locked<'a, T>;

impl<T> Own<T> {
    /// Creates a value that is not lent.
    pub const fn new(value: T) -> Self {
        Self(TryLock::new(value))
    }

    /// Lends the value until the result is dropped. Returns `None`, without waiting, while it is lent. This cannot
    /// happen among modules of one worker, because they run one after the other.
    #[inline]
    pub fn lend(&self) -> Option<Lent<'_, T>> {
        self.0.try_lock()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn it_is_lent_to_one_at_a_time() {
        let own = Arc::new(Own::new(1));
        let mut first = own.lend().expect("it is not lent");
        *first += 1;
        let again = Arc::clone(&own);
        std::thread::spawn(move || assert!(again.lend().is_none())).join().expect("the thread does not panic");
        drop(first);
        assert_eq!(own.lend().map(|value| *value), Some(2));
    }
}
