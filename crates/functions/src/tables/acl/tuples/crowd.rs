//! Many rules of one pair of prefixes and one service, in order, where equal ones are looked at as one.
//!
//! Of equal rules only the first can decide, so packets walk the first of each kind; the others wait behind it. A rule comes
//! and goes, and the first of its kind is found, in as many steps as the number of rules has binary digits.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::super::key::Key;
use super::super::rule::Address;
use super::groups::{Entry, Kind, Label};

/// Rules in their order.
#[derive(Clone, Debug, Default)]
pub struct Crowd {
    /// The first of each kind.
    firsts: BTreeMap<Label, Entry>,
    /// All by kind, and in order within one: what they are counted under.
    kinds: BTreeMap<(Kind, Label), u32>,
}

fn every(kind: Kind) -> RangeInclusive<(Kind, Label)> {
    (kind, Label::MIN)..=(kind, Label::MAX)
}

impl Crowd {
    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// The label of the first rule of a kind.
    pub fn find(&self, kind: Kind) -> Option<Label> {
        self.kinds.range(every(kind)).next().map(|((_, label), _)| *label)
    }

    /// Adds a rule.
    pub fn insert(&mut self, entry: Entry) {
        let kind = entry.kind();
        let first = self.find(kind);
        if first.is_none_or(|first| entry.label < first) {
            first.and_then(|first| self.firsts.remove(&first));
            self.firsts.insert(entry.label, entry);
        }
        self.kinds.insert((kind, entry.label), entry.number);
    }

    /// Takes a rule out; false where there is none such.
    pub fn remove(&mut self, entry: &Entry) -> bool {
        let kind = entry.kind();
        if self.kinds.remove(&(kind, entry.label)).is_none() {
            return false;
        }
        if let Some(gone) = self.firsts.remove(&entry.label)
            && let Some((&(_, label), &number)) = self.kinds.range(every(kind)).next()
        {
            self.firsts.insert(label, gone.placed(label, number));
        }
        true
    }

    /// Gives a rule another label, between the same neighbours.
    pub fn relabel(&mut self, entry: &Entry, label: Label) {
        let kind = entry.kind();
        if let Some(number) = self.kinds.remove(&(kind, entry.label)) {
            self.kinds.insert((kind, label), number);
        }
        if let Some(first) = self.firsts.remove(&entry.label) {
            self.firsts.insert(label, first.placed(label, first.number));
        }
    }

    /// The first rule that matches, if it comes before the one labelled so.
    pub fn first<A: Address>(&self, key: &Key<A>, before: Label) -> Option<&Entry> {
        self.firsts.range(..before).map(|(_, entry)| entry).find(|entry| entry.holds(key))
    }

    /// Calls `with` for what each rule is counted under that matches and comes before the one labelled so.
    pub fn each<A: Address>(&self, key: &Key<A>, before: Label, mut with: impl FnMut(u32)) {
        for entry in self.firsts.range(..before).map(|(_, entry)| entry).filter(|entry| entry.holds(key)) {
            let kind = entry.kind();
            self.kinds.range((kind, entry.label)..(kind, before)).for_each(|(_, number)| with(*number));
        }
    }

    /// All rules in order.
    pub fn into_entries(self) -> Vec<Entry> {
        let by_kind: BTreeMap<Kind, Entry> = self.firsts.into_values().map(|entry| (entry.kind(), entry)).collect();
        let entry = |((kind, label), number)| by_kind.get(&kind).map(|of| of.placed(label, number));
        let mut entries: Vec<Entry> = self.kinds.into_iter().filter_map(entry).collect();
        entries.sort_unstable_by_key(|entry| entry.label);
        entries
    }
}
