//! A module's input queue with its trigger, as the engine's, but with runs of packets that are alike instead of packets.

use std::collections::VecDeque;

use crate::time::Picos;

/// Packets that follow each other, are at the same place of the same way, and arrived at the same instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Where they are in the scene's hops.
    pub(crate) at: u32,
    /// How many.
    pub(crate) count: u32,
    pub(crate) arrival: Picos,
}

/// A batch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bundle {
    pub(crate) runs: Vec<Run>,
    pub(crate) packets: u32,
}

impl Bundle {
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

/// The queue: what waits in its order, cut into batches that are complete and one that is being filled.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    runs: VecDeque<Run>,
    /// Packets of the batch that is being filled: the last ones.
    filling: u32,
    /// Sizes of the batches before it, and their sum.
    complete: VecDeque<u32>,
    completed: u32,
    /// A batch is complete at this many packets: the trigger, or the largest batch.
    limit: u32,
    /// Incomplete batches run too: there is no trigger.
    eager: bool,
    /// Since when the first of the incomplete batch waits, where there is a trigger.
    since: Picos,
    /// When packets last came, and at how many instants any did, where there is a trigger.
    last: Picos,
    turns: u64,
    hold: Picos,
}

impl Queue {
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
            turns: 0,
            hold: Picos::NEVER,
        }
    }

    /// Adds packets; whether the module can run now.
    #[inline]
    pub(crate) fn push(&mut self, run: Run, now: Picos) -> bool {
        let mut left = run.count;
        while left > 0 {
            if self.filling >= self.limit {
                self.complete_filling();
            }
            if !self.eager {
                self.note(now);
            }
            let some = left.min(self.limit - self.filling);
            self.filling += some;
            left -= some;
        }
        match self.runs.back_mut() {
            Some(last) if last.at == run.at && last.arrival == run.arrival => last.count += run.count,
            _ => self.runs.push_back(run),
        }
        self.is_ready()
    }

    fn note(&mut self, now: Picos) {
        if self.filling == 0 {
            self.since = now;
        }
        if self.last != now {
            self.last = now;
            self.turns += 1;
        }
    }

    /// Adds a batch, which is empty afterwards; whether the module can run now.
    #[inline]
    pub(crate) fn push_all(&mut self, bundle: &mut Bundle, now: Picos) -> bool {
        if self.passes() {
            // Nothing waits, and no trigger cuts it: it stays a batch.
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

    /// Moves the next batch that is to run into `bundle`, which is empty; `false` where none is.
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
        let mut left = size;
        while left > 0 {
            let Some(first) = self.runs.front_mut() else { break };
            let some = left.min(first.count);
            bundle.runs.push(Run { count: some, ..*first });
            first.count -= some;
            left -= some;
            if first.count == 0 {
                self.runs.pop_front();
            }
        }
        true
    }

    /// Puts a batch that was taken back where it was; it is left empty.
    pub(crate) fn put_back(&mut self, bundle: &mut Bundle) {
        self.complete.push_front(bundle.packets);
        self.completed += bundle.packets;
        bundle.runs.drain(..).rev().for_each(|run| self.runs.push_front(run));
        bundle.packets = 0;
    }

    /// Whether a batch that comes now may go straight through.
    #[inline]
    pub(crate) fn passes(&self) -> bool {
        self.eager && self.filling == 0 && self.complete.is_empty()
    }

    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        !self.complete.is_empty() || (self.filling > 0 && (self.eager || self.filling >= self.limit))
    }

    pub(crate) fn len(&self) -> u32 {
        self.filling + self.completed
    }

    pub(crate) fn has_backlog(&self) -> bool {
        !self.complete.is_empty()
    }

    /// When the incomplete batch must be released, where there is one with a trigger.
    pub(crate) fn due(&self) -> Option<Picos> {
        (!self.eager && self.filling > 0).then(|| self.since + self.hold)
    }

    /// Lets what waits run although it is fewer than the trigger.
    pub(crate) fn release(&mut self) {
        if self.filling > 0 {
            self.complete_filling();
        }
    }

    fn complete_filling(&mut self) {
        self.completed += self.filling;
        self.complete.push_back(std::mem::take(&mut self.filling));
    }

    /// Sets the trigger: 0, or up to `batch`. What waits is cut anew.
    pub(crate) fn set_trigger(&mut self, trigger: u32, batch: u32, now: Picos) {
        // Without a trigger nobody noted since when packets wait.
        let since = if self.eager { now } else { self.since };
        let turns = (self.last, self.turns);
        self.eager = trigger == 0;
        self.limit = if trigger == 0 { batch } else { trigger.min(batch) };
        let waiting = std::mem::take(&mut self.runs);
        self.complete.clear();
        (self.filling, self.completed) = (0, 0);
        for run in waiting {
            self.push(run, since);
        }
        // They have come before.
        (self.last, self.turns) = turns;
    }

    pub(crate) fn set_hold(&mut self, hold: Picos) {
        self.hold = hold;
    }

    /// The trigger: 0, or how many packets are waited for.
    pub(crate) fn trigger(&self) -> u32 {
        if self.eager { 0 } else { self.limit }
    }

    pub(crate) fn hold(&self) -> Picos {
        self.hold
    }

    /// At how many instants packets have come, of those with a trigger.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }

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
        /// Whatever comes, is taken and is set: none is lost, order is kept, and a trigger means what it says.
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
                            prop_assert!(bundle.packets <= 32 && (trigger == 0 || released || bundle.packets == trigger));
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
