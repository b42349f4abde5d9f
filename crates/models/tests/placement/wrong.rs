//! Invalid problems are refused, with the chain and the allowed values.

use forebay_models::placement::{Effort, Objective, Problem, ProblemError, Wanted, Way, check, exact, exact_for};

use crate::instances::{Mix, Random, any, long, of_bars};

fn refused(change: impl Fn(&mut Problem)) -> String {
    let mut problem = of_bars(1, [2, 10, 3, 2], Mix::Any);
    change(&mut problem);
    let effort = Effort { nodes: 1_000, is_over: &|| false };
    exact(&problem, &effort).expect_err("the problem is invalid").to_string()
}

#[test]
fn invalid_numbers_are_named() {
    let wrong = |change: fn(&mut Problem), expected: &str| {
        let error = refused(change);
        assert_eq!(error, expected);
    };
    wrong(|it| it.domains.clear(), "the server has no core that functions may use");
    wrong(
        |it| it.domains.iter_mut().for_each(|domain| domain.cores = 0),
        "the server has no core that functions may use",
    );
    wrong(
        |it| it.domains.iter_mut().for_each(|domain| domain.cores = 2),
        "the chains need at least 6 cores: there are 4",
    );
    wrong(|it| it.chains[1].functions.clear(), "chain 1: functions is 0: allowed is 1 or more");
    wrong(|it| it.chains[2].home = 2, "chain 2: home is 2: allowed is a domain of the server");
    wrong(|it| it.chains[0].rate = f64::NAN, "chain 0: rate is NaN: allowed is a number above 0");
    wrong(|it| it.chains[0].weight = 0.0, "chain 0: weight is 0: allowed is 1e-6 to 1e6");
    wrong(|it| it.chains[0].least = -1.0, "chain 0: least is -1: allowed is 0 or more");
    wrong(|it| it.chains[0].functions[1].metric = f64::INFINITY, "chain 0: metric is inf: allowed is 1e-6 to 1e6");
    wrong(|it| it.chains[0].functions[1].rates[1] = 0.0, "chain 0: rate alone is 0: allowed is 1e-3 to 1e15");
    wrong(|it| it.chains[0].functions[0].rates.truncate(1), "chain 0: rates is 1: allowed is one for each domain");
    wrong(|it| it.chains[0].functions[0].local.cache = -0.1, "chain 0: alpha is -0.1: allowed is 0 to 1e6");
    wrong(
        |it| it.domains[1].class = 0,
        "domain 1 has the class of domain 0, but different interfaces: domains of one class must be equal",
    );
    wrong(|it| it.domains[1].limits.link = 0.0, "domain 1: a limit is 0: allowed is 1e-9 to 1e15");
}

#[test]
fn a_chain_that_cannot_keep_its_least_rate_has_no_placement() {
    let mut problem = of_bars(1, [2, 10, 3, 2], Mix::Any);
    problem.chains[0].least = 1e9;
    let effort = Effort { nodes: 1_000, is_over: &|| false };
    assert_eq!(exact(&problem, &effort), Ok(None));
}

#[test]
fn a_placement_of_another_problem_is_refused() {
    let problem = of_bars(1, [2, 3, 2, 2], Mix::Any);
    let refused = |placement: &[Way]| match problem.rates(placement) {
        Err(ProblemError::Placement(why)) => why,
        other => panic!("{other:?}"),
    };
    let split = |domains: &[usize]| Way::Split(domains.to_vec());
    assert_eq!(refused(&[split(&[0, 0])]), "it has 1 chains instead of 2");
    assert_eq!(refused(&[split(&[0, 0]), split(&[0])]), "chain 1 has another number of functions or copies");
    assert_eq!(refused(&[split(&[0, 0]), Way::Whole(vec![1])]), "chain 1 has another number of functions or copies");
    assert_eq!(refused(&[split(&[0, 0]), split(&[0, 2])]), "there is no domain 2");
    assert_eq!(refused(&[split(&[0, 0]), split(&[0, 0])]), "domain 0 has too few cores");
}

/// Very long chains, very many copies, domains and chains give a result or an error, with little memory.
#[test]
fn absurd_sizes_give_a_result_or_an_error() {
    let effort = Effort { nodes: 100, is_over: &|| false };
    let mut problem = long(1, 2, 3_000, 1, 0);
    let function = problem.chains[0].functions[0].clone();
    let mut with = |length: usize, copies: usize| {
        problem.chains[0].functions = vec![function.clone(); length];
        problem.chains[0].copies = copies;
        exact(&problem, &effort)
    };
    assert_eq!(with(1_000_000, 0), Err(ProblemError::Cores { needed: 1_000_000, there: 6_000 }));
    let whole = with(1_000_000, 1).expect("a valid problem").expect("it fits on a core");
    assert_eq!(whole.placement, [Way::Whole(vec![0])]);
    assert!(with(5_000, 0).expect("a valid problem").is_some_and(|found| found.bound >= found.value));
    assert!(with(2, 1_000_000).expect("a valid problem").is_some_and(|found| found.bound >= found.value));
    // Listing every number of copies up to a million once filled the memory.
    let mut many_copies = long(1, 2, 300_000, 1, 0);
    many_copies.chains[0].copies = 1_000_000;
    assert!(exact(&many_copies, &effort).expect("a valid problem").is_some_and(|found| found.bound >= found.value));
    // Two long chains on exactly as many cores as they need.
    let mut tight = long(1, 3, 20, 30, 0);
    tight.chains.push(tight.chains[0].clone());
    assert!(exact(&tight, &effort).expect("a valid problem").is_some_and(|found| found.bound >= found.value));
    let many = of_bars(1, [64, 4, 60, 3], Mix::Any);
    assert!(exact(&many, &effort).expect("a valid problem").is_some_and(|found| found.bound >= found.value));
}

