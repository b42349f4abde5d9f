//! The batch model compared with its definition: finite differences, the equivalent model, random and exhaustive
//! search.

use forebay_models::batching::{Flow, Line, Model, ModelError, Module};
use proptest::prelude::*;

const B: f64 = 32.0;

fn module() -> impl Strategy<Value = Module> {
    let seconds = |most: f64| (0.01..1.0f64).prop_map(move |share| share * most);
    (seconds(1e-6), seconds(2e-7), 1.0..B).prop_map(|(fixed, each, ingress)| {
        let cost = Line { fixed, each };
        Module { cpu: cost, delay: cost, ingress }
    })
}

/// Up to `modules` modules, and flows through some of them in order. Objectives can be kept; most of them are tight.
fn model(modules: usize, flows: usize) -> impl Strategy<Value = Model> {
    let flow = move |modules: usize| {
        let path = prop::collection::vec(any::<bool>(), modules);
        (path, 1e3..1e6f64, 0.0..1.5f64)
    };
    prop::collection::vec(module(), 1..=modules)
        .prop_flat_map(move |modules| {
            let flows = prop::collection::vec(flow(modules.len()), 1..=flows);
            (Just(modules), flows)
        })
        .prop_map(|(modules, flows)| {
            let of = |(path, rate, _): &(Vec<bool>, f64, f64)| {
                let mut path: Vec<_> = (0..path.len()).filter(|at| path[*at]).collect();
                if path.is_empty() {
                    path.push(0);
                }
                Flow { path, rate: *rate, slo: f64::INFINITY }
            };
            let free: Vec<_> = flows.iter().map(of).collect();
            let at = Model::new(modules.clone(), free.clone(), B).expect("a valid model");
            let (least, most) = (vec![1.0; modules.len()], vec![B; modules.len()]);
            let (least, most) = (at.delays(&least), at.delays(&most));
            // From barely feasible to not binding.
            let bounded = free.into_iter().zip(&flows).enumerate().map(|(at, (flow, (_, _, share)))| {
                let (least, most) = (least[at].expect("the flow has packets"), most[at].expect("the flow has packets"));
                Flow { slo: least + (most - least) * (0.001 + share), ..flow }
            });
            Model::new(modules, bounded.collect(), B).expect("a valid model")
        })
}

/// Returns a pseudo-random number from 0 to 1 for this seed: faster than a strategy where thousands are needed.
fn noise(seed: u64) -> f64 {
    let mixed = (seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed >> 11) as f64 / (1u64 << 53) as f64
}

fn close(a: f64, b: f64, within: f64) -> bool {
    (a - b).abs() <= within * a.abs().max(b.abs())
}

