//! A worker, which runs the graph of a plan in turns.
//!
//! A turn takes a batch from each port, runs the modules that have packets, in the order that the scheduler chooses,
//! and gives leaving packets to the ports. The worker is a state machine: it never blocks, sleeps or spins, and its
//! clock supplies the time. The caller of [`Worker::turn`] does the waiting.

mod apply;
mod census;
mod crossing;
mod departure;
mod make;
mod metering;
mod roads;
mod rota;
mod run;
mod stopwatch;
mod succession;
mod sweep;
mod waiting;
mod windows;

use std::sync::Arc;

use forebay_measure::{Clock, Counter};
use forebay_packet::Batch;
use forebay_units::{Nanos, Ticks};

use crate::context::Desk;
use crate::flow::FlowTable;
use crate::function::Function;
use crate::input::{Input, Spares};
use crate::links::Links;
use crate::observer::Observer;
use crate::port::{Intake, Port, Ready};
use crate::scheduler::Scheduler;
use crate::team::Team;
use crate::telemetry::{ModuleCounters, Telemetry};

use crossing::{CrossingNode, Stuck};
use rota::Rota;
use stopwatch::Stopwatch;

pub use apply::ActionError;
pub use make::MakeError;
pub use succession::{Exchange, Former};

/// The condition for a worker's next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// No condition: call the worker again at once, because there is or may be work.
    Now,
    /// Call the worker at this instant.
    At(Ticks),
    /// Call the worker when this number of packets waits at its ports or in rings to it, or at the instant, if there is
    /// one. The number is the smallest that can complete a batch of a module with a trigger. A worker that is called
    /// with fewer packets only queues them. The hold limit of a packet counts from the turn that takes the packet from
    /// its port. So a policy that waits for more than one packet must limit the time after the first packet arrives.
    OnInput(usize, Option<Ticks>),
    /// Never call the worker again: all sources are used up and no packet waits.
    Never,
}

/// The cost of a module's call in simulated time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Ticks per call.
    pub per_batch: u64,
    /// Ticks per packet.
    pub per_packet: u64,
}

/// A queue, and the destination of its packets. The first nodes are the modules, by number. After them come nodes for
/// the ports, then the bin, then the crossings to other workers.
///
/// A wide graph has more nodes than the cache holds. So the fields that an ordinary call touches are in the first cache
/// line. Keep their order.
#[repr(C, align(64))]
struct Node {
    /// The function that processes the packets. `None` if packets leave here, or if another worker or another module of
    /// the fold runs for this module. In a reload it is also `None` until the function is taken over, and after the
    /// function was handed over.
    function: Option<Box<dyn Function>>,
    /// The destination of all packets if there is only one gate. Otherwise `None`.
    only: Option<Edge>,
    input: Input,
    /// The index in `Worker::edges` of the target of the node's first gate.
    edges: u32,
    /// The number of gates. If there are several, a packet's flow word advances.
    gates: u16,
    /// Whether the node has several gates that all lead to the same node. Then a batch stays whole.
    joins: bool,
    /// Whether this is the first module of a fold in which some packets first run folded. Then the node counts its
    /// packets by flow word (`Worker::arrived`).
    counts: bool,
}

/// The destination of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Edge {
    /// The index of the node in `Worker::nodes`.
    node: u32,
    /// Whether no other module and no other port leads to the node. Then a batch may run there at once, without waiting
    /// in the queue.
    alone: bool,
}

/// A port, and the worker's data about the port.
struct Gateway {
    /// `None` if another worker has the port. In a reload it is also `None` until the port is taken over, and after the
    /// port was handed over.
    port: Option<Box<dyn Port>>,
    /// The destination of packets that enter. `None` if no packets enter by the port.
    entry: Option<Edge>,
    /// The port's last response: when it may have packets next. The worker does not call the port earlier.
    ready: Ready,
}

