//! Simulates contention on a server: functions that share last-level caches, memory controllers and links.
//!
//! The predictor of placements (`forebay_models::placement`) is a linear or saturating function of a competing level.
//! This simulator is not of that form, so that the predictor can be tried on servers that are not at hand: caches are
//! LRU lists that fill by footprint and access rate, memory controllers and links are queues, and the rates of all
//! functions are solved together.
//!
//! - [`solve`] gives the rate of each function and chain in a placement.
//! - [`catalogue`] has functions and a server with stated parameters.
//!
//! There is no input, no output, no clock and no chance here: one input gives one result.
//!
//! ```
//! use forebay_contention::{Chain, Pace, catalogue, solve};
//!
//! let (server, traffic) = (catalogue::octans_server(), catalogue::traffic());
//! let router = catalogue::router();
//! let alone = Chain { functions: vec![&router], domains: vec![0], home: 0 };
//! let rate = |chains: &[Chain]| solve(&server, &traffic, chains, Pace::Own).map(|found| found.seats[0][0].rate);
//! let (solo, beside) = (rate(&[alone.clone()])?, rate(&vec![alone; 6])?);
//! assert!(beside < solo);
//! # Ok::<(), forebay_contention::ContentionError>(())
//! ```

#![forbid(unsafe_code)]

mod cache;
pub mod catalogue;
mod function;
pub mod mix;
pub mod models;
pub mod profile;
mod queue;
mod server;
mod solve;

pub use function::{Function, Table};
pub use server::{Domain, Server, TableMemory, Traffic};
pub use solve::{Chain, ContentionError, Pace, Seat, Solution, solve};

/// Bytes of a cache line.
pub const LINE: f64 = 64.0;
