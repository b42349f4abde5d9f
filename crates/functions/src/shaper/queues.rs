//! The queues of a shaper: one a key, each in the order of arrival, over one store of places with a hard limit.

use forebay_graph::{Key, SetupError};
use forebay_memory::{filled, numbered};
use forebay_units::Ticks;

use crate::parameters::no_memory;

/// No place.
const NONE: u32 = u32::MAX;

/// A packet that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// Under what it is held.
    pub(super) key: Key,
    /// How many bytes it counts.
    pub(super) bytes: u32,
}

/// A place of the store: a packet that waits and the place of the one behind it, or the next free place.
#[derive(Clone, Copy, Debug)]
struct Place {
    waiting: Option<Waiting>,
    next: u32,
}

/// One key's queue and its account.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
    head: u32,
    tail: u32,
    pub(super) packets: u32,
    pub(super) bytes: u64,
    /// Tokens at an instant.
    pub(super) tokens: u64,
    pub(super) at: Ticks,
    /// Bytes that it may still send in its turn.
    pub(super) deficit: u64,
    /// The last call that let a packet of it go.
    pub(super) released_in: u64,
}

/// All queues.
pub(super) struct Queues {
    places: Box<[Place]>,
    free: u32,
    waiting: usize,
    queues: Box<[Queue]>,
}

impl Queues {
    /// So many queues of packets, of which `most` may wait in all. Accounts have so many tokens.
    pub(super) fn new(queues: usize, most: usize, tokens: u64) -> Result<Self, SetupError> {
        let free = |at: usize| Place { waiting: None, next: if at + 1 == most { NONE } else { at as u32 + 1 } };
        let places = numbered(most, free).map_err(no_memory("held", format!("{most} packets that wait")))?;
        let queue =
            Queue { head: NONE, tail: NONE, packets: 0, bytes: 0, tokens, at: Ticks::ZERO, deficit: 0, released_in: 0 };
        let queues =
            filled(queue, queues).map_err(no_memory("capacity", format!("the queues of {} keys", queues - 1)))?;
        Ok(Self { places, free: 0, waiting: 0, queues })
    }

    /// Whether no packet can be added.
    pub(super) fn is_full(&self) -> bool {
        self.free == NONE
    }

    /// Whether no packet waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    pub(super) fn peek(&self, queue: u32) -> &Queue {
        &self.queues[queue as usize]
    }

    pub(super) fn queue(&mut self, queue: u32) -> &mut Queue {
        &mut self.queues[queue as usize]
    }

    /// Adds a packet at the end of a queue; `false`, and nothing is changed, where there is no place.
    pub(super) fn push(&mut self, queue: u32, waiting: Waiting) -> bool {
        let at = self.free;
        let Some(place) = self.places.get_mut(at as usize) else { return false };
        self.free = place.next;
        *place = Place { waiting: Some(waiting), next: NONE };
        let queue = &mut self.queues[queue as usize];
        match queue.tail {
            NONE => queue.head = at,
            tail => self.places[tail as usize].next = at,
        }
        queue.tail = at;
        queue.packets += 1;
        queue.bytes += u64::from(waiting.bytes);
        self.waiting += 1;
        true
    }

    /// The first packet of a queue.
    pub(super) fn first(&self, queue: u32) -> Option<Waiting> {
        self.places.get(self.queues[queue as usize].head as usize)?.waiting
    }

    /// Takes the first packet out of a queue.
    pub(super) fn pop(&mut self, queue: u32) -> Option<Waiting> {
        let queue = &mut self.queues[queue as usize];
        let at = queue.head;
        let place = self.places.get_mut(at as usize)?;
        let waiting = place.waiting.take()?;
        queue.head = place.next;
        if queue.head == NONE {
            queue.tail = NONE;
        }
        place.next = self.free;
        self.free = at;
        queue.packets -= 1;
        queue.bytes -= u64::from(waiting.bytes);
        self.waiting -= 1;
        Some(waiting)
    }
}
