//! A simulated worker. It runs the engine's turns: it takes a batch from each port, runs modules in the scheduler's
//! order, and merges branches that meet again. Packets themselves are not simulated: a batch consists of runs of
//! packets, and a function is a route and a cost.

mod buffers;
mod intake;
mod run;

use std::sync::Arc;

use forebay_graph::Scheduler;
use forebay_packet::Batch;
use forebay_units::{Random, Ticks};

use crate::queue::{Bundle, Queue};
use crate::ring::Ring;
use crate::scene::{Scene, WorkerPlan};
use crate::source::{Ready, Source};
use crate::tally::Tally;
use crate::time::Picos;
use buffers::Gauge;

/// The number of turns between two checks of the buffers, as in the engine. Every idle turn checks them, too.
const SWEEP_EVERY: u32 = 16;
/// Idle turns and every [`SWEEP_EVERY`]th turn check the buffers. The other turns wait at least the shortest hold limit
/// divided by this number between two checks, as in the engine. So a buffer may be released later than its limit by up
/// to this time.
const LATE: u64 = 32;

/// The cost of a call: a fixed part, and a part for each packet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallCost {
    pub(crate) fixed: Picos,
    pub(crate) each: Picos,
}

/// When a worker must run its next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextTurn {
    /// At once.
    Now,
    /// At this instant, or when another worker sends a batch to this worker.
    At(Picos),
}

/// A port by which packets enter.
struct Gateway {
    /// The node that the packets of the port enter.
    entry: usize,
    /// The index of the port in the pipeline.
    port: usize,
    source: Source,
    /// The time at which the source must be read again.
    ready: Ready,
}

/// A simulated worker.
pub(crate) struct Worker<S> {
    /// The exact time. Each call advances it by its cost.
    pub(crate) clock: Picos,
    scene: Arc<Scene>,
    /// The number of the worker.
    id: usize,
    scheduler: S,
    /// By node.
    queues: Vec<Queue>,
    /// The number of nodes that are modules.
    modules: usize,
    /// By module.
    costs: Vec<CallCost>,
    /// The ports that this worker reads.
    gateways: Vec<Gateway>,
    /// The order in which gateways are read by schedulers that share time. The gateway that gave packets last comes
    /// last.
    read_order: Vec<usize>,
    /// By [`Crossing`](crate::scene::Crossing): true if a ring of this type was full when modules last ran, so that
    /// packets for the ring wait on this worker.
    stuck: [bool; 3],
    /// The nodes at which packets wait because a ring was full. These nodes are tried again in the next turn.
    waiting: Vec<usize>,
    /// The time that the engine's worker would know: the start of the turn, or the last departure of packets. Queues
    /// and delays use this time, not `clock`.
    now: Picos,
    /// The start of the present or last turn.
    began: Picos,
    /// True if packets came or a module ran in the last turn. The time of that turn is counted when the next one
    /// starts.
    was_busy: bool,
    /// The number of turns, modulo 2³².
    turn: u32,
    /// The modules with a trigger.
    buffered: Vec<usize>,
    /// The time of the next check of the buffers. Idle turns and every [`SWEEP_EVERY`]th turn check them earlier, too.
    sweep_at: Picos,
    /// The shortest hold limit; `NEVER` without triggers.
    least_hold: Picos,
    /// By module: the hold limit that the configuration or a controller has set. `None` if the worker derives the
    /// limit.
    hold_stated: Vec<Option<Picos>>,
    /// By module: the flows whose path it is on.
    flows_of: Vec<Vec<usize>>,
    /// By flow: the delay objective in nanoseconds; `None` if the flow has no objective.
    objectives: Vec<Option<u64>>,
    /// The number of packets after which a node gives way to other ready nodes, if the scheduler does not share time.
    budget: u32,
    /// The largest batch.
    batch: u32,
    /// An empty batch that is filled from a port or a ring. It is kept so that its memory is reused.
    intake: Bundle,
    /// An empty batch for the scheduler. Schedulers look at packets only with a rate limit, and a scene has none.
    empty_batch: Batch,
    /// By module: the published state of its queue.
    gauges: Vec<Gauge>,
    /// The time from which a busy turn publishes the queues again.
    publish_at: Picos,
    /// By module: the weight; 0 with a scheduler that does not share time.
    pub(crate) weights: Vec<u32>,
    /// The counts since the start. Counts of arrivals are valid only after [`count_queues`](Self::count_queues).
    pub(crate) tally: Tally,
    /// The number of calls of all modules since the start.
    pub(crate) calls: u64,
    /// The sum of the delays of all packets that were sent, in nanoseconds.
    pub(crate) delay: u64,
}

