//! How much compiling one list may take: work and memory, counted rather than timed, so that a list is compiled everywhere
//! or nowhere.
//!
//! Every back end crosses fields, and a list can be written so that each crossing differs from all others: of 100 000 rules
//! that differ in ranges of both ports and in bits of the protocol the bit vectors would take 1.9 GB and 40 seconds. Such a
//! list is given up. What asks for classes says what it is about to do before it does it.

/// Steps at most, of about a nanosecond each. Usual lists take less than half of them.
pub const WORK: u64 = 1 << 30;
/// Bytes at most of what is made on the way and of what remains. Usual lists of 10 000 rules take less than half.
pub const BYTES: u64 = 64 << 20;

/// What is left.
#[derive(Clone, Debug)]
pub struct Budget {
    work: u64,
    bytes: u64,
}

impl Budget {
    /// For one back end and one list.
    pub fn whole() -> Budget {
        Budget { work: WORK, bytes: BYTES }
    }

    /// Takes steps off; none, from then on too, where there are not so many.
    #[inline]
    pub fn work(&mut self, steps: usize) -> Option<()> {
        Budget::take(&mut self.work, steps)
    }

    /// Takes bytes off; none, from then on too, where there are not so many.
    #[inline]
    pub fn bytes(&mut self, bytes: usize) -> Option<()> {
        Budget::take(&mut self.bytes, bytes)
    }

    #[inline]
    fn take(left: &mut u64, much: usize) -> Option<()> {
        let rest = left.checked_sub(much as u64);
        *left = rest.unwrap_or(0);
        rest.map(|_| ())
    }

    /// Whether something was asked for that there was not, or there is nothing left to ask for.
    pub fn is_spent(&self) -> bool {
        self.work == 0 || self.bytes == 0
    }

    /// What has been taken so far.
    #[cfg(test)]
    pub fn taken(&self) -> (u64, u64) {
        (WORK - self.work, BYTES - self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_once_stays_refused() {
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
