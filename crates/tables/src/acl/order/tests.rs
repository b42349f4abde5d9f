//! Tests of the ordered list against a plain list, and of its labels against a map that follows the relabelling.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::rule::{Action, PortRange, Rule4};
use super::*;

/// Returns a rule that differs from the rules of other numbers.
fn rule(number: u32) -> Rule4 {
    let port = PortRange::new(number as u16, u16::MAX);
    Rule { sport: port, ..Rule::any(Action::Permit) }
}

/// An ordered list, the plain list that it must equal, and a map that only follows the [`Step`]s.
struct Model {
    order: Order<u32>,
    plain: Vec<(Rule4, u32)>,
    labelled: BTreeMap<Label, Rule4>,
    relabelled: usize,
}

impl Model {
    fn of(count: u32) -> Self {
        let plain: Vec<_> = (0..count).map(|number| (rule(number), number)).collect();
        let rules: Vec<_> = plain.iter().map(|(rule, _)| *rule).collect();
        let labelled = labels(rules.len()).zip(rules.iter().copied()).collect();
        Self { order: Order::of(&rules), plain, labelled, relabelled: 0 }
    }

    fn insert(&mut self, position: usize, number: u32) {
        let Self { order, labelled, relabelled, .. } = self;
        let relabel = |step| {
            let Step::Relabel { rule, from, to } = step else { panic!("only labels may change: {step:?}") };
            assert_eq!(labelled.remove(&from), Some(rule));
            let neighbours = (labelled.range(..from).next_back(), labelled.range(from..).next());
            assert!(neighbours.0.is_none_or(|(label, _)| *label < to), "the label passes that of the rule before");
            assert!(neighbours.1.is_none_or(|(label, _)| to < *label), "the label passes that of the rule behind");
            labelled.insert(to, rule);
            *relabelled += 1;
        };
        let label = order.insert(position, rule(number), number, relabel);
        assert_eq!(self.labelled.insert(label, rule(number)), None, "the label is already taken");
        self.plain.insert(position, (rule(number), number));
    }

    fn remove(&mut self, position: usize, by_label: bool) {
        let label = self.order.get(position).expect("the position exists").label;
        let removed = if by_label {
            self.order.remove_labelled(label).expect("the label exists")
        } else {
            self.order.remove(position)
        };
        assert_eq!((removed.rule, removed.number), self.plain.remove(position));
        assert_eq!(self.labelled.remove(&label), Some(removed.rule));
        assert!(self.order.remove_labelled(label).is_none());
    }

    fn check(&self) {
        assert_eq!((self.order.len(), self.order.is_empty()), (self.plain.len(), self.plain.is_empty()));
        assert!(self.order.from(0).map(|entry| (entry.rule, entry.number)).eq(self.plain.iter().copied()));
        assert!(
            self.order.from(0).map(|entry| (entry.label, entry.rule)).eq(self.labelled.iter().map(|(l, r)| (*l, *r)))
        );
        assert!(self.labelled.keys().all(|label| (1..Label::MAX).contains(label)));
        let half = self.plain.len() / 2;
        assert_eq!(self.order.get(half).map(|entry| entry.number), self.plain.get(half).map(|(_, number)| *number));
        assert_eq!(self.order.from(half).count(), self.plain.len() - half);
        assert!(self.order.get(self.plain.len()).is_none());
        assert!(self.order.pieces.iter().all(|piece| (1..=PIECE).contains(&piece.len())));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// In each step up to 120 rules are inserted at a position, removed from it, or replaced.
    #[test]
    fn it_is_a_list(
        start in 0u32..300,
        steps in prop::collection::vec((0u8..5, any::<prop::sample::Index>(), 1usize..120), 0..30),
    ) {
        let mut model = Model::of(start);
        let mut number = start;
        for (operation, position, count) in steps {
            for at in 0..count {
                let len = model.plain.len();
                let position = position.index(len + 1);
                match operation {
                    0 | 1 => {
                        // All rules at one position, or each behind the one before.
                        let position = if operation == 0 { position } else { (position + at).min(len) };
                        model.insert(position, number);
                        number += 1;
                    }
                    2 | 3 if position < len => model.remove(position, operation == 3),
                    4 if position < len => {
                        let label = model.order.get(position).expect("the position exists").label;
                        model.order.set(position, rule(number), number);
                        model.plain[position] = (rule(number), number);
                        model.labelled.insert(label, rule(number));
                        number += 1;
                    }
                    _ => {}
                }
            }
            model.check();
        }
    }
}

#[test]
fn labels_last_however_rules_come() {
    // All before the first rule, all behind the last, all at one position, and each between the last two.
    let positions: [fn(usize) -> usize; 4] = [|_| 0, |len| len, |_| 500, |len| (len - 1_000) / 2 + 500];
    for (way, position) in positions.into_iter().enumerate() {
        let mut model = Model::of(1_000);
        for number in 0..20_000 {
            let at = position(model.plain.len());
            model.insert(at, 1_000 + number);
        }
        model.check();
        // At most a few labels change per rule, and none if rules are added at the ends.
        assert!(model.relabelled <= if way < 2 { 0 } else { 20_000 * 8 }, "way {way}: {} labels", model.relabelled);
    }
}

#[test]
fn small_pieces_are_put_together() {
    let mut model = Model::of(6_000);
    // Remove nearly all of each piece.
    for position in (0..6_000).rev().filter(|position| position % 60 != 0) {
        model.remove(position, false);
    }
    model.check();
    assert!(model.order.pieces.len() <= 8, "{} pieces of 100 rules", model.order.pieces.len());
}

#[test]
fn insertions_at_one_position_of_the_longest_list_relabel_a_neighbourhood() {
    let mut model = Model::of(super::super::MAX_RULES as u32 - 200);
    for number in 0..200 {
        model.insert(60_000, number);
    }
    model.check();
    assert!(model.relabelled < 200 * 8, "{} labels", model.relabelled);
}

/// Regression test: if no label was free at the end, a position beyond the end made the respacing panic.
#[test]
fn a_position_beyond_the_end_is_the_end_also_if_labels_are_respaced() {
    let last = OrderedRule { label: Label::MAX - 1, rule: rule(0), number: 0 };
    let mut order = Order { pieces: vec![vec![last]], len: 1 };
    let mut relabelled = 0;
    let label = order.insert(1_000, rule(1), 1, |_| relabelled += 1);
    let numbers: Vec<_> = order.from(0).map(|entry| entry.number).collect();
    assert_eq!((numbers, relabelled, order.len()), (vec![0, 1], 1, 2));
    assert!(order.get(0).is_some_and(|first| first.label < label));
}
