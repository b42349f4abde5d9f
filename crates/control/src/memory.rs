//! For how long it is kept in mind that something went wrong: longer each time that it does again, and less long after a time without.
//! Without, what went wrong would be tried again every few periods: a steady load comes to a steady control.

/// Periods at first, and at most.
const FIRST: u32 = 64;
const LONGEST: u32 = 1 << 14;
/// How many times longer after it went wrong again.
const LONGER: u32 = 4;
/// What goes wrong again within so many periods is the same: nothing was tried meanwhile.
const SAME: u32 = 8;

/// What went wrong last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    /// For how many periods it is kept in mind.
    periods: u32,
    /// How many there were since.
    since: u32,
}

impl Memory {
    /// A period is over.
    pub(crate) fn pass(&mut self) {
        self.since = self.since.saturating_add(1);
        if self.since > 2 * self.periods {
            self.periods /= 2;
            self.since = self.periods;
        }
    }

    /// It went wrong in the period that is over.
    pub(crate) fn fails(&mut self) {
        let longer = if self.since > SAME { LONGER * self.periods } else { self.periods };
        (self.periods, self.since) = (longer.clamp(FIRST, LONGEST), 0);
    }

    /// Whether it is kept in mind.
    pub(crate) fn lasts(&self) -> bool {
        self.since < self.periods
    }

    /// For how many periods it is, and was when it went wrong.
    pub(crate) fn periods(&self) -> u32 {
        self.periods
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For how many periods it is kept in mind after what was seen, period by period.
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
    fn it_is_kept_in_mind_for_longer_each_time() {
        assert_eq!((lasts([]), lasts([true])), (0, FIRST));
        let again = |times: usize| [&[true][..], &[false; 20]].concat().repeat(times).into_iter().chain([true]);
        assert_eq!((lasts(again(1)), lasts(again(2))), (LONGER * FIRST, LONGER * LONGER * FIRST));
        assert_eq!(lasts(again(20)), LONGEST);
    }

    /// One long overload was kept in mind for half an hour.
    #[test]
    fn what_goes_wrong_for_long_is_one_thing() {
        assert_eq!(lasts([true; 1_000]), FIRST);
        assert_eq!(lasts([true, false, false].repeat(300).into_iter().chain([true])), FIRST);
    }

    #[test]
    fn after_a_long_time_it_is_as_at_first() {
        let often = [&[true][..], &[false; 20]].concat().repeat(4);
        assert!(lasts(often.iter().copied().chain([true])) > 100 * FIRST);
        let then = often.into_iter().chain([false; 40_000]).chain([true]);
        assert_eq!(lasts(then), FIRST);
    }
}
