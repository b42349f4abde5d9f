//! Defects of the published controller (`batching.md`), each with the test that fails where it is.

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
    Model::new(vec![MODULE; modules], flows.to_vec(), 32.0).expect("in order").with_turn(0.0)
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
    // Two ways that join again.
    let model = model(4, &[flow(&[0, 1, 3], 1e6, 1.0), flow(&[0, 2, 3], 3e6, 1.0)]);
    let told = model.attributed(&[8, 0, 0, 0]);
    assert!(close(told[0].cpu.fixed, 4.0 * COST.fixed), "{told:?}");
    // All packets through the first and the last, a quarter and three quarters through the others.
    assert!(close(told[0].cpu.each, 3.0 * COST.each), "{told:?}");
}

#[test]
fn a_constraint_holds_back_only_flows_that_are_in_violation() {
    let model = model(2, &[flow(&[0], 1e6, 1e-3), flow(&[1], 1e6, 1e-3)]);
    // Far from its objective, both; then the first beyond.
    let free = model.gradient_step(&measured(&[4, 4], &[Some(1e-4), Some(1e-4)]));
    assert_eq!(free, [32, 32]);
    let held = model.gradient_step(&measured(&[4, 4], &[Some(1.1e-3), Some(1e-4)]));
    assert_eq!(held, [4, 32]);
    // A buffer is new where all its flows have time, and not where one has none.
    assert_eq!(model.new_buffers(&measured(&[0, 0], &[Some(1.1e-3), Some(1e-4)])), [(1, 2)]);
    // Nothing is cut of what is in order.
    assert_eq!(model.recovery(&measured(&[16, 16], &[Some(9e-4), Some(1e-4)])), [16, 16]);
}

#[test]
fn a_direction_is_found_anew_when_a_constraint_is_dropped() {
    // Both in violation. The second is so only by module 1, which saves little: the way on is up at 0 and down at 1, with which the
    // first stays, and the second falls.
    let small = Module { cpu: Line { fixed: 1e-8, each: 0.0 }, ..MODULE };
    let flows = vec![flow(&[0, 1], 1e6, 1e-4), flow(&[1], 1.0, 1e-4)];
    let model = Model::new(vec![MODULE, small], flows, 32.0).expect("in order").with_turn(0.0);
    let to = model.gradient_step(&measured(&[8, 8], &[Some(1e-4), Some(1e-4)]));
    assert!(to[0] > 8 && to[1] < 8, "{to:?}");
    // The only flow in violation has nothing that can move: what it leaves is all others'.
    let model = self::model(2, &[flow(&[0], 1e6, 1e-4), flow(&[1], 1e6, 1e-3)]);
    assert_eq!(model.gradient_step(&measured(&[32, 4], &[Some(1e-4), Some(1e-4)])), [32, 32]);
}

#[test]
fn delay_that_is_freed_is_credited() {
    // The first flow cannot be helped: what it shares with the second is short-circuited, which is enough for the second.
    let model = model(3, &[flow(&[0, 1], 1e6, 1e-7), flow(&[0, 2], 1e6, 3e-5)]);
    let now = [16, 16, 4];
    let delays = model.delays(&now.map(|trigger| trigger as f64));
    let limit = (1.0 - GUARD) * 3e-5;
    assert!(delays[1].expect("packets come") < limit);
    // 7 µs are over; 8 µs are won back at module 0, and no more than 3 could be at module 2.
    let over = [delays[0], Some(limit + 7e-6)];
    assert_eq!(model.recovery(&measured(&now, &over)), [0, 0, 4]);
    // What is cut for one flow counts for others, too: 4 of 16 packets at 0 are enough for both.
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
    // Nor is a buffer new that would have to wait for more than that.
    let model = Model::new(vec![MODULE], vec![flow(&[0], 1e6, 1.0)], 1.5).expect("in order");
    assert_eq!(model.new_buffers(&measured(&[0], &[None])), []);
}

/// Modules with costs, ingress and triggers; flows with paths, rates, and how far their delays are from objectives.
type Told = (Vec<(f64, f64, f64, usize)>, Vec<(Vec<bool>, f64, f64)>);

fn told() -> impl Strategy<Value = Told> {
    let module = (1e-8..1e-6f64, 1e-9..2e-7f64, 1.0..32.0f64, 0..=32usize);
    let flow = (prop::collection::vec(any::<bool>(), 8), 1e4..1e6f64, 0.5..2.0f64);
    (prop::collection::vec(module, 8), prop::collection::vec(flow, 1..=8))
}

/// All that is decided, with modules and flows defined in these orders; by module as they are told.
fn decided((modules, flows): &Told, order: &[usize], flow_order: &[usize]) -> Vec<Vec<usize>> {
    let place = |old: usize| order.iter().position(|at| *at == old).expect("all are there");
    let of = |&at: &usize| {
        let (fixed, each, ingress, _) = modules[at];
        Module { cpu: Line { fixed, each }, delay: Line { fixed, each }, ingress }
    };
    let triggers: Vec<usize> = order.iter().map(|&at| modules[at].3).collect();
    let way = |path: &[bool]| (0..8).filter(|at| path[*at]).map(place).collect::<Vec<_>>();
    let flows: Vec<_> = flow_order.iter().map(|&at| &flows[at]).collect();
    let free = flows.iter().map(|(path, rate, _)| flow(&way(path), *rate, 1e-3)).collect();
    let model = Model::new(order.iter().map(of).collect(), free, 32.0).expect("in order").with_turn(1e-5);
    let delays: Vec<Option<f64>> = flows.iter().map(|(.., share)| Some(1e-3 * share)).collect();
    let now = measured(&triggers, &delays);
    let mut new = vec![0; 8];
    model.new_buffers(&now).into_iter().for_each(|(at, trigger)| new[at] = trigger);
    let mut needless = vec![0; 8];
    model.needless_buffers(&measured(&triggers, &[])).into_iter().for_each(|at| needless[at] = 1);
    let by_module = |found: Vec<usize>| (0..8).map(|at| found[place(at)]).collect::<Vec<_>>();
    [model.gradient_step(&now), model.recovery(&now), new, needless].map(by_module).to_vec()
}

proptest! {
    #[test]
    fn the_order_of_definition_changes_nothing(told in told(), order in Just((0..8).collect::<Vec<usize>>()).prop_shuffle(), flow_order in Just((0..8).collect::<Vec<usize>>()).prop_shuffle()) {
        let flows: Vec<usize> = (0..told.1.len()).collect();
        let shuffled: Vec<usize> = flow_order.into_iter().filter(|at| flows.contains(at)).collect();
        let straight: Vec<usize> = (0..8).collect();
        prop_assert_eq!(decided(&told, &straight, &flows), decided(&told, &order, &shuffled));
    }
}
