//! Placeholder: filled in by the commits that follow.
#![forbid(unsafe_code)]

pub mod tables;
