//! A classifier whose tables map the classes of a packet's fields to a verdict, with a fixed number of reads and no
//! branch.
//!
//! This is recursive flow classification (Gupta and McKeown, SIGCOMM 1999) with as few steps as possible. The classes
//! of both addresses select an address set, and the ports and the protocol select a service set. Both sets select the
//! outcome: the rule that decides, and the `count` rules that match before it. Every table entry stands for a set of
//! rules, and equal sets share a number, so most tables are far smaller than the product of their fields. If the tables
//! are too large, the list is not compiled in this form.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::budget::Budget;
use super::fields::{AddressClasses, partition_addresses};
use super::grid::{Grid, GridBuilder};
use super::key::{CHUNK, Decision, HeaderKey, Hits, Verdict};
use super::rule::{PortRange, ProtocolMatch, Rule, RuleAddress, RulePrefix};
use super::services::Services;
use super::sets::{Interner, RuleSets, collect, cut_after_first, members, words_for};

/// The largest number of rules. The rule sets of a longer list would fill the caches, even without the tables.
const MAX_RULES: usize = 4096;
/// The largest number of pairs of address classes. It bounds the time to build.
const MAX_ADDRESS_PAIRS: usize = 1 << 21;
/// The largest number of pairs of an address set and a service set. It bounds the time to build.
const MAX_OUTCOME_PAIRS: usize = 1 << 23;
/// The number of steps that an entry of a grid takes from the budget.
const GRID_WORK: usize = 8;
/// The largest size of all tables together, in bytes. Larger tables do not stay in the caches, and bit vectors are then
/// faster.
const MAX_BYTES: usize = 4 << 20;

/// A rule list as crossed tables.
#[derive(Clone, Debug)]
pub struct Cross<A: RuleAddress> {
    src: AddressClasses<A>,
    dst: AddressClasses<A>,
    services: Services,
    /// The address set of a source class and a destination class.
    addresses: Grid,
    /// The outcome of an address set and a service set.
    outcomes: Grid,
    /// The verdict of each outcome. Outcomes with `count` rules come last.
    verdicts: Box<[Verdict]>,
    /// For each outcome with `count` rules: the numbers of these rules. The order is that of the last entries of
    /// `verdicts`.
    counted: Box<[Box<[u32]>]>,
}

/// The possible outcomes of a classification, by number. If no `count` rule matches before the decision, the outcome's
/// number is the index of the rule that decides, or the number of rules if the default decides. The outcomes with
/// `count` rules have the numbers after that.
struct Outcomes {
    /// The verdict of each outcome. The entry at the index of a `count` rule is not used, because the rule decides
    /// nothing.
    verdicts: Vec<Verdict>,
    /// The number of each outcome with `count` rules, by the index of the rule that decides and the indices of these
    /// `count` rules.
    numbers: HashMap<(u16, Box<[u32]>), u16>,
    /// The `count` rules of each outcome in `numbers`, in the order of the outcomes' numbers.
    counted: Vec<Box<[u32]>>,
}

impl Outcomes {
    fn new<A: RuleAddress>(rules: &[Rule<A>], default: Decision) -> Outcomes {
        let default = Verdict::by_default(default);
        let verdict =
            |(index, rule): (u32, &Rule<A>)| rule.action.decision().map_or(default, |by| Verdict::by_rule(index, by));
        let verdicts = (0u32..).zip(rules).map(verdict).chain([default]).collect();
        Outcomes { verdicts, numbers: HashMap::new(), counted: Vec::new() }
    }

    /// Returns the number of the outcome in which rule `decider` decides after the `counted` rules. If `decider` is the
    /// number of rules, the default decides. Returns `None` if there are 65 536 other outcomes or the budget is spent.
    fn number(&mut self, decider: u16, counted: &[u32], budget: &mut Budget) -> Option<u16> {
        if counted.is_empty() {
            return Some(decider);
        }
        budget.work(32 + counted.len() * 4)?;
        let next = u16::try_from(self.verdicts.len());
        match self.numbers.entry((decider, counted.into())) {
            Entry::Occupied(number) => Some(*number.get()),
            Entry::Vacant(vacant) => {
                budget.bytes(2 * size_of_val(counted) + 64)?;
                self.verdicts.push(self.verdicts[usize::from(decider)]);
                self.counted.push(counted.into());
                Some(*vacant.insert(next.ok()?))
            }
        }
    }
}

/// Crosses the source classes and the destination classes into address sets. Returns the number of each pair's set, and
/// the sets. `last` is the set of the deciding rules that match every service. In an address set, the rules after the
/// first rule of `last` cannot be reached and are cut off. Returns `None` if there are too many pairs or sets, or the
/// budget is spent.
fn cross_addresses(src: &RuleSets, dst: &RuleSets, last: &[u64], budget: &mut Budget) -> Option<(Grid, RuleSets)> {
    if src.len() * dst.len() > MAX_ADDRESS_PAIRS {
        return None;
    }
    let mut interner = Interner::new(last.len());
    let mut grid = GridBuilder::new(src.len(), dst.len());
    let mut set = vec![0; last.len()];
    let mut row = Vec::with_capacity(dst.len());
    for s in 0..src.len() {
        row.clear();
        budget.work(dst.len() * (last.len() + GRID_WORK))?;
        budget.bytes(dst.len() * size_of::<u16>())?;
        for d in 0..dst.len() {
            for ((word, s), d) in set.iter_mut().zip(src.set(s)).zip(dst.set(d)) {
                *word = s & d;
            }
            cut_after_first(&mut set, last);
            row.push(interner.number(&set, budget)?);
        }
        grid.push_row(&row)?;
    }
    Some((grid.finish(), interner.finish()))
}

