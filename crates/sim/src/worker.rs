//! A worker, turn by turn as the engine's: a batch from each port, modules in the scheduler's order, branches that meet again
//! merge. What is left out is packets: batches are runs of them, functions are ways and costs.

mod buffers;
mod intake;
mod run;

use std::sync::Arc;

use forebay_graph::Scheduler;
use forebay_packet::{Batch, Ticks};

use crate::queue::{Bundle, Queue};
use crate::random::Random;
use crate::ring::Ring;
use crate::scene::{Scene, Site};
use crate::source::{Ready, Source};
use crate::tally::Tally;
use crate::time::Picos;
use buffers::Gauge;

/// Every so many turns, and in every idle one, buffers are looked at; a buffer over its hold limit may be looked at late by this part of
/// the shortest limit (both as the engine does).
const SWEEP_EVERY: u32 = 16;
const LATE: u64 = 32;

/// What a call costs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Price {
    pub(crate) fixed: Picos,
    pub(crate) each: Picos,
}

/// What a worker wants after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// To be called again at once.
    Now,
    /// To be called at this instant, or when something is sent to it.
    At(Picos),
}

/// A port that packets enter by.
struct Gateway {
    entry: usize,
    /// Its number among the pipeline's ports.
    port: usize,
    source: Source,
    ready: Ready,
}

/// A worker.
pub(crate) struct Worker<S> {
    pub(crate) clock: Picos,
    scene: Arc<Scene>,
    id: usize,
    scheduler: S,
    queues: Vec<Queue>,
    /// How many of the nodes are modules.
    modules: usize,
    prices: Vec<Price>,
    gateways: Vec<Gateway>,
    /// Gateways in the order in which they are read where time is shared out: who gave packets last comes last.
    rota: Vec<usize>,
    /// What could not be given to other workers in this turn, by kind of crossing, and the places where it waits.
    stuck: [bool; 3],
    waiting: Vec<usize>,
    /// The time as the worker knows it: as of the turn's beginning, or when packets last left.
    now: Picos,
    began: Picos,
    was_busy: bool,
    turn: u32,
    /// Modules with a trigger; before when none is looked at; the shortest hold limit.
    buffered: Vec<usize>,
    sweep_at: Picos,
    least_hold: Picos,
    /// By module: the limit that was set, and the flows with objectives that pass.
    hold_stated: Vec<Option<Picos>>,
    flows_of: Vec<Vec<usize>>,
    objectives: Vec<Option<u64>>,
    budget: u32,
    batch: u32,
    intake: Bundle,
    /// What schedulers ask for that look at packets, which none does without a rate limit.
    nothing: Batch,
    /// By module; and when they are to be read again.
    gauges: Vec<Gauge>,
    publish_at: Picos,
    pub(crate) weights: Vec<u32>,
    pub(crate) tally: Tally,
    /// Calls, and nanoseconds that packets took, of all.
    pub(crate) calls: u64,
    pub(crate) delay: u64,
}

