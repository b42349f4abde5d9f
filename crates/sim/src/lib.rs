//! Simulates pipelines batch by batch. It uses the engine's graphs and controllers, supports any number of workers,
//! simulates hours of traffic in seconds, and gives the same result for the same seed.
//!
//! [`Scene::learn`] builds a [`Scene`] from a pipeline that is ready to run. A [`Simulator`] advances its simulated
//! time.
//!
//! # What is simulated
//!
//! The simulator runs the engine's turns. A worker reads its ports and rings, the engine's own scheduler chooses the
//! next module, batches split and merge, buffers fill and are released, and a call with n packets takes T0 + n T1.
//! Single packets are not simulated: a queue holds runs of packets that follow the same route and arrived at the same
//! instant.
//!
//! Routes are learnt from a short run of the pipeline itself, packet by packet. A periodic sequence of routes is
//! repeated as it is. Any other sequence is replayed in stretches that start at random positions. The sources determine
//! when packets arrive; random arrivals are drawn from the seed. With [`Detail::All`] and without random arrivals,
//! every count equals the engine's, call by call.
//!
//! # What is extrapolated
//!
//! A *state* is a combination of triggers, hold limits, weights and offered rates. With [`Detail::Within`] a state is
//! simulated in detail until three conditions hold:
//!
//! - rate, load, calls and mean delay are known to within the given fraction (95 % confidence, by batch means);
//! - each flow with more than a quarter of an even share of the packets has sent 2 000 packets;
//! - the slowest buffer has been filled four times.
//!
//! The rest of the time in this state is extrapolated: counts are multiplied and time moves on. When a state returns,
//! it is simulated only until the pipeline behaves as it did in that state before. Transients (a growing queue, the
//! time after a trigger was set) are always simulated in full. This has the following consequences:
//!
//! - Extrapolated periods do not scatter: the controller sees the expected values of a period.
//! - Hold limits that differ by less than 5 %, or by less than 0.2 % of the tightest objective, belong to the same
//!   state.
//! - After a controller has left a known state unchanged a hundred times in succession, the simulator skips the whole
//!   periods that follow. It does not call the controller for them, and the log receives copies of the last period.
//! - A controller that never settles leaves little to extrapolate, and so does a load close to the capacity of the
//!   workers. The simulation is then tens of times faster than real time, not thousands of times.
//! - Flows with less than a quarter of an even share (all packets divided by the number of flows) may have too few
//!   packets for their percentiles.
//!
//! Not simulated: functions that hold or create packets, rate limits, sources that end, and effects of packet contents
//! or session state that change over time. [`Scene::learn`] rejects the cases that it can detect.
//!
//! # Example
//!
//! ```
//! use forebay_units::Frequency;
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
//! // The costs of each module, in seconds, for example from a profile.
//! let costs = vec![Line { fixed: 60e-9, each: 20e-9 }; scene.layout().modules.len()];
//! let mut simulator = Simulator::new(scene, &costs, control.as_ref(), Options::default())?;
//! simulator.run(1.0);
//! // Excludes the time before triggers are set from the report.
//! simulator.begin_report();
//! simulator.run(60.0);
//! let report = simulator.report();
//! assert!((report.rate() / 1e6 - 1.0).abs() < 0.02);
//! let p99 = report.delay().quantile(0.99).expect("packets were sent");
//! println!("{:.1} packets a call, p99 {p99} ns, {:.1} % busy", report.batch(), 100.0 * report.busy[0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod engine_report;
mod learn;
mod nodes;
mod pattern;
mod queue;
mod report;
mod ring;
mod scene;
mod simulator;
mod snapshots;
mod source;
mod state;
mod stretch;
mod tally;
mod team;
mod time;
mod worker;

pub use learn::LearnError;
pub use report::{FlowReport, ModuleReport, Report};
pub use scene::Scene;
pub use simulator::{Detail, Options, Simulator};