proptest! {
    #[test]
    fn gradients_equal_finite_differences(model in model(6, 4), seed: u64) {
        let at: Vec<f64> = (0..model.modules().len()).map(|v| 1.5 + noise(seed ^ v as u64) * 30.0).collect();
        let gradient = model.load_gradient(&at);
        let by = 1e-4;
        for v in 0..at.len() {
            let moved = |by: f64| { let mut moved = at.clone(); moved[v] += by; moved };
            let (up, down) = (moved(by), moved(-by));
            let slope = (model.load(&up) - model.load(&down)) / (2.0 * by);
            prop_assert!(close(slope, gradient[v], 1e-4) || slope.abs() < 1e-12, "{} {}", slope, gradient[v]);
            for (flow, (up, down)) in model.delays(&up).into_iter().zip(model.delays(&down)).enumerate() {
                let slope = (up.expect("the flow has packets") - down.expect("the flow has packets")) / (2.0 * by);
                let expected = if model.flows()[flow].path.contains(&v) { model.delay_slope(v) } else { 0.0 };
                let tolerance = 1e-5 * model.delay_slope(v).min(1.0);
                prop_assert!((slope - expected).abs() <= tolerance, "{} {}", slope, expected);
            }
        }
    }

    #[test]
    fn both_models_agree(model in model(6, 4), seed: u64) {
        let triggers: Vec<f64> = (0..model.modules().len()).map(|v| 1.0 + noise(seed ^ v as u64) * 31.0).collect();
        let executions = model.executions(&triggers);
        prop_assert!(close(model.load(&triggers), model.load_by_executions(&executions), 1e-12));
        for (a, b) in model.delays(&triggers).into_iter().zip(model.delays_by_executions(&executions)) {
            prop_assert!(close(a.expect("the flow has packets"), b.expect("the flow has packets"), 1e-12));
        }
        // The slopes are related by the chain rule: dx/db = -R/b^2.
        let (by_trigger, by_execution) = (model.load_gradient(&triggers), model.load_gradient_by_executions());
        for v in (0..triggers.len()).filter(|v| model.rates()[*v] > 0.0) {
            let chain = -model.rates()[v] / triggers[v].powi(2);
            prop_assert!(close(by_trigger[v], by_execution[v] * chain, 1e-12));
            prop_assert!(close(model.delay_slope(v), model.delay_slope_by_executions(v, executions[v]) * chain, 1e-9));
        }
        let best = model.optimum_by_executions().expect("objectives that can be kept");
        let by_triggers = model.load(&model.optimum().expect("as above").batches);
        prop_assert!(close(model.load_by_executions(&best), by_triggers, 1e-12));
    }

    #[test]
    fn the_optimum_satisfies_its_conditions(model in model(12, 8), seed: u64) {
        let optimum = model.optimum().expect("objectives that can be kept");
        let batches = &optimum.batches;
        prop_assert!(model.is_feasible(batches), "{:?} {:?}", batches, model.delays(batches));
        // Karush-Kuhn-Tucker: a batch between its bounds has the price of its delay, and a flow has a price only if its
        // time is used up.
        let gradient = model.load_gradient(batches);
        for v in (0..batches.len()).filter(|v| model.rates()[*v] > 0.0) {
            let through = model.flows().iter().zip(&optimum.prices).filter(|(flow, _)| flow.path.contains(&v));
            let price = model.delay_slope(v) * through.map(|(_, price)| price).sum::<f64>();
            let gain = -gradient[v];
            prop_assert!(gain <= price * (1.0 + 1e-6) || batches[v] > B * (1.0 - 1e-9), "{}: {} {}", v, gain, price);
            prop_assert!(gain >= price * (1.0 - 1e-6) || batches[v] < 1.0 + 1e-9, "{}: {} {}", v, gain, price);
        }
        for (flow, (delay, price)) in model.flows().iter().zip(model.delays(batches).into_iter().zip(&optimum.prices)) {
            prop_assert!(*price >= 0.0);
            prop_assert!(*price == 0.0 || close(delay.expect("the flow has packets"), flow.slo, 1e-8));
        }
        // Random points at different distances from the optimum.
        let load = model.load(batches);
        for point in 0..2_000u64 {
            let random = |v: usize| 1.0 + noise(seed ^ (point << 8) ^ v as u64) * (B - 1.0);
            let to: Vec<f64> = (0..batches.len()).map(random).collect();
            let near = 0.5f64.powf(noise(seed ^ point) * 20.0);
            let point_near: Vec<f64> = batches.iter().zip(&to).map(|(from, to)| from + (to - from) * near).collect();
            let is_no_better = !model.is_feasible(&point_near) || model.load(&point_near) >= load * (1.0 - 1e-9);
            prop_assert!(is_no_better, "{:?}", point_near);
        }
    }

    #[test]
    fn the_numbering_makes_no_difference(model in model(8, 6), seed: u64) {
        let optimum = model.optimum().expect("objectives that can be kept");
        let order = |many: usize, salt: u64| {
            let mut order: Vec<usize> = (0..many).collect();
            order.sort_by(|a, b| noise(seed ^ salt ^ *a as u64).total_cmp(&noise(seed ^ salt ^ *b as u64)));
            order
        };
        let (modules, flows) = (order(model.modules().len(), 1 << 20), order(model.flows().len(), 1 << 30));
        let new_index = |old: usize| modules.iter().position(|at| *at == old).expect("every module is in the order");
        let renamed = flows.iter().map(|&at| {
            let flow = &model.flows()[at];
            Flow { path: flow.path.iter().rev().map(|&module| new_index(module)).collect(), ..flow.clone() }
        });
        let renamed: Vec<_> = renamed.collect();
        let moved = modules.iter().map(|&at| model.modules()[at]).collect();
        let other = Model::new(moved, renamed, B).expect("a valid model");
        let other_optimum = other.optimum().expect("as above");
        for (new, &old) in modules.iter().enumerate() {
            let is_same = close(other_optimum.batches[new], optimum.batches[old], 1e-5);
            prop_assert!(is_same, "{:?} {:?}", other_optimum, optimum);
        }
        prop_assert!(close(other.load(&other_optimum.batches), model.load(&optimum.batches), 1e-9));
    }

    #[test]
    fn exhaustive_search_finds_nothing_better(model in model(3, 3)) {
        let best = model.load(&model.optimum().expect("objectives that can be kept").batches);
        let modules = model.modules().len();
        let mut least = f64::INFINITY;
        for number in 0..32usize.pow(u32::try_from(modules).expect("few")) {
            let digit = |v: usize| number / 32usize.pow(u32::try_from(v).expect("few")) % 32;
            let triggers: Vec<f64> = (0..modules).map(|v| (digit(v) + 1) as f64).collect();
            if model.is_feasible(&triggers) {
                least = least.min(model.load(&triggers));
            }
        }
        // Triggers of 1 are always feasible. Whole numbers cannot be better than the optimum.
        prop_assert!(least.is_finite() && best <= least * (1.0 + 1e-9), "{} {}", best, least);
    }
}

const COST: Line = Line { fixed: 1e-7, each: 1e-8 };
const MODULE: Module = Module { cpu: COST, delay: COST, ingress: 1.0 };

