//! Plans which rules are searched together.
//!
//! Ports with the same rules share a group. A file may have many rules for overlapping ranges of ports, each range
//! shifted a little from the one before. Then there are many groups, and each contains nearly all of these rules. A
//! file of a hundred kilobytes could thus take gigabytes. The memory of groups is therefore bounded. If the groups
//! would take more, rules with many ports are no longer found by port. They are tested on packets of any port, which
//! takes longer and gives the same result.

use std::collections::HashMap;

use super::parse::is_any;
use super::ranges::Ranges;
use super::rule::{Protocol, Rule};
use crate::inspection::strings;

/// A rule is found by port if it has at most this number of ports on one side. If the groups then take too much, the
/// next value is tried.
const MANY_PORTS: [u128; 8] = [4_096, 1_024, 256, 64, 16, 4, 1, 0];
/// The largest number of pairs of a rule and a port by which the rule is found, of all protocols together.
const MAX_PORT_ENTRIES: usize = 1 << 22;
/// The largest memory of all groups by port, in bytes, as estimated before they are built.
pub(super) const MAX_MEMORY: usize = 256 << 20;
/// The memory of a group besides its automaton and its strings, in bytes.
const EACH_GROUP: usize = 1_024;
/// The memory of a string of a group besides the automaton, in bytes.
const EACH_STRING: usize = 64;

/// The rules of each protocol, divided by the ports that they are found by.
pub struct Plan(pub [ProtocolRules; 4]);

/// The rules of one protocol, by index.
#[derive(Default)]
pub struct ProtocolRules {
    /// Rules that are tested whatever the ports are.
    pub any: Vec<u32>,
    /// Rules that are found by source port.
    pub by_source: RulesByPort,
    /// Rules that are found by destination port.
    pub by_destination: RulesByPort,
}

/// Rules by port.
#[derive(Default)]
pub struct RulesByPort {
    /// For each port, the index of its set in `sets` plus 1; 0 if the port has no set. Empty if there are no sets.
    pub numbers: Box<[u32]>,
    /// Sets of rules; all ports with the same rules share a set.
    pub sets: Vec<Vec<u32>>,
}

/// The remaining budget. The budget is exceeded if one of these values would become less than 0.
struct PlanBudget {
    /// The number of further pairs of a rule and a port.
    port_entries: usize,
    /// The further memory of groups, in bytes.
    memory: usize,
}

impl Plan {
    /// Divides the rules by protocol and port.
    pub fn new(all: &[Rule]) -> Self {
        let texts: Vec<_> = all.iter().map(Rule::folded).collect();
        let plan = MANY_PORTS.iter().find_map(|many| {
            let mut budget = PlanBudget { port_entries: MAX_PORT_ENTRIES, memory: MAX_MEMORY };
            let mut parts = |protocol| ProtocolRules::new(all, &texts, protocol, *many, &mut budget);
            Some(Self([parts(Protocol::Tcp)?, parts(Protocol::Udp)?, parts(Protocol::Icmp)?, parts(Protocol::Ip)?]))
        });
        plan.expect("with no rules found by port the budget suffices")
    }
}

/// The ports by which a rule is found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FoundBy {
    Any,
    Source,
    Destination,
}

/// Returns the ports by which a rule is found for packets in this direction. A rule with more than `many` ports on both
/// sides is not found by port.
fn found_by(source: &Ranges, destination: &Ranges, many: u128) -> FoundBy {
    let few = |ports: &Ranges| !is_any(ports) && count(ports) <= many;
    if few(destination) {
        FoundBy::Destination
    } else if few(source) {
        FoundBy::Source
    } else {
        FoundBy::Any
    }
}

/// Returns the number of ports in a set.
fn count(ports: &Ranges) -> u128 {
    ports.ranges().iter().map(|(first, last)| last - first + 1).sum()
}

impl ProtocolRules {
    /// Divides the rules of a protocol. `texts` has the content by which each rule is found. A rule is found by port if
    /// it has at most `many` ports on one side. Returns `None` if the budget is exceeded.
    fn new(
        all: &[Rule],
        texts: &[Option<Vec<u8>>],
        protocol: Protocol,
        many: u128,
        budget: &mut PlanBudget,
    ) -> Option<Self> {
        let mut any = Vec::new();
        let mut ported: [Vec<(&Ranges, u32)>; 2] = Default::default();
        for (number, rule) in (0u32..).zip(all) {
            if rule.protocol != protocol && rule.protocol != Protocol::Ip {
                continue;
            }
            let ways = [(&rule.source_ports, &rule.destination_ports), (&rule.destination_ports, &rule.source_ports)];
            for (source, destination) in &ways[..if rule.both { 2 } else { 1 }] {
                match found_by(source, destination, many) {
                    FoundBy::Any => any.push(number),
                    FoundBy::Source => ported[0].push((source, number)),
                    FoundBy::Destination => ported[1].push((destination, number)),
                }
            }
        }
        any.dedup();
        let [source, destination] = ported;
        Some(Self {
            any,
            by_source: RulesByPort::new(&source, texts, budget)?,
            by_destination: RulesByPort::new(&destination, texts, budget)?,
        })
    }
}

impl RulesByPort {
    /// Groups ports with the same rules into sets. Returns `None` if the budget is exceeded.
    fn new(rules: &[(&Ranges, u32)], texts: &[Option<Vec<u8>>], budget: &mut PlanBudget) -> Option<Self> {
        if rules.is_empty() {
            return Some(Self::default());
        }
        for (ports, _) in rules {
            budget.port_entries = budget.port_entries.checked_sub(usize::try_from(count(ports)).ok()?)?;
        }
        let mut of_port: Vec<Vec<u32>> = vec![Vec::new(); 1 << 16];
        for (ports, rule) in rules {
            for port in ports.ranges().iter().flat_map(|(first, last)| *first..=*last) {
                of_port[port as usize].push(*rule);
            }
        }
        let mut known: HashMap<Vec<u32>, u32> = HashMap::new();
        let (mut sets, mut numbers) = (Vec::new(), vec![0u32; 1 << 16]);
        for (number, mut rules) in numbers.iter_mut().zip(of_port) {
            if rules.is_empty() {
                continue;
            }
            // A rule for both directions may be in the list twice.
            rules.dedup();
            *number = match known.get(&rules) {
                Some(known) => *known,
                None => {
                    budget.memory = budget.memory.checked_sub(memory(&rules, texts))?;
                    sets.push(rules.clone());
                    // There are at most as many sets as ports.
                    let number = sets.len() as u32;
                    known.insert(rules, number);
                    number
                }
            };
        }
        Some(Self { numbers: numbers.into(), sets })
    }
}

/// Returns the approximate memory of a group of these rules, in bytes.
fn memory(rules: &[u32], texts: &[Option<Vec<u8>>]) -> usize {
    let mut strings: Vec<&[u8]> = rules.iter().filter_map(|rule| texts[*rule as usize].as_deref()).collect();
    strings.sort_unstable();
    strings.dedup();
    strings::estimate(&strings, true) + EACH_STRING * strings.len() + EACH_GROUP
}