impl<A: RuleAddress> Cross<A> {
    /// Builds the tables of `rules`. Returns `None` if they would be larger than the bound or the budget is spent.
    pub fn new(rules: &[Rule<A>], default: Decision, budget: &mut Budget) -> Option<Cross<A>> {
        if rules.len() > MAX_RULES {
            return None;
        }
        let words = words_for(rules.len());
        let decides = |rule: &Rule<A>| rule.action.decision().is_some();
        let any_address = |rule: &Rule<A>| rule.src == RulePrefix::ANY && rule.dst == RulePrefix::ANY;
        let last = collect(rules, |rule| decides(rule) && any_address(rule));
        let (services, service_sets) = Services::new(rules, words, &last, budget)?;

        let src = partition_addresses(rules.iter().map(|rule| rule.src), words, budget)?;
        let dst = partition_addresses(rules.iter().map(|rule| rule.dst), words, budget)?;
        let any_service = |rule: &Rule<A>| {
            rule.sport == PortRange::ANY && rule.dport == PortRange::ANY && rule.protocol == ProtocolMatch::ANY
        };
        let last = collect(rules, |rule| decides(rule) && any_service(rule));
        let (addresses, address_sets) = cross_addresses(&src.sets, &dst.sets, &last, budget)?;
        if address_sets.len() * service_sets.len() > MAX_OUTCOME_PAIRS {
            return None;
        }
        let mut outcomes = Outcomes::new(rules, default);
        let mut grid = GridBuilder::new(address_sets.len(), service_sets.len());
        let (mut row, mut counted) = (Vec::new(), Vec::new());
        for address in 0..address_sets.len() {
            budget.work(words)?;
            // Few rules share a pair of addresses, so a list is faster to walk than a bit vector.
            let candidates: Vec<u32> = members(address_sets.set(address)).collect();
            row.clear();
            budget.work(service_sets.len() * GRID_WORK)?;
            budget.bytes(service_sets.len() * size_of::<u16>())?;
            for service in 0..service_sets.len() {
                let service = service_sets.set(service);
                let mut decider = rules.len() as u16;
                counted.clear();
                let mut walked = 0;
                for &rule in &candidates {
                    walked += 1;
                    if service[rule as usize / 64] >> (rule % 64) & 1 == 0 {
                        continue;
                    }
                    if decides(&rules[rule as usize]) {
                        decider = rule as u16;
                        break;
                    }
                    counted.push(rule);
                }
                budget.work(walked)?;
                row.push(outcomes.number(decider, &counted, budget)?);
            }
            grid.push_row(&row)?;
        }
        let cross = Cross {
            src: AddressClasses::new(&src, 1),
            dst: AddressClasses::new(&dst, 1),
            services,
            addresses,
            outcomes: grid.finish(),
            verdicts: outcomes.verdicts.into(),
            counted: outcomes.counted.into(),
        };
        (cross.memory_bytes() <= MAX_BYTES).then_some(cross)
    }

    /// Replaces each rule's number, which is its index so far, by the entry of `numbers` at this index. Must be called
    /// at most once.
    pub fn renumber(&mut self, numbers: &[u32]) {
        for verdict in &mut self.verdicts {
            if let Some(rule) = verdict.rule() {
                *verdict = Verdict::by_rule(numbers[rule as usize], verdict.decision());
            }
        }
        self.counted.iter_mut().flatten().for_each(|rule| *rule = numbers[*rule as usize]);
    }

    /// Writes the verdict on each of at most [`CHUNK`] keys, and counts the `count` rules that match before the
    /// decision.
    ///
    /// A separate loop reads each table, so that the table's bounds and base stay in registers and the reads overlap.
    pub fn classify(&self, keys: &[HeaderKey<A>], verdicts: &mut [Verdict], hits: &mut Hits) {
        let count = keys.len().min(CHUNK);
        let (mut src, mut dst, mut services) = ([0; CHUNK], [0; CHUNK], [0; CHUNK]);
        let (mut addresses, mut outcomes) = ([0; CHUNK], [0; CHUNK]);
        self.src.look_up(keys.iter().map(|key| key.src()), &mut src);
        self.dst.look_up(keys.iter().map(|key| key.dst()), &mut dst);
        self.services.look_up(keys.iter(), &mut services);
        self.addresses.look_up(&src[..count], &dst[..count], &mut addresses);
        self.outcomes.look_up(&addresses[..count], &services[..count], &mut outcomes);
        let mut highest = 0;
        for (verdict, &outcome) in verdicts.iter_mut().zip(&outcomes[..count]) {
            *verdict = self.verdicts[outcome as usize];
            highest = highest.max(outcome as usize);
        }
        let first_counting = self.verdicts.len() - self.counted.len();
        if highest >= first_counting {
            let counting =
                outcomes[..count].iter().filter_map(|&outcome| (outcome as usize).checked_sub(first_counting));
            counting.flat_map(|outcome| &self.counted[outcome]).for_each(|&rule| hits.count_rule(rule));
        }
    }

    /// Returns the memory taken, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let counted: usize = self.counted.iter().map(|rules| size_of_val(rules) + size_of_val(&**rules)).sum();
        self.src.memory_bytes()
            + self.dst.memory_bytes()
            + self.services.memory_bytes()
            + self.addresses.memory_bytes()
            + self.outcomes.memory_bytes()
            + size_of_val(&*self.verdicts)
            + counted
    }
}
