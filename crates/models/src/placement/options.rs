//! The ways in which each chain can be placed, in the form that the search uses: loads are sums, and a chain's value
//! depends only on the loads.
//!
//! The resources are the cache, the link and the memory of each domain. A way adds a load to some of them. A function's
//! rate is a constant minus one [term](Term) for each resource that the function competes for. So for given loads, the
//! value of each chain is independent of the other chains. Every term increases with its load, so more load never
//! increases a value. The bounds of the search rely on this.

use std::rc::Rc;

mod listing;

use listing::{listed, shares};

use super::baselines::{node_balancing, node_first};
use super::model::{Chain, Domain, Function, Problem, Way};
use super::wanted::Wanted;

/// The reduction of a function's rate by one resource: `scale · g((load − own) / limit)`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    /// The index of the resource, see [`Resources`].
    pub(super) resource: usize,
    /// The reduction at competing level 1, in packets per second.
    scale: f64,
    /// The part of the load that the function adds itself. The function does not compete with this part.
    own: f64,
    /// 1 / limit.
    per_limit: f64,
    /// h, or infinite if the term is linear.
    half: f64,
}

impl Term {
    /// Returns the reduction with these loads, in packets per second.
    fn at(&self, loads: &[f64]) -> f64 {
        let level = (loads[self.resource] - self.own).max(0.0) * self.per_limit;
        let level = level.min(1.0);
        if self.half.is_infinite() {
            self.scale * level
        } else {
            self.scale * level * (1.0 + self.half) / (level + self.half)
        }
    }

    /// Returns a lower bound of the mean increase of the term per unit of load, from `loads` to any loads up to `most`.
    /// The term is concave, so the bound is the slope of the chord from `loads` to `most`. 0 if the load is already
    /// `most`.
    fn slope(&self, loads: &[f64], most: &[f64]) -> f64 {
        let room = most[self.resource] - loads[self.resource];
        if room <= 1e-12 * most[self.resource] {
            return 0.0;
        }
        (self.at(most) - self.at(loads)) / room
    }
}

/// The rate of a function on one core, as a function of the loads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    /// The rate without competitors, in packets per second.
    base: f64,
    /// The term of the cache, and the term of the memory or of the link.
    pub(super) terms: [Term; 2],
}

impl Seat {
    /// Returns the rate with these loads, which include its own load, in packets per second.
    fn rate(&self, loads: &[f64]) -> f64 {
        (self.base - self.terms[0].at(loads) - self.terms[1].at(loads)).max(0.0)
    }

    /// True if λ would be above 1 with these loads.
    fn is_clamped(&self, loads: &[f64]) -> bool {
        self.base - self.terms[0].at(loads) - self.terms[1].at(loads) < 0.0
    }
}

/// One way to place a chain.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) way: Way,
    /// The domains of the way, each with the number of cores that the way uses there. If functions move, an additional
    /// last entry has the number of domains as index and the number of functions that move, as in [`Space::cores`].
    pub(super) used: Vec<(usize, usize)>,
    /// The domains of the way, each once, in the order in which the way first uses them.
    pub(super) firsts: Vec<usize>,
    /// The loads that the way adds to the loads that all ways of its chain have, each with the index of the resource.
    pub(super) loads: Vec<(usize, f64)>,
    /// Its functions. Copies on one domain have one seat. Empty if the chain is rejected.
    pub(super) seats: Vec<Seat>,
    /// The way's value, if the value does not depend on the rate.
    fixed: Option<f64>,
}

impl Choice {
    /// Subtracts the way's cores and moves from `remaining` (see [`Space::cores`]). Returns `false` if there are too
    /// few. Some entries of `remaining` may then be changed already, so the caller must discard it.
    pub(super) fn is_taken_from(&self, remaining: &mut [usize]) -> bool {
        let mut take = |&(domain, cores): &(usize, usize)| match remaining[domain].checked_sub(cores) {
            Some(fewer) => {
                remaining[domain] = fewer;
                true
            }
            None => false,
        };
        self.used.iter().all(&mut take)
    }

