use std::collections::BTreeMap;

use forebay_protocol::graph::{GraphEdge, GraphModule, GraphPort};
use proptest::prelude::*;

use super::*;

/// Makes a graph. The gates of a module lead to a module index, to `OUT`, or to a drop.
fn graph(entries: &[usize], gates: &[Vec<Option<usize>>]) -> GraphReport {
    let name = |to: usize| if to < gates.len() { format!("m{to}") } else { "out".to_owned() };
    let modules = gates.iter().enumerate().map(|(at, gates)| GraphModule {
        name: name(at),
        function: format!("f{}", gates.len()),
        workers: vec![0],
        folded: None,
        gates: (0..gates.len()).map(|gate| gate.to_string()).collect(),
    });
    let port = |name: String| GraphPort { name, kind: "p".to_owned(), workers: vec![0] };
    let sources = (0..entries.len()).map(|at| port(format!("in{at}")));
    let mut edges = Vec::new();
    for (at, to) in entries.iter().enumerate() {
        edges.push(GraphEdge { from: format!("in{at}"), gate: None, to: Some(name(*to)) });
    }
    for (at, gates) in gates.iter().enumerate() {
        for (gate, to) in gates.iter().enumerate() {
            edges.push(GraphEdge { from: name(at), gate: Some(gate.to_string()), to: to.map(name) });
        }
    }
    GraphReport {
        modules: modules.collect(),
        ports: sources.chain([port("out".to_owned())]).collect(),
        edges,
        ..GraphReport::default()
    }
}

/// Returns the modules of each bundle.
fn bundles(graph: &GraphReport) -> Vec<Vec<usize>> {
    let mut all: Vec<_> = Drawing::of(graph).bundles.into_iter().map(|bundle| bundle.modules).collect();
    all.sort();
    all
}

const OUT: Option<usize> = Some(100);

#[test]
fn equal_branches_are_one_and_others_are_not() {
    let to = |modules: &[usize]| modules.iter().map(|module| Some(*module)).collect::<Vec<_>>();
    // A split to two branches of two modules and a branch of one.
    let parted = graph(&[0], &[to(&[1, 2, 3]), to(&[4]), to(&[5]), vec![OUT], vec![OUT], vec![OUT]]);
    assert_eq!(bundles(&parted), [vec![0], vec![1, 2], vec![3], vec![4, 5]]);
    // Branches that meet again, and a branch with another input.
    let meet = graph(&[0], &[to(&[1, 2, 3]), to(&[4]), to(&[4]), to(&[4]), vec![OUT]]);
    assert_eq!(bundles(&meet), [vec![0], vec![1, 2, 3], vec![4]]);
    let fed = graph(&[0, 2], &[to(&[1, 2]), vec![OUT], vec![OUT]]);
    assert_eq!(bundles(&fed), [vec![0], vec![1], vec![2]]);
    // Each branch splits and joins within itself.
    let diamonds =
        [to(&[1, 2]), to(&[3, 4]), to(&[5, 6]), to(&[7]), to(&[7]), to(&[8]), to(&[8]), vec![OUT], vec![OUT]];
    assert_eq!(bundles(&graph(&[0], &diamonds)), [vec![0], vec![1, 2], vec![3, 4, 5, 6], vec![7, 8]]);
    // Two ports with one chain each.
    assert_eq!(bundles(&graph(&[0, 1], &[vec![OUT], vec![OUT]])), [vec![0, 1]]);
    assert_eq!(bundles(&graph(&[0, 1], &[vec![OUT], vec![None]])), [vec![0], vec![1]]);
}

/// A report of another program: with cycles, and with edges from and to unknown names.
#[test]
fn a_graph_that_is_none_is_drawn_without_harm() {
    let mut circle = graph(&[0], &[vec![Some(1)], vec![Some(0), Some(1)], vec![Some(2)]]);
    circle.edges.push(GraphEdge { from: "x".to_owned(), gate: None, to: Some("y".to_owned()) });
    circle.edges.push(GraphEdge { from: "m0".to_owned(), gate: None, to: Some("y".to_owned()) });
    for drawing in [Drawing::of(&circle), Drawing::full(&circle)] {
        let mut text = Vec::new();
        crate::graph::tree::print(&drawing, &mut text).expect("memory");
        crate::graph::dot::print(&drawing, &mut text).expect("memory");
        assert_eq!(drawing.bundles.len(), 3);
    }
}

fn graphs() -> impl Strategy<Value = GraphReport> {
    (1_usize..14).prop_flat_map(|modules| {
        let gates = prop::collection::vec((1_usize..20, any::<bool>()), 1..4);
        (prop::collection::vec(0..modules, 1..4), prop::collection::vec(gates, modules)).prop_map(
            move |(entries, all)| {
                // Gates lead to later modules, to the port, or to a drop.
                let later = |(at, gates): (usize, Vec<(usize, bool)>)| {
                    let to = |(step, drop): (usize, bool)| match at + step {
                        module if module < modules => Some(module),
                        _ if drop => None,
                        _ => OUT,
                    };
                    gates.into_iter().map(to).collect::<Vec<_>>()
                };
                graph(&entries, &all.into_iter().enumerate().map(later).collect::<Vec<_>>())
            },
        )
    })
}

proptest! {
    /// Each module is drawn once, and each edge leads from its bundle to the bundle of its end.
    #[test]
    fn drawings_have_all_of_the_graph_and_nothing_else(graph in graphs(), full in any::<bool>()) {
        let drawing = if full { Drawing::full(&graph) } else { Drawing::of(&graph) };
        let mut of = BTreeMap::new();
        for (at, bundle) in drawing.bundles.iter().enumerate() {
            for module in &bundle.modules {
                prop_assert!(of.insert(graph.modules[*module].name.clone(), at).is_none(), "{module} twice");
            }
        }
        prop_assert_eq!(of.len(), graph.modules.len());
        let end = |to: &Option<String>| match to {
            None => End::Drop,
            Some(to) => of.get(to).map_or(End::Port(graph.ports.len() - 1), |bundle| End::Bundle(*bundle)),
        };
        let mut edges = 0;
        for edge in &graph.edges {
            match (&edge.gate, of.get(&edge.from)) {
                (Some(gate), Some(bundle)) => {
                    let ways = &drawing.bundles[*bundle].ways;
                    let way = ways.iter().find(|way| way.gates.contains(gate));
                    prop_assert_eq!(way.map(|way| way.to), Some(end(&edge.to)));
                    edges += 1;
                }
                _ => {
                    let port = graph.ports.iter().position(|port| port.name == edge.from);
                    let root = drawing.roots.iter().find(|root| root.ports.iter().any(|at| Some(*at) == port));
                    prop_assert_eq!(root.map(|root| root.to), Some(end(&edge.to)));
                }
            }
        }
        let drawn: usize = drawing
            .bundles
            .iter()
            .map(|bundle| bundle.modules.len() * bundle.ways.iter().map(|way| way.gates.len()).sum::<usize>())
            .sum();
        prop_assert_eq!(drawn, edges);
        let mut text = Vec::new();
        crate::graph::tree::print(&drawing, &mut text).expect("memory");
        let text = String::from_utf8(text).expect("UTF-8");
        prop_assert!(text.lines().all(|line| line.chars().count() <= 80), "{}", text);
    }
}
