//! Tests of the modules that move, and of the periods in which they move and move back.

use forebay_graph::controllers;
use forebay_protocol::{
    FlowLayout, ModuleLayout,
    report::MoveReason,
    snapshot::{FlowSnapshot, ModuleSnapshot, WorkerSnapshot},
};
use forebay_units::Nanos;
use serde_json::Value;

use super::*;
use crate::testing::{self, flow, module};

/// A splitter, a fast and a slow branch, and a module that both lead to. The slow branch has a second module.
fn layout() -> Layout {
    let module = |name: &str, leader: usize, before: &[usize]| ModuleLayout { leader, ..module(name, before) };
    testing::layout(
        vec![
            module("split", 0, &[]),
            module("quick", 1, &[0]),
            module("slow", 2, &[0]),
            module("slower", 3, &[2]),
            module("both", 4, &[1, 3]),
        ],
        vec![flow("tight", &[], Some(1e-3)), flow("bulk", &[], None)],
    )
}

fn ways() -> Vec<Vec<usize>> {
    vec![vec![0, 1, 4], vec![0, 2, 3, 4]]
}

/// Returns a period in which a call of a slow module takes `slow_s` seconds. `late` is the number of late packets of
/// the tight flow, `busy` the load of the workers.
fn period(slow_s: f64, late: u64, busy: f64) -> Snapshot {
    let module = |cost_s| ModuleSnapshot { packets: 1_000, cost_s, ..ModuleSnapshot::default() };
    let flow = |violations| FlowSnapshot { packets: 1_000, violations, ..FlowSnapshot::default() };
    let worker = WorkerSnapshot { busy_s: busy * 0.1, ..WorkerSnapshot::default() };
    Snapshot {
        at_s: 1.0,
        exact: false,
        period_s: 0.1,
        modules: [1e-6, 1e-6, slow_s, slow_s, 1e-6].map(|fixed| module((fixed, 0.0))).to_vec(),
        flows: vec![flow(late), flow(0)],
        workers: vec![worker; 2],
    }
}

fn settings(workers: usize) -> Settings {
    let controller = controllers().into_iter().find(|it| it.name == "optimal").expect("the controller is registered");
    Settings { controller, params: Value::Null, period: Nanos(100_000_000), guard: 0.05, workers }
}

/// Returns the periods, out of `periods`, in which a move was decided. The moves are made, and `layout` is updated.
fn decide(decomposer: &mut Decomposer, layout: &mut Layout, periods: u32, period: &Snapshot) -> Vec<(u32, MoveReason)> {
    let mut moves = Vec::new();
    for at in 1..=periods {
        if let Some(moved) = decomposer.decide(layout, period) {
            moves.push((at, moved.why));
            decomposer.moved(&moved);
            *layout = moved.layout;
        }
    }
    moves
}

#[test]
fn flows_are_split_after_three_periods_and_merged_later_each_time() {
    let mut layout = layout();
    let mut decomposer = Decomposer::new(&settings(2), &layout, ways()).expect("it may");
    let (slow, quick) = (period(1e-3, 500, 0.3), period(1e-6, 0, 0.3));
    for patience in [10, 20, 40] {
        assert_eq!(decide(&mut decomposer, &mut layout, 20, &slow)[..], [(3, MoveReason::Apart)]);
        let on: Vec<_> = layout.modules.iter().map(|module| module.workers.clone()).collect();
        assert_eq!((on, layout.workers), (vec![vec![0], vec![0], vec![1], vec![1], vec![0, 1]], 2));
        // One unfavourable period resets the count.
        assert_eq!(decide(&mut decomposer, &mut layout, patience - 1, &quick), []);
        assert_eq!(decide(&mut decomposer, &mut layout, 1, &slow), []);
        assert_eq!(decide(&mut decomposer, &mut layout, patience, &quick)[..], [(patience, MoveReason::Together)]);
        assert_eq!(layout, self::layout());
        assert_eq!(decide(&mut decomposer, &mut layout, PAUSE, &slow), [], "it pauses");
    }
}

