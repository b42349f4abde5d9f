//! Functions that forward packets: bridges, routers, VLANs, fragments, and splits over several gates.
//!
//! Each file of this folder is one network function.

#![forbid(unsafe_code)]

automod::dir!(pub "src");
