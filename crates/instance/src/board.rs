//! What all workers count together, over all graphs that they have run.

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
use crate::running::WorkerThread;

/// The counters of a running pipeline.
pub struct Board {
    frequency: Frequency,
    /// When it began.
    began: Ticks,
    state: Mutex<State>,
}

pub(crate) struct State {
    /// By worker, of the present graph.
    pub(crate) telemetries: Vec<Arc<Telemetry>>,
    pub(crate) team: Arc<Team>,
    /// What the graphs before counted.
    pub(crate) past: Reading,
    pub(crate) origin: RunFacts,
    /// What sets the triggers, where something does.
    pub(crate) control_loop: Option<Arc<ControlLoop>>,
    /// The time that the machine takes from workers.
    pub(crate) machine: Machine,
}

/// The time that the machine has taken from workers since they began. In simulated time there are no threads, and
/// nothing is known.
#[derive(Default)]
pub(crate) struct Machine {
    threads: Vec<Watched>,
    /// When the steal was read last.
    steal_read: Option<Instant>,
}

/// Controllers, which ask every few milliseconds, are given a steal that is at most so old.
const STEAL_AGE: Duration = Duration::from_millis(100);

/// A worker's thread.
struct Watched {
    thread: WorkerThread,
    /// The counts of the system at the first look.
    before: Away,
    /// The counts since then at the last look: the system no longer reports a thread that has ended.
    taken: Away,
}

impl Machine {
    /// Watches these threads from now on. Those that were watched go on counting.
    pub(crate) fn watch(&mut self, threads: &[WorkerThread]) {
        let mut known = std::mem::take(&mut self.threads);
        for (thread, before) in threads.iter().zip(look(threads.iter(), true)) {
            let at = known.iter().position(|watched| watched.thread == *thread);
            let fresh = || Watched { thread: *thread, before, taken: before.since(&before) };
            self.threads.push(at.map_or_else(fresh, |at| known.swap_remove(at)));
        }
    }

    /// By worker: what the machine has taken. Its steal is at most `age` old.
    pub(crate) fn taken(&mut self, age: Duration) -> impl Iterator<Item = (usize, Away)> {
        let with_steal = self.steal_read.is_none_or(|read| read.elapsed() >= age);
        if with_steal {
            self.steal_read = Some(Instant::now());
        }
        let now = look(self.threads.iter().map(|watched| &watched.thread), with_steal);
        for (watched, now) in self.threads.iter_mut().zip(now) {
            let taken = now.since(&watched.before);
            watched.taken =
                Away { wait: taken.wait.or(watched.taken.wait), steal: taken.steal.or(watched.taken.steal) };
        }
        self.threads.iter().map(|watched| (watched.thread.worker, watched.taken))
    }
}

fn look<'t>(threads: impl Iterator<Item = &'t WorkerThread>, with_steal: bool) -> Vec<Away> {
    Away::look(&threads.map(|thread| (thread.tid, thread.core)).collect::<Vec<_>>(), with_steal)
}

impl Board {
    /// A board of these workers, one at least, which began at this instant of their clock.
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

    /// The counters; while a change is made, whoever asks waits.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When the run began.
    #[must_use]
    pub fn began(&self) -> Ticks {
        self.began
    }

    /// What has been counted since the beginning, at the instant `at`.
    #[must_use]
    pub fn read(&self, at: Ticks) -> Reading {
        let mut state = self.state();
        let mut all = Reading::of(&state.telemetries[0], at);
        state.telemetries[1..].iter().for_each(|told| all.merge(&Reading::of(told, at)));
        // Of what is gone only the packets are told: the past has nothing else.
        all.merge(&state.past);
        state.machine.taken(Duration::ZERO).for_each(|(worker, away)| all.note_away(worker, away));
        all
    }

    /// By worker: what the machine has taken of its time since it began.
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

    /// What was counted when nothing had happened.
    #[must_use]
    pub fn nothing(&self) -> Reading {
        Reading::nothing(self.frequency, self.began)
    }

    /// What happened between two readings.
    #[must_use]
    pub fn report(&self, earlier: &Reading, later: &Reading) -> Report {
        let state = self.state();
        let report = later.report_since(&earlier, &state.origin);
        Report { control: state.control_loop.as_ref().map(|control_loop| control_loop.report()), ..report }
    }

    /// Whether nothing would happen any more if nothing came from outside.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.state().team.is_quiet()
    }

    /// Where no packet comes from outside any more and something that is held is waited for: when that may go on.
    #[must_use]
    pub fn waits_until(&self) -> Option<Ticks> {
        self.state().team.waits_until()
    }

    /// What sets the triggers of the present graph, where something does, and what its workers count.
    pub(crate) fn control_loop_and_telemetries(&self) -> (Option<Arc<ControlLoop>>, Vec<Arc<Telemetry>>) {
        let state = self.state();
        (state.control_loop.clone(), state.telemetries.clone())
    }

    /// What the workers of the present graph count.
    #[must_use]
    pub fn telemetries(&self) -> Vec<Arc<Telemetry>> {
        self.state().telemetries.clone()
    }
}
