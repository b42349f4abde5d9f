//! Functions that check packets against rules and signatures: access control lists, deep packet inspection, intrusion
//! detection.
//!
//! Each file of this folder is one network function. The shared module is `inspection`, which searches payloads. The
//! firewall keeps sessions, and is in the crate `sessions`.
//!
//! The comments of parameters become the descriptions in `schema/`: run `make schema` after a change.

#![forbid(unsafe_code)]

automod::dir!(pub "src");
