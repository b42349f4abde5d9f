//! A worker: runs a plan's graph, one turn after the other.
//!
//! A turn takes a batch from each port, runs every module that has packets in the scheduler's order, and hands what
//! leaves to the ports. The worker is a state machine: it never blocks, sleeps or spins, and time is what its clock
//! says; who calls [`Worker::turn`] does the waiting.

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

use crossing::{Crossroad, Stuck};
use rota::Rota;
use stopwatch::Stopwatch;

pub use apply::ActionError;
pub use make::MakeError;
pub(crate) use make::shape;
pub use succession::{Exchange, Former};

/// What a worker wants after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// To be called again at once: there is, or may be, something to do.
    Now,
    /// To be called at this instant.
    At(Ticks),
    /// To be called when `count` packets wait at its ports, or at the instant if there is one.
    OnInput(usize, Option<Ticks>),
    /// Nothing any more: every source is used up and nothing waits.
    Never,
}

/// What a call of a module costs, for simulated time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Ticks a call.
    pub per_batch: u64,
    /// Ticks a packet.
    pub per_packet: u64,
}

/// A place where packets wait: for a module (by its number), or past the modules for a port, the bin or another worker.
///
/// A wide graph has more of these than the cache holds: what an ordinary call touches is in the first line.
#[repr(C, align(64))]
struct Node {
    /// What processes the packets; nothing where they leave.
    function: Option<Box<dyn Function>>,
    /// Where all packets go, where there is only one gate.
    only: Option<Edge>,
    input: Input,
    /// Where its gates' targets start in `Worker::edges`.
    edges: u32,
    /// How many gates. Where there are several, a packet's flow word advances.
    gates: u16,
    /// All of several gates lead to one place: a batch stays whole.
    joins: bool,
    /// Packets that come here run folded from here on: they are counted by flow word.
    counts: bool,
}

/// Where a gate leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Edge {
    node: u32,
    /// Nothing else leads there, so that a batch may go straight on.
    alone: bool,
}

/// A port's place in the worker.
struct Gateway {
    /// `None`: it is other workers'.
    port: Option<Box<dyn Port>>,
    /// Where packets that enter go.
    entry: Option<Edge>,
    /// Whether it still has packets to give, and when.
    ready: Ready,
}

/// Every this many turns, and in every idle one, timers are looked at, and buffers.
const SWEEP_EVERY: u32 = 16;
/// How late a buffer over its hold limit may be looked at in a busy turn: this part of the shortest limit.
const LATE: u64 = 32;
/// How often the gauges are written, in idle turns and besides.
const PUBLISH_EVERY: Nanos = Nanos(1_000_000);

/// Runs a graph. `C` says what time it is, `S` which module runs next.
pub struct Worker<C: Clock, S: Scheduler> {
    clock: C,
    scheduler: S,
    /// Modules, then ports as places that packets leave by, then the bin, then `crossings`.
    nodes: Vec<Node>,
    /// How many of the nodes are modules.
    modules: usize,
    edges: Vec<Edge>,
    gateways: Vec<Gateway>,
    /// Ports in the order in which they are read: who gave packets last comes last.
    rota: Rota,
    /// By module: the ports whose packets enter there.
    sources: Box<[Vec<u32>]>,
    /// Where packets go that are for other workers.
    crossings: Vec<Crossroad>,
    /// The rings to and from other workers.
    links: Links,
    /// What could not be given in this turn ([`Stuck`]).
    stuck: Stuck,
    /// Places whose packets could not be given in the last turn.
    waiting: Vec<usize>,
    /// Which worker this is, of which team.
    id: usize,
    team: Arc<Team>,
    /// Whether nothing new is to be taken from ports, and nothing is to wait for a trigger.
    draining: bool,
    /// Since when it is.
    paused: Ticks,
    /// What ports had received and sent when they were laid down.
    laid_ports: Vec<(String, [u64; 2])>,
    /// What it takes over from the workers of the graph before.
    heritage: succession::Heritage,
    flows: FlowTable,
    /// By flow word: packets that have come to where they run folded; the telemetry's.
    arrived: Arc<[Counter]>,
    /// By module: those that it runs for, where it is the first of a fold.
    members: Vec<Box<[u32]>>,
    /// By module: the one that runs for it.
    leaders: Box<[usize]>,
    /// Modules that have a trigger.
    buffered: Vec<usize>,
    /// Before when none of them is looked at: none is over its hold limit then, or not for long.
    sweep_at: Ticks,
    /// The shortest hold limit.
    least_hold: Ticks,
    /// When gauges are to be written.
    publish_at: Ticks,
    /// Of each module: hold limits that were not stated are derived from these flows' objectives.
    hold_stated: Vec<Option<Ticks>>,
    flows_of: Vec<Vec<usize>>,
    /// When functions asked to be woken.
    timers: Vec<Timer>,
    costs: Vec<Cost>,
    desk: Desk,
    spares: Spares,
    /// What a port has just given.
    intake: Batch,
    /// Packets on their way back to the pool.
    bin: Batch,
    telemetry: Arc<Telemetry>,
    /// By module; the telemetry's.
    counters: Arc<[ModuleCounters]>,
    observer: Option<Box<dyn Observer>>,
    batch: usize,
    /// How often the pool had nothing to give before this worker had it.
    exhausted_before: u64,
    /// The same when the next graph took over.
    exhausted_after: Option<u64>,
    /// Where a fresh frame starts, from its chunk's start.
    first_byte: usize,
    /// Packets that a module may process in one turn, so that a turn stays short.
    budget: usize,
    /// When this turn began.
    began: Ticks,
    /// Whether packets have left since a function was last called.
    departed: bool,
    turn: u32,
    stopwatch: Stopwatch,
    was_busy: bool,
    accounting: bool,
    /// Whether bytes are counted by flow: some rate objective is in bits.
    weighs: bool,
    timing: bool,
}

