//! Finds the best placement, with proof, by branch and bound over chains.
//!
//! A [node](Level) places the first chains of an order. Its bound is the value of the placed chains at the present
//! loads, plus the best way of each remaining chain at these loads, minus the loss that this way's load causes to the
//! placed chains. The slowest function of a placed chain loses at least the slope of the chord per unit of load. Cores
//! have prices by domain. With prices, each remaining chain can be considered alone, and the bound is a sum over
//! chains. The search has a placement and a bound whenever it is stopped, so the gap between them is certified.
//!
//! The bound is loose, because remaining chains do not consider each other's loads. So a longer search starts again in
//! [slices](Slice). Within a slice, the load of the home's cache is at least the slice's lower end.
//!
//! Placements that differ only in the numbering of equal domains are searched once: the domains of a class are used by
//! ascending number. [Kin](Kin) are chains that add the same loads. Placements that differ only in an exchange of kin
//! are also searched once: from one chain of a kin to the next, the number of the way does not decrease. When all ways
//! are chosen, the best assignment of kin to ways is calculated.

mod bound;
mod root;

use root::{FREE, OpenSlice, PRICED, Prices, Slice};

use super::assignment::assign;
use super::improve::Improve;
use super::model::{Chain, Placement, Problem, ProblemError};
use super::options::{Kin, Space};
use super::wanted::{Objective, Wanted};

/// The limits of the search.
#[derive(Clone, Copy)]
pub struct Effort<'t> {
    /// The largest number of nodes.
    pub nodes: u64,
    /// Returns true if the search must end, for example because the time is over. Called regularly.
    pub is_over: &'t dyn Fn() -> bool,
}

/// The best placement found, with an upper bound of the value of all placements.
#[derive(Clone, Debug, PartialEq)]
pub struct Certificate {
    /// The best placement found.
    pub placement: Placement,
    /// Its value: the sum over chains, or the number of used cores as a negative number.
    pub value: f64,
    /// An upper bound of the value of all placements.
    pub bound: f64,
    /// The number of nodes whose bound was calculated.
    pub nodes: u64,
}

impl Certificate {
    /// Returns `(bound − value) / |bound|`; 0 for a proved optimum.
    #[must_use]
    pub fn gap(&self) -> f64 {
        if self.bound == 0.0 { 0.0 } else { ((self.bound - self.value) / self.bound.abs()).max(0.0) }
    }
}

/// The relative difference below which values count as equal.
const SAME: f64 = 1e-9;
/// The number of nodes after which a search starts again in [slices](Slice): ranges of the load of the home's cache.
const FIRST_NODES: u64 = 3_000;
/// The number of ways that are examined in the slices before the slices are divided further, for a better bound.
const SECOND_WORK: u64 = 20_000_000;
/// The number of examined ways after which the heuristic search looks for a better placement. It looks again whenever
/// the number has doubled.
const FIRST_IMPROVING: u64 = 500_000;
/// For this number of ways that the search examines, the heuristic search may calculate the value of one placement.
const WAYS_PER_VALUE: u64 = 60;
/// The number of examined ways between two checks of the time.
const LOOK_EVERY: u64 = 20_000;

/// Returns the best placement of all chains, or the best that `effort` allows, with a bound that is valid in either
/// case. `None` if no placement has enough cores and keeps the least rate of each chain, or if none was found.
///
/// # Errors
/// [`ProblemError`]: the problem is invalid.
pub fn exact(problem: &Problem, effort: &Effort<'_>) -> Result<Option<Certificate>, ProblemError> {
    exact_for(problem, &Wanted::default(), effort)
}

/// Returns the best placement, like [`exact`], for other [objectives and constraints](Wanted).
///
/// # Errors
/// [`ProblemError`]: the problem is invalid, or the present placement does not belong to it.
pub fn exact_for(
    problem: &Problem,
    wanted: &Wanted<'_>,
    effort: &Effort<'_>,
) -> Result<Option<Certificate>, ProblemError> {
    wanted.check(problem)?;
    let space = Space::of(problem, wanted);
    let mut search = Search::new(problem, &space, wanted.objective, effort);
    search.run();
    let Search { chosen, best, open, nodes, .. } = search;
    let bound = best.max(open);
    let (value, bound) = match wanted.objective {
        Objective::Rates => (best, bound),
        Objective::Cores => {
            let most: usize = problem.chains.iter().map(Chain::most_cores).sum();
            (best - most as f64, (bound + 1e-6).floor() - most as f64)
        }
    };
    Ok(chosen.map(|chosen| Certificate { placement: space.placement(&chosen), value, bound, nodes }))
}

