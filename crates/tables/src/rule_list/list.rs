//! A rule list in the form that classifies packets: compiled, or as tuples while the list is being changed.
//!
//! Both forms give the same verdicts. The first change makes tuples out of the compiled form. A list without changes
//! for a while is compiled again ([`super::rest`]). It keeps its tuples, so that the next change need not build the
//! tuples again. A list for which tuples are faster, or which is too costly to compile, uses tuples from the start and
//! keeps them.

use std::sync::Arc;

use crate::acl::readable::Sets;
use crate::acl::{
    BuildError, Classifier, Decision, HeaderKey, Hits, Label, Rule, RuleAddress, Step, Tuples, Verdict, labels,
};
use forebay_graph::Replay;
use forebay_packet::Hidden;

/// One rule list, for both families.
#[derive(Clone)]
pub struct List {
    /// The rules of IPv4.
    pub v4: Form<u32>,
    /// The rules of IPv6.
    pub v6: Form<u128>,
    /// The named sets that added rules may use.
    pub sets: Arc<Sets>,
}

impl List {
    /// Builds the initial form of a list. `seed` is the seed of the tuples' hashes.
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

/// The rules of one family, in one of two forms or in both. All changes go through `change`.
#[derive(Clone)]
pub struct Form<A: RuleAddress> {
    /// The faster form. It is only present while it holds the current rules. If it is present, packets use it.
    compiled: Option<Arc<Classifier<A>>>,
    /// The form that can change. A list that was compiled at the start has no tuples before its first change.
    tuples: Option<Box<Tuples<A>>>,
    /// The rules, and why they are not compiled: only for a list that was not compiled at the start and has not been
    /// changed.
    listed: Option<(Arc<[Rule<A>]>, BuildError)>,
    /// The seed of the tuples' hashes.
    seed: u64,
    /// How many rules need the protocol, how many need ports, and how many need an ICMP type. These fields cannot be
    /// read in every packet.
    needs: Needs,
}

/// Counts of the rules that need a protocol, ports, or an ICMP type.
#[derive(Clone, Copy, Default)]
pub struct Needs {
    /// The number of rules that need a protocol.
    protocol: usize,
    /// The number of rules that need ports.
    ports: usize,
    /// The number of rules that need an ICMP type.
    icmp: usize,
}

impl Needs {
    fn add<A: RuleAddress>(&mut self, rule: &Rule<A>) {
        self.protocol += usize::from(!rule.protocol.is_any());
        self.ports += usize::from(rule.constrains_ports() && !rule.constrains_icmp());
        self.icmp += usize::from(rule.constrains_icmp());
    }

    fn remove<A: RuleAddress>(&mut self, rule: &Rule<A>) {
        self.protocol = self.protocol.saturating_sub(usize::from(!rule.protocol.is_any()));
        self.ports = self.ports.saturating_sub(usize::from(rule.constrains_ports() && !rule.constrains_icmp()));
        self.icmp = self.icmp.saturating_sub(usize::from(rule.constrains_icmp()));
    }

    /// Returns true if a rule needs the fields that `hidden` names; every rule needs the addresses
    /// ([`Hidden::Network`]). The verdict on a packet in which these fields cannot be read is then unknown.
    pub fn for_hidden(self, hidden: Hidden) -> bool {
        match hidden {
            Hidden::Network => true,
            Hidden::Protocol => self.protocol > 0 || self.ports > 0,
            Hidden::Ports { .. } => self.ports > 0,
        }
    }

    /// Returns whether any rule needs an ICMP type. If true, the key of an ICMP packet contains its type and code, and
    /// the verdict is unknown if they cannot be read. A later fragment has neither, so its key does not contain them.
    /// If false, no key contains them, and a rule with a type would match no packet.
    ///
    /// [`for_hidden`](Self::for_hidden) and [`any`](Self::any) need not check the ICMP types: a rule with a type also
    /// needs the protocol, and ICMP has no ports.
    pub fn for_icmp(self) -> bool {
        self.icmp > 0
    }

