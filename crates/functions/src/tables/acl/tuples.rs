//! A rule list that takes changes one by one, and answers from them at once.
//!
//! Tuple space search with pruning (Srinivasan, Suri and Varghese, "Packet Classification using Tuple Space Search",
//! SIGCOMM 1999; Open vSwitch searches tuples too: Pfaff et al., "The Design and Implementation of Open vSwitch", NSDI
//! 2015). Rules are kept by their pair of source and destination prefix; pairs of the same two lengths are a tuple. A packet
//! first asks which prefixes hold its addresses, for each length that rules use. Each of them knows with which lengths of
//! the other field it stands in rules, so of all tuples only those are probed in which both of the packet's prefixes are.
//! Most packets are held by few prefixes: it is a handful of probes where the plain scheme probes every tuple. However
//! packets are chosen, the probes are no more than there are lengths and tuples. Within a pair the rules that differ neither in
//! protocol nor in an exact destination port are walked, of equal ones only the first; a change does not walk.
//!
//! A change touches one pair. Where rules stand in the list is a label that leaves room for others (`Order`), so none is
//! renumbered. Rules that count are kept apart from those that decide: they are asked for once it is known which rule does.

mod crowd;
mod fold;
mod groups;
mod lengths;
mod prefixes;

use fold::Seeded;
pub use groups::Label;
use groups::{Entry, Groups, Pair};
use lengths::{LENGTHS, Lengths};
use prefixes::{Holding, Kind, Prefixes};

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

    fn groups(&mut self, kind: Kind) -> &mut Groups {
        match kind {
            Kind::Decides => &mut self.deciding,
            Kind::Counts => &mut self.counting,
        }
    }

    /// The pair of a rule that is there.
    fn pair(&self, rule: &Rule<A>) -> Option<Pair> {
        Some((self.sources.number(rule.src)?, self.destinations.number(rule.dst)?))
    }

    /// Makes a change. What is removed or relabelled is there.
    pub fn apply(&mut self, step: &Step<A>) {
        match *step {
            Step::Insert { rule, label, number } => {
                let (src, dst, kind) = (rule.src, rule.dst, kind(&rule));
                let pair = (self.sources.add(src, dst.length(), kind), self.destinations.add(dst, src.length(), kind));
                self.groups(kind).insert(pair, Entry::new(&rule, label, number));
            }
            Step::Remove { rule, label } => {
                let Some(pair) = self.pair(&rule) else { return };
                let (src, dst, kind) = (rule.src, rule.dst, kind(&rule));
                self.groups(kind).remove(pair, &Entry::new(&rule, label, 0));
                self.sources.remove(src, dst.length(), kind);
                self.destinations.remove(dst, src.length(), kind);
            }
            Step::Relabel { rule, from, to } => {
                let Some(pair) = self.pair(&rule) else { return };
                self.groups(kind(&rule)).relabel(pair, &Entry::new(&rule, from, 0), to);
            }
        }
    }

    /// The label of the first rule that is equal to this one.
    pub fn find(&self, rule: &Rule<A>) -> Option<Label> {
        let pair = self.pair(rule)?;
        let groups = match kind(rule) {
            Kind::Decides => &self.deciding,
            Kind::Counts => &self.counting,
        };
        groups.find(pair, &Entry::new(rule, 0, 0))
    }

    /// The verdict on every key, and in `hits` one more for each rule that decided or counted.
    ///
    /// # Panics
    /// If `keys` and `verdicts` differ in length.
    pub fn classify_batch(&self, keys: &[Key<A>], verdicts: &mut [Verdict], hits: &mut Hits) {
        assert_eq!(keys.len(), verdicts.len(), "one verdict per key");
        let mut held = Held { sources: Holding::NONE, destinations: Holding::NONE, numbers: [0; LENGTHS] };
        for (keys, verdicts) in keys.chunks(CHUNK).zip(verdicts.chunks_mut(CHUNK)) {
            for (key, verdict) in keys.iter().zip(verdicts.iter_mut()) {
                *verdict = self.classify(key, hits, &mut held);
            }
            hits.count_verdicts(verdicts);
        }
    }

    /// The verdict on a key; `count` rules passed on the way are counted.
    #[inline]
    fn classify(&self, key: &Key<A>, hits: &mut Hits, held: &mut Held) -> Verdict {
        self.sources.holding(key.src(), &mut held.sources);
        self.destinations.holding(key.dst(), &mut held.destinations);
        let (mut first, mut decided) = (Label::MAX, self.default);
        self.candidates(held, Kind::Decides, |pair| {
            if let Some(entry) = self.deciding.get(pair).and_then(|group| group.first(key, first))
                && let Some(decision) = entry.action.decision()
            {
                (first, decided) = (entry.label, Verdict::by_rule(entry.number, decision));
            }
        });
        if self.counting.rules() > 0 {
            self.candidates(held, Kind::Counts, |pair| {
                if let Some(group) = self.counting.get(pair) {
                    group.each(key, first, |number| hits.count_rule(number));
                }
            });
        }
        decided
    }

    /// Calls `ask` with every pair of prefixes that hold a packet's addresses and may stand in one rule of this kind.
    #[inline]
    fn candidates(&self, held: &mut Held, kind: Kind, mut ask: impl FnMut(Pair)) {
        let Held { sources, destinations, numbers } = held;
        let mut lengths = Lengths::NONE;
        for &(length, number) in destinations.each() {
            lengths.insert(length);
            numbers[usize::from(length)] = number;
        }
        for &(source_length, source) in sources.each() {
            self.sources.partners(source, kind).common(lengths).for_each(|length| {
                let destination = numbers[usize::from(length)];
                if self.destinations.partners(destination, kind).contains(source_length) {
                    ask((source, destination));
                }
            });
        }
    }
}

fn kind<A: Address>(rule: &Rule<A>) -> Kind {
    if rule.action.decision().is_some() { Kind::Decides } else { Kind::Counts }
}

/// Which prefixes hold a packet's addresses.
struct Held {
    sources: Holding,
    destinations: Holding,
    /// The numbers of the latter by their lengths.
    numbers: [u32; LENGTHS],
}
