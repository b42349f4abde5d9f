//! The ways in which each chain can be placed, in the form that a search reads: loads are sums, and what a chain yields
//! depends on loads alone.
//!
//! Every resource is a place of contention: the cache of each domain, its link, its memory. A way adds a load to some
//! of them. A function's rate is a constant less one term for each resource that it competes for, so that given all
//! loads each chain is worth a number of its own. Every term grows with its load: more load never helps.

use std::rc::Rc;

mod listing;

use listing::{listed, shares};

use super::baselines::{node_balancing, node_first};
use super::model::{Chain, Domain, Function, Problem, Way};
use super::wanted::Wanted;

/// What one resource takes of a function's rate: `scale · g((load − own) / limit)`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    pub(super) resource: usize,
    /// Packets a second at competing level 1.
    scale: f64,
    /// The part of the load that is its own.
    own: f64,
    /// 1 / limit.
    per_limit: f64,
    /// h, or infinite where the term is linear.
    half: f64,
}

impl Term {
    fn at(&self, loads: &[f64]) -> f64 {
        let level = (loads[self.resource] - self.own).max(0.0) * self.per_limit;
        let level = level.min(1.0);
        if self.half.is_infinite() {
            self.scale * level
        } else {
            self.scale * level * (1.0 + self.half) / (level + self.half)
        }
    }

    /// How much more it takes for each unit of load, at least, between these loads and `most`: the chord's slope, as it
    /// is concave.
    fn slope(&self, loads: &[f64], most: &[f64]) -> f64 {
        let room = most[self.resource] - loads[self.resource];
        if room <= 1e-12 * most[self.resource] {
            return 0.0;
        }
        (self.at(most) - self.at(loads)) / room
    }
}

/// The rate of a function on one core, by the loads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    /// Packets a second with no competitor.
    base: f64,
    pub(super) terms: [Term; 2],
}

impl Seat {
    fn rate(&self, loads: &[f64]) -> f64 {
        (self.base - self.terms[0].at(loads) - self.terms[1].at(loads)).max(0.0)
    }

    /// Whether λ would be above 1 with these loads.
    fn is_clamped(&self, loads: &[f64]) -> bool {
        self.base - self.terms[0].at(loads) - self.terms[1].at(loads) < 0.0
    }
}

/// One way to place a chain.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) way: Way,
    /// Its domains with how many cores, and last the number of all domains with how many functions move.
    pub(super) used: Vec<(usize, usize)>,
    /// Its domains in the order in which they appear.
    pub(super) firsts: Vec<usize>,
    /// What it adds to loads beyond what every way of its chain adds.
    pub(super) loads: Vec<(usize, f64)>,
    pub(super) seats: Vec<Seat>,
    /// What it is worth, whatever it forwards.
    fixed: Option<f64>,
}

impl Choice {
    /// Takes its cores and moves from what is left; `false` where that is too little.
    pub(super) fn is_taken_from(&self, left: &mut [usize]) -> bool {
        let mut take = |&(domain, cores): &(usize, usize)| match left[domain].checked_sub(cores) {
            Some(fewer) => {
                left[domain] = fewer;
                true
            }
            None => false,
        };
        self.used.iter().all(&mut take)
    }

    /// Whether there are enough cores and moves for it.
    pub(super) fn fits(&self, left: &[usize]) -> bool {
        self.used.iter().all(|&(domain, cores)| cores <= left[domain])
    }
}

/// A chain with all its ways.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) choices: Vec<Choice>,
    /// All ways are listed.
    pub(super) is_complete: bool,
    /// Of a chain whose ways are all listed: where each split way is, by the number that its domains are the digits of.
    numbers: Vec<Option<usize>>,
    domains: usize,
    /// Where not all are, no way is worth more than this.
    pub(super) ceiling: f64,
    /// The load of all its functions, or of as many copies of the chain as may run.
    pub(super) demand: f64,
    weight: f64,
    rate: f64,
    least: f64,
    /// The way in which it runs now.
    pub(super) now: Option<usize>,
}

