//! The few kernels where one instruction does the work of many, behind safe interfaces.
//!
//! Each vectorised kernel has a scalar twin that says what it means and a test that both agree. Which instruction set
//! runs is decided once, when a structure is built ([`Level::detect`]), so a binary built for an old machine still
//! uses what a new one offers and no kernel asks per packet.

pub mod interval_map;
pub mod level;
pub mod prefetch;
pub mod signatures;
pub mod word_sum;

pub use level::Level;
