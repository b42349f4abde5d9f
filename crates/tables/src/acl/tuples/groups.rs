//! Rules grouped by their pair of prefixes; a pair with many rules is subdivided by service.

use std::collections::HashMap;

use super::super::key::{HeaderKey, NO_PORTS, TYPED};
use super::super::rule::{Action, Rule, RuleAddress};
use super::crowd::Crowd;
use super::fold::Seeded;

/// The largest number of rules of a pair that are all compared with a packet, one after the other. If a pair has more
/// rules, those with exactly one protocol and one destination port are looked up by these two fields.
const WALKED: usize = 8;

/// The largest number of rules in a list that is kept as a row (a sorted array). A longer list is a [`Crowd`], in which
/// changes take logarithmic time.
const ROW: usize = 64;
/// A crowd that shrinks to this size becomes a row again.
const ROW_AGAIN: usize = 16;

/// The position of a rule in its list. Rules with lower labels come first.
pub type Label = u64;

/// A rule without its addresses (ports, protocol and action), packed into a number.
pub type RuleShape = u128;

/// A rule without its addresses, which have matched already.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The position of the rule in the list.
    pub label: Label,
    /// The number under which the rule is counted.
    pub number: u32,
    /// The first and the last source port.
    sport: (u16, u16),
    /// The first and the last destination port.
    dport: (u16, u16),
    /// The value and the mask of the protocol word ([`HeaderKey::protocol_word`]). If the rule constrains ports, the
    /// mask contains [`NO_PORTS`], so only keys with ports match. If the rule constrains ICMP types, only keys with a
    /// type match.
    protocol: (u16, u16),
    pub action: Action,
}

impl Entry {
    /// Creates the entry of a rule.
    pub fn new<A: RuleAddress>(rule: &Rule<A>, label: Label, number: u32) -> Entry {
        let (flags, flags_mask) = match (rule.constrains_icmp(), rule.constrains_ports()) {
            (true, _) => (NO_PORTS | TYPED, NO_PORTS | TYPED),
            (false, true) => (0, NO_PORTS),
            (false, false) => (0, 0),
        };
        Entry {
            label,
            number,
            sport: (rule.sport.low(), rule.sport.high()),
            dport: (rule.dport.low(), rule.dport.high()),
            protocol: (u16::from(rule.protocol.value()) | flags, u16::from(rule.protocol.mask()) | flags_mask),
            action: rule.action,
        }
    }

    /// Returns an equal rule at another position.
    pub fn with_position(self, label: Label, number: u32) -> Entry {
        Entry { label, number, ..self }
    }

    /// Returns true if the key's ports and protocol match.
    #[inline]
    pub fn matches<A: RuleAddress>(&self, key: &HeaderKey<A>) -> bool {
        let between = |(low, high): (u16, u16), port: u16| (low <= port) & (port <= high);
        let (value, mask) = self.protocol;
        (key.protocol_word() & mask == value) & between(self.sport, key.sport()) & between(self.dport, key.dport())
    }

    /// Returns the rule's shape. Two rules have the same shape if and only if their ports, protocols and actions are
    /// equal.
    pub fn shape(&self) -> RuleShape {
        let ports = [self.sport.0, self.sport.1, self.dport.0, self.dport.1, self.protocol.0, self.protocol.1];
        ports.into_iter().fold(self.action as RuleShape, |shape, field| shape << 16 | RuleShape::from(field))
    }

    /// Returns the rule's [service], if it has exactly one protocol and one destination port.
    fn service(&self) -> Option<u32> {
        let (value, mask) = self.protocol;
        (mask & 0xff == 0xff && self.dport.0 == self.dport.1).then(|| service(value, self.dport.0))
    }
}

/// Packs a protocol word and a destination port into one key.
fn service(protocol: u16, dport: u16) -> u32 {
    u32::from(protocol) << 16 | u32::from(dport)
}

/// Rules in order. Most lists have one rule. A single rule is stored without an allocation, so that a packet's look-up
/// needs no further memory access.
#[derive(Clone, Debug)]
enum Entries {
    One(Entry),
    Many(Vec<Entry>),
    /// A list that had more than [`ROW`] rules and has had more than [`ROW_AGAIN`] since.
    Crowd(Box<Crowd>),
}

impl Default for Entries {
    fn default() -> Entries {
        Entries::Many(Vec::new())
    }
}

impl Entries {
    fn len(&self) -> usize {
        match self {
            Entries::One(_) => 1,
            Entries::Many(entries) => entries.len(),
            Entries::Crowd(crowd) => crowd.len(),
        }
    }

