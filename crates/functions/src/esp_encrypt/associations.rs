//! The associations that packets leave by: found by where a packet is for, or by a number; changed while packets run.
//!
//! Several may be for the same packets: the one that was added last has them. So a new key comes into use when its
//! association is added, and the old association, by then without packets, can be removed at any time.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_graph::{Live, Outcome, Reader, Replay, Table as ControlTable, Verb};
use hashbrown::HashMap;

use crate::encryption::esp::lasting::Lasting;
use crate::encryption::esp::lifetime::Used;
use crate::encryption::esp::line::{Keyed, Keys, Line, index_of, only_listed, split_change, without_comment};
use crate::tables::lpm::{IpPrefix, Ipv4Table, Ipv6Table, NO_ROUTE};

/// The words of a line.
pub(super) const WORDS: [&str; 10] =
    ["key", "peer", "for", "number", "udp", "esn", "soft-packets", "soft-bytes", "hard-packets", "hard-bytes"];
/// Changes that are published together.
const CHUNK: usize = 1 << 10;

/// What of an association changes with each packet. One worker writes it.
#[derive(Debug, Default)]
pub(super) struct Sending {
    /// The sequence number of the last packet.
    sequence: AtomicU64,
    pub(super) used: Used,
}

impl Sending {
    /// The next sequence number, none above `last`.
    #[inline(always)]
    pub(super) fn next(&self, last: u64) -> Option<u64> {
        let next = self.sequence.load(Ordering::Relaxed).checked_add(1).filter(|next| *next <= last)?;
        self.sequence.store(next, Ordering::Relaxed);
        Some(next)
    }
}

/// An association.
pub(super) struct Outbound {
    pub(super) line: Line,
    pub(super) keyed: Keyed,
    pub(super) peer: IpAddr,
    pub(super) sending: Arc<Sending>,
}

impl Outbound {
    /// The last sequence number that there is (RFC 4303 section 3.3.3).
    #[inline(always)]
    pub(super) fn last(&self) -> u64 {
        if self.line.extended { u64::MAX } else { u32::MAX.into() }
    }
}

/// What associations are found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Selector {
    Prefix(IpPrefix),
    Number(u32),
}

/// The associations as packets see them.
#[derive(Clone, Default)]
pub(super) struct Associations {
    /// Each in a place of its own.
    places: Vec<Option<Arc<Outbound>>>,
    /// Places that were left, so that none has to be looked for.
    free: Vec<u32>,
    by_spi: std::collections::BTreeMap<u32, u32>,
    /// Who wants packets, in the order of their coming.
    wanted: HashMap<Selector, Vec<u32>>,
    by_number: HashMap<u32, u32>,
    ipv4: Option<Ipv4Table>,
    ipv6: Option<Ipv6Table>,
}

/// What was done.
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
    #[inline(always)]
    fn at(&self, place: u32) -> Option<&Outbound> {
        self.places.get(place as usize)?.as_deref()
    }

    /// That of packets to an address of IPv4.
    #[inline(always)]
    pub(super) fn for_ipv4(&self, address: u32) -> Option<&Outbound> {
        // No place has the number that stands for no route.
        self.at(self.ipv4.as_ref().map_or(NO_ROUTE, |table| table.lookup(address)))
    }

    /// That of packets to an address of IPv6.
    #[inline(always)]
    pub(super) fn for_ipv6(&self, address: u128) -> Option<&Outbound> {
        self.at(self.ipv6.as_ref().map_or(NO_ROUTE, |table| table.lookup(address)))
    }

    /// That of packets with a number.
    #[inline(always)]
    pub(super) fn for_number(&self, number: u32) -> Option<&Outbound> {
        self.at(*self.by_number.get(&number)?)
    }

    fn add(&mut self, association: Arc<Outbound>) -> Result<(), String> {
        let spi = association.line.spi;
        if self.by_spi.contains_key(&spi) {
            return Err(format!("{spi:#x} is there already: allowed is 'replace'"));
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            (self.places.len() - 1) as u32
        });
        for selector in selectors(&association.line) {
            let wanted = self.wanted.entry(selector).or_default();
            wanted.push(place);
            self.lead(selector);
        }
        self.by_spi.insert(spi, place);
        self.places[place as usize] = Some(association);
        Ok(())
    }

    fn remove(&mut self, spi: u32) -> Option<Arc<Outbound>> {
        let place = self.by_spi.remove(&spi)?;
        let association = self.places.get_mut(place as usize)?.take()?;
        self.free.push(place);
        for selector in selectors(&association.line) {
            if let Some(wanted) = self.wanted.get_mut(&selector) {
                wanted.retain(|other| *other != place);
            }
            self.lead(selector);
        }
        Some(association)
    }

    /// Gives the packets of a selector to whoever has wanted them last.
    fn lead(&mut self, selector: Selector) {
        let last = self.wanted.get(&selector).and_then(|wanted| wanted.last().copied());
        if last.is_none() {
            self.wanted.remove(&selector);
        }
        // There are fewer places than next hops: an association takes more than a kilobyte.
        match (selector, last) {
            (Selector::Prefix(IpPrefix::V4(prefix)), Some(place)) => {
                let _ = self.ipv4.get_or_insert_default().insert(prefix, place);
            }
            (Selector::Prefix(IpPrefix::V4(prefix)), None) => {
                self.ipv4.as_mut().map(|table| table.remove(prefix));
            }
            (Selector::Prefix(IpPrefix::V6(prefix)), Some(place)) => {
                let _ = self.ipv6.get_or_insert_default().insert(prefix, place);
            }
            (Selector::Prefix(IpPrefix::V6(prefix)), None) => {
                self.ipv6.as_mut().map(|table| table.remove(prefix));
            }
            (Selector::Number(number), Some(place)) => drop(self.by_number.insert(number, place)),
            (Selector::Number(number), None) => drop(self.by_number.remove(&number)),
        }
    }
}

