//! Numbers for outer packets that may be fragmented: whoever puts fragments together takes those of one identification
//! for one packet (RFC 6864 section 4).
//!
//! All modules of one source address, on all workers, and those of the configuration that follows draw from one counter,
//! so that a number comes again only after all others. It is asked once a batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use forebay_graph::{Setup, SetupError};

/// Draws numbers.
pub(crate) struct Identifications {
    next: Arc<AtomicU16>,
    /// The next of those that have been drawn.
    mine: u16,
}

impl Identifications {
    /// Of packets from one address.
    pub(crate) fn of(source: u32, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let key = format!("identifications of {}", std::net::Ipv4Addr::from_bits(source));
        Ok(Self { next: setup.lasting(&key, |_| Ok(AtomicU16::new(0)))?, mine: 0 })
    }

    /// Draws as many as a batch can need; what has not been taken of those before is skipped.
    #[inline(never)]
    pub(crate) fn draw(&mut self, count: usize) {
        self.mine = self.next.fetch_add(count as u16, Ordering::Relaxed);
    }

    /// Takes the next of those drawn.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> u16 {
        let this = self.mine;
        self.mine = this.wrapping_add(1);
        this
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use forebay_graph::Surroundings;
    use forebay_measure::Frequency;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_number_comes_twice_before_all_have_come(
            batches in prop::collection::vec((0usize..3, 1usize..=256, 0usize..=256), 1..250),
        ) {
            let mut surroundings = Surroundings::new(Frequency::new(1e9));
            // Two replicas of one module, and another module with the same source.
            let mut drawers = ["one", "one", "other"].map(|name| {
                Identifications::of(0xc000_0201, &mut Setup::new(name, &mut surroundings)).expect("a number")
            });
            let mut seen = HashSet::new();
            let mut drawn = 0;
            for (which, batch, used) in batches {
                drawn += batch;
                if drawn > 1 << 16 {
                    break;
                }
                drawers[which].draw(batch);
                for _ in 0..used.min(batch) {
                    prop_assert!(seen.insert(drawers[which].take()));
                }
            }
        }
    }

    #[test]
    fn another_source_counts_by_itself_and_a_following_configuration_goes_on() {
        let mut surroundings = Surroundings::new(Frequency::new(1e9));
        let mut first = |source| {
            let mut drawer = Identifications::of(source, &mut Setup::new("m", &mut surroundings)).expect("a number");
            drawer.draw(10);
            drawer.take()
        };
        assert_eq!((first(1), first(1), first(2)), (0, 10, 0));
    }
}
