//! What the tunnels over UDP share: the outer headers, how they are written in a few stores, how they are checked, and
//! what of the inner packet shows in them.

pub(crate) mod bucket;
pub(crate) mod ecn;
pub(crate) mod entropy;
pub(crate) mod outer;
pub(crate) mod receive;
pub mod settings;
#[cfg(test)]
pub(crate) mod testing;
