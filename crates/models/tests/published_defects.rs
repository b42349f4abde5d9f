//! Defects of the published controller (`batching.md`), each with a test that fails if the defect exists.

use forebay_models::batching::measured::Measured;
use forebay_models::batching::{Flow, Line, Model, Module};
use proptest::prelude::*;

const COST: Line = Line { fixed: 1e-7, each: 1e-8 };
const MODULE: Module = Module { cpu: COST, delay: COST, ingress: 1.0 };
const GUARD: f64 = 0.05;

fn flow(path: &[usize], rate: f64, slo: f64) -> Flow {
    Flow { path: path.to_vec(), rate, slo }
}

fn model(modules: usize, flows: &[Flow]) -> Model {
    Model::new(vec![MODULE; modules], flows.to_vec(), 32.0).expect("a valid model").with_turn(0.0)
}

fn measured<'m>(triggers: &'m [usize], delays: &'m [Option<f64>]) -> Measured<'m> {
    Measured { triggers, stays: &[], delays, guard: GUARD }
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 * b
}

#[test]
fn cost_estimates_do_not_grow_with_every_call() {
    let model = model(3, &[flow(&[0, 1], 1e6, 1.0), flow(&[0, 2], 1e6, 1.0)]);
    let first = model.attributed(&[8, 0, 0]);
    assert!(close(first[0].cpu.fixed, 3.0 * COST.fixed), "{first:?}");
    for _ in 0..3 {
        assert_eq!(model.attributed(&[8, 0, 0]), first);
    }
}

#[test]
fn a_module_reachable_twice_is_counted_once() {
    // Two paths that join again.
    let model = model(4, &[flow(&[0, 1, 3], 1e6, 1.0), flow(&[0, 2, 3], 3e6, 1.0)]);
    let attributed = model.attributed(&[8, 0, 0, 0]);
    assert!(close(attributed[0].cpu.fixed, 4.0 * COST.fixed), "{attributed:?}");
    // All packets pass the first and the last module, a quarter and three quarters the others.
    assert!(close(attributed[0].cpu.each, 3.0 * COST.each), "{attributed:?}");
}

#[test]
fn a_constraint_holds_back_only_flows_that_are_in_violation() {
    let model = model(2, &[flow(&[0], 1e6, 1e-3), flow(&[1], 1e6, 1e-3)]);
    // First, both flows are far from their objectives; then the first one is beyond.
    let free = model.gradient_step(&measured(&[4, 4], &[Some(1e-4), Some(1e-4)]));
    assert_eq!(free, [32, 32]);
    let held = model.gradient_step(&measured(&[4, 4], &[Some(1.1e-3), Some(1e-4)]));
    assert_eq!(held, [4, 32]);
    // A buffer is added if all its flows have time, and not otherwise.
    assert_eq!(model.new_buffers(&measured(&[0, 0], &[Some(1.1e-3), Some(1e-4)])), [(1, 2)]);
    // Triggers without violations are not cut.
    assert_eq!(model.recovery(&measured(&[16, 16], &[Some(9e-4), Some(1e-4)])), [16, 16]);
}

#[test]
fn a_direction_is_found_again_when_a_constraint_is_dropped() {
    // Both flows are in violation, the second only because of module 1, which saves little. The direction is up at
    // module 0 and down at module 1: the first flow's delay stays, the second's decreases.
    let small = Module { cpu: Line { fixed: 1e-8, each: 0.0 }, ..MODULE };
    let flows = vec![flow(&[0, 1], 1e6, 1e-4), flow(&[1], 1.0, 1e-4)];
    let model = Model::new(vec![MODULE, small], flows, 32.0).expect("a valid model").with_turn(0.0);
    let to = model.gradient_step(&measured(&[8, 8], &[Some(1e-4), Some(1e-4)]));
    assert!(to[0] > 8 && to[1] < 8, "{to:?}");
    // The only flow in violation has no trigger that can move. All remaining time belongs to the others.
    let model = self::model(2, &[flow(&[0], 1e6, 1e-4), flow(&[1], 1e6, 1e-3)]);
    assert_eq!(model.gradient_step(&measured(&[32, 4], &[Some(1e-4), Some(1e-4)])), [32, 32]);
}

