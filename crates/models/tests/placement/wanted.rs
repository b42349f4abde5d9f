//! Few moves, few cores, and rejected chains: the same results as enumeration.

use forebay_models::placement::{Effort, From, Objective, Problem, ProblemError, Wanted, Way, exact, exact_for};

use crate::instances::{Mix, Random, any, enumerate_by, of_bars, value};

const ALL: Effort<'_> = Effort { nodes: u64::MAX, is_over: &|| false };

fn is_same(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-8 * a.abs().max(b.abs())
}

/// Compares the result and the proof of the search with enumeration. Returns true if there is a placement.
fn agree(seed: u64, problem: &Problem, wanted: &Wanted<'_>, value: &dyn Fn(&[Way]) -> Option<f64>) -> bool {
    let best = enumerate_by(problem, wanted.may_reject, value);
    let found = exact_for(problem, wanted, &ALL).expect("a valid problem");
    let Some(found) = found else {
        assert_eq!(best, None, "seed {seed}: {wanted:?}");
        return false;
    };
    let best = best.expect("the search found one");
    let own = value(&found.placement).expect("a placement that is allowed");
    assert!(
        is_same(best, found.value) && is_same(found.bound, found.value) && is_same(own, found.value),
        "seed {seed}: {best} {own} {found:?}, {wanted:?}"
    );
    true
}

/// A random placement that respects the number of cores; some chains are new.
fn running(problem: &Problem, draw: &mut Random) -> Option<Vec<Option<Way>>> {
    let mut free: Vec<_> = problem.domains.iter().map(|domain| domain.cores).collect();
    let mut place = |count: usize, draw: &mut Random| {
        (0..count)
            .map(|_| {
                let available: Vec<_> = (0..free.len()).filter(|domain| free[*domain] > 0).collect();
                if available.is_empty() {
                    return None;
                }
                let domain = available[draw.below(available.len())];
                free[domain] -= 1;
                Some(domain)
            })
            .collect::<Option<Vec<_>>>()
    };
    problem
        .chains
        .iter()
        .map(|chain| {
            if draw.below(5) == 0 {
                return Some(None);
            }
            let is_whole = chain.copies > 0 && draw.below(2) == 0;
            Some(Some(if is_whole {
                Way::Whole(place(1, draw)?)
            } else {
                Way::Split(place(chain.functions.len(), draw)?)
            }))
        })
        .collect()
}

#[test]
fn the_best_placement_within_some_moves_is_that_of_enumeration() {
    let (mut found, mut bound) = (0, 0);
    for seed in 0..600 {
        let problem = any(seed);
        let mut draw = Random::new(seed);
        let Some(now) = running(&problem, &mut draw) else { continue };
        if problem.check().is_err() {
            continue;
        }
        let most = draw.below(4);
        let wanted = Wanted { from: Some(From { ways: &now, most }), ..Wanted::default() };
        let moved = |placement: &[Way]| -> usize {
            now.iter().zip(placement).map(|(now, next)| now.as_ref().map_or(0, |now| now.moved(next))).sum()
        };
        let within = |placement: &[Way]| (moved(placement) <= most).then(|| value(&problem, placement)).flatten();
        if agree(seed, &problem, &wanted, &within) {
            found += 1;
            let free = exact(&problem, &ALL).expect("a valid problem").expect("it fits");
            bound += usize::from(moved(&free.placement) > most);
        }
    }
    // In many cases, more moves would have been better.
    assert!(found > 300 && bound > 100, "{found} {bound}");
}

