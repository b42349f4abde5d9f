//! Tests the flows of small graphs by walking packets through the tables.

use proptest::prelude::*;

use super::*;
use crate::plan::Target::{Drop, Module, Port};

/// Walks a packet through gates until it leaves. Returns its flow.
fn walk(shape: &Shape<'_>, table: &FlowTable, port: usize, gates: &[usize]) -> Option<u32> {
    let mut word = table.entry[port];
    let mut target = shape.ports[port].1?;
    let mut gates = gates.iter();
    loop {
        match target {
            Drop => return None,
            Port(_) => return Some(table.flow[word as usize]),
            Module(module) => {
                let all = &shape.modules[module].1;
                let gate = if all.len() > 1 { *gates.next()? } else { 0 };
                if all.len() > 1 {
                    word = table.next[word as usize] + gate as u32;
                }
                target = all[gate].1;
            }
        }
    }
}

fn flow(name: &str, path: &[(usize, Option<usize>)]) -> FlowPlan {
    let path = path.iter().map(|&(module, gate)| Step { module, gate }).collect();
    FlowPlan { name: name.into(), path, slo: None, percentile: forebay_units::Percentile::Of(99.0), min_rate: None }
}

/// Two splits with a merge between them: in -> a -> (b, c) -> d -> (out, out, drop).
fn diamond() -> Shape<'static> {
    Shape {
        modules: vec![
            ("a", vec![("x", Module(1)), ("y", Module(2))]),
            ("b", vec![("0", Module(3))]),
            ("c", vec![("0", Module(3))]),
            ("d", vec![("0", Port(1)), ("1", Port(1)), ("2", Drop)]),
        ],
        ports: vec![("in", Some(Module(0))), ("out", None)],
        folds: vec![None; 4],
    }
}

#[test]
fn without_declarations_every_path_is_a_flow() {
    let shape = diamond();
    let (table, flows) = build(&shape, &[]).expect("a small graph");
    let mut names: Vec<_> = flows.iter().map(|flow| flow.name.as_str()).collect();
    names.sort_unstable();
    let expected = ["x", "y"].map(|a| ["0", "1"].map(|d| format!("in > a[{a}] > d[{d}] > out"))).concat();
    assert_eq!(names, expected);
    for (a, x) in ["x", "y"].iter().enumerate() {
        for d in 0..2 {
            let flow = walk(&shape, &table, 0, &[a, d]).expect("it leaves") as usize;
            assert_eq!(flows[flow].name, format!("in > a[{x}] > d[{d}] > out"));
        }
    }
}

#[test]
fn declared_flows_are_found_and_the_rest_is_other() {
    let shape = diamond();
    let declared = [flow("first", &[(0, Some(0)), (3, Some(1))]), flow("second", &[(2, None)])];
    let (table, flows) = build(&shape, &declared).expect("a small graph");
    assert_eq!(flows.iter().map(|flow| flow.name.as_str()).collect::<Vec<_>>(), ["first", "second", "other"]);
    let found: Vec<_> = [[0, 0], [0, 1], [1, 0], [1, 1]].iter().map(|gates| walk(&shape, &table, 0, gates)).collect();
    assert_eq!(found, [Some(2), Some(0), Some(1), Some(1)]);
    assert_eq!(Passages::new(&shape).of(&declared[0]), [0, 1, 3]);
    assert_eq!(Passages::new(&shape).of(&declared[1]), [0, 2, 3]);
}

#[test]
fn equal_paths_share_words_so_chains_of_diamonds_stay_small() {
    let mut modules = Vec::new();
    for at in 0..40 {
        let next = if at == 39 { Port(1) } else { Module(3 * (at + 1)) };
        modules.push(("split", vec![("0", Module(3 * at + 1)), ("1", Module(3 * at + 2))]));
        modules.push(("left", vec![("0", next)]));
        modules.push(("right", vec![("0", next)]));
    }
    let folds = vec![None; modules.len()];
    let shape = Shape { modules, ports: vec![("in", Some(Module(0))), ("out", None)], folds };
    let declared = [flow("all left", &[(1, None), (118, None)])];
    let (table, _) = build(&shape, &declared).expect("few words although 2^40 paths");
    assert!(table.next.len() < 1_000, "{} words", table.next.len());
    assert_eq!(walk(&shape, &table, 0, &[0; 40]), Some(0));
    assert_eq!(walk(&shape, &table, 0, &[1; 40]), Some(1));
    assert_eq!(build(&shape, &[]).err(), Some(FlowError::TooManyPaths), "too many paths for a flow each");
}

