//! Runs a use case in the engine and in the simulator, and collects their figures.

use std::sync::{Arc, Mutex};

use forebay_control::{Log, Settings, recording::Period};
use forebay_graph::{Cost, RunToCompletion, Scheduler, WeightedFair, drive::shut_down_team};
use forebay_instance::{SimulatedTeam, Simulation};
use forebay_measure::Distribution;
use forebay_models::batching::Line;
use forebay_pipeline::{Conditions, Loaded, load, usecase};
use forebay_protocol::{Action, Decision, Layout, SchedulerKind, Snapshot};
use forebay_sim::{Options, Scene, Simulator};
use forebay_units::Ticks;

/// The cost of a call, and of each packet of a call, in nanoseconds.
pub(crate) const COST: (u64, u64) = (300, 50);

/// Records the snapshot and the decision of each period.
#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<Vec<Period>>>);

impl Log for Recorder {
    fn begin(&mut self, _: &Settings, _: &Layout) {}

    fn period(&mut self, snapshot: &Snapshot, actions: &Decision) {
        let period = Period { snapshot: snapshot.clone(), actions: actions.clone() };
        self.0.lock().expect("no thread panicked").push(period);
    }
}

impl Recorder {
    pub(crate) fn periods(&self) -> Vec<Period> {
        self.0.lock().expect("no thread panicked").clone()
    }
}

/// The figures of a run.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    /// Packets sent per second.
    pub(crate) rate: f64,
    /// Mean packets per call.
    pub(crate) batch: f64,
    /// The mean delay of all packets, in microseconds.
    pub(crate) mean: f64,
    /// The 99th percentile of the delay, in microseconds.
    pub(crate) p99: f64,
}

/// Interpolates a quantile between the bounds of its bucket. The bounds themselves are too far apart for comparisons.
fn quantile(delay: &Distribution, share: f64) -> f64 {
    let Some(upper) = delay.quantile(share).filter(|upper| *upper >= 32) else { return 0.0 };
    let width = 1u64 << (upper.ilog2() - 4);
    let lower = upper / width * width;
    let (above, with) = (delay.above(upper) as f64, delay.above(lower - 1) as f64);
    let wanted = (1.0 - share) * delay.samples() as f64;
    let last = (lower + width).min(delay.max().unwrap_or(u64::MAX)) as f64;
    last - (last - lower as f64) * ((wanted - above) / (with - above)).clamp(0.0, 1.0)
}

impl Figures {
    fn of(seconds: f64, packets: u64, calls: u64, delay: &Distribution) -> Self {
        Self {
            rate: delay.samples() as f64 / seconds,
            batch: packets as f64 / calls as f64,
            mean: delay.mean().unwrap_or(0.0) / 1e3,
            p99: quantile(delay, 0.99) / 1e3,
        }
    }

    pub(crate) fn each(&self) -> [f64; 4] {
        [self.rate, self.batch, self.mean, self.p99]
    }

    /// Returns the largest difference of a figure from that of `truth`, relative to `truth`.
    pub(crate) fn off(&self, truth: &Self) -> f64 {
        let pairs = self.each().into_iter().zip(truth.each());
        pairs.map(|(figure, truth)| (figure / truth - 1.0).abs()).fold(0.0, f64::max)
    }
}

