//! Rules in their order, found by position or by label, where rules come and go anywhere.
//!
//! A label is a number that grows along the list, so that a rule keeps it while others come and go before it; positions do
//! not have that. New rules get one between their neighbours'. Where these have no room left, the labels around are spread
//! anew: of as few rules as will do, more the more often it happens at one place, so that it costs a few labels a change
//! however rules come (after Bender, Cole, Demaine, Farach-Colton and Zito, "Two Simplified Algorithms for Maintaining
//! Order in a List", ESA 2002).
//!
//! The list is cut into short pieces: a change moves the rest of one, and positions are found by their lengths.

use super::rule::{Address, Rule};
use super::tuples::{Label, Step};

/// Rules in a piece at most.
const PIECE: usize = 128;
/// Between labels where nothing forces them nearer: 40 times a rule can come between the same two, and as many rules as a
/// list may have take the 128th part of all labels.
const GAP: u64 = 1 << 40;
/// Labels that are spread anew at first.
const SPREAD: usize = 64;
/// What is to be between those at least; four times as much when twice as many are spread, so that a wide spread lasts
/// longer than the narrower ones in it.
const LEAST_GAP: u64 = 1 << 16;

/// A rule in its place.
#[derive(Clone, Copy, Debug)]
pub struct Place<A> {
    /// Greater than that of the place before.
    pub label: Label,
    /// The rule.
    pub rule: Rule<A>,
    /// What it is counted under.
    pub number: u32,
}

/// Rules in order.
#[derive(Clone, Debug)]
pub struct Order<A> {
    /// None is empty.
    pieces: Vec<Vec<Place<A>>>,
    len: usize,
}

/// The labels of a list of this length that nobody has changed: in the middle of all, [`GAP`] apart.
pub fn labels(len: usize) -> impl Iterator<Item = Label> {
    let first = (1 << 63) - len as u64 / 2 * GAP;
    (0..len as u64).map(move |place| first + place * GAP)
}

