//! A module's input queue with its trigger, like the engine's. It holds runs of equal packets instead of single
//! packets.

use std::collections::VecDeque;

use crate::time::Picos;

/// Consecutive packets at the same position of the same route that arrived at the same instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The index of the packets' present hop in the scene's hops.
    pub(crate) at: u32,
    /// The number of packets.
    pub(crate) count: u32,
    /// The instant at which the packets arrived at the port.
    pub(crate) arrival: Picos,
}

/// A batch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bundle {
    pub(crate) runs: Vec<Run>,
    /// The number of packets of all runs. Code that changes `runs` must also change this number.
    pub(crate) packets: u32,
}

impl Bundle {
    /// Adds packets. The packets join the last run if they have the same hop and arrival as its packets.
    #[inline]
    pub(crate) fn push(&mut self, run: Run) {
        self.packets += run.count;
        match self.runs.last_mut() {
            Some(last) if last.at == run.at && last.arrival == run.arrival => last.count += run.count,
            _ => self.runs.push(run),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.runs.clear();
        self.packets = 0;
    }
}

/// The queue. Packets wait in their order, divided into complete batches and the batch that is being filled.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    /// All packets that wait, the oldest first.
    runs: VecDeque<Run>,
    /// The number of packets in the batch that is being filled. These are the last packets of the queue.
    filling: u32,
    /// The sizes of the complete batches, which wait before the batch that is being filled.
    complete: VecDeque<u32>,
    /// The sum of `complete`.
    completed: u32,
    /// A batch is complete with this number of packets: the trigger or, without a trigger, the largest batch.
    limit: u32,
    /// True if there is no trigger: incomplete batches run too.
    eager: bool,
    /// The time since which the first packet of the incomplete batch waits. Valid only with a trigger.
    since: Picos,
    /// The last time at which packets came while there was a trigger.
    last: Picos,
    /// The number of instants at which packets came while there was a trigger. Packets that come at the same time count
    /// as one instant.
    instants: u64,
    /// The hold limit. Used only with a trigger.
    hold: Picos,
}

impl Queue {
    /// Creates an empty queue without a trigger. `batch` is the largest batch.
    pub(crate) fn new(batch: u32) -> Self {
        Self {
            runs: VecDeque::new(),
            filling: 0,
            complete: VecDeque::new(),
            completed: 0,
            limit: batch,
            eager: true,
            since: Picos::ZERO,
            last: Picos::ZERO,
            instants: 0,
            hold: Picos::NEVER,
        }
    }

    /// Adds packets. Returns true if the module can run now.
    #[inline]
    pub(crate) fn push(&mut self, run: Run, now: Picos) -> bool {
        let mut remaining = run.count;
        while remaining > 0 {
            if self.filling >= self.limit {
                self.complete_filling();
            }
            if !self.eager {
                self.record_arrival(now);
            }
            let some = remaining.min(self.limit - self.filling);
            self.filling += some;
            remaining -= some;
        }
        match self.runs.back_mut() {
            Some(last) if last.at == run.at && last.arrival == run.arrival => last.count += run.count,
            _ => self.runs.push_back(run),
        }
        self.is_ready()
    }

    /// Records the time at which packets come, before they are counted in `filling`.
    fn record_arrival(&mut self, now: Picos) {
        if self.filling == 0 {
            self.since = now;
        }
        if self.last != now {
            self.last = now;
            self.instants += 1;
        }
    }

    /// Adds a batch and leaves it empty. Returns true if the module can run now.
    #[inline]
    pub(crate) fn push_all(&mut self, bundle: &mut Bundle, now: Picos) -> bool {
        if self.passes() {
            // No packet waits and no trigger divides the batch, so it stays one batch.
            self.filling = bundle.packets;
            self.runs.extend(bundle.runs.drain(..));
        } else {
            for run in bundle.runs.drain(..) {
                self.push(run, now);
            }
        }
        bundle.packets = 0;
        self.is_ready()
    }

    /// Moves the next batch to run into the empty `bundle`. Returns `false` if there is none.
    #[inline]
    pub(crate) fn take(&mut self, bundle: &mut Bundle) -> bool {
        let size = if let Some(size) = self.complete.pop_front() {
            self.completed -= size;
            size
        } else if self.is_ready() {
            std::mem::take(&mut self.filling)
        } else {
            return false;
        };
        bundle.packets = size;
        if self.filling + self.completed == 0 {
            bundle.runs.extend(self.runs.drain(..));
            return true;
        }
        let mut remaining = size;
        while remaining > 0 {
            let Some(first) = self.runs.front_mut() else { break };
            let some = remaining.min(first.count);
            bundle.runs.push(Run { count: some, ..*first });
            first.count -= some;
            remaining -= some;
            if first.count == 0 {
                self.runs.pop_front();
            }
        }
        true
    }

