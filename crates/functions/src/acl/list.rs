//! A rule list as packets are judged by it: compiled, or as tuples while it is being changed.
//!
//! Both answer alike. The first change makes tuples of what is compiled; a list that has been left alone for a while is
//! compiled again ([`super::rest`]), and keeps its tuples for the next change, which then need not be made anew. A list of
//! which tuples are faster, or that takes too much to compile, is judged by them from the start, and stays so.

use std::sync::Arc;

use forebay_graph::Replay;
use forebay_packet::Hidden;

use crate::tables::acl::readable::Sets;
use crate::tables::acl::{
    Address, BuildError, Classifier, Decision, Hits, Key, Label, Rule, Step, Tuples, Verdict, labels,
};

/// One rule list, for both families.
#[derive(Clone)]
pub(super) struct List {
    pub(super) v4: Form<u32>,
    pub(super) v6: Form<u128>,
    /// The sets that rules may name which are added.
    pub(super) sets: Arc<Sets>,
}

impl List {
    /// A list as it is at first. The seed is that of its tuples' hashes.
    ///
    /// # Errors
    /// [`BuildError::TooManyRules`].
    pub(super) fn of(
        v4: Vec<Rule<u32>>,
        v6: Vec<Rule<u128>>,
        sets: Sets,
        default: Decision,
        seed: u64,
    ) -> Result<Self, BuildError> {
        Ok(Self { v4: Form::of(v4, default, seed)?, v6: Form::of(v6, default, seed)?, sets: Arc::new(sets) })
    }
}

/// The rules of one family, in one or both of two forms.
#[derive(Clone)]
pub(super) struct Form<A: Address> {
    /// Present where these are the rules as they are: the form that is faster to ask.
    compiled: Option<Arc<Classifier<A>>>,
    /// The form that changes. Of lists that are compiled there is none until there has been a change.
    tuples: Option<Box<Tuples<A>>>,
    /// The rules of a list that nobody has changed, and why it is not compiled.
    listed: Option<(Arc<[Rule<A>]>, BuildError)>,
    seed: u64,
    /// How many rules ask for what a packet may hide.
    asks: Asks,
}

/// How many rules ask for a protocol, how many for ports, and how many for a type of ICMP.
#[derive(Clone, Copy, Default)]
pub(super) struct Asks {
    protocol: usize,
    ports: usize,
    icmp: usize,
}

impl Asks {
    fn add<A: Address>(&mut self, rule: &Rule<A>) {
        self.protocol += usize::from(!rule.protocol.is_any());
        self.ports += usize::from(rule.constrains_ports() && !rule.constrains_icmp());
        self.icmp += usize::from(rule.constrains_icmp());
    }

    fn remove<A: Address>(&mut self, rule: &Rule<A>) {
        self.protocol = self.protocol.saturating_sub(usize::from(!rule.protocol.is_any()));
        self.ports = self.ports.saturating_sub(usize::from(rule.constrains_ports() && !rule.constrains_icmp()));
        self.icmp = self.icmp.saturating_sub(usize::from(rule.constrains_icmp()));
    }

    /// Whether the list cannot say what becomes of a packet that hides this: one of its rules asks for it.
    pub(super) fn for_hidden(self, hidden: Hidden) -> bool {
        match hidden {
            Hidden::Network => true,
            Hidden::Protocol => self.protocol > 0 || self.ports > 0,
            Hidden::Ports { .. } => self.ports > 0,
        }
    }

    /// Whether any rule asks for a type of ICMP.
    pub(super) fn for_icmp(self) -> bool {
        self.icmp > 0
    }

    /// Whether any rule asks for a protocol or a port.
    #[inline]
    pub(super) fn any(self) -> bool {
        self.protocol > 0 || self.ports > 0
    }
}

/// What is done to the rules of one family.
pub(super) enum Change<A: Address> {
    /// One of them comes, goes or moves.
    Step(Step<A>),
    /// They have been compiled.
    Compiled(Arc<Classifier<A>>),
}

/// What is done to a list.
#[derive(Default)]
pub(super) struct Log {
    pub(super) v4: Vec<Change<u32>>,
    pub(super) v6: Vec<Change<u128>>,
}

