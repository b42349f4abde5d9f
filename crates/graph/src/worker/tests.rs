//! Runs whole workers on random graphs in simulated time. No packet is lost or reordered, and each run gives the same
//! result.

use std::sync::{Arc, Mutex};

use forebay_measure::Simulated;
use forebay_packet::{ArrivalClock, Packet, PoolOptions};
use forebay_protocol::{Action, SchedulerKind};
use forebay_units::{Frequency, Nanos};
use proptest::prelude::*;

use super::*;
use crate::placement::Placement;
use crate::plan::{FlowPlan, Module, Plan, PortPlan, Step, Target};
use crate::port::{OpenPort, PortCounters, Waits};
use crate::shelf::Key;
use crate::{Context, Gate, Reason, RunToCompletion, Share, WeightedFair};

mod cases;
mod changes;
mod controlled;
mod graphs;
mod metering;
mod shares;
mod teams;
mod timing;
mod waiting;

/// Gives numbered packets of several sessions ([`stamp`]): `burst` packets every `every` ticks.
struct Source {
    sessions: u32,
    remaining: u32,
    sent: u32,
    every: u64,
    burst: usize,
    /// The share of the sessions that it gives, and the number of shares.
    share: (usize, usize),
}

impl Port for Source {
    fn receive(&mut self, batch: &mut Batch, intake: &Intake<'_>) -> Ready {
        let wanted = self.burst.min(intake.most);
        while batch.len() < wanted && self.remaining > 0 {
            let Some(mut packet) = intake.pool.take() else { break };
            packet.set_arrival(intake.now, ArrivalClock::Poll);
            // A scattered but repeatable order of sessions. The frame's addresses, which determine its session, hold
            // the session's number.
            let session = self.sent.wrapping_mul(0x9e37_79b9) % self.sessions;
            let mut frame = [0; 60];
            frame[..4].copy_from_slice(&session.to_be_bytes());
            frame[14..18].copy_from_slice(&self.sent.to_be_bytes());
            assert!(packet.write(&frame), "the frame fits into a chunk");
            (self.sent, self.remaining) = (self.sent + 1, self.remaining - 1);
            if crate::share(packet.session_hash(), self.share.1) == self.share.0 {
                batch.push(packet).expect("room in the batch");
            }
        }
        match (self.remaining, self.every) {
            (0, _) => Ready::Never,
            (_, 0) => Ready::Now,
            (_, every) => Ready::At(intake.now + Ticks(every)),
        }
    }

    fn wait_on(&self) -> Waits<'_> {
        Waits::None
    }

    fn send(&mut self, _: &mut Batch, _: Ticks) {}
}

/// The packets that left: session, number, and time.
type Log = Arc<Mutex<Vec<(u32, u32, u64)>>>;

/// Logs leaving packets. Takes all but every `refuse`-th packet (0: takes all).
struct Drain {
    log: Log,
    refuse: u32,
    seen: u32,
}

impl Port for Drain {
    fn receive(&mut self, _: &mut Batch, _: &Intake<'_>) -> Ready {
        Ready::Never
    }

    fn wait_on(&self) -> Waits<'_> {
        Waits::None
    }

    fn send(&mut self, batch: &mut Batch, now: Ticks) {
        let mut log = self.log.lock().expect("no test thread has panicked");
        let mut refused = Batch::with_capacity(batch.len().max(1));
        batch.drain_each(|_, packet| {
            self.seen += 1;
            if self.refuse > 0 && self.seen.is_multiple_of(self.refuse) {
                refused.push(packet).expect("the batch is as large");
            } else {
                let (session, number) = stamp(&packet);
                log.push((session, number, now.0));
            }
        });
        batch.append(&mut refused);
    }
}

fn stamp(packet: &Packet) -> (u32, u32) {
    let word =
        |at: usize| packet.data().get(at..at + 4).map_or(0, |word| u32::from_be_bytes(word.try_into().expect("four")));
    (word(0), word(14))
}

/// The action of a test module on a packet, depending on the packet's session.
#[derive(Clone, Copy, Debug)]
enum TestFunction {
    /// Passes all packets.
    Pass,
    /// Spreads sessions over its gates.
    Split,
    /// Drops every 7th session, consumes every 11th.
    End,
    /// Holds every packet for this many ticks.
    Delay(u64),
    /// Holds every packet for this many ticks, but in the same call puts every 3rd session on the first gate instead.
    Hesitate(u64),
    /// Sends an empty companion after each packet of every 5th session.
    Create,
    /// Puts every 13th session on a gate that the module does not have.
    Stray,
    /// Requests housekeeping wake-ups at this interval, in ticks.
    Look(u64),
}

struct Behaviour {
    kind: TestFunction,
    gates: u16,
    held: Vec<(Ticks, Key)>,
}

