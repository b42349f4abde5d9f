//! A module's input queue, which is also its fractional buffer (Batchy section 4; `docs/buffers.md`).
//!
//! With trigger 0, packets pass in the batches in which they come. With trigger b, the module does not run until b
//! packets wait, and then it runs on exactly b. A buffer is not a module of its own: packets wait in the module's input
//! queue, which exists without a trigger, too. So a trigger of 0 costs one branch.

use std::collections::VecDeque;

use forebay_packet::{Batch, Packet};
use forebay_units::Ticks;

/// Empty batches, for queues that need another batch.
#[derive(Debug)]
pub(crate) struct Spares {
    capacity: usize,
    batches: Vec<Batch>,
}

impl Spares {
    /// Creates `ready` empty batches of `capacity` packets. When they run out, more are created and kept.
    pub(crate) fn new(capacity: usize, ready: usize) -> Self {
        Self { capacity, batches: (0..ready).map(|_| Batch::with_capacity(capacity)).collect() }
    }

    /// Returns an empty batch.
    pub(crate) fn get(&mut self) -> Batch {
        self.batches.pop().unwrap_or_else(|| Batch::with_capacity(self.capacity))
    }

    /// Takes back a batch, which must be empty and have the capacity of the others.
    pub(crate) fn put(&mut self, batch: Batch) {
        self.batches.push(batch);
    }
}

/// A module's input queue.
///
/// The fields that every batch touches come first, so that they share a cache line: thousands of queues do not fit into
/// the cache.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Input {
    /// The batch that is being filled, with at most `limit` packets.
    filling: Batch,
    /// The number of packets of a complete batch: the trigger, or the largest batch if there is no trigger.
    limit: u32,
    /// Whether there is no trigger, so that incomplete batches run, too.
    eager: bool,
    /// Whether `complete` has batches.
    backlog: bool,
    /// When the oldest packet of `filling` came, if there is a trigger.
    since: Ticks,
    /// When the last packet came, if there is a trigger.
    last: Ticks,
    /// The number of turns in which packets came while there was a trigger. Packets that came at the same time came in
    /// one turn.
    turns: u64,
    /// The number of packets that came while there was a trigger, before the last change of the trigger.
    came: u64,
    /// The number of all packets that had come at the last change of the trigger.
    marked: u64,
    /// The longest time that an incomplete batch waits.
    hold: Ticks,
    /// The batches that run before `filling`, oldest first.
    complete: VecDeque<Batch>,
    /// The number of packets in `complete`.
    completed: usize,
}

impl Input {
    /// Creates an empty queue without a trigger, for batches of up to `batch` packets.
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

    /// Adds a packet that comes at `now`. Returns whether the module can run now: if so, the caller must report this to
    /// the scheduler.
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

    /// Adds a whole batch that comes at `now`, and leaves it empty. Returns whether the module can run now: if so, the
    /// caller must report this to the scheduler.
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

    /// Notes that packets come at `now` while `waiting` packets are already in the batch. Called only if there is a
    /// trigger.
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

    /// Adds the packets of a batch one by one, because the batch that is being filled has no room for all of them.
    fn push_each(&mut self, batch: &mut Batch, now: Ticks, spares: &mut Spares) -> bool {
        let mut ready = false;
        batch.drain_each(|_, packet| ready |= self.push(packet, now, spares));
        ready
    }

    /// Moves the next batch into `batch`, which must be empty. Returns false if no batch is ready.
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

    /// Puts back the packets of a batch that was [taken](Self::take), and leaves `batch` empty. The next
    /// [`take`](Self::take) returns these packets.
    pub(crate) fn put_back(&mut self, batch: &mut Batch, spares: &mut Spares) {
        self.completed += batch.len();
        self.complete.push_front(std::mem::replace(batch, spares.get()));
        self.backlog = true;
    }

    /// Returns whether a batch that comes now may pass without waiting: there is no trigger and no packet waits.
    #[inline]
    pub(crate) fn passes(&self) -> bool {
        self.eager && self.filling.is_empty() && !self.backlog
    }

