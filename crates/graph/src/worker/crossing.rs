//! Packets that go to other workers, and those that come from them.

use std::hint::cold_path;

use forebay_measure::Clock;
use forebay_packet::Batch;
use forebay_units::Ticks;

use super::run::{tell_ready, turn_away, written};
use super::{Mode, Worker};
use crate::links::Crossing;
use crate::placement::share;
use crate::scheduler::Scheduler;

/// What a node past the bin stands for.
pub(super) enum Crossroad {
    /// Each packet goes to the node of its session's worker.
    Spread(Box<[u32]>),
    /// All go to another worker.
    Away {
        /// By this ring of `Links::outs`.
        out: usize,
        /// For this node.
        tag: u32,
        /// Whether packets that find the ring full are dropped (`when_full: drop` of the module that they are for), so
        /// that other packets need not wait for them.
        drops: bool,
    },
}

/// What could not be given to other workers, for want of room: a set of crossings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stuck(u8);

impl Stuck {
    pub(super) const NOTHING: Self = Self(0);

    fn add(&mut self, crossing: Crossing) {
        self.0 |= 1 << crossing as u8;
    }

    /// Whether packets of this crossing may be taken: what they would lead to must have somewhere to go.
    fn allows(self, taken: Crossing) -> bool {
        let entering = 1 << Crossing::Entry as u8;
        // What stands before the graph waits for no module of this worker.
        taken == Crossing::Leave || self.0 & !entering == 0
    }
}

impl<C: Clock, S: Scheduler> Worker<C, S> {
    /// Takes up to a batch of what each other worker has sent; whether any came.
    #[inline(never)]
    pub(super) fn take_over<const MODE: u8>(&mut self) -> bool {
        let mut taken = 0;
        for from in &mut self.links.ins {
            if !self.stuck.allows(from.crossing) {
                continue;
            }
            let mut left = self.batch;
            while left > 0 {
                if C::SIMULATED && from.sent_at().is_some_and(|at| at > self.desk.now.0) {
                    break;
                }
                let Some(node) = from.take(&mut self.intake) else { break };
                let count = self.intake.len();
                (taken, left) = (taken + count, left.saturating_sub(count));
                self.team.taken(self.id, count);
                self.telemetry.worker.taken.add(count as u64);
                let input = &mut self.nodes[node].input;
                if input.push_all(&mut self.intake, self.desk.now, &mut self.spares) {
                    tell_ready(&mut self.scheduler, node, input);
                }
            }
        }
        if MODE == Mode::Timed as u8 {
            self.time_handover(taken);
        }
        taken > 0
    }

    /// When the earliest of what other workers have sent, and this one has not taken, was sent.
    pub fn sent_to(&mut self) -> Option<Ticks> {
        self.links.ins.iter_mut().filter_map(|from| from.sent_at()).map(Ticks).min()
    }

    /// Whether packets for this node are spread over workers.
    #[inline]
    pub(super) fn is_spread(&self, node: usize) -> bool {
        let at = node.wrapping_sub(self.modules + self.gateways.len() + 1);
        matches!(self.crossings.get(at), Some(Crossroad::Spread(_)))
    }

    /// Spreads what a port has given.
    pub(super) fn spread_intake(&mut self, node: usize) {
        let mut batch = std::mem::replace(&mut self.intake, Batch::none());
        self.cross(node, &mut batch);
        self.intake = batch;
    }

    /// Gives a batch to other workers. What does not fit waits at the node; else the batch is left empty.
    #[inline(never)]
    pub(super) fn cross(&mut self, node: usize, batch: &mut Batch) {
        let at = node - (self.modules + self.gateways.len() + 1);
        match &self.crossings[at] {
            Crossroad::Spread(shares) => {
                for packet in batch.drain() {
                    let mut packet = packet;
                    let next = shares[share(packet.session_hash(), shares.len())] as usize;
                    if self.nodes[next].input.push(packet, self.desk.now, &mut self.spares) {
                        self.scheduler.ready(next);
                    }
                }
            }
            Crossroad::Away { out, tag, drops } => {
                let count = batch.len();
                let out = &mut self.links.outs[*out];
                // A real clock is not read for it: nobody looks at the time.
                let now = if C::SIMULATED { self.clock.now() } else { self.desk.now };
                if out.send(*tag, now.0, batch) {
                    self.team.handed(self.id, count);
                    self.telemetry.worker.handed.add(count as u64);
                } else if *drops && !self.draining {
                    self.drop_full(*tag as usize, batch);
                } else {
                    cold_path();
                    self.stuck.add(out.crossing);
                    self.telemetry.worker.stalls.add(1);
                    self.nodes[node].input.put_back(batch, &mut self.spares);
                    // Not in this turn: nothing changes in it.
                    self.waiting.push(node);
                }
            }
        }
    }

    /// Drops packets for a module of another worker, the ring to which is full.
    #[cold]
    fn drop_full(&mut self, module: usize, batch: &mut Batch) {
        let Self { telemetry, observer, members, flows, .. } = self;
        batch.drain_each(|_, packet| turn_away(written(members, flows, module, &packet), packet, telemetry, observer));
    }
}
