//! Placement: assigns the functions of each chain to memory domains (Octans, INFOCOM 2019; equation numbers in brackets
//! are the paper's).
//!
//! A chain is as fast as its slowest function (1). A function's rate is its rate alone on its domain, reduced by the
//! share that its competitors take (2). Competitors are functions that use the same last-level cache, the same memory
//! controller or the same link between domains (7)–(11). The cores of a domain are equivalent, so a placement is a
//! domain for each function.
//!
//! The model differs from the paper in these points, each with a test. Each shared resource has its own
//! [normaliser](Limits), so that a new function does not change other functions' models. In (11), a function does not
//! compete for the cache with the functions of its segment (successive functions of the chain on one domain), because
//! the first of them has already brought the packets into the cache. For the link, the paper does not say whether a
//! function competes with its segment. Here it competes with all functions on its domain whose chains have another
//! home, including the functions of its segment. Each chain has its own home domain, the domain of its network
//! interface.

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
