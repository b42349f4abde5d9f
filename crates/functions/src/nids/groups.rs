//! Rules by what they can match: of most packets a few loads say that none does.
//!
//! Rules are parted by protocol, and within it by ports: those of given destination ports, those of given source ports, and all
//! others. A group's rules are found by one content each, sought for all of them at once; only rules whose content is there are
//! looked at. A packet is looked through for up to three groups, by turns with other packets.

use std::collections::HashMap;

use super::check::Sought;
use super::parse::is_any;
use super::ranges::Ranges;
use super::rule::{Protocol, Rule};
use super::view::View;
use crate::inspection::strings::{BuildError, Strings};

/// A rule that more ports are for than these is one for any: it would be in every group.
const MANY_PORTS: u128 = 4_096;

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
    families: [Family; 4],
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
        let mut strings = 0;
        let mut family = |protocol| Family::new(&rules, protocol, &mut strings);
        let families = [family(Protocol::Tcp)?, family(Protocol::Udp)?, family(Protocol::Icmp)?, family(Protocol::Ip)?];
        Ok(Self { sought, families, strings, rules })
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

/// Where a rule is put.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Any,
    Source,
    Destination,
}

/// By which of its ports a rule is found that goes this way.
fn role(source: &Ranges, destination: &Ranges) -> Role {
    let few = |ports: &Ranges| {
        !is_any(ports) && ports.ranges().iter().map(|(first, last)| last - first + 1).sum::<u128>() <= MANY_PORTS
    };
    if few(destination) {
        Role::Destination
    } else if few(source) {
        Role::Source
    } else {
        Role::Any
    }
}

impl Family {
    fn new(all: &[Rule], protocol: Protocol, strings: &mut usize) -> Result<Self, BuildError> {
        let mut any = Vec::new();
        let mut ported: [Vec<(&Ranges, u32)>; 2] = Default::default();
        for (number, rule) in (0u32..).zip(all) {
            if rule.protocol != protocol && rule.protocol != Protocol::Ip {
                continue;
            }
            let ways = [(&rule.source_ports, &rule.destination_ports), (&rule.destination_ports, &rule.source_ports)];
            for (source, destination) in &ways[..if rule.both { 2 } else { 1 }] {
                match role(source, destination) {
                    Role::Any => any.push(number),
                    Role::Source => ported[0].push((source, number)),
                    Role::Destination => ported[1].push((destination, number)),
                }
            }
        }
        let any = Group::new(all, any, strings)?;
        let [source, destination] = ported;
        Ok(Self {
            any,
            by_source: Ported::new(all, &source, strings)?,
            by_destination: Ported::new(all, &destination, strings)?,
        })
    }
}

impl Ported {
    /// Ports that the same rules are for are one group.
    fn new(all: &[Rule], rules: &[(&Ranges, u32)], strings: &mut usize) -> Result<Self, BuildError> {
        if rules.is_empty() {
            return Ok(Self::default());
        }
        let mut of_port: Vec<Vec<u32>> = vec![Vec::new(); 1 << 16];
        for (ports, rule) in rules {
            for port in ports.ranges().iter().flat_map(|(first, last)| *first..=*last) {
                of_port[port as usize].push(*rule);
            }
        }
        let mut known: HashMap<Vec<u32>, u16> = HashMap::new();
        let (mut groups, mut numbers) = (Vec::new(), vec![0u16; 1 << 16]);
        for (number, rules) in numbers.iter_mut().zip(of_port) {
            if rules.is_empty() {
                continue;
            }
            *number = match known.get(&rules) {
                Some(known) => *known,
                None => {
                    groups.push(Group::new(all, rules.clone(), strings)?);
                    // At most as many as ports, less those without any: one too many is none.
                    let number = u16::try_from(groups.len()).unwrap_or(0);
                    known.insert(rules, number);
                    number
                }
            };
        }
        Ok(Self { numbers: numbers.into(), groups })
    }
}

impl Group {
    fn new(all: &[Rule], mut numbers: Vec<u32>, strings: &mut usize) -> Result<Self, BuildError> {
        numbers.sort_unstable();
        numbers.dedup();
        let mut always = Vec::new();
        let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
        let (mut texts, mut rules): (Vec<Vec<u8>>, Vec<Vec<u32>>) = (Vec::new(), Vec::new());
        for number in numbers {
            // In either case: whether it is the right one the rule itself says.
            let Some(text) = all[number as usize].fast().map(|content| content.bytes.to_ascii_lowercase()) else {
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