/// The state of the search.
struct Search<'s> {
    space: &'s Space,
    effort: &'s Effort<'s>,
    /// The kin of each chain, in the order in which chains are placed. The members of a kin follow each other.
    order: Vec<usize>,
    /// The slice that is searched now.
    slice: Slice,
    /// Two sets of prices: all prices 0 (`FREE`), and the prices with a low bound at the root (`PRICED`).
    prices: [Prices; 2],
    /// By kin: the indices of the ways that use the domains of each class by ascending number. At the root, each other
    /// way has the same value as one of these ways.
    firsts: Vec<Vec<usize>>,
    improve: Improve<'s>,
    /// The value of the best placement so far; −∞ without one.
    best: f64,
    objective: Objective,
    /// By chain: the way in the best placement so far.
    chosen: Option<Vec<usize>>,
    /// The largest bound of the placements that were not searched; −∞ if all placements were searched.
    open: f64,
    /// The number of nodes whose bound was calculated.
    nodes: u64,
    /// The number of examined ways.
    work: u64,
    /// The value of `work` at which the time is checked next.
    next_look: u64,
    /// The value of `work` at which the heuristic search looks for a better placement next.
    next_improving: u64,
    /// The point at which the search stops, to start again in other slices.
    stop: Stop,
    /// The number of ways examined for prices since the last check of the time.
    since_look: usize,
    /// True if the effort is used up. Nothing is searched any more.
    is_over: bool,
    /// The state at each depth. The depth is the number of placed chains.
    levels: Vec<Level>,
}

/// The point at which the present search stops, to start again in other slices.
#[derive(Clone, Copy)]
struct Stop {
    /// The number of nodes since the start.
    nodes: u64,
    /// The number of examined ways since the start.
    work: u64,
}

/// The state of the search at one depth; each node overwrites it.
#[derive(Clone, Default)]
struct Level {
    /// By resource: the load of the placed chains plus the load that every placement has ([`Space::always`]).
    loads: Vec<f64>,
    /// By resource: a lower bound of the value that the placed chains lose per unit of additional load.
    slopes: Vec<f64>,
    /// The free cores by domain, and at the end the remaining number of moves.
    cores: Vec<usize>,
    /// The value of the placed chains.
    worth: f64,
    /// The ways of the next chain with their bounds, sorted by falling bound.
    ways: Vec<(f64, usize)>,
    /// The part of the bound that does not depend on the way of the next chain.
    rest: f64,
    /// By domain: true if a placed chain uses it.
    is_used: Vec<bool>,
    /// Memory for loads that are changed temporarily.
    scratch: Vec<f64>,
}

impl<'s> Search<'s> {
    /// Creates a search of the whole problem, without a placement and with all prices 0.
    fn new(problem: &Problem, space: &'s Space, objective: Objective, effort: &'s Effort<'s>) -> Self {
        let mut kin: Vec<_> = (0..space.kin.len()).collect();
        // Chains with the largest loads come first, so that their effect on others is known early.
        let demand = |kin: usize| {
            let chain = &problem.chains[space.kin[kin].members[0]];
            chain.functions.iter().map(|function| 1.0 / function.metric).sum::<f64>()
        };
        kin.sort_by(|&a, &b| demand(b).total_cmp(&demand(a)));
        let order: Vec<_> = kin.iter().flat_map(|&kin| vec![kin; space.kin[kin].members.len()]).collect();
        let domains = space.cores.len();
        let level = Level {
            loads: space.always.clone(),
            slopes: vec![0.0; space.always.len()],
            cores: space.cores.clone(),
            is_used: vec![false; domains],
            scratch: space.always.clone(),
            ..Level::default()
        };
        let mut search = Self {
            space,
            effort,
            levels: vec![level; order.len() + 1],
            order,
            slice: space.slice(problem),
            prices: [(); 2].map(|()| Prices { cores: vec![0.0; domains], ..Prices::default() }),
            firsts: Vec::new(),
            improve: Improve::new(space, effort.is_over),
            best: f64::NEG_INFINITY,
            objective,
            chosen: None,
            open: f64::NEG_INFINITY,
            nodes: 0,
            work: 0,
            next_look: LOOK_EVERY,
            next_improving: FIRST_IMPROVING,
            stop: Stop { nodes: FIRST_NODES, work: u64::MAX },
            since_look: 0,
            is_over: false,
        };
        let firsts = |kin: &Kin| {
            let choices = &kin.envelope.choices;
            (0..choices.len())
                .filter(|at| search.is_first_of_its_like(&choices[*at].firsts, &search.levels[0]))
                .collect()
        };
        search.firsts = space.kin.iter().map(firsts).collect();
        search
    }

