//! The simulator against the packet-exact engine: the same rates, batches and delays.

mod cases;
mod exact;
mod refusals;
mod run;
mod sound;
