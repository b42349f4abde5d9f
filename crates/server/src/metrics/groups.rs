//! Aggregates: 64 and more equal modules or flows become one series, which bounds the number of series.
//!
//! A pipeline with a branch per tenant has hundreds of modules that differ only by a number. Their series would cost
//! more to scrape, and to store, than all others together.

use std::collections::{BTreeMap, HashMap, HashSet};

use forebay_protocol::report::{FlowReport, ModuleReport};

/// The smallest number of equal elements that become one series.
pub const LEAST: usize = 64;

/// A series, and the elements that it covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// The value of the series' label: the element's name, or for an aggregate a pattern (`acl*`).
    pub(super) label: String,
    /// The indices of the elements, ascending; at least one.
    pub(super) members: Vec<usize>,
    /// Whether the series is an aggregate.
    pub(super) is_aggregate: bool,
}

/// The series of a report's modules or flows.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups {
    /// The series, in the order of their first elements.
    pub(super) groups: Vec<Group>,
    /// The label of each name.
    labels: HashMap<String, String>,
}

impl Groups {
    /// Divides modules. Modules with the same function and with names that differ only by digits are equal, and so are
    /// the modules of a fold. `strangers` are names of modules that the report mentions, but no longer has. If `all` is
    /// true, there are no aggregates.
    pub(super) fn of_modules<'r>(
        modules: &'r [ModuleReport],
        strangers: impl Iterator<Item = &'r str>,
        all: bool,
    ) -> Self {
        let names: Vec<_> = modules.iter().map(|module| module.name.as_str()).collect();
        let mut division = Division::new(&names, all);
        division.combine(|at| {
            let pattern = pattern_of(names[at])?;
            Some(((&*modules[at].function, pattern.clone()), pattern))
        });
        division.combine(|at| {
            let leader = modules[at].folded.as_deref()?;
            Some((leader, pattern_of(leader).unwrap_or_else(|| format!("{leader}*"))))
        });
        let mut groups = division.finish();
        if !all {
            groups.add_strangers(strangers);
        }
        groups
    }

    /// Divides flows. Flows with names that differ only by digits are equal.
    pub(super) fn of_flows(flows: &[FlowReport], all: bool) -> Self {
        let names: Vec<_> = flows.iter().map(|flow| flow.name.as_str()).collect();
        let mut division = Division::new(&names, all);
        division.combine(|at| pattern_of(names[at]).map(|pattern| (pattern.clone(), pattern)));
        division.finish()
    }

    /// Returns the label of the series that covers an element.
    pub(super) fn label<'g>(&'g self, name: &'g str) -> &'g str {
        self.labels.get(name).map_or(name, String::as_str)
    }

    /// Gives labels to names of modules that no longer exist, so that a configuration whose modules change often does
    /// not add series without bound. Such a name joins the aggregate with its pattern, or forms one with others.
    fn add_strangers<'r>(&mut self, strangers: impl Iterator<Item = &'r str>) {
        let mut by_pattern: BTreeMap<String, HashSet<&str>> = BTreeMap::new();
        for name in strangers.filter(|name| !self.labels.contains_key(*name)) {
            if let Some(pattern) = pattern_of(name) {
                by_pattern.entry(pattern).or_default().insert(name);
            }
        }
        for (pattern, names) in by_pattern {
            let is_known = self.groups.iter().any(|group| group.is_aggregate && group.label == pattern);
            if is_known || names.len() >= LEAST {
                self.labels.extend(names.into_iter().map(|name| (name.to_owned(), pattern.clone())));
            }
        }
    }
}

/// A division in progress.
struct Division<'n> {
    names: &'n [&'n str],
    all: bool,
    /// For each element, the index of its aggregate.
    aggregate_of: Vec<Option<usize>>,
    /// The labels of the aggregates.
    aggregates: Vec<String>,
}

impl<'n> Division<'n> {
    fn new(names: &'n [&'n str], all: bool) -> Self {
        Self { names, all, aggregate_of: vec![None; names.len()], aggregates: Vec::new() }
    }

    /// Combines elements that are in no aggregate yet and have the same key, if they are many. `key` returns the key of
    /// an element, and the label of an aggregate with this key.
    fn combine<K: Eq + std::hash::Hash>(&mut self, key: impl Fn(usize) -> Option<(K, String)>) {
        if self.all {
            return;
        }
        let mut classes: HashMap<K, (String, Vec<usize>)> = HashMap::new();
        for at in (0..self.names.len()).filter(|at| self.aggregate_of[*at].is_none()) {
            if let Some((key, label)) = key(at) {
                classes.entry(key).or_insert_with(|| (label, Vec::new())).1.push(at);
            }
        }
        let mut classes: Vec<_> = classes.into_values().filter(|(_, members)| members.len() >= LEAST).collect();
        classes.sort_by_key(|(_, members)| members[0]);
        for (mut label, members) in classes {
            // Two aggregates may have the same pattern and different functions.
            while self.aggregates.contains(&label) || self.names.contains(&label.as_str()) {
                label.push('*');
            }
            members.iter().for_each(|at| self.aggregate_of[*at] = Some(self.aggregates.len()));
            self.aggregates.push(label);
        }
    }

    fn finish(self) -> Groups {
        let mut groups: Vec<Group> = Vec::new();
        let mut group_of: Vec<Option<usize>> = vec![None; self.aggregates.len()];
        for (at, aggregate) in self.aggregate_of.iter().enumerate() {
            let Some(aggregate) = aggregate else {
                groups.push(Group { label: self.names[at].to_owned(), members: vec![at], is_aggregate: false });
                continue;
            };
            match group_of[*aggregate] {
                Some(group) => groups[group].members.push(at),
                None => {
                    group_of[*aggregate] = Some(groups.len());
                    let label = self.aggregates[*aggregate].clone();
                    groups.push(Group { label, members: vec![at], is_aggregate: true });
                }
            }
        }
        let labels = groups.iter().flat_map(|group| group.members.iter().map(move |at| (*at, &group.label)));
        let labels = labels.map(|(at, label)| (self.names[at].to_owned(), label.clone())).collect();
        Groups { groups, labels }
    }
}