#[test]
fn nothing_moves_without_need_or_where_it_cannot() {
    let decide = |settings: &Settings, mut layout: Layout, period: &Snapshot| {
        let mut decomposer = Decomposer::new(settings, &layout, ways()).expect("it may");
        let moves = decide(&mut decomposer, &mut layout, 50, period);
        (moves.len(), decomposer.unmoved())
    };
    assert!(Decomposer::new(&settings(1), &layout(), ways()).is_none());
    // Nothing moves if few packets are late, if they have another cause, or if periods are too short.
    assert_eq!(decide(&settings(2), layout(), &period(1e-3, 5, 0.3)), (0, None));
    assert_eq!(decide(&settings(2), layout(), &period(1e-6, 500, 0.3)), (0, None));
    assert_eq!(decide(&settings(2), layout(), &Snapshot { period_s: 0.05, ..period(1e-3, 500, 0.3) }), (0, None));
    // The slow modules get no packets.
    let mut silent = period(1e-3, 500, 0.3);
    silent.flows[1].packets = 0;
    silent.modules[2..4].iter_mut().for_each(|module| module.packets = 0);
    assert_eq!(decide(&settings(2), layout(), &silent), (0, None));
    // The module after both branches has state: packets would have to return to it.
    let mut state = layout();
    state.modules[4].single = true;
    let unmoved = Unmoved { worker: 0, flow: 0, workers: false };
    assert_eq!(decide(&settings(2), state, &period(1e-3, 500, 0.3)), (0, Some(unmoved)));
    // The flow itself is slow.
    let mut own = period(1e-6, 500, 0.3);
    own.modules[1].cost_s.0 = 1e-2;
    assert_eq!(decide(&settings(2), layout(), &own).0, 0);
}

#[test]
fn modules_that_do_not_fit_stay_split() {
    let mut layout = layout();
    let mut decomposer = Decomposer::new(&settings(2), &layout, ways()).expect("it may");
    assert_eq!(decide(&mut decomposer, &mut layout, 3, &period(1e-3, 500, 0.3)).len(), 1);
    // A turn may take four fifths of 0.475 ms: 0.38 ms.
    assert_eq!(decide(&mut decomposer, &mut layout, 100, &period(0.2e-3, 0, 0.3)), []);
    // The merged worker would be too busy.
    assert_eq!(decide(&mut decomposer, &mut layout, 100, &period(1e-6, 0, 0.5)), []);
    assert_eq!(decide(&mut decomposer, &mut layout, 100, &period(0.18e-3, 0, 0.3)).len(), 1);
}

#[test]
fn workers_are_merged_only_after_those_split_from_them() {
    let layout = layout();
    let chain = Assignment::new(&layout).split(0, vec![2, 3]).split(1, vec![3]);
    assert_eq!(chain.module_workers(&layout), [vec![0], vec![0], vec![1], vec![2], vec![0, 1, 2]]);
    assert_eq!((chain.merge(0), chain.merge(1), chain.merge(3)), (None, None, None));
    let back = chain.merge(2).expect("the last");
    assert_eq!(back, Assignment::new(&layout).split(0, vec![2, 3]));
    let beside = Assignment::new(&layout).split(0, vec![1]).split(0, vec![2, 3]);
    assert_eq!(beside.module_workers(&layout), [vec![0], vec![1], vec![2], vec![2], vec![0, 1, 2]]);
    assert_eq!(beside.merge(1).expect("no worker was split from it"), Assignment::new(&layout).split(0, vec![2, 3]));
}

/// Regression test: the reported flow depended on which of the late flows was declared first.
#[test]
fn the_reported_flow_has_the_shortest_objective() {
    for (slos, tightest) in [([9e-4, 5e-4, 7e-4], 1), ([5e-4, 7e-4, 9e-4], 0), ([9e-4, 7e-4, 5e-4], 2)] {
        let mut layout = layout();
        let flow = |slo_s: &f64| FlowLayout { slo_s: Some(*slo_s), ..layout.flows[0].clone() };
        layout.flows = slos.iter().map(flow).chain([layout.flows[1].clone()]).collect();
        let ways = [vec![ways()[0].clone(); 3], vec![ways()[1].clone()]].concat();
        let mut late = period(1e-3, 500, 0.3);
        late.flows = [vec![late.flows[0]; 3], vec![late.flows[1]]].concat();
        let mut decomposer = Decomposer::new(&settings(2), &layout, ways.clone()).expect("it may");
        let moved = (0..SEEN).find_map(|_| decomposer.decide(&layout, &late)).expect("they are split");
        assert_eq!((moved.why, moved.flow), (MoveReason::Apart, Some(tightest)), "{slos:?}");
        let mut nowhere = Decomposer { most: 1, ..Decomposer::new(&settings(2), &layout, ways).expect("it may") };
        (0..SEEN).for_each(|_| assert_eq!(nowhere.decide(&layout, &late), None));
        assert_eq!(nowhere.unmoved(), Some(Unmoved { worker: 0, flow: tightest, workers: true }));
    }
}

