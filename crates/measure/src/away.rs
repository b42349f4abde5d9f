//! How long a thread had no core although it could have run: as the kernel tells, and the host of a virtual machine.
//!
//! Everything is read from `/proc` from outside: the thread notices nothing.

use std::collections::BTreeMap;
use std::fs;

use crate::Nanos;

/// Hundredths of a second, in which `/proc/stat` counts whatever the kernel's own tick is (USER_HZ).
const HUNDREDTH: u64 = 10_000_000;

/// The time taken from a thread up to an instant. `None` where the system does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Away {
    /// For how long it waited in a run queue, since it began.
    pub wait: Option<Nanos>,
    /// For how long the host of this virtual machine had its core, since the machine began. 0 on a machine of its own.
    pub steal: Option<Nanos>,
}

impl Away {
    /// Of threads of this process, each with the core that it is bound to. The steal is read for all cores of the
    /// machine at once, which takes milliseconds where there are hundreds: it is left out where it is not wanted.
    #[must_use]
    pub fn look(threads: &[(u32, usize)], with_steal: bool) -> Vec<Self> {
        let stolen = if with_steal && !threads.is_empty() { stolen() } else { BTreeMap::new() };
        let look = |(tid, core): &(u32, usize)| Self {
            wait: scheduled(*tid).map(|(_, waited)| waited),
            steal: stolen.get(core).copied(),
        };
        threads.iter().map(look).collect()
    }

    /// Returns the time taken since `earlier`; `None` where the system did not report it then.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let since = |now: Option<Nanos>, before: Option<Nanos>| Some(Nanos(now?.0.saturating_sub(before?.0)));
        Self { wait: since(self.wait, earlier.wait), steal: since(self.steal, earlier.steal) }
    }
}

/// For how long a thread of this process ran, and waited in a run queue.
#[must_use]
pub fn scheduled(tid: u32) -> Option<(Nanos, Nanos)> {
    parse_scheduled(&fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).ok()?)
}

/// For how long the host of this virtual machine had each core.
#[must_use]
pub fn stolen() -> BTreeMap<usize, Nanos> {
    parse_stolen(&fs::read_to_string("/proc/stat").unwrap_or_default())
}

/// Of `/proc/PID/task/TID/schedstat`: nanoseconds run, nanoseconds waited in a run queue, times scheduled
/// (Documentation/scheduler/sched-stats.rst).
fn parse_scheduled(text: &str) -> Option<(Nanos, Nanos)> {
    let mut nanos = text.split_ascii_whitespace().map(|number| number.parse().ok().map(Nanos));
    Some((nanos.next()??, nanos.next()??))
}

/// Of `/proc/stat`: by core, the eighth number.
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
    fn what_the_system_writes_is_read() {
        assert_eq!(parse_scheduled("1500000000 250000000 17\n"), Some((Nanos(1_500_000_000), Nanos(250_000_000))));
        assert_eq!((parse_scheduled(""), parse_scheduled("1 x 2")), (None, None));
        let all =
            "cpu  1 2 3 4 5 6 7 900 9 10\ncpu0 1 2 3 4 5 6 7 0 9 10\ncpu12 1 2 3 4 5 6 7 350 9 10\ncpu13 1 2\nintr 5\n";
        assert_eq!(parse_stolen(all), BTreeMap::from([(0, Nanos(0)), (12, Nanos(3_500_000_000))]));
    }

    #[test]
    fn what_is_not_told_at_one_end_is_not_known() {
        let told = |wait: u64, steal: Option<u64>| Away { wait: Some(Nanos(wait)), steal: steal.map(Nanos) };
        assert_eq!(told(7, Some(9)).since(&told(5, Some(2))), told(2, Some(7)));
        assert_eq!(told(7, Some(9)).since(&told(5, None)), told(2, None));
        // A core that was taken off the machine and came back counts from 0.
        assert_eq!(told(7, Some(1)).since(&told(5, Some(2))), told(2, Some(0)));
        // Thread 0 does not exist.
        assert_eq!(Away::look(&[(0, usize::MAX)], true), [Away::default()]);
    }
}