/// A busy worker checks its timers and buffers at least once in this number of turns. An idle turn always checks them.
/// The simulator has the same value.
const SWEEP_EVERY: u32 = 16;
/// A busy worker checks its buffers at intervals of at most the shortest hold limit divided by this number. So a packet
/// may wait longer than its hold limit by this interval. The simulator has the same value.
const LATE: u64 = 32;
/// The interval between two updates of the gauges in busy turns. Idle turns update them, too.
const PUBLISH_EVERY: Nanos = Nanos(1_000_000);

/// Runs a graph. `C` is the clock, `S` decides which module runs next.
///
/// One thread at a time uses a worker. Other threads see only its [`Telemetry`] and its [`Team`]. Packets reach other
/// workers only through `links`.
pub struct Worker<C: Clock, S: Scheduler> {
    clock: C,
    scheduler: S,
    /// The modules, then the ports as destinations, then the bin, then the nodes of `crossings`.
    nodes: Vec<Node>,
    /// The number of modules among the nodes.
    modules: usize,
    /// The targets of all gates, by node ([`Node::edges`]) and gate.
    edges: Vec<Edge>,
    /// The ports, by number.
    gateways: Vec<Gateway>,
    /// The ports in the order in which they are read. The port that gave packets last comes last. Used only if the
    /// scheduler shares time.
    rota: Rota,
    /// By module: the ports whose packets enter there.
    sources: Box<[Vec<u32>]>,
    /// The nodes after the bin, for packets that go to other workers.
    crossings: Vec<CrossingNode>,
    /// The rings to and from other workers.
    links: Links,
    /// The crossings that had no room in this turn ([`Stuck`]).
    stuck: Stuck,
    /// Nodes whose packets found no room in a ring to another worker. The next turn retries them.
    waiting: Vec<usize>,
    /// The number of this worker in its team.
    id: usize,
    team: Arc<Team>,
    /// True while the worker drains: it takes no new packets from ports, and no packet waits for a trigger.
    draining: bool,
    /// When the worker began to drain in order to hand over.
    paused: Ticks,
    /// The ports that were handed over: the name, and the packets received and sent until then.
    handed_ports: Vec<(String, [u64; 2])>,
    /// The functions and ports that this worker takes over from the workers of the previous graph.
    inherited: succession::Inherited,
    flows: FlowTable,
    /// By flow word: the packets that have come to the module in which they first run folded. Empty without folds.
    /// Shared with the telemetry.
    arrived: Arc<[Counter]>,
    /// By module: all modules of the fold, if this module is the first module of a fold. Otherwise empty.
    members: Vec<Box<[u32]>>,
    /// By module: the module that runs for it. If the module is in no fold, this is the module itself.
    leaders: Box<[usize]>,
    /// Modules that have a trigger.
    buffered: Vec<usize>,
    /// The instant of the next check of the buffers. Until then no packet waits longer than its hold limit by more than
    /// [`LATE`] allows.
    sweep_at: Ticks,
    /// The shortest hold limit. [`Ticks::NEVER`] if no module has a trigger.
    least_hold: Ticks,
    /// When the gauges are updated next.
    publish_at: Ticks,
    /// By module: the hold limit that the configuration or a controller has set. `None`: it derives from the delay
    /// objectives of the flows in `flows_of`.
    hold_stated: Vec<Option<Ticks>>,
    /// By module: the flows with a delay objective that pass it, by their indices in the telemetry.
    flows_of: Vec<Vec<usize>>,
    /// When functions requested to be woken. A module has at most one timer.
    timers: Vec<Timer>,
    /// By module: the cost of a call in simulated time.
    costs: Vec<Cost>,
    desk: Desk,
    spares: Spares,
    /// The packets that a port has just given. Empty otherwise.
    intake: Batch,
    /// Packets that go back to the pool. Empty, except while a batch is distributed.
    bin: Batch,
    telemetry: Arc<Telemetry>,
    /// By module. Shared with the telemetry.
    counters: Arc<[ModuleCounters]>,
    observer: Option<Box<dyn Observer>>,
    /// The largest batch, in packets.
    batch: usize,
    /// How often the pool had been exhausted when this worker took it over.
    exhausted_before: u64,
    /// How often the pool had been exhausted when this worker handed over. `None` until then.
    exhausted_after: Option<u64>,
    /// The offset of a fresh frame's first byte in its chunk.
    first_byte: usize,
    /// A node that has processed this number of packets in a turn or more, in whole batches, waits for the next turn.
    /// This keeps turns short. A scheduler that shares time does not use it.
    budget: usize,
    /// When this turn began.
    began: Ticks,
    /// Whether packets have left since the last call of a function. The worker read the clock when they left, so the
    /// next turn need not read it again.
    departed: bool,
    /// The number of this turn. It wraps.
    turn: u32,
    stopwatch: Stopwatch,
    /// Whether the last turn had work to do.
    was_busy: bool,
    /// See [`set_accounting`](Self::set_accounting).
    accounting: bool,
    /// Whether bytes are counted by flow, because a rate objective is in bits.
    weighs: bool,
    /// See [`set_timing`](Self::set_timing).
    timing: bool,
}

