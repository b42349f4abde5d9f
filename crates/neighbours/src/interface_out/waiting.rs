//! Packets that wait for answers of their neighbours, and timed neighbours: neighbours for whose next action a worker
//! waits ([`NeighbourState::is_timed`](crate::interface::entry::NeighbourState::is_timed)).
//!
//! There are few such neighbours at a time, so a list suffices. Nearly always, no packet waits for the neighbour of a
//! new packet. A small array of counts detects this without a search of the list.

use std::collections::VecDeque;

use forebay_graph::Key;
use forebay_memory::{NoMemory, room};

use crate::interface::neighbours::Address;

/// The number of counts, a power of two. The lowest bits of an address select its count.
const COUNTS: usize = 1_024;

/// The reason why a packet cannot wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// The largest number of packets waits already.
    Held,
    /// The list of neighbours is full.
    Resolving,
}

/// The neighbours that one worker checks at intervals, and the packets that wait for them.
pub(super) struct Waiting {
    /// Neighbours that are timed, with the packets that wait for them.
    all: Vec<(Address, VecDeque<Key>)>,
    /// The unused queues, so that no queue is allocated later. A neighbour in the list has one of the queues.
    spare: Vec<VecDeque<Key>>,
    /// For the lowest bits of an address: the number of neighbours for which packets wait.
    counts: Box<[u16; COUNTS]>,
    /// The largest number of packets that may wait for one neighbour.
    queue: usize,
    /// The number of packets that wait.
    held: usize,
    /// The largest number of packets that may wait in total.
    most_held: usize,
}

impl Waiting {
    /// Allocates the list for `resolving` neighbours, each with a queue of `queue` packets.
    pub(super) fn new(resolving: usize, queue: usize, most_held: usize) -> Result<Self, NoMemory> {
        let each = NoMemory::of::<Key>(queue).bytes + size_of::<(Address, VecDeque<Key>)>();
        let lack = |lack: NoMemory| lack.within(each * resolving);
        let mut spare = room(resolving).map_err(lack)?;
        for _ in 0..resolving {
            spare.push(VecDeque::from(room(queue).map_err(lack)?));
        }
        Ok(Self {
            all: room(resolving).map_err(lack)?,
            spare,
            counts: Box::new([0; COUNTS]),
            queue,
            held: 0,
            most_held,
        })
    }

    /// Returns the index of the count of an address.
    fn slot(address: Address) -> usize {
        address.number() as usize % COUNTS
    }

    /// Returns false if no packet waits for a neighbour. If it returns true, packets may wait, and
    /// [`waits`](Self::waits) decides.
    #[inline(always)]
    pub(super) fn may_wait(&self, address: Address) -> bool {
        self.held > 0 && self.counts[Self::slot(address)] > 0
    }

    /// Returns true if packets wait for a neighbour.
    pub(super) fn waits(&self, address: Address) -> bool {
        self.may_wait(address) && self.all.iter().any(|(of, queue)| *of == address && !queue.is_empty())
    }

    /// Returns true if any packets wait.
    pub(super) fn any(&self) -> bool {
        self.held > 0
    }

    /// Checks if there is room for a packet to a neighbour for which no packet waits yet.
    pub(super) fn room(&self, address: Address) -> Result<(), Full> {
        if self.spare.is_empty() && !self.all.iter().any(|(of, _)| *of == address) {
            return Err(Full::Resolving);
        }
        if self.held >= self.most_held { Err(Full::Held) } else { Ok(()) }
    }

    /// Adds a neighbour to the list, if it is not there. Returns false if the list is full: then only later packets
    /// trigger the actions of the neighbour.
    pub(super) fn watch(&mut self, address: Address) -> bool {
        if self.all.iter().any(|(of, _)| *of == address) {
            return true;
        }
        let Some(queue) = self.spare.pop() else { return false };
        self.all.push((address, queue));
        true
    }

    /// Makes room for a new packet to a neighbour. If the neighbour's queue is full, removes and returns its oldest
    /// packet, which the caller must drop. After success, the caller must [push](Self::push) the new packet, or put the
    /// removed packet [back](Self::unpop).
    pub(super) fn admit(&mut self, address: Address) -> Result<Option<Key>, Full> {
        if !self.watch(address) {
            return Err(Full::Resolving);
        }
        let Some((_, queue)) = self.all.iter_mut().find(|(of, _)| *of == address) else { return Err(Full::Resolving) };
        if queue.len() >= self.queue {
            // RFC 4861 section 7.2.2: the new packet should replace the oldest.
            return Ok(self.pop(address));
        }
        if self.held >= self.most_held { Err(Full::Held) } else { Ok(None) }
    }

    /// Appends an [admitted](Self::admit) packet to its neighbour's queue.
    pub(super) fn push(&mut self, address: Address, key: Key) {
        if let Some((_, queue)) = self.all.iter_mut().find(|(of, _)| *of == address) {
            if queue.is_empty() {
                self.counts[Self::slot(address)] += 1;
            }
            queue.push_back(key);
            self.held += 1;
        }
    }

    /// Removes and returns the first packet that waits for a neighbour.
    pub(super) fn pop(&mut self, address: Address) -> Option<Key> {
        let (_, queue) = self.all.iter_mut().find(|(of, _)| *of == address)?;
        let key = queue.pop_front()?;
        self.held -= 1;
        if queue.is_empty() {
            self.counts[Self::slot(address)] -= 1;
        }
        Some(key)
    }

    /// Puts a [removed](Self::pop) packet back to the front of its queue.
    pub(super) fn unpop(&mut self, address: Address, key: Key) {
        if let Some((_, queue)) = self.all.iter_mut().find(|(of, _)| *of == address) {
            if queue.is_empty() {
                self.counts[Self::slot(address)] += 1;
            }
            queue.push_front(key);
            self.held += 1;
        }
    }

    /// Returns the neighbour at this index of the list.
    pub(super) fn at(&self, at: usize) -> Option<Address> {
        self.all.get(at).map(|(address, _)| *address)
    }

    /// Removes the neighbour at this index. No packets may wait for it. The last neighbour of the list moves to this
    /// index.
    pub(super) fn forget(&mut self, at: usize) {
        if at < self.all.len() {
            let (_, queue) = self.all.swap_remove(at);
            self.spare.push(queue);
        }
    }
}
