//! Trials with known outcomes: in simulated time with given costs, and on this machine far from any limit.

use forebay_graph::RunToCompletion;
use forebay_graph::WeightedFair;
use forebay_pipeline::{Conditions, Loaded, Source};

use super::*;
use crate::search::{Goal, Limits, NON_DROP, Outcome, PARTIAL_DROP, search};

fn load(text: &str, simulated: bool) -> Loaded {
    let frequency = if simulated { Simulation::frequency() } else { Tsc.frequency() };
    let source = Source::new(text, "test.yaml", "");
    forebay_pipeline::load(&source, Conditions { frequency, simulated }).unwrap_or_else(|problems| panic!("{problems}"))
}

/// The cost of a packet, in nanoseconds. With the 64 ns of each turn it limits a worker's rate.
const COST: u64 = 10_000;
/// Under full load, all turns have the largest batch.
const CAPACITY: f64 = 32e9 / (32 * COST + 64) as f64;

fn costs(modules: usize) -> Vec<Cost> {
    let mut costs = vec![Cost::default(); modules];
    costs[0].per_packet = COST;
    costs
}

fn text(seed: u64, arrivals: &str, queue: usize) -> String {
    format!(
        "seed: {seed}\nports:\n  in: {{ generator: {{ rate: 7kpps, arrivals: {arrivals}, queue: {queue}, \
         sessions: 64 }} }}\n  out: {{ sink: }}\nmodules:\n  work: {{ bypass: {{}} }}\npipeline: [in -> work -> out]\n"
    )
}

fn limits(seconds: u64) -> Limits {
    Limits { least_pps: 1_000.0, most_pps: 10e6, time: Duration::from_secs(seconds), width: 0.005 }
}

fn find(trials: &mut impl Trials<Error = TrialError>, goals: &[Goal], seconds: u64) -> Outcome {
    search(trials, goals, &limits(seconds), &mut |_| {}).expect("nothing fails in simulated time")
}

/// Adds losses to some trials: some of their packets are lost at any load.
struct Spoilt<T> {
    trials: T,
    bad: f64,
    random: u64,
}

impl<T: Trials> Trials for Spoilt<T> {
    type Error = T::Error;

    fn run(&mut self, pps: f64, span: Duration) -> Result<Trial, T::Error> {
        let trial = self.trials.run(pps, span)?;
        // xorshift64
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let part = (self.random >> 11) as f64 / (1u64 << 53) as f64;
        let more = if part < self.bad { 1 + trial.offered / 100 } else { 0 };
        Ok(Trial { lost: (trial.lost + more).min(trial.offered), ..trial })
    }
}

#[test]
fn the_limit_of_a_pipeline_is_found_despite_bad_trials() {
    for bad in [0.05, 0.2] {
        let near = |seed: u64| {
            let plans = load(&text(seed, "constant", 4096), true).plans;
            let trials = Emulated::<RunToCompletion>::new(plans, &costs(1)).expect("a generator with a rate");
            let mut trials = Spoilt { trials, bad, random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 };
            let outcome = find(&mut trials, &[NON_DROP, PARTIAL_DROP], 30);
            assert!(outcome.seconds <= 30.5, "{outcome:?}");
            let near =
                outcome.found.iter().all(|found| found.pps.is_some_and(|pps| (pps / CAPACITY - 1.0).abs() <= 0.02));
            if !near {
                println!("seed {seed}, {bad} spoilt: {outcome:?}");
            }
            near
        };
        let hits = (1..=20).filter(|seed| near(*seed)).count();
        assert!(hits >= 18, "{hits} of 20 within 2 % of {CAPACITY} with {bad} of the trials spoilt");
    }
}

#[test]
fn an_undisturbed_limit_is_found_to_a_percent_with_any_arrivals() {
    for (arrivals, below) in [("constant", 0.01), ("poisson", 0.02), ("{ on_off: { on: 1ms, off: 1ms } }", 0.02)] {
        let plans = load(&text(1, arrivals, 4096), true).plans;
        let mut trials = Emulated::<RunToCompletion>::new(plans, &costs(1)).expect("a generator with a rate");
        assert!((trials.load().pps() - 7_000.0).abs() < 0.01);
        let outcome = find(&mut trials, &[NON_DROP], 30);
        let pps = outcome.found[0].pps.expect("there is a limit");
        assert!(pps <= CAPACITY * 1.01 && pps >= CAPACITY * (1.0 - below), "{arrivals}: {outcome:?}");
        assert!(outcome.found[0].settled);
    }
}

#[test]
fn a_queue_that_only_grows_is_a_loss_before_it_overflows() {
    let trial = |queue: usize, load_of: f64| {
        let plans = load(&text(1, "constant", queue), true).plans;
        let mut trials = Emulated::<RunToCompletion>::new(plans, &costs(1)).expect("a generator with a rate");
        trials.run(CAPACITY * load_of, Duration::from_millis(500)).expect("it runs")
    };
    let (under, over) = (trial(1 << 20, 0.99), trial(1 << 20, 1.02));
    assert_eq!(under.lost, 0, "{under:?}");
    // Two percent of about 50 000 packets, without the batches that may wait.
    assert!((800..=1_020).contains(&over.lost), "{over:?}");
    assert!(under.offered.abs_diff((CAPACITY * 0.495) as u64) <= 2, "{under:?}");
    let overflowing = trial(64, 1.02);
    assert!(overflowing.lost.abs_diff(over.lost) < 200, "{overflowing:?}");
}