/// Regression test: after any merge, every later split counted as a repetition.
#[test]
fn only_repeated_moves_are_merged_later() {
    let layout = layout();
    let mut decomposer = Decomposer::new(&settings(3), &layout, ways()).expect("it may");
    let mut make = |why, modules: &[usize]| {
        let (modules, next) = (modules.to_vec(), decomposer.assignment.clone());
        let (from, to, flow, layout) = (0, 1, None, layout.clone());
        decomposer.moved(&Move { at_s: 1.0, modules, from, to, why, flow, turn_s: 1e-3, layout, next });
        decomposer.patience.clone()
    };
    let (first, twice, fourfold) = (FIRST, 2 * FIRST, 4 * FIRST);
    assert_eq!(make(MoveReason::Apart, &[2, 3])[..], [first; 5]);
    assert_eq!(make(MoveReason::Together, &[2, 3])[..], [first; 5]);
    assert_eq!(make(MoveReason::Apart, &[1])[..], [first; 5], "others");
    assert_eq!(make(MoveReason::Apart, &[2, 3])[..], [first, first, twice, twice, first]);
    // A module that has not moved back since its last move does not wait longer.
    assert_eq!(make(MoveReason::Apart, &[3])[..], [first, first, twice, twice, first]);
    assert_eq!(make(MoveReason::Together, &[2])[..], [first, first, twice, twice, first]);
    assert_eq!(make(MoveReason::Apart, &[2])[..], [first, first, fourfold, twice, first]);
}

/// Regression test: an attempt was made every eight periods, although each attempt prepares the whole configuration.
#[test]
fn failed_moves_are_tried_less_and_less_often() {
    let mut layout = layout();
    let mut decomposer = Decomposer::new(&settings(2), &layout, ways()).expect("it may");
    let (slow, quick) = (period(1e-3, 500, 0.3), period(1e-6, 0, 0.3));
    let next = |decomposer: &mut Decomposer| {
        let after = (1..10_000).find(|_| {
            let moved = decomposer.decide(&layout, &slow);
            assert!(moved.is_some() || decomposer.failures == 0 || decomposer.is_thwarted());
            moved.iter().for_each(|moved| decomposer.stayed(moved));
            moved.is_some()
        });
        after.expect("it is tried again")
    };
    let longest = (PAUSE << DOUBLINGS) + SEEN;
    for pause_periods in [0, 5, 10, 20, 40, 80, 160, 320, 640] {
        assert_eq!(next(&mut decomposer), pause_periods + SEEN);
    }
    assert_eq!([next(&mut decomposer), next(&mut decomposer)], [longest; 2]);
    // In the pause, it is not known whether the move is still wanted, so it counts as wanted.
    for _ in 0..PAUSE << DOUBLINGS {
        assert!(decomposer.decide(&layout, &quick).is_none() && decomposer.is_thwarted());
    }
    assert!(decomposer.decide(&layout, &quick).is_none() && !decomposer.is_thwarted());
    // A successful move is followed by the usual pause.
    assert_eq!(decide(&mut decomposer, &mut layout, SEEN, &slow)[..], [(SEEN, MoveReason::Apart)]);
    assert_eq!((decomposer.pause_periods, decomposer.failures), (PAUSE, 0));
}

/// Regression test: the count of periods with a wanted but impossible move overflowed.
#[test]
fn an_impossible_move_is_always_reported() {
    let mut layout = layout();
    layout.modules[4].single = true;
    let mut decomposer = Decomposer::new(&settings(2), &layout, ways()).expect("it may");
    decomposer.seen.fill(u32::MAX);
    assert_eq!(decide(&mut decomposer, &mut layout, 2, &period(1e-3, 500, 0.3)), []);
    assert!(decomposer.unmoved().is_some());
}

/// Regression test: a tenth of a thousand packets may be late, but a slightly smaller number was computed.
#[test]
fn a_flow_is_late_if_its_period_is_missed() {
    let mut layout = layout();
    layout.flows[0].percentile = forebay_units::Percentile::Of(90.0);
    let mut decomposer = Decomposer::new(&settings(2), &layout, ways()).expect("it may");
    let allowed = (0..=1_000).filter(|late| !period(1e-3, *late, 0.3).flows[0].missed(&layout.flows[0])).max();
    let allowed = allowed.expect("none is late");
    assert_eq!(decide(&mut decomposer, &mut layout, 2 * SEEN, &period(1e-3, allowed, 0.3)), []);
    assert_eq!(decide(&mut decomposer, &mut layout, SEEN, &period(1e-3, allowed + 1, 0.3)).len(), 1);
}
