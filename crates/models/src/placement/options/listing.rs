//! Lists the ways of a chain, with the loads that each adds and its rate as a function of the loads.

use super::{Choice, Listed, Resources, Seat, Term, cores_and_moves};
use crate::placement::model::{Chain, Function, Placement, Problem, Shape, Way};
use crate::placement::wanted::{Objective, Wanted};

/// The largest number of ways of a chain. If there are more, only ways with at most two changes of domain are listed.
/// For ways with copies of the chain, the same number is allowed in addition.
const MOST_WAYS: usize = 20_000;
/// The largest number of functions in all ways of a chain. A very long chain still has [`FEW_WAYS`] ways.
const MOST_SEATS: usize = 400_000;
/// The least number of ways of a chain.
const FEW_WAYS: usize = 16;
/// The approximate largest number of ways of all chains together, which limits memory and time. If short chains have
/// fewer ways than their share, longer chains may have more.
const ALL_WAYS: usize = 100_000;
/// The approximate largest number of functions in all ways of all chains together.
const ALL_SEATS: usize = 1_000_000;
/// If too many ways are listed already, a number of copies has only ways with all copies on one domain, for at most
/// this number of domains: the home and the first other domains.
const FEW_DOMAINS: usize = 4;

/// Returns the term of a function that competes for a resource. The arguments are the fields of [`Term`].
fn term(function: &Function, resource: usize, scale: f64, own: f64, limit: f64) -> Term {
    let half = match function.shape {
        Shape::Linear => f64::INFINITY,
        Shape::Saturating(half) => half,
    };
    Term { resource, scale, own, per_limit: 1.0 / limit, half }
}

/// Returns the number of ways to list for each chain. All chains together have about [`ALL_WAYS`] ways and
/// [`ALL_SEATS`] functions in these ways at most.
pub(super) fn shares(problem: &Problem) -> Vec<usize> {
    let domains = problem.domains.len();
    let cores = problem.domains.iter().map(|domain| domain.cores).sum::<usize>();
    let width = |chain: &Chain| chain.functions.len().max(chain.copies.min(cores)).max(1);
    let most = |chain: &Chain| MOST_WAYS.min(MOST_SEATS / width(chain));
    let needs = |chain: &Chain| {
        let splits = u32::try_from(chain.functions.len()).ok().and_then(|length| domains.checked_pow(length));
        if chain.copies > 0 { most(chain) } else { splits.map_or(most(chain), |splits| splits.min(most(chain))) }
    };
    let mut order: Vec<_> = (0..problem.chains.len()).collect();
    order.sort_by_key(|&at| needs(&problem.chains[at]));
    let (mut ways, mut seats) = (ALL_WAYS, ALL_SEATS);
    let mut shares = vec![0; order.len()];
    for (done, &at) in order.iter().enumerate() {
        let chain = &problem.chains[at];
        let remaining = order.len() - done;
        let share = needs(chain).min(ways / remaining).min(seats / remaining / width(chain)).max(FEW_WAYS);
        ways = ways.saturating_sub(share);
        seats = seats.saturating_sub(share * width(chain));
        shares[at] = share;
    }
    shares
}

