//! Rules by position and by label against a plain list, with a map that follows the labels.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::rule::{Action, PortRange, Rule4};
use super::*;

/// A rule that tells itself from others.
fn rule(number: u32) -> Rule4 {
    let port = PortRange::new(number as u16, u16::MAX);
    Rule { sport: port, ..Rule::any(Action::Permit) }
}

/// An order, the plain list that it is to be the same as, and what somebody knows who is told of steps alone.
struct Model {
    order: Order<u32>,
    plain: Vec<(Rule4, u32)>,
    told: BTreeMap<Label, Rule4>,
    relabelled: usize,
}

impl Model {
    fn of(count: u32) -> Self {
        let plain: Vec<_> = (0..count).map(|number| (rule(number), number)).collect();
        let rules: Vec<_> = plain.iter().map(|(rule, _)| *rule).collect();
        let told = labels(rules.len()).zip(rules.iter().copied()).collect();
        Self { order: Order::of(&rules), plain, told, relabelled: 0 }
    }

    fn insert(&mut self, position: usize, number: u32) {
        let Self { order, told, relabelled, .. } = self;
        let relabel = |step| {
            let Step::Relabel { rule, from, to } = step else { panic!("nothing but labels changes: {step:?}") };
            assert_eq!(told.remove(&from), Some(rule));
            let neighbours = (told.range(..from).next_back(), told.range(from..).next());
            assert!(neighbours.0.is_none_or(|(label, _)| *label < to), "it overtakes the one before");
            assert!(neighbours.1.is_none_or(|(label, _)| to < *label), "it overtakes the one behind");
            told.insert(to, rule);
            *relabelled += 1;
        };
        let label = order.insert(position, rule(number), number, relabel);
        assert_eq!(self.told.insert(label, rule(number)), None, "a label of its own");
        self.plain.insert(position, (rule(number), number));
    }

    fn remove(&mut self, position: usize, by_label: bool) {
        let label = self.order.get(position).expect("it is there").label;
        let place = if by_label {
            self.order.remove_labelled(label).expect("it is there")
        } else {
            self.order.remove(position)
        };
        assert_eq!((place.rule, place.number), self.plain.remove(position));
        assert_eq!(self.told.remove(&label), Some(place.rule));
        assert!(self.order.remove_labelled(label).is_none());
    }

    fn check(&self) {
        assert_eq!((self.order.len(), self.order.is_empty()), (self.plain.len(), self.plain.is_empty()));
        assert!(self.order.from(0).map(|place| (place.rule, place.number)).eq(self.plain.iter().copied()));
        assert!(self.order.from(0).map(|place| (place.label, place.rule)).eq(self.told.iter().map(|(l, r)| (*l, *r))));
        assert!(self.told.keys().all(|label| (1..Label::MAX).contains(label)));
        let half = self.plain.len() / 2;
        assert_eq!(self.order.get(half).map(|place| place.number), self.plain.get(half).map(|(_, number)| *number));
        assert_eq!(self.order.from(half).count(), self.plain.len() - half);
        assert!(self.order.get(self.plain.len()).is_none());
        assert!(self.order.pieces.iter().all(|piece| (1..=PIECE).contains(&piece.len())));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Each step: so many rules come at this place, or go from it, or one is replaced.
    #[test]
    fn it_is_a_list(start in 0u32..300, steps in prop::collection::vec((0u8..5, any::<prop::sample::Index>(), 1usize..120), 0..30)) {
        let mut model = Model::of(start);
        let mut number = start;
        for (what, place, count) in steps {
            for at in 0..count {
                let len = model.plain.len();
                let place = place.index(len + 1);
                match what {
                    0 | 1 => {
                        // At one place, or each behind the one before.
                        let place = if what == 0 { place } else { (place + at).min(len) };
                        model.insert(place, number);
                        number += 1;
                    }
                    2 | 3 if place < len => model.remove(place, what == 3),
                    4 if place < len => {
                        let label = model.order.get(place).expect("it is there").label;
                        model.order.set(place, rule(number), number);
                        model.plain[place] = (rule(number), number);
                        model.told.insert(label, rule(number));
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
    // All before the first, all behind the last, all in one place, and each between the last two.
    let places: [fn(usize) -> usize; 4] = [|_| 0, |len| len, |_| 500, |len| (len - 1_000) / 2 + 500];
    for (way, place) in places.into_iter().enumerate() {
        let mut model = Model::of(1_000);
        for number in 0..20_000 {
            let at = place(model.plain.len());
            model.insert(at, 1_000 + number);
        }
        model.check();
        // A few labels a rule at worst, and none at the ends.
        assert!(model.relabelled <= if way < 2 { 0 } else { 20_000 * 8 }, "way {way}: {} labels", model.relabelled);
    }
}

#[test]
fn small_pieces_are_put_together() {
    let mut model = Model::of(6_000);
    // Nearly all of each piece goes.
    for position in (0..6_000).rev().filter(|position| position % 60 != 0) {
        model.remove(position, false);
    }
    model.check();
    assert!(model.order.pieces.len() <= 8, "{} pieces of 100 rules", model.order.pieces.len());
}

#[test]
fn what_crowds_in_the_longest_list_relabels_a_neighbourhood() {
    let mut model = Model::of(super::super::MAX_RULES as u32 - 200);
    for number in 0..200 {
        model.insert(60_000, number);
    }
    model.check();
    assert!(model.relabelled < 200 * 8, "{} labels", model.relabelled);
}
