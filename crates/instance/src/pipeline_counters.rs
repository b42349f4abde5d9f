//! The sums of all workers' counters, over all graphs that they have run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_graph::{
    Team, Telemetry,
    report::{Reading, RunFacts},
};
use forebay_measure::Away;
use forebay_protocol::report::Report;
use forebay_units::{Frequency, Ticks};

use crate::control_loop::ControlLoop;
use crate::worker_thread::WorkerThread;

/// The counters of a running pipeline. They cover the whole run, also across reloads. The code also calls this value
/// the board.
pub struct PipelineCounters {
    frequency: Frequency,
    /// When the run began.
    began: Ticks,
    state: Mutex<State>,
}

/// The values that a reload replaces, all at the same time under one lock.
pub(crate) struct State {
    /// The counters of each worker, for the present graph.
    pub(crate) telemetries: Vec<Arc<Telemetry>>,
    /// The team of the workers of the present graph.
    pub(crate) team: Arc<Team>,
    /// The counts of earlier graphs, which are added to those of the present graph.
    pub(crate) past: Reading,
    /// Facts about the run that a report contains.
    pub(crate) origin: RunFacts,
    /// The control loop, if the pipeline has a controller.
    pub(crate) control_loop: Option<Arc<ControlLoop>>,
    /// The time that the machine takes from workers.
    pub(crate) machine: Machine,
}

/// The time that the machine (the host, or other threads on the workers' cores) has taken from workers since they
/// began. In simulated time, no threads are watched.
#[derive(Default)]
pub(crate) struct Machine {
    /// The workers' threads, by worker number.
    threads: Vec<Watched>,
    /// The last time at which the steal time was read.
    steal_read: Option<Instant>,
}

/// The largest age of the steal time (the time that the host took from a core) for controllers. Controllers may decide
/// every few milliseconds, and reading the steal time takes longer than reading other counts.
const STEAL_AGE: Duration = Duration::from_millis(100);

/// A worker's thread.
struct Watched {
    thread: WorkerThread,
    /// The system's counts when the watch began.
    before: Away,
    /// The counts since then, at the last reading. They are kept because the system does not report a thread that has
    /// ended.
    taken: Away,
}

impl Machine {
    /// Watches exactly these threads from now on. Threads that are already watched keep their counts.
    pub(crate) fn watch(&mut self, threads: &[WorkerThread]) {
        let mut known = std::mem::take(&mut self.threads);
        for (thread, before) in threads.iter().zip(read_away(threads.iter(), true)) {
            let index = known.iter().position(|watched| watched.thread == *thread);
            let fresh = || Watched { thread: *thread, before, taken: before.since(&before) };
            self.threads.push(index.map_or_else(fresh, |index| known.swap_remove(index)));
        }
    }

    /// Returns each worker with the time that the machine has taken from it. The steal time is at most `age` old.
    pub(crate) fn taken(&mut self, age: Duration) -> impl Iterator<Item = (usize, Away)> {
        let with_steal = self.steal_read.is_none_or(|read| read.elapsed() >= age);
        if with_steal {
            self.steal_read = Some(Instant::now());
        }
        let now = read_away(self.threads.iter().map(|watched| &watched.thread), with_steal);
        for (watched, now) in self.threads.iter_mut().zip(now) {
            let taken = now.since(&watched.before);
            watched.taken =
                Away { wait: taken.wait.or(watched.taken.wait), steal: taken.steal.or(watched.taken.steal) };
        }
        self.threads.iter().map(|watched| (watched.thread.worker, watched.taken))
    }
}

/// Reads the system's counts of these threads. Without `with_steal`, the steal time is `None`.
fn read_away<'t>(threads: impl Iterator<Item = &'t WorkerThread>, with_steal: bool) -> Vec<Away> {
    Away::look(&threads.map(|thread| (thread.tid, thread.core)).collect::<Vec<_>>(), with_steal)
}

impl PipelineCounters {
    /// Creates the counters of these workers. There must be at least one worker. The workers began at `began` on their
    /// clock.
    pub(crate) fn new(
        began: Ticks,
        telemetries: Vec<Arc<Telemetry>>,
        team: Arc<Team>,
        origin: RunFacts,
        control_loop: Option<Arc<ControlLoop>>,
    ) -> Self {
        let frequency = telemetries[0].frequency;
        let past = Reading::nothing(frequency, began);
        let machine = Machine::default();
        Self { frequency, began, state: Mutex::new(State { telemetries, team, past, origin, control_loop, machine }) }
    }

    /// Locks and returns the values for the present graph. Waits while a reload takes effect.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when the run began.
    #[must_use]
    pub fn began(&self) -> Ticks {
        self.began
    }

    /// Returns the counts from the beginning of the run to the instant `at`.
    #[must_use]
    pub fn read(&self, at: Ticks) -> Reading {
        let mut state = self.state();
        let mut all = Reading::of(&state.telemetries[0], at);
        state.telemetries[1..].iter().for_each(|telemetry| all.merge(&Reading::of(telemetry, at)));
        // For modules that have been removed, the past contains only the fates of their packets.
        all.merge(&state.past);
        state.machine.taken(Duration::ZERO).for_each(|(worker, away)| all.note_away(worker, away));
        all
    }

    /// Returns the time that the machine has taken from each worker since the worker began.
    pub(crate) fn away(&self) -> Vec<Away> {
        let mut state = self.state();
        let mut away = vec![Away::default(); state.telemetries.len()];
        for (worker, taken) in state.machine.taken(STEAL_AGE) {
            if let Some(away) = away.get_mut(worker) {
                *away = taken;
            }
        }
        away
    }

    /// Returns the reading at the beginning of the run, with all counts at zero.
    #[must_use]
    pub fn nothing(&self) -> Reading {
        Reading::nothing(self.frequency, self.began)
    }

    /// Returns the report about the time between two readings.
    #[must_use]
    pub fn report(&self, earlier: &Reading, later: &Reading) -> Report {
        let state = self.state();
        let report = later.report_since(earlier, &state.origin);
        Report { control: state.control_loop.as_ref().map(|control_loop| control_loop.report()), ..report }
    }

    /// Returns whether the workers would do nothing more without new packets from outside.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.state().team.is_quiet()
    }

    /// Returns the earliest instant at which a held packet may continue. `None` if no packet is held, or if packets may
    /// still come from outside.
    #[must_use]
    pub fn waits_until(&self) -> Option<Ticks> {
        self.state().team.waits_until()
    }

    /// Returns the control loop and the counters of the workers of the present graph. The control loop is `None` if the
    /// graph has no controller.
    pub(crate) fn control_loop_and_telemetries(&self) -> (Option<Arc<ControlLoop>>, Vec<Arc<Telemetry>>) {
        let state = self.state();
        (state.control_loop.clone(), state.telemetries.clone())
    }

    /// Returns the counters of the workers of the present graph.
    #[must_use]
    pub fn telemetries(&self) -> Vec<Arc<Telemetry>> {
        self.state().telemetries.clone()
    }
}
