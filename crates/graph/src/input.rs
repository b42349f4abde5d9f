//! A module's input queue, which is also its fractional buffer (Batchy section 4; `docs/buffers.md`).
//!
//! With trigger 0 packets pass through in the batches in which they come together. With trigger b the module does not
//! run until b packets wait, and then on exactly b. A buffer is not a module of its own: packets wait where they
//! would wait anyway, so a trigger of 0 costs one branch.

use std::collections::VecDeque;

use forebay_packet::{Batch, Packet};
use forebay_units::Ticks;

/// Empty batches to be used when a queue needs one more.
#[derive(Debug)]
pub(crate) struct Spares {
    capacity: usize,
    batches: Vec<Batch>,
}

impl Spares {
    /// `ready` empty batches of `capacity`; more are made when they run out, and kept.
    pub(crate) fn new(capacity: usize, ready: usize) -> Self {
        Self { capacity, batches: (0..ready).map(|_| Batch::with_capacity(capacity)).collect() }
    }

    pub(crate) fn get(&mut self) -> Batch {
        self.batches.pop().unwrap_or_else(|| Batch::with_capacity(self.capacity))
    }

    pub(crate) fn put(&mut self, batch: Batch) {
        self.batches.push(batch);
    }
}

/// A module's input queue.
///
/// What every batch touches comes first, because thousands of queues do not fit the cache.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Input {
    /// The batch that is being filled, never more than `limit`.
    filling: Batch,
    /// A batch is complete at this many packets: the trigger, or the largest batch where there is no trigger.
    limit: u32,
    /// Whether incomplete batches run too: there is no trigger.
    eager: bool,
    /// Whether there are batches in `complete`.
    backlog: bool,
    /// When the oldest packet of `filling` came, where there is a trigger.
    since: Ticks,
    /// When the last one came, where there is a trigger, and in how many turns some did: time stands still in a turn.
    last: Ticks,
    turns: u64,
    /// How many came in those until the trigger was set last, and how many had come at all then.
    came: u64,
    marked: u64,
    /// The longest that an incomplete batch waits.
    hold: Ticks,
    /// Batches that are to run before `filling`, oldest first, and how many packets they have.
    complete: VecDeque<Batch>,
    completed: usize,
}

impl Input {
    /// An empty queue without a trigger, for batches of up to `batch` packets.
    pub(crate) fn new(batch: usize) -> Self {
        Self {
            filling: Batch::with_capacity(batch),
            limit: batch as u32,
            eager: true,
            backlog: false,
            since: Ticks::ZERO,
            last: Ticks::ZERO,
            turns: 0,
            came: 0,
            marked: 0,
            hold: Ticks::NEVER,
            complete: VecDeque::new(),
            completed: 0,
        }
    }

    #[inline]
    fn limit(&self) -> usize {
        self.limit as usize
    }

    /// Adds a packet; whether the module can run now.
    #[inline]
    pub(crate) fn push(&mut self, packet: Packet, now: Ticks, spares: &mut Spares) -> bool {
        let mut waiting = self.filling.len();
        if waiting >= self.limit() {
            self.complete_filling(spares);
            waiting = 0;
        }
        if !self.eager {
            self.note(waiting, now);
        }
        // `limit` is at most the batch's capacity, so there is room.
        let _ = self.filling.push(packet);
        self.eager || waiting + 1 >= self.limit()
    }

    /// Adds a whole batch, which is left empty; whether the module can run now.
    #[inline]
    pub(crate) fn push_all(&mut self, batch: &mut Batch, now: Ticks, spares: &mut Spares) -> bool {
        if self.filling.len() >= self.limit() {
            self.complete_filling(spares);
        }
        let waiting = self.filling.len();
        if waiting + batch.len() > self.limit() {
            return self.push_each(batch, now, spares);
        }
        if !self.eager {
            self.note(waiting, now);
        }
        if waiting == 0 {
            batch.hand_over(&mut self.filling);
        } else {
            self.filling.append(batch);
        }
        self.is_ready()
    }

    /// Notes that packets come where there is a trigger, and so many wait already.
    #[inline]
    fn note(&mut self, waiting: usize, now: Ticks) {
        if waiting == 0 {
            self.since = now;
        }
        if self.last != now {
            self.last = now;
            self.turns += 1;
        }
    }

    /// The same where a batch is completed by it.
    fn push_each(&mut self, batch: &mut Batch, now: Ticks, spares: &mut Spares) -> bool {
        let mut ready = false;
        batch.drain_each(|_, packet| ready |= self.push(packet, now, spares));
        ready
    }

