//! The associations of outbound packets: found by a packet's destination or by a number, and changed while packets run.
//!
//! If several associations match a packet, the association that was added last is used. A new key comes into use when
//! its association is added. From then on, the old association has no packets and can be removed at any time.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_graph::{Live, Outcome, Reader, Replay, Table as ControlTable, Verb};
use forebay_tables::lpm::{IpPrefix, Ipv4Table, Ipv6Table, NO_ROUTE};
use hashbrown::HashMap;

use crate::esp::lasting::Lasting;
use crate::esp::lifetime::Used;
use crate::esp::line::{Keyed, Keys, Line, index_of, only_listed, split_change, without_comment};

/// The names of the words that a line may have.
pub(super) const WORDS: [&str; 10] =
    ["key", "peer", "for", "number", "udp", "esn", "soft-packets", "soft-bytes", "hard-packets", "hard-bytes"];
/// The number of changes that are published together.
const CHUNK: usize = 1 << 10;

/// The state of an association that changes with each packet. One worker writes it.
#[derive(Debug, Default)]
pub(super) struct Sending {
    /// The sequence number of the last packet.
    sequence: AtomicU64,
    pub(super) used: Used,
}

impl Sending {
    /// Returns the next sequence number; `None` if it would exceed `last`.
    #[inline(always)]
    pub(super) fn next(&self, last: u64) -> Option<u64> {
        let next = self.sequence.load(Ordering::Relaxed).checked_add(1).filter(|next| *next <= last)?;
        self.sequence.store(next, Ordering::Relaxed);
        Some(next)
    }
}

/// An association.
pub(super) struct Outbound {
    /// The line, as it is listed.
    pub(super) line: Line,
    pub(super) keyed: Keyed,
    /// The other end of the tunnel.
    pub(super) peer: IpAddr,
    /// The state, which continues in the next configuration.
    pub(super) sending: Arc<Sending>,
}

impl Outbound {
    /// Returns the last sequence number that may be used (RFC 4303 section 3.3.3).
    #[inline(always)]
    pub(super) fn last(&self) -> u64 {
        if self.line.extended { u64::MAX } else { u32::MAX.into() }
    }
}

/// The key by which an association is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Selector {
    Prefix(IpPrefix),
    Number(u32),
}

/// One copy of the associations, in which workers look packets up.
#[derive(Clone, Default)]
pub(super) struct Associations {
    /// The associations, each in its own slot.
    slots: Vec<Option<Arc<Outbound>>>,
    /// The free slots.
    free: Vec<u32>,
    /// The slot of each index.
    by_spi: std::collections::BTreeMap<u32, u32>,
    /// For each selector, the slots of the associations that have it, in the order in which they were added. The last
    /// one is used.
    candidates: HashMap<Selector, Vec<u32>>,
    /// The slot that is used for each number.
    by_number: HashMap<u32, u32>,
    /// The slot that is used for each IPv4 prefix; `None` as long as there has been no such prefix.
    ipv4: Option<Ipv4Table>,
    /// The slot that is used for each IPv6 prefix; `None` as long as there has been no such prefix.
    ipv6: Option<Ipv6Table>,
}

/// A change that was made in one copy, and that the other copy repeats.
pub(super) enum Step {
    Added(Arc<Outbound>),
    Removed(u32),
}

impl Replay<Vec<Step>> for Associations {
    fn replay(&mut self, log: &mut Vec<Step>) {
        for step in log.drain(..) {
            match step {
                Step::Added(association) => drop(self.add(association)),
                Step::Removed(spi) => drop(self.remove(spi)),
            }
        }
    }
}

impl Associations {
    /// Returns the association in a slot; `None` if the slot is free or does not exist.
    #[inline(always)]
    fn at(&self, slot: u32) -> Option<&Outbound> {
        self.slots.get(slot as usize)?.as_deref()
    }

    /// Returns the association of packets to an IPv4 address.
    #[inline(always)]
    pub(super) fn for_ipv4(&self, address: u32) -> Option<&Outbound> {
        // `NO_ROUTE` is not the number of a slot, so `at` then returns `None`.
        self.at(self.ipv4.as_ref().map_or(NO_ROUTE, |table| table.lookup(address)))
    }

    /// Returns the association of packets to an IPv6 address.
    #[inline(always)]
    pub(super) fn for_ipv6(&self, address: u128) -> Option<&Outbound> {
        self.at(self.ipv6.as_ref().map_or(NO_ROUTE, |table| table.lookup(address)))
    }

    /// Returns the association of packets with a number.
    #[inline(always)]
    pub(super) fn for_number(&self, number: u32) -> Option<&Outbound> {
        self.at(*self.by_number.get(&number)?)
    }