    /// Returns whether [`take`](Self::take) would return a batch.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.backlog || (!self.filling.is_empty() && (self.eager || self.filling.len() >= self.limit()))
    }

    /// Returns how many packets must come until the batch that is being filled is complete: 1 if there is no trigger.
    /// [`Next::OnInput`](crate::Next::OnInput) reports this number for an idle worker, so it is at least 1 even if the
    /// batch is complete. Other complete batches do not count, because they need no more packets.
    pub(crate) fn lacking(&self) -> usize {
        if self.eager { 1 } else { self.limit().saturating_sub(self.filling.len()).max(1) }
    }

    /// Prefetches the packets of the batch that is being filled. `offset` is the offset of a frame's first byte in its
    /// chunk.
    #[inline]
    pub(crate) fn prefetch(&self, offset: usize) {
        self.filling.prefetch(offset);
    }

    /// Returns how many packets wait.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.filling.len() + self.completed
    }

    /// Returns whether complete batches wait, apart from the batch that is being filled.
    #[inline]
    pub(crate) fn has_backlog(&self) -> bool {
        self.backlog
    }

    /// Returns when the batch that is being filled must be released. `None` if no packet waits in it, or if there is no
    /// trigger.
    #[inline]
    pub(crate) fn due(&self) -> Option<Ticks> {
        (!self.eager && !self.filling.is_empty()).then(|| self.since + self.hold)
    }

    /// Makes waiting packets ready, even if they are fewer than the trigger. The caller then reports to the scheduler
    /// that the module can run.
    pub(crate) fn release(&mut self, spares: &mut Spares) {
        if !self.filling.is_empty() {
            self.complete_filling(spares);
        }
    }

    /// Sets the trigger: 0, or up to `batch`. Waiting packets are regrouped into batches of the new size in the same
    /// order, so that no packet waits for the old trigger. Call [`mark`](Self::mark) before. If
    /// [`is_ready`](Self::is_ready) returns true afterwards, the caller reports to the scheduler that the module can
    /// run.
    pub(crate) fn set_trigger(&mut self, trigger: usize, batch: usize, now: Ticks, spares: &mut Spares) {
        // Without a trigger, the queue does not note when packets come.
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
        // These packets were already counted when they came.
        (self.last, self.turns) = turns;
    }

    /// Returns how many packets came while there was a trigger. `all` is the number of all packets that have come,
    /// counted by the caller.
    pub(crate) fn arrived(&self, all: u64) -> u64 {
        if self.eager { self.came } else { self.came + (all - self.marked) }
    }

    /// Notes the number of all packets that have come. Called before the trigger changes.
    pub(crate) fn mark(&mut self, all: u64) {
        (self.came, self.marked) = (self.arrived(all), all);
    }

    /// Returns the number of turns with a trigger in which packets came.
    pub(crate) fn turns(&self) -> u64 {
        self.turns
    }

    /// Returns since when the first packet has waited for the trigger. Valid only if there is a trigger and packets
    /// wait.
    pub(crate) fn since(&self) -> Ticks {
        self.since
    }

    /// Sets the longest time that packets wait for the trigger.
    pub(crate) fn set_hold(&mut self, hold: Ticks) {
        self.hold = hold;
    }

    /// Returns the trigger: 0, or the number of packets that must wait.
    pub(crate) fn trigger(&self) -> usize {
        if self.eager { 0 } else { self.limit() }
    }

    /// Returns the longest time that packets wait for the trigger.
    pub(crate) fn hold(&self) -> Ticks {
        self.hold
    }

    /// Ends the batch that is being filled, complete or not, and begins another one.
    #[cold]
    fn complete_filling(&mut self, spares: &mut Spares) {
        self.completed += self.filling.len();
        self.complete.push_back(std::mem::replace(&mut self.filling, spares.get()));
        self.backlog = true;
    }
}

#[cfg(test)]
mod tests;
