//! Remembers a failure for a number of periods. The number grows with each further failure and shrinks after a time
//! without failures. Otherwise, the cause of the failure would be tried again every few periods. A steady load thus has
//! steady triggers.

/// The number of periods for which the first failure is remembered.
const FIRST: u32 = 64;
/// The largest number of periods for which a failure is remembered.
const LONGEST: u32 = 1 << 14;
/// With each further failure, the time for which it is remembered is multiplied by this factor.
const LONGER: u32 = 4;
/// Two failures count as one failure if at most this number of periods lies between them. The cause was not tried again
/// between them.
const SAME: u32 = 8;

/// The memory of the last failure.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    /// The number of periods for which the failure is remembered; 0 without a failure.
    periods: u32,
    /// The number of periods since the failure. Set to `periods` when `periods` is halved, so that the failure stays
    /// forgotten.
    since: u32,
}

impl Memory {
    /// Advances by one period. Halves `periods` when more than twice as many periods have passed since the failure.
    pub(crate) fn pass(&mut self) {
        self.since = self.since.saturating_add(1);
        if self.since > 2 * self.periods {
            self.periods /= 2;
            self.since = self.periods;
        }
    }

    /// Records a failure in the period that has just ended.
    pub(crate) fn fails(&mut self) {
        let longer = if self.since > SAME { LONGER * self.periods } else { self.periods };
        (self.periods, self.since) = (longer.clamp(FIRST, LONGEST), 0);
    }

    /// Returns whether the failure is still remembered.
    pub(crate) fn lasts(&self) -> bool {
        self.since < self.periods
    }

    /// Returns the number of periods for which a failure is remembered.
    pub(crate) fn periods(&self) -> u32 {
        self.periods
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns for how many periods a failure is remembered after a sequence of periods with and without failures.
    fn lasts(failed: impl IntoIterator<Item = bool>) -> u32 {
        let mut memory = Memory::default();
        for fails in failed {
            memory.pass();
            if fails {
                memory.fails();
            }
        }
        let mut periods = 0;
        while memory.lasts() {
            memory.pass();
            periods += 1;
        }
        periods
    }

    #[test]
    fn a_failure_is_remembered_longer_each_time() {
        assert_eq!((lasts([]), lasts([true])), (0, FIRST));
        let again = |times: usize| [&[true][..], &[false; 20]].concat().repeat(times).into_iter().chain([true]);
        assert_eq!((lasts(again(1)), lasts(again(2))), (LONGER * FIRST, LONGER * LONGER * FIRST));
        assert_eq!(lasts(again(20)), LONGEST);
    }

    /// Regression test: one long overload was remembered for half an hour.
    #[test]
    fn a_long_failure_counts_once() {
        assert_eq!(lasts([true; 1_000]), FIRST);
        assert_eq!(lasts([true, false, false].repeat(300).into_iter().chain([true])), FIRST);
    }

    #[test]
    fn after_a_long_time_the_memory_is_reset() {
        let often = [&[true][..], &[false; 20]].concat().repeat(4);
        assert!(lasts(often.iter().copied().chain([true])) > 100 * FIRST);
        let then = often.into_iter().chain([false; 40_000]).chain([true]);
        assert_eq!(lasts(then), FIRST);
    }
}
