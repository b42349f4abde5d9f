//! Functions that keep sessions: address translation, firewall, load balancer.
//!
//! Each file of this folder is one network function, a state that several functions share (`nat`, `balancer`), or a
//! shared module: `connection` follows the state of a connection, `listing` shows sessions to operators, and
//! `undecidable` has the help text of a drop reason. The table of sessions itself is in the crate `tables`.

#![forbid(unsafe_code)]

automod::dir!(pub "src");
