//! Runs modules: takes a batch from a queue, calls the function, and moves each packet along its gate.
//!
//! The simulator (`crates/sim`, `worker/run.rs`) has its own code for the same loop. If the order of calls of the
//! scheduler changes here, it must change there, too. `tests/agreement/exact.rs` of that crate compares the two.

use std::hint::cold_path;

use forebay_measure::{Clock, Counter};
use forebay_packet::{Batch, Packet};
use forebay_units::Ticks;

use super::crossing::Stuck;
use super::{Edge, Mode, Node, Worker};
use crate::flow::{FlowTable, Split};
use crate::fold::Branches;
use crate::gate::{Decision, Gate};
use crate::input::Input;
use crate::observer::{DropSite, Observer, Visit};
use crate::scheduler::{Scheduler, Took};
use crate::telemetry::{BACKPRESSURE, Telemetry, size_class};

impl<C: Clock, S: Scheduler> Worker<C, S> {
    /// Runs ready nodes until the turn ends. Returns whether any node did work. A batch that found no room in a ring to
    /// another worker is not work.
    #[inline]
    pub(super) fn run<const MODE: u8>(&mut self) -> bool {
        let mut ran = false;
        self.stuck = Stuck::NOTHING;
        // Packets for which another worker had no room are retried once a turn.
        while let Some(node) = self.waiting.pop() {
            self.scheduler.ready(node);
        }
        let mut batch = self.spares.get();
        while let Some(node) = self.scheduler.next() {
            if let Some(next) = self.scheduler.peek() {
                self.nodes[next].input.prefetch(self.first_byte);
            }
            if S::SHARES && !self.nodes[node].input.is_ready() {
                self.refill::<MODE>(node);
            }
            let mut remaining = self.budget;
            while self.nodes[node].input.take(&mut batch, &mut self.spares) {
                if S::SHARES {
                    self.scheduler.take(node, &batch, self.nodes[node].input.len());
                }
                remaining = remaining.saturating_sub(batch.len());
                if MODE == Mode::Timed as u8 {
                    self.time_residue();
                }
                self.run_from::<MODE>(node, &mut batch);
                let waits = self.waiting.last() == Some(&node);
                ran |= !waits;
                let more = self.nodes[node].input.is_ready() && !waits;
                if S::SHARES {
                    self.scheduler.ran(node, more);
                    break;
                }
                if !more {
                    break;
                }
                if remaining == 0 {
                    self.scheduler.ready(node);
                    break;
                }
            }
        }
        self.spares.put(batch);
        ran
    }

    /// Reads the ports of a module that the scheduler chose although no packets wait for it ([`Scheduler::ran`]).
    /// Packets that wait at these ports count as the module's backlog. If the ports were read only once a turn, the
    /// module would run only one batch a turn, and with a large weight it would not get its share.
    #[inline(never)]
    fn refill<const MODE: u8>(&mut self, node: usize) {
        if self.draining || self.stuck != Stuck::NOTHING {
            return;
        }
        let sources = self.sources.get(node).map_or(0, Vec::len);
        // Each turn begins with another port. Otherwise the same port would always fill the queue before the others.
        let first = if sources > 1 { self.turn as usize % sources } else { 0 };
        for at in (first..sources).chain(0..first) {
            let port = self.sources[node][at] as usize;
            self.receive_from::<MODE>(port);
        }
    }

