//! A rule list that takes single changes and classifies with them at once.
//!
//! Tuple space search with pruning (Srinivasan, Suri and Varghese, "Packet Classification using Tuple Space Search",
//! SIGCOMM 1999; Open vSwitch also searches tuples: Pfaff et al., "The Design and Implementation of Open vSwitch", NSDI
//! 2015). Rules are grouped by their pair of source and destination prefix. All pairs with the same two prefix lengths
//! are a tuple. For a packet, the classifier first finds the prefixes that contain its addresses, for each prefix
//! length that occurs in rules. For each prefix, the classifier keeps the lengths of the prefixes that rules pair with
//! it. So a tuple is probed only if both of the packet's prefixes occur in it. Most packets are in only a few prefixes,
//! so this takes a handful of probes, whereas the plain scheme probes every tuple. For every packet, the number of
//! probes is bounded by the number of lengths and tuples. Within a pair with many rules, a rule with exactly one
//! protocol and one destination port is looked up by these two fields. The other rules are compared with the packet one
//! after the other. In a long list (`crowd`), of equal rules only the first is compared. A change does not iterate over
//! all rules.
//!
//! A change touches one pair. The position of a rule in the list is a label that leaves room for others (`Order`), so
//! no rule is renumbered. `count` rules are stored separately from deciding rules, and are searched after the deciding
//! rule has been found.

mod crowd;
mod fold;
mod groups;
mod lengths;
mod prefixes;

use fold::Seeded;
pub use groups::Label;
use groups::{Entry, Groups, Pair};
use lengths::{LENGTHS, Lengths};
use prefixes::{ContainingPrefixes, Prefixes, RuleRole};

use super::key::{CHUNK, Decision, HeaderKey, Hits, Verdict};
use super::rule::{Rule, RuleAddress};

/// A change of a rule list.
#[derive(Clone, Copy, Debug)]
pub enum Step<A> {
    /// A rule is inserted.
    Insert {
        /// The rule.
        rule: Rule<A>,
        /// The label that determines its position. No other rule has this label.
        label: Label,
        /// The number under which it is counted.
        number: u32,
    },
    /// A rule is removed.
    Remove {
        /// The rule.
        rule: Rule<A>,
        /// Its label.
        label: Label,
    },
    /// A rule gets another label. The order of the rules stays the same.
    Relabel {
        /// The rule.
        rule: Rule<A>,
        /// Its present label.
        from: Label,
        /// Its new label.
        to: Label,
    },
}

/// A rule list of one address family that can be changed rule by rule.
#[derive(Clone, Debug)]
pub struct Tuples<A: RuleAddress> {
    sources: Prefixes<A>,
    destinations: Prefixes<A>,
    /// The rules that permit or deny packets.
    deciding: Groups,
    /// The `count` rules.
    counting: Groups,
    default: Verdict,
}

