//! Measures the time of a decision, from the first counter read to the last action written, and the time that a worker
//! needs to apply a decision that changes everything. The pipelines are gateways whose branches do not run as one.

use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use forebay_control::{ControllerRunner, Costs, Settings};
use forebay_graph::{Cost, RunToCompletion, Sampler};
use forebay_instance::{SimulatedTeam, Simulation};
use forebay_models::batching::Line;
use forebay_pipeline::{Conditions, Loaded, load, usecase};
use forebay_protocol::Action;
use forebay_units::{Nanos, Ticks};

/// A period, in ticks of simulated time.
const PERIOD: u64 = 2_000_000;

/// Loads a gateway with this number of branches, in simulated time.
fn gateway(hops: usize) -> Loaded {
    let sets = [format!("n={hops}"), "slo=1ms".to_owned(), "fold=off".to_owned(), "rate=1Mpps".to_owned()];
    let source = usecase("gw", &sets).expect("a use case");
    load(&source, Conditions { frequency: Simulation::frequency(), simulated: true }).expect("in order")
}

fn apply(c: &mut Criterion) {
    let mut group = c.benchmark_group("apply");
    for hops in [64, 1_024] {
        let loaded = gateway(hops);
        let layout = loaded.plans[0].layout().expect("flows");
        let modules: Vec<usize> = layout.running().map(|(at, _)| at).collect();
        let costs = vec![Cost { per_batch: 150, per_packet: 20 }; layout.modules.len()];
        let mut team = SimulatedTeam::<RunToCompletion>::new(loaded.plans, &costs, None).expect("a plan that runs");
        let changes = [8, 9].map(|trigger| -> Vec<Action> {
            let hold = Nanos(1_000_000);
            let change = |module: &usize| {
                [Action::SetTrigger { module: *module, trigger }, Action::SetHold { module: *module, hold }]
            };
            modules.iter().flat_map(change).collect()
        });
        let mut turn = 0;
        group.bench_function(BenchmarkId::from_parameter(format!("{} modules", modules.len())), |b| {
            b.iter(|| {
                turn += 1;
                team.workers[0].apply(&changes[turn % 2]).expect("in order");
            });
        });
    }
    group.finish();
}

fn decide(c: &mut Criterion) {
    let mut group = c.benchmark_group("decide");
    group.sample_size(20).measurement_time(Duration::from_secs(2));
    for hops in [64, 1_024] {
        for name in ["null", "on-off", "gradient", "optimal"] {
            let loaded = gateway(hops);
            let layout = loaded.plans[0].layout().expect("flows");
            let modules = layout.modules.len();
            let costs = vec![Cost { per_batch: 150, per_packet: 20 }; modules];
            let known = Costs::Known(vec![Line { fixed: 150e-9, each: 20e-9 }; modules]);
            let mut team = SimulatedTeam::<RunToCompletion>::new(loaded.plans, &costs, None).expect("a plan that runs");
            let mut sampler = Sampler::new(team.board.telemetries(), Ticks::ZERO, Ticks::ZERO);
            let controller = forebay_graph::controllers().into_iter().find(|it| it.name == name).expect("a controller");
            let settings = Settings {
                controller,
                params: serde_json::Value::Null,
                period: Nanos(PERIOD),
                guard: 0.05,
                workers: 1,
            };
            let mut runner = ControllerRunner::new(&settings, layout, known).expect("no parameters");
            let mut now = Ticks::ZERO;
            let id = BenchmarkId::new(name, format!("{hops} flows, {modules} modules"));
            group.bench_function(id, |b| {
                b.iter_custom(|times| {
                    let mut took = Duration::ZERO;
                    for _ in 0..times {
                        now += Ticks(PERIOD);
                        team.run(now);
                        let start = Instant::now();
                        let actions = runner.decide(sampler.take(now, &[])).actions.clone();
                        took += start.elapsed();
                        team.workers.iter_mut().for_each(|worker| worker.apply(&actions).expect("in order"));
                    }
                    took
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, decide, apply);
criterion_main!(benches);