    /// Adds an association. Fails, and changes nothing, if its index exists.
    fn add(&mut self, association: Arc<Outbound>) -> Result<(), String> {
        let spi = association.line.spi;
        if self.by_spi.contains_key(&spi) {
            return Err(format!("{spi:#x} already exists: use 'replace'"));
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        for selector in selectors(&association.line) {
            let candidates = self.candidates.entry(selector).or_default();
            candidates.push(slot);
            self.update_lookup(selector);
        }
        self.by_spi.insert(spi, slot);
        self.slots[slot as usize] = Some(association);
        Ok(())
    }

    /// Removes and returns an association; `None` if its index does not exist.
    fn remove(&mut self, spi: u32) -> Option<Arc<Outbound>> {
        let slot = self.by_spi.remove(&spi)?;
        let association = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        for selector in selectors(&association.line) {
            if let Some(candidates) = self.candidates.get_mut(&selector) {
                candidates.retain(|other| *other != slot);
            }
            self.update_lookup(selector);
        }
        Some(association)
    }

    /// Updates the lookup tables after a change of a selector's candidates: the candidate that was added last gets the
    /// packets. Without candidates, the entry is removed.
    fn update_lookup(&mut self, selector: Selector) {
        let last = self.candidates.get(&selector).and_then(|candidates| candidates.last().copied());
        if last.is_none() {
            self.candidates.remove(&selector);
        }
        // `insert` does not fail, because every slot is a valid next hop: an association takes more than a kilobyte, so
        // there are not as many slots as next hops.
        match (selector, last) {
            (Selector::Prefix(IpPrefix::V4(prefix)), Some(slot)) => {
                let _ = self.ipv4.get_or_insert_default().insert(prefix, slot);
            }
            (Selector::Prefix(IpPrefix::V4(prefix)), None) => {
                self.ipv4.as_mut().map(|table| table.remove(prefix));
            }
            (Selector::Prefix(IpPrefix::V6(prefix)), Some(slot)) => {
                let _ = self.ipv6.get_or_insert_default().insert(prefix, slot);
            }
            (Selector::Prefix(IpPrefix::V6(prefix)), None) => {
                self.ipv6.as_mut().map(|table| table.remove(prefix));
            }
            (Selector::Number(number), Some(slot)) => drop(self.by_number.insert(number, slot)),
            (Selector::Number(number), None) => drop(self.by_number.remove(&number)),
        }
    }
}

/// Returns the selectors of a line without duplicates.
fn selectors(line: &Line) -> Vec<Selector> {
    let mut all: Vec<Selector> = line.prefixes.iter().copied().map(Selector::Prefix).collect();
    all.extend(line.number.map(Selector::Number));
    let mut seen = std::collections::HashSet::new();
    all.retain(|selector| seen.insert(*selector));
    all
}

/// Returns the other end of the tunnel. It must have the same address family as the local end: IPv6 if `six`.
pub(super) fn peer_of(line: &Line, six: bool) -> Result<IpAddr, String> {
    let peer = line.peer.ok_or("the peer is missing: write peer=ADDRESS")?;
    if peer.is_ipv6() != six {
        let family = if six { "IPv6" } else { "IPv4" };
        return Err(format!("peer: the address family differs from that of `source`: allowed are {family} addresses"));
    }
    Ok(peer)
}

/// A module's associations, used by a worker and changed by the control plane.
pub(super) struct Outbounds {
    /// The two copies of the associations.
    live: Arc<Live<Associations, Vec<Step>>>,
    /// The settings with which keys in changes are read.
    keys: Keys,
    /// True if the local end has an IPv6 address.
    six: bool,
    /// The states that continue in the next configuration.
    states: Arc<Lasting<Sending>>,
}

/// The syntax of changes.
const SYNTAX: &str = "\
add SPI key=KEY peer=ADDRESS [for=PREFIX,...] [number=N] [udp=PORT] [esn] [soft-packets=N] [hard-packets=N] \
[soft-bytes=N] [hard-bytes=N]   adds an association
remove SPI   removes an association; the listed line is allowed, too
replace SPI key=KEY peer=ADDRESS ...   replaces the association with this index, or adds it
where KEY is @FILE, or hexadecimal digits, and the last 4 bytes are the salt";

impl Outbounds {
    /// Creates the associations that the configuration lists. If two match the same packets, the later one is used.
    pub(super) fn new(
        listed: Vec<(Line, Keyed)>,
        keys: Keys,
        six: bool,
        states: Arc<Lasting<Sending>>,
    ) -> Result<Self, String> {
        let all = Arc::new(Live::new(Arc::default()));
        let mut outbounds = Self { live: all, keys, six, states };
        let mut associations = Associations::default();
        for one in listed {
            associations.add(outbounds.make(one)?)?;
        }
        outbounds.live = Arc::new(Live::new(Arc::new(associations)));
        Ok(outbounds)
    }

    pub(super) fn reader(&self) -> Reader<Associations, Vec<Step>> {
        Reader::new(Arc::clone(&self.live))
    }