impl<S: Scheduler> Worker<S> {
    pub(crate) fn new(scene: &Arc<Scene>, id: usize, prices: Vec<Price>, seed: u64) -> Self {
        let site = &scene.workers[id];
        let (modules, batch) = (scene.layout.modules.len(), scene.layout.batch as u32);
        let gateways = site.sources.iter().map(|plan| Gateway {
            entry: plan.entry,
            port: plan.port,
            source: Source::new(plan.pace, plan.pattern.clone(), Random::new(seed, (id << 16 | plan.port) as u64)),
            ready: Ready::Now,
        });
        let gateways: Vec<_> = gateways.collect();
        let mut flows_of = vec![Vec::new(); modules];
        for (number, flow) in scene.layout.flows.iter().enumerate() {
            flow.path.iter().for_each(|module| flows_of[*module].push(number));
        }
        let mut worker = Self {
            clock: Picos::ZERO,
            id,
            scheduler: S::new(&site.topology),
            queues: vec![Queue::new(batch); site.nodes.len()],
            modules,
            prices,
            rota: (0..gateways.len()).collect(),
            gateways,
            stuck: [false; 3],
            waiting: Vec::new(),
            now: Picos::ZERO,
            began: Picos::ZERO,
            was_busy: false,
            turn: 0,
            buffered: Vec::new(),
            sweep_at: Picos::NEVER,
            least_hold: Picos::NEVER,
            hold_stated: scene.buffers.iter().map(|(_, hold)| hold.map(|hold| Picos(hold.0 * 1_000))).collect(),
            flows_of,
            objectives: scene.layout.flows.iter().map(|flow| Some((flow.slo_s? * 1e9).round() as u64)).collect(),
            budget: batch * (site.topology.entries.len() as u32 + 1),
            batch,
            intake: Bundle::default(),
            nothing: Batch::none(),
            gauges: vec![Gauge::default(); modules],
            publish_at: Picos::ZERO,
            weights: site.topology.shares.iter().map(|share| if S::SHARES { share.weight } else { 0 }).collect(),
            tally: Tally::new(scene),
            calls: 0,
            delay: 0,
            scene: Arc::clone(scene),
        };
        for (module, (trigger, _)) in scene.buffers.iter().enumerate().filter(|(_, (trigger, _))| *trigger > 0) {
            worker.queues[module].set_trigger(*trigger as u32, batch, Picos::ZERO);
        }
        worker.derive_holds();
        worker
    }

    fn site(&self) -> &Site {
        &self.scene.workers[self.id]
    }

    /// One turn; says when to call again.
    pub(crate) fn turn(&mut self, rings: &mut [Ring]) -> Next {
        let start = self.clock;
        if self.was_busy {
            self.tally.busy += start.since(self.began).0;
            self.tally.busy_turns += 1;
        }
        (self.began, self.now) = (start, start);
        self.turn = self.turn.wrapping_add(1);
        self.scheduler.begin(Ticks(start.0));
        let received = self.receive(rings);
        let ran = self.run(rings);
        self.was_busy = received || ran;
        if !self.was_busy || self.turn.is_multiple_of(SWEEP_EVERY) || start >= self.sweep_at {
            self.sweep();
        }
        let waits = !self.scheduler.is_idle() || !self.waiting.is_empty();
        if self.was_busy || waits { Next::Now } else { self.when() }
    }

    /// When there may be something to do, nothing being ready now.
    fn when(&self) -> Next {
        let due = self.buffered.iter().filter_map(|module| self.queues[*module].due());
        let mut earliest = due.min().unwrap_or(Picos::NEVER);
        for gateway in self.gateways.iter().filter(|gateway| !self.is_held(gateway)) {
            match gateway.ready {
                Ready::Now => return Next::Now,
                Ready::At(instant) => earliest = earliest.min(instant),
                Ready::Never => {}
            }
        }
        Next::At(earliest)
    }

    /// Whether a port is not to be read now.
    fn is_held(&self, gateway: &Gateway) -> bool {
        self.scheduler.holds(gateway.port) || self.scheduler.waits(gateway.port, gateway.entry)
    }

    /// When the earliest of what other workers have sent was sent.
    pub(crate) fn sent_to(&self, rings: &[Ring]) -> Option<Picos> {
        self.site().ins.iter().filter_map(|ring| rings[*ring].sent_at()).min()
    }

    /// Packets that wait: for modules, and at sources.
    pub(crate) fn waiting(&self) -> (u64, u64) {
        let queued = self.queues.iter().map(|queue| u64::from(queue.len())).sum();
        (queued, self.gateways.iter().map(|gateway| gateway.source.waiting() as u64).sum())
    }

    /// Sources that packets enter by.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &Source> {
        self.gateways.iter().map(|gateway| &gateway.source)
    }

    /// Every source offers so many times its configured rate.
    pub(crate) fn set_offer(&mut self, factor: f64) {
        for gateway in &mut self.gateways {
            gateway.source.set_offer(factor);
            gateway.ready = Ready::Now;
        }
    }
}