    /// True if `remaining` has enough cores and moves for the way.
    pub(super) fn fits(&self, remaining: &[usize]) -> bool {
        self.used.iter().all(|&(domain, cores)| cores <= remaining[domain])
    }
}

/// A chain with all its ways.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    /// The ways that are listed. Symmetry breaking relies on their order.
    pub(super) choices: Vec<Choice>,
    /// True if all ways are listed.
    pub(super) is_complete: bool,
    /// The index in `choices` of each split way; `None` if the way is left out. The position in this list is the number
    /// whose digits are the domains of the way. The list is empty if the chain has too many split ways.
    numbers: Vec<Option<usize>>,
    /// The number of domains.
    domains: usize,
    /// If not all ways are listed: an upper bound of the value of each way.
    pub(super) ceiling: f64,
    /// The load of all its functions, or of the largest number of copies of the chain.
    pub(super) demand: f64,
    /// The value of a packet.
    weight: f64,
    /// The packets per second that the chain should forward.
    rate: f64,
    /// The least packets per second of an allowed way.
    least: f64,
    /// The way in which it runs now, if it runs and this way is listed.
    pub(super) now: Option<usize>,
}

impl Listed {
    /// Returns a bound of all ways: the larger of `best`, the bound of the listed ways, and `ceiling`, the bound of the
    /// other ways. `None` if there is no way.
    pub(super) fn limited(&self, best: Option<f64>, ceiling: f64) -> Option<f64> {
        if self.is_complete { best } else { Some(best.map_or(ceiling, |best| best.max(ceiling))) }
    }

    /// Raises all values, so that they are at least the values of `other`, a chain with the same ways and loads.
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

    /// Returns true if [`with`](Self::with) can find ways. False if the chain has too many split ways.
    pub(super) fn is_numbered(&self) -> bool {
        !self.numbers.is_empty()
    }

    /// Returns the index of the way that is the way `at` with the function `place` on `domain`. `None` if this way is
    /// not listed, or if the chain is not [numbered](Self::is_numbered).
    pub(super) fn with(&self, at: usize, place: usize, domain: usize) -> Option<usize> {
        let Way::Split(domains) = &self.choices[at].way else { return None };
        // For long chains, the number could overflow.
        if !self.is_numbered() {
            return None;
        }
        let digit = |(index, &own): (usize, &usize)| if index == place { domain } else { own };
        let number = domains.iter().enumerate().map(digit).fold(0, |number, digit| number * self.domains + digit);
        *self.numbers.get(number)?
    }

    /// Returns the value of a way with these loads, which include its own loads, and the index of its slowest seat.
    /// `None` below the least rate.
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