fn flow(path: &[usize], rate: f64, slo: f64) -> Flow {
    Flow { path: path.to_vec(), rate, slo }
}

#[test]
fn batchiness_is_the_remaining_share_of_the_cost() {
    assert!((Line { fixed: 1.0, each: 0.0 }.batchiness(B) - 1.0 / B).abs() < 1e-15);
    assert!((Line { fixed: 0.0, each: 1.0 }.batchiness(B) - 1.0).abs() < 1e-15);
    assert!((Line::default().batchiness(B) - 1.0).abs() < 1e-15);
    // IPv4 lookup as published: 68.5 ns per batch and 27.5 ns per packet.
    let lookup = Line { fixed: 68.5e-9, each: 27.5e-9 };
    assert!((lookup.batchiness(B) - (68.5 + 32.0 * 27.5) / (32.0 * 96.0)).abs() < 1e-12);
}

#[test]
fn a_trigger_of_0_calls_with_arriving_batches_without_a_wait() {
    let module = Module { ingress: 4.0, ..MODULE };
    let model = Model::new(vec![module], vec![flow(&[0], 1e6, 1.0)], B).expect("a valid model").with_turn(0.0);
    assert!((model.load(&[0.0]) - 1e6 / 4.0 * COST.at(4.0)).abs() < 1e-15);
    assert_eq!(model.delays(&[0.0]), [Some(COST.at(4.0))]);
    assert_eq!(model.delays(&[4.0]), [Some(4.0 / 1e6 + COST.at(4.0))]);
}

#[test]
fn objectives_that_cannot_be_kept_are_named() {
    let slow =
        Model::new(vec![MODULE; 2], vec![flow(&[0], 1e6, 1.0), flow(&[0, 1], 1e3, 5e-4)], B).expect("a valid model");
    // One packet per millisecond: waiting for a batch of one is already too long.
    assert_eq!(slow.optimum().expect_err("too tight").flows, [1]);
    // A flow without packets cannot miss its objective.
    let idle =
        Model::new(vec![MODULE; 2], vec![flow(&[0], 1e6, 1.0), flow(&[0, 1], 0.0, 1e-9)], B).expect("a valid model");
    assert_eq!(idle.optimum().expect("the objective does not apply").batches, [B, 1.0]);
    assert_eq!(idle.delays(&[1.0, 1.0])[1], None);
}

#[test]
fn invalid_models_are_refused() {
    let model = |modules: &[Module], flows: &[Flow], largest| Model::new(modules.to_vec(), flows.to_vec(), largest);
    let twice = model(&[MODULE], &[flow(&[0, 0], 1.0, 1.0)], B);
    assert_eq!(twice, Err(ModelError::Twice { flow: 0, module: 0 }));
    let away = model(&[MODULE], &[flow(&[1], 1.0, 1.0)], B);
    assert_eq!(away, Err(ModelError::Path { flow: 0, module: 1, modules: 1 }));
    for (modules, flows, largest) in [
        (vec![MODULE], vec![], 0.5),
        (vec![MODULE], vec![], f64::NAN),
        (vec![MODULE], vec![flow(&[0], -1.0, 1.0)], B),
        (vec![MODULE], vec![flow(&[0], 1.0, 0.0)], B),
        (vec![MODULE], vec![flow(&[0], 1.0, f64::NAN)], B),
        (vec![Module { ingress: 33.0, ..MODULE }], vec![], B),
        (vec![Module { cpu: Line { fixed: f64::INFINITY, each: 0.0 }, ..MODULE }], vec![], B),
    ] {
        assert!(
            matches!(model(&modules, &flows, largest), Err(ModelError::Figure { .. })),
            "{modules:?} {flows:?} {largest}"
        );
    }
}

#[test]
fn flows_on_one_path_have_one_price() {
    // If objectives are close to each other or equal, only the tightest flow has a price.
    let cost = Line { fixed: 1e-8, each: 2e-9 };
    let module = Module { cpu: cost, delay: cost, ingress: 1.0 };
    for slos in [vec![6.7853e-3, 9.0951e-3, 6.7848e-3], vec![9.1e-4, 5.9e-4, 4e-4, 3.5e-4, 3.5e-4, 3.5e-4]] {
        let flows: Vec<Flow> = slos.iter().map(|&slo| flow(&[0], 1e3, slo * slos.len() as f64 / 3.0)).collect();
        let model = Model::new(vec![module], flows, B).expect("a valid model");
        let optimum = model.optimum().expect("possible");
        let tightest = model.flows().iter().map(|flow| flow.slo).fold(f64::INFINITY, f64::min);
        assert!(close(model.delays(&optimum.batches)[0].expect("the flow has packets"), tightest, 1e-9), "{optimum:?}");
        for (flow, price) in model.flows().iter().zip(&optimum.prices) {
            assert!(*price == 0.0 || flow.slo <= tightest, "{optimum:?}");
        }
    }
}
