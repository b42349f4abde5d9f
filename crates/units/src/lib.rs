//! Quantities with their units, a random generator, and functions that write numbers and foreign texts into messages.
//!
//! Every other crate states its quantities in the types of this crate. The types perform no I/O and read no clock.

#![forbid(unsafe_code)]

mod frequency;
mod percentile;
pub mod quantity;
pub mod random;
mod rate;
pub mod secret;
pub mod text;
mod ticks;
pub mod wording;

pub use frequency::Frequency;
pub use percentile::Percentile;
pub use quantity::{BitRate, Bytes, Nanos, PacketRate};
pub use random::Random;
pub use rate::Rate;
pub use ticks::Ticks;
