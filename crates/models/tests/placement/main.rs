//! Placement on random servers: the results and proofs of the search compared with enumeration.

mod baselines;
mod check;
mod coupled;
mod formulas;
mod instances;
mod search;
mod wanted;
mod wrong;
