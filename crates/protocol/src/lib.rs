//! The values that a running pipeline exchanges with other programs, and the client that requests them.
//!
//! The data plane fills these values. Programs outside the data plane read them: `forebay top` and `show`, the server,
//! recorded experiments. A program that depends on this crate links no part of the data plane. The format on the socket
//! is one line of JSON per request and one or more lines of JSON per response (`docs/protocol.md`).

#![deny(unsafe_code)]

pub mod action;
pub mod census;
pub mod change;
pub mod check;
pub mod client;
#[allow(
    unsafe_code,
    reason = "the standard library cannot connect to a socket without blocking, and does not report the listener"
)]
mod connect;
pub mod decision;
pub mod event;
pub mod graph;
pub mod layout;
pub mod locate;
pub mod report;
pub mod request;
pub mod response;
pub mod schema;
pub mod snapshot;
pub mod watch;

pub use action::{Action, RateLimit};
pub use census::Census;
pub use change::{ConfigurationChange, ModuleMove, Moved, Reloaded, WantedWorkers};
pub use client::{Client, ClientError};
pub use decision::{ChangeReason, Decision, ShortCause, ShortFlow, TriggerChange, UnkeptCause, UnkeptObjective};
pub use graph::GraphReport;
pub use layout::{FlowLayout, Layout, ModuleLayout, SchedulerKind};
pub use report::Report;
pub use request::Request;
pub use response::Response;
pub use snapshot::Snapshot;
pub use watch::Tick;

/// The version of the protocol. It changes when a request, a response or one of their fields is removed or changes its
/// meaning. Additions do not change it.
pub const VERSION: u32 = 2;

/// The longest request, in bytes: a line without its end.
pub const MAX_REQUEST: usize = 1 << 20;