    /// Returns whether any rule needs a protocol or a port.
    #[inline]
    pub fn any(self) -> bool {
        self.protocol > 0 || self.ports > 0
    }
}

/// A change of the rules of one family.
pub enum Change<A: RuleAddress> {
    /// A rule is added, removed or relabelled.
    Step(Step<A>),
    /// The rules have been compiled.
    Compiled(Arc<Classifier<A>>),
}

/// The changes of a list.
#[derive(Default)]
pub struct Log {
    /// Changes of the rules of IPv4.
    pub v4: Vec<Change<u32>>,
    /// Changes of the rules of IPv6.
    pub v6: Vec<Change<u128>>,
}

impl<A: RuleAddress> Form<A> {
    /// Creates the compiled form of a list. Creates tuples instead if they are faster or the list is too costly to
    /// compile. The only error is [`BuildError::TooManyRules`].
    fn of(rules: Vec<Rule<A>>, default: Decision, seed: u64) -> Result<Self, BuildError> {
        let rules: Arc<[Rule<A>]> = rules.into();
        let mut needs = Needs::default();
        rules.iter().for_each(|rule| needs.add(rule));
        match Classifier::build(Arc::clone(&rules), default) {
            Ok(built) => Ok(Self { compiled: Some(Arc::new(built)), tuples: None, listed: None, seed, needs }),
            Err(error @ BuildError::TooManyRules { .. }) => Err(error),
            Err(why) => {
                let tuples = Some(Box::new(tuples(&rules, default, seed)));
                Ok(Self { compiled: None, tuples, listed: Some((rules, why)), seed, needs })
            }
        }
    }

    /// Writes the verdict on every key, and adds one to `hits` for each rule that decided or counted.
    #[inline]
    pub fn classify_batch(&self, keys: &[HeaderKey<A>], verdicts: &mut [Verdict], hits: &mut Hits) {
        match (&self.compiled, &self.tuples) {
            (Some(classifier), _) => classifier.classify_batch(keys, verdicts, hits),
            (None, Some(tuples)) => tuples.classify_batch(keys, verdicts, hits),
            (None, None) => {}
        }
    }

    /// Returns how many rules need the protocol, the ports or an ICMP type. These fields cannot be read in every
    /// packet.
    #[inline]
    pub fn needs(&self) -> Needs {
        self.needs
    }

    /// Returns the number of rules.
    pub(super) fn len(&self) -> usize {
        let compiled = self.compiled.as_ref().map(|classifier| classifier.rules().len());
        compiled.or(self.tuples.as_ref().map(|tuples| tuples.len())).unwrap_or(0)
    }

    /// Returns whether the compiled form classifies packets.
    #[cfg(test)]
    pub(super) fn is_compiled(&self) -> bool {
        self.compiled.is_some()
    }

    /// Returns the rules in order. Returns `None` if the rules have changed since the last compilation (or, if they
    /// were never compiled, since the start).
    pub(super) fn rules(&self) -> Option<&[Rule<A>]> {
        let compiled = self.compiled.as_ref().map(|classifier| &**classifier.rules());
        compiled.or(self.listed.as_ref().map(|(rules, _)| &**rules))
    }

    /// Returns why the rules were not compiled at the start. Returns `None` if they were compiled or have been changed.
    pub(super) fn not_compiled(&self) -> Option<&BuildError> {
        self.listed.as_ref().map(|(_, why)| why)
    }

    /// Returns the tuples if [`rules`](Self::rules) returns `None`: the rules have changed and are not compiled.
    pub(super) fn changing(&self) -> Option<&Tuples<A>> {
        self.tuples.as_deref().filter(|_| self.compiled.is_none() && self.listed.is_none())
    }

    /// Returns the label of the first rule that equals `rule`.
    pub(super) fn find(&self, rule: &Rule<A>) -> Option<Label> {
        if let Some(tuples) = &self.tuples {
            return tuples.find(rule);
        }
        let rules = self.rules()?;
        labels(rules.len()).zip(rules).find(|(_, listed)| *listed == rule).map(|(label, _)| label)
    }

    /// Makes a change and appends it to `log`, from which the other copy of the list follows ([`Replay`]).
    pub(super) fn change(&mut self, change: Change<A>, log: &mut Vec<Change<A>>) {
        self.apply(&change);
        log.push(change);
    }

    /// Makes a change. A step removes the compiled form, which no longer holds the current rules.
    fn apply(&mut self, change: &Change<A>) {
        match change {
            Change::Compiled(classifier) => self.compiled = Some(Arc::clone(classifier)),
            Change::Step(step) => {
                self.listed = None;
                match step {
                    Step::Insert { rule, .. } => self.needs.add(rule),
                    Step::Remove { rule, .. } => self.needs.remove(rule),
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

/// Builds the tuples of an unchanged list. The labels are the same as those of [`Order`](crate::acl::Order).
fn tuples<A: RuleAddress>(rules: &[Rule<A>], default: Decision, seed: u64) -> Tuples<A> {
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
