//! Rules by their pair of prefixes, and within a pair by their service where there are many.

use std::collections::HashMap;

use super::super::key::{Key, NO_PORTS, TYPED};
use super::super::rule::{Action, Address, Rule};
use super::crowd::Crowd;
use super::fold::Seeded;

/// Rules of one pair of prefixes that are walked one by one; where there are more, those of one protocol and one
/// destination port are found by these.
const WALKED: usize = 8;

/// Rules of one list that are kept in a row; where there are more, they are kept so that each comes and goes in few steps.
const ROW: usize = 64;
/// So few are kept in a row again.
const ROW_AGAIN: usize = 16;

/// Where a rule stands in its list: the lower label is asked first.
pub type Label = u64;

/// What rules that are equal but for their addresses have in common: ports, protocol and action.
pub type Kind = u128;

/// What is left of a rule when its addresses match.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub label: Label,
    /// What it is counted under.
    pub number: u32,
    sport: (u16, u16),
    dport: (u16, u16),
    /// The wanted protocol word and which of its bits count: for a rule about ports, that there are any is one, and for
    /// one about ICMP's types, that there is one.
    protocol: (u16, u16),
    pub action: Action,
}

impl Entry {
    /// The entry of a rule.
    pub fn new<A: Address>(rule: &Rule<A>, label: Label, number: u32) -> Entry {
        let (wanted, counts) = match (rule.constrains_icmp(), rule.constrains_ports()) {
            (true, _) => (NO_PORTS | TYPED, NO_PORTS | TYPED),
            (false, true) => (0, NO_PORTS),
            (false, false) => (0, 0),
        };
        Entry {
            label,
            number,
            sport: (rule.sport.low(), rule.sport.high()),
            dport: (rule.dport.low(), rule.dport.high()),
            protocol: (u16::from(rule.protocol.value()) | wanted, u16::from(rule.protocol.mask()) | counts),
            action: rule.action,
        }
    }

    /// An equal rule that stands elsewhere.
    pub fn placed(self, label: Label, number: u32) -> Entry {
        Entry { label, number, ..self }
    }

    /// Whether the key's ports and protocol match.
    #[inline]
    pub fn holds<A: Address>(&self, key: &Key<A>) -> bool {
        let between = |(low, high): (u16, u16), port: u16| (low <= port) & (port <= high);
        let (value, mask) = self.protocol;
        (key.protocol_word() & mask == value) & between(self.sport, key.sport()) & between(self.dport, key.dport())
    }

    /// Equal for rules that are equal but for their addresses, and for no others.
    pub fn kind(&self) -> Kind {
        let ports = [self.sport.0, self.sport.1, self.dport.0, self.dport.1, self.protocol.0, self.protocol.1];
        ports.into_iter().fold(self.action as Kind, |kind, field| kind << 16 | Kind::from(field))
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
    /// More than a [`ROW`] at some time, and since then more than [`ROW_AGAIN`].
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

    /// Those that are kept in a row.
    #[inline]
    fn row(&self) -> &[Entry] {
        match self {
            Entries::One(entry) => std::slice::from_ref(entry),
            Entries::Many(entries) => entries,
            Entries::Crowd(_) => &[],
        }
    }

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

    /// Where one that is kept in a row is.
    fn at(&self, label: Label) -> Option<usize> {
        self.row().binary_search_by_key(&label, |entry| entry.label).ok()
    }

    /// Takes a rule out; false where there is none such.
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

    /// The first rule that is equal to this one.
    fn find(&self, entry: &Entry) -> Option<Label> {
        match self {
            Entries::Crowd(crowd) => crowd.find(entry.kind()),
            _ => self.row().iter().find(|other| other.kind() == entry.kind()).map(|other| other.label),
        }
    }

    /// The first rule that matches, if it comes before the one labelled so.
    #[inline]
    fn first<A: Address>(&self, key: &Key<A>, before: Label) -> Option<&Entry> {
        if let Entries::Crowd(crowd) = self {
            return crowd.first(key, before);
        }
        self.row().iter().take_while(|entry| entry.label < before).find(|entry| entry.holds(key))
    }

    /// Calls `with` for what each rule is counted under that matches and comes before the one labelled so.
    #[inline]
    fn each<A: Address>(&self, key: &Key<A>, before: Label, mut with: impl FnMut(u32)) {
        if let Entries::Crowd(crowd) = self {
            return crowd.each(key, before, with);
        }
        let earlier = self.row().iter().take_while(|entry| entry.label < before);
        earlier.filter(|entry| entry.holds(key)).for_each(|entry| with(entry.number));
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

    /// Takes a rule out; false where there is none such.
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

    /// The list of the rules of the key's service alone, where there are such.
    #[inline]
    fn of_service<A: Address>(&self, key: &Key<A>) -> Option<&Entries> {
        self.services.as_ref()?.0.get(&service(key.protocol_word(), key.dport()))
    }

    /// The first rule that matches, if it comes before the one labelled so.
    #[inline]
    pub fn first<A: Address>(&self, key: &Key<A>, before: Label) -> Option<&Entry> {
        let first = self.walked.first(key, before);
        let before = first.map_or(before, |first| first.label);
        self.of_service(key).and_then(|list| list.first(key, before)).or(first)
    }

    /// Calls `with` for what each rule is counted under that matches and comes before the one labelled so.
    #[inline]
    pub fn each<A: Address>(&self, key: &Key<A>, before: Label, mut with: impl FnMut(u32)) {
        self.walked.each(key, before, &mut with);
        if let Some(list) = self.of_service(key) {
            list.each(key, before, with);
        }
    }

    /// The first rule that is equal to this one.
    fn find(&self, entry: &Entry) -> Option<Label> {
        let list = match (&self.services, entry.service()) {
            (Some(services), Some(service)) => services.0.get(&service)?,
            _ => &self.walked,
        };
        list.find(entry)
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
        self.rules -= usize::from(group.remove(entry));
        if group.is_empty() {
            self.groups.remove(&key(pair));
        }
    }

    /// Gives a rule of this pair another label, between the same neighbours.
    pub fn relabel(&mut self, pair: Pair, entry: &Entry, label: Label) {
        let Some(group) = self.groups.get_mut(&key(pair)) else { return };
        group.list(entry).relabel(entry, label);
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
