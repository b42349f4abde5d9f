//! Datagrams that are not whole yet: which parts of each are there.

use std::collections::{HashMap, VecDeque};

use forebay_graph::Key;
use forebay_memory::{NoMemory, numbered, room};
use forebay_units::Ticks;

use super::fragment::{DatagramKey, Fragment};

/// The most fragments of a datagram: 64 KiB in pieces of an Ethernet frame are 45.
pub(super) const MOST_PARTS: usize = 64;

/// A fragment that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The stretch of the datagram's payload that it has.
    pub(super) start: u16,
    pub(super) end: u16,
    /// Where its payload is in its frame.
    pub(super) payload_at: u16,
    /// What it is held under; none where it is not to wait at all.
    pub(super) key: Option<Key>,
    /// In which call it came, and where in its batch: in that call it is not held yet.
    pub(super) call: u64,
    pub(super) index: usize,
}

/// Why a fragment is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Duplicate,
    Overlap,
    TooMany,
    Congestion,
}

/// What becomes of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// Others are lacking.
    Waits,
    /// It was the last that was lacking.
    Whole {
        /// The datagram has met congestion.
        congestion: bool,
    },
    /// It is not taken.
    Refused(Why),
}

/// A datagram of which something is there.
struct Datagram {
    /// By their starts, none overlapping.
    parts: Vec<Part>,
    /// Bytes that are there.
    bytes: usize,
    /// How long it is, once its end is there.
    total: Option<u16>,
    /// It was given up.
    spoilt: bool,
    congestion: bool,
    /// Some fragment's sender does not understand congestion marks.
    not_capable: bool,
    number: u64,
}

impl Datagram {
    /// How much of what may be held is its own.
    fn weight(&self) -> usize {
        self.parts.len() + usize::from(self.spoilt)
    }
}

pub(super) struct Datagrams {
    by_key: HashMap<DatagramKey, Datagram>,
    /// In the order of their ends. What is whole stays here, and is passed over.
    ends: VecDeque<(Ticks, u64, DatagramKey)>,
    spare: Vec<Vec<Part>>,
    number: u64,
    most: usize,
    /// How many parts wait, and a datagram that was given up as one: so that the oldest, whatever it is, makes room when it
    /// goes, and nobody has to look for one that does.
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

    /// When the oldest datagram's time is over.
    pub(super) fn oldest(&mut self) -> Option<Ticks> {
        while let Some((end, number, key)) = self.ends.front() {
            if self.by_key.get(key).is_some_and(|datagram| datagram.number == *number) {
                return Some(*end);
            }
            self.ends.pop_front();
        }
        None
    }

    /// Takes the oldest datagram out.
    pub(super) fn take_oldest(&mut self) -> Option<(DatagramKey, Vec<Part>)> {
        self.oldest()?;
        let (_, _, key) = self.ends.pop_front()?;
        Some((key, self.take(&key)))
    }

    /// Takes a datagram out.
    pub(super) fn take(&mut self, key: &DatagramKey) -> Vec<Part> {
        let Some(datagram) = self.by_key.remove(key) else { return self.spare.pop().unwrap_or_default() };
        self.held -= datagram.weight();
        datagram.parts
    }

    /// Gives a datagram up: its parts.
    pub(super) fn spoil(&mut self, key: &DatagramKey) -> Vec<Part> {
        let spare = self.spare.pop().unwrap_or_default();
        let Some(datagram) = self.by_key.get_mut(key) else { return spare };
        self.held -= datagram.weight();
        datagram.spoilt = true;
        let parts = std::mem::replace(&mut datagram.parts, spare);
        self.held += datagram.weight();
        parts
    }

    /// Takes a list back that was given out, to be used again.
    pub(super) fn give_back(&mut self, mut parts: Vec<Part>) {
        parts.clear();
        if self.spare.len() <= self.most {
            self.spare.push(parts);
        }
    }

    /// What becomes of a fragment; one that waits is then [put in](Self::push).
    pub(super) fn add(&mut self, fragment: &Fragment, end: Ticks) -> Added {
        let Self { by_key, ends, spare, number, most, .. } = self;
        if ends.len() >= 2 * *most {
            // Those that became whole meanwhile.
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
            return Added::Refused(Why::Overlap);
        }
        let at = datagram.parts.partition_point(|part| part.start < fragment.start);
        let (before, after) = (at.checked_sub(1).and_then(|at| datagram.parts.get(at)), datagram.parts.get(at));
        if after.is_some_and(|part| (part.start, part.end) == (fragment.start, fragment.end)) {
            return Added::Refused(Why::Duplicate);
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
            return Added::Refused(Why::Overlap);
        }
        // RFC 3168 section 5.3.
        match fragment.ecn {
            0 => datagram.not_capable = true,
            3 => datagram.congestion = true,
            _ => {}
        }
        if datagram.congestion && datagram.not_capable {
            return Added::Refused(Why::Congestion);
        }
        if !fragment.more {
            datagram.total = Some(fragment.end);
        }
        datagram.bytes += usize::from(fragment.end - fragment.start);
        if datagram.total.is_some_and(|total| datagram.bytes == usize::from(total)) {
            return Added::Whole { congestion: datagram.congestion };
        }
        if datagram.parts.len() + 1 >= MOST_PARTS { Added::Refused(Why::TooMany) } else { Added::Waits }
    }

    /// Puts in a part that was [added](Self::add) and waits.
    pub(super) fn push(&mut self, key: &DatagramKey, part: Part) {
        if let Some(datagram) = self.by_key.get_mut(key) {
            let at = datagram.parts.partition_point(|other| other.start < part.start);
            datagram.parts.insert(at, part);
            self.held += 1;
        }
    }
}
