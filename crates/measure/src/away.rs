//! The time for which a thread was runnable but had no core, as reported by the kernel and by the host of a virtual
//! machine.
//!
//! All values are read from `/proc`, so the observed thread is not disturbed.

use std::collections::BTreeMap;
use std::fs;

use forebay_units::Nanos;

/// One hundredth of a second in nanoseconds. `/proc/stat` counts in this unit (USER_HZ), regardless of the length of
/// the kernel's timer tick.
const HUNDREDTH: u64 = 10_000_000;

/// The time taken from a thread up to an instant. A value is `None` if the system does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Away {
    /// Time that the thread has waited in a run queue since it started.
    pub wait: Option<Nanos>,
    /// Time for which the host of this virtual machine used the thread's core, since the machine started. 0 on a
    /// physical machine. `None` also if the caller did not ask for it.
    pub steal: Option<Nanos>,
}

impl Away {
    /// Returns the values for threads of this process, in the given order. Each thread is given as its number (TID) and
    /// the core to which it is bound. The steal time is read for all cores of the machine at once, which takes
    /// milliseconds on machines with hundreds of cores. It is read only if `with_steal` is true.
    #[must_use]
    pub fn look(threads: &[(u32, usize)], with_steal: bool) -> Vec<Self> {
        let stolen = if with_steal && !threads.is_empty() { stolen() } else { BTreeMap::new() };
        let look = |(tid, core): &(u32, usize)| Self {
            wait: scheduled(*tid).map(|(_, waited)| waited),
            steal: stolen.get(core).copied(),
        };
        threads.iter().map(look).collect()
    }

    /// Returns the time taken since `earlier`. A value is `None` if it is missing in `earlier` or in `self`, and 0 if
    /// it has decreased (for example, a core was removed and added again).
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let since = |now: Option<Nanos>, before: Option<Nanos>| Some(Nanos(now?.0.saturating_sub(before?.0)));
        Self { wait: since(self.wait, earlier.wait), steal: since(self.steal, earlier.steal) }
    }
}

/// Returns for how long a thread of this process has run, and for how long it has waited in a run queue. `None` if the
/// thread does not exist or the kernel does not keep these figures.
#[must_use]
pub fn scheduled(tid: u32) -> Option<(Nanos, Nanos)> {
    parse_scheduled(&fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).ok()?)
}

/// Returns, by core, for how long the host of this virtual machine has used the core since the machine started. The map
/// is empty if the system does not report it.
#[must_use]
pub fn stolen() -> BTreeMap<usize, Nanos> {
    parse_stolen(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// Parses `/proc/PID/task/TID/schedstat`: nanoseconds run, nanoseconds waited in a run queue, times scheduled
/// (Documentation/scheduler/sched-stats.rst).
fn parse_scheduled(text: &str) -> Option<(Nanos, Nanos)> {
    let mut nanos = text.split_ascii_whitespace().map(|number| number.parse().ok().map(Nanos));
    Some((nanos.next()??, nanos.next()??))
}

/// Parses `/proc/stat`: the eighth number of each core.
fn parse_stolen(text: &str) -> BTreeMap<usize, Nanos> {
    let core = |line: &str| {
        let (name, times) = line.split_once(' ')?;
        let core = name.strip_prefix("cpu")?.parse().ok()?;
        let hundredths: u64 = times.split_ascii_whitespace().nth(7)?.parse().ok()?;
        Some((core, Nanos(hundredths.saturating_mul(HUNDREDTH))))
    };
    text.lines().filter_map(core).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_files_are_parsed() {
        assert_eq!(parse_scheduled("1500000000 250000000 17\n"), Some((Nanos(1_500_000_000), Nanos(250_000_000))));
        assert_eq!((parse_scheduled(""), parse_scheduled("1 x 2")), (None, None));
        let all =
            "cpu  1 2 3 4 5 6 7 900 9 10\ncpu0 1 2 3 4 5 6 7 0 9 10\ncpu12 1 2 3 4 5 6 7 350 9 10\ncpu13 1 2\nintr 5\n";
        assert_eq!(parse_stolen(all), BTreeMap::from([(0, Nanos(0)), (12, Nanos(3_500_000_000))]));
    }

    #[test]
    fn a_value_missing_at_one_end_stays_missing() {
        let away = |wait: u64, steal: Option<u64>| Away { wait: Some(Nanos(wait)), steal: steal.map(Nanos) };
        assert_eq!(away(7, Some(9)).since(&away(5, Some(2))), away(2, Some(7)));
        assert_eq!(away(7, Some(9)).since(&away(5, None)), away(2, None));
        // A core that was removed from the machine and added again counts from 0.
        assert_eq!(away(7, Some(1)).since(&away(5, Some(2))), away(2, Some(0)));
        // Thread 0 does not exist.
        assert_eq!(Away::look(&[(0, usize::MAX)], true), [Away::default()]);
    }
}