    /// Returns the rules if they are in a row, and an empty row for a crowd.
    #[inline]
    fn row(&self) -> &[Entry] {
        match self {
            Entries::One(entry) => std::slice::from_ref(entry),
            Entries::Many(entries) => entries,
            Entries::Crowd(_) => &[],
        }
    }

    /// Adds a rule, in order of the labels. A row of [`ROW`] rules becomes a [`Crowd`].
    fn insert(&mut self, entry: Entry) {
        match self {
            Entries::Many(entries) if entries.is_empty() => *self = Entries::One(entry),
            Entries::Many(entries) if entries.len() == ROW => {
                let mut crowd = Box::new(Crowd::default());
                entries.iter().chain([&entry]).for_each(|entry| crowd.insert(*entry));
                *self = Entries::Crowd(crowd);
            }
            Entries::Many(entries) => {
                let at = entries.partition_point(|other| other.label < entry.label);
                entries.insert(at, entry);
            }
            Entries::One(other) => {
                let mut entries = vec![*other, entry];
                entries.sort_unstable_by_key(|entry| entry.label);
                *self = Entries::Many(entries);
            }
            Entries::Crowd(crowd) => crowd.insert(entry),
        }
    }

    /// Returns the index of a rule in the row.
    fn at(&self, label: Label) -> Option<usize> {
        self.row().binary_search_by_key(&label, |entry| entry.label).ok()
    }

    /// Removes a rule. Returns false if it is not in the list.
    fn remove(&mut self, entry: &Entry) -> bool {
        let at = self.at(entry.label);
        match (at, &mut *self) {
            (_, Entries::Crowd(crowd)) => {
                let removed = crowd.remove(entry);
                if crowd.len() <= ROW_AGAIN {
                    *self = Entries::Many(std::mem::take(&mut **crowd).into_entries());
                }
                return removed;
            }
            (None, _) => return false,
            (Some(_), Entries::One(_)) => *self = Entries::default(),
            (Some(at), Entries::Many(entries)) => _ = entries.remove(at),
        }
        true
    }

    fn relabel(&mut self, entry: &Entry, to: Label) {
        let at = self.at(entry.label);
        match (at, self) {
            (_, Entries::Crowd(crowd)) => crowd.relabel(entry, to),
            (None, _) => {}
            (Some(_), Entries::One(entry)) => entry.label = to,
            (Some(at), Entries::Many(entries)) => entries[at].label = to,
        }
    }

    /// Returns the label of the first rule of the same shape.
    fn find(&self, entry: &Entry) -> Option<Label> {
        match self {
            Entries::Crowd(crowd) => crowd.find(entry.shape()),
            _ => self.row().iter().find(|other| other.shape() == entry.shape()).map(|other| other.label),
        }
    }

    /// Returns the first rule with a label below `before` that matches the key.
    #[inline]
    fn first<A: RuleAddress>(&self, key: &HeaderKey<A>, before: Label) -> Option<&Entry> {
        if let Entries::Crowd(crowd) = self {
            return crowd.first(key, before);
        }
        self.row().iter().take_while(|entry| entry.label < before).find(|entry| entry.matches(key))
    }

    /// Calls `with` with the number of each rule that matches and whose label is below `before`.
    #[inline]
    fn each<A: RuleAddress>(&self, key: &HeaderKey<A>, before: Label, mut with: impl FnMut(u32)) {
        if let Entries::Crowd(crowd) = self {
            return crowd.each(key, before, with);
        }
        let earlier = self.row().iter().take_while(|entry| entry.label < before);
        earlier.filter(|entry| entry.matches(key)).for_each(|entry| with(entry.number));
    }
}

/// The rules of one pair of prefixes.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// The rules that are compared with a packet one after the other: all rules of a small group. In a group with
    /// `services`: the rules that are not for exactly one service.
    walked: Entries,
    /// The other rules of a group that has had more than [`WALKED`] rules. Boxed, so that groups without this map are
    /// small.
    services: Option<Box<Services>>,
}

/// The rules of exactly one service, by service.
#[derive(Clone, Debug)]
struct Services(HashMap<u32, Entries, Seeded>);

impl Group {
    /// Returns the list for a rule: the list of the rule's service, or `walked` if the rule is not found by service.
    /// Creates the list of a service if it does not exist.
    fn list(&mut self, entry: &Entry) -> &mut Entries {
        match (&mut self.services, entry.service()) {
            (Some(services), Some(service)) => services.0.entry(service).or_default(),
            _ => &mut self.walked,
        }
    }

