//! Identification numbers for outer packets that may be fragmented: hosts reassemble fragments with the same
//! identification into one packet (RFC 6864 section 4).
//!
//! All modules with the same source address draw from one counter, on all workers and in successive configurations. So
//! a number is reused only after all other numbers. The counter is accessed once per batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use forebay_graph::{Setup, SetupError};

/// Draws identification numbers. For each batch, call [`draw`](Self::draw) once, and then [`take`](Self::take) for each
/// packet.
pub struct Identifications {
    /// The counter that all modules with the source address share.
    next: Arc<AtomicU16>,
    /// The next drawn number that has not been taken.
    next_drawn: u16,
}

impl Identifications {
    /// Creates the source of numbers for packets whose source address is the IPv4 address `source`, in host byte order.
    pub fn of(source: u32, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let key = format!("identifications of {}", std::net::Ipv4Addr::from_bits(source));
        Ok(Self { next: setup.lasting(&key, |_| Ok(AtomicU16::new(0)))?, next_drawn: 0 })
    }

    /// Draws `count` numbers for a batch. `count` must be at least the number of packets that take a number. Numbers of
    /// the previous batch that were not taken are skipped.
    #[inline(never)]
    pub fn draw(&mut self, count: usize) {
        self.next_drawn = self.next.fetch_add(count as u16, Ordering::Relaxed);
    }

    /// Takes the next drawn number.
    #[inline(always)]
    pub fn take(&mut self) -> u16 {
        let this = self.next_drawn;
        self.next_drawn = this.wrapping_add(1);
        this
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use forebay_graph::SetupEnvironment;
    use forebay_units::Frequency;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_number_is_reused_before_all_are_used(
            batches in prop::collection::vec((0usize..3, 1usize..=256, 0usize..=256), 1..250),
        ) {
            let mut environment = SetupEnvironment::new(Frequency::new(1e9));
            // Two replicas of one module, and another module with the same source.
            let mut drawers = ["one", "one", "other"].map(|name| {
                Identifications::of(0xc000_0201, &mut Setup::new(name, &mut environment)).expect("a number")
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
    fn sources_count_separately_and_across_configurations() {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        let mut first = |source| {
            let mut drawer = Identifications::of(source, &mut Setup::new("m", &mut environment)).expect("a number");
            drawer.draw(10);
            drawer.take()
        };
        assert_eq!((first(1), first(1), first(2)), (0, 10, 0));
    }
}
