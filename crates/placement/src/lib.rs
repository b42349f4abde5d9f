//! Decides which core runs which function of which chain. The inputs are chains, models of functions and a topology.
//!
//! The models and the search methods are in `forebay_models::placement`. A [`Registry`] contains the models of
//! functions.

#![forbid(unsafe_code)]

pub mod answer;
pub mod chains;
pub mod earlier;
mod explain;
pub mod format;
pub mod pipeline;
pub mod problem;
pub mod registry;
pub mod search;
pub mod server;

pub use chains::{ChainFunction, Chains, ServiceChain};
pub use registry::{Registry, RegistryError};