/// When a function is woken.
#[derive(Clone, Copy)]
struct Timer {
    at: Ticks,
    module: usize,
    /// Whether the run waits for the wake-up, although all sources are used up.
    keeps: bool,
}

/// The measurements of a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Counters only.
    Plain,
    /// Counters, and the ticks of each part of the turn.
    Timed,
    /// Counters, and marked packets before and after each call.
    Observed,
}

impl<C: Clock, S: Scheduler> Worker<C, S> {
    /// Runs one turn. Returns the condition for the next call. A turn without work does no harm, so the caller may call
    /// again earlier.
    pub fn turn(&mut self) -> Next {
        // If packets left at the very end of the last turn, the clock was read when they left, and is still right. In
        // simulated time, the clock advances between turns, so it is read again.
        let start = if self.departed && !C::SIMULATED { self.desk.now } else { self.clock.now() };
        let counters = &self.telemetry.worker;
        counters.turns.add(1);
        // The time since the last turn began, with any wait after it, belongs to the last turn.
        let span = start.since(self.began).0;
        counters.all.add(span);
        if self.was_busy {
            counters.busy.add(span);
            counters.busy_turns.add(1);
        }
        self.look_at(span);
        if self.stopwatch.runs {
            self.stop_watch(start);
        }
        (self.began, self.desk.now, self.departed) = (start, start, false);
        self.turn = self.turn.wrapping_add(1);
        self.scheduler.begin(start);
        self.was_busy = if self.observer.is_some() {
            let any = self.pass::<{ Mode::Observed as u8 }>();
            self.observer.take_if(|observer| observer.done());
            any
        } else if self.is_to_be_timed() {
            self.start_watch(start);
            self.pass::<{ Mode::Timed as u8 }>()
        } else {
            self.pass::<{ Mode::Plain as u8 }>()
        };
        if !self.was_busy || self.turn.is_multiple_of(SWEEP_EVERY) || start >= self.sweep_at {
            self.sweep();
        }
        // The worker retries packets for other workers, even if there is no other work.
        let waits = !self.scheduler.is_idle() || !self.waiting.is_empty();
        if self.was_busy || waits { Next::Now } else { self.when() }
    }

    /// Returns whether this turn's calls are to be timed.
    #[inline]
    fn is_to_be_timed(&mut self) -> bool {
        if S::SHARES { self.scheduler.wants_time() } else { self.stopwatch.is_due(self.was_busy) && self.timing }
    }

    /// Reads ports and rings, and runs ready modules. Returns whether there was any work.
    #[inline]
    fn pass<const MODE: u8>(&mut self) -> bool {
        let received = self.receive::<MODE>();
        let ran = self.run::<MODE>();
        received || ran
    }

    /// Takes up to a batch from each port and from each ring. Returns whether any packets came.
    #[inline]
    fn receive<const MODE: u8>(&mut self) -> bool {
        let mut any = !self.links.ins.is_empty() && self.take_over::<MODE>();
        // While a ring to another worker is full, new packets would only wait in this worker.
        if self.draining || self.stuck != Stuck::NOTHING {
            return any;
        }
        let ports = self.gateways.len();
        if !S::SHARES {
            for at in 0..ports {
                any |= self.receive_from::<MODE>(at);
            }
            return any;
        }
        let mut rota = std::mem::take(&mut self.rota);
        rota.go_round(|port| {
            let gave = self.receive_from::<MODE>(port);
            any |= gave;
            gave
        });
        self.rota = rota;
        any
    }