/// Lists the ways of the chain `index`: about `most_ways` ways without copies, and the same number with copies. Ways
/// for which there are too few cores or moves are left out. `hints` are placements whose ways are listed in any case.
pub(super) fn listed(
    problem: &Problem,
    index: usize,
    wanted: &Wanted<'_>,
    (hints, most_ways): (&[Placement], usize),
    resources: Resources,
) -> Listed {
    let chain = &problem.chains[index];
    let now = wanted.now(index);
    let domains = problem.domains.len();
    let whole = chain.whole();
    let length = chain.functions.len();
    let cores = problem.domains.iter().map(|domain| domain.cores).sum::<usize>();
    let all = u32::try_from(length).ok().and_then(|length| domains.checked_pow(length));
    let has_all_splits = length > cores || all.is_some_and(|all| all <= most_ways);
    let mut ways = Vec::new();
    if length > cores {
        // There are too few cores for one function per core, so only copies of the whole chain are possible.
    } else if has_all_splits {
        // The ways are in the order of the domains' numbers, because symmetry breaking depends on this order.
        for number in 0..all.unwrap_or(0) {
            let digit = |at: usize| number / domains.pow(u32::try_from(length - 1 - at).unwrap_or(0)) % domains;
            ways.push(Way::Split((0..length).map(digit).collect()));
        }
    } else {
        ways.extend(few_changes(domains, length, most_ways).into_iter().map(Way::Split));
        ways.extend(filled(problem, chain).map(Way::Split));
        ways.extend(hints.iter().map(|placement| placement[index].clone()));
        if let Some(now @ Way::Split(domains_now)) = now {
            ways.push(now.clone());
            ways.extend(one_moved(domains_now, domains).take(most_ways).map(Way::Split));
        }
    }
    let mut is_complete = has_all_splits;
    let most = ways.len() + most_ways;
    // Ways with very many copies are long, so their number of functions together is limited.
    let mut seats_remaining = MOST_SEATS;
    for copies in 1..=chain.copies.min(cores) {
        if ways.len() < most {
            is_complete &= multisets(domains, copies, &mut Vec::new(), &mut |domains| {
                ways.push(Way::Whole(domains.to_vec()));
                ways.len() < most
            });
        } else {
            is_complete = false;
            let Some(remaining) = seats_remaining.checked_sub(FEW_DOMAINS * copies) else { break };
            seats_remaining = remaining;
            let others = (0..domains).filter(|domain| *domain != chain.home);
            let few = std::iter::once(chain.home).chain(others).take(FEW_DOMAINS);
            ways.extend(few.map(|domain| Way::Whole(vec![domain; copies])));
        }
    }
    if wanted.may_reject {
        ways.push(Way::Whole(Vec::new()));
    }
    let chosen = |way| {
        let mut choice = choice(problem, chain, &whole, way, resources);
        let moved = now.map_or(0, |now| now.moved(&choice.way));
        choice.used.extend((moved > 0).then_some((domains, moved)));
        choice.fixed = match wanted.objective {
            _ if choice.seats.is_empty() => Some(0.0),
            Objective::Rates => None,
            Objective::Cores => Some(chain.most_cores() as f64 - choice.way.domains().len() as f64),
        };
        choice
    };
    let mut choices: Vec<_> = ways.into_iter().map(chosen).collect();
    let available: Vec<_> = cores_and_moves(problem, wanted);
    choices.retain(|choice| choice.fits(&available));
    let numbered = all.filter(|all| has_all_splits && *all <= most_ways);
    let mut numbers = vec![None; numbered.unwrap_or(0)];
    for (at, choice) in choices.iter().enumerate().filter(|_| numbered.is_some()) {
        if let Way::Split(own) = &choice.way
            && let Some(slot) = numbers.get_mut(own.iter().fold(0, |number, digit| number * domains + digit))
        {
            *slot = Some(at);
        }
    }
    let alone = |function: &Function| {
        let each = |domain: usize| {
            let drop = if domain == chain.home { function.local } else { function.remote };
            function.rates[domain] * (1.0 - drop.constant).max(0.0)
        };
        (0..domains).map(each).fold(0.0, f64::max)
    };
    let split = chain.functions.iter().map(alone).fold(f64::INFINITY, f64::min);
    let ceiling = match wanted.objective {
        Objective::Rates => chain.value(split.max(alone(&whole) * chain.copies as f64)),
        Objective::Cores => chain.most_cores() as f64 - chain.fewest_cores() as f64,
    };
    let now = now.and_then(|now| choices.iter().position(|choice| choice.way == *now));
    Listed {
        choices,
        is_complete,
        numbers,
        domains,
        ceiling,
        demand: chain.functions.iter().map(|function| 1.0 / function.metric).sum::<f64>() * chain.copies.max(1) as f64,
        weight: chain.weight,
        rate: chain.rate,
        least: match wanted.objective {
            Objective::Rates => chain.least,
            Objective::Cores => chain.least.max(chain.rate),
        },
        now,
    }
}

/// Returns up to `most` sequences of `length` domains with at most two changes of domain.
fn few_changes(domains: usize, length: usize, most: usize) -> Vec<Vec<usize>> {
    let mut found: Vec<Vec<usize>> = (0..domains).take(most).map(|domain| vec![domain; length]).collect();
    for first in 1..length {
        for (a, b) in (0..domains).flat_map(|a| (0..domains).map(move |b| (a, b))).filter(|(a, b)| a != b) {
            if found.len() >= most {
                return found;
            }
            found.push((0..length).map(|at| if at < first { a } else { b }).collect());
        }
    }
    for (first, second) in (1..length).flat_map(|first| (first + 1..length).map(move |second| (first, second))) {
        for number in 0..domains.pow(3) {
            let [a, b, c] = [number / domains / domains, number / domains % domains, number % domains];
            if a == b || b == c {
                continue;
            }
            if found.len() >= most {
                return found;
            }
            found.push(
                (0..length)
                    .map(|at| {
                        if at < first {
                            a
                        } else if at < second {
                            b
                        } else {
                            c
                        }
                    })
                    .collect(),
            );
        }
    }
    found
}

/// Returns the ways in which one function is on another domain than in `now`.
fn one_moved(now: &[usize], domains: usize) -> impl Iterator<Item = Vec<usize>> {
    let each = (0..now.len()).flat_map(move |at| (0..domains).map(move |domain| (at, domain)));
    each.filter(|(at, domain)| now[*at] != *domain).map(|(at, domain)| {
        let mut moved = now.to_vec();
        moved[at] = domain;
        moved
    })
}

/// Returns a way that uses the cores of the home first, then the cores of the other domains. It is for chains that need
/// more than three domains. `None` if there are too few cores.
fn filled(problem: &Problem, chain: &Chain) -> Option<Vec<usize>> {
    let others = (0..problem.domains.len()).filter(|domain| *domain != chain.home);
    let cores = std::iter::once(chain.home).chain(others).flat_map(|at| vec![at; problem.domains[at].cores]);
    let domains: Vec<_> = cores.take(chain.functions.len()).collect();
    (domains.len() == chain.functions.len()).then_some(domains)
}