impl Listed {
    /// A bound of all ways from the best of those that are listed, and the ceiling of the others. `None`: there is no
    /// way.
    pub(super) fn limited(&self, best: Option<f64>, ceiling: f64) -> Option<f64> {
        if self.is_complete { best } else { Some(best.map_or(ceiling, |best| best.max(ceiling))) }
    }

    /// Raises all values to those of a chain with the same ways and loads.
    fn cover(&mut self, other: &Self) {
        (self.weight, self.rate) = (self.weight.max(other.weight), self.rate.max(other.rate));
        self.ceiling = self.ceiling.max(other.ceiling);
        self.least = self.least.min(other.least);
        for (own, theirs) in self.choices.iter_mut().zip(&other.choices) {
            for (own, theirs) in own.seats.iter_mut().zip(&theirs.seats) {
                own.base = own.base.max(theirs.base);
                for (own, theirs) in own.terms.iter_mut().zip(&theirs.terms) {
                    own.scale = own.scale.min(theirs.scale);
                }
            }
        }
    }

    /// Whether [`Self::with`] finds ways.
    pub(super) fn is_numbered(&self) -> bool {
        !self.numbers.is_empty()
    }

    /// The way that has `domain` for the function at `place`; `None` where it has too few cores or is not listed.
    pub(super) fn with(&self, at: usize, place: usize, domain: usize) -> Option<usize> {
        let Way::Split(domains) = &self.choices[at].way else { return None };
        // Of long chains the number could be larger than any.
        if !self.is_numbered() {
            return None;
        }
        let digit = |(index, &own): (usize, &usize)| if index == place { domain } else { own };
        let number = domains.iter().enumerate().map(digit).fold(0, |number, digit| number * self.domains + digit);
        *self.numbers.get(number)?
    }

    /// The value of a way with these loads, its own included, and its binding seat; `None` below the least rate.
    pub(super) fn value(&self, choice: &Choice, loads: &[f64]) -> Option<(f64, usize)> {
        let mut slowest = (f64::INFINITY, 0);
        for (at, seat) in choice.seats.iter().enumerate() {
            let rate = seat.rate(loads);
            if rate < slowest.0 {
                slowest = (rate, at);
            }
        }
        let value = choice.fixed.unwrap_or(self.weight * slowest.0.min(self.rate));
        (slowest.0 >= self.least).then_some((value, slowest.1))
    }

    /// By resource of the binding seat: how much less the way is worth for each unit of load to come, at least.
    pub(super) fn slopes(&self, choice: &Choice, seat: usize, loads: &[f64], most: &[f64]) -> [(usize, f64); 2] {
        if choice.fixed.is_some() {
            return [(0, 0.0); 2];
        }
        let seat = &choice.seats[seat];
        let is_flat = seat.rate(loads) > self.rate || seat.is_clamped(most);
        seat.terms.map(|term| {
            let slope = if is_flat { 0.0 } else { self.weight * term.slope(loads, most) };
            (term.resource, slope)
        })
    }
}

/// Chains that add the same loads, way by way, and yield nearly the same: exchanging two of them changes no load.
#[derive(Clone, Debug)]
pub(super) struct Kin {
    pub(super) members: Vec<usize>,
    /// At least what each member yields.
    pub(super) envelope: Rc<Listed>,
    /// All members are the same.
    pub(super) is_uniform: bool,
}

/// A problem in the search's form.
#[derive(Clone, Debug)]
pub(super) struct Space {
    pub(super) chains: Vec<Rc<Listed>>,
    /// All chains, each once.
    pub(super) kin: Vec<Kin>,
    /// The load that every placement has.
    pub(super) always: Vec<f64>,
    /// A load that every placement has because of the number of cores.
    pub(super) least: Vec<f64>,
    /// A load that no placement exceeds.
    pub(super) most: Vec<f64>,
    /// By domain, and last how many functions may move.
    pub(super) cores: Vec<usize>,
    pub(super) classes: Vec<usize>,
    /// Placements that are there without a search, by chain.
    pub(super) hints: Vec<Vec<usize>>,
}

/// The resources of a domain.
#[derive(Clone, Copy)]
struct Resources {
    domains: usize,
}

