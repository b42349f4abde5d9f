//! `forebay serve`: the API, its limits, its rights, and what it survives. Each test starts pipelines and servers of
//! its own, on loopback and in temporary folders.

mod api;
mod documents;
mod draining;
mod http;
mod imitation;
mod lives;
mod manager;
mod page;
mod refusals;
mod secrets;
mod server;
mod service;
mod settings;
mod store;

use std::io::Write;

/// Prints a line. The test harness would hide the output of `println`.
fn print(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
