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
    /// The offset of the fragment's first payload byte in the datagram's payload.
    pub(super) start: u16,
    /// The offset after the fragment's last payload byte in the datagram's payload.
    pub(super) end: u16,
    /// The offset of the payload in the fragment's frame.
    pub(super) payload_at: u16,
    /// The key of the held packet; `None` for the fragment that completes the datagram.
    pub(super) key: Option<Key>,
    /// The call in which the fragment came. During that call, the fragment is in the batch and not held yet.
    pub(super) call: u64,
    /// The index of the fragment in the batch of that call. It has no meaning in later calls.
    pub(super) index: usize,
}

/// Reason why a fragment is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The fragment has the same range as a fragment that waits. The datagram has not changed.
    Duplicate,
    /// The fragment overlaps another, contradicts the datagram's length, or belongs to a datagram that was given up.
    Overlap,
    /// The datagram has [`MOST_PARTS`] fragments and is not complete.
    TooMany,
    /// A fragment is marked for congestion, and a fragment is not ECN-capable (RFC 3168 section 5.3).
    Congestion,
}

/// Result of adding a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// Other fragments are missing.
    Waits,
    /// The datagram is complete.
    Whole {
        /// True if a fragment is marked for congestion: then the datagram must be marked, too.
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
    /// True if the datagram was given up. It then has no fragments, and refuses all later fragments.
    spoilt: bool,
    /// True if a fragment is marked for congestion.
    congestion: bool,
    /// True if a fragment is not ECN-capable.
    not_capable: bool,
    /// The number of the datagram among all datagrams of the worker. It distinguishes datagrams that have the same key
    /// one after the other.
    number: u64,
}

impl Datagram {
    /// Returns the number that the datagram adds to [`Datagrams::held`]: its fragments, and 1 if it was given up.
    fn weight(&self) -> usize {
        self.parts.len() + usize::from(self.spoilt)
    }
}

/// The incomplete datagrams of a worker.
///
/// The caller makes room. Before it [adds](Self::add) a fragment of an unknown datagram, it must remove the oldest
/// datagram if [`is_full`](Self::is_full) returns true. Before it [stores](Self::push) a fragment, it must remove the
/// oldest datagram if [`is_held_full`](Self::is_held_full) returns true. It must [give back](Self::give_back) every
/// list that it receives.
pub(super) struct Datagrams {
    /// The incomplete datagrams, and the datagrams that were given up.
    by_key: HashMap<DatagramKey, Datagram>,
    /// The time-outs in order, each with the number and the key of its datagram. Entries of datagrams that were
    /// completed stay here and are skipped. The order holds because all datagrams have the same time-out.
    ends: VecDeque<(Ticks, u64, DatagramKey)>,
    /// Empty lists for reuse: one for each datagram, and one more for a datagram that is given up.
    spare: Vec<Vec<WaitingFragment>>,
    /// The number of the latest datagram.
    number: u64,
    /// The maximum number of datagrams.
    most: usize,
    /// Number of waiting fragments, plus one for each datagram that was given up. With this extra count, each datagram
    /// counts for at least one, so removing the oldest datagram always makes room.
    held: usize,
    /// The maximum of `held`.
    most_held: usize,
}

impl Datagrams {
    /// Creates a set for up to `most` datagrams with up to `most_held` waiting fragments in all. Fails if there is no
    /// memory for `most` datagrams.
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

    /// Returns true if the datagram exists, even if it was given up.
    pub(super) fn knows(&self, key: &DatagramKey) -> bool {
        self.by_key.contains_key(key)
    }

    /// Returns true if there is no room for another datagram.
    pub(super) fn is_full(&self) -> bool {
        self.by_key.len() >= self.most
    }

    /// Returns true if there is no room for another fragment.
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

    /// Removes a datagram. Returns its fragments in order of their starts; none if the key is unknown.
    pub(super) fn take(&mut self, key: &DatagramKey) -> Vec<WaitingFragment> {
        let Some(datagram) = self.by_key.remove(key) else { return self.spare.pop().unwrap_or_default() };
        self.held -= datagram.weight();
        datagram.parts
    }

    /// Gives a datagram up, and returns its fragments. The datagram stays until its time-out, to refuse later
    /// fragments.
    pub(super) fn spoil(&mut self, key: &DatagramKey) -> Vec<WaitingFragment> {
        let spare = self.spare.pop().unwrap_or_default();
        let Some(datagram) = self.by_key.get_mut(key) else { return spare };
        self.held -= datagram.weight();
        datagram.spoilt = true;
        let parts = std::mem::replace(&mut datagram.parts, spare);
        self.held += datagram.weight();
        parts
    }

    /// Takes back a list for reuse, and empties it.
    pub(super) fn give_back(&mut self, mut parts: Vec<WaitingFragment>) {
        parts.clear();
        if self.spare.len() <= self.most {
            self.spare.push(parts);
        }
    }

    /// Adds a fragment to its datagram, which is created if it is unknown. `end` is the time-out of a new datagram, and
    /// must not be earlier than in the call before. After `Waits`, the caller [stores](Self::push) the fragment. After
    /// `Whole`, it [takes](Self::take) the datagram. After `Refused`, except for `Duplicate`, it must give the datagram
    /// up ([`spoil`](Self::spoil)), because the refused fragment may have been counted.
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
