//! An ordered list of rules, indexed by position and by label, for insertions and removals anywhere.
//!
//! A label is a number that increases along the list. A rule keeps its label when rules are inserted or removed before
//! it, whereas its position changes. A new rule gets a label between its neighbours' labels. When no label is free
//! between them, the labels around the position are respaced: they get new values with larger gaps. A respacing covers
//! as few rules as suffice. If respacings happen often at one position, they cover more and more rules. So an insertion
//! changes only a few labels on average, whatever the order of the insertions is (after Bender, Cole, Demaine,
//! Farach-Colton and Zito, "Two Simplified Algorithms for Maintaining Order in a List", ESA 2002).
//!
//! The list is cut into short pieces. An insertion or removal moves only the entries of one piece, and a position is
//! found from the lengths of the pieces.

use super::rule::{Rule, RuleAddress};
use super::tuples::{Label, Step};

/// The largest number of rules in a piece.
const PIECE: usize = 128;
/// The gap between the labels of an unchanged list, and from the last label to the label of an appended rule. Before
/// labels must be respaced, rules can be inserted 40 times between the same two neighbours, and a list of the largest
/// size takes a 128th of all labels.
const GAP: u64 = 1 << 40;
/// The number of labels that the first attempt respaces.
const FIRST_RESPACED: usize = 64;
/// The smallest gap after respacing at the first attempt. Each time twice as many labels are respaced, the gap must be
/// four times as large, so that a wide respacing lasts longer than the narrower ones in it.
const LEAST_GAP: u64 = 1 << 16;

/// A rule of an ordered list, with its label and number.
#[derive(Clone, Copy, Debug)]
pub struct OrderedRule<A> {
    /// Greater than the label of the rule before.
    pub label: Label,
    /// The rule.
    pub rule: Rule<A>,
    /// The number under which the rule is counted.
    pub number: u32,
}

/// An ordered list of rules.
#[derive(Clone, Debug)]
pub struct Order<A> {
    /// No piece is empty.
    pieces: Vec<Vec<OrderedRule<A>>>,
    len: usize,
}

/// Returns the labels of an unchanged list of this length: [`GAP`] apart, around the middle of all labels.
pub fn labels(len: usize) -> impl Iterator<Item = Label> {
    let first = (1 << 63) - len as u64 / 2 * GAP;
    (0..len as u64).map(move |index| first + index * GAP)
}