#[test]
fn a_flow_without_a_matching_path_is_refused() {
    let declared = [flow("fine", &[(0, None)]), flow("backwards", &[(3, None), (0, None)])];
    assert_eq!(build(&diamond(), &declared).err(), Some(FlowError::NoPath { flow: 1 }));
    let dropped = [flow("dropped", &[(3, Some(2))])];
    assert_eq!(build(&diamond(), &dropped).err(), Some(FlowError::NoPath { flow: 0 }), "a flow leaves by a port");
}

#[test]
fn each_port_has_its_own_words() {
    let mut shape = diamond();
    shape.ports.push(("in2", Some(Module(1))));
    let (table, flows) = build(&shape, &[]).expect("a small graph");
    let flow = walk(&shape, &table, 2, &[1]).expect("it leaves") as usize;
    assert_eq!(flows[flow].name, "in2 > d[1] > out");
}

/// Returns the passed modules by searching all positions of packets: a module, and the steps completed before it.
fn passed_by_positions(shape: &Shape<'_>, flow: &FlowPlan) -> Vec<usize> {
    let positions = flow.path.len() + 1;
    let after = |done: usize, module: usize, gate: usize| {
        done + usize::from(flow.path.get(done).is_some_and(|step| step.takes(module, gate)))
    };
    // By module and steps completed before it: whether a path from there matches. Gates lead only to later modules.
    let mut fits = vec![false; shape.modules.len() * positions];
    let leads = |fits: &[bool], target: Target, done: usize| match target {
        Target::Drop => false,
        Target::Port(_) => done == flow.path.len(),
        Target::Module(module) => fits[module * positions + done],
    };
    for (module, (_, gates)) in shape.modules.iter().enumerate().rev() {
        for done in 0..positions {
            let mut gates = gates.iter().enumerate();
            fits[module * positions + done] =
                gates.any(|(gate, (_, target))| leads(&fits, *target, after(done, module, gate)));
        }
    }
    // The positions that packets reach from a port.
    let mut reached = vec![false; fits.len()];
    for (_, entry) in &shape.ports {
        if let Some(Target::Module(module)) = entry {
            reached[module * positions] = true;
        }
    }
    for (module, (_, gates)) in shape.modules.iter().enumerate() {
        for done in (0..positions).filter(|done| reached[module * positions + done]).collect::<Vec<_>>() {
            for (gate, (_, target)) in gates.iter().enumerate() {
                if let Target::Module(next) = target {
                    reached[next * positions + after(done, module, gate)] = true;
                }
            }
        }
    }
    let passed = |module: &usize| {
        (0..positions).any(|done| fits[module * positions + done] && reached[module * positions + done])
    };
    (0..shape.modules.len()).filter(passed).collect()
}

/// By module, the target of each gate: a later module, a port or the bin.
fn gates() -> impl Strategy<Value = Vec<Vec<usize>>> {
    prop::collection::vec(prop::collection::vec(0..12usize, 1..4), 1..9)
}

fn steps() -> impl Strategy<Value = Vec<(usize, Option<usize>)>> {
    prop::collection::vec((0..8usize, prop::option::of(0..3usize)), 0..4)
}

proptest! {
    #[test]
    fn passages_are_those_of_all_positions(
        gates in gates(),
        entries in prop::collection::vec(0..4usize, 1..3),
        steps in steps(),
    ) {
        let many = gates.len();
        let target = |from: usize, to: usize| match from + to {
            0..3 if from > 0 => Drop,
            to if to < many => Module(to),
            to => if to % 3 == 0 { Drop } else { Port(0) },
        };
        let modules = gates.iter().enumerate().map(|(at, gates)| {
            ("module", gates.iter().map(|to| ("gate", target(at + 1, *to))).collect())
        });
        let shape = Shape {
            modules: modules.collect(),
            ports: entries.iter().map(|to| ("port", Some(target(0, *to % many)))).collect(),
            folds: vec![None; many],
        };
        let steps: Vec<_> = steps.into_iter().map(|(module, gate)| (module % many, gate)).collect();
        let flow = flow("flow", &steps);
        prop_assert_eq!(Passages::new(&shape).of(&flow), passed_by_positions(&shape, &flow));
    }
}
