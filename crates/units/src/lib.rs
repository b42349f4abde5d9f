//! Quantities with their units, the words of messages about numbers, texts from outside in messages, and one random
//! generator.
//!
//! Every other crate states its quantities in these types. The types perform no I/O and read no clock.

#![forbid(unsafe_code)]

mod frequency;
mod percentile;
pub mod quantity;
pub mod random;
mod rate;
pub mod text;
mod ticks;
pub mod wording;

pub use frequency::Frequency;
pub use percentile::Percentile;
pub use quantity::{BitRate, Bytes, Nanos, PacketRate};
pub use random::Random;
pub use rate::Rate;
pub use ticks::Ticks;
