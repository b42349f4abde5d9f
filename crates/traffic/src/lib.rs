//! Functions that measure, limit and copy traffic: meter, shaper, counter, copies, captures.
//!
//! The network functions are `meter`, `shaper`, `counter`, `copy` and `tap`. The shared modules read properties of
//! packets for metering and shaping: the key of the account (`key`), the number of bytes that count (`length`), the
//! code point (`dscp`), and the fields of IPv4 (`ipv4_view`).
//!
//! The comments of parameters become the descriptions in `schema/`: run `make schema` after a change.

#![forbid(unsafe_code)]

pub use ipv4_view::Ipv4View;
pub use key::{KeyBy, Selector};
pub use length::Layer;

automod::dir!(pub "src");
