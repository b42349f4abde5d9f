//! Tests that chains that do not fit are rejected by name, and that the fewest cores are found.

use forebay_models::placement::{Chain, Domain, Function, Limits, Sensitivity, Shape, Way};

use super::*;

fn problem(cores: [usize; 2], chains: Vec<Chain>) -> Problem {
    let limits = Limits { cache: 4.0, memory: 8.0, link: 4.0 };
    let domain = |(class, cores)| Domain { cores, class, limits };
    Problem { domains: cores.into_iter().enumerate().map(domain).collect(), chains }
}

fn chain(rates: &[f64], rate: f64, copies: usize) -> Chain {
    let drop = Sensitivity { cache: 0.2, memory: 0.2, constant: 0.0 };
    let function = |rate: &f64| Function {
        rates: vec![*rate, 0.8 * rate],
        metric: 10.0,
        local: drop,
        remote: drop,
        shape: Shape::Linear,
    };
    Chain { functions: rates.iter().map(function).collect(), home: 0, rate, weight: 1.0, least: 0.0, copies }
}

fn effort(algorithm: Algorithm, objective: Objective) -> SearchEffort<'static> {
    SearchEffort { algorithm, objective, seed: 1, is_over: &|| false, from: None }
}

#[test]
fn a_chain_that_does_not_fit_is_rejected_and_the_others_are_placed() {
    let mut light = chain(&[5e6, 5e6], 1e6, 0);
    light.weight = 0.5;
    let chains = vec![chain(&[5e6; 7], 1e6, 0), chain(&[5e6, 5e6], 1e6, 0), light, chain(&[5e6], 1e6, 0)];
    for algorithm in [Algorithm::Exact, Algorithm::Octans, Algorithm::NodeFirst, Algorithm::Random] {
        let found = search(&problem([2, 2], chains.clone()), &effort(algorithm, Objective::Served)).expect("chains");
        assert_eq!(found.kept, [1, 3], "{algorithm:?}");
        let reasons: Vec<_> = found.rejected.iter().map(|it| (it.chain, it.reason.as_str())).collect();
        let expected = [
            (0, "it needs 7 cores: there are 4: `copies: 1` runs it on one core"),
            (2, "it needs 2 cores: the other chains leave 1"),
        ];
        assert_eq!(reasons, expected, "{algorithm:?}");
    }
}

#[test]
fn a_chain_whose_objective_cannot_be_kept_is_rejected() {
    let mut chains = vec![chain(&[5e6, 5e6], 1e6, 0), chain(&[5e6], 1e6, 0)];
    chains[0].least = 6e6;
    let found = search(&problem([2, 2], chains), &effort(Algorithm::Exact, Objective::Served)).expect("chains");
    assert_eq!(found.kept, [1]);
    assert!(found.rejected[0].reason.starts_with("its objectives need 6.00 Mpps: alone it would forward at most 4."));
}

#[test]
fn the_fewest_cores_are_found() {
    // On one core a chain forwards 2 Mpps less its drop. Two copies are enough for 3 Mpps; a core for each function
    // would take three cores.
    let mut chains = vec![chain(&[6e6, 6e6, 6e6], 3e6, 4), chain(&[6e6, 6e6], 1e6, 0)];
    for chain in &mut chains {
        chain.least = chain.rate;
    }
    let problem = problem([4, 4], chains);
    let found = search(&problem, &effort(Algorithm::Exact, Objective::Cores)).expect("chains");
    assert_eq!((found.value, found.bound), (4.0, Some(4.0)), "{found:?}");
    assert!(matches!(&found.placement[0], Way::Whole(domains) if domains.len() == 2), "{found:?}");
    let rates = problem.rates(&found.placement).expect("a placement");
    assert!(rates[0].0 >= 3e6 && rates[1].0 >= 1e6, "{rates:?}");
    let other = search(&problem, &effort(Algorithm::Octans, Objective::Cores)).expect_err("no such objective");
    assert_eq!(other.to_string(), "--search octans does not support --objective cores: use `--search exact`");
}

#[test]
fn lists_that_are_too_long_are_refused() {
    let chains = vec![chain(&[5e6; 5], 1e6, 0); 6];
    let found = search(&problem([20, 20], chains), &effort(Algorithm::BruteForce, Objective::Sum));
    let message = found.expect_err("2^30").to_string();
    assert!(
        message.starts_with("--search brute-force would examine 1073741824 placements: allowed are up to 10000000"),
        "{message}"
    );
}

