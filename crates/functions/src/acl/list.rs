//! A rule list as packets are judged by it: compiled, or as tuples while it is being changed.
//!
//! Both answer alike. The first change makes tuples of what is compiled; a list that has been left alone for a while is
//! compiled again ([`super::rest`]).

use std::sync::Arc;

use forebay_graph::Replay;

use crate::tables::acl::{Address, Classifier, Decision, Hits, Key, Label, Rule, Step, Tuples, Verdict, labels};

/// One rule list, for both families.
#[derive(Clone)]
pub(super) struct List {
    pub(super) v4: Form<u32>,
    pub(super) v6: Form<u128>,
}

impl List {
    /// A list that is compiled. The seed is that of its tuples' hashes.
    pub(super) fn compiled(v4: Classifier<u32>, v6: Classifier<u128>, seed: u64) -> Self {
        let (v4, v6) = (Arc::new(v4), Arc::new(v6));
        Self { v4: Form { seed, rules: Rules::Compiled(v4) }, v6: Form { seed, rules: Rules::Compiled(v6) } }
    }
}

/// The rules of one family, in one of two forms.
#[derive(Clone)]
pub(super) struct Form<A: Address> {
    seed: u64,
    rules: Rules<A>,
}

#[derive(Clone)]
enum Rules<A: Address> {
    /// As they are when nobody changes them: the faster one to ask.
    Compiled(Arc<Classifier<A>>),
    /// As they are while they change.
    Changing(Box<Tuples<A>>),
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
    /// The verdict on every key, and in `hits` one more for each rule that decided or counted.
    #[inline]
    pub(super) fn classify_batch(&self, keys: &[Key<A>], verdicts: &mut [Verdict], hits: &mut Hits) {
        match &self.rules {
            Rules::Compiled(classifier) => classifier.classify_batch(keys, verdicts, hits),
            Rules::Changing(tuples) => tuples.classify_batch(keys, verdicts, hits),
        }
    }

    /// How many rules there are.
    pub(super) fn len(&self) -> usize {
        match &self.rules {
            Rules::Compiled(classifier) => classifier.rules().len(),
            Rules::Changing(tuples) => tuples.len(),
        }
    }

    /// What is compiled, where it is.
    pub(super) fn classifier(&self) -> Option<&Arc<Classifier<A>>> {
        match &self.rules {
            Rules::Compiled(classifier) => Some(classifier),
            Rules::Changing(_) => None,
        }
    }

    /// What happens to packets that no rule decides about, of a list that is being changed.
    pub(super) fn changing_default(&self) -> Option<Decision> {
        match &self.rules {
            Rules::Compiled(_) => None,
            Rules::Changing(tuples) => Some(tuples.default_decision()),
        }
    }

    /// The label of the first rule that is equal to this one.
    pub(super) fn find(&self, rule: &Rule<A>) -> Option<Label> {
        match &self.rules {
            Rules::Changing(tuples) => tuples.find(rule),
            Rules::Compiled(classifier) => {
                let rules = classifier.rules();
                labels(rules.len()).zip(rules).find(|(_, there)| *there == rule).map(|(label, _)| label)
            }
        }
    }

    /// Makes a change and notes it.
    pub(super) fn change(&mut self, change: Change<A>, log: &mut Vec<Change<A>>) {
        self.apply(&change);
        log.push(change);
    }

    fn apply(&mut self, change: &Change<A>) {
        match (change, &mut self.rules) {
            (Change::Compiled(classifier), rules) => *rules = Rules::Compiled(Arc::clone(classifier)),
            (Change::Step(step), Rules::Changing(tuples)) => tuples.apply(step),
            (Change::Step(step), Rules::Compiled(classifier)) => {
                let mut tuples = Box::new(tuples(classifier, self.seed));
                tuples.apply(step);
                self.rules = Rules::Changing(tuples);
            }
        }
    }
}

/// The tuples of a compiled list. Labels are those that [`Order`](crate::tables::acl::Order) gives such a list too.
fn tuples<A: Address>(classifier: &Classifier<A>, seed: u64) -> Tuples<A> {
    let rules = classifier.rules();
    let mut tuples = Tuples::new(rules.len(), classifier.default_decision(), seed);
    for ((rule, number), label) in rules.iter().zip(classifier.numbers()).zip(labels(rules.len())) {
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
