//! All network functions under one name. A program that links this crate knows every function.
//!
//! The functions are in one crate for each subject; each function is one file and registers itself. This crate adds no
//! code. Its tests and benchmarks concern functions of several subjects.

#![forbid(unsafe_code)]

pub use forebay_encryption as encryption;
pub use forebay_forwarding as forwarding;
pub use forebay_mobile as mobile;
pub use forebay_neighbours as neighbours;
pub use forebay_security as security;
pub use forebay_sessions as sessions;
pub use forebay_tables as tables;
pub use forebay_traffic as traffic;
pub use forebay_tunnels as tunnels;
