//! Packets that leave by a port or into the bin. Delays are accounted to flows here.

use forebay_measure::{
    Clock,
    histogram::{Sample, Tally},
};
use forebay_packet::{Batch, Packet};
use forebay_units::Ticks;

use super::{Mode, Worker};
use crate::observer::DropSite;
use crate::scheduler::Scheduler;
use crate::telemetry::FlowTelemetry;

impl<C: Clock, S: Scheduler> Worker<C, S> {
    /// Takes a batch out of the graph by `node`, which is not a module: a port, the bin, or a crossing to another
    /// worker. The batch is empty afterwards.
    #[inline]
    pub(super) fn depart<const MODE: u8>(&mut self, node: usize, batch: &mut Batch) {
        let port = node - self.modules;
        if port >= self.gateways.len() {
            if port == self.gateways.len() {
                self.discard::<MODE>(batch);
                if MODE == Mode::Timed as u8 {
                    self.time_residue();
                }
            } else {
                let count = self.cross(node, batch);
                if MODE == Mode::Timed as u8 {
                    self.time_handover(count);
                }
            }
            return;
        }
        let now = self.clock.now();
        (self.desk.now, self.departed) = (now, MODE != Mode::Timed as u8);
        if self.accounting {
            self.account::<false>(batch, now);
            if self.weighs {
                self.weigh::<false>(batch);
            }
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
        // No edge leads to a port that this worker does not have.
        if let Some(port) = &mut self.gateways[port].port {
            port.send(batch, now);
        }
        let taken = given - batch.len();
        self.telemetry.ports[port].counters.sent.add(taken as u64);
        if !batch.is_empty() {
            self.refused::<MODE>(port, batch, now);
        }
        if MODE == Mode::Timed as u8 {
            self.time_send(port, taken);
        }
    }

    /// Accounts packets' bytes to their flows. With `UNDO` the bytes are subtracted again.
    #[cold]
    fn weigh<const UNDO: bool>(&self, batch: &Batch) {
        for packet in batch.iter() {
            if let Some(flow) = self.flow_of(packet.flow()) {
                flow.bytes.add(signed::<UNDO>(packet.data().len() as u64));
            }
        }
    }

    /// Accounts packets that leave at `now`, and their delays, to their flows. With `UNDO` they are subtracted again:
    /// then the batch and `now` must be the same as in the earlier call.
    #[inline]
    fn account<const UNDO: bool>(&self, batch: &Batch, now: Ticks) {
        let Some(first) = batch.first() else { return };
        let (clocks, clock) = (&self.telemetry.worker.arrival_clocks, 1 << first.arrival_clock() as u8);
        if clocks.get() & clock == 0 {
            clocks.set(clocks.get() | clock);
        }
        // Usually all packets have the same flow and arrival time. Then they cost one update.
        let run = Packet::run_alike(batch);
        if let Some(flow) = self.flow_of(first.flow()) {
            flow.account(Sample::new(now.since(first.arrival()).0), signed::<UNDO>(run as u64));
        }
        if run < batch.len() {
            self.account_each::<UNDO>(&batch[run..], now);
        }
    }

    /// Accounts packets of several flows or arrival times. Consecutive packets of the same flow are accounted together,
    /// so their flow is looked up and written only once.
    #[inline(never)]
    fn account_each<const UNDO: bool>(&self, mut packets: &[Packet], now: Ticks) {
        if let [first, second, ..] = packets
            && first.flow() != second.flow()
        {
            return self.account_mixed::<UNDO>(packets, now);
        }
        let mut arrival = Ticks::ZERO;
        let mut sample = Sample::new(now.0);
        while let Some(first) = packets.first() {
            let Some(flow) = self.flow_of(first.flow()) else {
                packets = &packets[1..];
                continue;
            };
            let (word, objective, mut tally, mut late) = (first.flow(), flow.objective().0, Tally::default(), 0);
            while let Some(packet) = packets.first().filter(|packet| packet.flow() == word) {
                if packet.arrival() != arrival {
                    arrival = packet.arrival();
                    sample = Sample::new(now.since(arrival).0);
                }
                flow.delay.count(sample, signed::<UNDO>(1), &mut tally);
                late += u64::from(sample.value() > objective);
                packets = &packets[1..];
            }
            flow.delay.settle(tally);
            if late > 0 {
                flow.violations.add(signed::<UNDO>(late));
            }
        }
    }

    /// Does the work of [`account_each`](Self::account_each) if consecutive packets seldom have the same flow. Looks up
    /// the flow of each packet, and computes the sample once for consecutive packets with the same arrival time.
    fn account_mixed<const UNDO: bool>(&self, packets: &[Packet], now: Ticks) {
        // Local copies of the slices. Otherwise the compiler would read the pointers of the slices again for each
        // packet, because the counters that are written could be part of the same memory.
        let (of, flows) = (&self.flows.flow[..], &self.telemetry.flows[..]);
        let one = signed::<UNDO>(1);
        let mut arrival = Ticks::ZERO;
        let mut sample = Sample::new(now.0);
        for packet in packets {
            if packet.arrival() != arrival {
                arrival = packet.arrival();
                sample = Sample::new(now.since(arrival).0);
            }
            if let Some(flow) = of.get(packet.flow() as usize).and_then(|flow| flows.get(*flow as usize)) {
                flow.account(sample, one);
            }
        }
    }

    /// Returns the flow of a packet that leaves with this flow word. `None` if the word is unknown, or if its path does
    /// not end at a port.
    #[inline]
    fn flow_of(&self, word: u32) -> Option<&FlowTelemetry> {
        let flow = *self.flows.flow.get(word as usize)?;
        self.telemetry.flows.get(flow as usize)
    }

    /// Drops packets that a port did not take.
    #[cold]
    fn refused<const MODE: u8>(&mut self, port: usize, batch: &mut Batch, now: Ticks) {
        if self.accounting {
            // The packets were accounted as sent before `send` was called.
            self.account::<true>(batch, now);
            if self.weighs {
                self.weigh::<true>(batch);
            }
        }
        self.telemetry.ports[port].refused.add(batch.len() as u64);
        self.observe_drops::<MODE>(DropSite::Port(port), "refused", batch);
        batch.clear();
    }

    /// Drops packets that the configuration sends to the bin.
    fn discard<const MODE: u8>(&mut self, batch: &mut Batch) {
        self.telemetry.worker.unwanted.add(batch.len() as u64);
        // The module that sent a packet to the bin is unknown here, because packets of all modules come together in the
        // bin.
        self.observe_drops::<MODE>(DropSite::Port(self.gateways.len()), "unwanted", batch);
        batch.clear();
    }

    /// Passes dropped packets to the observer, in mode `Observed` and if there is an observer.
    pub(super) fn observe_drops<const MODE: u8>(&mut self, site: DropSite, reason: &'static str, batch: &Batch) {
        if MODE == Mode::Observed as u8
            && let Some(observer) = &mut self.observer
        {
            batch.iter().for_each(|packet| observer.dropped(site, reason, packet));
        }
    }
}

/// Returns `n`, or the value that cancels `n`.
#[inline]
fn signed<const UNDO: bool>(n: u64) -> u64 {
    if UNDO { n.wrapping_neg() } else { n }
}
