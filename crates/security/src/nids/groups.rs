//! Rules, grouped by the packets that they can match. For most packets, a few memory reads are enough to find that no
//! rule matches.
//!
//! Rules are divided by protocol and then by port: rules with given destination ports, rules with given source ports,
//! and all others. Each rule of a group is found by one of the rule's contents. The contents of all rules of a group
//! are searched at once, and only rules whose content occurs are tested. A payload is searched for up to three groups,
//! interleaved with other packets.

use std::collections::{BTreeMap, HashMap};

use super::check::ContentFinders;
use super::parse::Skipped;
use super::plan::{Plan, ProtocolRules, RulesByPort};
use super::rule::{Action, Rule};
use super::view::View;
use crate::inspection::strings::{BuildError, Strings};

/// Rules that are searched together.
#[derive(Default)]
pub struct Group {
    /// The strings by which the group's rules are found; `None` if no rule is found by a string.
    pub strings: Option<Strings>,
    /// The number of the group's first string. The strings of all groups of a module are numbered in sequence.
    pub first: usize,
    /// The rules of each string, by index in [`Ruleset::rules`].
    pub rules: Vec<Box<[u32]>>,
    /// The group's rules that are not found by a string, by index. They are always tested.
    pub always: Box<[u32]>,
}

/// The rules of one protocol.
#[derive(Default)]
struct ProtocolGroups {
    /// Rules that are tested whatever the ports are.
    any: Group,
    /// Rules that are found by source port.
    by_source: GroupsByPort,
    /// Rules that are found by destination port.
    by_destination: GroupsByPort,
}

/// Groups by port.
#[derive(Default)]
struct GroupsByPort {
    /// For each port, the index of its group in `groups` plus 1; 0 if the port has no group. Empty if there are no
    /// groups.
    numbers: Box<[u32]>,
    groups: Vec<Group>,
}

impl GroupsByPort {
    /// Returns the group of a port.
    #[inline]
    fn get(&self, port: u16) -> Option<&Group> {
        self.groups.get((*self.numbers.get(usize::from(port))? as usize).checked_sub(1)?)
    }
}

/// The rules of a module, and their groups.
pub struct Ruleset {
    /// The rules in the order of the file.
    pub rules: Vec<Rule>,
    /// The searchers of each rule's contents.
    pub finders: Vec<ContentFinders>,
    /// The lines of the file that were skipped.
    pub skipped: Vec<Skipped>,
    /// The descriptions of classes in the file.
    pub categories: BTreeMap<String, String>,
    /// The names of the bits that rules keep for sessions, by number.
    pub bits: Vec<String>,
    /// The groups by `Protocol`, in the order of its values.
    protocols: [ProtocolGroups; 4],
    /// True if any rule drops packets.
    pub drops: bool,
    /// The number of strings of all groups.
    pub strings: usize,
}

impl Ruleset {
    /// Divides rules into groups. The caller sets `skipped`, `categories` and `bits`, which are empty at first.
    ///
    /// # Errors
    /// The rules are too large.
    pub fn new(rules: Vec<Rule>) -> Result<Self, BuildError> {
        let finders = rules.iter().map(ContentFinders::of).collect();
        let drops = rules.iter().any(|rule| rule.action == Action::Drop);
        let mut strings = 0;
        let Plan([tcp, udp, icmp, ip]) = Plan::new(&rules);
        let mut protocol = |parts| ProtocolGroups::new(&rules, parts, &mut strings);
        let protocols = [protocol(tcp)?, protocol(udp)?, protocol(icmp)?, protocol(ip)?];
        Ok(Self {
            finders,
            skipped: Vec::new(),
            categories: BTreeMap::new(),
            bits: Vec::new(),
            protocols,
            drops,
            strings,
            rules,
        })
    }

    /// Returns the groups whose rules may match a packet: for all ports, by destination port, and by source port.
    #[inline]
    #[must_use]
    pub fn groups(&self, view: &View) -> [Option<&Group>; 3] {
        let protocol = &self.protocols[view.protocol() as usize];
        match view.ports {
            Some((from, to)) => [Some(&protocol.any), protocol.by_destination.get(to), protocol.by_source.get(from)],
            None => [Some(&protocol.any), None, None],
        }
    }

    /// Returns the number of groups and the memory of their strings, in bytes.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let groups = || {
            self.protocols.iter().flat_map(|protocol| {
                std::iter::once(&protocol.any).chain(&protocol.by_source.groups).chain(&protocol.by_destination.groups)
            })
        };
        let used = groups().filter(|group| !group.rules.is_empty() || !group.always.is_empty()).count();
        (used, groups().filter_map(|group| group.strings.as_ref()).map(Strings::memory_bytes).sum())
    }
}

impl ProtocolGroups {
    fn new(all: &[Rule], parts: ProtocolRules, strings: &mut usize) -> Result<Self, BuildError> {
        let ProtocolRules { any, by_source, by_destination } = parts;
        Ok(Self {
            any: Group::new(all, any, strings)?,
            by_source: GroupsByPort::new(all, by_source, strings)?,
            by_destination: GroupsByPort::new(all, by_destination, strings)?,
        })
    }
}

impl GroupsByPort {
    fn new(all: &[Rule], RulesByPort { numbers, sets }: RulesByPort, strings: &mut usize) -> Result<Self, BuildError> {
        let groups = sets.into_iter().map(|set| Group::new(all, set, strings)).collect::<Result<_, _>>()?;
        Ok(Self { numbers, groups })
    }
}

impl Group {
    /// Builds a group of rules. `numbers` has the index in `all` of each of these rules once. `strings` is the number
    /// of strings of all groups so far, and is increased by the strings of this group.
    fn new(all: &[Rule], numbers: Vec<u32>, strings: &mut usize) -> Result<Self, BuildError> {
        let mut always = Vec::new();
        let mut indices: HashMap<Vec<u8>, usize> = HashMap::new();
        let (mut texts, mut rules): (Vec<Vec<u8>>, Vec<Vec<u32>>) = (Vec::new(), Vec::new());
        for number in numbers {
            let Some(text) = all[number as usize].folded() else {
                always.push(number);
                continue;
            };
            let index = *indices.entry(text.clone()).or_insert_with(|| {
                texts.push(text);
                rules.push(Vec::new());
                texts.len() - 1
            });
            rules[index].push(number);
        }
        let given: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
        let compiled = if given.is_empty() { None } else { Some(Strings::new(&given, true)?) };
        let first = *strings;
        *strings += texts.len();
        Ok(Self {
            strings: compiled,
            first,
            rules: rules.into_iter().map(Vec::into_boxed_slice).collect(),
            always: always.into(),
        })
    }
}
