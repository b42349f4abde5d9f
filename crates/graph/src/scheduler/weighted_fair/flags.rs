//! The bits of [`Account::state`](super::account::Account::state).

/// The module has a rate limit.
pub(super) const LIMITED: u8 = 1;
/// Packets for the module are dropped because a later module is overloaded.
pub(super) const REFUSING: u8 = 2;
/// The module's queue has reached its high mark, and has not fallen to its low mark since.
pub(super) const OVERLOADED: u8 = 4;
/// Packets come to the module from a port.
pub(super) const ENTRY: u8 = 8;
