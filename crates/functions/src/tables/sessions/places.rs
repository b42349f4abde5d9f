//! Sessions by their places: for who goes through all of them, a few at a time.

use super::{Found, Session, Sessions, Slot};

impl<S: Session> Sessions<S> {
    /// How many places were ever used: sessions have numbers below.
    #[must_use]
    pub fn places(&self) -> u32 {
        self.fresh
    }

    /// The session of a number, if there is one, and when it ends.
    #[must_use]
    pub fn placed(&self, number: u32) -> Option<(Found, &S, Slot)> {
        let entry = self.entries.get(number as usize).filter(|_| number < self.fresh)?;
        // What is free is not on the wheel.
        (!entry.link.is_none()).then_some((Found(number << 1), &entry.session, entry.ends))
    }
}