#[test]
fn without_a_move_all_stays_as_it_is() {
    let problem = of_bars(5, [2, 10, 6, 3], Mix::Any);
    let now: Vec<_> = (0..6).map(|chain| Some(Way::Split(vec![chain % 2; 3]))).collect();
    let wanted = Wanted { from: Some(From { ways: &now, most: 0 }), ..Wanted::default() };
    let found = exact_for(&problem, &wanted, &ALL).expect("a valid problem").expect("it fits");
    assert_eq!(found.placement.into_iter().map(Some).collect::<Vec<_>>(), now);
    let mut last = found.value;
    for most in 1..=18 {
        let wanted = Wanted { from: Some(From { ways: &now, most }), ..Wanted::default() };
        let found = exact_for(&problem, &wanted, &ALL).expect("a valid problem").expect("it fits");
        assert!(found.value >= last * (1.0 - 1e-12) && found.gap() == 0.0, "{most} moves");
        last = found.value;
    }
    assert_eq!(exact(&problem, &ALL).expect("a valid problem").expect("it fits").value, last);
}

#[test]
fn the_fewest_cores_are_those_of_enumeration() {
    let mut found = 0;
    for seed in 0..600 {
        let mut problem = any(seed);
        let mut draw = Random::new(seed);
        for chain in &mut problem.chains {
            chain.rate = draw.between(0.3e6, 3e6);
            chain.copies = draw.below(4);
        }
        if problem.check().is_err() {
            continue;
        }
        let cores = |placement: &[Way]| {
            let rates = problem.rates(placement).ok()?;
            let serves = rates.iter().zip(&problem.chains).all(|((rate, _), chain)| *rate >= chain.rate);
            let used: usize = placement.iter().map(|way| way.domains().len()).sum();
            serves.then_some(-(used as f64))
        };
        let wanted = Wanted { objective: Objective::Cores, ..Wanted::default() };
        found += usize::from(agree(seed, &problem, &wanted, &cores));
    }
    assert!(found > 200, "{found}");
}

/// If there are too few cores, or a chain cannot keep its least rate, the best placement rejects some chains.
#[test]
fn chains_that_are_left_out_are_those_of_enumeration() {
    let mut left_out = 0;
    for seed in 0..400 {
        let mut problem = any(seed);
        let mut draw = Random::new(seed);
        problem.domains.iter_mut().for_each(|domain| domain.cores = domain.cores.min(2));
        problem.chains.iter_mut().for_each(|chain| chain.least = draw.between(0.0, 4e6));
        let worth = |placement: &[Way]| {
            let rates = problem.rates(placement).ok()?;
            let each = rates.iter().zip(&problem.chains).zip(placement);
            each.map(|(((rate, _), chain), way)| {
                (way.domains().is_empty() || *rate >= chain.least).then(|| chain.value(*rate))
            })
            .sum::<Option<f64>>()
        };
        let wanted = Wanted { may_reject: true, ..Wanted::default() };
        assert!(agree(seed, &problem, &wanted, &worth), "rejecting all chains is always a placement");
        let placement = exact_for(&problem, &wanted, &ALL).expect("a valid problem").expect("it fits").placement;
        left_out += placement.iter().filter(|way| way.domains().is_empty()).count();
    }
    assert!(left_out > 100, "{left_out}");
}

#[test]
fn impossible_objectives_are_named() {
    let problem = of_bars(1, [2, 10, 3, 2], Mix::Any);
    let error =
        |wanted: &Wanted<'_>| exact_for(&problem, wanted, &ALL).expect_err("the problem is invalid").to_string();
    let cores = Wanted { objective: Objective::Cores, ..Wanted::default() };
    assert_eq!(error(&cores), "chain 0: rate is inf: allowed is a finite number if cores are minimised");
    let from = |ways: &[Option<Way>]| error(&Wanted { from: Some(From { ways, most: 1 }), ..Wanted::default() });
    assert_eq!(from(&[None]), "the placement does not fit the chains: the present placement has 1 chains instead of 3");
    let invalid = [None, None, Some(Way::Split(vec![0, 2]))];
    assert_eq!(
        from(&invalid),
        "the placement does not fit the chains: chain 2 has another number of functions or copies, or unknown domains, \
         in the present placement"
    );
    assert!(matches!(
        exact_for(&problem, &Wanted { may_reject: true, ..cores }, &ALL),
        Err(ProblemError::Number { .. } | ProblemError::Placement(_))
    ));
}
