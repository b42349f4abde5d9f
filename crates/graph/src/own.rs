//! State that modules of one worker share and change: the sessions that a firewall's two directions have in common.
//!
//! A worker's own state has no other user, so that nobody ever waits for it. The type does not know that two modules run on
//! one thread, though, and safe code has to be shown: who asks is lent the value for a call, by one uncontended exchange of a
//! flag a batch. Where two workers were given one by mistake, the second finds it lent out and is told so, instead of waiting.

use try_lock::{Locked, TryLock};

/// A value that one worker's modules share, lent to one of them at a time.
#[derive(Debug)]
pub struct Own<T>(TryLock<T>);

/// A value of an [`Own`] while it is lent. It is free again when this is dropped.
pub type Lent<'a, T> = Locked<'a, T>;

impl<T> Own<T> {
    /// A value that nobody uses yet.
    pub const fn new(value: T) -> Self {
        Self(TryLock::new(value))
    }

    /// The value, until what is returned is dropped; `None` while it is lent to somebody else, whom nobody waits for. Among
    /// modules of one worker, which run one after the other, that cannot be.
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
        let mut first = own.lend().expect("nobody has it");
        *first += 1;
        let again = Arc::clone(&own);
        std::thread::spawn(move || assert!(again.lend().is_none())).join().expect("it asserts what is true");
        drop(first);
        assert_eq!(own.lend().map(|value| *value), Some(2));
    }
}
