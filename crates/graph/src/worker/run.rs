//! Runs modules: takes a batch from a queue, calls the function, and puts each packet where the function said.

use forebay_measure::Clock;
use forebay_packet::{Batch, Packet, Ticks};

use super::{Mode, Worker};
use crate::context::Context;
use crate::gate::{Decision, Gate};
use crate::observer::{Place, Visit};
use crate::scheduler::Scheduler;
use crate::telemetry::size_class;

impl<C: Clock, S: Scheduler> Worker<C, S> {
    /// Runs what is ready until the turn ends; whether anything ran.
    #[inline]
    pub(super) fn run<const MODE: u8>(&mut self) -> bool {
        let mut any = false;
        let mut last = if MODE == Mode::Timed as u8 { self.clock.now() } else { Ticks::ZERO };
        let mut batch = self.spares.get();
        while let Some(node) = self.scheduler.next() {
            let mut left = self.budget;
            while self.inputs[node].take(&mut batch, &mut self.spares) {
                any = true;
                left = left.saturating_sub(batch.len());
                self.run_from::<MODE>(node, &mut batch, &mut last);
                if left == 0 {
                    break;
                }
            }
            if self.inputs[node].is_ready() {
                self.scheduler.ready(node);
            }
        }
        self.spares.put(batch);
        any
    }

    /// Runs `batch` through `node` and, as long as all of it goes on to a module that nothing else feeds, through
    /// those that follow. The batch is empty afterwards.
    #[inline]
    fn run_from<const MODE: u8>(&mut self, mut node: usize, batch: &mut Batch, last: &mut Ticks) {
        while node < self.nodes.len() {
            let size = batch.len();
            let before = if MODE == Mode::Observed as u8 { Some(frames(batch)) } else { None };
            self.call(node, batch);
            if self.accounting {
                let counters = &self.telemetry.counters[node];
                counters.packets.add(size as u64);
                counters.sizes[size_class(size)].add(1);
            }
            if let Some(before) = before {
                self.observe_call(node, batch, &before);
            }
            let straight_on = self.distribute::<MODE>(node, batch);
            if MODE == Mode::Timed as u8 {
                let now = self.clock.now();
                let counters = &self.telemetry.counters[node];
                counters.ticks.add(now.since(*last).0);
                counters.timed_packets.add(size as u64);
                counters.timed_batches.add(1);
                *last = now;
            }
            match straight_on {
                Some(next) => node = next,
                None => return,
            }
        }
        self.depart::<MODE>(node, batch);
        if MODE == Mode::Timed as u8 {
            *last = self.clock.now();
        }
    }

    /// Calls a module's function.
    #[inline]
    fn call(&mut self, node: usize, batch: &mut Batch) {
        self.verdicts.reset();
        let mut context = Context {
            now: self.now,
            len: batch.len(),
            wake: Ticks::NEVER,
            verdicts: &mut self.verdicts,
            emitted: &mut self.emitted,
            created: &self.telemetry.modules[node].creates.counts,
            shelf: &mut self.shelves[node],
            pool: &self.pool,
        };
        self.nodes[node].function.process(batch, &mut context);
        let wake = context.wake;
        if C::SIMULATED {
            let cost = self.costs[node];
            self.clock.spend(Ticks(cost.per_batch + cost.per_packet * batch.len() as u64));
        }
        if wake != Ticks::NEVER {
            self.set_timer(node, wake);
        }
    }

    /// Puts a batch where its function said, and what the function emitted after it. `Some`: all of it is still in
    /// `batch` and goes on to this node, which nothing else feeds.
    #[inline]
    fn distribute<const MODE: u8>(&mut self, node: usize, batch: &mut Batch) -> Option<usize> {
        let straight_on = match self.common_gate(batch.len()) {
            Some(gate) if gate.raw() < self.nodes[node].gates as usize => self.pass_on(node, gate.raw(), batch),
            _ => {
                self.scatter::<MODE>(node, batch);
                None
            }
        };
        if !self.emitted.is_empty() {
            // What follows the batch must not overtake it.
            if let Some(next) = straight_on {
                self.deliver(next, batch);
            }
            self.emit::<MODE>(node);
            return None;
        }
        straight_on
    }

    /// The gate of all of the batch's packets, where they share one.
    #[inline]
    fn common_gate(&self, len: usize) -> Option<Gate> {
        self.verdicts.all().or_else(|| {
            let gates = &self.verdicts.gates()[..len.min(self.verdicts.gates().len())];
            let first = *gates.first()?;
            let differ = gates.iter().fold(0, |differ, gate| differ | (gate.raw() ^ first.raw()));
            (differ == 0).then_some(first)
        })
    }

    /// Sends a whole batch through one gate.
    #[inline]
    fn pass_on(&mut self, node: usize, gate: usize, batch: &mut Batch) -> Option<usize> {
        let from = &self.nodes[node];
        let edge = self.edges[from.edges as usize + gate];
        if from.splits {
            for packet in batch.iter_mut() {
                advance(&self.flows.next, packet, gate);
            }
        }
        let next = edge.node as usize;
        if S::DIRECT && edge.alone && self.inputs[next].passes() {
            return Some(next);
        }
        self.deliver(next, batch);
        None
    }