    /// Takes up to a batch from the port `at` and queues it at the port's entry. Returns whether any packets came.
    #[inline]
    fn receive_from<const MODE: u8>(&mut self, at: usize) -> bool {
        if S::SHARES && self.is_held(at) {
            return false;
        }
        let gateway = &mut self.gateways[at];
        let (Some(entry), Some(port)) = (gateway.entry, &mut gateway.port) else { return false };
        match gateway.ready {
            Ready::Never => return false,
            Ready::At(instant) | Ready::Input(instant) if instant > self.desk.now => return false,
            _ => {}
        }
        let intake = Intake { now: self.desk.now, pool: &self.desk.pool, most: self.batch };
        gateway.ready = port.receive(&mut self.intake, &intake);
        let count = self.intake.len();
        if count == 0 {
            if MODE == Mode::Timed as u8 {
                self.time_residue();
            }
            return false;
        }
        self.telemetry.ports[at].counters.received.add(count as u64);
        if self.accounting
            && let Some(first) = self.intake.iter().next()
        {
            self.telemetry.worker.port_wait.record(self.desk.now.since(first.arrival()).0, count as u64);
        }
        let word = self.flows.entry[at];
        if word != 0 {
            self.intake.iter_mut().for_each(|packet| packet.set_flow(word));
        }
        if MODE == Mode::Observed as u8 {
            self.observe_entry(at);
        }
        let node = entry.node as usize;
        if self.is_spread(node) {
            self.spread_intake(node);
            if MODE == Mode::Timed as u8 {
                self.time_receive(at, count);
            }
            return true;
        }
        let Self { scheduler, intake, telemetry, observer, .. } = self;
        let input = &mut self.nodes[node].input;
        if S::SHARES && scheduler.refuses(node) {
            intake.drain_each(|_, packet| run::turn_away(node, packet, telemetry, observer));
        } else if input.push_all(intake, self.desk.now, &mut self.spares) {
            run::report_ready(scheduler, node, input);
        }
        if MODE == Mode::Timed as u8 {
            self.time_receive(at, count);
        }
        true
    }

    /// Returns whether a port must not be read now: a module after the port is overloaded, or the port's packets can
    /// wait until the module at the port's entry runs. Only a scheduler that shares time holds ports.
    #[inline]
    fn is_held(&self, port: usize) -> bool {
        let waits = |entry: Edge| self.scheduler.waits(port, entry.node as usize);
        self.scheduler.holds(port) || self.gateways[port].entry.is_some_and(waits)
    }

    /// Sets the observer of single packets from the next turn on. `None` ends the observation.
    pub fn observe(&mut self, observer: Option<Box<dyn Observer>>) {
        self.observer = observer;
        if let Some(observer) = &mut self.observer {
            observer.graph(&self.telemetry);
        }
    }

    /// Enables (the default) or disables the modules' counters, the accounting of flows, and the timing of turns. They
    /// are disabled in order to measure their cost. While they are disabled, counters do not agree with each other.
    pub fn set_accounting(&mut self, on: bool) {
        (self.accounting, self.timing) = (on, on);
    }

    /// Enables (the default) or disables the timing of sampled turns. It is disabled in order to measure its cost. A
    /// scheduler that shares time ignores this setting, because it needs the times.
    pub fn set_timing(&mut self, on: bool) {
        self.timing = on;
    }

    /// Returns the counters, which any thread may read.
    #[must_use]
    pub fn telemetry(&self) -> Arc<Telemetry> {
        Arc::clone(&self.telemetry)
    }

    /// Returns when the last turn began.
    #[must_use]
    pub fn began(&self) -> Ticks {
        self.began
    }

    /// Returns the worker's clock.
    #[must_use]
    pub fn clock(&self) -> &C {
        &self.clock
    }
}

#[cfg(test)]
mod tests;
