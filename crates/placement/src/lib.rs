//! Which core runs which function of which chain: chains, models of functions and a topology in, cores out.
//!
//! The mathematics is in `forebay_models::placement`. A [`Registry`] holds the models of functions.

#![forbid(unsafe_code)]

pub mod registry;

pub use registry::{Registry, RegistryError};