    /// Adds a rule. A group that gets more than [`WALKED`] rules is subdivided by service, and stays so.
    fn insert(&mut self, entry: Entry, seed: Seeded) {
        if self.services.is_none() && self.walked.len() == WALKED {
            let mut services = Services(HashMap::with_hasher(seed));
            let mut walked = Entries::default();
            for entry in self.walked.row() {
                let list = entry.service().map_or(&mut walked, |service| services.0.entry(service).or_default());
                list.insert(*entry);
            }
            (self.walked, self.services) = (walked, Some(Box::new(services)));
        }
        self.list(&entry).insert(entry);
    }

    /// Removes a rule. Returns false if it is not in the group.
    fn remove(&mut self, entry: &Entry) -> bool {
        let list = self.list(entry);
        let removed = list.remove(entry);
        if let (0, Some(service), Some(services)) = (list.len(), entry.service(), &mut self.services) {
            services.0.remove(&service);
        }
        removed
    }

    fn is_empty(&self) -> bool {
        self.walked.len() == 0 && self.services.as_ref().is_none_or(|services| services.0.is_empty())
    }

    /// Returns the list of the rules of exactly the key's service, if there is one.
    #[inline]
    fn of_service<A: RuleAddress>(&self, key: &HeaderKey<A>) -> Option<&Entries> {
        self.services.as_ref()?.0.get(&service(key.protocol_word(), key.dport()))
    }

    /// Returns the first rule with a label below `before` that matches the key.
    #[inline]
    pub fn first<A: RuleAddress>(&self, key: &HeaderKey<A>, before: Label) -> Option<&Entry> {
        let first = self.walked.first(key, before);
        let before = first.map_or(before, |first| first.label);
        self.of_service(key).and_then(|list| list.first(key, before)).or(first)
    }

    /// Calls `with` with the number of each rule that matches and whose label is below `before`.
    #[inline]
    pub fn each<A: RuleAddress>(&self, key: &HeaderKey<A>, before: Label, mut with: impl FnMut(u32)) {
        self.walked.each(key, before, &mut with);
        if let Some(list) = self.of_service(key) {
            list.each(key, before, with);
        }
    }

    /// Returns the label of the first rule of the same shape.
    fn find(&self, entry: &Entry) -> Option<Label> {
        let list = match (&self.services, entry.service()) {
            (Some(services), Some(service)) => services.0.get(&service)?,
            _ => &self.walked,
        };
        list.find(entry)
    }
}

/// The numbers of a rule's source prefix and destination prefix.
pub type Pair = (u32, u32);

/// Groups of rules by pair of prefixes.
#[derive(Clone, Debug)]
pub struct Groups {
    groups: HashMap<u64, Group, Seeded>,
    rules: usize,
}

impl Groups {
    /// Creates an empty table with room for `room` pairs.
    pub fn new(room: usize, seed: Seeded) -> Groups {
        Groups { groups: HashMap::with_capacity_and_hasher(room, seed), rules: 0 }
    }

    /// Returns the number of rules.
    pub fn rules(&self) -> usize {
        self.rules
    }

    /// Adds a rule to its pair.
    pub fn insert(&mut self, pair: Pair, entry: Entry) {
        let seed = *self.groups.hasher();
        self.groups.entry(key(pair)).or_default().insert(entry, seed);
        self.rules += 1;
    }

    /// Removes a rule from its pair.
    pub fn remove(&mut self, pair: Pair, entry: &Entry) {
        let Some(group) = self.groups.get_mut(&key(pair)) else { return };
        self.rules -= usize::from(group.remove(entry));
        if group.is_empty() {
            self.groups.remove(&key(pair));
        }
    }

    /// Changes the label of a rule of this pair. The new label must not change the order of the rules.
    pub fn relabel(&mut self, pair: Pair, entry: &Entry, label: Label) {
        let Some(group) = self.groups.get_mut(&key(pair)) else { return };
        group.list(entry).relabel(entry, label);
    }

    /// Returns the label of the first rule of this pair with the same shape.
    pub fn find(&self, pair: Pair, entry: &Entry) -> Option<Label> {
        self.get(pair)?.find(entry)
    }

    /// Returns the group of a pair.
    #[inline]
    pub fn get(&self, pair: Pair) -> Option<&Group> {
        self.groups.get(&key(pair))
    }
}

#[inline]
fn key((source, destination): Pair) -> u64 {
    u64::from(source) << 32 | u64::from(destination)
}