/// Calls `visit` with each non-decreasing sequence that begins with `so_far` and continues with `more` domains. Stops
/// and returns `false` when `visit` returns `false`.
fn multisets(domains: usize, more: usize, so_far: &mut Vec<usize>, visit: &mut dyn FnMut(&[usize]) -> bool) -> bool {
    if more == 0 {
        return visit(so_far);
    }
    (so_far.last().copied().unwrap_or(0)..domains).all(|domain| {
        so_far.push(domain);
        let goes_on = multisets(domains, more - 1, so_far, visit);
        so_far.pop();
        goes_on
    })
}

/// Returns a way with its loads and rates, by the same rules as [`Problem::rates`].
fn choice(problem: &Problem, chain: &Chain, whole: &Function, way: Way, resources: Resources) -> Choice {
    let domains = way.domains().to_vec();
    let (copies, is_split) = match &way {
        Way::Split(_) => (1.0, true),
        Way::Whole(domains) => (domains.len() as f64, false),
    };
    let function = |at: usize| if is_split { &chain.functions[at] } else { whole };
    let mut cores = vec![0; problem.domains.len()];
    let mut loads = vec![0.0; resources.count()];
    let mut seats = Vec::with_capacity(domains.len());
    let mut head_demand = 0.0;
    for (at, &domain) in domains.iter().enumerate() {
        let function = function(at);
        let demand = 1.0 / function.metric;
        let follows = (is_split && at > 0).then(|| domains[at - 1] == domain);
        if follows != Some(true) {
            head_demand = demand;
        }
        let is_local = domain == chain.home;
        let rate = function.rates[domain] * copies;
        let limits = problem.domains[domain].limits;
        loads[resources.memory(chain.home)] += demand;
        if is_local || follows != Some(true) {
            loads[resources.cache(domain)] += demand;
        }
        if !is_local {
            loads[resources.link(domain)] += demand;
        }
        cores[domain] += 1;
        if !is_split && cores[domain] > 1 {
            // All copies on one domain have the same rate.
            continue;
        }
        let drop = if is_local { function.local } else { function.remote };
        // A function that reads packets from another domain has no use of the cache. So its competing level for the
        // cache is always 1, and the resulting drop is a part of the constant.
        let reads_cache = if is_local { follows != Some(false) } else { follows == Some(true) };
        let cache_own = if is_local { demand } else { head_demand };
        let cache_scale = if reads_cache { rate * drop.cache } else { 0.0 };
        let constant = drop.constant + if reads_cache { 0.0 } else { drop.cache };
        let second = if is_local {
            let limit = problem.domains[chain.home].limits.memory;
            term(function, resources.memory(chain.home), rate * drop.memory, demand, limit)
        } else {
            term(function, resources.link(domain), rate * drop.memory, demand, limits.link)
        };
        let cache = term(function, resources.cache(domain), cache_scale, cache_own, limits.cache);
        seats.push(Seat { base: rate * (1.0 - constant), terms: [cache, second] });
    }
    let loads = loads.into_iter().enumerate().filter(|(_, load)| *load > 0.0).collect();
    let used = cores.iter().copied().enumerate().filter(|(_, cores)| *cores > 0).collect();
    let mut firsts = Vec::new();
    domains.iter().for_each(|domain| {
        if !firsts.contains(domain) {
            firsts.push(*domain)
        }
    });
    Choice { way, used, firsts, loads, seats, fixed: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::model::{Domain, Limits, Sensitivity};

    fn problem(domains: usize, chains: &[(usize, usize)]) -> Problem {
        let drop = Sensitivity { cache: 0.1, memory: 0.1, constant: 0.1 };
        let function =
            Function { rates: vec![1e6; domains], metric: 1.0, local: drop, remote: drop, shape: Shape::Linear };
        let chain = |&(length, copies): &(usize, usize)| Chain {
            functions: vec![function.clone(); length],
            home: 0,
            rate: f64::INFINITY,
            weight: 1.0,
            least: 0.0,
            copies,
        };
        let limits = Limits { cache: 1.0, memory: 1.0, link: 1.0 };
        let domains = (0..domains).map(|class| Domain { cores: 64, class, limits }).collect();
        Problem { domains, chains: chains.iter().map(chain).collect() }
    }

    #[test]
    fn a_long_chain_uses_the_ways_that_short_chains_do_not_need() {
        let mut chains = vec![(2, 0); 20];
        chains.push((7, 0));
        let shares = shares(&problem(4, &chains));
        assert!(shares[..20].iter().all(|share| *share == 16) && shares[20] == 4_usize.pow(7), "{shares:?}");
    }

    #[test]
    fn many_chains_have_few_ways_each() {
        for (length, copies) in [(8, 0), (8, 8), (1, 64), (64, 0)] {
            let shares = shares(&problem(64, &[(length, copies); 256]));
            let seats: usize = shares.iter().map(|share| share * length.max(copies)).sum();
            assert!(shares.iter().sum::<usize>() <= ALL_WAYS && seats <= ALL_SEATS, "{length} {copies}: {shares:?}");
        }
    }
}
