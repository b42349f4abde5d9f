//! The shares of CPUs' time (`/proc/stat`, `proc_stat(5)`), over a span or since the system's start.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::tree::{Tree, Unknown, senseless};

/// The file with the times.
pub const FILE: &str = "/proc/stat";

/// The times of a CPU since the system's start, in units of about 1/100 s. Only the ratios of times are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// The time of programs, the kernel and interrupts.
    pub busy: u64,
    /// Idle time.
    pub idle: u64,
    /// The time in which the hypervisor ran other work although the CPU was not idle.
    pub steal: u64,
}

/// The period that a load or a rate covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The time between two readings, which has this length.
    Span(Duration),
    /// The time since the system's start. It is used if there is only one reading, or if the values have not changed,
    /// for example in a tree of test files.
    Start,
}

impl std::fmt::Display for Over {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Span(span) => write!(f, "over {} ms", span.as_millis()),
            Self::Start => f.write_str("since the start"),
        }
    }
}

/// The shares of a CPU's time, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// The share in which the CPU worked.
    pub busy: f64,
    /// The share that the hypervisor took.
    pub steal: f64,
    /// The period of the shares.
    pub over: Over,
}

impl Load {
    /// Computes the shares of the time between two readings, which are `span` apart. Without an earlier reading, or if
    /// no value has changed, computes the shares since the system's start. Returns `None` if all times are 0.
    #[must_use]
    pub fn between(earlier: Option<&CpuTimes>, later: &CpuTimes, span: Duration) -> Option<Self> {
        let since = earlier.map(|earlier| CpuTimes {
            busy: later.busy.saturating_sub(earlier.busy),
            idle: later.idle.saturating_sub(earlier.idle),
            steal: later.steal.saturating_sub(earlier.steal),
        });
        let total = |times: &CpuTimes| times.busy.saturating_add(times.idle).saturating_add(times.steal);
        let (times, over) = match since.filter(|times| total(times) > 0) {
            Some(since) => (since, Over::Span(span)),
            None => (*later, Over::Start),
        };
        let all = total(&times) as f64;
        (all > 0.0).then(|| Self { busy: times.busy as f64 / all, steal: times.steal as f64 / all, over })
    }
}

/// Reads the times of all CPUs, by number.
///
/// # Errors
/// Returns [`Unknown`] if the file cannot be read or has no CPUs.
pub fn read(tree: &Tree) -> Result<BTreeMap<usize, CpuTimes>, Unknown> {
    let text = tree.listing(FILE)?;
    let times: BTreeMap<_, _> = text.lines().filter_map(line).collect();
    if times.is_empty() {
        return Err(senseless(FILE, &text, "a line 'cpuN …' for each CPU"));
    }
    Ok(times)
}

/// Parses a line `cpuN user nice system idle iowait irq softirq steal guest guest_nice`. The columns of guests are
/// ignored, because their times are part of the user's times. Old kernels have fewer columns. Returns `None` for other
/// lines, and for the line `cpu` of all CPUs together.
pub(crate) fn line(line: &str) -> Option<(usize, CpuTimes)> {
    let mut words = line.strip_prefix("cpu")?.split_ascii_whitespace();
    let number = words.next().filter(|_| !line.starts_with("cpu "))?.parse().ok()?;
    let mut columns = [0u64; 8];
    let mut given = 0;
    for (column, word) in columns.iter_mut().zip(words) {
        *column = word.parse().ok()?;
        given += 1;
    }
    let [user, nice, system, idle, iowait, irq, softirq, steal] = columns;
    let sum = |parts: &[u64]| parts.iter().fold(0u64, |sum, part| sum.saturating_add(*part));
    let times = CpuTimes { busy: sum(&[user, nice, system, irq, softirq]), idle: sum(&[idle, iowait]), steal };
    (given >= 4).then_some((number, times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_times_of_a_cpu() {
        let read = line("cpu3 10 1 5 100 4 2 3 7 9 9").expect("a line");
        assert_eq!(read, (3, CpuTimes { busy: 21, idle: 104, steal: 7 }));
        for wrong in ["cpu  1 2 3 4 5", "intr 1", "cpu1 a b c d", "cpu1 1 2 3", "cpux 1 2 3 4", ""] {
            assert_eq!(line(wrong), None, "{wrong}");
        }
        assert!(line(&format!("cpu0 {0} {0} {0} {0} {0}", u64::MAX)).is_some_and(|(_, times)| times.busy == u64::MAX));
    }

    #[test]
    fn shares_cover_the_span_or_the_time_since_the_start() {
        let span = Duration::from_millis(500);
        let (earlier, later) =
            (CpuTimes { busy: 100, idle: 900, steal: 0 }, CpuTimes { busy: 130, idle: 910, steal: 10 });
        let load = Load::between(Some(&earlier), &later, span).expect("it advances");
        assert_eq!((load.busy, load.steal, load.over), (0.6, 0.2, Over::Span(span)));
        let load = Load::between(Some(&earlier), &earlier, span).expect("since the start");
        assert_eq!((load.busy, load.over), (0.1, Over::Start));
        assert_eq!(Load::between(None, &CpuTimes::default(), span), None);
    }
}
