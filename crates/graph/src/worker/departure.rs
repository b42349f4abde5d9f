//! Packets that leave: by a port, or into the bin. Delay is accounted to flows here.

use forebay_measure::{Clock, Sample};
use forebay_packet::{Batch, Packet, Ticks};

use super::{Mode, Worker};
use crate::observer::Place;
use crate::scheduler::Scheduler;

impl<C: Clock, S: Scheduler> Worker<C, S> {
    /// Lets a batch leave by the egress node `node`; it is empty afterwards.
    #[inline]
    pub(super) fn depart<const MODE: u8>(&mut self, node: usize, batch: &mut Batch) {
        let port = node - self.modules;
        if port >= self.gateways.len() {
            self.discard::<MODE>(batch);
            return;
        }
        let now = self.clock.now();
        (self.desk.now, self.departed) = (now, true);
        if self.accounting {
            self.account::<false>(batch, now);
        }
        if MODE == Mode::Observed as u8
            && let Some(observer) = &mut self.observer
        {
            for packet in batch.iter().filter(|packet| packet.mark() != 0) {
                let flow = self.flows.flow.get(packet.flow() as usize).map(|flow| *flow as usize);
                observer.left(port, flow.filter(|flow| *flow < self.telemetry.flows.len()), packet);
            }
        }
        let given = batch.len();
        self.gateways[port].port.send(batch, now);
        self.telemetry.ports[port].counters.sent.add((given - batch.len()) as u64);
        if !batch.is_empty() {
            self.refused::<MODE>(port, batch, now);
        }
    }

    /// Accounts packets to their flows; with `UNDO`, takes that back. Runs of packets of one flow that arrived together
    /// (one batch of one flow: the usual case) cost one update.
    #[inline]
    fn account<const UNDO: bool>(&self, batch: &Batch, now: Ticks) {
        let mut rest: &[Packet] = batch;
        let Some(first) = rest.first() else { return };
        let (clocks, clock) = (&self.telemetry.worker.arrival_clocks, 1 << first.arrival_clock() as u8);
        if clocks.get() & clock == 0 {
            clocks.set(clocks.get() | clock);
        }
        let mut arrival = first.arrival();
        let mut delay = now.since(arrival);
        let mut sample = Sample::new(delay.0);
        while let Some(first) = rest.first() {
            if first.arrival() != arrival {
                arrival = first.arrival();
                delay = now.since(arrival);
                sample = Sample::new(delay.0);
            }
            let run = Packet::run_alike(rest);
            rest = &rest[run..];
            let count = if UNDO { (run as u64).wrapping_neg() } else { run as u64 };
            // A word past the last flow is of a path that does not end at a port.
            let flow = self.flows.flow.get(first.flow() as usize);
            let Some(flow) = flow.and_then(|flow| self.telemetry.flows.get(*flow as usize)) else { continue };
            flow.delay.record_sample(sample, count);
            if delay > flow.objective {
                flow.violations.add(count);
            }
        }
    }

    /// Drops what a port would not take.
    #[cold]
    fn refused<const MODE: u8>(&mut self, port: usize, batch: &mut Batch, now: Ticks) {
        if self.accounting {
            // They were accounted as sent.
            self.account::<true>(batch, now);
        }
        self.telemetry.ports[port].refused.add(batch.len() as u64);
        self.observe_drops::<MODE>(Place::Port(port), "refused", batch);
        batch.clear();
    }

    /// Drops what the configuration sends nowhere.
    fn discard<const MODE: u8>(&mut self, batch: &mut Batch) {
        self.telemetry.worker.unwanted.add(batch.len() as u64);
        // Which module sent it there is not known any more: the bin is where branches meet.
        self.observe_drops::<MODE>(Place::Port(self.gateways.len()), "unwanted", batch);
        batch.clear();
    }

    fn observe_drops<const MODE: u8>(&mut self, place: Place, reason: &'static str, batch: &Batch) {
        if MODE == Mode::Observed as u8
            && let Some(observer) = &mut self.observer
        {
            batch.iter().for_each(|packet| observer.dropped(place, reason, packet));
        }
    }
}
