//! What comes in: from ports, and from other workers.

use std::sync::Arc;

use forebay_graph::Scheduler;
use forebay_measure::histogram::Sample;

use super::Worker;
use crate::ring::Ring;
use crate::scene::{Crossing, Place};
use crate::source::Ready;

impl<S: Scheduler> Worker<S> {
    /// Takes up to a batch from each ring and each port; whether any came.
    pub(super) fn receive(&mut self, rings: &mut [Ring]) -> bool {
        let mut any = self.take_over(rings);
        // What cannot be given away would only pile up.
        if self.stuck != [false; 3] {
            return any;
        }
        if !S::SHARES {
            for at in 0..self.gateways.len() {
                any |= self.receive_from(at);
            }
            return any;
        }
        // Who has waited longest comes first: a port may fill a queue so that those after it must not be read.
        let mut rota = std::mem::take(&mut self.rota);
        let (gave, kept): (Vec<usize>, Vec<usize>) = rota.iter().partition(|at| self.receive_from(**at));
        rota.clear();
        rota.extend(kept);
        any |= !gave.is_empty();
        rota.extend(gave);
        self.rota = rota;
        any
    }

    fn take_over(&mut self, rings: &mut [Ring]) -> bool {
        let scene = Arc::clone(&self.scene);
        let mut any = false;
        for &ring in &scene.workers[self.id].ins {
            // What stands before the graph waits for no module of this worker.
            let entering = self.stuck == [self.stuck[Crossing::Entry as usize], false, false];
            if scene.rings[ring].crossing != Crossing::Leave && !entering {
                continue;
            }
            let mut left = self.batch;
            while left > 0 && rings[ring].take(self.now, &mut self.intake) {
                any = true;
                left = left.saturating_sub(self.intake.packets);
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

    /// Takes up to a batch from a port; whether any came.
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
        if self.site().nodes[entry] == Place::Spread {
            self.spread(&mut bundle);
        } else {
            self.put(entry, &mut bundle);
        }
        self.intake = bundle;
        true
    }

    /// Reads the ports of a module that has run dry and kept its place.
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
