//! Measures how much faster than real time an hour of each use case at 1 Mpps is simulated, including the time to learn
//! the scene. The target is 1 000 times.
//!
//! For comparison, the packet-exact engine runs a tenth of a second in simulated time, on the same machine in the same
//! run.

use std::time::Instant;

use forebay_graph::{Cost, RunToCompletion};
use forebay_instance::{SimulatedTeam, Simulation};
use forebay_models::batching::Line;
use forebay_pipeline::{Conditions, Loaded, load, usecase};
use forebay_sim::{Options, Scene, Simulator};
use forebay_units::Ticks;

const HOUR: f64 = 3_600.0;
const POISSON: &str = "ports.in.generator.arrivals=poisson";

fn loaded(name: &str, sets: &str) -> Loaded {
    let sets: Vec<String> = sets.split_whitespace().map(str::to_owned).collect();
    let source = usecase(name, &sets).unwrap_or_else(|problems| panic!("{problems}"));
    let conditions = Conditions { frequency: Simulation::frequency(), simulated: true };
    load(&source, conditions).unwrap_or_else(|problems| panic!("{problems}"))
}

fn engine(name: &str, sets: &str) -> f64 {
    const MILLIS: u64 = 100;
    let loaded = loaded(name, sets);
    let costs = vec![Cost { per_batch: 300, per_packet: 20 }; loaded.plans[0].modules.len()];
    let mut team =
        SimulatedTeam::<RunToCompletion>::new(loaded.plans, &costs, Some(loaded.made)).expect("a plan that runs");
    let start = Instant::now();
    team.run(Ticks(MILLIS * 1_000_000));
    MILLIS as f64 / 1e3 / start.elapsed().as_secs_f64()
}

fn case(name: &str, sets: &str) {
    let loaded = loaded(name, sets);
    let control = loaded.made.control().cloned();
    let start = Instant::now();
    let scene = Scene::learn(loaded.plans, 8_192).expect("a pipeline that can be simulated");
    let learnt = start.elapsed().as_secs_f64();
    let costs = vec![Line { fixed: 300e-9, each: 20e-9 }; scene.layout().modules.len()];
    let mut simulator = Simulator::new(scene, &costs, control.as_ref(), Options::default()).expect("a controller");
    simulator.run(HOUR);
    let took = start.elapsed().as_secs_f64();
    let detail = simulator.report().detail_s;
    let engine = engine(name, sets);
    println!(
        "{name:<5} {sets:<96} {:>8.0} times real time (engine {engine:>5.1}); learnt in {learnt:.3} s, \
         took {took:.3} s, in detail {detail:.3} s",
        HOUR / took,
    );
}

fn main() {
    for (name, sets) in [("l2l3", "n=16"), ("gw", "n=16"), ("vrf", "m=4 n=4"), ("mgw", "m=4 n=4"), ("rc", "n=16")] {
        for controller in ["null", "max", "optimal"] {
            let sets = format!("{sets} rate=1Mpps fold=off slo=300us control.batching={controller}");
            case(name, &sets);
        }
    }
    case("gw", &format!("n=16 rate=1Mpps fold=off slo=300us control.batching=optimal {POISSON}"));
    case("gw", &format!("n=16 rate=1Mpps fold=off slo=300us control.batching=null {POISSON}"));
}
