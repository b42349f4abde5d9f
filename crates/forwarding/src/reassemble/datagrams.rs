//! Incomplete datagrams and their fragments.

use std::collections::{HashMap, VecDeque};

use forebay_graph::Key;
use forebay_memory::{NoMemory, numbered, room};
use forebay_units::Ticks;

use super::fragment::{DatagramKey, Fragment};

/// Maximum number of fragments of a datagram. A datagram of 64 KiB in Ethernet frames has 45.
pub(super) const MOST_PARTS: usize = 64;

/// A fragment that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitingFragment {
    /// Range of the datagram's payload.
    pub(super) start: u16,
    pub(super) end: u16,
    /// Offset of the payload in the fragment's frame.
    pub(super) payload_at: u16,
    /// Key of the held packet; `None` for the fragment that completes the datagram.
    pub(super) key: Option<Key>,
    /// The call in which the fragment came, and its index in the batch. During that call it is not held yet.
    pub(super) call: u64,
    pub(super) index: usize,
}

/// Reason why a fragment is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Duplicate,
    Overlap,
    TooMany,
    Congestion,
}

/// Result of adding a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// Other fragments are missing.
    Waits,
    /// The datagram is complete.
    Whole {
        /// Whether a fragment is marked for congestion.
        congestion: bool,
    },
    /// The fragment is not accepted.
    Refused(Refusal),
}

/// An incomplete datagram.
struct Datagram {
    /// Fragments without overlaps, ordered by their starts.
    parts: Vec<WaitingFragment>,
    /// Number of payload bytes present.
    bytes: usize,
    /// Length of the payload, if the last fragment is present.
    total: Option<u16>,
    /// Whether the datagram was given up.
    spoilt: bool,
    congestion: bool,
    /// Whether a fragment is not ECN-capable.
    not_capable: bool,
    number: u64,
}

impl Datagram {
    /// Number of fragments that it counts in the limit of waiting ones.
    fn weight(&self) -> usize {
        self.parts.len() + usize::from(self.spoilt)
    }
}

/// The incomplete datagrams of a worker.
pub(super) struct Datagrams {
    by_key: HashMap<DatagramKey, Datagram>,
    /// Time-outs in order. Entries of datagrams that are complete stay here and are skipped.
    ends: VecDeque<(Ticks, u64, DatagramKey)>,
    spare: Vec<Vec<WaitingFragment>>,
    number: u64,
    most: usize,
    /// Number of waiting fragments, plus one for each datagram that was given up. So removing the oldest datagram
    /// always makes room, whatever its state.
    held: usize,
    most_held: usize,
}

impl Datagrams {
    pub(super) fn new(most: usize, most_held: usize) -> Result<Self, NoMemory> {
        let mut by_key = HashMap::new();
        by_key.try_reserve(most).map_err(|_| NoMemory::of::<(DatagramKey, Datagram)>(most))?;
        Ok(Self {
            by_key,
            ends: VecDeque::from(room(2 * most)?),
            spare: numbered(most + 1, |_| Vec::new())?.into_vec(),
            number: 0,
            most,
            held: 0,
            most_held,
        })
    }

    pub(super) fn knows(&self, key: &DatagramKey) -> bool {
        self.by_key.contains_key(key)
    }

    pub(super) fn is_full(&self) -> bool {
        self.by_key.len() >= self.most
    }

    pub(super) fn is_held_full(&self) -> bool {
        self.held >= self.most_held
    }

    /// Returns the time-out of the oldest datagram.
    pub(super) fn oldest(&mut self) -> Option<Ticks> {
        while let Some((end, number, key)) = self.ends.front() {
            if self.by_key.get(key).is_some_and(|datagram| datagram.number == *number) {
                return Some(*end);
            }
            self.ends.pop_front();
        }
        None
    }

    /// Removes the oldest datagram. Returns its key and its fragments.
    pub(super) fn take_oldest(&mut self) -> Option<(DatagramKey, Vec<WaitingFragment>)> {
        self.oldest()?;
        let (_, _, key) = self.ends.pop_front()?;
        Some((key, self.take(&key)))
    }

