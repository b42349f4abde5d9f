//! Tests of controllers in simulated time: every flow keeps its objective, and packets cost as little as possible.

mod driving;
mod numbered;

mod mean;
mod mixed;
mod objectives;
mod parting;
mod rates;
#[path = "../census/responses.rs"]
mod responses;
mod running;
mod steady;
