//! A module's account of the time that it has had.

use super::MOST;
use super::estimate::Estimate;

/// A bit of [`Account::state`]: the module has a rate limit.
pub(super) const LIMITED: u8 = 1;
/// A bit of [`Account::state`]: packets for the module are dropped because a later module is overloaded.
pub(super) const REFUSING: u8 = 2;
/// A bit of [`Account::state`]: the module's queue has reached its high mark, and has not fallen to its low mark since.
pub(super) const OVERLOADED: u8 = 4;
/// A bit of [`Account::state`]: packets come to the module from a port.
pub(super) const ENTRY: u8 = 8;

/// A module's account. The fields that an ordinary call touches are in one cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Account {
    /// The virtual time at which its next call starts.
    pub(super) pass: u64,
    /// The advance of the pass per tick, inversely proportional to the weight.
    pub(super) per_tick: f64,
    /// The fixed advance of the pass per untimed call, to which `per_packet` is added for each packet.
    pub(super) per_call: u64,
    /// The additional advance of the pass for each packet of an untimed call.
    pub(super) per_packet: u64,
    /// The number of untimed calls since the last timed one.
    pub(super) untimed: u32,
    /// Whether the module is ready and has not been chosen yet, or waits for its rate limit.
    pub(super) ready: bool,
    /// The turn in which new packets last made the module ready.
    pub(super) since: u32,
    /// A set of bits: [`LIMITED`], [`REFUSING`], [`OVERLOADED`], [`ENTRY`].
    pub(super) state: u8,
}

impl Account {
    /// Derives `per_call` and `per_packet` from the estimated cost of calls and from `per_tick`. Call this after each
    /// change of one of these.
    #[inline]
    pub(super) fn price(&mut self, estimate: &Estimate) {
        // A call is charged at least one tick. Otherwise the pass of a module whose calls cost nothing would never
        // advance.
        self.per_call = (estimate.per_call * self.per_tick).clamp(self.per_tick, MOST) as u64;
        self.per_packet = (estimate.per_packet * self.per_tick).min(MOST / 256.0) as u64;
    }
}
