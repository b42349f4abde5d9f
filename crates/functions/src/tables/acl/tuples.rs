//! A rule list that takes changes one by one, and answers from them at once.
//!
//! Tuple space search (Srinivasan, Suri and Varghese, "Packet Classification using Tuple Space Search", SIGCOMM 1999, with
//! the pruning of section 4; Open vSwitch does the like: Pfaff et al., "The Design and Implementation of Open vSwitch",
//! NSDI 2015, section 3.2). Rules are kept by their pair of source and destination prefix, pairs of the same two lengths
//! being a tuple. A packet first asks which prefixes hold its addresses, one probe for each length that rules use, and then
//! only for pairs of those, of tuples that there are: most packets are held by few prefixes, so it is a handful of probes
//! where the plain scheme probes every tuple. However packets are chosen, they are no more than lengths and tuples.
//!
//! A change touches one pair. Where rules stand in the list is a label that leaves room for others (`Order`), so none is
//! renumbered. Rules that count are kept apart from those that decide: they are asked for once it is known which rule does.

mod fold;
mod groups;
mod lengths;
mod prefixes;

use fold::Seeded;
pub use groups::Label;
use groups::{Entry, Groups, Pair};
use prefixes::{Holding, Prefixes};

use super::key::{CHUNK, Decision, Hits, Key, Verdict};
use super::rule::{Address, Rule};

/// A change of a list.
#[derive(Clone, Copy, Debug)]
pub enum Step<A> {
    /// A new rule.
    Insert {
        /// The rule.
        rule: Rule<A>,
        /// Where it stands; no other has this label.
        label: Label,
        /// What it is counted under.
        number: u32,
    },
    /// A rule that is there no more.
    Remove {
        /// The rule.
        rule: Rule<A>,
        /// Where it stood.
        label: Label,
    },
    /// A rule whose label changes, and its place among the others not.
    Relabel {
        /// The rule.
        rule: Rule<A>,
        /// Its label.
        from: Label,
        /// Its new one.
        to: Label,
    },
}

/// A rule list of one address family that can be changed.
#[derive(Clone, Debug)]
pub struct Tuples<A: Address> {
    sources: Prefixes<A>,
    destinations: Prefixes<A>,
    deciding: Groups,
    counting: Groups,
    default: Verdict,
}

impl<A: Address> Tuples<A> {
    /// No rules, with room for so many; packets that no rule decides about get `default`.
    pub fn new(room: usize, default: Decision, seed: u64) -> Tuples<A> {
        let seed = Seeded::new(seed);
        Tuples {
            sources: Prefixes::new(room, seed),
            destinations: Prefixes::new(room, seed),
            deciding: Groups::new(room, seed),
            counting: Groups::new(0, seed),
            default: Verdict::by_default(default),
        }
    }

    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.deciding.rules() + self.counting.rules()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What happens to packets that no rule decides about.
    pub fn default_decision(&self) -> Decision {
        self.default.decision()
    }

    fn groups(&mut self, rule: &Rule<A>) -> &mut Groups {
        if rule.action.decision().is_some() { &mut self.deciding } else { &mut self.counting }
    }

    /// The pair of a rule that is there.
    fn pair(&self, rule: &Rule<A>) -> Option<Pair> {
        let numbers = (self.sources.number(rule.src)?, self.destinations.number(rule.dst)?);
        Some(Pair { lengths: (rule.src.length(), rule.dst.length()), numbers })
    }

    /// Makes a change. What is removed or relabelled is there.
    pub fn apply(&mut self, step: &Step<A>) {
        match *step {
            Step::Insert { rule, label, number } => {
                let numbers = (self.sources.add(rule.src), self.destinations.add(rule.dst));
                let pair = Pair { lengths: (rule.src.length(), rule.dst.length()), numbers };
                self.groups(&rule).insert(pair, Entry::new(&rule, label, number));
            }
            Step::Remove { rule, label } => {
                let Some(pair) = self.pair(&rule) else { return };
                self.groups(&rule).remove(pair, &Entry::new(&rule, label, 0));
                self.sources.remove(rule.src);
                self.destinations.remove(rule.dst);
            }
            Step::Relabel { rule, from, to } => {
                let Some(pair) = self.pair(&rule) else { return };
                self.groups(&rule).relabel(pair, &Entry::new(&rule, from, 0), to);
            }
        }
    }

    /// The label of the first rule that is equal to this one.
    pub fn find(&self, rule: &Rule<A>) -> Option<Label> {
        let pair = self.pair(rule)?;
        let groups = if rule.action.decision().is_some() { &self.deciding } else { &self.counting };
        groups.find(pair.numbers, &Entry::new(rule, 0, 0))
    }

    /// The verdict on every key, and in `hits` one more for each rule that decided or counted.
    ///
    /// # Panics
    /// If `keys` and `verdicts` differ in length.
    pub fn classify_batch(&self, keys: &[Key<A>], verdicts: &mut [Verdict], hits: &mut Hits) {
        assert_eq!(keys.len(), verdicts.len(), "one verdict per key");
        let (mut sources, mut destinations) = (Holding::NONE, Holding::NONE);
        for (keys, verdicts) in keys.chunks(CHUNK).zip(verdicts.chunks_mut(CHUNK)) {
            self.classify(keys, verdicts, hits, (&mut sources, &mut destinations));
            hits.count_verdicts(verdicts);
        }
    }

    fn classify(
        &self,
        keys: &[Key<A>],
        verdicts: &mut [Verdict],
        hits: &mut Hits,
        (sources, destinations): (&mut Holding, &mut Holding),
    ) {
        for (key, verdict) in keys.iter().zip(verdicts) {
            self.sources.holding(key.src(), sources);
            self.destinations.holding(key.dst(), destinations);
            let (mut first, mut decided) = (Label::MAX, self.default);
            candidates(&self.deciding, sources, destinations, |group| {
                if let Some(entry) = group.first(key, first)
                    && let Some(decision) = entry.action.decision()
                {
                    (first, decided) = (entry.label, Verdict::by_rule(entry.number, decision));
                }
            });
            if self.counting.rules() > 0 {
                candidates(&self.counting, sources, destinations, |group| {
                    group.all(key, first).for_each(|entry| hits.count_rule(entry.number));
                });
            }
            *verdict = decided;
        }
    }
}

/// Calls `ask` with every group whose two prefixes hold a packet's addresses.
#[inline]
fn candidates<'g>(
    groups: &'g Groups,
    sources: &Holding,
    destinations: &Holding,
    mut ask: impl FnMut(&'g groups::Group),
) {
    for source in sources.lengths.each() {
        for destination in groups.destinations(source).common(destinations.lengths).each() {
            let numbers = (sources.numbers[usize::from(source)], destinations.numbers[usize::from(destination)]);
            if let Some(group) = groups.get(numbers.0, numbers.1) {
                ask(group);
            }
        }
    }
}
