//! Access to sessions by number, for callers that go through all of them a few at a time.

use super::{Found, Session, Sessions, Slot};

impl<S: Session> Sessions<S> {
    /// Returns one more than the largest session number that was used so far. The number of each session is at least 1
    /// and below this bound.
    #[must_use]
    pub fn number_bound(&self) -> u32 {
        self.fresh
    }

    /// Returns the session of a number and its end time, or `None` if there is no such session.
    #[must_use]
    pub fn session_at(&self, number: u32) -> Option<(Found, &S, Slot)> {
        let entry = self.entries.get(number as usize).filter(|_| number < self.fresh)?;
        // Free entries are not on the wheel.
        (!entry.link.is_none()).then_some((Found(number << 1), &entry.session, entry.ends))
    }
}
