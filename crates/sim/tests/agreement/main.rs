//! Compares the simulator with the packet-exact engine: rates, batches and delays must agree.

mod cases;
mod exact;
mod refusals;
mod run;
mod sound;
