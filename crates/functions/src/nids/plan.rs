//! Which rules are sought together.
//!
//! Ports that the same rules are for are one group, so that rules for ranges which overlap, each a little further than the one
//! before, make a group of nearly all of them again and again: a file of a hundred kilobytes asks for gigabytes. So what groups
//! may take is bounded, and where it would be more, rules for the most ports are no longer found by them: they are looked at
//! for packets of any port, which takes longer and finds the same.

use std::collections::HashMap;

use super::parse::is_any;
use super::ranges::Ranges;
use super::rule::{Protocol, Rule};
use crate::inspection::strings;

/// How many ports a rule may be for to be found by them; where that is too much for all groups, the next.
const MANY_PORTS: [u128; 8] = [4_096, 1_024, 256, 64, 16, 4, 1, 0];
/// How many rules all ports may have, counted for each port.
const MOST_PLACES: usize = 1 << 22;
/// What groups by port may take in memory, in bytes, as far as that can be told beforehand.
pub(super) const MOST_MEMORY: usize = 256 << 20;
/// What a group takes besides its automaton, and what each of its strings does: its rules, and a bit a packet of a batch.
const EACH_GROUP: usize = 1_024;
const EACH_STRING: usize = 64;

/// The rules of each protocol.
pub struct Plan(pub [Parts; 4]);

/// Rules of one protocol, by their places among all.
#[derive(Default)]
pub struct Parts {
    /// Those that are looked at whatever the ports are.
    pub any: Vec<u32>,
    /// Those that are found by where packets come from.
    pub by_source: Ports,
    /// Those that are found by where packets go to.
    pub by_destination: Ports,
}

/// Rules by port.
#[derive(Default)]
pub struct Ports {
    /// By port, the set's number and one; 0 for none. Empty where there are no sets.
    pub numbers: Box<[u16]>,
    /// Rules that the same ports are for.
    pub sets: Vec<Vec<u32>>,
}

/// What may still be taken.
struct Left {
    places: usize,
    memory: usize,
}

impl Plan {
    /// Parts rules.
    pub fn new(all: &[Rule]) -> Self {
        let texts: Vec<_> = all.iter().map(Rule::folded).collect();
        let plan = MANY_PORTS.iter().find_map(|many| {
            let mut left = Left { places: MOST_PLACES, memory: MOST_MEMORY };
            let mut parts = |protocol| Parts::new(all, &texts, protocol, *many, &mut left);
            Some(Self([parts(Protocol::Tcp)?, parts(Protocol::Udp)?, parts(Protocol::Icmp)?, parts(Protocol::Ip)?]))
        });
        plan.expect("without rules that are found by ports nothing is taken")
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
fn role(source: &Ranges, destination: &Ranges, many: u128) -> Role {
    let few = |ports: &Ranges| !is_any(ports) && count(ports) <= many;
    if few(destination) {
        Role::Destination
    } else if few(source) {
        Role::Source
    } else {
        Role::Any
    }
}

/// How many ports there are.
fn count(ports: &Ranges) -> u128 {
    ports.ranges().iter().map(|(first, last)| last - first + 1).sum()
}

impl Parts {
    /// `None` where it is more than is left.
    fn new(all: &[Rule], texts: &[Option<Vec<u8>>], protocol: Protocol, many: u128, left: &mut Left) -> Option<Self> {
        let mut any = Vec::new();
        let mut ported: [Vec<(&Ranges, u32)>; 2] = Default::default();
        for (number, rule) in (0u32..).zip(all) {
            if rule.protocol != protocol && rule.protocol != Protocol::Ip {
                continue;
            }
            let ways = [(&rule.source_ports, &rule.destination_ports), (&rule.destination_ports, &rule.source_ports)];
            for (source, destination) in &ways[..if rule.both { 2 } else { 1 }] {
                match role(source, destination, many) {
                    Role::Any => any.push(number),
                    Role::Source => ported[0].push((source, number)),
                    Role::Destination => ported[1].push((destination, number)),
                }
            }
        }
        any.dedup();
        let [source, destination] = ported;
        Some(Self {
            any,
            by_source: Ports::new(&source, texts, left)?,
            by_destination: Ports::new(&destination, texts, left)?,
        })
    }
}

impl Ports {
    /// Ports that the same rules are for are one set.
    fn new(rules: &[(&Ranges, u32)], texts: &[Option<Vec<u8>>], left: &mut Left) -> Option<Self> {
        if rules.is_empty() {
            return Some(Self::default());
        }
        for (ports, _) in rules {
            left.places = left.places.checked_sub(usize::try_from(count(ports)).ok()?)?;
        }
        let mut of_port: Vec<Vec<u32>> = vec![Vec::new(); 1 << 16];
        for (ports, rule) in rules {
            for port in ports.ranges().iter().flat_map(|(first, last)| *first..=*last) {
                of_port[port as usize].push(*rule);
            }
        }
        let mut known: HashMap<Vec<u32>, u16> = HashMap::new();
        let (mut sets, mut numbers) = (Vec::new(), vec![0u16; 1 << 16]);
        for (number, mut rules) in numbers.iter_mut().zip(of_port) {
            if rules.is_empty() {
                continue;
            }
            // One that goes both ways may be there twice.
            rules.dedup();
            *number = match known.get(&rules) {
                Some(known) => *known,
                None => {
                    left.memory = left.memory.checked_sub(memory(&rules, texts))?;
                    sets.push(rules.clone());
                    // At most as many as ports, less those without any: one too many is none.
                    let number = u16::try_from(sets.len()).unwrap_or(0);
                    known.insert(rules, number);
                    number
                }
            };
        }
        Some(Self { numbers: numbers.into(), sets })
    }
}

/// About what a group of these rules takes.
fn memory(rules: &[u32], texts: &[Option<Vec<u8>>]) -> usize {
    let mut strings: Vec<&[u8]> = rules.iter().filter_map(|rule| texts[*rule as usize].as_deref()).collect();
    strings.sort_unstable();
    strings.dedup();
    strings::estimate(&strings, true) + EACH_STRING * strings.len() + EACH_GROUP
}
