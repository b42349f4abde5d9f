//! The formulas (2), (7)–(11), compared with values calculated by hand.

use forebay_models::placement::{Chain, Domain, Function, Limits, Problem, Sensitivity, Shape, Way};

const LOCAL: Sensitivity = Sensitivity { cache: 0.3, memory: 0.2, constant: 0.05 };
const REMOTE: Sensitivity = Sensitivity { cache: 0.4, memory: 0.25, constant: 0.1 };

fn chain(home: usize, demands: &[f64], shape: Shape) -> Chain {
    let function =
        |demand: &f64| Function { rates: vec![1e6; 2], metric: 1.0 / demand, local: LOCAL, remote: REMOTE, shape };
    let functions = demands.iter().map(function).collect();
    Chain { functions, home, rate: f64::INFINITY, weight: 1.0, least: 0.0, copies: 2 }
}

/// Three chains: one that leaves its home domain and returns, one on a remote domain, and one with another home.
fn problem(shape: Shape) -> (Problem, Vec<Way>) {
    let domain = |class, cache, memory, link| Domain { cores: 4, class, limits: Limits { cache, memory, link } };
    let domains = vec![domain(0, 4.0, 8.0, 2.0), domain(1, 5.0, 10.0, 4.0)];
    let chains = vec![chain(0, &[1.0, 0.5, 0.25, 0.2], shape), chain(0, &[0.1], shape), chain(1, &[0.4], shape)];
    (Problem { domains, chains }, vec![Way::Split(vec![0, 1, 1, 0]), Way::Split(vec![1]), Way::Split(vec![1])])
}

/// The levels of all functions, first of the cache, then of memory or link. 1 stands for the 1 in (9) and (10).
const LEVELS: [(Sensitivity, f64, f64); 6] = [
    // (9) local and first: the last function competes in the cache, all others of home domain 0 in the memory.
    (LOCAL, 0.2 / 4.0, (0.5 + 0.25 + 0.2 + 0.1) / 8.0),
    // (9) remote, with the function before it elsewhere.
    (REMOTE, 1.0, (0.25 + 0.1) / 4.0),
    // (11) remote, with the function before it on the same domain: its own segment competes at the link but not in the
    // cache.
    (REMOTE, (0.1 + 0.4) / 5.0, (0.5 + 0.1) / 4.0),
    // (10) local, with a remote function before it.
    (LOCAL, 1.0, (1.0 + 0.5 + 0.25 + 0.1) / 8.0),
    // (9) remote and first.
    (REMOTE, 1.0, (0.5 + 0.25) / 4.0),
    // (9) on the other home domain: the remote segment counts once, by its first function.
    (LOCAL, (0.5 + 0.1) / 5.0, 0.0),
];

fn rates_are(shape: Shape, of: impl Fn(f64) -> f64) {
    let (problem, ways) = problem(shape);
    let rates = problem.function_rates(&ways).expect("a placement");
    let expected = LEVELS
        .map(|(drop, cache, second)| 1e6 * (1.0 - drop.cache * of(cache) - drop.memory * of(second) - drop.constant));
    assert_eq!(rates.iter().flatten().count(), expected.len());
    for (rate, expected) in rates.iter().flatten().zip(expected) {
        assert!((rate - expected).abs() < 1e-3, "{rates:?} {expected}");
    }
    for (at, rates) in rates.iter().enumerate() {
        assert_eq!(problem.rates_of(at, &ways).as_ref(), Ok(rates));
    }
    let slowest = rates.iter().map(|rates| rates.iter().copied().fold(f64::INFINITY, f64::min));
    let of_chains: Vec<_> = problem.rates(&ways).expect("a placement").into_iter().map(|(rate, _)| rate).collect();
    assert_eq!(of_chains, slowest.collect::<Vec<_>>());
}

#[test]
fn drops_are_those_of_the_equations() {
    rates_are(Shape::Linear, |level| level);
    rates_are(Shape::Saturating(0.5), |level| level * 1.5 / (level + 0.5));
}

#[test]
fn a_level_is_1_at_most() {
    let (mut problem, ways) = problem(Shape::Linear);
    let low = Limits { cache: 1e-3, memory: 1e-3, link: 1e-3 };
    problem.domains.iter_mut().for_each(|domain| domain.limits = low);
    let rates = problem.function_rates(&ways).expect("a placement");
    let [local, remote] = [LOCAL, REMOTE].map(|drop| 1e6 * (1.0 - drop.cache - drop.memory - drop.constant));
    let alone = 1e6 * (1.0 - LOCAL.cache - LOCAL.constant);
    for (rate, expected) in rates.iter().flatten().zip([local, remote, remote, local, remote, alone]) {
        assert!((rate - expected).abs() < 1e-3, "{rates:?} {expected}");
    }
}

/// On one core: `P = 1/Σ(1/P)`, and demands add up. Two copies forward twice as much and compete with each other.
#[test]
fn copies_of_a_whole_chain_are_functions() {
    let (problem, mut ways) = problem(Shape::Linear);
    ways[0] = Way::Whole(vec![0, 0]);
    let rates = problem.rates_of(0, &ways).expect("a placement");
    let demand = 1.0 + 0.5 + 0.25 + 0.2;
    let drop = LOCAL.cache * demand / 4.0 + LOCAL.memory * (demand + 0.1) / 8.0 + LOCAL.constant;
    let expected = 2.0 * 1e6 / 4.0 * (1.0 - drop);
    assert!(rates.len() == 2 && rates.iter().all(|rate| (rate - expected).abs() < 1e-3), "{rates:?} {expected}");
}