/// Loads a use case, written as on the command line: `gw n=16 rate=1Mpps`. `~` stands for a space in a value.
pub(crate) fn loaded(case: &str) -> Loaded {
    let mut words = case.split_whitespace().map(|word| word.replace('~', " "));
    let name = words.next().expect("a name");
    let source = usecase(&name, &words.collect::<Vec<_>>()).unwrap_or_else(|problems| panic!("{problems}"));
    let conditions = Conditions { frequency: Simulation::frequency(), simulated: true };
    load(&source, conditions).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Returns the engine's figures of each stage, and its periods. A stage is the time at which it ends, in milliseconds,
/// and the offered rate as a multiple of the configured rate.
pub(crate) fn engine(case: &str, stages: &[(u64, f64)]) -> (Vec<Figures>, Vec<Period>) {
    let loaded = loaded(case);
    match loaded.plans[0].scheduler {
        SchedulerKind::RunToCompletion => engine_of::<RunToCompletion>(loaded, stages),
        SchedulerKind::WeightedFair => engine_of::<WeightedFair>(loaded, stages),
    }
}

fn engine_of<S: Scheduler>(loaded: Loaded, stages: &[(u64, f64)]) -> (Vec<Figures>, Vec<Period>) {
    let costs = vec![Cost { per_batch: COST.0, per_packet: COST.1 }; loaded.plans[0].modules.len()];
    let seen = Recorder::default();
    let log: Box<dyn Log> = Box::new(seen.clone());
    let mut team =
        SimulatedTeam::<S>::with_log(loaded.plans, &costs, Some(loaded.made), Some(log)).expect("a plan that runs");
    let count = |team: &SimulatedTeam<S>| {
        let (mut packets, mut calls, mut delay) = (0, 0, Distribution::default());
        for telemetry in team.workers.iter().map(|worker| worker.telemetry()) {
            packets += telemetry.counters.iter().map(|module| module.packets.get()).sum::<u64>();
            calls += telemetry.counters.iter().map(|module| module.batches()).sum::<u64>();
            telemetry.flows.iter().for_each(|flow| delay.merge(&flow.delay.read()));
        }
        (packets, calls, delay)
    };
    let (mut began, mut offered, mut before) = (0, 1.0, count(&team));
    let mut figures = Vec::new();
    for &(until, factor) in stages {
        if factor != offered {
            let actions = [Action::SetOffer { factor }];
            team.workers.iter_mut().for_each(|worker| worker.apply(&actions).expect("sources"));
        }
        team.run(Ticks(until * 1_000_000));
        let after = count(&team);
        let seconds = (until - began) as f64 / 1e3;
        let (packets, calls) = (after.0 - before.0, after.1 - before.1);
        figures.push(Figures::of(seconds, packets, calls, &after.2.since(&before.2)));
        (began, offered, before) = (until, factor, after);
    }
    assert!(shut_down_team(&mut team.workers).is_empty());
    (figures, seen.periods())
}

/// Returns the simulator of a use case, and the record of its periods.
pub(crate) fn simulator(case: &str, options: Options) -> (Simulator, Recorder) {
    let loaded = loaded(case);
    let control = loaded.made.control().cloned();
    let scene = Scene::learn(loaded.plans, 8_192).unwrap_or_else(|error| panic!("{case}: {error}"));
    let line = Line { fixed: COST.0 as f64 / 1e9, each: COST.1 as f64 / 1e9 };
    let costs = vec![line; scene.layout().modules.len()];
    let mut simulator = Simulator::new(scene, &costs, control.as_ref(), options).expect("a controller");
    let seen = Recorder::default();
    simulator.set_log(Box::new(seen.clone()));
    (simulator, seen)
}

/// Returns the simulator's figures of each stage, its periods, and the share of the last stage that was simulated in
/// detail.
pub(crate) fn simulated(case: &str, options: Options, stages: &[(u64, f64)]) -> (Vec<Figures>, Vec<Period>, f64) {
    let (mut simulator, seen) = simulator(case, options);
    let (mut began, mut offered, mut detail) = (0, 1.0, 0.0);
    let mut figures = Vec::new();
    for &(until, factor) in stages {
        if factor != offered {
            simulator.set_offer(factor);
        }
        simulator.begin_report();
        simulator.run((until - began) as f64 / 1e3);
        let report = simulator.report();
        let (packets, calls) = report.modules.iter().fold((0, 0), |sum, it| (sum.0 + it.packets, sum.1 + it.calls));
        figures.push(Figures::of(report.seconds, packets, calls, &report.delay()));
        (began, offered, detail) = (until, factor, report.detail_s / report.seconds);
    }
    (figures, seen.periods(), detail)
}
