//! Snapshots of the counters of the kernel and of the threads, taken at both ends of a span.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Instant;

use forebay_graph::report::Reading;
use forebay_host::Tree;
use forebay_measure::{Away, Clock, Tsc, away::stolen};
use forebay_units::Nanos;

use super::{Rival, Running};
use crate::bandwidth;
use crate::record::Load;

/// The counters of the whole machine, which take long to read.
///
/// The measuring thread reads them before it leaves its core ([`LEAVE`](super::LEAVE)) and again after the span, so
/// they cover a longer time than the span. Only rates are computed from them.
pub(super) struct SlowSnapshot {
    at: Instant,
    /// The bytes to and from memory so far, if the kernel counts them.
    bytes: Option<u64>,
    /// By core: the time so far in which the host of this virtual machine had the core.
    stolen: BTreeMap<usize, Nanos>,
}

/// The counts between two slow snapshots.
pub(super) struct SlowCounts {
    /// The bytes per second to and from memory, if the kernel counts them.
    pub(super) bytes_per_second: Option<f64>,
    /// The share of the time in which the host of this virtual machine had each core.
    stolen: BTreeMap<usize, f64>,
}

impl SlowSnapshot {
    pub(super) fn take(tree: &Tree) -> Self {
        Self { at: Instant::now(), bytes: bandwidth::bytes(tree), stolen: stolen() }
    }

    /// Returns the rates between an earlier snapshot and this one.
    pub(super) fn since(&self, earlier: &Self) -> SlowCounts {
        let seconds = self.at.duration_since(earlier.at).as_secs_f64();
        let bytes = earlier.bytes.zip(self.bytes).map(|(before, now)| now.saturating_sub(before));
        let share = |(core, now): (&usize, &Nanos)| {
            let taken = now.0.saturating_sub(earlier.stolen.get(core)?.0);
            Some((*core, taken as f64 / 1e9 / seconds))
        };
        let stolen = self.stolen.iter().filter_map(share).collect();
        SlowCounts { bytes_per_second: bytes.map(|bytes| bytes as f64 / seconds), stolen }
    }
}

impl SlowCounts {
    /// Returns the share of the time in which the host had a core.
    pub(super) fn stolen(&self, core: usize) -> f64 {
        self.stolen.get(&core).copied().unwrap_or(0.0)
    }
}

/// The counters that can be read in microseconds. They must be read quickly: if the threads occupy all cores, this read
/// takes time from one of them during the span.
pub(super) struct QuickSnapshot {
    /// The counters of the function.
    pub(super) packets: Reading,
    /// By thread: its core, and the time for which it has waited for this core. The first thread is that of the
    /// function.
    waited: Vec<(usize, Away)>,
    /// The work of each competitor.
    pub(super) work: Vec<Work>,
}

impl QuickSnapshot {
    pub(super) fn take(running: &Running, rivals: &[Rival]) -> Self {
        let packets = running.board.read(Tsc.now());
        let threads = running.threads.iter().copied().chain(rivals.iter().flat_map(Rival::threads));
        let threads: Vec<_> = threads.map(|thread| (thread.tid, thread.core)).collect();
        let away = Away::look(&threads, false);
        let waited = threads.into_iter().map(|(_, core)| core).zip(away).collect();
        Self { packets, waited, work: rivals.iter().map(Rival::work).collect() }
    }

    /// Returns, for each thread, its core and the share of the time since `earlier` in which the thread waited for this
    /// core. `seconds` is this time.
    pub(super) fn waited_since(&self, earlier: &Self, seconds: f64) -> impl Iterator<Item = (usize, f64)> {
        self.waited.iter().zip(&earlier.waited).map(move |((core, now), (_, before))| {
            let waited = now.since(before).wait.unwrap_or_default();
            (*core, waited.0 as f64 / 1e9 / seconds)
        })
    }
}

/// The work of a competitor so far.
pub(super) enum Work {
    Function(Box<Reading>),
    Synthetic { walked: u64, streamed: u64 },
}

impl Rival {
    /// Returns the work so far.
    fn work(&self) -> Work {
        match self {
            Self::Function(running) => Work::Function(Box::new(running.board.read(Tsc.now()))),
            Self::Synthetic { lines, .. } => Work::Synthetic {
                walked: lines.walked.load(Ordering::Relaxed),
                streamed: lines.streamed.load(Ordering::Relaxed),
            },
        }
    }

    /// Returns the work between two snapshots of this competitor, per second.
    pub(super) fn load(&self, earlier: &Work, later: &Work, seconds: f64) -> Load {
        let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
        match (self, earlier, later) {
            (Self::Function(running), Work::Function(earlier), Work::Function(later)) => {
                let entered = running.board.report(earlier, later).packets.entered;
                Load { packets: rate(0, entered), ..Load::default() }
            }
            (
                Self::Synthetic { .. },
                Work::Synthetic { walked, streamed },
                Work::Synthetic { walked: walked_now, streamed: streamed_now },
            ) => {
                Load { walked: rate(*walked, *walked_now), streamed: rate(*streamed, *streamed_now), ..Load::default() }
            }
            _ => unreachable!("both snapshots are of this competitor"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A longer time between slow snapshots does not count as more bytes or stolen time of the span.
    #[test]
    fn slow_figures_are_rates_of_their_own_time() {
        let at = Instant::now();
        let look = |after_ms: u64, bytes, stolen_ms: u64| SlowSnapshot {
            at: at + std::time::Duration::from_millis(after_ms),
            bytes,
            stolen: BTreeMap::from([(3, Nanos(stolen_ms * 1_000_000))]),
        };
        let counts = look(50, Some(1_500), 35).since(&look(0, Some(500), 10));
        assert_eq!(counts.bytes_per_second, Some(20_000.0));
        assert!((counts.stolen(3) - 0.5).abs() < 1e-12 && counts.stolen(4) == 0.0);
        assert_eq!(look(50, None, 0).since(&look(0, Some(500), 10)).bytes_per_second, None);
    }
}
