//! A second exact method, which shares only the formulas with the first: a dynamic program over counts.
//!
//! Rates depend only on loads, and loads depend only on the number of functions with each demand on each domain. So all
//! loads that placements can have are listed, chain by chain. Placements with the same loads are one state. In a final
//! state, all loads are known, and so is the value of each way of a chain. The best sum of values over all ways that
//! add up to this state is found backwards, from the last chain to the first. Equal chains share most states. Time and
//! memory grow with the number of states, so the method is for small problems, and for checking the [other
//! method](super::exact).

use std::collections::{HashMap, HashSet};

use super::baselines::Found;
use super::model::{Chain, Function, Problem, ProblemError, Way};

/// The number of units in the sum of all loads. Loads are whole multiples of a unit, so that sums do not depend on
/// their order.
const UNITS: f64 = (1_u64 << 52) as f64;

/// Returns the best placement. `None` if there is none, or if more than `most_steps` steps are needed. A step examines
/// one way of one chain in one state.
///
/// # Errors
/// [`ProblemError`]: the problem is invalid.
pub fn by_counts(problem: &Problem, most_steps: u64) -> Result<Option<Found>, ProblemError> {
    problem.check()?;
    let domains = problem.domains.len() as f64;
    let sequences = |length: usize| domains.powf(length as f64);
    let ways = |chain: &Chain| sequences(chain.functions.len()) + sequences(chain.copies);
    let all: f64 = problem.chains.iter().map(ways).sum();
    if all > most_steps as f64 {
        return Ok(None);
    }
    let counting = Counting::of(problem);
    let mut remaining = most_steps;
    let Some(reached) = counting.reached(&mut remaining) else { return Ok(None) };
    let mut known = BestSums { remaining, best: HashMap::new() };
    let mut best: Option<Found> = None;
    for loads in reached.last().into_iter().flatten() {
        known.take(all as u64);
        if known.remaining == 0 {
            return Ok(None);
        }
        let worths = counting.worths(&counting.loads(loads));
        known.best.clear();
        if let Some(value) = counting.best(&reached, &worths, problem.chains.len(), loads, &mut known)
            && best.as_ref().is_none_or(|best| value > best.value)
        {
            best = Some(Found { placement: counting.placement(&known, loads), value });
        }
    }
    Ok(best.filter(|_| known.remaining > 0))
}

/// The cores and loads that chains use. Four lists, each by domain, follow each other: the number of cores, then the
/// loads of the caches, of the links, and of the memories (by home domain), in units.
type State = Vec<i64>;

/// The best sums that were calculated for one final state.
struct BestSums {
    /// The number of steps that remain.
    remaining: u64,
    /// By the number of placed chains and their state: the best sum of values and the index of the last chain's way.
    /// `None` if no ways lead to this state.
    best: HashMap<(usize, State), Option<(f64, usize)>>,
}

impl BestSums {
    /// Subtracts steps from the remaining steps. If 0 remain, the method gives up.
    fn take(&mut self, steps: u64) {
        self.remaining = self.remaining.saturating_sub(steps);
    }
}

/// A problem in the form of the dynamic program.
struct Counting<'p> {
    problem: &'p Problem,
    /// The load of one unit.
    unit: f64,
    /// By chain: its ways, each with the cores and loads that it adds.
    ways: Vec<Vec<(Way, State)>>,
}

impl<'p> Counting<'p> {
    /// Lists the ways of all chains. Their number must have been checked.
    fn of(problem: &'p Problem) -> Self {
        let demands = problem.chains.iter().flat_map(|chain| {
            let whole = chain.copies as f64 / chain.whole().metric;
            chain.functions.iter().map(|function| 1.0 / function.metric).chain([whole])
        });
        let unit = demands.sum::<f64>() / UNITS;
        let mut counting = Self { problem, unit, ways: Vec::new() };
        counting.ways = problem.chains.iter().map(|chain| counting.ways_of(chain)).collect();
        counting
    }