impl<A: RuleAddress> Tuples<A> {
    /// Creates an empty list with room for `room` rules; it grows if there are more. Packets that no rule decides about
    /// get `default`. Senders of packets must not know `seed`, or they could choose packets that take long.
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

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.deciding.rules() + self.counting.rules()
    }

    /// Returns true if the list has no rules.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the decision on packets that no rule decides about.
    pub fn default_decision(&self) -> Decision {
        self.default.decision()
    }

    fn groups(&mut self, role: RuleRole) -> &mut Groups {
        match role {
            RuleRole::Decides => &mut self.deciding,
            RuleRole::Counts => &mut self.counting,
        }
    }

    /// Returns the pair of a rule that is in the list.
    fn pair(&self, rule: &Rule<A>) -> Option<Pair> {
        Some((self.sources.number(rule.src)?, self.destinations.number(rule.dst)?))
    }

    /// Applies a change. A rule that is removed or relabelled must be in the list.
    pub fn apply(&mut self, step: &Step<A>) {
        match *step {
            Step::Insert { rule, label, number } => {
                let (src, dst, role) = (rule.src, rule.dst, role(&rule));
                let pair = (self.sources.add(src, dst.length(), role), self.destinations.add(dst, src.length(), role));
                self.groups(role).insert(pair, Entry::new(&rule, label, number));
            }
            Step::Remove { rule, label } => {
                let Some(pair) = self.pair(&rule) else { return };
                let (src, dst, role) = (rule.src, rule.dst, role(&rule));
                self.groups(role).remove(pair, &Entry::new(&rule, label, 0));
                self.sources.remove(src, dst.length(), role);
                self.destinations.remove(dst, src.length(), role);
            }
            Step::Relabel { rule, from, to } => {
                let Some(pair) = self.pair(&rule) else { return };
                self.groups(role(&rule)).relabel(pair, &Entry::new(&rule, from, 0), to);
            }
        }
    }

    /// Returns the label of the first rule that equals `rule`.
    pub fn find(&self, rule: &Rule<A>) -> Option<Label> {
        let pair = self.pair(rule)?;
        let groups = match role(rule) {
            RuleRole::Decides => &self.deciding,
            RuleRole::Counts => &self.counting,
        };
        groups.find(pair, &Entry::new(rule, 0, 0))
    }

    /// Writes the verdict on each key, and counts a hit for each rule that decided or counted.
    ///
    /// # Panics
    /// If `keys` and `verdicts` differ in length.
    pub fn classify_batch(&self, keys: &[HeaderKey<A>], verdicts: &mut [Verdict], hits: &mut Hits) {
        assert_eq!(keys.len(), verdicts.len(), "one verdict per key");
        let mut containing = Containing {
            sources: ContainingPrefixes::NONE,
            destinations: ContainingPrefixes::NONE,
            numbers: [0; LENGTHS],
        };
        for (keys, verdicts) in keys.chunks(CHUNK).zip(verdicts.chunks_mut(CHUNK)) {
            for (key, verdict) in keys.iter().zip(verdicts.iter_mut()) {
                *verdict = self.classify(key, hits, &mut containing);
            }
            hits.count_verdicts(verdicts);
        }
    }

    /// Returns the verdict on a key, and counts the `count` rules that match before the decision.
    #[inline]
    fn classify(&self, key: &HeaderKey<A>, hits: &mut Hits, containing: &mut Containing) -> Verdict {
        self.sources.find_containing(key.src(), &mut containing.sources);
        self.destinations.find_containing(key.dst(), &mut containing.destinations);
        let (mut first, mut decided) = (Label::MAX, self.default);
        self.candidates(containing, RuleRole::Decides, |pair| {
            if let Some(entry) = self.deciding.get(pair).and_then(|group| group.first(key, first))
                && let Some(decision) = entry.action.decision()
            {
                (first, decided) = (entry.label, Verdict::by_rule(entry.number, decision));
            }
        });
        if self.counting.rules() > 0 {
            self.candidates(containing, RuleRole::Counts, |pair| {
                if let Some(group) = self.counting.get(pair) {
                    group.each(key, first, |number| hits.count_rule(number));
                }
            });
        }
        decided
    }

    /// Calls `visit` with every pair of prefixes that contain the packet's addresses and may occur together in a rule
    /// of this role.
    #[inline]
    fn candidates(&self, containing: &mut Containing, role: RuleRole, mut visit: impl FnMut(Pair)) {
        let Containing { sources, destinations, numbers } = containing;
        let mut lengths = Lengths::NONE;
        for &(length, number) in destinations.each() {
            lengths.insert(length);
            numbers[usize::from(length)] = number;
        }
        for &(source_length, source) in sources.each() {
            self.sources.partners(source, role).common(lengths).for_each(|length| {
                let destination = numbers[usize::from(length)];
                if self.destinations.partners(destination, role).contains(source_length) {
                    visit((source, destination));
                }
            });
        }
    }
}

fn role<A: RuleAddress>(rule: &Rule<A>) -> RuleRole {
    if rule.action.decision().is_some() { RuleRole::Decides } else { RuleRole::Counts }
}

/// The prefixes that contain a packet's addresses.
struct Containing {
    sources: ContainingPrefixes,
    destinations: ContainingPrefixes,
    /// The number of the destination prefix of each length. Only the entries for lengths in `destinations` are valid.
    numbers: [u32; LENGTHS],
}
