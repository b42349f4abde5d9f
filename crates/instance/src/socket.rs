//! The local socket of a running pipeline: one line of JSON per request, lines of JSON in response
//! (`docs/protocol.md`).
//!
//! Any process that can open the socket can change the pipeline. The socket is in a folder that only its owner can
//! enter.

mod connections;
mod ending;
mod ledger;
mod lines;
mod moving;
mod server;
mod service;
mod tables;
mod watch;

pub use ending::Ending;
pub use ledger::Ledger;
pub use lines::Patience;
pub use server::{Bound, Server};
pub use service::{About, Drops, DropsOf, Service, Stories, TraceOf};
pub use tables::warn_of;