    /// Runs `batch` through the node `at`. As long as the whole batch goes on to a node that no other node feeds, the
    /// batch also runs through that node. The batch is empty afterwards.
    #[inline]
    fn run_from<const MODE: u8>(&mut self, mut at: usize, batch: &mut Batch) {
        let (size, class) = (batch.len(), size_class(batch.len()));
        // The next turn must read the clock, because the calls below take time after the last reading.
        self.departed = false;
        loop {
            let before = if MODE == Mode::Observed as u8 { Some(frames(batch)) } else { None };
            let Node { function: Some(function), only, counts, .. } = &mut self.nodes[at] else { break };
            let (only, counts) = (*only, *counts);
            function.process(batch, &mut self.desk.context(at, size, &self.flows.branch));
            if self.accounting {
                let counters = &self.counters[at];
                counters.packets.add(size as u64);
                if let Some(class) = counters.sizes.get(class) {
                    class.add(1);
                }
                if counts {
                    count_arrivals(&self.arrived, batch);
                }
            }
            let mut took = Took::Unknown;
            if C::SIMULATED {
                let cost = self.costs[at];
                let ticks = Ticks(cost.per_batch + cost.per_packet * size as u64);
                self.clock.spend(ticks);
                took = Took::Exactly(ticks);
            }
            if let Some(before) = before {
                self.observe_call(at, batch, &before);
            }
            let next = match only {
                Some(edge) if !self.desk.touched => self.pass_on(edge, batch),
                _ => self.distribute::<MODE>(at, batch),
            };
            if MODE == Mode::Timed as u8 {
                let ticks = self.time_module(at, size);
                if !C::SIMULATED {
                    took = Took::Sampled(ticks);
                }
            }
            self.scheduler.charge(at, size, took);
            match next {
                Some(next) => at = next,
                None => return,
            }
        }
        self.depart::<MODE>(at, batch);
    }

    /// Moves a batch along the gates that the function selected, and then the packets that the function emitted.
    /// Returns the next node if the whole batch runs there at once: then the batch is still in `batch`. `None`: the
    /// batch is empty. The desk is clear afterwards.
    fn distribute<const MODE: u8>(&mut self, node: usize, batch: &mut Batch) -> Option<usize> {
        if self.desk.wake != Ticks::NEVER {
            let keeps = std::mem::take(&mut self.desk.keeps);
            self.set_timer(node, self.desk.wake, keeps);
        }
        let gates = usize::from(self.nodes[node].gates);
        let mut straight_on = None;
        match self.desk.common_gate(batch.len()) {
            Some(gate) if gate.raw() < gates => {
                let edge = self.edges[self.nodes[node].edges as usize + gate.raw()];
                let gate = gate.raw();
                Words::of(&self.flows, node).advance_each(batch.iter_mut().map(|packet| (packet, gate)));
                straight_on = self.pass_on(edge, batch);
            }
            _ if self.nodes[node].joins => straight_on = self.join::<MODE>(node, batch),
            _ => self.scatter::<MODE>(node, batch),
        }
        if !self.desk.emitted.is_empty() {
            // Emitted packets must not overtake the batch.
            if let Some(next) = straight_on.take() {
                self.deliver(next, batch);
            }
            self.emit::<MODE>(node);
        }
        self.desk.clear(node);
        straight_on
    }

    /// Sends a whole batch along an edge. Returns the next node if the batch runs there at once: then it is still in
    /// `batch`. `None`: the batch has been [delivered](Self::deliver), and `batch` is empty.
    #[inline]
    fn pass_on(&mut self, edge: Edge, batch: &mut Batch) -> Option<usize> {
        let next = edge.node as usize;
        if edge.alone && self.nodes[next].input.passes() && self.scheduler.straight_on(next) {
            return Some(next);
        }
        self.deliver(next, batch);
        None
    }

    /// Puts a whole batch into a node's queue, or drops it if the scheduler refuses packets there. The batch is empty
    /// afterwards.
    #[inline]
    pub(super) fn deliver(&mut self, node: usize, batch: &mut Batch) {
        if S::SHARES && self.scheduler.refuses(node) {
            let Self { telemetry, observer, .. } = self;
            return batch.drain_each(|_, packet| turn_away(node, packet, telemetry, observer));
        }
        let input = &mut self.nodes[node].input;
        if input.push_all(batch, self.desk.now, &mut self.spares) {
            report_ready(&mut self.scheduler, node, input);
        }
    }

    /// Sends on a batch whose packets have different gates that all lead to the same node. Returns the same as
    /// [`pass_on`](Self::pass_on).
    fn join<const MODE: u8>(&mut self, node: usize, batch: &mut Batch) -> Option<usize> {
        let gates = &*self.desk.each(batch.len()).0;
        let from = &self.nodes[node];
        // Compares only the largest gate with the number of gates. The processor finds it in one pass, several gates at
        // a time.
        if gates.iter().fold(0, |most, gate| gate.raw().max(most)) >= usize::from(from.gates) {
            // Some packets are dropped, consumed or held.
            self.scatter::<MODE>(node, batch);
            return None;
        }
        Words::of(&self.flows, node)
            .advance_each(batch.iter_mut().zip(gates).map(|(packet, gate)| (packet, gate.raw())));
        self.pass_on(self.edges[from.edges as usize], batch)
    }