impl Resources {
    fn cache(self, domain: usize) -> usize {
        domain
    }
    fn link(self, domain: usize) -> usize {
        self.domains + domain
    }
    fn memory(self, domain: usize) -> usize {
        2 * self.domains + domain
    }
    fn count(self) -> usize {
        3 * self.domains
    }
}

impl Space {
    pub(super) fn of(problem: &Problem, wanted: &Wanted<'_>) -> Self {
        let resources = Resources { domains: problem.domains.len() };
        // Of long chains not all ways are listed: with these there is a placement where cores are short.
        let hints: Vec<_> = [node_first(problem), node_balancing(problem)]
            .into_iter()
            .filter_map(|found| found.ok().flatten().map(|found| found.placement))
            .collect();
        let mut always = vec![0.0; resources.count()];
        let shares = shares(problem).into_iter().enumerate();
        let mut chains: Vec<_> =
            shares.map(|(chain, share)| listed(problem, chain, wanted, (&hints, share), resources)).collect();
        let mut most = vec![0.0; resources.count()];
        for chain in &mut chains {
            let mut fewest = vec![f64::INFINITY; resources.count()];
            let mut largest = vec![0.0_f64; resources.count()];
            for choice in &chain.choices {
                let mut loads = vec![0.0; resources.count()];
                choice.loads.iter().for_each(|(resource, load)| loads[*resource] += load);
                for (at, load) in loads.iter().enumerate() {
                    fewest[at] = fewest[at].min(*load);
                    largest[at] = largest[at].max(*load);
                }
            }
            if chain.choices.is_empty() {
                fewest.fill(0.0);
            }
            if !chain.is_complete {
                // A way that is not listed may add less, and all of its functions to one resource.
                fewest.fill(0.0);
                largest.fill(chain.demand);
            }
            for choice in &mut chain.choices {
                for (resource, load) in &mut choice.loads {
                    *load -= fewest[*resource];
                }
                choice.loads.retain(|(_, load)| *load > 0.0);
            }
            for at in 0..resources.count() {
                always[at] += fewest[at];
                most[at] += largest[at];
            }
        }
        let mut least = always.clone();
        if problem.chains.iter().all(|chain| chain.copies == 0) && !wanted.may_reject {
            bound_by_cores(problem, resources, &mut least, &mut most);
        }
        let cores = cores_and_moves(problem, wanted);
        // Like domains differ by the functions that run there now.
        let class = |(at, domain): (usize, &Domain)| if wanted.from.is_some() { at } else { domain.class };
        let mut classes: Vec<_> = problem.domains.iter().enumerate().map(class).collect();
        classes.push(usize::MAX);
        let chains: Vec<_> = chains.into_iter().map(Rc::new).collect();
        let kin = kin(problem, wanted, &chains);
        let of_hint = |placement: Vec<Way>| {
            let at = |(chain, way): (&Rc<Listed>, &Way)| chain.choices.iter().position(|choice| choice.way == *way);
            chains.iter().zip(&placement).map(at).collect()
        };
        let hints = hints.into_iter().filter_map(of_hint).collect();
        Self { chains, kin, always, least, most, cores, classes, hints }
    }

    /// The sum of what all chains are worth; `None` where one is below its least rate. Cores are not counted here.
    pub(super) fn total(&self, chosen: &[usize]) -> Option<f64> {
        let loads = self.loads(chosen);
        self.chains.iter().zip(chosen).map(|(chain, &at)| Some(chain.value(&chain.choices[at], &loads)?.0)).sum()
    }

    pub(super) fn domains(&self) -> usize {
        self.cores.len() - 1
    }

    pub(super) fn loads(&self, chosen: &[usize]) -> Vec<f64> {
        let mut loads = self.always.clone();
        for (chain, &at) in self.chains.iter().zip(chosen) {
            chain.choices[at].loads.iter().for_each(|(resource, load)| loads[*resource] += load);
        }
        loads
    }

    /// Whether the ways chosen have enough cores.
    pub(super) fn fits(&self, chosen: &[usize]) -> bool {
        let mut left = self.cores.clone();
        self.chains.iter().zip(chosen).all(|(chain, &at)| chain.choices[at].is_taken_from(&mut left))
    }

