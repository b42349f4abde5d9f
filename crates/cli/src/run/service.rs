//! Reports a run to the service manager that started it: that it has started, its state, and that its workers run.

use std::time::{Duration, Instant};

use forebay_instance::PipelineCounters;
use forebay_server::notify::{Notifier, keep_alive_interval};

use crate::format::counted;

/// The time between two looks at the state.
const LOOK: Duration = Duration::from_secs(1);

/// A run as the service manager sees it.
pub(super) struct Service {
    notifier: Notifier,
    /// The state that was reported last.
    status: String,
    /// When the state is looked at next.
    next: Instant,
    watchdog: Option<Watchdog>,
}

impl Service {
    /// Reports that packets are forwarded and that the run accepts requests.
    pub(super) fn ready(notifier: Notifier, board: &PipelineCounters) -> Self {
        let (status, now) = (status(board), Instant::now());
        notifier.ready(&status);
        let watchdog = keep_alive_interval().map(|interval| Watchdog { interval, next: now, turns: Vec::new() });
        Self { notifier, status, next: now + LOOK, watchdog }
    }

    /// Reports that the workers run, if that is due, and the state if it has changed. Must be called many times a
    /// second.
    pub(super) fn look(&mut self, board: &PipelineCounters) {
        let now = Instant::now();
        if self.watchdog.as_mut().is_some_and(|watchdog| watchdog.is_due(now, || turns(board))) {
            self.notifier.keep_alive();
        }
        if now < self.next {
            return;
        }
        self.next = now + LOOK;
        self.notifier.flush();
        let status = status(board);
        if status != self.status {
            self.notifier.status(&status);
            self.status = status;
        }
    }

    /// Reports that the run ends.
    pub(super) fn stopping(&self) {
        self.notifier.stopping();
    }
}

/// Returns the state of a run in words.
fn status(board: &PipelineCounters) -> String {
    let workers = board.telemetries();
    let name = workers.first().map_or("", |worker| worker.pipeline.as_str());
    format!("pipeline {name}, {}", counted(workers.len() as u64, "worker"))
}

/// Returns the number of turns of each worker. A worker that waits for packets runs turns, too: at least one every
/// 10 ms.
fn turns(board: &PipelineCounters) -> Vec<u64> {
    board.telemetries().iter().map(|worker| worker.worker.turns.get()).collect()
}

/// Decides when to report that the workers run.
struct Watchdog {
    /// The time between two reports.
    interval: Duration,
    /// When the next report is due.
    next: Instant,
    /// The turns of each worker at the last report.
    turns: Vec<u64>,
}

impl Watchdog {
    /// Returns whether to report now: the interval has passed, and since the last report every worker has run a turn.
    /// If a worker has not, the report waits for it.
    fn is_due(&mut self, now: Instant, turns: impl FnOnce() -> Vec<u64>) -> bool {
        if now < self.next {
            return false;
        }
        let turns = turns();
        // After a reload, the turns count from 0 again, and there may be more workers.
        if turns.iter().enumerate().any(|(worker, turns)| self.turns.get(worker) == Some(turns)) {
            return false;
        }
        (self.turns, self.next) = (turns, now + self.interval);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_runs_no_turn_stops_the_reports() {
        let (start, step) = (Instant::now(), Duration::from_millis(10));
        let mut watchdog = Watchdog { interval: 3 * step, next: start, turns: Vec::new() };
        let mut turns = [7_u64, 0];
        // At each step, the workers that run count a turn: first both, then only the first one, then both.
        let mut look = |at: u32, running: [bool; 2]| {
            (0..2).filter(|worker| running[*worker]).for_each(|worker| turns[worker] += 1);
            watchdog.is_due(start + at * step, || turns.to_vec())
        };
        let reports: Vec<_> = (0..30).filter(|at| look(*at, [true, !(10..20).contains(at)])).collect();
        // The report that is due at step 12 comes when worker 1 runs again, at step 20.
        assert_eq!(reports, [0, 3, 6, 9, 20, 23, 26, 29]);
    }

    #[test]
    fn a_reload_stops_no_report() {
        let (start, step) = (Instant::now(), Duration::from_millis(10));
        let mut watchdog = Watchdog { interval: step, next: start, turns: Vec::new() };
        let workers: [&[u64]; 5] = [&[100], &[3], &[4, 0], &[5, 1], &[1]];
        for (at, turns) in (0_u32..).zip(workers) {
            assert!(watchdog.is_due(start + at * step, || turns.to_vec()), "{turns:?}");
        }
        // The new worker does not run.
        assert!(!watchdog.is_due(start + 9 * step, || vec![1]));
    }
}
