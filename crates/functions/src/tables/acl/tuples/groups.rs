//! Rules by their pair of prefixes, and within a pair by their service where there are many.

use std::collections::HashMap;

use super::super::key::{Key, NO_PORTS};
use super::super::rule::{Action, Address, Rule};
use super::fold::Seeded;
use super::lengths::{LENGTHS, Lengths};

/// Rules of one pair of prefixes that are walked one by one; where there are more, those of one protocol and one
/// destination port are found by these.
const WALKED: usize = 8;

/// Where a rule stands in its list: the lower label is asked first.
pub type Label = u64;

/// What is left of a rule when its addresses match.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub label: Label,
    /// What it is counted under.
    pub number: u32,
    sport: (u16, u16),
    dport: (u16, u16),
    /// The wanted protocol word and which of its bits count: for a rule about ports, that there are any is one.
    protocol: (u16, u16),
    pub action: Action,
}

impl Entry {
    /// The entry of a rule.
    pub fn new<A: Address>(rule: &Rule<A>, label: Label, number: u32) -> Entry {
        let ports = if rule.constrains_ports() { NO_PORTS } else { 0 };
        Entry {
            label,
            number,
            sport: (rule.sport.low(), rule.sport.high()),
            dport: (rule.dport.low(), rule.dport.high()),
            protocol: (rule.protocol.value().into(), u16::from(rule.protocol.mask()) | ports),
            action: rule.action,
        }
    }

    /// Whether the key's ports and protocol match.
    #[inline]
    fn holds<A: Address>(&self, key: &Key<A>) -> bool {
        let between = |(low, high): (u16, u16), port: u16| (low <= port) & (port <= high);
        let (value, mask) = self.protocol;
        (key.protocol_word() & mask == value) & between(self.sport, key.sport()) & between(self.dport, key.dport())
    }

    /// Whether it is of an equal rule, of the same addresses.
    pub fn equals(&self, other: &Entry) -> bool {
        let what = |entry: &Entry| (entry.sport, entry.dport, entry.protocol, entry.action);
        what(self) == what(other)
    }

    /// Its protocol and destination port, where it has one of each.
    fn service(&self) -> Option<u32> {
        let (value, mask) = self.protocol;
        (mask & 0xff == 0xff && self.dport.0 == self.dport.1).then(|| service(value, self.dport.0))
    }
}

fn service(protocol: u16, dport: u16) -> u32 {
    u32::from(protocol) << 16 | u32::from(dport)
}

/// The rules of one pair of prefixes, each list in the rules' order.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// All of them; where there are many, those of more than one service.
    walked: Vec<Entry>,
    services: Option<Box<HashMap<u32, Vec<Entry>, Seeded>>>,
}

impl Group {
    /// The list that an entry is in or belongs into.
    fn list(&self, entry: &Entry) -> &[Entry] {
        match (&self.services, entry.service()) {
            (Some(services), Some(service)) => services.get(&service).map_or(&[], Vec::as_slice),
            _ => &self.walked,
        }
    }

    fn list_mut(&mut self, entry: &Entry) -> &mut Vec<Entry> {
        match (&mut self.services, entry.service()) {
            (Some(services), Some(service)) => services.entry(service).or_default(),
            _ => &mut self.walked,
        }
    }

    fn insert(&mut self, entry: Entry, seed: Seeded) {
        if self.services.is_none() && self.walked.len() == WALKED {
            let mut services: HashMap<u32, Vec<Entry>, Seeded> = HashMap::with_hasher(seed);
            self.walked.retain(|entry| {
                let Some(service) = entry.service() else { return true };
                services.entry(service).or_default().push(*entry);
                false
            });
            self.services = Some(Box::new(services));
        }
        let list = self.list_mut(&entry);
        let at = list.partition_point(|other| other.label < entry.label);
        list.insert(at, entry);
    }

    fn remove(&mut self, entry: &Entry) {
        let list = self.list_mut(entry);
        if let Ok(at) = list.binary_search_by_key(&entry.label, |other| other.label) {
            list.remove(at);
        }
        if let (true, Some(service), Some(services)) = (list.is_empty(), entry.service(), &mut self.services) {
            services.remove(&service);
        }
    }

    fn is_empty(&self) -> bool {
        self.walked.is_empty() && self.services.as_ref().is_none_or(|services| services.is_empty())
    }

    /// The lists that rules for the key can be in.
    #[inline]
    fn lists<A: Address>(&self, key: &Key<A>) -> [&[Entry]; 2] {
        let services = self.services.as_ref();
        let of_service = services.and_then(|services| services.get(&service(key.protocol_word(), key.dport())));
        [&self.walked, of_service.map_or(&[], Vec::as_slice)]
    }

