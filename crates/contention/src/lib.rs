//! Simulates contention on a server: functions that share last-level caches, memory controllers and links.
//!
//! The predictor of placements (`forebay_models::placement`) computes rates from competing levels: the demand of the
//! competitors for a resource, as a fraction of the resource's limit. This simulator does not use these levels, so it
//! is an independent test of the predictor, also for servers that are not available. Caches are LRU lists that fill by
//! footprint and access rate. Memory controllers and links are queues. The rates of all functions are solved together.
//!
//! - [`solve`] returns the rate of each function and chain in a placement.
//! - [`catalogue`] contains functions and a server with stated parameters.
//!
//! The crate has no input, output or clock, and its random numbers depend only on a seed: the same arguments give the
//! same result.
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

/// The size of a cache line, in bytes.
pub const LINE: f64 = 64.0;
