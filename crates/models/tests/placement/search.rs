//! The exact search: the optimum of enumeration, a valid bound, and few nodes.

use forebay_models::placement::baselines::{node_balancing, node_first, random};
use forebay_models::placement::{Effort, Problem, exact};

use crate::instances::{Mix, Random, any, enumerate, long, of_bars, value};

fn solve(problem: &Problem, nodes: u64) -> (f64, f64, u64) {
    let effort = Effort { nodes, is_over: &|| false };
    let found = exact(problem, &effort).expect("a valid problem").expect("it fits");
    let by_formulas = value(problem, &found.placement).expect("its own placement fits");
    let same = (by_formulas - found.value).abs() <= 1e-9 * by_formulas;
    assert!(same, "the search says {}, the formulas {by_formulas}: {problem:?}", found.value);
    (found.value, found.bound, found.nodes)
}

fn is_same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-8 * a.abs().max(b.abs())
}

/// Several homes, demands, copies of whole chains and both shapes.
#[test]
fn the_optimum_of_small_problems_is_that_of_enumeration() {
    let mut checked = 0;
    for seed in 0..1_500 {
        let problem = any(seed);
        if problem.check().is_err() {
            continue;
        }
        let (best, (found, bound, _)) = (enumerate(&problem), solve(&problem, u64::MAX));
        assert!(is_same(best, found) && is_same(bound, found), "seed {seed}: {best} {found} {bound}");
        checked += 1;
    }
    assert!(checked > 1_000, "{checked}");
}

#[test]
fn the_optimum_of_all_types_of_instances_is_that_of_enumeration() {
    for kind in Mix::ALL {
        for (seed, size) in
            (0..8).flat_map(|seed| [[2, 4, 3, 2], [2, 5, 3, 3], [3, 3, 3, 2], [2, 6, 4, 2]].map(|size| (seed, size)))
        {
            let problem = of_bars(seed, size, kind);
            let (best, (found, bound, _)) = (enumerate(&problem), solve(&problem, u64::MAX));
            assert!(
                is_same(best, found) && is_same(bound, found),
                "{kind:?}, seed {seed}, {size:?}: {best} {found} {bound}"
            );
        }
    }
}

/// Wherever the search is stopped, the value is that of a placement, and the bound is not below the optimum.
#[test]
fn a_search_that_is_stopped_has_a_bound_that_holds() {
    for (seed, kind) in (0..6).flat_map(|seed| Mix::ALL.map(|kind| (seed, kind))) {
        let problem = of_bars(seed, [4, 10, 6, 3], kind);
        let (best, bound, _) = solve(&problem, 2_000_000);
        for nodes in [1, 30, 200, 1_000, 5_000] {
            let (value, stopped, used) = solve(&problem, nodes);
            assert!(
                value <= bound * (1.0 + 1e-9) && stopped >= best * (1.0 - 1e-9),
                "{kind:?} {seed}: {value} {stopped} {best} {bound}"
            );
            assert!(used <= nodes + 100, "{used} nodes of {nodes}");
        }
    }
}

/// No placement of the baselines, and no random one, is above the bound.
fn is_above_others(problem: &Problem, bound: f64, seed: u64) {
    let mut draw = Random::new(seed);
    let mut others = vec![node_first(problem), node_balancing(problem)];
    others.extend((0..200).map(|_| random(problem, &mut |end| draw.below(end))));
    for other in others {
        let other = other.expect("a valid problem").expect("it fits").value;
        assert!(other <= bound * (1.0 + 1e-9), "seed {seed}: {other} {bound}: {problem:?}");
    }
}

/// For a long chain, or for many copies, not all ways are listed. The bound is valid for the others too.
#[test]
fn ways_that_are_not_listed_are_below_the_bound() {
    for (seed, [domains, cores, length, copies]) in
        (0..3).flat_map(|seed| [[2, 12, 16, 0], [8, 4, 9, 0], [9, 1, 9, 0], [8, 8, 2, 30]].map(|size| (seed, size)))
    {
        let problem = long(seed, domains, cores, length, copies);
        let (_, bound, _) = solve(&problem, 200);
        is_above_others(&problem, bound, seed);
    }
}

/// The number of nodes does not depend on the machine's speed. Times are in the lab's report.
#[test]
fn few_nodes_are_needed() {
    for (size, most) in [([2, 10, 6, 3], 5_000), ([2, 24, 12, 3], 2_000_000)] {
        for (seed, kind) in (100..104).flat_map(|seed| Mix::ALL.map(|kind| (seed, kind))) {
            let (value, bound, nodes) = solve(&of_bars(seed, size, kind), most);
            assert!(is_same(value, bound), "{size:?} {kind:?} {seed}: {value} {bound} after {nodes} nodes");
        }
    }
    // Two difficult problems: many placements of functions that do not bind have the same value.
    for (seed, most) in [(1001, 400_000), (1011, 600_000)] {
        let (value, bound, nodes) = solve(&of_bars(seed, [4, 10, 6, 3], Mix::IdenticalChains), most);
        assert!(is_same(value, bound), "{seed}: {value} {bound} after {nodes} nodes");
    }
}

/// Equal chains whose ways are not all listed: each has its own list, and unlisted ways count in all slices.
#[test]
fn like_chains_with_ways_that_are_not_listed_are_bounded() {
    for (seed, [domains, cores, length]) in
        (0..4).flat_map(|seed| [[3, 8, 10], [2, 20, 16], [4, 6, 8]].map(|it| (seed, it)))
    {
        let mut problem = long(seed, domains, cores, length, 0);
        problem.chains.push(problem.chains[0].clone());
        let (_, bound, _) = solve(&problem, 20_000);
        is_above_others(&problem, bound, seed);
    }
}
