//! Heuristic searches: the start of the exact search, and improvements of its best placement.

use super::options::Space;

/// Improves placements by moves of single chains and functions, and by exchanges of two functions' domains.
pub(super) struct Improve<'s> {
    space: &'s Space,
    /// The state of the random numbers. It is not 0.
    random: u64,
    /// The number of placements that may still be valued. This limit does not depend on the time.
    remaining: u64,
    /// Returns true if the time is over.
    look_at_time: &'s dyn Fn() -> bool,
    /// The number of chain values that were calculated since the last check of the time.
    since_look: usize,
    /// True if the time is over.
    is_over: bool,
}

/// The number of placements that may be valued at the start, and after each simulated annealing.
const START: u64 = 20_000;
/// If a chain has at most this number of ways, each way is tried. A chain with more ways is moved function by function,
/// if its ways are [numbered](super::options::Listed::is_numbered).
const FEW_WAYS: usize = 128;

impl<'s> Improve<'s> {
    /// Creates a search. `look_at_time` returns true when the time is over.
    pub(super) fn new(space: &'s Space, look_at_time: &'s dyn Fn() -> bool) -> Self {
        Self { space, random: 0x9E37_79B9_7F4A_7C15, remaining: 0, look_at_time, since_look: 0, is_over: false }
    }

    /// Adds `values` to the number of chain values that were calculated. Checks the time at most once per `LOOK_EVERY`
    /// values, because each check takes time.
    fn count(&mut self, values: usize) {
        const LOOK_EVERY: usize = 20_000;
        self.since_look += values;
        if self.since_look >= LOOK_EVERY && !self.is_over {
            self.since_look = 0;
            self.is_over = (self.look_at_time)();
        }
    }

    /// Returns a first placement, by chain, and its value. Places chains one after the other, each in its best
    /// remaining way, and then improves the placement by moves. When the time is over, each chain gets the way with the
    /// best value of this chain alone, and no moves are made. `None` if no placement was found.
    pub(super) fn start(&mut self) -> Option<(Vec<usize>, f64)> {
        self.remaining = START;
        let chains = self.space.chains.len();
        let orders: [Vec<_>; 2] = [(0..chains).collect(), (0..chains).rev().collect()];
        let mut best: Option<(Vec<usize>, f64)> = None;
        let free: Vec<Option<usize>> = vec![None; chains];
        let now: Vec<_> = self.space.chains.iter().map(|chain| chain.now).collect();
        let starts = [(&orders[0], &free), (&orders[1], &free), (&orders[0], &now)];
        for (order, start) in starts.into_iter().take(if now == free { 2 } else { 3 }) {
            if self.is_over && best.is_some() {
                break;
            }
            if let Some(mut chosen) = self.greedy(order, start)
                && let Some(value) = self.descend(&mut chosen)
                && best.as_ref().is_none_or(|(_, most)| value > *most)
            {
                best = Some((chosen, value));
            }
        }
        for mut chosen in self.space.hints.iter().filter(|_| best.is_none()).cloned().collect::<Vec<_>>() {
            if self.space.fits(&chosen)
                && let Some(value) = self.descend(&mut chosen)
                && best.as_ref().is_none_or(|(_, most)| value > *most)
            {
                best = Some((chosen, value));
            }
        }
        best
    }

    /// Continues from a placement by simulated annealing (Kirkpatrick, Gelatt and Vecchi 1983) with `effort` steps,
    /// then by moves. Returns the best placement found and its value, which may be that of `from`. `None` without
    /// `from`.
    pub(super) fn wander(&mut self, from: Option<&[usize]>, effort: u64) -> Option<(Vec<usize>, f64)> {
        /// The temperature at the start and at the end. A change that reduces the value by this fraction of the best
        /// value is accepted with probability 1/e.
        const HEAT: [f64; 2] = [3e-3, 3e-5];
        const LOOK_EVERY: u64 = 1_000;
        let mut now = from?.to_vec();
        let mut value = self.space.total(&now)?;
        let (mut best, mut most) = (now.clone(), value);
        for step in 0..effort {
            if step % LOOK_EVERY == 0 && (self.look_at_time)() {
                break;
            }
            let Some(was) = self.disturb(&mut now) else { continue };
            let heat = HEAT[0] * (HEAT[1] / HEAT[0]).powf(step as f64 / effort as f64) * most.abs();
            match self.space.total(&now) {
                Some(next) if next >= value || self.chance() < ((next - value) / heat).exp() => {
                    value = next;
                    if value > most {
                        (best, most) = (now.clone(), value);
                    }
                }
                _ => was.into_iter().rev().for_each(|(chain, at)| now[chain] = at),
            }
        }
        self.remaining = START;
        let value = self.descend(&mut best)?;
        Some((best, value))
    }

