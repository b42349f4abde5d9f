//! Access control lists: finds the rule of an ordered list that decides about a packet.
//!
//! Rules come from code or from files ([`rule_file`]), which hold [`readable`] rules or ClassBench's ([`classbench`]).
//! [`Classifier::build`] compiles a list once into an immutable value that is shared by `Arc` and replaced as a whole.
//! [`Classifier::classify_batch`] classifies a batch of packets at a time so that their table look-ups overlap. The
//! first rule that permits or denies a packet decides. A `count` rule that matches before the deciding rule counts the
//! packet.
//!
//! [`Classifier::build`] chooses the cheapest compiled form that fits ([`Backend`]). Compiling takes up to seconds. A
//! list that is being changed is therefore kept in [`Tuples`] instead: a change takes a microsecond, but each packet
//! takes longer. [`Tuples`] also serve a list whose compilation would exceed its [budget] or whose compiled form would
//! be slower. [`oracle`] is the reference against which all forms are tested.

use std::sync::Arc;

mod bits;
pub mod budget;
pub mod classbench;
mod cross;
mod fields;
mod grid;
mod key;
pub mod oracle;
mod order;
pub mod readable;
mod rule;
pub mod rule_file;
mod services;
mod sets;
pub mod shadow;
pub mod synthetic;
#[cfg(test)]
mod tests;
mod tuples;

pub use key::{Decision, HeaderKey, Hits, Key4, Key6, Verdict};
pub use order::{Order, OrderedRule, labels};
pub use rule::{Action, PortRange, ProtocolMatch, Rule, Rule4, Rule6, RuleAddress, RulePrefix};
pub use tuples::{Label, Step, Tuples};

use budget::Budget;
use key::CHUNK;

/// The largest number of rules in a list. It keeps rule numbers far below the limit of a [`Verdict`], and keeps hostile
/// files from exhausting the machine's memory.
pub const MAX_RULES: usize = 1 << 17;

/// The largest number of rules for which [`Backend::Bits`] is usually faster than [`Tuples`]. As the number of rules
/// grows, the time of bits per packet grows faster than the time of tuples. (`benches/acl.rs` on Zen 4, in ticks per
/// packet: at 10 000 rules, bits take 260 to 1 190 and tuples 360 to 660. At 30 000 rules, bits take 920 to 4 390 and
/// tuples 440 to 2 290.)
const MAX_BITS_RULES: usize = 10 << 10;

/// The reason why a rule list was not compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The list is longer than [`MAX_RULES`].
    #[error("{rules} rules in one list; at most {MAX_RULES} are allowed")]
    TooManyRules {
        /// The number of rules given.
        rules: usize,
    },
    /// The back end cannot hold the list within its memory bound, or compiling it would exceed the [budget].
    #[error(
        "{rules} rules do not fit the {backend} back end: allowed are {} steps and {} bytes to compile a list, and \
         4 MiB of crossed tables",
        budget::WORK,
        budget::BYTES
    )]
    DoesNotFit {
        /// The number of rules given.
        rules: usize,
        /// The back end.
        backend: Backend,
    },
    /// Tuples classify packets faster than a compiled form of this many rules would.
    #[error(
        "{rules} rules have too many field classes to compile: at most {MAX_BITS_RULES} rules are compiled into bit \
         vectors"
    )]
    Slower {
        /// The number of rules given.
        rules: usize,
    },
}

/// The form into which a rule list is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// Each field of a packet is mapped to a class (values that match the same rules), and tables combine the classes
    /// into one verdict, with a fixed number of table reads and no branch. Only a list whose tables stay small has this
    /// form; most lists do.
    Cross,
    /// The rule sets of source, destination and service are intersected bit by bit, up to 1 024 rules at a time. The
    /// memory grows linearly with the number of rules, whatever the rules are.
    Bits,
}

impl Backend {
    /// All back ends.
    pub const ALL: [Backend; 2] = [Backend::Cross, Backend::Bits];
}

impl std::fmt::Display for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Backend::Cross => "cross",
            Backend::Bits => "bits",
        })
    }
}

/// A compiled rule list of one address family.
#[derive(Clone, Debug)]
pub struct Classifier<A: RuleAddress> {
    rules: Arc<[Rule<A>]>,
    default: Decision,
    compiled: Compiled<A>,
}

/// A compiled IPv4 rule list.
pub type Classifier4 = Classifier<u32>;
/// A compiled IPv6 rule list.
pub type Classifier6 = Classifier<u128>;

/// The tables of the back end.
#[derive(Clone, Debug)]
enum Compiled<A: RuleAddress> {
    Cross(Box<cross::Cross<A>>),
    Bits(bits::Bits<A>),
}