/// Returns the name with a `*` in place of each number. `None` if there is no number.
fn pattern_of(name: &str) -> Option<String> {
    let mut pattern = String::with_capacity(name.len());
    for character in name.chars() {
        match character {
            '0'..='9' if pattern.ends_with('*') => {}
            '0'..='9' => pattern.push('*'),
            _ => pattern.push(character),
        }
    }
    name.contains(|character: char| character.is_ascii_digit()).then_some(pattern)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{flow, module};
    use super::*;

    fn labels(groups: &Groups) -> Vec<(&str, usize)> {
        groups.groups.iter().map(|group| (group.label.as_str(), group.members.len())).collect()
    }

    #[test]
    fn numbers_become_stars() {
        assert_eq!(pattern_of("acl12").as_deref(), Some("acl*"));
        assert_eq!(pattern_of("gw1-acl12_b").as_deref(), Some("gw*-acl*_b"));
        assert_eq!(pattern_of("route"), None);
    }

    #[test]
    fn from_64_equal_modules_on_there_is_one_series() {
        let mut modules = vec![module("in", "ip_validate")];
        modules.extend((0..63).map(|at| module(&format!("acl{at}"), "acl")));
        let none = std::iter::empty::<&'static str>;
        assert_eq!(Groups::of_modules(&modules, none(), false).groups.len(), 64, "63 are too few");
        modules.push(module("acl63", "acl"));
        modules.push(module("acl64", "nat"));
        let groups = Groups::of_modules(&modules, none(), false);
        assert_eq!(labels(&groups), [("in", 1), ("acl*", 64), ("acl64", 1)], "another function is not equal");
        assert_eq!([groups.label("acl7"), groups.label("acl64"), groups.label("out")], ["acl*", "acl64", "out"]);
        assert_eq!(Groups::of_modules(&modules, none(), true).groups.len(), 66);
    }

    #[test]
    fn the_modules_of_a_fold_are_equal() {
        let letters = |at: u8| [b'a' + at / 26, b'a' + at % 26].map(char::from).iter().collect::<String>();
        let folded = |at: u8| ModuleReport { folded: Some("aa".to_owned()), ..module(&letters(at), "acl") };
        let modules: Vec<_> = (0..64).map(folded).collect();
        let groups = Groups::of_modules(&modules, std::iter::empty(), false);
        assert_eq!(labels(&groups), [("aa*", 64)]);
    }

    #[test]
    fn labels_of_aggregates_are_unique() {
        let named =
            |from: usize, function: &'static str| (from..from + 64).map(move |at| module(&format!("x{at}"), function));
        let modules: Vec<_> = named(0, "acl").chain(named(64, "nat")).chain([module("x**", "dpi")]).collect();
        let groups = Groups::of_modules(&modules, std::iter::empty(), false);
        assert_eq!(labels(&groups), [("x*", 64), ("x***", 64), ("x**", 1)]);
    }

    #[test]
    fn removed_modules_join_aggregates() {
        let modules: Vec<_> = (0..64).map(|at| module(&format!("acl{at}"), "acl")).collect();
        let nats: Vec<_> = (0..64).map(|at| format!("nat{at}")).collect();
        let strangers = ["acl99", "vlan7"].into_iter().chain(nats.iter().map(String::as_str));
        let groups = Groups::of_modules(&modules, strangers, false);
        assert_eq!(["acl99", "vlan7", "nat5"].map(|name| groups.label(name)), ["acl*", "vlan7", "nat*"]);
        assert_eq!(groups.groups.len(), 1);
    }

    #[test]
    fn flows_are_equal_by_their_names() {
        let flows: Vec<_> = (0..64).map(|at| flow(&format!("tenant{at}"))).chain([flow("rest")]).collect();
        assert_eq!(labels(&Groups::of_flows(&flows, false)), [("tenant*", 64), ("rest", 1)]);
        assert_eq!(Groups::of_flows(&flows, true).groups.len(), 65);
    }
}
