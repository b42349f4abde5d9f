//! What functions that meter and shape traffic ask of a packet: whose it is, how long it counts, how it is marked.

pub mod dscp;
pub mod key;
pub mod length;
pub mod seen;

pub use key::{KeyBy, Selector};
pub use length::Layer;
pub use seen::Seen;
