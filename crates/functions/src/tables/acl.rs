//! The access control list: which rule of an ordered list decides about a packet?
//!
//! Rules come from files ([`rule_file`]), in a [`readable`] form and in ClassBench's ([`classbench`]), or from code;
//! [`Classifier::build`] compiles them once into an immutable value that is shared by `Arc` and replaced as a whole,
//! and [`Classifier::classify_batch`] answers for a batch of packets at a time so that their table lookups overlap. The
//! first rule that permits or denies wins; `count` rules count what passes them.
//!
//! How a list is compiled is chosen by what the result costs ([`Backend`]). Compiling takes up to seconds, so a list that
//! is being changed is kept in [`Tuples`] instead, where a change takes a microsecond and a packet longer; so is a list that
//! would take more than a [budget] to compile, or would be slower then. [`oracle`] says what every one of them must answer.

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

pub use key::{Decision, Hits, Key, Key4, Key6, Verdict};
pub use order::{Order, Place, labels};
pub use rule::{Action, Address, PortRange, Prefix, ProtocolMatch, Rule, Rule4, Rule6};
pub use tuples::{Label, Step, Tuples};

use budget::Budget;
use key::CHUNK;

/// More rules than any list may have: keeps rule numbers far from what a [`Verdict`] can hold, and hostile files
/// from taking the machine's memory.
pub const MAX_RULES: usize = 1 << 17;

/// Up to so many rules [`Backend::Bits`] is mostly quicker than tuples: its work grows faster with the rules. (`benches/acl.rs`
/// on Zen 4, ticks a packet: at 10 000 rules 260 to 1 190 against 360 to 660, at 30 000 920 to 4 390 against 440 to 2 290.)
const QUICK_BITS: usize = 10 << 10;

/// Why a rule list was not compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The list is longer than [`MAX_RULES`].
    #[error("{rules} rules in one list; at most {MAX_RULES} are allowed")]
    TooManyRules {
        /// Rules given.
        rules: usize,
    },
    /// The back end cannot hold the list within its memory bound, or compiling it would take more than its [budget].
    #[error(
        "{rules} rules do not fit the {backend} back end: allowed are {} steps and {} bytes to compile a list, and 4 MiB of \
         crossed tables",
        budget::WORK,
        budget::BYTES
    )]
    DoesNotFit {
        /// Rules given.
        rules: usize,
        /// Back end.
        backend: Backend,
    },
    /// Tuples of so many rules are faster to ask than these would be compiled.
    #[error("{rules} rules do not fold into few classes: allowed are {QUICK_BITS} such")]
    Slower {
        /// Rules given.
        rules: usize,
    },
}

/// How a rule list is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Backend {
    /// Field classes crossed into one verdict: a fixed number of table reads and no branch. For lists whose tables
    /// stay small; most do.
    Cross,
    /// Rule sets of source, destination and service intersected bit by bit, up to 1 024 rules at a time: memory grows linearly with any list.
    Bits,
}

impl Backend {
    /// Every back end.
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
pub struct Classifier<A: Address> {
    rules: Arc<[Rule<A>]>,
    default: Decision,
    compiled: Compiled<A>,
}

/// An IPv4 rule list, compiled.
pub type Classifier4 = Classifier<u32>;
/// An IPv6 rule list, compiled.
pub type Classifier6 = Classifier<u128>;

#[derive(Clone, Debug)]
enum Compiled<A: Address> {
    Cross(Box<cross::Cross<A>>),
    Bits(bits::Bits<A>),
}

impl<A: Address> Classifier<A> {
    /// Compiles `rules`, whose order is their priority, in the cheapest way that fits; packets that no rule decides
    /// about get `default`.
    ///
    /// # Errors
    /// [`BuildError`]. Of all but the first [`Tuples`] are to be asked.
    pub fn build(rules: impl Into<Arc<[Rule<A>]>>, default: Decision) -> Result<Classifier<A>, BuildError> {
        let rules = rules.into();
        match Classifier::build_with(Arc::clone(&rules), default, Backend::Cross) {
            Err(BuildError::DoesNotFit { rules, .. }) if rules > QUICK_BITS => Err(BuildError::Slower { rules }),
            Err(BuildError::DoesNotFit { .. }) => Classifier::build_with(rules, default, Backend::Bits),
            built => built,
        }
    }

    /// Compiles `rules` in a given way, for tests and measurements.
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

    /// Gives the rules numbers for verdicts and counts to name them by, in place of their places in the list: a rule that
    /// was there before others came keeps its own. As many as rules, each below 2³¹ - 1.
    ///
    /// # Panics
    /// If there are not as many.
    #[must_use]
    pub fn numbered(mut self, numbers: &[u32]) -> Classifier<A> {
        assert_eq!(numbers.len(), self.rules.len(), "one number a rule");
        match &mut self.compiled {
            Compiled::Cross(cross) => cross.renumber(numbers),
            Compiled::Bits(bits) => bits.renumber(numbers),
        }
        self
    }

    /// The verdict on every key, and in `hits` one more for each rule that decided or counted. `hits` should
    /// come from [`Classifier::hits`]: rules beyond its length are counted together.
    ///
    /// # Panics
    /// If `keys` and `verdicts` differ in length.
    pub fn classify_batch(&self, keys: &[Key<A>], verdicts: &mut [Verdict], hits: &mut Hits) {
        assert_eq!(keys.len(), verdicts.len(), "one verdict per key");
        for (keys, verdicts) in keys.chunks(CHUNK).zip(verdicts.chunks_mut(CHUNK)) {
            match &self.compiled {
                Compiled::Cross(cross) => cross.classify(keys, verdicts, hits),
                Compiled::Bits(bits) => bits.classify(keys, verdicts, hits),
            }
            hits.count_verdicts(verdicts);
        }
    }

    /// Counters for this list, all zero.
    pub fn hits(&self) -> Hits {
        Hits::new(self.rules.len())
    }

    /// The rules it was compiled from, in order.
    pub fn rules(&self) -> &Arc<[Rule<A>]> {
        &self.rules
    }

    /// What happens to packets that no rule decides about.
    pub fn default_decision(&self) -> Decision {
        self.default
    }

    /// How the list was compiled.
    pub fn backend(&self) -> Backend {
        match self.compiled {
            Compiled::Cross(_) => Backend::Cross,
            Compiled::Bits(_) => Backend::Bits,
        }
    }

    /// Bytes the compiled tables take, without the rules they came from.
    pub fn memory_bytes(&self) -> usize {
        match &self.compiled {
            Compiled::Cross(cross) => cross.memory_bytes(),
            Compiled::Bits(bits) => bits.memory_bytes(),
        }
    }
}