    /// Searches all placements: first as a whole, then in slices, until the effort is used up. Sets the best placement
    /// and `open`.
    fn run(&mut self) {
        let found = self.improve.start();
        self.take(found);
        self.price();
        self.stop = Stop { nodes: FIRST_NODES, work: u64::MAX };
        self.search();
        if self.open == f64::NEG_INFINITY || self.is_over {
            return;
        }
        let open = std::mem::replace(&mut self.open, f64::NEG_INFINITY);
        let mut slices = self.equal_slices(open);
        for most_work in [SECOND_WORK, u64::MAX] {
            // Slices near a good placement are searched first.
            let good = self.chosen.as_ref().map_or(0.0, |chosen| self.space.loads(chosen)[self.slice.resource]);
            let distance = |OpenSlice { slice, .. }: &OpenSlice| ((slice.least + slice.most) / 2.0 - good).abs();
            slices.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
            self.stop = Stop { nodes: u64::MAX, work: self.work.saturating_add(most_work) };
            slices = slices.into_iter().filter_map(|slice| self.search_slice(slice)).collect();
            self.divide(&mut slices);
        }
        self.open = slices.iter().map(|slice| slice.bound).fold(f64::NEG_INFINITY, f64::max);
    }

    /// Searches a slice. If the search was not complete, returns the slice with a new bound. `None` if no better
    /// placement can remain in the slice.
    fn search_slice(&mut self, mut slice: OpenSlice) -> Option<OpenSlice> {
        if !self.promises(slice.bound) {
            return None;
        }
        if self.is_over || self.is_to_stop() {
            return Some(slice);
        }
        (self.slice, self.prices[PRICED]) = (slice.slice, slice.prices.clone());
        self.open = f64::NEG_INFINITY;
        self.search();
        slice.bound = slice.bound.min(self.open);
        (self.open > f64::NEG_INFINITY).then_some(slice)
    }

    /// Searches the present slice.
    fn search(&mut self) {
        self.limit(FREE);
        self.limit(PRICED);
        let mut chosen = vec![0; self.order.len()];
        if let Some(bound) = self.bound(0, &chosen)
            && self.promises(bound)
        {
            self.descend(0, &mut chosen);
        }
    }

    /// Remembers a placement, by chain, if it is better than the best placement so far.
    fn take(&mut self, found: Option<(Vec<usize>, f64)>) {
        if let Some((chosen, value)) = found
            && value > self.best
        {
            self.best = value;
            self.chosen = Some(chosen);
        }
    }

    /// Returns true if a placement whose value is at most `bound` can be better than the best placement so far.
    fn promises(&self, bound: f64) -> bool {
        let least = match self.objective {
            Objective::Rates => SAME * self.best.abs(),
            // The number of cores is whole.
            Objective::Cores => 1.0 - 1e-6,
        };
        self.chosen.is_none() || bound > self.best + least
    }

