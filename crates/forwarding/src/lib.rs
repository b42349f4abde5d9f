//! Functions that forward packets: bridges, routers, VLANs, fragments, and splits over several gates.
//!
//! Each file of this folder is one network function.
//!
//! The comments of parameters become the descriptions in `schema/`: run `make schema` after a change.

#![forbid(unsafe_code)]

automod::dir!(pub "src");
