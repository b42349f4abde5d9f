//! The workers of a pipeline in simulated time, and the rings between them. The worker whose next turn is earliest runs
//! next.

use std::sync::Arc;

use forebay_graph::Scheduler;
use forebay_protocol::Action;

use crate::ring::Ring;
use crate::scene::Scene;
use crate::tally::{Summary, Tally};
use crate::time::Picos;
use crate::worker::{CallCost, NextTurn, Worker};

/// The time that a turn takes in addition to the calls of modules, as in the engine's `drive`.
const TURN: Picos = Picos(64_000);

/// The workers of a pipeline, with any scheduler.
pub(crate) trait Workers {
    /// Advances the time to `until`.
    fn run(&mut self, until: Picos);
    /// Applies a controller's actions to all workers. Every worker then runs a turn at once.
    fn apply(&mut self, actions: &[Action]);
    /// Returns the counts of each worker since its start.
    fn tallies(&mut self) -> Vec<Tally>;
    /// Returns the totals of all workers since their start.
    fn summary(&self) -> Summary;
    /// Returns the rate that all sources offer together, in packets per second; `None` if one saturates.
    fn offered(&self) -> Option<f64>;
    /// Returns the longest on-off period of a source, in seconds; 0 without on-off traffic.
    fn cycle(&self) -> f64;
    /// Returns the number of packets that wait for modules, at sources, and on rings.
    fn waiting(&self) -> [u64; 3];
    /// Returns the present state of a module.
    fn module(&self, module: usize) -> ModuleNow;
}

/// The state of a module between two turns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ModuleNow {
    /// The trigger; 0 if there is none.
    pub(crate) trigger: usize,
    /// The hold limit; 0 without a trigger.
    pub(crate) hold: Picos,
    /// The weight; 0 with a scheduler that does not share time.
    pub(crate) weight: u32,
    /// The number of packets in the module's queues on all workers, as last published.
    pub(crate) queued: u64,
    /// The longest time that a packet has waited for the trigger, as last published; 0 without a trigger.
    pub(crate) oldest: Picos,
}

/// The workers of a pipeline, with one scheduler.
pub(crate) struct Team<S> {
    scene: Arc<Scene>,
    workers: Vec<Worker<S>>,
    rings: Vec<Ring>,
    /// By worker: the time of the next turn.
    next_turns: Vec<NextTurn>,
}

impl<S: Scheduler> Team<S> {
    /// Creates the workers and rings of a scene. `costs` are by module.
    pub(crate) fn new(scene: &Arc<Scene>, costs: &[CallCost], seed: u64) -> Self {
        let workers = (0..scene.workers.len()).map(|id| Worker::new(scene, id, costs.to_vec(), seed)).collect();
        let rings = scene.rings.iter().map(|_| Ring::new(scene.layout.batch as u32)).collect();
        Self { scene: Arc::clone(scene), workers, rings, next_turns: vec![NextTurn::Now; scene.workers.len()] }
    }
}

impl<S: Scheduler> Workers for Team<S> {
    fn run(&mut self, until: Picos) {
        loop {
            let mut earliest: Option<(usize, Picos)> = None;
            for (at, (worker, next_turn)) in self.workers.iter().zip(&self.next_turns).enumerate() {
                let instant = match *next_turn {
                    NextTurn::Now => worker.clock,
                    NextTurn::At(instant) => worker.sent_to(&self.rings).map_or(instant, |sent| sent.min(instant)),
                };
                let instant = instant.max(worker.clock);
                if earliest.is_none_or(|(_, least)| instant < least) {
                    earliest = Some((at, instant));
                }
            }
            let Some((at, instant)) = earliest.filter(|(_, instant)| *instant < until) else { break };
            let worker = &mut self.workers[at];
            worker.clock = instant;
            self.next_turns[at] = worker.turn(&mut self.rings);
            if self.next_turns[at] == NextTurn::Now {
                worker.clock += TURN;
            }
        }
        self.workers.iter_mut().for_each(|worker| worker.clock = worker.clock.max(until));
    }

    fn apply(&mut self, actions: &[Action]) {
        self.workers.iter_mut().for_each(|worker| worker.apply(actions));
        // The actions may have given the workers something to do.
        self.next_turns.fill(NextTurn::Now);
    }

    fn tallies(&mut self) -> Vec<Tally> {
        self.workers.iter_mut().for_each(Worker::count_queues);
        self.workers.iter().map(|worker| worker.tally.clone()).collect()
    }

    fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        for worker in &self.workers {
            summary.count(worker.clock, worker.tally.left, worker.calls, worker.tally.busy, worker.delay);
        }
        summary
    }

    fn offered(&self) -> Option<f64> {
        self.workers.iter().flat_map(Worker::sources).map(|source| source.rate()).sum()
    }

    fn cycle(&self) -> f64 {
        self.workers.iter().flat_map(Worker::sources).map(|source| source.cycle()).fold(0.0, f64::max)
    }

    fn waiting(&self) -> [u64; 3] {
        let each = self.workers.iter().map(Worker::waiting);
        let (queued, at_sources) = each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        [queued, at_sources, self.rings.iter().map(Ring::packets).sum()]
    }

    fn module(&self, module: usize) -> ModuleNow {
        let layout = &self.scene.layout.modules[module];
        let mut now = ModuleNow::default();
        for worker in layout.workers.iter().map(|worker| &self.workers[*worker]) {
            (now.trigger, now.hold) = worker.buffer(layout.leader);
            now.weight = worker.weights[module];
            let gauge = worker.gauge(module);
            now.queued += gauge.queued;
            if gauge.queued > 0 && now.trigger > 0 {
                now.oldest = now.oldest.max(gauge.oldest);
            }
        }
        now
    }
}