impl Function for Behaviour {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        for (index, packet) in batch.iter().enumerate() {
            let (session, _) = stamp(packet);
            match self.kind {
                TestFunction::Pass => {}
                TestFunction::Split => {
                    context.each()[index] = Gate::out((session.wrapping_mul(0x85eb_ca6b) >> 16) as u16 % self.gates)
                }
                TestFunction::End if session.is_multiple_of(7) => context.put(index, Gate::drop(0)),
                TestFunction::End if session.is_multiple_of(11) => context.put(index, Gate::consume(0)),
                TestFunction::Stray if session.is_multiple_of(13) => context.put(index, Gate::out(self.gates)),
                TestFunction::End | TestFunction::Stray => {}
                TestFunction::Delay(ticks) => {
                    let due = context.now() + Ticks(ticks);
                    self.held.push((due, context.hold(index)));
                    context.wake_at(due);
                }
                TestFunction::Hesitate(ticks) => {
                    let (due, key) = (context.now() + Ticks(ticks), context.hold(index));
                    if session.is_multiple_of(3) {
                        context.put(index, Gate::FIRST);
                    } else {
                        self.held.push((due, key));
                        context.wake_at(due);
                    }
                }
                TestFunction::Create if session.is_multiple_of(5) => {
                    context.create(0, Gate::FIRST, packet);
                }
                TestFunction::Create => {}
                TestFunction::Look(ticks) => context.look_at(context.now() + Ticks(ticks)),
            }
        }
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        let due = self.held.iter().take_while(|(due, _)| *due <= context.now()).count();
        for (_, key) in self.held.drain(..due) {
            assert!(context.release(key, Gate::FIRST), "the held packet is found");
            assert!(!context.release(key, Gate::FIRST), "and is released only once");
        }
        if let Some((next, _)) = self.held.first() {
            context.wake_at(*next);
        }
        if let TestFunction::Look(ticks) = self.kind {
            context.look_at(context.now() + Ticks(ticks));
        }
    }
}

const DROPS: &[Reason] = &[Reason { name: "seventh", help: "Every seventh session." }];
const CONSUMES: &[Reason] = &[Reason { name: "eleventh", help: "Every eleventh session." }];
const CREATES: &[Reason] = &[Reason { name: "companion", help: "After each packet of every fifth session." }];

fn module(name: &str, kind: TestFunction, targets: Vec<Target>, trigger: usize) -> Module {
    let gates = targets.len() as u16;
    Module {
        name: name.to_owned(),
        kind: "test",
        function: Some(Box::new(Behaviour { kind, gates, held: Vec::new() })),
        from: None,
        gates: targets.into_iter().enumerate().map(|(gate, target)| (gate.to_string(), target)).collect(),
        drops: DROPS,
        creates: CREATES,
        consumes: CONSUMES,
        counters: Vec::new(),
        tables: Vec::new(),
        trigger,
        hold: None,
        share: Share::default(),
    }
}

fn open(port: Box<dyn Port>, receives: bool) -> OpenPort {
    OpenPort { port, counters: Arc::new(PortCounters::default()), receives, sends: !receives }
}

/// Returns a plan with one source and one drain, which is port 1.
fn plan(source: Source, drain: Drain, modules: Vec<Module>, chunks: usize) -> Plan {
    let entry = if modules.is_empty() { Target::Port(1) } else { Target::Module(0) };
    Plan {
        name: "test".to_owned(),
        batch: 32,
        scheduler: SchedulerKind::default(),
        pool: PoolOptions { chunks, frame: 64, headroom: 0, ..PoolOptions::default() },
        placement: Arc::new(Placement::alone(modules.len(), 2)),
        meter: None,
        worker: 0,
        modules,
        ports: vec![
            PortPlan {
                name: "in".to_owned(),
                kind: "source",
                open: Some(open(Box::new(source), true)),
                from: None,
                entry: Some(entry),
            },
            PortPlan {
                name: "out".to_owned(),
                kind: "drain",
                open: Some(open(Box::new(drain), false)),
                from: None,
                entry: None,
            },
        ],
        folds: Vec::new(),
        flows: Vec::new(),
    }
}

fn source(count: u32) -> Source {
    Source { sessions: 64, remaining: count, sent: 0, every: 0, burst: 32, share: (0, 1) }
}

fn drain(log: &Log) -> Drain {
    Drain { log: Arc::clone(log), refuse: 0, seen: 0 }
}

/// Creates a worker whose ticks are nanoseconds.
fn worker(plan: Plan, costs: Vec<Cost>) -> Worker<Simulated, RunToCompletion> {
    worker_of(plan, costs)
}

fn worker_of<S: Scheduler>(plan: Plan, costs: Vec<Cost>) -> Worker<Simulated, S> {
    Worker::new(plan, Simulated::new(Frequency::new(1e9)), costs).expect("a sound plan")
}

/// Asserts that the packets of each session left in the order in which they came.
fn in_order(log: &Log) {
    let mut last = std::collections::HashMap::new();
    for &(session, number, _) in log.lock().expect("no test thread has panicked").iter() {
        if let Some(before) = last.insert(session, number) {
            assert!(before < number, "session {session}: {number} after {before}");
        }
    }
}
