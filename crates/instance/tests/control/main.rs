//! Controllers in simulated time: every flow keeps its objective, and packets cost as little as they can.

mod driving;
mod numbered;

mod mean;
mod mixed;
mod objectives;
mod parting;
mod rates;
mod running;
mod steady;
