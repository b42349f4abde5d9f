//! The budget of work and memory to compile one list. It is counted rather than timed, so that a list compiles on every
//! machine or on none.
//!
//! Every back end combines the classes of several fields, and a hostile list can make all combinations differ. For a
//! list of 100 000 rules that differ in the ranges of both ports and in bits of the protocol, the bit vectors would
//! take 1.9 GB and 40 seconds. The budget rejects such a list. Code that builds classes takes its work and memory from
//! the budget before it starts.

/// The largest number of steps, of about a nanosecond each. Typical lists take less than half.
pub const WORK: u64 = 1 << 30;
/// The largest number of bytes, temporary and permanent together. Typical lists of 10 000 rules take less than half.
pub const BYTES: u64 = 64 << 20;

/// The remaining work and memory.
#[derive(Clone, Debug)]
pub struct Budget {
    work: u64,
    bytes: u64,
}

impl Budget {
    /// Creates the full budget of one back end and one list.
    pub fn whole() -> Budget {
        Budget { work: WORK, bytes: BYTES }
    }

    /// Takes `steps` from the budget. If fewer remain, returns `None` and sets the remaining steps to 0.
    #[inline]
    pub fn work(&mut self, steps: usize) -> Option<()> {
        Budget::take(&mut self.work, steps)
    }

    /// Takes `bytes` from the budget. If fewer remain, returns `None` and sets the remaining bytes to 0.
    #[inline]
    pub fn bytes(&mut self, bytes: usize) -> Option<()> {
        Budget::take(&mut self.bytes, bytes)
    }

    #[inline]
    fn take(remaining: &mut u64, amount: usize) -> Option<()> {
        let rest = remaining.checked_sub(amount as u64);
        *remaining = rest.unwrap_or(0);
        rest.map(|_| ())
    }

    /// Returns true if no work or no memory remains. A request for more than the remaining amount also sets that amount
    /// to 0.
    pub fn is_spent(&self) -> bool {
        self.work == 0 || self.bytes == 0
    }

    /// Returns the work and the bytes taken so far.
    #[cfg(test)]
    pub fn taken(&self) -> (u64, u64) {
        (WORK - self.work, BYTES - self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_that_was_exceeded_stays_spent() {
        let mut budget = Budget::whole();
        assert_eq!(budget.work(WORK as usize - 1), Some(()));
        assert_eq!((budget.is_spent(), budget.taken()), (false, (WORK - 1, 0)));
        assert_eq!((budget.work(2), budget.work(1)), (None, None));
        assert!(budget.is_spent());
        let mut budget = Budget::whole();
        assert_eq!((budget.bytes(BYTES as usize + 1), budget.work(1)), (None, Some(())));
        assert!(budget.is_spent());
    }
}