    /// Puts a whole batch into a node's queue; it is left empty.
    #[inline]
    pub(super) fn deliver(&mut self, node: usize, batch: &mut Batch) {
        if self.inputs[node].push_all(batch, self.now, &mut self.spares) {
            self.scheduler.ready(node);
        }
    }

    /// Puts each packet of a batch where its own gate leads.
    #[inline]
    fn scatter<const MODE: u8>(&mut self, node: usize, batch: &mut Batch) {
        let from = &self.nodes[node];
        let (start, count, splits) = (from.edges as usize, from.gates as usize, from.splits);
        // A function that put the whole batch on one unusual gate comes here too.
        let all = self.verdicts.all();
        let mut unusual = false;
        let Self { edges, inputs, scheduler, spares, verdicts, flows, bin, now, shelves, telemetry, .. } = self;
        let edges = &edges[start..start + count];
        let observer = &mut self.observer;
        batch.drain_each(|index, mut packet| {
            let gate = all.unwrap_or(verdicts.gates()[index % verdicts.gates().len()]);
            if let Some(edge) = edges.get(gate.raw()) {
                if splits {
                    advance(&flows.next, &mut packet, gate.raw());
                }
                let next = edge.node as usize;
                if inputs[next].push(packet, *now, spares) {
                    scheduler.ready(next);
                }
                return;
            }
            unusual = true;
            let told = &telemetry.modules[node];
            let end = match gate.decision() {
                Decision::Hold => match shelves[node].put(index, packet) {
                    Ok(()) => return,
                    Err(packet) => End { packet, counts: None, reason: "no_gate", consumed: false },
                },
                Decision::Out(_) => End { packet, counts: None, reason: "no_gate", consumed: false },
                Decision::Drop(which) => End::of(packet, &told.drops, which, false),
                Decision::Consume(which) => End::of(packet, &told.consumes, which, true),
            };
            match end.counts {
                Some(count) => count.add(1),
                None => telemetry.worker.no_gate.add(1),
            }
            if MODE == Mode::Observed as u8
                && let Some(observer) = observer
            {
                if end.consumed {
                    observer.consumed(node, end.reason, &end.packet);
                } else {
                    observer.dropped(Place::Module(node), end.reason, &end.packet);
                }
            }
            // The bin holds the largest batch, and is empty before each.
            let _ = bin.push(end.packet);
        });
        if unusual {
            self.shelves[node].settle();
            self.bin.clear();
        }
    }

    /// Puts what a function created or released where it said.
    #[cold]
    pub(super) fn emit<const MODE: u8>(&mut self, node: usize) {
        let mut emitted = std::mem::take(&mut self.emitted);
        let mut one = self.spares.get();
        for (packet, gate) in emitted.drain(..) {
            // The batch is empty, so there is room.
            let _ = one.push(packet);
            self.verdicts.reset();
            self.verdicts.set_all(gate);
            self.scatter::<MODE>(node, &mut one);
        }
        self.spares.put(one);
        self.emitted = emitted;
    }

    pub(super) fn observe_entry(&mut self, port: usize, batch: &mut Batch) {
        if let Some(observer) = &mut self.observer {
            for packet in batch.iter_mut() {
                let mark = observer.entered(port, packet);
                packet.set_mark(mark);
            }
        }
    }

    fn observe_call(&mut self, module: usize, batch: &Batch, before: &[Option<Vec<u8>>]) {
        let Some(observer) = &mut self.observer else { return };
        for (index, (packet, before)) in batch.iter().zip(before).enumerate() {
            let Some(before) = before else { continue };
            let gate = self.verdicts.all().unwrap_or(self.verdicts.gates()[index]);
            let (after, decision) = (packet.data(), gate.decision());
            observer.visited(&Visit { mark: packet.mark(), module, before, after, decision, batch: batch.len() });
        }
    }
}

/// A packet that ends in a module.
struct End<'a> {
    packet: Packet,
    counts: Option<&'a forebay_measure::Counter>,
    reason: &'static str,
    consumed: bool,
}

impl<'a> End<'a> {
    fn of(packet: Packet, reasons: &'a crate::telemetry::ReasonCounters, which: usize, consumed: bool) -> Self {
        let counts = reasons.counts.get(which);
        Self {
            packet,
            counts,
            reason: reasons.names.get(which).copied().unwrap_or("no_gate"),
            consumed: consumed && counts.is_some(),
        }
    }
}

/// Advances a packet's flow word at a split.
#[inline]
fn advance(next: &[u32], packet: &mut Packet, gate: usize) {
    if let Some(first) = next.get(packet.flow() as usize) {
        packet.set_flow(first + gate as u32);
    }
}

/// The frames of the marked packets of a batch.
fn frames(batch: &Batch) -> Vec<Option<Vec<u8>>> {
    batch.iter().map(|packet| (packet.mark() != 0).then(|| packet.data().to_vec())).collect()
}