impl<A: RuleAddress> Classifier<A> {
    /// Compiles `rules`, whose order is their priority, into the cheapest form that fits. Packets that no rule decides
    /// about get `default`.
    ///
    /// # Errors
    /// [`BuildError`]. [`Tuples`] can hold the list after every error except [`BuildError::TooManyRules`].
    pub fn build(rules: impl Into<Arc<[Rule<A>]>>, default: Decision) -> Result<Classifier<A>, BuildError> {
        let rules = rules.into();
        match Classifier::build_with(Arc::clone(&rules), default, Backend::Cross) {
            Err(BuildError::DoesNotFit { rules, .. }) if rules > MAX_BITS_RULES => Err(BuildError::Slower { rules }),
            Err(BuildError::DoesNotFit { .. }) => Classifier::build_with(rules, default, Backend::Bits),
            built => built,
        }
    }

    /// Compiles `rules` with a given back end, for tests and measurements.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn build_with(
        rules: impl Into<Arc<[Rule<A>]>>,
        default: Decision,
        backend: Backend,
    ) -> Result<Classifier<A>, BuildError> {
        Classifier::build_within(rules.into(), default, backend, &mut Budget::whole())
    }

    /// Like [`build_with`](Self::build_with), with a budget from the caller. Tests read from the budget how much work
    /// and memory compiling took.
    fn build_within(
        rules: Arc<[Rule<A>]>,
        default: Decision,
        backend: Backend,
        budget: &mut Budget,
    ) -> Result<Classifier<A>, BuildError> {
        if rules.len() > MAX_RULES {
            return Err(BuildError::TooManyRules { rules: rules.len() });
        }
        let compiled = match backend {
            Backend::Cross => cross::Cross::new(&rules, default, budget).map(|cross| Compiled::Cross(Box::new(cross))),
            Backend::Bits => bits::Bits::new(&rules, default, budget).map(Compiled::Bits),
        };
        match compiled {
            Some(compiled) => Ok(Classifier { rules, default, compiled }),
            None => Err(BuildError::DoesNotFit { rules: rules.len(), backend }),
        }
    }

    /// Sets the numbers by which verdicts and counters identify the rules, so that a rule keeps its number when rules
    /// are inserted before it. Without this call, the numbers are the positions in the list. `numbers` has one number
    /// for each rule, each below 2³¹ - 1. This may be called only once for a compiled list.
    ///
    /// # Panics
    /// If `numbers` and the rules differ in count.
    #[must_use]
    pub fn numbered(mut self, numbers: &[u32]) -> Classifier<A> {
        assert_eq!(numbers.len(), self.rules.len(), "one number a rule");
        match &mut self.compiled {
            Compiled::Cross(cross) => cross.renumber(numbers),
            Compiled::Bits(bits) => bits.renumber(numbers),
        }
        self
    }

    /// Writes the verdict on each key, and counts a hit for each rule that decided or counted. `hits` should come from
    /// [`Classifier::hits`]: rules whose numbers are beyond its counters share one counter.
    ///
    /// # Panics
    /// If `keys` and `verdicts` differ in length.
    pub fn classify_batch(&self, keys: &[HeaderKey<A>], verdicts: &mut [Verdict], hits: &mut Hits) {
        assert_eq!(keys.len(), verdicts.len(), "one verdict per key");
        for (keys, verdicts) in keys.chunks(CHUNK).zip(verdicts.chunks_mut(CHUNK)) {
            match &self.compiled {
                Compiled::Cross(cross) => cross.classify(keys, verdicts, hits),
                Compiled::Bits(bits) => bits.classify(keys, verdicts, hits),
            }
            hits.count_verdicts(verdicts);
        }
    }

    /// Creates counters for this list, all zero.
    pub fn hits(&self) -> Hits {
        Hits::new(self.rules.len())
    }

    /// Returns the rules that the list was compiled from, in order.
    pub fn rules(&self) -> &Arc<[Rule<A>]> {
        &self.rules
    }

    /// Returns the decision on packets that no rule decides about.
    pub fn default_decision(&self) -> Decision {
        self.default
    }

    /// Returns the back end that the list was compiled with.
    pub fn backend(&self) -> Backend {
        match self.compiled {
            Compiled::Cross(_) => Backend::Cross,
            Compiled::Bits(_) => Backend::Bits,
        }
    }

    /// Returns the size of the compiled tables in bytes, without the rules.
    pub fn memory_bytes(&self) -> usize {
        match &self.compiled {
            Compiled::Cross(cross) => cross.memory_bytes(),
            Compiled::Bits(bits) => bits.memory_bytes(),
        }
    }
}
