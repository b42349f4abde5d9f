//! A rule list as packets are judged by it: compiled, or as tuples while it is being changed.
//!
//! Both answer alike. The first change makes tuples of what is compiled; a list that has been left alone for a while is
//! compiled again ([`super::rest`]), and keeps its tuples for the next change, which then need not be made anew. A list that
//! is so long that tuples are faster is judged by them from the start, and stays so.

use std::sync::Arc;

use forebay_graph::Replay;

use crate::tables::acl::{Address, Classifier, Hits, Key, Label, Rule, Step, Tuples, Verdict, labels};

/// One rule list, for both families.
#[derive(Clone)]
pub(super) struct List {
    pub(super) v4: Form<u32>,
    pub(super) v6: Form<u128>,
}

impl List {
    /// A list that is compiled. The seed is that of its tuples' hashes.
    pub(super) fn compiled(v4: Classifier<u32>, v6: Classifier<u128>, seed: u64) -> Self {
        Self { v4: Form::compiled(v4, seed), v6: Form::compiled(v6, seed) }
    }
}

/// The rules of one family, in one or both of two forms.
#[derive(Clone)]
pub(super) struct Form<A: Address> {
    /// Present where these are the rules as they are. Of all but long lists it is the form that is faster to ask.
    compiled: Option<Arc<Classifier<A>>>,
    /// The form that changes. Of lists that are fast when compiled there is none until there has been a change.
    tuples: Option<Box<Tuples<A>>>,
    seed: u64,
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
    fn compiled(classifier: Classifier<A>, seed: u64) -> Self {
        let tuples = (!classifier.is_quick()).then(|| Box::new(tuples(&classifier, seed)));
        Self { compiled: Some(Arc::new(classifier)), tuples, seed }
    }

    /// The verdict on every key, and in `hits` one more for each rule that decided or counted.
    #[inline]
    pub(super) fn classify_batch(&self, keys: &[Key<A>], verdicts: &mut [Verdict], hits: &mut Hits) {
        match (&self.compiled, &self.tuples) {
            (Some(classifier), None) => classifier.classify_batch(keys, verdicts, hits),
            (Some(classifier), _) if classifier.is_quick() => classifier.classify_batch(keys, verdicts, hits),
            (_, Some(tuples)) => tuples.classify_batch(keys, verdicts, hits),
            (None, None) => {}
        }
    }

    /// How many rules there are.
    pub(super) fn len(&self) -> usize {
        let compiled = self.compiled.as_ref().map(|classifier| classifier.rules().len());
        compiled.or(self.tuples.as_ref().map(|tuples| tuples.len())).unwrap_or(0)
    }

    /// What is compiled, where that is the rules as they are.
    pub(super) fn classifier(&self) -> Option<&Arc<Classifier<A>>> {
        self.compiled.as_ref()
    }

    /// The tuples, where the rules have changed since they were compiled.
    pub(super) fn changing(&self) -> Option<&Tuples<A>> {
        self.tuples.as_deref().filter(|_| self.compiled.is_none())
    }

    /// The label of the first rule that is equal to this one.
    pub(super) fn find(&self, rule: &Rule<A>) -> Option<Label> {
        if let Some(tuples) = &self.tuples {
            return tuples.find(rule);
        }
        let rules = self.compiled.as_ref()?.rules();
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
                let compiled = self.compiled.take();
                if let (None, Some(classifier)) = (&self.tuples, compiled) {
                    self.tuples = Some(Box::new(tuples(&classifier, self.seed)));
                }
                if let Some(tuples) = &mut self.tuples {
                    tuples.apply(step);
                }
            }
        }
    }
}

/// The tuples of a list that nobody has changed. Labels are those that [`Order`](crate::tables::acl::Order) gives it too.
fn tuples<A: Address>(classifier: &Classifier<A>, seed: u64) -> Tuples<A> {
    let rules = classifier.rules();
    let mut tuples = Tuples::new(rules.len(), classifier.default_decision(), seed);
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
