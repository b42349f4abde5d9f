//! Placement: which memory domain runs which function of which chain (Octans, INFOCOM 2019; equations in brackets are
//! the paper's).
//!
//! A chain runs as fast as its slowest function (1). A function's rate is its rate alone on that domain less the share
//! that its competitors take (2): those that use the same last-level cache, the same memory controller and the same
//! link between domains (7)–(11). Cores of one domain are alike, so that a placement is a domain for each function.
//!
//! The model differs from the print in four points, each with a test. Each place of contention has its own
//! [normaliser](Limits), so that a new function changes no other model. In (11) a function does not compete with its
//! own segment for the cache, into which the first of the segment has brought the packets. That says nothing of the
//! link: there it competes with all functions on its domain whose chains are at home elsewhere, its own segment's
//! included. Each chain has its own home domain, the one of its network interface.

mod assignment;
pub mod baselines;
mod check;
pub mod counting;
pub mod coupled;
mod exact;
pub mod fit;
mod improve;
mod model;
mod options;
mod wanted;

pub use check::{Checked, Refuted, check};
pub use exact::{Certificate, Effort, exact, exact_for};
pub use model::{Chain, Domain, Function, Limits, Placement, Problem, ProblemError, Sensitivity, Shape, Way};
pub use wanted::{From, Objective, Wanted};
