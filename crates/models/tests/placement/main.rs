//! Placement on random servers: what the search finds against enumeration, and what it proves.

mod baselines;
mod check;
mod coupled;
mod formulas;
mod instances;
mod search;
mod wanted;
mod wrong;