    /// Makes a random change: gives a chain another way, moves a function, or exchanges the domains of two functions.
    /// Returns the changed chains with their earlier ways. `None` if nothing changed.
    fn disturb(&mut self, chosen: &mut [usize]) -> Option<[(usize, usize); 2]> {
        let [chain, other] = [(); 2].map(|()| self.below(chosen.len()));
        let was = [(chain, chosen[chain]), (other, chosen[other])];
        let length = |chain: usize| self.space.chains[chain].choices[chosen[chain]].way.domains().len();
        let (own_length, other_length) = (length(chain), length(other));
        let (own, target) = (self.below(own_length), self.below(other_length));
        let is_changed = match self.below(8) {
            0 => {
                chosen[chain] = self.below(self.space.chains[chain].choices.len());
                true
            }
            1..4 => {
                let domain = self.below(self.space.domains());
                let moved = self.space.chains[chain].with(chosen[chain], own, domain);
                chosen[chain] = moved.unwrap_or(chosen[chain]);
                moved.is_some()
            }
            _ => self.swap(chosen, (chain, own), (other, target)),
        };
        if is_changed && self.space.fits(chosen) {
            return Some(was);
        }
        was.into_iter().for_each(|(chain, at)| chosen[chain] = at);
        None
    }

    /// Returns a random number from 0 to 1.
    fn chance(&mut self) -> f64 {
        self.below(1 << 30) as f64 / f64::from(1 << 30)
    }

    /// Exchanges the domains of two functions. Returns `false` if they are on one domain, or if the new ways are not
    /// listed.
    fn swap(&self, chosen: &mut [usize], (one, at): (usize, usize), (other, other_at): (usize, usize)) -> bool {
        let domain =
            |chain: usize, at: usize| self.space.chains[chain].choices[chosen[chain]].way.domains().get(at).copied();
        let (Some(from), Some(to)) = (domain(one, at), domain(other, other_at)) else { return false };
        let Some(first) = self.space.chains[one].with(chosen[one], at, to) else { return false };
        let was = std::mem::replace(&mut chosen[one], first);
        match self.space.chains[other].with(chosen[other], other_at, from) {
            Some(second) if from != to => {
                chosen[other] = second;
                true
            }
            _ => {
                chosen[one] = was;
                false
            }
        }
    }