    pub(super) fn placement(&self, chosen: &[usize]) -> Vec<Way> {
        self.chains.iter().zip(chosen).map(|(chain, &at)| chain.choices[at].way.clone()).collect()
    }
}

/// Rates of kin differ by at most this part, and drops by as much.
const NEAR: f64 = 0.02;

fn kin(problem: &Problem, wanted: &Wanted<'_>, listed: &[Rc<Listed>]) -> Vec<Kin> {
    let mut found: Vec<Kin> = Vec::new();
    for (at, chain) in problem.chains.iter().enumerate() {
        let has_same_ways = |first: usize| {
            let (first, own) = (&listed[first], &listed[at]);
            let ways = |listed: &Rc<Listed>| listed.choices.iter().map(|choice| choice.way.clone()).collect::<Vec<_>>();
            first.is_complete && own.is_complete || ways(first) == ways(own)
        };
        let is_of = |first: usize| {
            is_kin(&problem.chains[first], chain) && wanted.now(first) == wanted.now(at) && has_same_ways(first)
        };
        let of = found.iter_mut().find(|kin| is_of(kin.members[0]));
        match of {
            Some(kin) => {
                kin.is_uniform &= problem.chains[kin.members[0]] == *chain;
                kin.members.push(at);
                Rc::make_mut(&mut kin.envelope).cover(&listed[at]);
            }
            None => found.push(Kin { members: vec![at], envelope: Rc::clone(&listed[at]), is_uniform: true }),
        }
    }
    found
}

fn is_kin(one: &Chain, other: &Chain) -> bool {
    let same = |a: f64, b: f64| a == b || (a - b).abs() <= NEAR * a.abs().max(b.abs());
    let near = |a: &super::Sensitivity, b: &super::Sensitivity| {
        let parts = |drop: &super::Sensitivity| [drop.cache, drop.memory, drop.constant];
        parts(a).into_iter().zip(parts(b)).all(|(a, b)| (a - b).abs() <= NEAR)
    };
    let alike = |(a, b): (&Function, &Function)| {
        let rates = a.rates.iter().zip(&b.rates).all(|(a, b)| same(*a, *b));
        a.metric == b.metric && a.shape == b.shape && rates && near(&a.local, &b.local) && near(&a.remote, &b.remote)
    };
    let limits = one.home == other.home && one.copies == other.copies && one.least == other.least;
    let yields = same(one.rate, other.rate) && same(one.weight, other.weight);
    let length = one.functions.len() == other.functions.len();
    limits && yields && length && one.functions.iter().zip(&other.functions).all(alike)
}

fn cores_and_moves(problem: &Problem, wanted: &Wanted<'_>) -> Vec<usize> {
    let moves = wanted.from.as_ref().map_or(usize::MAX, |from| from.most);
    problem.domains.iter().map(|domain| domain.cores).chain([moves]).collect()
}

/// Tightens the bounds of loads by how many functions a domain's cores hold, and how many must be there as the others
/// are full.
fn bound_by_cores(problem: &Problem, resources: Resources, least: &mut [f64], most: &mut [f64]) {
    let functions =
        || problem.chains.iter().flat_map(|chain| chain.functions.iter().map(move |function| (chain.home, function)));
    let mut demands: Vec<_> = functions().map(|(_, function)| 1.0 / function.metric).collect();
    demands.sort_by(f64::total_cmp);
    let all: usize = problem.domains.iter().map(|domain| domain.cores).sum();
    let home = problem.chains.first().map(|chain| chain.home).filter(|home| functions().all(|(of, _)| of == *home));
    for (at, domain) in problem.domains.iter().enumerate() {
        let held: f64 = demands.iter().rev().take(domain.cores).sum();
        for resource in [resources.cache(at), resources.link(at)] {
            most[resource] = most[resource].min(held);
        }
        let must = demands.len().saturating_sub(all - domain.cores);
        let load: f64 = demands.iter().take(must).sum();
        // On a remote domain not every function adds to the cache's load.
        if let Some(home) = home {
            let resource = if home == at { resources.cache(at) } else { resources.link(at) };
            least[resource] = least[resource].max(load);
        }
    }
}
