//! Buffers: their hold limits, and changes that a controller makes between turns.

use forebay_graph::Scheduler;
use forebay_protocol::Action;

use super::{LATE, Worker};
use crate::time::Picos;

/// The hold limit on a path without a delay objective (as in the engine).
const DEFAULT_HOLD: Picos = Picos(1_000_000_000);
/// The interval at which queue lengths are published, in addition to idle turns (as in the engine).
const PUBLISH_EVERY: Picos = Picos(1_000_000_000);

/// The published state of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gauge {
    /// The number of packets that wait.
    pub(crate) queued: u64,
    /// The time that the first packet of the incomplete batch has waited for the trigger.
    pub(crate) oldest: Picos,
    /// The number of packets that came while there was a trigger.
    arrived: u64,
    /// The number of instants at which packets came while there was a trigger.
    arrivals: u64,
    /// The number of packets that had come while there was a trigger, at the last change of the trigger.
    came: u64,
    /// The number of all packets that had come, at the last change of the trigger.
    marked: u64,
}

impl Gauge {
    /// Returns the number of packets that have come while there was a trigger. `trigger` is the present trigger, and
    /// `all` the number of all packets that have come.
    fn arrived(&self, trigger: u32, all: u64) -> u64 {
        if trigger == 0 { self.came } else { self.came + (all - self.marked) }
    }
}

impl<S: Scheduler> Worker<S> {
    /// Releases buffers over their hold limit, and publishes the queues if that is due.
    pub(super) fn sweep(&mut self) {
        let now = self.now;
        // A packet that comes from now on exceeds its hold limit after `least_hold` at the earliest.
        let mut next = now + self.least_hold;
        for &module in &self.buffered {
            let queue = &mut self.queues[module];
            match queue.due() {
                Some(due) if due <= now => {
                    queue.release();
                    self.scheduler.ready(module);
                }
                Some(due) => next = next.min(due),
                None => {}
            }
        }
        self.sweep_at = next.max(now + Picos(self.least_hold.0 / LATE));
        if !self.was_busy || now >= self.publish_at {
            self.publish();
        }
    }

    /// Applies a controller's actions. Must be called between turns.
    pub(crate) fn apply(&mut self, actions: &[Action]) {
        let mut buffers = false;
        for action in actions {
            // Folded modules share one queue.
            let leader = action.module().map_or(0, |module| self.scene.layout.modules[module].leader);
            match *action {
                Action::SetTrigger { trigger, .. } => {
                    let (queue, gauge) = (&mut self.queues[leader], &mut self.gauges[leader]);
                    let all = self.tally.modules[leader].packets + u64::from(queue.len());
                    (gauge.came, gauge.marked) = (gauge.arrived(queue.trigger(), all), all);
                    queue.set_trigger(trigger as u32, self.batch, self.now);
                    if queue.is_ready() {
                        self.scheduler.ready(leader);
                    }
                    buffers = true;
                }
                Action::SetHold { hold, .. } => {
                    self.hold_stated[leader] = Some(Picos(hold.0.saturating_mul(1_000)));
                    buffers = true;
                }
                Action::SetWeight { weight, .. } => {
                    self.scheduler.set_weight(leader, weight);
                    self.weights[leader] = weight;
                }
                Action::SetOffer { factor } => self.set_offer(factor),
                // A rate limit may count bytes, which are not simulated. No controller sets a limit.
                _ => {}
            }
        }
        if buffers {
            self.derive_holds();
        }
    }

    /// Computes the hold limits that were not set, as the engine does. Each flow through the module allows half of its
    /// delay objective, divided by the number of buffers on its path. The least of these values is the limit. Must be
    /// called after each change of a trigger or a limit.
    pub(super) fn derive_holds(&mut self) {
        self.buffered = (0..self.modules).filter(|module| self.queues[*module].trigger() > 0).collect();
        let mut buffers_on = vec![0; self.objectives.len()];
        for &module in &self.buffered {
            self.flows_of[module].iter().for_each(|flow| buffers_on[*flow] += 1);
        }
        for &module in &self.buffered {
            let shares =
                self.flows_of[module].iter().filter_map(|flow| Some(self.objectives[*flow]? / (2 * buffers_on[*flow])));
            let derived = shares.min().map_or(DEFAULT_HOLD, |nanos| Picos(nanos * 1_000));
            self.queues[module].set_hold(self.hold_stated[module].unwrap_or(derived));
        }
        let holds = self.buffered.iter().map(|module| self.queues[*module].hold());
        self.least_hold = holds.min().unwrap_or(Picos::NEVER);
        // Some buffers may be over their limit now.
        self.sweep_at = if self.buffered.is_empty() { Picos::NEVER } else { Picos::ZERO };
    }

    /// Returns a module's trigger and hold limit.
    pub(crate) fn buffer(&self, module: usize) -> (usize, Picos) {
        let queue = &self.queues[module];
        (queue.trigger() as usize, if queue.trigger() > 0 { queue.hold() } else { Picos::ZERO })
    }

    /// Returns the last published state of a module's queue.
    pub(crate) fn gauge(&self, module: usize) -> Gauge {
        self.gauges[module]
    }

    /// Publishes the queue lengths, as the engine does: in idle turns, and otherwise at intervals.
    fn publish(&mut self) {
        self.publish_at = self.now + PUBLISH_EVERY;
        let all = if S::SHARES { 0..self.modules } else { 0..0 };
        for module in self.buffered.iter().copied().chain(all) {
            let (queue, gauge) = (&self.queues[module], &mut self.gauges[module]);
            gauge.queued = u64::from(queue.len());
            if queue.trigger() > 0 {
                gauge.arrivals = queue.instants();
                let all = self.tally.modules[module].packets + gauge.queued;
                gauge.arrived = gauge.arrived(queue.trigger(), all);
                gauge.oldest = if gauge.queued > 0 { self.now.since(queue.since()) } else { Picos::ZERO };
            }
        }
    }

    /// Copies the last published queue states into the counts. Must be called before the counts are read.
    pub(crate) fn count_queues(&mut self) {
        for (counted, gauge) in self.tally.modules.iter_mut().zip(&self.gauges) {
            counted.came = counted.packets + gauge.queued + counted.turned_away;
            (counted.arrived, counted.arrivals) = (gauge.arrived, gauge.arrivals);
        }
    }
}