    /// The first rule that matches, if it comes before the one labelled so.
    #[inline]
    pub fn first<A: Address>(&self, key: &Key<A>, before: Label) -> Option<&Entry> {
        let mut first: Option<&Entry> = None;
        for list in self.lists(key) {
            let before = first.map_or(before, |first| first.label);
            let earlier = list.iter().take_while(|entry| entry.label < before);
            first = earlier.into_iter().find(|entry| entry.holds(key)).or(first);
        }
        first
    }

    /// All rules that match and come before the one labelled so.
    #[inline]
    pub fn all<A: Address>(&self, key: &Key<A>, before: Label) -> impl Iterator<Item = &Entry> {
        let earlier =
            self.lists(key).into_iter().flat_map(move |list| list.iter().take_while(move |it| it.label < before));
        earlier.filter(move |entry| entry.holds(key))
    }

    /// The first rule that is equal to this one.
    fn find(&self, entry: &Entry) -> Option<Label> {
        self.list(entry).iter().find(|other| other.equals(entry)).map(|other| other.label)
    }
}

/// The lengths of a rule's two prefixes, and the numbers of these.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    pub lengths: (u8, u8),
    pub numbers: (u32, u32),
}

impl Pair {
    fn key(self) -> u64 {
        key(self.numbers.0, self.numbers.1)
    }

    fn tuple(self) -> usize {
        usize::from(self.lengths.0) * LENGTHS + usize::from(self.lengths.1)
    }
}

#[inline]
fn key(source: u32, destination: u32) -> u64 {
    u64::from(source) << 32 | u64::from(destination)
}

/// Groups by pairs of prefixes.
#[derive(Clone, Debug)]
pub struct Groups {
    groups: HashMap<u64, Group, Seeded>,
    /// For each length of sources: with which lengths of destinations there are groups.
    tuples: Box<[Lengths]>,
    /// How many groups there are of each two lengths.
    of_tuple: Box<[u32]>,
    rules: usize,
}

impl Groups {
    /// None, with room for so many.
    pub fn new(room: usize, seed: Seeded) -> Groups {
        Groups {
            groups: HashMap::with_capacity_and_hasher(room, seed),
            tuples: vec![Lengths::NONE; LENGTHS].into(),
            of_tuple: vec![0; LENGTHS * LENGTHS].into(),
            rules: 0,
        }
    }

    /// How many rules there are.
    pub fn rules(&self) -> usize {
        self.rules
    }

    /// Adds a rule of this pair.
    pub fn insert(&mut self, pair: Pair, entry: Entry) {
        let (seed, of_tuple, tuples) = (*self.groups.hasher(), &mut self.of_tuple, &mut self.tuples);
        let group = self.groups.entry(pair.key()).or_insert_with(|| {
            of_tuple[pair.tuple()] += 1;
            tuples[usize::from(pair.lengths.0)].insert(pair.lengths.1);
            Group::default()
        });
        group.insert(entry, seed);
        self.rules += 1;
    }

    /// Takes a rule of this pair out.
    pub fn remove(&mut self, pair: Pair, entry: &Entry) {
        let Some(group) = self.groups.get_mut(&pair.key()) else { return };
        group.remove(entry);
        self.rules -= 1;
        if !group.is_empty() {
            return;
        }
        self.groups.remove(&pair.key());
        let of_tuple = &mut self.of_tuple[pair.tuple()];
        *of_tuple -= 1;
        if *of_tuple == 0 {
            self.tuples[usize::from(pair.lengths.0)].remove(pair.lengths.1);
        }
    }

    /// Gives a rule of this pair another label, between the same neighbours.
    pub fn relabel(&mut self, pair: Pair, entry: &Entry, label: Label) {
        let Some(group) = self.groups.get_mut(&pair.key()) else { return };
        let list = group.list_mut(entry);
        if let Ok(at) = list.binary_search_by_key(&entry.label, |other| other.label) {
            list[at].label = label;
        }
    }

    /// The first rule of this pair that is equal to this one.
    pub fn find(&self, numbers: (u32, u32), entry: &Entry) -> Option<Label> {
        self.groups.get(&key(numbers.0, numbers.1))?.find(entry)
    }

    /// The group of two prefixes.
    #[inline]
    pub fn get(&self, source: u32, destination: u32) -> Option<&Group> {
        self.groups.get(&key(source, destination))
    }

    /// With which lengths of destinations there are groups, for a length of sources.
    #[inline]
    pub fn destinations(&self, source: u8) -> Lengths {
        self.tuples[usize::from(source)]
    }
}