impl<A: Address> Form<A> {
    fn of(rules: Vec<Rule<A>>, default: Decision, seed: u64) -> Result<Self, BuildError> {
        let rules: Arc<[Rule<A>]> = rules.into();
        let mut asks = Asks::default();
        rules.iter().for_each(|rule| asks.add(rule));
        match Classifier::build(Arc::clone(&rules), default) {
            Ok(built) => Ok(Self { compiled: Some(Arc::new(built)), tuples: None, listed: None, seed, asks }),
            Err(error @ BuildError::TooManyRules { .. }) => Err(error),
            Err(why) => {
                let tuples = Some(Box::new(tuples(&rules, default, seed)));
                Ok(Self { compiled: None, tuples, listed: Some((rules, why)), seed, asks })
            }
        }
    }

    /// The verdict on every key, and in `hits` one more for each rule that decided or counted.
    #[inline]
    pub(super) fn classify_batch(&self, keys: &[Key<A>], verdicts: &mut [Verdict], hits: &mut Hits) {
        match (&self.compiled, &self.tuples) {
            (Some(classifier), _) => classifier.classify_batch(keys, verdicts, hits),
            (None, Some(tuples)) => tuples.classify_batch(keys, verdicts, hits),
            (None, None) => {}
        }
    }

    /// How many rules ask for what a packet may hide.
    #[inline]
    pub(super) fn asks(&self) -> Asks {
        self.asks
    }

    /// How many rules there are.
    pub(super) fn len(&self) -> usize {
        let compiled = self.compiled.as_ref().map(|classifier| classifier.rules().len());
        compiled.or(self.tuples.as_ref().map(|tuples| tuples.len())).unwrap_or(0)
    }

    /// Whether packets are judged by what is compiled.
    #[cfg(test)]
    pub(super) fn is_compiled(&self) -> bool {
        self.compiled.is_some()
    }

    /// The rules in order, where nobody has changed them since they were compiled, or since the start.
    pub(super) fn rules(&self) -> Option<&[Rule<A>]> {
        let compiled = self.compiled.as_ref().map(|classifier| &**classifier.rules());
        compiled.or(self.listed.as_ref().map(|(rules, _)| &**rules))
    }

    /// Why the rules are not compiled, where nobody has changed them.
    pub(super) fn not_compiled(&self) -> Option<&BuildError> {
        self.listed.as_ref().map(|(_, why)| why)
    }

    /// The tuples, where the rules have changed since they were compiled, or since the start.
    pub(super) fn changing(&self) -> Option<&Tuples<A>> {
        self.tuples.as_deref().filter(|_| self.compiled.is_none() && self.listed.is_none())
    }

    /// The label of the first rule that is equal to this one.
    pub(super) fn find(&self, rule: &Rule<A>) -> Option<Label> {
        if let Some(tuples) = &self.tuples {
            return tuples.find(rule);
        }
        let rules = self.rules()?;
        labels(rules.len()).zip(rules).find(|(_, there)| *there == rule).map(|(label, _)| label)
    }

    /// Makes a change and notes it.
    pub(super) fn change(&mut self, change: Change<A>, log: &mut Vec<Change<A>>) {
        self.apply(&change);
        log.push(change);
    }

    fn apply(&mut self, change: &Change<A>) {
        match change {
            Change::Compiled(classifier) => self.compiled = Some(Arc::clone(classifier)),
            Change::Step(step) => {
                self.listed = None;
                match step {
                    Step::Insert { rule, .. } => self.asks.add(rule),
                    Step::Remove { rule, .. } => self.asks.remove(rule),
                    Step::Relabel { .. } => {}
                }
                let compiled = self.compiled.take();
                if let (None, Some(classifier)) = (&self.tuples, compiled) {
                    self.tuples = Some(Box::new(tuples(classifier.rules(), classifier.default_decision(), self.seed)));
                }
                if let Some(tuples) = &mut self.tuples {
                    tuples.apply(step);
                }
            }
        }
    }
}

/// The tuples of a list that nobody has changed. Labels are those that [`Order`](crate::tables::acl::Order) gives it too.
fn tuples<A: Address>(rules: &[Rule<A>], default: Decision, seed: u64) -> Tuples<A> {
    let mut tuples = Tuples::new(rules.len(), default, seed);
    for ((rule, number), label) in rules.iter().zip(0..).zip(labels(rules.len())) {
        tuples.apply(&Step::Insert { rule: *rule, label, number });
    }
    tuples
}

impl Replay<Log> for List {
    fn replay(&mut self, log: &mut Log) {
        log.v4.drain(..).for_each(|change| self.v4.apply(&change));
        log.v6.drain(..).for_each(|change| self.v6.apply(&change));
    }
}