#[test]
fn few_functions_move() {
    let chains = vec![chain(&[5e6, 5e6], 4e6, 0), chain(&[5e6], 4e6, 0)];
    let problem = problem([3, 3], chains);
    let best = search(&problem, &effort(Algorithm::Exact, Objective::Served)).expect("chains");
    let now = [Some(Way::Split(vec![1, 0])), None];
    let with = |most: usize| {
        let from = Some(From { ways: &now, most });
        search(&problem, &SearchEffort { from, ..effort(Algorithm::Exact, Objective::Served) }).expect("chains")
    };
    assert_eq!(with(0).placement[0], Way::Split(vec![1, 0]));
    assert!(with(0).value < best.value && with(1).value >= with(0).value && with(2).value == best.value);
    let from = Some(From { ways: &now, most: 1 });
    let other = search(&problem, &SearchEffort { from, ..effort(Algorithm::NodeFirst, Objective::Served) });
    assert_eq!(
        other.expect_err("no such bound").to_string(),
        "--search node-first does not support --moves: use `--search exact`"
    );
}

/// Regression test: two equivalent domains were exchanged, and all functions on them moved without a gain.
#[test]
fn no_function_moves_without_a_gain() {
    let chains = vec![chain(&[5e6, 5e6], 4e6, 0), chain(&[5e6], 4e6, 0)];
    let mut problem = problem([1, 2], chains);
    problem.domains.push(problem.domains[1].clone());
    problem.chains.iter_mut().flat_map(|chain| &mut chain.functions).for_each(|it| it.rates.push(it.rates[1]));
    let effort = effort(Algorithm::Exact, Objective::Served);
    let best = search(&problem, &effort).expect("chains");
    let swapped = |way: &Way| match way {
        Way::Split(domains) => Way::Split(domains.iter().map(|domain| [0, 2, 1][*domain]).collect()),
        Way::Whole(domains) => Way::Whole(domains.iter().map(|domain| [0, 2, 1][*domain]).collect()),
    };
    let now: Vec<_> = best.placement.iter().map(swapped).collect();
    assert_ne!(now, best.placement, "some are not at home");
    let ways: Vec<_> = now.iter().cloned().map(Some).collect();
    let found = search_nearby(&problem, &effort, &ways).expect("chains");
    assert_eq!((&found.placement, found.value, found.bound), (&now, best.value, best.bound));
    // Only moves with a gain are made.
    let ways = [ways[0].clone(), None];
    let other = search_nearby(&problem, &effort, &ways).expect("chains");
    assert_eq!(other.placement[0], now[0]);
}

#[test]
fn certificates_are_checked() {
    let chains = vec![chain(&[5e6, 5e6], f64::INFINITY, 0), chain(&[5e6, 4e6], f64::INFINITY, 0)];
    let found = search(&problem([3, 3], chains), &effort(Algorithm::Exact, Objective::Sum)).expect("chains");
    assert_eq!(found.checked, Some(Checked::Proved), "{found:?}");
    assert!((found.bound.expect("a bound") / found.value - 1.0).abs() < 1e-9);
}

#[test]
fn a_reason_states_only_known_facts() {
    // Three cores are available for four functions, and there is no time to find out which chain has the higher value.
    let chains = vec![chain(&[5e6, 5e6], 1e6, 0), chain(&[5e6, 5e6], 1e6, 0)];
    let over = SearchEffort { is_over: &|| true, ..effort(Algorithm::Exact, Objective::Served) };
    let found = search(&problem([2, 1], chains), &over).expect("chains");
    let reasons: Vec<_> = found.rejected.iter().map(|it| it.reason.as_str()).collect();
    assert_eq!(reasons, ["the best placement that was found in time (`--limit TIME`) leaves out this chain"]);
    // On the other domain the chain misses its objective, and it must not move.
    let mut chains = vec![chain(&[5e6], 1e6, 0)];
    chains[0].least = 4.5e6;
    let now = [Some(Way::Split(vec![1]))];
    let stay = |most| {
        let from = Some(From { ways: &now, most });
        search(&problem([2, 2], chains.clone()), &SearchEffort { from, ..effort(Algorithm::Exact, Objective::Served) })
    };
    let found = stay(0).expect("chains");
    assert_eq!(found.rejected[0].reason, "with `--moves 0`, no placement keeps all objectives");
    assert_eq!(stay(1).expect("chains").placement, [Way::Split(vec![0])]);
}