    /// Returns the ways of a chain, each with the cores and loads that it adds.
    fn ways_of(&self, chain: &Chain) -> Vec<(Way, State)> {
        let domains = self.problem.domains.len();
        let mut ways: Vec<Way> = sequences(domains, chain.functions.len()).map(Way::Split).collect();
        for copies in 1..=chain.copies {
            ways.extend(sequences(domains, copies).filter(|copies| copies.is_sorted()).map(Way::Whole));
        }
        let whole = chain.whole();
        ways.into_iter().map(|way| (way.clone(), self.adds(chain, &whole, &way))).collect()
    }

    /// Returns the cores and loads that a way adds. `whole` is the whole chain as one function.
    fn adds(&self, chain: &Chain, whole: &Function, way: &Way) -> State {
        let domains = self.problem.domains.len();
        let mut adds = vec![0; 4 * domains];
        let mut before = None;
        for (at, &domain) in way.domains().iter().enumerate() {
            let (function, is_split) = match way {
                Way::Split(_) => (&chain.functions[at], true),
                Way::Whole(_) => (whole, false),
            };
            let demand = self.units(function);
            let is_head = !is_split || before != Some(domain);
            before = Some(domain);
            adds[domain] += 1;
            if domain == chain.home || is_head {
                adds[domains + domain] += demand;
            }
            if domain != chain.home {
                adds[2 * domains + domain] += demand;
            }
            adds[3 * domains + chain.home] += demand;
        }
        adds
    }

    /// Returns a function's demand, in units.
    fn units(&self, function: &Function) -> i64 {
        (1.0 / function.metric / self.unit).round() as i64
    }

    /// Returns a list of sets of states. The set at index n has all states that the first n chains can have on the
    /// available cores. Subtracts the steps from `remaining`. `None` if too few steps remain.
    fn reached(&self, remaining: &mut u64) -> Option<Vec<HashSet<State>>> {
        let domains = &self.problem.domains;
        let mut reached = vec![HashSet::from([vec![0; 4 * domains.len()]])];
        for ways in &self.ways {
            let mut next: HashSet<State> = HashSet::new();
            for (state, (_, adds)) in reached.last()?.iter().flat_map(|state| ways.iter().map(move |way| (state, way)))
            {
                let sum: State = state.iter().zip(adds).map(|(a, b)| a + b).collect();
                if domains.iter().zip(&sum).all(|(domain, used)| *used <= domain.cores as i64) {
                    next.insert(sum);
                }
                *remaining = remaining.checked_sub(1)?;
            }
            reached.push(next);
        }
        Some(reached)
    }

    /// Returns a state with loads in the unit of the problem. Cores are also scaled, and must not be used.
    fn loads(&self, state: &State) -> Vec<f64> {
        state.iter().map(|units| *units as f64 * self.unit).collect()
    }

    /// Returns the value of each way of each chain for these loads; `None` below the chain's least rate.
    fn worths(&self, loads: &[f64]) -> Vec<Vec<Option<f64>>> {
        let of = |(chain, ways): (&Chain, &Vec<(Way, State)>)| {
            let whole = chain.whole();
            ways.iter().map(|(way, _)| self.worth(chain, &whole, way, loads)).collect()
        };
        self.problem.chains.iter().zip(&self.ways).map(of).collect()
    }

    /// Returns the value of a way for these loads; `None` below the chain's least rate.
    fn worth(&self, chain: &Chain, whole: &Function, way: &Way, loads: &[f64]) -> Option<f64> {
        let domains = way.domains();
        let rate = match way {
            Way::Whole(_) => {
                let each = domains.iter().map(|&domain| self.rate(chain, whole, domain, None, whole, loads));
                domains.len() as f64 * each.fold(f64::INFINITY, f64::min)
            }
            Way::Split(_) => {
                let mut head = 0;
                let each = (0..domains.len()).map(|at| {
                    let follows = (at > 0).then(|| domains[at - 1] == domains[at]);
                    if follows != Some(true) {
                        head = at;
                    }
                    let of = (&chain.functions[at], &chain.functions[head]);
                    self.rate(chain, of.0, domains[at], follows, of.1, loads)
                });
                each.fold(f64::INFINITY, f64::min)
            }
        };
        (rate >= chain.least).then(|| chain.value(rate))
    }