    /// Returns a random number below `end`, or 0 if `end` is 0 (xorshift, Marsaglia 2003).
    fn below(&mut self, end: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % end.max(1) as u64) as usize
    }

    /// Makes moves and exchanges as long as they improve the value. Returns the value. `None` if a chain of the given
    /// placement is below its least rate.
    fn descend(&mut self, chosen: &mut [usize]) -> Option<f64> {
        let mut best = self.space.total(chosen)?;
        loop {
            let before = best;
            for chain in 0..chosen.len() {
                self.move_chain(chain, chosen, &mut best);
            }
            if best <= before {
                self.exchange(chosen, &mut best);
            }
            if self.remaining == 0 || self.is_over || best <= before {
                return Some(best);
            }
        }
    }

    /// Returns true and updates `best` if this placement is better. Returns false without a calculation if there are
    /// too few cores, no more placements may be valued, or the time is over.
    fn try_out(&mut self, chosen: &[usize], best: &mut f64) -> bool {
        if self.remaining == 0 || self.is_over || !self.space.fits(chosen) {
            return false;
        }
        self.remaining -= 1;
        self.count(chosen.len());
        let total = self.space.total(chosen);
        let is_better = total.is_some_and(|total| total > *best * (1.0 + 1e-12));
        if is_better {
            *best = total.unwrap_or(*best);
        }
        is_better
    }

    /// Gives a chain the best of its ways. If the chain has many ways, only ways that differ in the domain of one
    /// function are tried.
    fn move_chain(&mut self, chain: usize, chosen: &mut [usize], best: &mut f64) {
        let listed = &self.space.chains[chain];
        let mut to = chosen[chain];
        let others: Vec<usize> = if listed.choices.len() <= FEW_WAYS || !listed.is_numbered() {
            (0..listed.choices.len()).filter(|at| *at != to).collect()
        } else {
            let length = listed.choices[to].way.domains().len();
            let each = (0..length).flat_map(|index| (0..self.space.domains()).map(move |domain| (index, domain)));
            each.filter_map(|(index, domain)| listed.with(to, index, domain)).filter(|at| *at != to).collect()
        };
        for at in others {
            chosen[chain] = at;
            if self.try_out(chosen, best) {
                to = at;
            }
        }
        chosen[chain] = to;
    }

    /// Makes the first exchange of the domains of two functions that improves the value, if there is one.
    fn exchange(&mut self, chosen: &mut [usize], best: &mut f64) {
        let seats = |chain: usize| {
            let length = self.space.chains[chain].choices[chosen[chain]].way.domains().len();
            (0..length).map(move |at| (chain, at))
        };
        let numbered = (0..chosen.len()).filter(|chain| self.space.chains[*chain].is_numbered());
        let seats: Vec<_> = numbered.flat_map(seats).collect();
        for (index, &one) in seats.iter().enumerate() {
            if self.remaining == 0 || self.is_over {
                return;
            }
            for &other in &seats[index + 1..] {
                let was = (chosen[one.0], chosen[other.0]);
                if self.swap(chosen, one, other) {
                    if self.try_out(chosen, best) {
                        return;
                    }
                    (chosen[one.0], chosen[other.0]) = was;
                }
            }
        }
    }

    /// Places chains in this order, each in the way that is best together with the chains placed so far. `start` has
    /// the ways of chains that are placed already. Returns the way of each chain, or `None` if a chain has no way.
    fn greedy(&mut self, order: &[usize], start: &[Option<usize>]) -> Option<Vec<usize>> {
        let space = self.space;
        let mut cores = space.cores.clone();
        let mut loads = space.always.clone();
        let mut chosen = start.to_vec();
        for (chain, at) in start.iter().enumerate().filter_map(|(chain, at)| Some((&space.chains[chain], (*at)?))) {
            let choice = &chain.choices[at];
            choice.loads.iter().for_each(|(resource, load)| loads[*resource] += load);
            choice.is_taken_from(&mut cores).then_some(())?;
        }
        for &chain in order.iter().filter(|chain| start[**chain].is_none()) {
            let mut best: Option<(f64, usize)> = None;
            for (at, choice) in space.chains[chain].choices.iter().enumerate() {
                if !choice.fits(&cores) {
                    continue;
                }
                choice.loads.iter().for_each(|(resource, load)| loads[*resource] += load);
                chosen[chain] = Some(at);
                let of = |(chain, at): (usize, &Option<usize>)| {
                    let listed = &space.chains[chain];
                    at.map(|at| listed.value(&listed.choices[at], &loads).map(|(value, _)| value))
                };
                let total: Option<f64> = if self.is_over {
                    space.chains[chain].value(choice, &loads).map(|(value, _)| value)
                } else {
                    chosen.iter().enumerate().filter_map(of).sum()
                };
                choice.loads.iter().for_each(|(resource, load)| loads[*resource] -= load);
                if let Some(total) = total
                    && best.is_none_or(|(most, _)| total > most)
                {
                    best = Some((total, at));
                }
                let was_over = self.is_over;
                self.count(chosen.len());
                if self.is_over && !was_over {
                    // The time is over. Starts again with the quick variant, which values only the new chain.
                    return self.greedy(order, start);
                }
            }
            let (_, at) = best?;
            chosen[chain] = Some(at);
            let choice = &space.chains[chain].choices[at];
            choice.loads.iter().for_each(|(resource, load)| loads[*resource] += load);
            choice.is_taken_from(&mut cores).then_some(())?;
        }
        chosen.into_iter().collect()
    }
}
