//! Network functions, one file each, and the modules that several functions share.
//!
//! Each file of this folder is one network function. It registers itself, so there is no list of functions to maintain.
//! The shared modules are `balancer`, `connection`, `encryption`, `inspection`, `interface`, `journal`, `listing`,
//! `martian`, `nat`, `parameters`, `pdu_sessions`, `tables`, `traffic`, `tunnel` and `undecidable`.

#![forbid(unsafe_code)]

pub use forebay_tables as tables;

automod::dir!(pub "src");
