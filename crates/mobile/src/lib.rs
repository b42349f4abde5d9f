//! Functions of mobile networks: GTP-U tunnels, and the sessions of a user plane function.
//!
//! Each file of this folder is one network function, except `pdu_sessions`, the state that `upf_uplink` and
//! `upf_downlink` share.
//!
//! The comments of parameters become the descriptions in `schema/`: run `make schema` after a change.

#![forbid(unsafe_code)]

automod::dir!(pub "src");
