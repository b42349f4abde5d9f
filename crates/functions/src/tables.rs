//! Tables that several functions share: pure data structures without packets, graphs or clocks.
//!
//! They live apart from the functions so that each can be tested against an oracle and measured alone.

pub mod acl;
pub mod keyed;
pub mod lpm;
pub mod maglev;
pub mod sessions;
pub mod token_bucket;
