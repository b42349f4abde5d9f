//! Receives packets from ports and from other workers.

use std::sync::Arc;

use forebay_graph::Scheduler;
use forebay_measure::histogram::Sample;

use super::Worker;
use crate::ring::Ring;
use crate::scene::{Crossing, NodeType};
use crate::source::Ready;

impl<S: Scheduler> Worker<S> {
    /// Takes up to a batch from each ring and each port. Returns true if packets came.
    pub(super) fn receive(&mut self, rings: &mut [Ring]) -> bool {
        let mut any = self.receive_from_rings(rings);
        // As long as packets cannot go on to other workers, further packets would only accumulate here.
        if self.stuck != [false; 3] {
            return any;
        }
        if !S::SHARES {
            for at in 0..self.gateways.len() {
                any |= self.receive_from(at);
            }
            return any;
        }
        // The ports that gave no packets for the longest time are read first. Otherwise one port could fill a queue in
        // every turn, and the ports after it would never be read.
        let mut read_order = std::mem::take(&mut self.read_order);
        let (gave, kept): (Vec<usize>, Vec<usize>) = read_order.iter().partition(|at| self.receive_from(**at));
        read_order.clear();
        read_order.extend(kept);
        any |= !gave.is_empty();
        read_order.extend(gave);
        self.read_order = read_order;
        any
    }

    /// Takes up to a batch from each ring that may be read now. Returns true if packets came.
    fn receive_from_rings(&mut self, rings: &mut [Ring]) -> bool {
        let scene = Arc::clone(&self.scene);
        let mut any = false;
        for &ring in &scene.workers[self.id].ins {
            // Packets that leave are always received. Other rings are not read as long as packets of the types `Work`
            // or `Leave` are stuck. Stuck `Entry` packets do not stop these rings: they have not reached a module yet,
            // and no module of this worker waits for them.
            let entering = self.stuck == [self.stuck[Crossing::Entry as usize], false, false];
            if scene.rings[ring].crossing != Crossing::Leave && !entering {
                continue;
            }
            let mut remaining = self.batch;
            while remaining > 0 && rings[ring].take(self.now, &mut self.intake) {
                any = true;
                remaining = remaining.saturating_sub(self.intake.packets);
                let Some(node) = self.intake.runs.first().map(|run| scene.hops[run.at as usize] as usize) else {
                    continue;
                };
                let mut bundle = std::mem::take(&mut self.intake);
                self.put(node, &mut bundle);
                self.intake = bundle;
            }
        }
        any
    }

    /// Takes up to a batch from the gateway `at`, and puts the packets into the queue of the gateway's entry node.
    /// Returns true if packets came.
    pub(super) fn receive_from(&mut self, at: usize) -> bool {
        if S::SHARES && self.is_held(&self.gateways[at]) {
            return false;
        }
        let gateway = &mut self.gateways[at];
        match gateway.ready {
            Ready::Never => return false,
            Ready::At(instant) if instant > self.now => return false,
            _ => {}
        }
        let lost = gateway.source.lost;
        gateway.ready = gateway.source.take(self.now, self.batch, &mut self.intake);
        self.tally.lost[gateway.port] += gateway.source.lost - lost;
        let (entry, packets) = (gateway.entry, u64::from(self.intake.packets));
        let Some(first) = self.intake.runs.first() else { return false };
        self.tally.entered += packets;
        self.tally.port_wait.add(Sample::new(self.now.since(first.arrival).nanos()), packets);
        let mut bundle = std::mem::take(&mut self.intake);
        if self.plan().nodes[entry] == NodeType::Spread {
            self.spread(&mut bundle);
        } else {
            self.put(entry, &mut bundle);
        }
        self.intake = bundle;
        true
    }

    /// Reads the ports whose packets enter `node`. Called when the scheduler gives `node` a turn and no batch is ready
    /// there. The port that is read first changes from turn to turn.
    pub(super) fn refill(&mut self, node: usize) {
        if self.stuck != [false; 3] {
            return;
        }
        let sources: Vec<usize> = (0..self.gateways.len()).filter(|at| self.gateways[*at].entry == node).collect();
        let first = if sources.len() > 1 { self.turn as usize % sources.len() } else { 0 };
        for at in (first..sources.len()).chain(0..first) {
            self.receive_from(sources[at]);
        }
    }
}
