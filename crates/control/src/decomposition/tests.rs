//! What goes, when, and what it takes to come back.

use forebay_graph::snapshot::{FlowSnapshot, ModuleSnapshot, WorkerSnapshot};
use forebay_graph::{FlowLayout, ModuleLayout, SchedulerKind, controllers};
use forebay_measure::Nanos;
use serde_json::Value;

use super::*;

/// A splitter, a quick and a slow branch, and what both lead to; a module more after the slow one.
fn layout() -> Layout {
    let module = |name: &str, leader: usize, before: &[usize]| ModuleLayout {
        name: name.to_owned(),
        function: "counter".to_owned(),
        leader,
        before: before.to_vec(),
        entry: before.is_empty(),
        fixed: false,
        workers: vec![0],
        single: before.is_empty(),
    };
    let flow = |name: &str, slo_s| FlowLayout {
        name: name.to_owned(),
        path: Vec::new(),
        slo_s,
        percentile: 99.0,
        min_rate: None,
    };
    Layout {
        pipeline: "branches".to_owned(),
        batch: 32,
        scheduler: SchedulerKind::RunToCompletion,
        workers: 1,
        modules: vec![
            module("split", 0, &[]),
            module("quick", 1, &[0]),
            module("slow", 2, &[0]),
            module("slower", 3, &[2]),
            module("both", 4, &[1, 3]),
        ],
        flows: vec![flow("tight", Some(1e-3)), flow("bulk", None)],
    }
}

fn ways() -> Vec<Vec<usize>> {
    vec![vec![0, 1, 4], vec![0, 2, 3, 4]]
}

/// A period in which a call of the slow modules takes so long; late packets of the tight flow, and how busy workers are.
fn period(slow_s: f64, late: u64, busy: f64) -> Snapshot {
    let module = |cost_s| ModuleSnapshot { packets: 1_000, cost_s, ..ModuleSnapshot::default() };
    let flow = |violations| FlowSnapshot { packets: 1_000, violations, ..FlowSnapshot::default() };
    let worker = WorkerSnapshot { busy_s: busy * 0.1, ..WorkerSnapshot::default() };
    Snapshot {
        at_s: 1.0,
        period_s: 0.1,
        modules: [1e-6, 1e-6, slow_s, slow_s, 1e-6].map(|fixed| module((fixed, 0.0))).to_vec(),
        flows: vec![flow(late), flow(0)],
        workers: vec![worker; 2],
    }
}

fn settings(workers: usize) -> Settings {
    let controller = controllers().into_iter().find(|it| it.name == "optimal").expect("it is there");
    Settings { controller, params: Value::Null, period: Nanos(100_000_000), guard: 0.05, workers }
}

/// In which of so many periods something is decided on; it is done, and the layout is what it is then.
fn decide(decomposer: &mut Decomposer, layout: &mut Layout, periods: u32, period: &Snapshot) -> Vec<(u32, WhyMoved)> {
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
fn flows_part_in_three_periods_and_come_together_later_each_time() {
    let mut layout = layout();
    let mut decomposer = Decomposer::new(&settings(2), &layout, ways()).expect("it may");
    let (slow, quick) = (period(1e-3, 500, 0.3), period(1e-6, 0, 0.3));
    for patience in [10, 20, 40] {
        assert_eq!(decide(&mut decomposer, &mut layout, 20, &slow)[..], [(3, WhyMoved::Apart)]);
        let on: Vec<_> = layout.modules.iter().map(|module| module.workers.clone()).collect();
        assert_eq!((on, layout.workers), (vec![vec![0], vec![0], vec![1], vec![1], vec![0, 1]], 2));
        // What is in favour is forgotten with the first period that is not.
        assert_eq!(decide(&mut decomposer, &mut layout, patience - 1, &quick), []);
        assert_eq!(decide(&mut decomposer, &mut layout, 1, &slow), []);
        assert_eq!(decide(&mut decomposer, &mut layout, patience, &quick)[..], [(patience, WhyMoved::Together)]);
        assert_eq!(layout, self::layout());
        assert_eq!(decide(&mut decomposer, &mut layout, REST, &slow), [], "it rests");
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
    // In time all the same; late on another account; periods that are none.
    assert_eq!(decide(&settings(2), layout(), &period(1e-3, 5, 0.3)), (0, None));
    assert_eq!(decide(&settings(2), layout(), &period(1e-6, 500, 0.3)), (0, None));
    assert_eq!(decide(&settings(2), layout(), &Snapshot { period_s: 0.05, ..period(1e-3, 500, 0.3) }), (0, None));
    // Nobody sends what is slow.
    let mut silent = period(1e-3, 500, 0.3);
    silent.flows[1].packets = 0;
    silent.modules[2..4].iter_mut().for_each(|module| module.packets = 0);
    assert_eq!(decide(&settings(2), layout(), &silent), (0, None));
    // What both pass has state: packets would have to come back to it.
    let mut state = layout();
    state.modules[4].single = true;
    let unmoved = Unmoved { worker: 0, flow: 0, workers: false };
    assert_eq!(decide(&settings(2), state, &period(1e-3, 500, 0.3)), (0, Some(unmoved)));
    // It is the flow itself that is slow.
    let mut own = period(1e-6, 500, 0.3);
    own.modules[1].cost_s.0 = 1e-2;
    assert_eq!(decide(&settings(2), layout(), &own).0, 0);
}

#[test]
fn what_would_not_fit_stays_apart() {
    let mut layout = layout();
    let mut decomposer = Decomposer::new(&settings(2), &layout, ways()).expect("it may");
    assert_eq!(decide(&mut decomposer, &mut layout, 3, &period(1e-3, 500, 0.3)).len(), 1);
    // 0.475 ms are left for a turn: four fifths of it are 0.38 ms.
    assert_eq!(decide(&mut decomposer, &mut layout, 100, &period(0.2e-3, 0, 0.3)), []);
    // Together they would be too busy.
    assert_eq!(decide(&mut decomposer, &mut layout, 100, &period(1e-6, 0, 0.5)), []);
    assert_eq!(decide(&mut decomposer, &mut layout, 100, &period(0.18e-3, 0, 0.3)).len(), 1);
}

#[test]
fn workers_come_back_in_any_order_but_not_before_those_that_came_from_them() {
    let layout = layout();
    let chain = Parted::new(&layout).apart(0, vec![2, 3]).apart(1, vec![3]);
    assert_eq!(chain.placed(&layout), [vec![0], vec![0], vec![1], vec![2], vec![0, 1, 2]]);
    assert_eq!((chain.together(0), chain.together(1), chain.together(3)), (None, None, None));
    let back = chain.together(2).expect("the last");
    assert_eq!(back, Parted::new(&layout).apart(0, vec![2, 3]));
    let beside = Parted::new(&layout).apart(0, vec![1]).apart(0, vec![2, 3]);
    assert_eq!(beside.placed(&layout), [vec![0], vec![1], vec![2], vec![2], vec![0, 1, 2]]);
    assert_eq!(beside.together(1).expect("nobody came from it"), Parted::new(&layout).apart(0, vec![2, 3]));
}
