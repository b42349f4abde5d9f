//! Access to sessions by number, for callers that go through all of them a few at a time.

use super::{Found, Session, Sessions, Slot};

impl<S: Session> Sessions<S> {
    /// Returns the number of entries that were ever used. All session numbers are below it.
    #[must_use]
    pub fn used_numbers(&self) -> u32 {
        self.fresh
    }

    /// Returns the session of a number and when it ends, or `None` if there is no such session.
    #[must_use]
    pub fn session_at(&self, number: u32) -> Option<(Found, &S, Slot)> {
        let entry = self.entries.get(number as usize).filter(|_| number < self.fresh)?;
        // Free entries are not on the wheel.
        (!entry.link.is_none()).then_some((Found(number << 1), &entry.session, entry.ends))
    }
}
