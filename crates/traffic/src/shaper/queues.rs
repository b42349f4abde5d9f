//! The queues of a shaper, one for each key, in the order of arrival. All queues share one store with a fixed number of
//! entries.

use forebay_graph::{Key, SetupError};
use forebay_memory::{filled, numbered};
use forebay_tables::parameters::no_memory;
use forebay_units::Ticks;

/// Marks the end of a list of entries.
const NONE: u32 = u32::MAX;

/// A packet that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// The key of the held packet.
    pub(super) key: Key,
    /// The number of bytes that count.
    pub(super) bytes: u32,
}

/// An entry of the store, which has a waiting packet or is free.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The waiting packet; `None` if the entry is free.
    waiting: Option<Waiting>,
    /// The index of the next entry in the same queue, or of the next free entry if this entry is free; [`NONE`] at the
    /// end.
    next: u32,
}

/// A key's queue and its account.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    /// The entry of the first packet; [`NONE`] if the queue is empty.
    head: u32,
    /// The entry of the last packet; [`NONE`] if the queue is empty.
    tail: u32,
    /// The number of packets that wait.
    pub(super) packets: u32,
    /// The number of bytes that wait.
    pub(super) bytes: u64,
    /// The number of tokens at the instant `at`.
    pub(super) tokens: u64,
    /// The time of the last payment.
    pub(super) at: Ticks,
    /// The number of bytes that the queue may still send in its turn. Only used with a shared rate.
    pub(super) deficit: u64,
    /// The last call of the shaper in which a packet of the queue was released; 0 if there was none.
    pub(super) released_in: u64,
}

/// All queues.
pub(super) struct Queues {
    /// The store of waiting packets.
    entries: Box<[Entry]>,
    /// The first free entry; [`NONE`] if there is none.
    free: u32,
    /// The number of packets that wait in all queues.
    waiting: usize,
    /// The queues by number.
    queues: Box<[Queue]>,
}

impl Queues {
    /// Creates `queues` queues, in which `most` packets may wait in all. Each account starts with `tokens` tokens.
    pub(super) fn new(queues: usize, most: usize, tokens: u64) -> Result<Self, SetupError> {
        let free = |at: usize| Entry { waiting: None, next: if at + 1 == most { NONE } else { at as u32 + 1 } };
        let entries = numbered(most, free).map_err(no_memory("held", format!("{most} packets that wait")))?;
        let queue =
            Queue { head: NONE, tail: NONE, packets: 0, bytes: 0, tokens, at: Ticks::ZERO, deficit: 0, released_in: 0 };
        let queues =
            filled(queue, queues).map_err(no_memory("capacity", format!("the queues of {} keys", queues - 1)))?;
        Ok(Self { entries, free: 0, waiting: 0, queues })
    }

    /// Returns true if no more packets can be added to any queue.
    pub(super) fn is_full(&self) -> bool {
        self.free == NONE
    }

    /// Returns true if no packet waits in any queue.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Returns a queue, to read it.
    pub(super) fn peek(&self, queue: u32) -> &Queue {
        &self.queues[queue as usize]
    }

    /// Returns a queue, to change its account. Its packets are changed by [`push`](Self::push) and [`pop`](Self::pop)
    /// only.
    pub(super) fn queue(&mut self, queue: u32) -> &mut Queue {
        &mut self.queues[queue as usize]
    }

    /// Adds a packet at the end of a queue. Returns false, without changes, if there is no free entry.
    pub(super) fn push(&mut self, queue: u32, waiting: Waiting) -> bool {
        let at = self.free;
        let Some(entry) = self.entries.get_mut(at as usize) else { return false };
        self.free = entry.next;
        *entry = Entry { waiting: Some(waiting), next: NONE };
        let queue = &mut self.queues[queue as usize];
        match queue.tail {
            NONE => queue.head = at,
            tail => self.entries[tail as usize].next = at,
        }
        queue.tail = at;
        queue.packets += 1;
        queue.bytes += u64::from(waiting.bytes);
        self.waiting += 1;
        true
    }

    /// Returns the first packet of a queue.
    pub(super) fn first(&self, queue: u32) -> Option<Waiting> {
        self.entries.get(self.queues[queue as usize].head as usize)?.waiting
    }

    /// Removes and returns the first packet of a queue.
    pub(super) fn pop(&mut self, queue: u32) -> Option<Waiting> {
        let queue = &mut self.queues[queue as usize];
        let at = queue.head;
        let entry = self.entries.get_mut(at as usize)?;
        let waiting = entry.waiting.take()?;
        queue.head = entry.next;
        if queue.head == NONE {
            queue.tail = NONE;
        }
        entry.next = self.free;
        self.free = at;
        queue.packets -= 1;
        queue.bytes -= u64::from(waiting.bytes);
        self.waiting -= 1;
        Some(waiting)
    }
}
