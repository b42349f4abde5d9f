//! Measures the time of a decision for different numbers of flows and modules: the optimum of the paper's model, the
//! best triggers of the refined model, and the steps of the paper's controllers.

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use forebay_models::batching::measured::Measured;
use forebay_models::batching::waiting::Arrivals;
use forebay_models::batching::{Flow, Line, Model, Module};

/// A gateway: three modules, then a chain of five for each flow.
fn gateway(flows: usize) -> (Model, Arrivals) {
    let cost = Line { fixed: 60e-9, each: 20e-9 };
    let module = Module { cpu: cost, delay: cost, ingress: 1.0 };
    let modules = [vec![Module { ingress: 32.0, ..module }; 3], vec![module; 5 * flows]].concat();
    let path = |flow: usize| (0..3).chain(3 + 5 * flow..8 + 5 * flow).collect();
    let definitions = (0..flows).map(|flow| Flow {
        path: path(flow),
        rate: 3e6 / flows as f64 * (0.5 + flow as f64 / flows as f64),
        slo: 1e-3 + flow as f64 * 1e-6,
    });
    let model = Model::new(modules, definitions.collect(), 32.0).expect("a valid model").with_turn(50e-6);
    let before = (0..3 + 5 * flows).map(|at| match at {
        0 => None,
        1 | 2 => Some(at - 1),
        _ if (at - 3).is_multiple_of(5) => Some(2),
        _ => Some(at - 1),
    });
    let kept = (0..3 + 5 * flows).map(|at| if at > 2 && (at - 3).is_multiple_of(5) { 1.0 / flows as f64 } else { 1.0 });
    let (buffers, stated) = (vec![1.0; model.modules().len()], vec![0; model.modules().len()]);
    (model, Arrivals { before: before.collect(), kept: kept.collect(), buffers, stated, held: 0.0, again: 0.0 })
}

fn decide(c: &mut Criterion) {
    let mut group = c.benchmark_group("triggers");
    for flows in [16, 64, 1_024] {
        let (model, arrivals) = gateway(flows);
        let name = format!("{flows} flows, {} modules", model.modules().len());
        group.bench_function(BenchmarkId::new("optimum", &name), |b| b.iter(|| black_box(model.optimum())));
        group.bench_function(BenchmarkId::new("best", &name), |b| b.iter(|| black_box(model.best_triggers(&arrivals))));
        let inputs = || (model.modules().to_vec(), model.flows().to_vec(), arrivals.clone());
        group.bench_function(BenchmarkId::new("best, from figures", &name), |b| {
            b.iter_batched(
                inputs,
                |(modules, flows, arrivals)| {
                    let model = Model::new(modules, flows, 32.0).expect("a valid model").with_turn(50e-6);
                    let triggers = model.best_triggers(&arrivals);
                    (model, arrivals, triggers)
                },
                BatchSize::SmallInput,
            )
        });
        let count = model.modules().len();
        // Every fourth flow is in violation.
        let triggers = vec![8; count];
        let delays: Vec<Option<f64>> =
            (0..flows).map(|flow| Some(model.flows()[flow].slo * if flow % 4 == 0 { 1.1 } else { 0.5 })).collect();
        let measured = Measured { triggers: &triggers, stays: &[], delays: &delays, guard: 0.05 };
        group.bench_function(BenchmarkId::new("step", &name), |b| b.iter(|| black_box(model.gradient_step(&measured))));
        group.bench_function(BenchmarkId::new("recovery", &name), |b| b.iter(|| black_box(model.recovery(&measured))));
        let none = vec![0; count];
        let measured = Measured { triggers: &none, ..measured };
        group
            .bench_function(BenchmarkId::new("buffers", &name), |b| b.iter(|| black_box(model.new_buffers(&measured))));
    }
    group.finish();
}

criterion_group!(benches, decide);
criterion_main!(benches);