/// When a function is woken.
#[derive(Clone, Copy)]
struct Timer {
    at: Ticks,
    module: usize,
    /// Whether the run waits for it.
    keeps: bool,
}

/// What is measured in a turn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Counters only.
    Plain,
    /// What each part of the turn takes, too.
    Timed,
    /// Marked packets, before and after each call.
    Observed,
}

impl<C: Clock, S: Scheduler> Worker<C, S> {
    /// One turn. Says when to call again.
    pub fn turn(&mut self) -> Next {
        // Where packets left last of all in the last turn, the clock was read then, and nothing was done since. Simulated
        // time passes between turns, too.
        let start = if self.departed && !C::SIMULATED { self.desk.now } else { self.clock.now() };
        let counters = &self.telemetry.worker;
        counters.turns.add(1);
        // The span since the last turn began belongs to the last turn.
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
        // What waits for another worker is tried again, though nothing else is to be done.
        let waits = !self.scheduler.is_idle() || !self.waiting.is_empty();
        if self.was_busy || waits { Next::Now } else { self.when() }
    }

    /// Whether the next turn will have something to do: a poll that finds nothing is no work, nor is trying once more what
    /// another worker had no room for.
    pub fn has_work(&mut self) -> bool {
        if !self.scheduler.is_idle() || (self.was_busy && !self.waiting.is_empty()) {
            return true;
        }
        if !self.waiting.is_empty() {
            return false;
        }
        let now = self.clock.now();
        self.due().is_some_and(|instant| instant <= now)
    }

    /// The earliest instant at which a turn may have something to do; `None` where only another worker can give it
    /// packets.
    pub fn due(&mut self) -> Option<Ticks> {
        let now = self.clock.now();
        if !self.scheduler.is_idle() || !self.waiting.is_empty() {
            return Some(now);
        }
        match self.when() {
            Next::Now => Some(now),
            Next::At(instant) => Some(instant),
            Next::OnInput(_, instant) => instant,
            Next::Never => None,
        }
    }

    /// Whether this turn's calls are to be timed.
    #[inline]
    fn is_to_be_timed(&mut self) -> bool {
        if S::SHARES { self.scheduler.wants_time() } else { self.stopwatch.is_due(self.was_busy) && self.timing }
    }

    /// Reads ports and rings, and runs what is ready; whether there was anything to do.
    #[inline]
    fn pass<const MODE: u8>(&mut self) -> bool {
        let received = self.receive::<MODE>();
        let ran = self.run::<MODE>();
        received || ran
    }

