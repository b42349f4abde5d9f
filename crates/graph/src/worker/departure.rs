//! Packets that leave: by a port, or into the bin. Delay is accounted to flows here.

use forebay_measure::{Clock, Sample};
use forebay_packet::{Batch, Packet, Ticks};

use super::{Mode, Worker};
use crate::observer::Place;
use crate::scheduler::Scheduler;
use crate::telemetry::FlowTelemetry;

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
        let Some(first) = batch.first() else { return };
        let (clocks, clock) = (&self.telemetry.worker.arrival_clocks, 1 << first.arrival_clock() as u8);
        if clocks.get() & clock == 0 {
            clocks.set(clocks.get() | clock);
        }
        let count = |packets: usize| if UNDO { (packets as u64).wrapping_neg() } else { packets as u64 };
        let run = Packet::run_alike(batch);
        let (mut word, mut flow) = (first.flow(), self.flow_of(first.flow()));
        let (mut arrival, mut delay) = (first.arrival(), Delay::new(now, first.arrival()));
        let mut since = 0;
        for (index, packet) in batch.iter().enumerate().skip(run) {
            if packet.flow() == word && packet.arrival() == arrival {
                continue;
            }
            delay.account(flow, count(index - since));
            since = index;
            if packet.flow() != word {
                (word, flow) = (packet.flow(), self.flow_of(packet.flow()));
            }
            if packet.arrival() != arrival {
                (arrival, delay) = (packet.arrival(), Delay::new(now, packet.arrival()));
            }
        }
        delay.account(flow, count(batch.len() - since));
    }

    /// The flow of a packet that leaves with this flow word; none where its path does not end at a port.
    #[inline]
    fn flow_of(&self, word: u32) -> Option<&FlowTelemetry> {
        let flow = *self.flows.flow.get(word as usize)?;
        self.telemetry.flows.get(flow as usize)
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

/// How long a packet took, with the bucket that it is counted in.
#[derive(Clone, Copy)]
struct Delay(Ticks, Sample);

impl Delay {
    #[inline]
    fn new(now: Ticks, arrival: Ticks) -> Self {
        let delay = now.since(arrival);
        Self(delay, Sample::new(delay.0))
    }

    /// Accounts it to a flow for `count` packets.
    #[inline]
    fn account(self, flow: Option<&FlowTelemetry>, count: u64) {
        let (Self(delay, sample), Some(flow)) = (self, flow) else { return };
        flow.delay.record_sample(sample, count);
        if delay > flow.objective {
            flow.violations.add(count);
        }
    }
}