#[test]
fn drops_by_functions_are_not_losses() {
    let text = text(1, "constant", 4096)
        .replace("work: { bypass: {} }", "work: { bypass: {} }\n  split: { random_split: { gates: 2 } }")
        .replace("in -> work -> out", "in -> work -> split, 'split[0] -> out', 'split[1] -> drop'");
    let mut trials = Emulated::<RunToCompletion>::new(load(&text, true).plans, &costs(2)).expect("a generator");
    let trial = trials.run(CAPACITY / 2.0, Duration::from_millis(200)).expect("it runs");
    assert!(trial.offered > 9_900 && trial.lost == 0, "{trial:?}");
}

#[test]
fn drops_by_overload_in_later_modules_are_losses() {
    let text = text(1, "constant", 4096).replace(
        "pipeline:",
        "  slow: { bypass: {} }\nscheduler: weighted-fair\nshares: { slow: { when_full: drop, queue: 64 } }\npipeline:",
    );
    let text = text.replace("work -> out", "work -> slow -> out");
    let costs = [Cost::default(), Cost { per_batch: 0, per_packet: COST }];
    let mut trials = Emulated::<WeightedFair>::new(load(&text, true).plans, &costs).expect("a generator");
    let trial = trials.run(CAPACITY * 2.0, Duration::from_millis(500)).expect("it runs");
    let half = trial.offered / 2;
    assert!(trial.lost.abs_diff(half) < half / 10, "{trial:?}");
}

#[test]
fn sources_whose_load_cannot_be_set_are_refused() {
    let refused = |text: &str| match Load::of(&mut load(text, true).plans) {
        Err(error) => error.to_string(),
        Ok(load) => panic!("{load:?}"),
    };
    let fixed = text(1, "constant", 4096);
    for invalid in [fixed.replace("rate: 7kpps, ", ""), fixed.replace("queue: 4096", "count: 9")] {
        let error = refused(&invalid.replace("arrivals: constant, ", ""));
        assert!(
            error.starts_with("port 'in' (generator): ") && error.contains("with a `rate` and no `count`"),
            "{error}"
        );
    }
    // A port that packets only leave through is ignored.
    assert!(Load::of(&mut load(&fixed, true).plans).is_ok());
}

#[test]
fn the_load_of_several_sources_and_workers_is_their_sum() {
    let text = text(1, "constant", 4096)
        .replace("  out:", "  other: { generator: { rate: 3kpps } }\n  out:")
        .replace("in -> work -> out", "in -> work -> out, other -> work");
    let text = format!("{text}workers: [{{}}, {{}}]\n");
    let plans = load(&text, true).plans;
    assert_eq!(plans.len(), 2);
    let mut trials = Emulated::<RunToCompletion>::new(plans, &costs(1)).expect("generators with rates");
    assert!((trials.load().pps() - 10_000.0).abs() < 0.01);
    let trial = trials.run(20_000.0, Duration::from_millis(500)).expect("it runs");
    assert!(trial.offered.abs_diff(10_000) <= 8 && trial.lost == 0, "{trial:?}");
}

/// On this machine: the only assumption about speed is that half a million ticks per packet are too slow for the
/// offered load.
#[test]
fn a_real_pipeline_is_tried_at_several_loads() {
    let text = text(1, "constant", 64).replace("bypass: {}", "bypass: { cycles_per_packet: 500000 }");
    let Loaded { mut plans, cores, made, .. } = load(&text.replace("\npipeline", "\nbatch: 2\npipeline"), false);
    let load = Load::of(&mut plans).expect("a generator with a rate");
    let cores = forebay_instance::choose(&cores).expect("a core");
    let instance =
        forebay_instance::start(plans, &cores, made, Box::new(|_| None), forebay_instance::ControlInputs::default())
            .expect("it starts");
    let mut trials = Measured::new(Arc::clone(&instance), load);
    let span = Duration::from_millis(300);
    // 15 000 packets are due, and in the trial below 30 000. If another process has the worker's core at the end of the
    // span, packets that became due in this time are not counted. The trial in simulated time has exact numbers.
    let over = trials.run(50_000.0, span).expect("it runs");
    assert!(over.offered >= 11_000 && over.lost > over.offered / 2 && over.took >= span, "{over:?}");
    let disturbances = trials.disturbances();
    assert!(disturbances.len() == 1 && disturbances[0].span_s >= 0.3, "{disturbances:?}");
    let again = trials.run(100_000.0, span).expect("it runs");
    assert!(again.offered >= 22_000 && again.lost > again.offered / 2, "{again:?}");
    let outcome = instance.end();
    assert!(outcome.troubles.is_empty(), "{outcome:?}");
}
