//! Controllers in simulated time: every flow keeps its objective, and packets cost as little as they can.

mod driving;

mod objectives;
mod rates;
mod running;