    /// Returns the two resources of the slowest seat, each with the least decrease of the way's value per unit of
    /// additional load up to `most`. `seat` is the index that [`value`](Self::value) has returned.
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

/// Chains that add the same loads in each way and have nearly the same rates. Exchanging two of them does not change
/// the loads.
#[derive(Clone, Debug)]
pub(super) struct Kin {
    /// The indices of the chains; not empty.
    pub(super) members: Vec<usize>,
    /// The ways of the members, with values that are at least as large as the values of each member.
    pub(super) envelope: Rc<Listed>,
    /// True if all members are equal.
    pub(super) is_uniform: bool,
}

/// A problem in the search's form.
#[derive(Clone, Debug)]
pub(super) struct Space {
    pub(super) chains: Vec<Rc<Listed>>,
    /// Groups of chains; each chain is in one of them.
    pub(super) kin: Vec<Kin>,
    /// By resource: the load that every placement has. The loads of ways are added to this load.
    pub(super) always: Vec<f64>,
    /// By resource: a lower bound of the load of every placement, from the number of cores.
    pub(super) least: Vec<f64>,
    /// By resource: an upper bound of the load of every placement.
    pub(super) most: Vec<f64>,
    /// The cores of each domain, and at the end the number of functions that may move.
    pub(super) cores: Vec<usize>,
    /// The class of each domain, and at the end a separate class for the moves.
    pub(super) classes: Vec<usize>,
    /// Placements that are known without a search: the way of each chain.
    pub(super) hints: Vec<Vec<usize>>,
}

/// Indices of the resources of a domain.
#[derive(Clone, Copy)]
struct Resources {
    /// The number of domains.
    domains: usize,
}

impl Resources {
    /// Returns the index of the domain's last-level cache.
    fn cache(self, domain: usize) -> usize {
        domain
    }
    /// Returns the index of the domain's link to other domains.
    fn link(self, domain: usize) -> usize {
        self.domains + domain
    }
    /// Returns the index of the domain's memory controller.
    fn memory(self, domain: usize) -> usize {
        2 * self.domains + domain
    }
    /// Returns the number of resources of all domains.
    fn count(self) -> usize {
        3 * self.domains
    }
}

impl Space {
    /// Creates the form of a problem that the search uses. The problem must be valid.
    pub(super) fn of(problem: &Problem, wanted: &Wanted<'_>) -> Self {
        let resources = Resources { domains: problem.domains.len() };
        // For long chains, only some ways are listed. The ways of these two placements are always listed, so that a
        // placement is found even if there are few cores.
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
                // A way that is not listed may add less, and may add all of its functions' load to one resource.
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
        // If moves are counted, equal domains differ by the functions that run there now.
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

    /// Returns the sum of the values of all chains. `chosen` has the index of each chain's way in [`Listed::choices`],
    /// here and in the methods below. `None` if a chain is below its least rate. Cores are not checked.
    pub(super) fn total(&self, chosen: &[usize]) -> Option<f64> {
        let loads = self.loads(chosen);
        self.chains.iter().zip(chosen).map(|(chain, &at)| Some(chain.value(&chain.choices[at], &loads)?.0)).sum()
    }

    /// Returns the number of domains.
    pub(super) fn domains(&self) -> usize {
        self.cores.len() - 1
    }

    /// Returns the loads of a placement, by resource.
    pub(super) fn loads(&self, chosen: &[usize]) -> Vec<f64> {
        let mut loads = self.always.clone();
        for (chain, &at) in self.chains.iter().zip(chosen) {
            chain.choices[at].loads.iter().for_each(|(resource, load)| loads[*resource] += load);
        }
        loads
    }

    /// True if there are enough cores for the chosen ways.
    pub(super) fn fits(&self, chosen: &[usize]) -> bool {
        let mut remaining = self.cores.clone();
        self.chains.iter().zip(chosen).all(|(chain, &at)| chain.choices[at].is_taken_from(&mut remaining))
    }

    /// Returns the placement in the form of the problem.
    pub(super) fn placement(&self, chosen: &[usize]) -> Vec<Way> {
        self.chains.iter().zip(chosen).map(|(chain, &at)| chain.choices[at].way.clone()).collect()
    }
}

/// The largest relative difference of rates, and the largest difference of drops, between kin.
const NEAR: f64 = 0.02;

/// Returns the groups of kin.
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

/// Returns true if two chains add the same loads in each way and differ by at most `NEAR` in rates and drops.
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

/// Returns the cores of each domain, and at the end the number of functions that may move.
fn cores_and_moves(problem: &Problem, wanted: &Wanted<'_>) -> Vec<usize> {
    let moves = wanted.from.as_ref().map_or(usize::MAX, |from| from.most);
    problem.domains.iter().map(|domain| domain.cores).chain([moves]).collect()
}

/// Tightens the bounds of loads. The upper bound follows from the number of functions that fit on a domain's cores, and
/// the lower bound from the number of functions that must run there because the other domains are full. Valid only if
/// each function needs a core and no chain is rejected.
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
        // On a remote domain, not every function adds to the load of the cache.
        if let Some(home) = home {
            let resource = if home == at { resources.cache(at) } else { resources.link(at) };
            least[resource] = least[resource].max(load);
        }
    }
}