    /// Moves the next batch that is to run into `batch`, which is empty; `false` where none is.
    #[inline]
    pub(crate) fn take(&mut self, batch: &mut Batch, spares: &mut Spares) -> bool {
        if self.backlog {
            return self.take_complete(batch, spares);
        }
        let ready = self.is_ready();
        if ready {
            self.filling.hand_over(batch);
        }
        ready
    }

    #[cold]
    fn take_complete(&mut self, batch: &mut Batch, spares: &mut Spares) -> bool {
        let Some(next) = self.complete.pop_front() else { return false };
        self.completed -= next.len();
        spares.put(std::mem::replace(batch, next));
        self.backlog = !self.complete.is_empty();
        true
    }

    /// Puts a batch that was [taken](Self::take) back where it was; it is left empty.
    pub(crate) fn put_back(&mut self, batch: &mut Batch, spares: &mut Spares) {
        self.completed += batch.len();
        self.complete.push_front(std::mem::replace(batch, spares.get()));
        self.backlog = true;
    }

    /// Whether a batch that comes now may go straight through: there is no trigger, and nothing waits.
    #[inline]
    pub(crate) fn passes(&self) -> bool {
        self.eager && self.filling.is_empty() && !self.backlog
    }

    /// Whether [`take`](Self::take) would give a batch.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.backlog || (!self.filling.is_empty() && (self.eager || self.filling.len() >= self.limit()))
    }

    /// Asks the processor for the packets that will run next.
    #[inline]
    pub(crate) fn prefetch(&self, offset: usize) {
        self.filling.prefetch(offset);
    }

    /// How many packets wait.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.filling.len() + self.completed
    }

    /// Whether more waits than the batch that is being filled.
    #[inline]
    pub(crate) fn has_backlog(&self) -> bool {
        self.backlog
    }

    /// When the incomplete batch must be released, where there is one with a trigger.
    #[inline]
    pub(crate) fn due(&self) -> Option<Ticks> {
        (!self.eager && !self.filling.is_empty()).then(|| self.since + self.hold)
    }

    /// Lets what waits run although it is fewer than the trigger.
    pub(crate) fn release(&mut self, spares: &mut Spares) {
        if !self.filling.is_empty() {
            self.complete_filling(spares);
        }
    }

    /// Sets the trigger: 0, or up to `batch`. What waits is cut anew: nothing waits for a trigger that is no longer
    /// set. Order is kept.
    pub(crate) fn set_trigger(&mut self, trigger: usize, batch: usize, now: Ticks, spares: &mut Spares) {
        // Without a trigger nobody noted since when packets wait.
        let since = if self.eager { now } else { self.since };
        let turns = (self.last, self.turns);
        self.eager = trigger == 0;
        self.limit = if trigger == 0 { batch } else { trigger.min(batch) } as u32;
        let mut waiting: Vec<Batch> = self.complete.drain(..).collect();
        (self.backlog, self.completed) = (false, 0);
        waiting.push(std::mem::replace(&mut self.filling, spares.get()));
        for mut batch in waiting {
            batch.drain_each(|_, packet| {
                self.push(packet, since, spares);
            });
            spares.put(batch);
        }
        // They have come before.
        (self.last, self.turns) = turns;
    }

    /// How many packets have come while there was a trigger, where so many have come at all.
    pub(crate) fn arrived(&self, all: u64) -> u64 {
        if self.eager { self.came } else { self.came + (all - self.marked) }
    }

    /// Notes how many packets have come at all; before a trigger is set or taken away.
    pub(crate) fn mark(&mut self, all: u64) {
        (self.came, self.marked) = (self.arrived(all), all);
    }

    /// In how many turns packets have come, of those with a trigger.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }

    /// Since when the first packet has waited for the trigger.
    pub(crate) fn since(&self) -> Ticks {
        self.since
    }

    /// Sets the longest that packets wait for the trigger.
    pub(crate) fn set_hold(&mut self, hold: Ticks) {
        self.hold = hold;
    }

    /// The trigger: 0, or how many packets are waited for.
    pub(crate) fn trigger(&self) -> usize {
        if self.eager { 0 } else { self.limit() }
    }

    /// The longest that packets wait for the trigger.
    pub(crate) fn hold(&self) -> Ticks {
        self.hold
    }

    #[cold]
    fn complete_filling(&mut self, spares: &mut Spares) {
        self.completed += self.filling.len();
        self.complete.push_back(std::mem::replace(&mut self.filling, spares.get()));
        self.backlog = true;
    }
}

#[cfg(test)]
mod tests;