    /// Builds the association of a line. If an association with the same index and key is in use, continues its state.
    fn make(&self, (line, keyed): (Line, Keyed)) -> Result<Arc<Outbound>, String> {
        let peer = peer_of(&line, self.six)?;
        let last = if line.extended { u64::MAX } else { u32::MAX.into() };
        let fits = |sending: &Sending| sending.sequence.load(Ordering::Relaxed) <= last;
        let sending = self.states.get(line.spi, keyed.fingerprint, fits, Sending::default);
        Ok(Arc::new(Outbound { line, keyed, peer, sending }))
    }

    /// Makes one change in `associations`, and appends its steps to `log`. If the change fails, nothing changes.
    fn change(&self, associations: &mut Associations, change: &str, log: &mut Vec<Step>) -> Result<(), String> {
        let change = without_comment(change);
        let (verb, entry) = split_change(change, SYNTAX)?;
        let spi = index_of(entry)?;
        if verb == Verb::Remove {
            let current = associations.by_spi.get(&spi).and_then(|slot| associations.at(*slot));
            let current = current
                .ok_or_else(|| format!("{spi:#x} does not exist: `forebay show table NAME` lists the associations"))?;
            only_listed(entry, &current.line, &current.keyed, &self.keys)?;
            associations.remove(spi);
            log.push(Step::Removed(spi));
            return Ok(());
        }
        let association = self.make(Line::read(entry, &WORDS, &self.keys)?)?;
        if verb == Verb::Replace && associations.remove(spi).is_some() {
            log.push(Step::Removed(spi));
        }
        associations.add(Arc::clone(&association))?;
        log.push(Step::Added(association));
        Ok(())
    }
}

impl ControlTable for Outbounds {
    fn syntax(&self) -> &'static str {
        SYNTAX
    }

    fn apply(&self, changes: &[&str]) -> Outcome {
        let mut outcome = Outcome::default();
        for (chunk, lines) in changes.chunks(CHUNK).enumerate() {
            self.live.change(|associations, log| {
                for (at, line) in lines.iter().enumerate() {
                    outcome.note(chunk * CHUNK + at, self.change(associations, line, log));
                }
            });
        }
        outcome
    }

    fn len(&self) -> usize {
        self.live.look().by_spi.len()
    }

    fn entries(&self, after: Option<&str>, most: usize) -> Result<Vec<String>, String> {
        use std::ops::Bound::{Excluded, Unbounded};
        let after = after.map(index_of).transpose()?.map_or(Unbounded, Excluded);
        let associations = self.live.look();
        let line = |slot: &u32| {
            let Outbound { line, sending, .. } = associations.at(*slot)?;
            Some(line.list(&sending.used, sending.sequence.load(Ordering::Relaxed)))
        };
        let following = associations.by_spi.range((after, Unbounded));
        Ok(following.filter_map(|(_, slot)| line(slot)).take(most).collect())
    }
}

#[cfg(test)]
mod tests {
    use forebay_graph::{Setup, SetupEnvironment};
    use forebay_units::Frequency;

    use super::*;

    /// Regression: a search for a free slot took as many steps as there were associations.
    #[test]
    fn free_slots_are_known_and_used_again() {
        let backend = forebay_aead::Backend::Software.resolve().expect("the software back end is always available");
        let keys = Keys { base: ".".into(), backend };
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        let states = Lasting::of("some", &mut Setup::new("m", &mut environment)).expect("states");
        let table = Outbounds::new(Vec::new(), keys, false, states).expect("an empty list");
        let key = "4c80cdefbb5d10da906ac73c3613a6342e443b68";
        let (mut present, mut most) = (std::collections::BTreeSet::new(), 0);
        for (verb, spis) in [
            ("add", (0x100..0x500).step_by(1)),
            ("remove", (0x100..0x500).step_by(3)),
            ("replace", (0x101..0x500).step_by(3)),
            ("add", (0x100..0x400).step_by(3)),
            ("remove", (0x101..0x500).step_by(3)),
            ("add", (0x500..0x680).step_by(1)),
        ] {
            let lines = spis.clone().map(|spi| format!("{verb} {spi} key={key} peer=192.0.2.10 number={spi}"));
            let lines: Vec<String> = lines.collect();
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            assert_eq!(table.apply(&lines).made, lines.len());
            spis.for_each(|spi: u32| _ = if verb == "remove" { present.remove(&spi) } else { present.insert(spi) });
            most = present.len().max(most);
            let all = table.live.look();
            let free = all.slots.iter().zip(0u32..).filter(|(slot, _)| slot.is_none()).map(|(_, number)| number);
            let mut known = all.free.clone();
            known.sort_unstable();
            assert_eq!(known, free.collect::<Vec<_>>());
            assert_eq!((all.slots.len(), all.by_spi.len()), (most, present.len()));
            assert!(present.iter().all(|spi| all.for_number(*spi).is_some_and(|found| found.line.spi == *spi)));
        }
    }
}