impl<A: Address> Order<A> {
    /// Rules in order, counted under their places.
    pub fn of(rules: &[Rule<A>]) -> Order<A> {
        let places: Vec<_> = labels(rules.len())
            .zip(rules.iter().zip(0..))
            .map(|(label, (rule, number))| Place { label, rule: *rule, number })
            .collect();
        Order { len: places.len(), pieces: places.chunks(PIECE / 2).map(<[_]>::to_vec).collect() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The piece and the place in it of a position below the length.
    fn at(&self, position: usize) -> (usize, usize) {
        let mut left = position;
        for (index, piece) in self.pieces.iter().enumerate() {
            if left < piece.len() {
                return (index, left);
            }
            left -= piece.len();
        }
        (self.pieces.len(), left)
    }

    /// What is at a position.
    pub fn get(&self, position: usize) -> Option<&Place<A>> {
        let (piece, at) = self.at(position);
        self.pieces.get(piece)?.get(at)
    }

    /// All from a position on.
    pub fn from(&self, position: usize) -> impl Iterator<Item = &Place<A>> {
        let (piece, at) = self.at(position);
        self.pieces[piece..].iter().flatten().skip(at)
    }

    /// Puts another rule at a position that there is.
    pub fn set(&mut self, position: usize, rule: Rule<A>, number: u32) {
        let (piece, at) = self.at(position);
        let label = self.pieces[piece][at].label;
        self.pieces[piece][at] = Place { label, rule, number };
    }

    /// Adds a rule before the one at this position, or at the end, and says with what label. `relabel` is told of rules
    /// that get other labels, so that at each step they are in order.
    pub fn insert(&mut self, position: usize, rule: Rule<A>, number: u32, mut relabel: impl FnMut(Step<A>)) -> Label {
        let (mut piece, mut at) = self.at(position.min(self.len));
        if piece == self.pieces.len() {
            // At the end: of the last piece.
            match piece.checked_sub(1) {
                Some(last) => (piece, at) = (last, self.pieces[last].len()),
                None => self.pieces.push(Vec::with_capacity(PIECE)),
            }
        }
        let before = match at.checked_sub(1) {
            Some(before) => Some(self.pieces[piece][before].label),
            None => piece.checked_sub(1).and_then(|piece| self.pieces[piece].last()).map(|place| place.label),
        };
        let after = self.pieces[piece].get(at).map(|place| place.label);
        let label = between(before, after).unwrap_or_else(|| {
            self.spread(position, &mut relabel);
            let label = |position: usize| self.get(position).map(|place| place.label);
            between(position.checked_sub(1).and_then(label), label(position)).expect("labels have been spread")
        });
        let piece_len = self.pieces[piece].len();
        if piece_len == PIECE {
            // What comes at the end of a full list leaves the piece full, and what comes elsewhere cuts it.
            let rest = self.pieces[piece].split_off(if at == PIECE { PIECE - 1 } else { PIECE / 2 });
            self.pieces.insert(piece + 1, rest);
            if at > self.pieces[piece].len() {
                at -= self.pieces[piece].len();
                piece += 1;
            }
        }
        self.pieces[piece].insert(at, Place { label, rule, number });
        self.len += 1;
        label
    }

    /// Takes out what is at a position that there is.
    pub fn remove(&mut self, position: usize) -> Place<A> {
        let (piece, at) = self.at(position);
        self.take(piece, at)
    }

    /// Takes out what has this label.
    pub fn remove_labelled(&mut self, label: Label) -> Option<Place<A>> {
        let piece = self.pieces.partition_point(|piece| piece[0].label <= label).checked_sub(1)?;
        let at = self.pieces[piece].binary_search_by_key(&label, |place| place.label).ok()?;
        Some(self.take(piece, at))
    }

    fn take(&mut self, piece: usize, at: usize) -> Place<A> {
        let place = self.pieces[piece].remove(at);
        self.len -= 1;
        let len = |piece: usize| self.pieces.get(piece).map_or(PIECE, Vec::len);
        if len(piece) == 0 {
            self.pieces.remove(piece);
        } else if len(piece) + len(piece + 1) <= PIECE / 2 {
            let next = self.pieces.remove(piece + 1);
            self.pieces[piece].extend(next);
        }
        place
    }

    /// Spreads the labels around a position.
    fn spread(&mut self, position: usize, relabel: &mut impl FnMut(Step<A>)) {
        let (mut count, mut least) = (SPREAD, LEAST_GAP);
        loop {
            let (from, to) = (position.saturating_sub(count / 2), (position + count / 2).min(self.len));
            let below = from.checked_sub(1).and_then(|before| self.get(before)).map_or(0, |place| place.label);
            let above = self.get(to).map_or(Label::MAX, |place| place.label);
            let gap = (above - below) / ((to - from) as u64 + 1);
            if gap < least && (from, to) != (0, self.len) {
                (count, least) = (count * 2, least * 4);
                continue;
            }
            let places: Vec<_> = self.from(from).take(to - from).copied().collect();
            let new = |index: usize| below + gap * (index as u64 + 1);
            let step = |(index, place): (usize, &Place<A>)| Step::Relabel {
                rule: place.rule,
                from: place.label,
                to: new(index),
            };
            // Those that move up from the last, those that move down from the first: so no two ever meet.
            let indexed = || places.iter().enumerate();
            indexed().rev().filter(|(index, place)| new(*index) > place.label).map(step).for_each(&mut *relabel);
            indexed().filter(|(index, place)| new(*index) < place.label).map(step).for_each(&mut *relabel);
            let (piece, at) = self.at(from);
            let moved = self.pieces[piece..].iter_mut().flatten().skip(at).take(to - from);
            moved.enumerate().for_each(|(index, place)| place.label = new(index));
            return;
        }
    }
}

/// A label between two, where there is one; of an end that is not there, [`GAP`] beyond the other.
fn between(before: Option<Label>, after: Option<Label>) -> Option<Label> {
    // Neither the lowest nor the highest of all is given: they stand for the ends.
    let (low, high) = (before.unwrap_or(0), after.unwrap_or(Label::MAX));
    let label = match (before, after) {
        (None, None) => 1 << 63,
        (Some(before), None) if high - before > 2 * GAP => before + GAP,
        (None, Some(after)) if after > 2 * GAP => after - GAP,
        _ => low + (high - low) / 2,
    };
    (low < label && label < high).then_some(label)
}

#[cfg(test)]
mod tests;