impl<A: RuleAddress> Order<A> {
    /// Creates a list of `rules` in order. Each rule is counted under its index.
    pub fn of(rules: &[Rule<A>]) -> Order<A> {
        let entries: Vec<_> = labels(rules.len())
            .zip(rules.iter().zip(0..))
            .map(|(label, (rule, number))| OrderedRule { label, rule: *rule, number })
            .collect();
        Order { len: entries.len(), pieces: entries.chunks(PIECE / 2).map(<[_]>::to_vec).collect() }
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the list has no rules.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the piece of a position and the index in that piece. If the position is not below the length, the piece
    /// is `pieces.len()`, which does not exist.
    fn at(&self, position: usize) -> (usize, usize) {
        let mut offset = position;
        for (index, piece) in self.pieces.iter().enumerate() {
            if offset < piece.len() {
                return (index, offset);
            }
            offset -= piece.len();
        }
        (self.pieces.len(), offset)
    }

    /// Returns the rule at a position.
    pub fn get(&self, position: usize) -> Option<&OrderedRule<A>> {
        let (piece, at) = self.at(position);
        self.pieces.get(piece)?.get(at)
    }

    /// Iterates over the rules from a position on.
    pub fn from(&self, position: usize) -> impl Iterator<Item = &OrderedRule<A>> {
        let (piece, at) = self.at(position);
        self.pieces[piece..].iter().flatten().skip(at)
    }

    /// Replaces the rule at a position, which must be below the length.
    pub fn set(&mut self, position: usize, rule: Rule<A>, number: u32) {
        let (piece, at) = self.at(position);
        let label = self.pieces[piece][at].label;
        self.pieces[piece][at] = OrderedRule { label, rule, number };
    }

    /// Inserts a rule before the rule at `position`, or at the end if there is no such rule, and returns the label of
    /// the new rule. Calls `relabel` for each rule whose label changes, in an order that keeps the labels increasing at
    /// each step.
    pub fn insert(&mut self, position: usize, rule: Rule<A>, number: u32, mut relabel: impl FnMut(Step<A>)) -> Label {
        let position = position.min(self.len);
        let (mut piece, mut at) = self.at(position);
        if piece == self.pieces.len() {
            // At the end: append to the last piece.
            match piece.checked_sub(1) {
                Some(last) => (piece, at) = (last, self.pieces[last].len()),
                None => self.pieces.push(Vec::with_capacity(PIECE)),
            }
        }
        let before = match at.checked_sub(1) {
            Some(before) => Some(self.pieces[piece][before].label),
            None => piece.checked_sub(1).and_then(|piece| self.pieces[piece].last()).map(|entry| entry.label),
        };
        let after = self.pieces[piece].get(at).map(|entry| entry.label);
        let label = between(before, after).unwrap_or_else(|| {
            self.respace(position, &mut relabel);
            let label = |position: usize| self.get(position).map(|entry| entry.label);
            between(position.checked_sub(1).and_then(label), label(position)).expect("labels have been respaced")
        });
        let piece_len = self.pieces[piece].len();
        if piece_len == PIECE {
            // If the rule is appended to the list, only the last rule moves to a new piece, so that pieces stay nearly
            // full. Otherwise half of the piece moves.
            let rest = self.pieces[piece].split_off(if at == PIECE { PIECE - 1 } else { PIECE / 2 });
            self.pieces.insert(piece + 1, rest);
            if at > self.pieces[piece].len() {
                at -= self.pieces[piece].len();
                piece += 1;
            }
        }
        self.pieces[piece].insert(at, OrderedRule { label, rule, number });
        self.len += 1;
        label
    }

    /// Removes the rule at a position, which must be below the length.
    pub fn remove(&mut self, position: usize) -> OrderedRule<A> {
        let (piece, at) = self.at(position);
        self.take(piece, at)
    }

    /// Removes the rule with this label and returns it, or `None` if no rule has the label.
    pub fn remove_labelled(&mut self, label: Label) -> Option<OrderedRule<A>> {
        let piece = self.pieces.partition_point(|piece| piece[0].label <= label).checked_sub(1)?;
        let at = self.pieces[piece].binary_search_by_key(&label, |removed| removed.label).ok()?;
        Some(self.take(piece, at))
    }

    /// Removes the rule at an index of a piece. Removes the piece if it is empty then, and joins it with the next piece
    /// if both are short.
    fn take(&mut self, piece: usize, at: usize) -> OrderedRule<A> {
        let removed = self.pieces[piece].remove(at);
        self.len -= 1;
        let len = |piece: usize| self.pieces.get(piece).map_or(PIECE, Vec::len);
        if len(piece) == 0 {
            self.pieces.remove(piece);
        } else if len(piece) + len(piece + 1) <= PIECE / 2 {
            let next = self.pieces.remove(piece + 1);
            self.pieces[piece].extend(next);
        }
        removed
    }

    /// Respaces the labels around a position, so that the gaps there are large enough for further insertions. Calls
    /// `relabel` as [`insert`](Self::insert) does.
    fn respace(&mut self, position: usize, relabel: &mut impl FnMut(Step<A>)) {
        let (mut count, mut least) = (FIRST_RESPACED, LEAST_GAP);
        loop {
            let (from, to) = (position.saturating_sub(count / 2), (position + count / 2).min(self.len));
            let below = from.checked_sub(1).and_then(|before| self.get(before)).map_or(0, |entry| entry.label);
            let above = self.get(to).map_or(Label::MAX, |entry| entry.label);
            let gap = (above - below) / ((to - from) as u64 + 1);
            if gap < least && (from, to) != (0, self.len) {
                (count, least) = (count * 2, least * 4);
                continue;
            }
            let entries: Vec<_> = self.from(from).take(to - from).copied().collect();
            let new = |index: usize| below + gap * (index as u64 + 1);
            let step = |(index, entry): (usize, &OrderedRule<A>)| Step::Relabel {
                rule: entry.rule,
                from: entry.label,
                to: new(index),
            };
            // Labels that grow are changed from the last to the first, and labels that shrink from the first to the
            // last. So no label ever passes the label of its neighbour.
            let indexed = || entries.iter().enumerate();
            indexed().rev().filter(|(index, entry)| new(*index) > entry.label).map(step).for_each(&mut *relabel);
            indexed().filter(|(index, entry)| new(*index) < entry.label).map(step).for_each(&mut *relabel);
            let (piece, at) = self.at(from);
            let moved = self.pieces[piece..].iter_mut().flatten().skip(at).take(to - from);
            moved.enumerate().for_each(|(index, entry)| entry.label = new(index));
            return;
        }
    }
}

/// Returns a label between two others, or `None` if no label is free. An argument is `None` at an end of the list. The
/// new label is then [`GAP`] beyond the other label, if there is room.
fn between(before: Option<Label>, after: Option<Label>) -> Option<Label> {
    // The lowest and the highest label are not used: they stand for the ends.
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
