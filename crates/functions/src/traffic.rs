//! Properties of packets for metering and shaping: the key of the account, the number of bytes that count, and the code
//! point.

pub mod dscp;
pub mod ipv4_view;
pub mod key;
pub mod length;

pub use ipv4_view::Ipv4View;
pub use key::{KeyBy, Selector};
pub use length::Layer;
