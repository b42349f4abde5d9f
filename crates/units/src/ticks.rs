//! Instants and spans on the engine's clock.
//!
//! Packets carry their arrival time, so this crate defines the unit. The clock that counts the ticks knows the length
//! of a tick in nanoseconds (`forebay-measure`): the period of the time-stamp counter in a real run, or a chosen period
//! in simulated time.

use std::ops::{Add, AddAssign, Sub};

/// A number of ticks of the engine's clock: an instant, counted from the origin of the clock, or a span between two
/// instants.
///
/// Ticks count a *reference* clock (the invariant time-stamp counter). They are not core cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Ticks(pub u64);

impl Ticks {
    /// The origin of the clock, or an empty span.
    pub const ZERO: Self = Self(0);
    /// An instant later than every other.
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns the span from `earlier` to `self`, or zero if `earlier` is later.
    #[inline]
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Ticks {
    type Output = Self;
    #[inline]
    fn add(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign for Ticks {
    #[inline]
    fn add_assign(&mut self, span: Self) {
        *self = *self + span;
    }
}

impl Sub for Ticks {
    type Output = Self;
    /// Saturates at zero, as [`Ticks::since`] does.
    #[inline]
    fn sub(self, earlier: Self) -> Self {
        self.since(earlier)
    }
}
