//! Rules by what they can match: of most packets a few loads say that none does.
//!
//! Rules are parted by protocol, and within it by ports: those of given destination ports, those of given source ports, and all
//! others. A group's rules are found by one content each, sought for all of them at once; only rules whose content is there are
//! looked at. A packet is looked through for up to three groups, by turns with other packets.

use std::collections::{BTreeMap, HashMap};

use super::check::Sought;
use super::parse::Skipped;
use super::plan::{Parts, Plan, Ports};
use super::rule::{Action, Rule};
use super::view::View;
use crate::inspection::strings::{BuildError, Strings};

/// Rules that are sought together.
#[derive(Default)]
pub struct Group {
    /// What its rules are found by.
    pub strings: Option<Strings>,
    /// The number of its first string among those of all groups.
    pub first: usize,
    /// By string.
    pub rules: Vec<Box<[u32]>>,
    /// Rules that no content need be there for.
    pub always: Box<[u32]>,
}

/// Rules of one protocol.
#[derive(Default)]
struct Family {
    any: Group,
    by_source: Ported,
    by_destination: Ported,
}

/// Groups by port.
#[derive(Default)]
struct Ported {
    /// By port, the group's number and one; 0 for none. Empty where there are no groups.
    numbers: Box<[u16]>,
    groups: Vec<Group>,
}

impl Ported {
    #[inline]
    fn get(&self, port: u16) -> Option<&Group> {
        self.groups.get(usize::from(*self.numbers.get(usize::from(port))?).checked_sub(1)?)
    }
}

/// All rules.
pub struct Ruleset {
    /// In the file's order.
    pub rules: Vec<Rule>,
    /// By rule.
    pub sought: Vec<Sought>,
    /// Lines of the file that were skipped.
    pub skipped: Vec<Skipped>,
    /// Descriptions of classes that the file has.
    pub categories: BTreeMap<String, String>,
    /// Names of the bits that rules keep for sessions, by their numbers.
    pub bits: Vec<String>,
    families: [Family; 4],
    /// Whether any rule drops.
    pub drops: bool,
    /// How many strings all groups have.
    pub strings: usize,
}

impl Ruleset {
    /// Puts rules into groups.
    ///
    /// # Errors
    /// They are too much.
    pub fn new(rules: Vec<Rule>) -> Result<Self, BuildError> {
        let sought = rules.iter().map(Sought::of).collect();
        let drops = rules.iter().any(|rule| rule.action == Action::Drop);
        let mut strings = 0;
        let Plan([tcp, udp, icmp, ip]) = Plan::new(&rules);
        let mut family = |parts| Family::new(&rules, parts, &mut strings);
        let families = [family(tcp)?, family(udp)?, family(icmp)?, family(ip)?];
        Ok(Self {
            sought,
            skipped: Vec::new(),
            categories: BTreeMap::new(),
            bits: Vec::new(),
            families,
            drops,
            strings,
            rules,
        })
    }

    /// The groups that have rules for a packet.
    #[inline]
    #[must_use]
    pub fn groups(&self, view: &View) -> [Option<&Group>; 3] {
        let family = &self.families[view.protocol() as usize];
        match view.ports {
            Some((from, to)) => [Some(&family.any), family.by_destination.get(to), family.by_source.get(from)],
            None => [Some(&family.any), None, None],
        }
    }

    /// How many groups there are, and what they take in memory, in bytes.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let groups = || {
            self.families.iter().flat_map(|family| {
                std::iter::once(&family.any).chain(&family.by_source.groups).chain(&family.by_destination.groups)
            })
        };
        let used = groups().filter(|group| !group.rules.is_empty() || !group.always.is_empty()).count();
        (used, groups().filter_map(|group| group.strings.as_ref()).map(Strings::memory_bytes).sum())
    }
}

impl Family {
    fn new(all: &[Rule], parts: Parts, strings: &mut usize) -> Result<Self, BuildError> {
        let Parts { any, by_source, by_destination } = parts;
        Ok(Self {
            any: Group::new(all, any, strings)?,
            by_source: Ported::new(all, by_source, strings)?,
            by_destination: Ported::new(all, by_destination, strings)?,
        })
    }
}

impl Ported {
    fn new(all: &[Rule], Ports { numbers, sets }: Ports, strings: &mut usize) -> Result<Self, BuildError> {
        let groups = sets.into_iter().map(|set| Group::new(all, set, strings)).collect::<Result<_, _>>()?;
        Ok(Self { numbers, groups })
    }
}

impl Group {
    /// Of rules by their places, each once.
    fn new(all: &[Rule], numbers: Vec<u32>, strings: &mut usize) -> Result<Self, BuildError> {
        let mut always = Vec::new();
        let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
        let (mut texts, mut rules): (Vec<Vec<u8>>, Vec<Vec<u32>>) = (Vec::new(), Vec::new());
        for number in numbers {
            let Some(text) = all[number as usize].folded() else {
                always.push(number);
                continue;
            };
            let place = *places.entry(text.clone()).or_insert_with(|| {
                texts.push(text);
                rules.push(Vec::new());
                texts.len() - 1
            });
            rules[place].push(number);
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