    /// Moves each packet of a batch along its own gate. The batch is empty afterwards.
    #[inline]
    fn scatter<const MODE: u8>(&mut self, node: usize, batch: &mut Batch) {
        let from = &self.nodes[node];
        let (start, count) = (from.edges as usize, usize::from(from.gates));
        let Self { nodes, edges, scheduler, spares, flows, bin, desk, telemetry, observer, .. } = self;
        let (edges, nodes, now) = (&edges[start..start + count], &mut nodes[..], desk.now);
        let words = Words::of(flows, node);
        let (gates, shelves) = desk.each(batch.len());
        let mut all_out = true;
        batch.drain_each(|index, mut packet| {
            let gate = gates.get(index).map_or(0, |gate| gate.raw());
            let Some(edge) = edges.get(gate) else {
                cold_path();
                all_out = false;
                let held = gates[index] == Gate::HOLD;
                if let Err(packet) = if held { shelves[node].put(index, packet) } else { Err(packet) } {
                    // The gates of the packets in the bin move to the start of `gates`, in the same order. They never
                    // overwrite a gate that is still to be read, because the bin has at most `index` packets now.
                    gates[bin.len()] = gates[index];
                    // The bin has room for the largest batch, and is empty before each one.
                    let _ = bin.push(packet);
                }
                return;
            };
            words.advance(&mut packet, gate);
            let next = edge.node as usize;
            if S::SHARES && scheduler.refuses(next) {
                return turn_away(next, packet, telemetry, observer);
            }
            let input = &mut nodes[next].input;
            if input.push(packet, now, spares) {
                report_ready(scheduler, next, input);
            }
        });
        if !all_out {
            self.end::<MODE>(node);
        }
    }

    /// Drops or consumes the packets in the bin, which left the module `node`. The first gates of the desk are the
    /// gates of these packets. The bin is empty afterwards.
    #[inline(never)]
    fn end<const MODE: u8>(&mut self, node: usize) {
        let gates = self.desk.each(self.bin.len()).0;
        for (packet, gate) in self.bin.iter().zip(&*gates) {
            let node = configured_module(&self.members, &self.flows, node, packet);
            let module = &self.telemetry.modules[node];
            let (reasons, consumed) = match gate.decision() {
                Decision::Drop(which) => (module.drops.get(which), false),
                Decision::Consume(which) => (module.consumes.get(which), true),
                Decision::Out(_) | Decision::Hold => (None, false),
            };
            let (reason, counter) = reasons.unwrap_or(("no_gate", &self.telemetry.worker.no_gate));
            counter.add(1);
            if MODE == Mode::Observed as u8
                && let Some(observer) = &mut self.observer
            {
                if consumed && reasons.is_some() {
                    observer.consumed(node, reason, packet);
                } else {
                    observer.dropped(DropSite::Module(node), reason, packet);
                }
            }
        }
        self.bin.clear();
    }

    /// Takes the packets that the function of `node` created or released, and moves each packet along its gate. This
    /// overwrites the gates of the desk, so the packets of the call's batch must have been moved before.
    #[cold]
    pub(super) fn emit<const MODE: u8>(&mut self, node: usize) {
        let mut emitted = std::mem::take(&mut self.desk.emitted);
        let mut single = self.spares.get();
        for (packet, gate) in emitted.drain(..) {
            // The batch is empty, so there is room.
            let _ = single.push(packet);
            self.desk.put_all(gate);
            self.scatter::<MODE>(node, &mut single);
        }
        self.spares.put(single);
        self.desk.emitted = emitted;
    }

    /// Shows the packets in `intake` to the observer, which marks those that it follows.
    pub(super) fn observe_entry(&mut self, port: usize) {
        if let Some(observer) = &mut self.observer {
            for packet in self.intake.iter_mut() {
                let mark = observer.entered(port, packet);
                packet.set_mark(mark);
            }
        }
    }

