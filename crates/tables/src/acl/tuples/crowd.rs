//! Many rules of one pair of prefixes, in order. Equal rules are compared with a packet only once.
//!
//! Of equal rules only the first can decide. So a packet is compared only with the first rule of each shape
//! ([`RuleShape`]). These first rules have a map of their own. A second map has all rules, by shape. Inserting or
//! removing a rule, and finding the first of its shape, takes logarithmic time in the number of rules.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::super::key::HeaderKey;
use super::super::rule::RuleAddress;
use super::groups::{Entry, Label, RuleShape};

/// The rules of a long list, in order of their labels.
#[derive(Clone, Debug, Default)]
pub struct Crowd {
    /// The first rule of each shape.
    firsts: BTreeMap<Label, Entry>,
    /// The numbers under which the rules are counted, by shape and then in order.
    by_shape: BTreeMap<(RuleShape, Label), u32>,
}

fn all_of_shape(shape: RuleShape) -> RangeInclusive<(RuleShape, Label)> {
    (shape, Label::MIN)..=(shape, Label::MAX)
}

impl Crowd {
    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.by_shape.len()
    }

    /// Returns the label of the first rule of a shape.
    pub fn find(&self, shape: RuleShape) -> Option<Label> {
        self.by_shape.range(all_of_shape(shape)).next().map(|((_, label), _)| *label)
    }

    /// Adds a rule.
    pub fn insert(&mut self, entry: Entry) {
        let shape = entry.shape();
        let first = self.find(shape);
        if first.is_none_or(|first| entry.label < first) {
            first.and_then(|first| self.firsts.remove(&first));
            self.firsts.insert(entry.label, entry);
        }
        self.by_shape.insert((shape, entry.label), entry.number);
    }

    /// Removes a rule. Returns false if it is not in the list.
    pub fn remove(&mut self, entry: &Entry) -> bool {
        let shape = entry.shape();
        if self.by_shape.remove(&(shape, entry.label)).is_none() {
            return false;
        }
        if let Some(removed) = self.firsts.remove(&entry.label)
            && let Some((&(_, label), &number)) = self.by_shape.range(all_of_shape(shape)).next()
        {
            self.firsts.insert(label, removed.with_position(label, number));
        }
        true
    }

    /// Changes the label of a rule. The new label must not change the order of the rules.
    pub fn relabel(&mut self, entry: &Entry, label: Label) {
        let shape = entry.shape();
        if let Some(number) = self.by_shape.remove(&(shape, entry.label)) {
            self.by_shape.insert((shape, label), number);
        }
        if let Some(first) = self.firsts.remove(&entry.label) {
            self.firsts.insert(label, first.with_position(label, first.number));
        }
    }

    /// Returns the first rule with a label below `before` that matches the key.
    pub fn first<A: RuleAddress>(&self, key: &HeaderKey<A>, before: Label) -> Option<&Entry> {
        self.firsts.range(..before).map(|(_, entry)| entry).find(|entry| entry.matches(key))
    }

    /// Calls `with` with the number of each rule that matches and whose label is below `before`.
    pub fn each<A: RuleAddress>(&self, key: &HeaderKey<A>, before: Label, mut with: impl FnMut(u32)) {
        for entry in self.firsts.range(..before).map(|(_, entry)| entry).filter(|entry| entry.matches(key)) {
            let shape = entry.shape();
            self.by_shape.range((shape, entry.label)..(shape, before)).for_each(|(_, number)| with(*number));
        }
    }

    /// Returns all rules in order.
    pub fn into_entries(self) -> Vec<Entry> {
        let firsts_by_shape: BTreeMap<RuleShape, Entry> =
            self.firsts.into_values().map(|entry| (entry.shape(), entry)).collect();
        let entry = |((shape, label), number)| firsts_by_shape.get(&shape).map(|of| of.with_position(label, number));
        let mut entries: Vec<Entry> = self.by_shape.into_iter().filter_map(entry).collect();
        entries.sort_unstable_by_key(|entry| entry.label);
        entries
    }
}