    /// Removes a datagram. Returns its fragments.
    pub(super) fn take(&mut self, key: &DatagramKey) -> Vec<WaitingFragment> {
        let Some(datagram) = self.by_key.remove(key) else { return self.spare.pop().unwrap_or_default() };
        self.held -= datagram.weight();
        datagram.parts
    }

    /// Gives a datagram up, and returns its fragments. The datagram stays, to refuse later fragments.
    pub(super) fn spoil(&mut self, key: &DatagramKey) -> Vec<WaitingFragment> {
        let spare = self.spare.pop().unwrap_or_default();
        let Some(datagram) = self.by_key.get_mut(key) else { return spare };
        self.held -= datagram.weight();
        datagram.spoilt = true;
        let parts = std::mem::replace(&mut datagram.parts, spare);
        self.held += datagram.weight();
        parts
    }

    /// Takes back an empty list for reuse.
    pub(super) fn give_back(&mut self, mut parts: Vec<WaitingFragment>) {
        parts.clear();
        if self.spare.len() <= self.most {
            self.spare.push(parts);
        }
    }

    /// Adds a fragment to its datagram. If it must wait, the caller then [stores](Self::push) it.
    pub(super) fn add(&mut self, fragment: &Fragment, end: Ticks) -> Added {
        let Self { by_key, ends, spare, number, most, .. } = self;
        if ends.len() >= 2 * *most {
            // Remove the entries of datagrams that were completed.
            ends.retain(|(_, number, key)| by_key.get(key).is_some_and(|datagram| datagram.number == *number));
        }
        let datagram = by_key.entry(fragment.key).or_insert_with(|| {
            *number += 1;
            ends.push_back((end, *number, fragment.key));
            Datagram {
                parts: spare.pop().unwrap_or_default(),
                bytes: 0,
                total: None,
                spoilt: false,
                congestion: false,
                not_capable: false,
                number: *number,
            }
        });
        if datagram.spoilt {
            return Added::Refused(Refusal::Overlap);
        }
        let at = datagram.parts.partition_point(|part| part.start < fragment.start);
        let (before, after) = (at.checked_sub(1).and_then(|at| datagram.parts.get(at)), datagram.parts.get(at));
        if after.is_some_and(|part| (part.start, part.end) == (fragment.start, fragment.end)) {
            return Added::Refused(Refusal::Duplicate);
        }
        let overlaps =
            before.is_some_and(|part| part.end > fragment.start) || after.is_some_and(|part| part.start < fragment.end);
        let last = datagram.parts.last().map_or(0, |part| part.end);
        let contradicts = match (fragment.more, datagram.total) {
            (false, Some(_)) => true,
            (false, None) => last > fragment.end,
            (true, Some(total)) => fragment.end >= total,
            (true, None) => false,
        };
        if overlaps || contradicts {
            return Added::Refused(Refusal::Overlap);
        }
        // RFC 3168 section 5.3: combine the ECN fields.
        match fragment.ecn {
            0 => datagram.not_capable = true,
            3 => datagram.congestion = true,
            _ => {}
        }
        if datagram.congestion && datagram.not_capable {
            return Added::Refused(Refusal::Congestion);
        }
        if !fragment.more {
            datagram.total = Some(fragment.end);
        }
        datagram.bytes += usize::from(fragment.end - fragment.start);
        if datagram.total.is_some_and(|total| datagram.bytes == usize::from(total)) {
            return Added::Whole { congestion: datagram.congestion };
        }
        if datagram.parts.len() + 1 >= MOST_PARTS { Added::Refused(Refusal::TooMany) } else { Added::Waits }
    }

    /// Stores a fragment that was [added](Self::add) and must wait.
    pub(super) fn push(&mut self, key: &DatagramKey, part: WaitingFragment) {
        if let Some(datagram) = self.by_key.get_mut(key) {
            let at = datagram.parts.partition_point(|other| other.start < part.start);
            datagram.parts.insert(at, part);
            self.held += 1;
        }
    }
}