    /// Shows each marked packet to the observer, as it was `before` the call and as it is now.
    fn observe_call(&mut self, module: usize, batch: &Batch, before: &[Option<Vec<u8>>]) {
        let Some(observer) = &mut self.observer else { return };
        for (index, (packet, before)) in batch.iter().zip(before).enumerate() {
            let Some(before) = before else { continue };
            let (after, decision) = (packet.data(), self.desk.gate(index).decision());
            let module = configured_module(&self.members, &self.flows, module, packet);
            observer.visited(&Visit { mark: packet.mark(), module, before, after, decision, batch: batch.len() });
        }
    }
}

/// Reports to the scheduler that a node can run. If more than a batch of packets waits there, also reports their
/// number, by which the scheduler recognises an overloaded module. Call this after a push that returned true.
/// `mark_ready` of the simulator is the counterpart: both must call the scheduler in the same order.
#[inline]
pub(super) fn report_ready<S: Scheduler>(scheduler: &mut S, node: usize, input: &Input) {
    scheduler.ready(node);
    if S::SHARES && input.has_backlog() {
        scheduler.fill(node, input.len());
    }
}

/// Drops a packet on its way to a module, because a later module is overloaded or the ring to the module's worker is
/// full ([`BACKPRESSURE`]).
#[cold]
pub(super) fn turn_away(
    module: usize,
    packet: Packet,
    telemetry: &Telemetry,
    observer: &mut Option<Box<dyn Observer>>,
) {
    telemetry.modules[module].turned_away.add(1);
    if let Some(observer) = observer {
        observer.dropped(DropSite::Module(module), BACKPRESSURE, &packet);
    }
}

/// The rule by which flow words advance at a split ([`FlowTable`]).
#[derive(Clone, Copy)]
struct Words<'w> {
    next: &'w [u32],
    split: Split,
}

impl<'w> Words<'w> {
    /// Returns the rule by which flow words advance at `node`.
    #[inline]
    fn of(flows: &'w FlowTable, node: usize) -> Self {
        Self { next: &flows.next, split: flows.splits.get(node).copied().unwrap_or_default() }
    }

    /// Advances the flow words of packets. Each packet comes with the number of its gate.
    #[inline]
    fn advance_each<'p>(self, packets: impl Iterator<Item = (&'p mut Packet, usize)>) {
        // This case has a loop of its own, because it takes only a few instructions per packet.
        match self.split {
            Split::One(first) => packets.for_each(|(packet, gate)| packet.set_flow(first + gate as u32)),
            _ => packets.for_each(|(packet, gate)| self.advance(packet, gate)),
        }
    }

    /// Advances the flow word of a packet that leaves through gate `gate`.
    #[inline]
    fn advance(self, packet: &mut Packet, gate: usize) {
        match self.split {
            Split::None => {}
            Split::One(first) => packet.set_flow(first + gate as u32),
            Split::Many(known) => match (self.next.get(packet.flow() as usize), known) {
                (Some(first), _) => packet.set_flow(first + gate as u32),
                // The packet was held during a reload that removed its path.
                (None, Some(first)) => packet.set_flow(first + gate as u32),
                (None, None) => {}
            },
        }
    }
}

/// Counts, by flow word, packets that come to the module in which they first run folded.
#[inline(never)]
fn count_arrivals(arrived: &[Counter], batch: &Batch) {
    for packet in batch.iter() {
        if let Some(count) = arrived.get(packet.flow() as usize) {
            count.add(1);
        }
    }
}

/// Returns the configured module that `packet` is in while `module` runs. This is `module` itself, or another module of
/// its fold. Counters and observers name the configured module.
pub(super) fn configured_module(members: &[Box<[u32]>], flows: &FlowTable, module: usize, packet: &Packet) -> usize {
    members[module].get(Branches(&flows.branch).of(packet)).map_or(module, |member| *member as usize)
}

/// Returns copies of the frames of the marked packets of a batch, by index. `None` for a packet without a mark.
fn frames(batch: &Batch) -> Vec<Option<Vec<u8>>> {
    batch.iter().map(|packet| (packet.mark() != 0).then(|| packet.data().to_vec())).collect()
}
