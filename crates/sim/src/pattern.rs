//! The order in which a source's packets take routes, learnt from a sample of its packets.
//!
//! A periodic order, for example if sessions take turns, is repeated as it is. Any other order (sessions with different
//! rates, functions that split at random) is replayed in stretches that start at random positions of the sample. This
//! keeps the fraction of packets on each route, and the correlation between neighbouring packets.

use std::sync::Arc;

use forebay_units::Random;

/// The number of consecutive packets that are replayed in their learnt order if the order is not periodic. It is many
/// times the largest batch.
const STRETCH: usize = 1_024;

/// Routes in the order in which packets took them.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    /// For each packet, the index of its first hop in the scene's hops.
    routes: Arc<[u32]>,
    /// True if `routes` is one period, false if it is a sample.
    periodic: bool,
}

impl Pattern {
    /// Builds the pattern of at least one packet, in order of arrival.
    pub(crate) fn of(routes: &[u32]) -> Self {
        let round = period(routes);
        let periodic = round * 2 <= routes.len();
        let kept = if periodic { &routes[..round] } else { routes };
        Self { routes: kept.into(), periodic }
    }
}

/// Returns the shortest period of the items, or their number if they are not periodic (Knuth, Morris and Pratt 1977).
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

/// Replays a pattern packet by packet.
#[derive(Clone, Debug)]
pub(crate) struct Player {
    pattern: Pattern,
    /// The index of the next packet in the pattern's routes.
    position: usize,
    /// The number of packets until the next jump to a random position. Not used if the pattern is periodic.
    remaining: usize,
}

impl Player {
    pub(crate) fn new(pattern: Pattern) -> Self {
        // The first jump makes different seeds begin at different positions.
        let remaining = if pattern.periodic { usize::MAX } else { 0 };
        Self { pattern, position: 0, remaining }
    }

    /// Returns the route of the next packet: the index of its first hop in the scene's hops.
    #[inline]
    pub(crate) fn next(&mut self, random: &mut Random) -> u32 {
        if self.remaining == 0 {
            self.position = random.index(self.pattern.routes.len());
            self.remaining = STRETCH;
        }
        if !self.pattern.periodic {
            self.remaining -= 1;
        }
        let route = self.pattern.routes[self.position];
        self.position = if self.position + 1 == self.pattern.routes.len() { 0 } else { self.position + 1 };
        route
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_found() {
        assert_eq!(period(&[1, 2, 3, 1, 2, 3, 1]), 3);
        assert_eq!(period(&[1, 1, 2, 1, 1, 2, 1, 1]), 3);
        assert_eq!(period(&[1, 2, 3, 4]), 4);
        assert_eq!(period(&[7]), 1);
        let ring = Pattern::of(&[1, 2, 3, 1, 2, 3, 1]);
        assert_eq!((&ring.routes[..], ring.periodic), (&[1, 2, 3][..], true));
        assert!(!Pattern::of(&[1, 2, 2, 1]).periodic);
    }

    #[test]
    fn a_periodic_order_is_kept_and_otherwise_the_shares_are() {
        let mut random = Random::stream(1, 0);
        let mut ring = Player::new(Pattern::of(&[5, 6, 5, 6, 5, 6]));
        assert_eq!((0..5).map(|_| ring.next(&mut random)).collect::<Vec<_>>(), [5, 6, 5, 6, 5]);
        let learnt: Vec<u32> = (0..4_096).map(|_| random.index(4).min(2) as u32).collect();
        let share = |routes: &[u32]| routes.iter().filter(|route| **route == 2).count() as f64 / routes.len() as f64;
        let mut player = Player::new(Pattern::of(&learnt));
        let played: Vec<u32> = (0..200_000).map(|_| player.next(&mut random)).collect();
        assert!((share(&played) - share(&learnt)).abs() < 0.01, "{} {}", share(&played), share(&learnt));
    }
}
