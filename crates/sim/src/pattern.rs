//! In which order a source's packets take which ways: learnt from some of them, in the order in which they came.
//!
//! What comes round again and again, as sessions do that take turns, is played as it is. Anything else (sessions of unequal
//! shares, functions that split at random) is played in stretches from random places of what was learnt, which keeps the shares
//! of the ways, and what packets that are near each other have in common.

use std::sync::Arc;

use crate::random::Random;

/// How many packets follow each other as they did where the order does not come round: many times the largest batch.
const STRETCH: usize = 1_024;

/// Ways in the order in which packets took them.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    /// Where in the scene's hops each packet's way begins.
    ways: Arc<[u32]>,
    comes_round: bool,
}

impl Pattern {
    /// Of packets in the order in which they came, at least one.
    pub(crate) fn of(ways: &[u32]) -> Self {
        let round = period(ways);
        let comes_round = round * 2 <= ways.len();
        let kept = if comes_round { &ways[..round] } else { ways };
        Self { ways: kept.into(), comes_round }
    }
}

/// After how many items they are the same again, to the end: all of them where they never are (Knuth, Morris and Pratt 1977).
fn period(items: &[u32]) -> usize {
    let mut borders = vec![0; items.len()];
    for at in 1..items.len() {
        let mut border: usize = borders[at - 1];
        while border > 0 && items[border] != items[at] {
            border = borders[border - 1];
        }
        borders[at] = border + usize::from(items[border] == items[at]);
    }
    items.len() - borders.last().copied().unwrap_or(0)
}

/// Says which way the next packet takes.
#[derive(Clone, Debug)]
pub(crate) struct Player {
    pattern: Pattern,
    turn: usize,
    /// Packets until it goes on elsewhere.
    left: usize,
}

impl Player {
    pub(crate) fn new(pattern: Pattern) -> Self {
        // The first jump makes different seeds begin in different places.
        let left = if pattern.comes_round { usize::MAX } else { 0 };
        Self { pattern, turn: 0, left }
    }

    #[inline]
    pub(crate) fn next(&mut self, random: &mut Random) -> u32 {
        if self.left == 0 {
            self.turn = random.below(self.pattern.ways.len());
            self.left = STRETCH;
        }
        if !self.pattern.comes_round {
            self.left -= 1;
        }
        let way = self.pattern.ways[self.turn];
        self.turn = if self.turn + 1 == self.pattern.ways.len() { 0 } else { self.turn + 1 };
        way
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_round_is_found() {
        assert_eq!(period(&[1, 2, 3, 1, 2, 3, 1]), 3);
        assert_eq!(period(&[1, 1, 2, 1, 1, 2, 1, 1]), 3);
        assert_eq!(period(&[1, 2, 3, 4]), 4);
        assert_eq!(period(&[7]), 1);
        let ring = Pattern::of(&[1, 2, 3, 1, 2, 3, 1]);
        assert_eq!((&ring.ways[..], ring.comes_round), (&[1, 2, 3][..], true));
        assert!(!Pattern::of(&[1, 2, 2, 1]).comes_round);
    }

    #[test]
    fn the_order_is_kept_where_it_comes_round_and_the_shares_where_not() {
        let mut random = Random::new(1, 0);
        let mut ring = Player::new(Pattern::of(&[5, 6, 5, 6, 5, 6]));
        assert_eq!((0..5).map(|_| ring.next(&mut random)).collect::<Vec<_>>(), [5, 6, 5, 6, 5]);
        let learnt: Vec<u32> = (0..4_096).map(|_| random.below(4).min(2) as u32).collect();
        let share = |ways: &[u32]| ways.iter().filter(|way| **way == 2).count() as f64 / ways.len() as f64;
        let mut player = Player::new(Pattern::of(&learnt));
        let played: Vec<u32> = (0..200_000).map(|_| player.next(&mut random)).collect();
        assert!((share(&played) - share(&learnt)).abs() < 0.01, "{} {}", share(&played), share(&learnt));
    }
}
