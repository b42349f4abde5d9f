//! Replay protection: a window of sequence numbers that ends with the highest number, so that no packet is accepted
//! twice (RFC 4303 section 3.4.3, appendix A).
//!
//! The bits are in a ring of words. When the window moves on, whole words are cleared (RFC 6479), so that no packet has
//! to shift all of them.
//!
//! The ring has bits for the largest window allowed, and takes 1 KiB per association. The caller passes the size of the
//! window with each call. So a changed configuration can use the same ring with another size, and the ring still shows
//! which numbers have come.

use std::sync::atomic::{AtomicU64, Ordering};

/// The smallest window size that is allowed.
pub(super) const LEAST: u16 = 64;
/// The largest window size that is allowed.
pub(super) const MOST: u16 = 4_096;

/// The number of words of the ring. It is a power of two, and at least one more than the words that the largest window
/// fills.
const WORDS: usize = (MOST as usize / 64 + 1).next_power_of_two();

/// A window. One worker writes it and other threads may read it, so there are no read-modify-write operations.
#[derive(Debug)]
pub(super) struct Window {
    /// The highest number of an authenticated packet; 0 before the first packet.
    top: AtomicU64,
    /// The ring. A bit is set if the packet with its number has come.
    words: Box<[AtomicU64; WORDS]>,
}

/// The reason why a number is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The number has already come, or it is 0, which is invalid.
    Replayed,
    /// The number lies before the window.
    TooOld,
}

impl Window {
    pub(super) fn new() -> Self {
        Self { top: AtomicU64::new(0), words: Box::new([const { AtomicU64::new(0) }; WORDS]) }
    }

    /// Returns the highest number of an authenticated packet; 0 before the first packet.
    pub(super) fn top(&self) -> u64 {
        self.top.load(Ordering::Relaxed)
    }

    /// Returns the word of the ring that has the number's bit.
    #[inline(always)]
    fn word(&self, number: u64) -> &AtomicU64 {
        &self.words[(number >> 6) as usize % WORDS]
    }

    /// Returns the 64-bit sequence number of a packet that carries only the lower 32 bits (RFC 4303 appendix A2.2): the
    /// number nearest to the window of `size`. `None` if it would lie before the first number or after the last one.
    #[inline(always)]
    pub(super) fn extend(&self, low: u32, size: u16) -> Option<u64> {
        let top = self.top();
        let (high, bottom) = (top >> 32, (top as u32).wrapping_sub(u32::from(size) - 1));
        let high = if top as u32 >= u32::from(size) - 1 {
            // The window lies within one subspace of 2^32 numbers. A number below the window belongs to the next
            // subspace.
            if low >= bottom { high } else { high.checked_add(1).filter(|high| *high <= u32::MAX.into())? }
        } else if low >= bottom {
            // The window spans two subspaces. A number from its bottom on belongs to the previous subspace.
            high.checked_sub(1)?
        } else {
            high
        };
        Some(high << 32 | u64::from(low))
    }

    /// Checks whether a number is accepted, with a window of `size`.
    #[inline(always)]
    pub(super) fn check(&self, number: u64, size: u16) -> Result<(), Refused> {
        let top = self.top();
        if number > top {
            return Ok(());
        }
        // The first number is 1 (RFC 4303 section 2.2).
        if number == 0 {
            return Err(Refused::Replayed);
        }
        if top - number >= u64::from(size) {
            return Err(Refused::TooOld);
        }
        if self.word(number).load(Ordering::Relaxed) >> (number & 63) & 1 == 1 {
            return Err(Refused::Replayed);
        }
        Ok(())
    }

    /// Marks a number as received, and moves the window if it is the highest. The number must have passed
    /// [`check`](Self::check), and its packet must be authentic: otherwise forged packets could move the window.
    #[inline(always)]
    pub(super) fn note(&self, number: u64) {
        let top = self.top();
        if number > top {
            let fresh = ((number >> 6) - (top >> 6)).min(WORDS as u64);
            for ahead in 1..=fresh {
                self.word(((number >> 6) - fresh + ahead) << 6).store(0, Ordering::Relaxed);
            }
            self.top.store(number, Ordering::Relaxed);
        }
        let word = self.word(number);
        word.store(word.load(Ordering::Relaxed) | 1 << (number & 63), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// The rules of RFC 4303 section 3.4.3, with every number remembered.
    #[derive(Default)]
    struct Model {
        top: u64,
        seen: HashSet<u64>,
    }

    impl Model {
        fn check(&self, number: u64, size: u64) -> Result<(), Refused> {
            match number {
                0 => Err(Refused::Replayed),
                number if number + size <= self.top => Err(Refused::TooOld),
                number if self.seen.contains(&number) => Err(Refused::Replayed),
                _ => Ok(()),
            }
        }
    }

    proptest! {
        #[test]
        fn it_equals_the_simple_model(
            sizes in prop::collection::vec(
                prop::sample::select(vec![64u16, 65, 127, 128, 1_000, 1_024, 4_095, 4_096]), 1..4,
            ),
            start in prop::sample::select(vec![0u64, 1, 63, u32::MAX.into(), 1 << 40]),
            steps in prop::collection::vec(prop_oneof![
                6 => -70i64..70, 2 => -5_000i64..5_000, 1 => -100_000i64..100_000,
            ], 1..400),
        ) {
            let (window, mut model) = (Window::new(), Model::default());
            let mut at = start;
            for (count, step) in steps.into_iter().enumerate() {
                at = at.saturating_add_signed(step);
                // The size changes from time to time.
                let size = sizes[count / 50 % sizes.len()];
                let expected = model.check(at, size.into());
                prop_assert_eq!(window.check(at, size), expected, "{} after {}", at, model.top);
                if expected.is_ok() {
                    window.note(at);
                    model.seen.insert(at);
                    model.top = model.top.max(at);
                }
                prop_assert_eq!(window.top(), model.top);
                prop_assert_ne!(window.check(at, size), Ok(()), "no number is accepted twice");
            }
        }

        #[test]
        fn upper_halves_are_inferred_while_numbers_are_near(
            size in LEAST..=MOST, top in 1u64..1 << 40, near in -(1i64 << 31)..1 << 31,
        ) {
            let window = Window::new();
            window.note(top);
            // A number in the window or up to 2^31 above it (RFC 4303 appendix A2), and never a number before the
            // window.
            let number = top.saturating_add_signed(near.max(1 - i64::from(size)));
            prop_assert_eq!(window.extend(number as u32, size), Some(number));
        }
    }

    #[test]
    fn numbers_before_the_first_are_refused() {
        let window = Window::new();
        assert_eq!(window.extend(1, 64), Some(1));
        assert_eq!(window.extend(u32::MAX, 64), None);
        window.note(u64::MAX);
        assert_eq!(window.extend(0, 64), None);
        assert_eq!(window.extend(u32::MAX - 3, 64), Some(u64::MAX - 3));
        assert_eq!(window.check(u64::MAX, 64), Err(Refused::Replayed));
    }
}