impl<S: Scheduler> Worker<S> {
    /// Creates the worker `id` of a scene. `costs` are by module. `seed` determines all random numbers of the worker's
    /// sources.
    pub(crate) fn new(scene: &Arc<Scene>, id: usize, costs: Vec<CallCost>, seed: u64) -> Self {
        let plan = &scene.workers[id];
        let (modules, batch) = (scene.layout.modules.len(), scene.layout.batch as u32);
        let gateways = plan.sources.iter().map(|plan| Gateway {
            entry: plan.entry,
            port: plan.port,
            source: Source::new(plan.pace, plan.pattern.clone(), Random::stream(seed, (id << 16 | plan.port) as u64)),
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
            scheduler: S::new(&plan.topology),
            queues: vec![Queue::new(batch); plan.nodes.len()],
            modules,
            costs,
            read_order: (0..gateways.len()).collect(),
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
            budget: batch * (plan.topology.entries.len() as u32 + 1),
            batch,
            intake: Bundle::default(),
            empty_batch: Batch::none(),
            gauges: vec![Gauge::default(); modules],
            publish_at: Picos::ZERO,
            weights: plan.topology.shares.iter().map(|share| if S::SHARES { share.weight } else { 0 }).collect(),
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

    fn plan(&self) -> &WorkerPlan {
        &self.scene.workers[self.id]
    }

    /// Runs one turn, which begins at `clock`. Returns the time at which the next turn must run.
    pub(crate) fn turn(&mut self, rings: &mut [Ring]) -> NextTurn {
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
        if self.was_busy || waits { NextTurn::Now } else { self.next_turn() }
    }

    /// Returns the time at which there may be something to do, if nothing is ready now.
    fn next_turn(&self) -> NextTurn {
        let due = self.buffered.iter().filter_map(|module| self.queues[*module].due());
        let mut earliest = due.min().unwrap_or(Picos::NEVER);
        for gateway in self.gateways.iter().filter(|gateway| !self.is_held(gateway)) {
            match gateway.ready {
                Ready::Now => return NextTurn::Now,
                Ready::At(instant) => earliest = earliest.min(instant),
                Ready::Never => {}
            }
        }
        NextTurn::At(earliest)
    }

    /// Returns true if a port must not be read now.
    fn is_held(&self, gateway: &Gateway) -> bool {
        self.scheduler.holds(gateway.port) || self.scheduler.waits(gateway.port, gateway.entry)
    }

    /// Returns the earliest time at which a message that waits for this worker was sent. `None` if no message waits.
    pub(crate) fn sent_to(&self, rings: &[Ring]) -> Option<Picos> {
        self.plan().ins.iter().filter_map(|ring| rings[*ring].sent_at()).min()
    }

    /// Returns the number of packets that wait at nodes, and the number of packets that wait at sources.
    pub(crate) fn waiting(&self) -> (u64, u64) {
        let queued = self.queues.iter().map(|queue| u64::from(queue.len())).sum();
        (queued, self.gateways.iter().map(|gateway| gateway.source.waiting() as u64).sum())
    }

    /// Returns the sources by which packets enter.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &Source> {
        self.gateways.iter().map(|gateway| &gateway.source)
    }

    /// Sets the offered rate of every source to `factor` times its configured rate.
    pub(crate) fn set_offer(&mut self, factor: f64) {
        for gateway in &mut self.gateways {
            gateway.source.set_offer(factor);
            gateway.ready = Ready::Now;
        }
    }
}
