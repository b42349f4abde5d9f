//! Functions that make the pipeline a host on its links: interfaces with their neighbours, ICMP errors, and packets
//! for the kernel.
//!
//! Each file of this folder is one network function, except `interface`, the state that `interface_in`,
//! `interface_out` and `icmp_error` share.
//!
//! The comments of parameters become the descriptions in `schema/`: run `make schema` after a change.

#![forbid(unsafe_code)]

automod::dir!(pub "src");