/// If the time is over at once, there is still a placement, in little time and memory.
#[test]
fn large_problems_have_a_placement_when_the_time_is_over() {
    let over = Effort { nodes: u64::MAX, is_over: &|| true };
    for (chains, length, copies) in [(256, 8, 8), (64, 64, 0), (256, 1, 64), (64, 4, 4)] {
        let mut problem = of_bars(1, [64, 64, chains, length], Mix::Any);
        let mut rates = Random::new(7);
        for chain in &mut problem.chains {
            chain.copies = copies;
            chain.rate = rates.between(1e5, 1e6);
        }
        for objective in [Objective::Rates, Objective::Cores] {
            let wanted = Wanted { objective, ..Wanted::default() };
            let found = exact_for(&problem, &wanted, &over).expect("a valid problem");
            // With minimised cores, each chain must have its rate, which a search without time may not find.
            assert!(objective == Objective::Cores || found.is_some(), "{chains} {length}");
            if let Some(found) = found {
                assert!(found.bound >= found.value, "{chains} {length}");
                assert!(check(&problem, &wanted, &found).is_ok(), "{chains} {length}");
            }
        }
    }
}

/// A problem with a few impossible or extreme figures.
fn absurd(draw: &mut Random, seed: u64) -> Problem {
    const FIGURES: [f64; 14] = [
        0.0,
        -0.0,
        -1.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::MIN_POSITIVE,
        f64::MAX,
        1e-300,
        1e300,
        1e-6,
        1.0,
        1e6,
        1e9,
    ];
    let mut problem = any(seed);
    for _ in 0..=draw.below(3) {
        let figure = FIGURES[draw.below(FIGURES.len())];
        let (chain, domain) = (draw.below(problem.chains.len()), draw.below(problem.domains.len()));
        let chain = &mut problem.chains[chain];
        let function = draw.below(chain.functions.len().max(1));
        match (draw.below(16), chain.functions.get_mut(function)) {
            (0, _) => chain.rate = figure,
            (1, _) => chain.weight = figure,
            (2, _) => chain.least = figure,
            (3, _) => chain.copies = draw.below(1_000_000),
            (4, _) => chain.home = draw.below(1_000),
            (5, _) => chain.functions.clear(),
            (6, _) => problem.domains[domain].cores = draw.below(2) * draw.below(100_000),
            (7, _) => problem.domains[domain].limits.cache = figure,
            (8, _) => problem.domains[domain].limits.link = figure,
            (9, _) => problem.domains[domain].class = 0,
            (10, Some(function)) => function.metric = figure,
            (11, Some(function)) => function.rates = vec![figure; draw.below(5)],
            (12, Some(function)) => function.local.cache = figure,
            (13, Some(function)) => function.remote.constant = figure,
            (14, Some(function)) => function.local.memory = figure,
            _ => {}
        }
    }
    problem
}

/// Every problem gives an error or a result that the check does not refute, never a panic. `FOREBAY_ABSURD` sets the
/// number of problems.
#[test]
fn absurd_figures_give_a_result_or_an_error() {
    let count = std::env::var("FOREBAY_ABSURD").ok().map_or(1_000, |count| count.parse().expect("a whole number"));
    let effort = Effort { nodes: 200, is_over: &|| false };
    let (mut results, mut errors) = (0, 0);
    for seed in 0..count {
        let mut draw = Random::new(seed);
        let problem = absurd(&mut draw, seed);
        let objective = if draw.below(3) == 0 { Objective::Cores } else { Objective::Rates };
        let wanted = Wanted { objective, may_reject: draw.below(3) == 0, from: None };
        match exact_for(&problem, &wanted, &effort) {
            Ok(found) => {
                results += 1;
                for found in found.iter().filter(|found| found.value.is_finite()) {
                    let checked = check(&problem, &wanted, found);
                    assert!(checked.is_ok(), "seed {seed}: {checked:?}: {found:?} of {problem:?}");
                }
            }
            Err(_) => errors += 1,
        }
    }
    assert!(results > count / 10 && errors > count / 10, "{results} results, {errors} errors");
}
