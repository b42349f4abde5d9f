//! A module's account of the time that it has had.

use super::MOST;
use super::estimate::Estimate;

/// A module's account. The fields that an ordinary call touches are in one cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Account {
    /// The virtual time at which its next call starts.
    pub(super) pass: u64,
    /// How far a tick, an untimed call, and a packet of an untimed call advance the pass.
    pub(super) per_tick: f64,
    pub(super) per_call: u64,
    pub(super) per_packet: u64,
    /// Untimed calls since the last timed one.
    pub(super) untimed: u32,
    /// Whether the module is ready and has not been chosen yet.
    pub(super) ready: bool,
    /// The turn in which new packets last made it ready.
    pub(super) since: u32,
    /// `LIMITED`, `REFUSING`, `OVERLOADED`, `ENTRY`.
    pub(super) state: u8,
}

impl Account {
    /// Sets how far calls advance the pass.
    #[inline]
    pub(super) fn price(&mut self, estimate: &Estimate) {
        // A call without cost would run for ever.
        self.per_call = (estimate.per_call * self.per_tick).clamp(self.per_tick, MOST) as u64;
        self.per_packet = (estimate.per_packet * self.per_tick).min(MOST / 256.0) as u64;
    }
}