    /// Puts a batch that was taken back to the front of the queue as a complete batch. `bundle` is empty afterwards.
    pub(crate) fn put_back(&mut self, bundle: &mut Bundle) {
        self.complete.push_front(bundle.packets);
        self.completed += bundle.packets;
        bundle.runs.drain(..).rev().for_each(|run| self.runs.push_front(run));
        bundle.packets = 0;
    }

    /// Returns true if a batch that comes now may bypass the queue.
    #[inline]
    pub(crate) fn passes(&self) -> bool {
        self.eager && self.filling == 0 && self.complete.is_empty()
    }

    /// Returns true if [`take`](Self::take) returns a batch.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        !self.complete.is_empty() || (self.filling > 0 && (self.eager || self.filling >= self.limit))
    }

    /// Returns the number of packets that wait.
    pub(crate) fn len(&self) -> u32 {
        self.filling + self.completed
    }

    /// Returns true if a complete batch waits.
    pub(crate) fn has_backlog(&self) -> bool {
        !self.complete.is_empty()
    }

    /// Returns the time at which the incomplete batch must be released, if there is one and there is a trigger.
    pub(crate) fn due(&self) -> Option<Picos> {
        (!self.eager && self.filling > 0).then(|| self.since + self.hold)
    }

    /// Lets waiting packets run although they are fewer than the trigger. The caller must report to the scheduler that
    /// the module is ready.
    pub(crate) fn release(&mut self) {
        if self.filling > 0 {
            self.complete_filling();
        }
    }

    /// Makes the incomplete batch a complete one, of any size.
    fn complete_filling(&mut self) {
        self.completed += self.filling;
        self.complete.push_back(std::mem::take(&mut self.filling));
    }

    /// Sets the trigger. 0 means no trigger, and values above `batch` mean `batch`. Waiting packets are divided into
    /// batches again, so the caller checks [`is_ready`](Self::is_ready).
    pub(crate) fn set_trigger(&mut self, trigger: u32, batch: u32, now: Picos) {
        // Without a trigger, the queue does not record since when packets wait.
        let since = if self.eager { now } else { self.since };
        let instants = (self.last, self.instants);
        self.eager = trigger == 0;
        self.limit = if trigger == 0 { batch } else { trigger.min(batch) };
        let waiting = std::mem::take(&mut self.runs);
        self.complete.clear();
        (self.filling, self.completed) = (0, 0);
        for run in waiting {
            self.push(run, since);
        }
        // These packets were counted when they came.
        (self.last, self.instants) = instants;
    }

    /// Sets the hold limit, which also applies to packets that wait already.
    pub(crate) fn set_hold(&mut self, hold: Picos) {
        self.hold = hold;
    }

    /// Returns the trigger: 0 for none, or the number of packets to wait for.
    pub(crate) fn trigger(&self) -> u32 {
        if self.eager { 0 } else { self.limit }
    }

    /// Returns the hold limit. Valid only with a trigger.
    pub(crate) fn hold(&self) -> Picos {
        self.hold
    }

    /// Returns the number of instants at which packets came while there was a trigger.
    pub(crate) fn instants(&self) -> u64 {
        self.instants
    }

    /// Returns the time since which the first packet of the incomplete batch waits. Valid only with a trigger and
    /// packets that wait.
    pub(crate) fn since(&self) -> Picos {
        self.since
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(at: u32, count: u32) -> Run {
        Run { at, count, arrival: Picos::ZERO }
    }

    proptest! {
        /// After any sequence of operations, no packet is lost, the order is kept, and the trigger is exact.
        #[test]
        fn packets_stay_in_order_and_triggers_are_exact(
            steps in proptest::collection::vec((0u8..5, 1u32..40), 1..60),
        ) {
            let (mut queue, mut came, mut gone) = (Queue::new(32), Vec::new(), Vec::new());
            for (number, (what, n)) in steps.into_iter().enumerate() {
                match what {
                    0 | 1 => {
                        came.extend(vec![number as u32; n as usize]);
                        queue.push(run(number as u32, n), Picos(number as u64));
                    }
                    2 => queue.set_trigger(n.min(33) - 1, 32, Picos(number as u64)),
                    3 => queue.release(),
                    _ => {
                        let (trigger, released) = (queue.trigger(), queue.has_backlog());
                        let mut bundle = Bundle::default();
                        if queue.take(&mut bundle) {
                            prop_assert_eq!(bundle.packets, bundle.runs.iter().map(|run| run.count).sum::<u32>());
                            prop_assert!(bundle.packets <= 32);
                            prop_assert!(trigger == 0 || released || bundle.packets == trigger);
                            let each = bundle.runs.iter().flat_map(|run| vec![run.at; run.count as usize]);
                            gone.extend(each);
                        }
                    }
                }
                prop_assert_eq!(came.len(), gone.len() + queue.len() as usize);
            }
            let mut bundle = Bundle::default();
            queue.release();
            while queue.take(&mut bundle) {
                gone.extend(bundle.runs.drain(..).flat_map(|run| vec![run.at; run.count as usize]));
                bundle.clear();
            }
            prop_assert_eq!(came, gone);
        }
    }
}