#[test]
fn delay_that_is_freed_is_credited() {
    // The first flow cannot be kept. Bypassing the module that it shares with the second is enough for the second.
    let model = model(3, &[flow(&[0, 1], 1e6, 1e-7), flow(&[0, 2], 1e6, 3e-5)]);
    let now = [16, 16, 4];
    let delays = model.delays(&now.map(|trigger| trigger as f64));
    let limit = (1.0 - GUARD) * 3e-5;
    assert!(delays[1].expect("the flow has packets") < limit);
    // 7 µs are too much. Bypassing module 0 frees 8 µs; cuts at module 2 could free at most 3 µs.
    let over = [delays[0], Some(limit + 7e-6)];
    assert_eq!(model.recovery(&measured(&now, &over)), [0, 0, 4]);
    // A cut for one flow counts for others too: 4 of 16 packets at module 0 are enough for both.
    let shared = self::model(1, &[flow(&[0], 1e6, 1e-4), flow(&[0], 1e6, 1e-4)]);
    let slope = shared.delay_slope(0);
    let over = [Some(0.95e-4 + 3.9 * slope), Some(0.95e-4 + 2.0 * slope)];
    assert_eq!(shared.recovery(&measured(&[16], &over)), [12]);
}

#[test]
fn no_trigger_is_above_the_largest_batch() {
    let model = model(3, &[flow(&[0, 1], 1e6, 1.0), flow(&[2], 2e6, 1.0)]);
    for now in [[31, 1, 1], [31, 31, 32], [1, 32, 5]] {
        let to = model.gradient_step(&measured(&now, &[None, None]));
        assert!(to.iter().all(|trigger| *trigger <= 32) && to != now, "{now:?} {to:?}");
    }
    // A buffer that would have to wait for more than the largest batch is not added.
    let model = Model::new(vec![MODULE], vec![flow(&[0], 1e6, 1.0)], 1.5).expect("a valid model");
    assert_eq!(model.new_buffers(&measured(&[0], &[None])), []);
}

/// Modules with costs, ingress and triggers; flows with paths, rates, and their delays relative to objectives.
type Definition = (Vec<(f64, f64, f64, usize)>, Vec<(Vec<bool>, f64, f64)>);

fn definition() -> impl Strategy<Value = Definition> {
    let module = (1e-8..1e-6f64, 1e-9..2e-7f64, 1.0..32.0f64, 0..=32usize);
    let flow = (prop::collection::vec(any::<bool>(), 8), 1e4..1e6f64, 0.5..2.0f64);
    (prop::collection::vec(module, 8), prop::collection::vec(flow, 1..=8))
}

/// Returns all decisions if modules and flows are defined in these orders. The result is in the original order of
/// modules.
fn decided((modules, flows): &Definition, order: &[usize], flow_order: &[usize]) -> Vec<Vec<usize>> {
    let new_index = |old: usize| order.iter().position(|at| *at == old).expect("every module is in the order");
    let of = |&at: &usize| {
        let (fixed, each, ingress, _) = modules[at];
        Module { cpu: Line { fixed, each }, delay: Line { fixed, each }, ingress }
    };
    let triggers: Vec<usize> = order.iter().map(|&at| modules[at].3).collect();
    let reordered = |path: &[bool]| (0..8).filter(|at| path[*at]).map(new_index).collect::<Vec<_>>();
    let flows: Vec<_> = flow_order.iter().map(|&at| &flows[at]).collect();
    let free = flows.iter().map(|(path, rate, _)| flow(&reordered(path), *rate, 1e-3)).collect();
    let model = Model::new(order.iter().map(of).collect(), free, 32.0).expect("a valid model").with_turn(1e-5);
    let delays: Vec<Option<f64>> = flows.iter().map(|(.., share)| Some(1e-3 * share)).collect();
    let now = measured(&triggers, &delays);
    let mut new = vec![0; 8];
    model.new_buffers(&now).into_iter().for_each(|(at, trigger)| new[at] = trigger);
    let mut needless = vec![0; 8];
    model.needless_buffers(&measured(&triggers, &[])).into_iter().for_each(|at| needless[at] = 1);
    let by_module = |found: Vec<usize>| (0..8).map(|at| found[new_index(at)]).collect::<Vec<_>>();
    [model.gradient_step(&now), model.recovery(&now), new, needless].map(by_module).to_vec()
}

proptest! {
    #[test]
    fn the_order_of_definition_changes_nothing(
        definition in definition(),
        order in Just((0..8).collect::<Vec<usize>>()).prop_shuffle(),
        flow_order in Just((0..8).collect::<Vec<usize>>()).prop_shuffle(),
    ) {
        let flows: Vec<usize> = (0..definition.1.len()).collect();
        let shuffled: Vec<usize> = flow_order.into_iter().filter(|at| flows.contains(at)).collect();
        let straight: Vec<usize> = (0..8).collect();
        prop_assert_eq!(decided(&definition, &straight, &flows), decided(&definition, &order, &shuffled));
    }
}
