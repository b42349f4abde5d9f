//! The daemon of a host: an HTTP API, metrics, alarms and the history of its running pipelines.
//!
//! The server is a process of its own. It finds pipelines by their sockets, watches each over a few connections, and
//! never starts or ends one. If the server ends, no packet is lost. One thread serves all clients; the store has a
//! second one. The crate depends on the protocol and on the description of the machine, not on the data plane.

#![forbid(unsafe_code)]

pub mod access;
pub mod affinity;
pub mod alarms;
mod api;
pub mod events;
mod fuzz;
mod guard;
pub mod history;
mod http;
pub mod instances;
mod log;
pub mod metrics;
pub mod notify;
mod overview;
mod page;
mod passed;
pub mod privilege;
mod problem;
mod process;
mod rate;
mod serve;
pub mod settings;
mod shared;
pub mod store;

pub use api::openapi;
pub use fuzz::fuzz_server;
pub use http::{BindError, TlsError, check_address};
pub use log::Log;
pub use overview::InstanceOverview;
pub use passed::{Passed, PassedError};
pub use problem::Problem;
pub use serve::{Documents, Serve, ServeError, serve, state_folder};
pub use settings::{Listen, Settings};
