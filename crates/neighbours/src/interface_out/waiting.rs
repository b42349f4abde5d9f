//! Packets that wait for their neighbours' answers, and neighbours that are timed.
//!
//! There are few at a time, so a list suffices. For nearly every packet, a small array of counts shows without a search
//! of the list that no packets wait for its neighbour.

use std::collections::VecDeque;

use forebay_graph::Key;
use forebay_memory::{NoMemory, room};

use crate::interface::neighbours::Address;

/// The number of counts, a power of two; each address has one.
const COUNTS: usize = 1_024;

/// Why a packet cannot wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// As many packets wait as are allowed.
    Held,
    /// Packets wait for as many neighbours as are allowed.
    Resolving,
}

pub(super) struct Waiting {
    /// Neighbours that are timed, with the packets that wait for them.
    all: Vec<(Address, VecDeque<Key>)>,
    /// Unused queues, so that none is allocated later.
    spare: Vec<VecDeque<Key>>,
    /// By the lowest bits of the address: the number of neighbours that packets wait for.
    counts: Box<[u16; COUNTS]>,
    queue: usize,
    held: usize,
    most_held: usize,
}

impl Waiting {
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

    fn slot(address: Address) -> usize {
        address.number() as usize % COUNTS
    }

    /// Returns whether packets may wait for a neighbour. False is certain.
    #[inline(always)]
    pub(super) fn may_wait(&self, address: Address) -> bool {
        self.held > 0 && self.counts[Self::slot(address)] > 0
    }

    /// Returns whether packets wait for a neighbour.
    pub(super) fn waits(&self, address: Address) -> bool {
        self.may_wait(address) && self.all.iter().any(|(of, queue)| *of == address && !queue.is_empty())
    }

    /// Returns whether any packets wait.
    pub(super) fn any(&self) -> bool {
        self.held > 0
    }

    /// Checks whether a packet may wait for a neighbour that no packet waits for yet.
    pub(super) fn room(&self, address: Address) -> Result<(), Full> {
        if self.spare.is_empty() && !self.all.iter().any(|(of, _)| *of == address) {
            return Err(Full::Resolving);
        }
        if self.held >= self.most_held { Err(Full::Held) } else { Ok(()) }
    }

    /// Adds a neighbour to the timed ones. Returns false if there are as many as are allowed; then only later packets
    /// trigger its actions.
    pub(super) fn watch(&mut self, address: Address) -> bool {
        if self.all.iter().any(|(of, _)| *of == address) {
            return true;
        }
        let Some(queue) = self.spare.pop() else { return false };
        self.all.push((address, queue));
        true
    }

    /// Makes room for a packet. Returns the packet that must be dropped for it.
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

    /// Puts a [removed](Self::pop) packet back.
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

    /// Removes the neighbour at this index, which no packets wait for. The last neighbour moves to the index.
    pub(super) fn forget(&mut self, at: usize) {
        if at < self.all.len() {
            let (_, queue) = self.all.swap_remove(at);
            self.spare.push(queue);
        }
    }
}