    /// Searches the ways that [`bound`](Self::bound) has listed at this depth, the highest bound first. Raises `open`
    /// to the highest bound of the ways that are not searched.
    fn descend(&mut self, depth: usize, chosen: &mut Vec<usize>) {
        let Some(&kin) = self.order.get(depth) else { return self.leaf(chosen) };
        let listed = &self.space.kin[kin].envelope;
        if !listed.is_complete {
            // Ways that are not listed are not searched.
            let bound = self.levels[depth].rest + self.ceiling(listed, self.priced(depth));
            if self.promises(bound) {
                self.open = self.open.max(bound);
            }
        }
        let mut index = 0;
        while let Some(&(bound, at)) = self.levels[depth].ways.get(index) {
            index += 1;
            if !self.promises(bound) {
                break;
            }
            self.look();
            if self.is_over || self.is_to_stop() {
                // The following ways have lower bounds.
                self.open = self.open.max(bound);
                break;
            }
            chosen[depth] = at;
            if self.place(depth, at, chosen)
                && let Some(bound) = self.bound(depth + 1, chosen)
                && self.promises(bound)
            {
                self.descend(depth + 1, chosen);
            }
        }
    }

    /// Returns true if the present search must stop, so that it starts again in other slices.
    fn is_to_stop(&self) -> bool {
        self.nodes >= self.stop.nodes || self.work >= self.stop.work
    }

    /// Checks the effort, and sometimes lets the heuristic search look for a better placement.
    fn look(&mut self) {
        self.is_over |= self.nodes >= self.effort.nodes;
        if self.work >= self.next_look {
            self.next_look = self.work + LOOK_EVERY;
            self.is_over |= (self.effort.is_over)();
        }
        if self.work >= self.next_improving {
            self.next_improving = 2 * self.work;
            let values = self.work / WAYS_PER_VALUE;
            let found = self.improve.wander(self.chosen.as_deref(), values);
            self.take(found);
        }
    }

    /// Values a complete placement. All loads are known, so the best assignment of the chosen ways to the members of
    /// each kin is an assignment problem.
    fn leaf(&mut self, chosen: &[usize]) {
        let loads = &self.levels[chosen.len()].loads;
        let (mut worth, mut by_chain) = (0.0, vec![0; chosen.len()]);
        let mut at = 0;
        while let Some(&kin) = self.order.get(at) {
            let Kin { members, is_uniform, .. } = &self.space.kin[kin];
            let ways = &chosen[at..at + members.len()];
            at += members.len();
            let value = |member: usize, slot: usize| {
                let listed = &self.space.chains[members[member]];
                listed.value(&listed.choices[ways[slot]], loads).map_or(f64::NEG_INFINITY, |(value, _)| value)
            };
            let slots = if *is_uniform { (0..members.len()).collect() } else { assign(members.len(), &value) };
            for (member, &slot) in slots.iter().enumerate() {
                worth += value(member, slot);
                by_chain[members[member]] = ways[slot];
            }
        }
        self.take(Some((by_chain, worth)));
    }

    /// Writes the level at `depth + 1`, with the next chain placed in the way `at`. Returns `false` if a placed chain
    /// is then below its least rate.
    fn place(&mut self, depth: usize, at: usize, chosen: &[usize]) -> bool {
        let (above, below) = self.levels.split_at_mut(depth + 1);
        let (above, below) = (&above[depth], &mut below[0]);
        let choice = &self.space.kin[self.order[depth]].envelope.choices[at];
        below.loads.clone_from(&above.loads);
        choice.loads.iter().for_each(|(resource, load)| below.loads[*resource] += load);
        below.cores.clone_from(&above.cores);
        choice.used.iter().for_each(|(domain, cores)| below.cores[*domain] -= cores);
        below.is_used.clone_from(&above.is_used);
        choice.firsts.iter().for_each(|domain| below.is_used[*domain] = true);
        below.slopes.clear();
        below.slopes.resize(above.slopes.len(), 0.0);
        below.worth = 0.0;
        below.scratch.clone_from(&below.loads);
        let Slice { resource, least, .. } = self.slice;
        if depth + 1 < self.order.len() {
            below.scratch[resource] = below.scratch[resource].max(least);
        }
        for (&kin, &way) in self.order[..=depth].iter().zip(chosen) {
            let listed = &self.space.kin[kin].envelope;
            let choice = &listed.choices[way];
            let Some((value, seat)) = listed.value(choice, &below.scratch) else { return false };
            below.worth += value;
            for (resource, slope) in listed.slopes(choice, seat, &below.scratch, &self.space.most) {
                below.slopes[resource] += slope;
            }
        }
        true
    }
}
