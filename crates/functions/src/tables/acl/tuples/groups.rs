//! Rules by their pair of prefixes, and within a pair by their service where there are many.

use std::collections::HashMap;

use super::super::key::{Key, NO_PORTS};
use super::super::rule::{Action, Address, Rule};
use super::fold::Seeded;

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

/// Rules in their order. Most lists are of one, which takes no further look at memory.
#[derive(Clone, Debug)]
enum Entries {
    One(Entry),
    Many(Vec<Entry>),
}

impl Default for Entries {
    fn default() -> Entries {
        Entries::Many(Vec::new())
    }
}

impl Entries {
    #[inline]
    fn all(&self) -> &[Entry] {
        match self {
            Entries::One(entry) => std::slice::from_ref(entry),
            Entries::Many(entries) => entries,
        }
    }

    fn insert(&mut self, entry: Entry) {
        match self {
            Entries::Many(entries) if entries.is_empty() => *self = Entries::One(entry),
            Entries::Many(entries) => {
                let at = entries.partition_point(|other| other.label < entry.label);
                entries.insert(at, entry);
            }
            Entries::One(other) => {
                let mut entries = vec![*other, entry];
                entries.sort_unstable_by_key(|entry| entry.label);
                *self = Entries::Many(entries);
            }
        }
    }

    fn at(&self, label: Label) -> Option<usize> {
        self.all().binary_search_by_key(&label, |entry| entry.label).ok()
    }

    fn remove(&mut self, label: Label) {
        match (self.at(label), &mut *self) {
            (None, _) => {}
            (Some(_), Entries::One(_)) => *self = Entries::default(),
            (Some(at), Entries::Many(entries)) => _ = entries.remove(at),
        }
    }

    fn relabel(&mut self, from: Label, to: Label) {
        match (self.at(from), self) {
            (None, _) => {}
            (Some(_), Entries::One(entry)) => entry.label = to,
            (Some(at), Entries::Many(entries)) => entries[at].label = to,
        }
    }
}

/// The rules of one pair of prefixes.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// All of them; where there are many, those of more than one service.
    walked: Entries,
    /// Apart, so that groups without are small.
    services: Option<Box<Services>>,
}

/// Rules of one service each.
#[derive(Clone, Debug)]
struct Services(HashMap<u32, Entries, Seeded>);

impl Group {
    /// The list that an entry is in or belongs into.
    fn list(&mut self, entry: &Entry) -> &mut Entries {
        match (&mut self.services, entry.service()) {
            (Some(services), Some(service)) => services.0.entry(service).or_default(),
            _ => &mut self.walked,
        }
    }

    fn insert(&mut self, entry: Entry, seed: Seeded) {
        if self.services.is_none() && self.walked.all().len() == WALKED {
            let mut services = Services(HashMap::with_hasher(seed));
            let mut walked = Entries::default();
            for entry in self.walked.all() {
                let list = entry.service().map_or(&mut walked, |service| services.0.entry(service).or_default());
                list.insert(*entry);
            }
            (self.walked, self.services) = (walked, Some(Box::new(services)));
        }
        self.list(&entry).insert(entry);
    }

    fn remove(&mut self, entry: &Entry) {
        let list = self.list(entry);
        list.remove(entry.label);
        if let (true, Some(service), Some(services)) = (list.all().is_empty(), entry.service(), &mut self.services) {
            services.0.remove(&service);
        }
    }

    fn is_empty(&self) -> bool {
        self.walked.all().is_empty() && self.services.as_ref().is_none_or(|services| services.0.is_empty())
    }

    /// The lists that rules for the key can be in.
    #[inline]
    fn lists<A: Address>(&self, key: &Key<A>) -> [&[Entry]; 2] {
        let services = self.services.as_ref();
        let of_service = services.and_then(|services| services.0.get(&service(key.protocol_word(), key.dport())));
        [self.walked.all(), of_service.map_or(&[], Entries::all)]
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
        let list = match (&self.services, entry.service()) {
            (Some(services), Some(service)) => services.0.get(&service)?,
            _ => &self.walked,
        };
        list.all().iter().find(|other| other.equals(entry)).map(|other| other.label)
    }
}

/// The numbers of a rule's two prefixes.
pub type Pair = (u32, u32);

/// Groups by pairs of prefixes.
#[derive(Clone, Debug)]
pub struct Groups {
    groups: HashMap<u64, Group, Seeded>,
    rules: usize,
}

impl Groups {
    /// None, with room for so many.
    pub fn new(room: usize, seed: Seeded) -> Groups {
        Groups { groups: HashMap::with_capacity_and_hasher(room, seed), rules: 0 }
    }

    /// How many rules there are.
    pub fn rules(&self) -> usize {
        self.rules
    }

    /// Adds a rule of this pair.
    pub fn insert(&mut self, pair: Pair, entry: Entry) {
        let seed = *self.groups.hasher();
        self.groups.entry(key(pair)).or_default().insert(entry, seed);
        self.rules += 1;
    }

    /// Takes a rule of this pair out.
    pub fn remove(&mut self, pair: Pair, entry: &Entry) {
        let Some(group) = self.groups.get_mut(&key(pair)) else { return };
        group.remove(entry);
        self.rules -= 1;
        if group.is_empty() {
            self.groups.remove(&key(pair));
        }
    }

    /// Gives a rule of this pair another label, between the same neighbours.
    pub fn relabel(&mut self, pair: Pair, entry: &Entry, label: Label) {
        let Some(group) = self.groups.get_mut(&key(pair)) else { return };
        group.list(entry).relabel(entry.label, label);
    }

    /// The first rule of this pair that is equal to this one.
    pub fn find(&self, pair: Pair, entry: &Entry) -> Option<Label> {
        self.get(pair)?.find(entry)
    }

    /// The group of two prefixes.
    #[inline]
    pub fn get(&self, pair: Pair) -> Option<&Group> {
        self.groups.get(&key(pair))
    }
}

#[inline]
fn key((source, destination): Pair) -> u64 {
    u64::from(source) << 32 | u64::from(destination)
}
