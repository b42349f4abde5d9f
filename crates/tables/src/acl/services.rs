//! Looks up the set of rules that match a service, which is both ports and the protocol together.
//!
//! Lists have few services. The classes of the three fields are therefore crossed in one small table, whose index is
//! the sum of the three classes.

use std::collections::HashMap;

use super::budget::Budget;
use super::fields::{Partition, partition};
use super::key::{CHUNK, HeaderKey, PROTOCOL_WORDS};
use super::rule::{PortRange, Rule, RuleAddress};
use super::sets::{Interner, RuleSets, cut_after_first};

/// The largest number of table entries: indices, and therefore classes times their strides, must fit into 16 bits.
const MAX_ENTRIES: usize = 1 << 16;

/// A table that maps a packet's service to the number of a rule set.
#[derive(Clone, Debug)]
pub struct Services {
    sport: PortClasses,
    dport: PortClasses,
    /// The class of each protocol word, with a stride of 1.
    protocol: Box<[u16; PROTOCOL_WORDS]>,
    /// The number of the rule set at the sum of the three classes.
    numbers: Box<[u16]>,
}

impl Services {
    /// Builds the table of the services that `rules` distinguish, and the rule set of each. Returns `None` if the table
    /// would have more than [`MAX_ENTRIES`] entries or the budget is spent.
    ///
    /// `words` is the number of words of a rule set. `last` is the set of the deciding rules that match all addresses,
    /// or empty. In a rule set, the rules after the first rule of `last` can never be reached. They are cut off, which
    /// makes more sets equal.
    pub fn new<A: RuleAddress>(
        rules: &[Rule<A>],
        words: usize,
        last: &[u64],
        budget: &mut Budget,
    ) -> Option<(Services, RuleSets)> {
        let sport = partition_ports(rules.iter().map(|rule| rule.sport), words, budget)?;
        let dport = partition_ports(rules.iter().map(|rule| rule.dport), words, budget)?;
        let (protocol, protocol_sets) = protocol_classes(rules, words, budget)?;
        let protocols = protocol_sets.len();
        let ports = dport.sets.len() * protocols;
        if sport.sets.len() * ports > MAX_ENTRIES {
            return None;
        }
        // The work and memory of the table and of the port classes.
        let entries = sport.sets.len() * ports;
        budget.work(entries * words + 2 * (1 << 16))?;
        budget.bytes(entries * size_of::<u16>())?;
        let mut interner = Interner::new(words);
        let mut set = vec![0; words];
        let mut numbers = Vec::with_capacity(entries);
        for s in 0..sport.sets.len() {
            for d in 0..dport.sets.len() {
                for p in 0..protocols {
                    let fields = sport.sets.set(s).iter().zip(dport.sets.set(d)).zip(protocol_sets.set(p));
                    for (word, ((s, d), p)) in set.iter_mut().zip(fields) {
                        *word = s & d & p;
                    }
                    cut_after_first(&mut set, last);
                    numbers.push(interner.number(&set, budget)?);
                }
            }
        }
        let services = Services {
            sport: PortClasses::new(&sport, ports),
            dport: PortClasses::new(&dport, protocols),
            protocol,
            numbers: numbers.into(),
        };
        budget.bytes(services.sport.memory_bytes() + services.dport.memory_bytes())?;
        Some((services, interner.finish()))
    }

    /// Looks up the number of each key's rule set, for at most [`CHUNK`] keys.
    #[inline]
    pub fn look_up<'a, A: RuleAddress>(
        &self,
        keys: impl ExactSizeIterator<Item = &'a HeaderKey<A>>,
        services: &mut [u32; CHUNK],
    ) {
        for (service, key) in services.iter_mut().zip(keys) {
            let protocol = self.protocol[usize::from(key.protocol_word()) % PROTOCOL_WORDS];
            let ports = self.sport.look_up(key.sport()).wrapping_add(self.dport.look_up(key.dport()));
            let sum = ports.wrapping_add(protocol);
            *service = self.numbers[usize::from(sum)].into();
        }
    }

    /// Returns the memory taken, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.sport.memory_bytes()
            + self.dport.memory_bytes()
            + size_of_val(&*self.protocol)
            + size_of_val(&*self.numbers)
    }
}

/// The classes of a port field. The upper byte selects a block of 256 classes, and equal blocks are stored once. Rules
/// make few different blocks, so the table stays in the first-level cache. A table with an entry for each of the 65 536
/// ports would be too large.
#[derive(Clone, Debug)]
struct PortClasses {
    /// The start of each upper byte's block in `classes`.
    starts: Box<[u16; 256]>,
    /// Classes, each multiplied by the stride.
    classes: Box<[u16]>,
}

/// Partitions the ports by `ranges`, as [`partition`] does.
fn partition_ports(
    ranges: impl Iterator<Item = PortRange>,
    words: usize,
    budget: &mut Budget,
) -> Option<Partition<u16>> {
    let ranges: Vec<(u16, u16)> = ranges.map(|range| (range.low(), range.high())).collect();
    partition(&ranges, words, 0, u16::MAX, |port| port - 1, budget)
}

impl PortClasses {
    /// Creates the table of the classes of `partition`, each multiplied by `stride`.
    fn new(partition: &Partition<u16>, stride: usize) -> PortClasses {
        let mut interval = 0;
        let by_port: Vec<u16> = (0..=u16::MAX)
            .map(|port| {
                interval += usize::from(partition.ends.get(interval).is_some_and(|&end| end < port));
                partition.classes[interval] * stride as u16
            })
            .collect();
        let mut starts = Box::new([0; 256]);
        let mut seen: HashMap<&[u16], u16> = HashMap::new();
        let mut blocks = Vec::new();
        for (start, block) in starts.iter_mut().zip(by_port.chunks(256)) {
            *start = *seen.entry(block).or_insert_with(|| {
                // At most 256 blocks of 256 ports: the last one starts at 65 280.
                let start = blocks.len() as u16;
                blocks.extend_from_slice(block);
                start
            });
        }
        PortClasses { starts, classes: blocks.into() }
    }

    #[inline]
    fn look_up(&self, port: u16) -> u16 {
        self.classes[usize::from(self.starts[usize::from(port >> 8)]) | usize::from(port & 0xff)]
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(&*self.starts) + size_of_val(&*self.classes)
    }
}

/// Returns the classes of the protocol word (the protocol number, and whether there are ports or an ICMP type), and the
/// rule set of each.
///
/// A key without ports needs no special case. The rule set of its protocol word contains no rule that constrains ports.
/// All other rules are in every class of both port fields, so any port value gives the right set.
fn protocol_classes<A: RuleAddress>(
    rules: &[Rule<A>],
    words: usize,
    budget: &mut Budget,
) -> Option<(Box<[u16; PROTOCOL_WORDS]>, RuleSets)> {
    budget.work(rules.len() * PROTOCOL_WORDS)?;
    budget.bytes(PROTOCOL_WORDS * size_of::<u16>())?;
    let mut interner = Interner::new(words);
    let mut classes = Box::new([0; PROTOCOL_WORDS]);
    let mut set = vec![0; words];
    for (word, class) in (0u16..).zip(classes.iter_mut()) {
        set.fill(0);
        for (index, rule) in rules.iter().enumerate() {
            set[index / 64] |= u64::from(rule.fits(word)) << (index % 64);
        }
        *class = interner.number(&set, budget)?;
    }
    Some((classes, interner.finish()))
}
