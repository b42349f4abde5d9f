//! Simulates pipelines batch by batch: the same graphs and controllers as the engine's, any number of workers, hours of traffic in
//! seconds, and one answer for one seed.
//!
//! A [`Scene`] is learnt from a pipeline that is ready to run; a [`Simulator`] lets its time pass.
//!
//! # What is simulated
//!
//! Turns, as the engine takes them: ports and rings are read, schedulers (the engine's own) choose, batches split and merge, buffers fill and are
//! released, calls take T0 + n T1. What is left out is packets: a queue holds runs of those that are on the same way and came at
//! the same instant. Which way a packet takes is learnt from a short run of the pipeline itself, packet by packet: what comes round
//! is played as it was, anything else in stretches from random places. When packets come is what sources say; random arrivals are
//! drawn from the seed. With [`Detail::All`] and nothing left to chance every count is the engine's, call by call.
//!
//! # What is extrapolated
//!
//! With [`Detail::Within`] a *state* (triggers, hold limits, weights, what sources offer) is simulated until its rate, load, calls and
//! mean delay are known to within that part (95 % confidence, by batch means), each flow with a part in the traffic has
//! been seen 2 000 times, and the slowest buffer has been filled four times. What else passes in it is taken to be alike: counts
//! are multiplied, and time moves on. A state that comes back is not simulated again, but for as long as it takes until things are as
//! they were in it. What changes (a queue that grows, the time after a trigger was set) is simulated to its end. So
//!
//! - periods that are extrapolated do not scatter: the controller sees what is to be expected of a period;
//! - hold limits within 5 % of each other, or within 0.2 % of the tightest objective, are one state;
//! - a controller that has left a known state as it was a hundred times in succession is not asked about each further period, and its
//!   log is told that they are like the last;
//! - a controller that never settles, and a load so near to what workers carry that queues never settle, leave little to extrapolate: it
//!   is then tens of times faster than real time, and not thousands;
//! - flows with less than a quarter of an even share may be seen too seldom for their percentiles.
//!
//! Not simulated: functions that hold packets back or make some, rate limits, sources that end, and what a packet's bytes
//! or a session's state would change in the course of time. [`Scene::learn`] refuses what it can tell.
//!
//! # Example
//!
//! ```
//! use forebay_measure::Frequency;
//! use forebay_models::batching::Line;
//! use forebay_pipeline::{Conditions, load, usecase};
//! use forebay_sim::{Options, Scene, Simulator};
//!
//! let sets = ["n=4", "rate=1Mpps", "slo=100us", "fold=off", "control.batching=optimal"].map(str::to_owned);
//! let source = usecase("l2l3", &sets)?;
//! // Simulated time has ticks of a nanosecond.
//! let loaded = load(&source, Conditions { frequency: Frequency::new(1e9), simulated: true })?;
//! let control = loaded.made.control().cloned();
//! let scene = Scene::learn(loaded.plans, 4_096)?;
//! // What a profile says of each module, in seconds.
//! let costs = vec![Line { fixed: 60e-9, each: 20e-9 }; scene.layout().modules.len()];
//! let mut simulator = Simulator::new(scene, &costs, control.as_ref(), Options::default())?;
//! simulator.run(1.0);
//! // What comes before triggers are set is left out.
//! simulator.begin();
//! simulator.run(60.0);
//! let report = simulator.report();
//! assert!((report.rate() / 1e6 - 1.0).abs() < 0.02);
//! let p99 = report.delay().quantile(0.99).expect("packets left");
//! println!("{:.1} packets a call, p99 {p99} ns, {:.1} % busy", report.batch(), 100.0 * report.busy[0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod learn;
mod pattern;
mod queue;
mod random;
mod report;
mod ring;
mod roads;
mod scene;
mod simulator;
mod snapshots;
mod source;
mod state;
mod stretch;
mod tally;
mod team;
mod time;
mod told;
mod worker;

pub use learn::LearnError;
pub use report::{FlowReport, ModuleReport, Report};
pub use scene::Scene;
pub use simulator::{Detail, Options, Simulator};