    /// Takes up to a batch from each port that has some, and from each ring; whether any came.
    #[inline]
    fn receive<const MODE: u8>(&mut self) -> bool {
        let mut any = !self.links.ins.is_empty() && self.take_over::<MODE>();
        // What cannot be given away would only pile up.
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

    /// Takes up to a batch from a port; whether any came.
    #[inline]
    fn receive_from<const MODE: u8>(&mut self, at: usize) -> bool {
        if S::SHARES && self.is_held(at) {
            return false;
        }
        let gateway = &mut self.gateways[at];
        let (Some(entry), Some(port)) = (gateway.entry, &mut gateway.port) else { return false };
        match gateway.ready {
            Ready::Never => return false,
            Ready::At(instant) if instant > self.desk.now => return false,
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
            run::tell_ready(scheduler, node, input);
        }
        if MODE == Mode::Timed as u8 {
            self.time_receive(at, count);
        }
        true
    }

    /// Whether a port is not to be read now.
    #[inline]
    fn is_held(&self, port: usize) -> bool {
        let waits = |entry: Edge| self.scheduler.waits(port, entry.node as usize);
        self.scheduler.holds(port) || self.gateways[port].entry.is_some_and(waits)
    }

    /// When there may be something to do, nothing being ready now.
    fn when(&mut self) -> Next {
        let next = self.wanted();
        self.stopwatch.sleeps = next == Next::Never;
        next
    }

    fn wanted(&mut self) -> Next {
        let due = self.buffered.iter().filter_map(|&module| self.nodes[module].input.due());
        let timers = self.timers.iter().filter(|timer| timer.keeps).map(|timer| timer.at);
        let looks = self.timers.iter().filter(|timer| !timer.keeps).map(|timer| timer.at);
        let open = |(port, gateway): &(usize, &Gateway)| gateway.entry.is_some() && !self.is_held(*port);
        let ports = self.gateways.iter().enumerate().filter(open).map(|(_, gateway)| gateway.ready);
        let held = due.chain(timers).chain(self.scheduler.wake()).min();
        let mut earliest = held.into_iter().chain(looks).min();
        let may_come = self.gateways.iter().any(|gateway| gateway.entry.is_some() && gateway.ready != Ready::Never);
        self.team.set_waits(self.id, if may_come { Ticks::NEVER } else { held.unwrap_or(Ticks::ZERO) });
        let (mut input, mut outside) = (false, false);
        for ready in ports {
            match ready {
                Ready::Now => return Next::Now,
                Ready::At(instant) => {
                    outside = true;
                    earliest = Some(earliest.map_or(instant, |earliest| earliest.min(instant)));
                }
                Ready::Input => (outside, input) = (true, true),
                Ready::Never => {}
            }
        }
        self.team.set_quiet(self.id, self.draining || (!outside && held.is_none()));
        if self.links.ins.is_empty() {
            return match (input, earliest) {
                (true, earliest) => Next::OnInput(1, earliest),
                (false, Some(instant)) => Next::At(instant),
                (false, None) => Next::Never,
            };
        }
        // What other workers have sent in simulated time may arrive later than now.
        Next::OnInput(1, self.sent_to().into_iter().chain(earliest).min())
    }

    /// Who watches single packets from the next turn on; `None`: nobody.
    pub fn observe(&mut self, observer: Option<Box<dyn Observer>>) {
        self.observer = observer;
        if let Some(observer) = &mut self.observer {
            observer.graph(&self.telemetry);
        }
    }

    /// Counters, histograms and flow accounting on (as shipped) or off. Off is for measuring what they cost; the
    /// packet invariant is then not kept.
    pub fn set_accounting(&mut self, on: bool) {
        (self.accounting, self.timing) = (on, on);
    }

    /// Timing of one turn in some on (as shipped) or off, where the scheduler has no need of it. Off is for measuring what
    /// it costs.
    pub fn set_timing(&mut self, on: bool) {
        self.timing = on;
    }

    /// What is counted, to be read from any thread.
    #[must_use]
    pub fn telemetry(&self) -> Arc<Telemetry> {
        Arc::clone(&self.telemetry)
    }

    /// When the last turn began.
    #[must_use]
    pub fn began(&self) -> Ticks {
        self.began
    }

    /// The worker's clock.
    #[must_use]
    pub fn clock(&self) -> &C {
        &self.clock
    }
}

#[cfg(test)]
mod tests;
