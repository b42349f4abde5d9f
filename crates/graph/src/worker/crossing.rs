//! Packets that go to other workers or come from them.

use std::hint::cold_path;

use forebay_measure::Clock;
use forebay_packet::Batch;
use forebay_units::Ticks;

use super::run::{configured_module, report_ready, turn_away};
use super::{Mode, Worker};
use crate::links::Crossing;
use crate::placement::share;
use crate::scheduler::Scheduler;

/// A node after the bin: packets for other workers.
pub(super) enum CrossingNode {
    /// Each packet goes to the worker of its session. The array has, by share of the sessions, the node for packets of
    /// this share.
    Spread(Box<[u32]>),
    /// All packets go to one other worker.
    Away {
        /// The index of the ring in `Links::outs`.
        out: usize,
        /// The index of the destination node, which is the same in all workers.
        tag: u32,
        /// Whether packets that find the ring full are dropped (`when_full: drop` of the destination module), so that
        /// other packets need not wait for them.
        drops: bool,
    },
}

/// The kinds of crossings for which a ring to another worker had no room in this turn: one bit for each [`Crossing`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stuck(u8);

impl Stuck {
    /// The empty set: all packets found room.
    pub(super) const NOTHING: Self = Self(0);

    fn add(&mut self, crossing: Crossing) {
        self.0 |= 1 << crossing as u8;
    }

    /// Returns whether the worker may take packets of the crossing `taken` from other workers. While the worker cannot
    /// hand over packets, it must not take packets that it may have to hand over again. Otherwise workers could wait
    /// for each other.
    fn allows(self, taken: Crossing) -> bool {
        let entering = 1 << Crossing::Entry as u8;
        // Stuck packets of a port block no other packets, because they have not reached this worker's modules yet.
        taken == Crossing::Leave || self.0 & !entering == 0
    }
}

impl<C: Clock, S: Scheduler> Worker<C, S> {
    /// Takes packets from each ring until the worker has a batch or more from this ring, or the ring is empty. Returns
    /// whether any packets came. These packets are queued even if the scheduler refuses packets for their module.
    #[inline(never)]
    pub(super) fn take_over<const MODE: u8>(&mut self) -> bool {
        let mut taken = 0;
        for from in &mut self.links.ins {
            if !self.stuck.allows(from.crossing) {
                continue;
            }
            let mut remaining = self.batch;
            while remaining > 0 {
                if C::SIMULATED && from.sent_at().is_some_and(|at| at > self.desk.now.0) {
                    break;
                }
                let Some(node) = from.take(&mut self.intake) else { break };
                let count = self.intake.len();
                (taken, remaining) = (taken + count, remaining.saturating_sub(count));
                self.team.taken(self.id, count);
                self.telemetry.worker.taken.add(count as u64);
                let input = &mut self.nodes[node].input;
                if input.push_all(&mut self.intake, self.desk.now, &mut self.spares) {
                    report_ready(&mut self.scheduler, node, input);
                }
            }
        }
        if MODE == Mode::Timed as u8 {
            self.time_handover(taken);
        }
        taken > 0
    }

    /// Returns when the oldest packets that wait in rings for this worker were sent, on the sender's clock. `None` if
    /// no packets wait there. Used in simulated time, where packets must not be taken before they were sent.
    pub fn sent_to(&mut self) -> Option<Ticks> {
        self.links.ins.iter_mut().filter_map(|from| from.sent_at()).map(Ticks).min()
    }

    /// Returns whether packets of other workers wait in rings for this worker.
    pub(crate) fn is_sent_packets(&self) -> bool {
        self.links.ins.iter().any(|from| !from.is_empty())
    }

    /// Returns whether packets for this node are spread over workers.
    #[inline]
    pub(super) fn is_spread(&self, node: usize) -> bool {
        let at = node.wrapping_sub(self.modules + self.gateways.len() + 1);
        matches!(self.crossings.get(at), Some(CrossingNode::Spread(_)))
    }

    /// Spreads the packets in `intake`, which a port has given, over workers at the crossing `node`.
    pub(super) fn spread_intake(&mut self, node: usize) {
        let mut batch = std::mem::replace(&mut self.intake, Batch::none());
        self.cross(node, &mut batch);
        self.intake = batch;
    }

    /// Hands a batch over to other workers. Packets that find no room in the ring wait at the node until the next turn,
    /// or are dropped (`when_full: drop`). The batch is empty afterwards. Returns the number of packets that found
    /// room. A node that spreads packets finds room for all of them.
    ///
    /// A node that spreads packets also puts packets into queues of this worker. There they are not refused, and no
    /// backlog is reported to the scheduler.
    #[inline(never)]
    pub(super) fn cross(&mut self, node: usize, batch: &mut Batch) -> usize {
        let at = node - (self.modules + self.gateways.len() + 1);
        let count = batch.len();
        match &self.crossings[at] {
            CrossingNode::Spread(shares) => {
                for packet in batch.drain() {
                    let mut packet = packet;
                    let next = shares[share(packet.session_hash(), shares.len())] as usize;
                    if self.nodes[next].input.push(packet, self.desk.now, &mut self.spares) {
                        self.scheduler.ready(next);
                    }
                }
            }
            CrossingNode::Away { out, tag, drops } => {
                let out = &mut self.links.outs[*out];
                // The receiver uses the time of sending only in simulated time, so a real clock is not read here.
                let now = if C::SIMULATED { self.clock.now() } else { self.desk.now };
                if out.send(*tag, now.0, batch) {
                    self.team.handed(self.id, count);
                    self.team.wake(out.to);
                    self.telemetry.worker.handed.add(count as u64);
                } else if *drops && !self.draining {
                    self.drop_full(*tag as usize, batch);
                    return 0;
                } else {
                    cold_path();
                    self.stuck.add(out.crossing);
                    self.telemetry.worker.stalls.add(1);
                    self.nodes[node].input.put_back(batch, &mut self.spares);
                    // The next turn retries this node. This turn does not.
                    self.waiting.push(node);
                    return 0;
                }
            }
        }
        count
    }

    /// Drops packets for a module of another worker because the ring to that worker is full.
    #[cold]
    fn drop_full(&mut self, module: usize, batch: &mut Batch) {
        let Self { telemetry, observer, members, flows, .. } = self;
        batch.drain_each(|_, packet| {
            turn_away(configured_module(members, flows, module, &packet), packet, telemetry, observer)
        });
    }
}