/// What a line wants; each once.
fn selectors(line: &Line) -> Vec<Selector> {
    let mut all: Vec<Selector> = line.prefixes.iter().copied().map(Selector::Prefix).collect();
    all.extend(line.number.map(Selector::Number));
    let mut seen = std::collections::HashSet::new();
    all.retain(|selector| seen.insert(*selector));
    all
}

/// The other end of the tunnel, which is of the kind that tunnels run over.
pub(super) fn peer_of(line: &Line, six: bool) -> Result<IpAddr, String> {
    let peer = line.peer.ok_or("it has no peer: write peer=ADDRESS")?;
    if peer.is_ipv6() != six {
        let kind = if six { "IPv6" } else { "IPv4" };
        return Err(format!("peer: the address is of another kind than `source`: allowed are addresses of {kind}"));
    }
    Ok(peer)
}

/// A module's associations, used by a worker and changed by the control plane.
pub(super) struct Outbounds {
    live: Arc<Live<Associations, Vec<Step>>>,
    keys: Keys,
    /// Whether the module's own end is of IPv6.
    six: bool,
    states: Arc<Lasting<Sending>>,
}

/// How associations are changed.
const SYNTAX: &str = "\
add SPI key=KEY peer=ADDRESS [for=PREFIX,...] [number=N] [udp=PORT] [esn] [soft-packets=N] [hard-packets=N] [soft-bytes=N] [hard-bytes=N]   a new association
remove SPI   an association that is there; also its line as it is listed
replace SPI key=KEY peer=ADDRESS ...   another in the place of the one with this index, or a new one
where KEY is @FILE, or hexadecimal digits, and the last 4 bytes are the salt";

impl Outbounds {
    /// What the configuration lists, to begin with.
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

    /// An association of a line.
    fn make(&self, (line, keyed): (Line, Keyed)) -> Result<Arc<Outbound>, String> {
        let peer = peer_of(&line, self.six)?;
        let last = if line.extended { u64::MAX } else { u32::MAX.into() };
        let fits = |sending: &Sending| sending.sequence.load(Ordering::Relaxed) <= last;
        let sending = self.states.get(line.spi, keyed.fingerprint, fits, Sending::default);
        Ok(Arc::new(Outbound { line, keyed, peer, sending }))
    }

    fn change(&self, associations: &mut Associations, change: &str, log: &mut Vec<Step>) -> Result<(), String> {
        let change = without_comment(change);
        let (verb, entry) = split_change(change, SYNTAX)?;
        let spi = index_of(entry)?;
        if verb == Verb::Remove {
            let there = associations.by_spi.get(&spi).and_then(|place| associations.at(*place));
            let there = there.ok_or_else(|| format!("{spi:#x} is not there"))?;
            only_listed(entry, &there.line, &there.keyed, &self.keys)?;
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
        let line = |place: &u32| {
            let Outbound { line, sending, .. } = associations.at(*place)?;
            Some(line.list(&sending.used, sending.sequence.load(Ordering::Relaxed)))
        };
        let following = associations.by_spi.range((after, Unbounded));
        Ok(following.filter_map(|(_, place)| line(place)).take(most).collect())
    }
}

#[cfg(test)]
mod tests {
    use forebay_graph::{Setup, Surroundings};
    use forebay_measure::Frequency;

    use super::*;

    /// None is looked for: with thousands of associations each new one took as many steps as there were.
    #[test]
    fn places_that_were_left_are_known_and_taken_again() {
        let backend = forebay_aead::Backend::Software.resolve().expect("it is always there");
        let keys = Keys { base: ".".into(), backend };
        let mut surroundings = Surroundings::new(Frequency::new(1e9));
        let states = Lasting::of("some", &mut Setup::new("m", &mut surroundings)).expect("states");
        let table = Outbounds::new(Vec::new(), keys, false, states).expect("none");
        let key = "4c80cdefbb5d10da906ac73c3613a6342e443b68";
        let (mut there, mut most) = (std::collections::BTreeSet::new(), 0);
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
            spis.for_each(|spi: u32| _ = if verb == "remove" { there.remove(&spi) } else { there.insert(spi) });
            most = there.len().max(most);
            let all = table.live.look();
            let free = all.places.iter().zip(0u32..).filter(|(place, _)| place.is_none()).map(|(_, number)| number);
            let mut known = all.free.clone();
            known.sort_unstable();
            assert_eq!(known, free.collect::<Vec<_>>());
            assert_eq!((all.places.len(), all.by_spi.len()), (most, there.len()));
            assert!(there.iter().all(|spi| all.for_number(*spi).is_some_and(|found| found.line.spi == *spi)));
        }
    }
}
