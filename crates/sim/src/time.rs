//! Simulated time in picoseconds. Costs may thus be fractions of a nanosecond, and a simulation may last up to half a
//! year.

use std::ops::{Add, AddAssign, Sub};

/// A span of simulated time, or an instant since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Picos(pub(crate) u64);

const SECOND: f64 = 1e12;

impl Picos {
    pub(crate) const ZERO: Self = Self(0);
    /// The last instant. Sums do not exceed it.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    /// Converts seconds to picoseconds, rounded. Returns [`NEVER`](Self::NEVER) if the time is too long for the type.
    pub(crate) fn of_seconds(seconds: f64) -> Self {
        Self((seconds * SECOND).round() as u64)
    }

    pub(crate) fn seconds(self) -> f64 {
        self.0 as f64 / SECOND
    }

    /// Returns whole nanoseconds, the unit of delays.
    #[inline]
    pub(crate) fn nanos(self) -> u64 {
        self.0 / 1_000
    }

    /// Returns the span since `earlier`, or zero if `earlier` is later.
    #[inline]
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Picos {
    type Output = Self;

    #[inline]
    fn add(self, span: Self) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign for Picos {
    #[inline]
    fn add_assign(&mut self, span: Self) {
        *self = *self + span;
    }
}

impl Sub for Picos {
    type Output = Self;

    #[inline]
    fn sub(self, span: Self) -> Self {
        self.since(span)
    }
}
