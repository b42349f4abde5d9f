//! The workers of one pipeline in simulated time: of those that have something to do, the one that is earliest has its turn
//! next. Rings are between them.

use std::sync::Arc;

use forebay_graph::{Action, Scheduler};

use crate::ring::Ring;
use crate::scene::Scene;
use crate::tally::{Gist, Tally};
use crate::time::Picos;
use crate::worker::{Next, Price, Worker};

/// What a simulated turn takes by itself: as the engine's.
const TURN: Picos = Picos(64_000);

/// Workers with any scheduler.
pub(crate) trait Play {
    /// Lets time pass until `until`.
    fn run(&mut self, until: Picos);
    fn apply(&mut self, actions: &[Action]);
    /// What each worker has counted since the beginning.
    fn tallies(&mut self) -> Vec<Tally>;
    fn gist(&self) -> Gist;
    /// Packets a second that all sources offer; `None` where one saturates.
    fn offered(&self) -> Option<f64>;
    /// How long the longest cycle of a source is, in seconds.
    fn cycle(&self) -> f64;
    /// Packets that wait for modules, at sources, and on rings.
    fn waiting(&self) -> [u64; 3];
    /// What a module is like now.
    fn module(&self, module: usize) -> ModuleNow;
}

/// A module between two turns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ModuleNow {
    pub(crate) trigger: usize,
    pub(crate) hold: Picos,
    pub(crate) weight: u32,
    pub(crate) queued: u64,
    pub(crate) oldest: Picos,
}

/// Workers with one scheduler.
pub(crate) struct Team<S> {
    scene: Arc<Scene>,
    workers: Vec<Worker<S>>,
    rings: Vec<Ring>,
    wants: Vec<Next>,
}

impl<S: Scheduler> Team<S> {
    pub(crate) fn new(scene: &Arc<Scene>, prices: &[Price], seed: u64) -> Self {
        let workers = (0..scene.workers.len()).map(|id| Worker::new(scene, id, prices.to_vec(), seed)).collect();
        let rings = scene.rings.iter().map(|_| Ring::new(scene.layout.batch as u32)).collect();
        Self { scene: Arc::clone(scene), workers, rings, wants: vec![Next::Now; scene.workers.len()] }
    }
}

impl<S: Scheduler> Play for Team<S> {
    fn run(&mut self, until: Picos) {
        loop {
            let mut earliest: Option<(usize, Picos)> = None;
            for (at, (worker, want)) in self.workers.iter().zip(&self.wants).enumerate() {
                let instant = match *want {
                    Next::Now => worker.clock,
                    Next::At(instant) => worker.sent_to(&self.rings).map_or(instant, |sent| sent.min(instant)),
                };
                let instant = instant.max(worker.clock);
                if earliest.is_none_or(|(_, least)| instant < least) {
                    earliest = Some((at, instant));
                }
            }
            let Some((at, instant)) = earliest.filter(|(_, instant)| *instant < until) else { break };
            let worker = &mut self.workers[at];
            worker.clock = instant;
            self.wants[at] = worker.turn(&mut self.rings);
            if self.wants[at] == Next::Now {
                worker.clock += TURN;
            }
        }
        self.workers.iter_mut().for_each(|worker| worker.clock = worker.clock.max(until));
    }

    fn apply(&mut self, actions: &[Action]) {
        self.workers.iter_mut().for_each(|worker| worker.apply(actions));
        // There may be something to do now.
        self.wants.fill(Next::Now);
    }

    fn tallies(&mut self) -> Vec<Tally> {
        self.workers.iter_mut().for_each(Worker::count_queues);
        self.workers.iter().map(|worker| worker.tally.clone()).collect()
    }

    fn gist(&self) -> Gist {
        let mut gist = Gist::default();
        for worker in &self.workers {
            gist.count(worker.clock, worker.tally.left, worker.calls, worker.tally.busy, worker.delay);
        }
        gist
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
        let told = &self.scene.layout.modules[module];
        let mut now = ModuleNow::default();
        for worker in told.workers.iter().map(|worker| &self.workers[*worker]) {
            (now.trigger, now.hold) = worker.buffer(told.leader);
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
