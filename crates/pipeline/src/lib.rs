//! YAML and use cases to a validated pipeline, ready to run.

#![forbid(unsafe_code)]

mod problem;
mod yaml;

pub use problem::{Place, Problem, Problems};

// Functions and ports make themselves known by being linked.
use forebay_functions as _;
use forebay_ports as _;