    /// Returns a function's rate, (2) and (8)–(11). `follows` is true if the function before it is on the same domain,
    /// and `None` if no function is before it. `head` is the first function of its segment.
    fn rate(
        &self,
        chain: &Chain,
        function: &Function,
        domain: usize,
        follows: Option<bool>,
        head: &Function,
        loads: &[f64],
    ) -> f64 {
        let count = self.problem.domains.len();
        let limits = self.problem.domains[domain].limits;
        let others = |resource: usize, own: &Function| loads[resource] - self.units(own) as f64 * self.unit;
        let level = |load: f64, limit: f64| function.shape.of((load / limit).clamp(0.0, 1.0));
        let drop = if domain == chain.home {
            let cache = match follows {
                Some(false) => 1.0,
                _ => level(others(count + domain, function), limits.cache),
            };
            let memory = level(others(3 * count + domain, function), limits.memory);
            function.local.cache * cache + function.local.memory * memory + function.local.constant
        } else {
            let cache = match follows {
                Some(true) => level(others(count + domain, head), limits.cache),
                _ => 1.0,
            };
            let link = level(others(2 * count + domain, function), limits.link);
            function.remote.cache * cache + function.remote.memory * link + function.remote.constant
        };
        function.rates[domain] * (1.0 - drop.clamp(0.0, 1.0))
    }

    /// Returns the best sum of values of the first `chains` chains whose ways add up to `state`. `None` if no ways add
    /// up to it, or if too few steps remain.
    fn best(
        &self,
        reached: &[HashSet<State>],
        worths: &[Vec<Option<f64>>],
        chains: usize,
        state: &State,
        known: &mut BestSums,
    ) -> Option<f64> {
        if chains == 0 {
            return Some(0.0);
        }
        if let Some(known) = known.best.get(&(chains, state.clone())) {
            return known.map(|(value, _)| value);
        }
        known.take(self.ways[chains - 1].len() as u64);
        if known.remaining == 0 {
            return None;
        }
        let mut best: Option<(f64, usize)> = None;
        for (at, (_, adds)) in self.ways[chains - 1].iter().enumerate() {
            let Some(own) = worths[chains - 1][at] else { continue };
            let before: State = state.iter().zip(adds).map(|(a, b)| a - b).collect();
            if !reached[chains - 1].contains(&before) {
                continue;
            }
            if let Some(value) = self.best(reached, worths, chains - 1, &before, known).map(|rest| rest + own)
                && best.is_none_or(|(most, _)| value > most)
            {
                best = Some((value, at));
            }
        }
        known.best.insert((chains, state.clone()), best);
        best.map(|(value, _)| value)
    }

    /// Returns the placement with the best sum for the final state `end`, after [`best`](Self::best) has found this
    /// sum.
    fn placement(&self, known: &BestSums, end: &State) -> Vec<Way> {
        let (mut state, mut placement) = (end.clone(), Vec::new());
        for chains in (1..=self.ways.len()).rev() {
            let Some(Some((_, at))) = known.best.get(&(chains, state.clone())) else { break };
            let (way, adds) = &self.ways[chains - 1][*at];
            placement.push(way.clone());
            state = state.iter().zip(adds).map(|(a, b)| a - b).collect();
        }
        placement.reverse();
        placement
    }
}

/// Returns all sequences of `length` domains.
fn sequences(domains: usize, length: usize) -> impl Iterator<Item = Vec<usize>> {
    let mut next = Some(vec![0; length]);
    std::iter::from_fn(move || {
        let now = next.take()?;
        if let Some(at) = now.iter().rposition(|domain| domain + 1 < domains) {
            let mut after = now.clone();
            after[at] += 1;
            after[at + 1..].fill(0);
            next = Some(after);
        }
        Some(now)
    })
}
