//! Co-runs measure how much slower functions run beside each other on this machine's cores. Models for placement are
//! fitted to them (Octans, INFOCOM 2019; numbers in brackets are the paper's equations).
//!
//! A [subject](subject::Subject) runs on one core: first alone, then beside competitors on the other cores, then alone
//! again. Competitors are other functions, or [synthetic competitors](synthetic) with a given footprint and bandwidth.
//! A [`Bench`] performs the runs. [`session`] selects the next run and keeps the [records](record). [`metric`] and
//! [`model`] compute the models from the records.

#![forbid(unsafe_code)]

mod bandwidth;
pub mod machine;
pub mod metric;
pub mod model;
pub mod plan;
pub mod record;
pub mod session;
pub mod simulation;
pub mod statistics;
pub mod subject;
pub mod synthetic;

pub use forebay_placement::registry::FitMethod;
pub use machine::Machine;
pub use record::Records;
pub use session::{Bench, Interrupted, measure};
pub use subject::Subject;
