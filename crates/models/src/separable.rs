//! Solves the convex programme of the batch model exactly:
//!
//! ```text
//! minimise    Σ_v  gain_v / b_v
//! subject to  Σ_{v in limit} weight_v · b_v ≤ most    for each limit
//!             low_v ≤ b_v ≤ high_v
//! ```
//!
//! For given prices of the limits, each `b_v` is independent of the others, within its bounds: `gain/b² = weight · (sum
//! of the prices of its limits)`. The remaining problem is the dual, a concave function with one price for each limit.
//! Coordinate ascent sets one price after the other to the value at which its limit is reached but not exceeded. This
//! always converges to the optimum. Newton steps for all prices together, between the rounds, make the ascent fast. No
//! step may decrease the dual, because the iteration could then cycle.

/// A variable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    /// The numerator of its term in the objective; 0 or more.
    pub(crate) gain: f64,
    /// Its factor in all limits; above 0.
    pub(crate) weight: f64,
    /// Its lower bound; above 0.
    pub(crate) low: f64,
    /// Its upper bound.
    pub(crate) high: f64,
}

impl Term {
    /// Returns its best value for this sum of prices.
    fn value(&self, price: f64) -> f64 {
        if self.gain == 0.0 {
            return self.low;
        }
        if price <= 0.0 { self.high } else { (self.gain / (self.weight * price)).sqrt().clamp(self.low, self.high) }
    }

    /// Returns its part of a limit, and the derivative of this part by the price, for this sum of prices.
    fn share(&self, price: f64) -> (f64, f64) {
        let value = self.value(price);
        let moves = value > self.low && value < self.high;
        let share = self.weight * value;
        (share, if moves { -share / (2.0 * price) } else { 0.0 })
    }
}

/// A limit on the weighted sum of some variables, each listed once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit<'p> {
    /// The indices of the variables.
    pub(crate) terms: &'p [usize],
    /// The largest weighted sum.
    pub(crate) most: f64,
}

/// The optimum.
#[derive(Clone, Debug)]
pub(crate) struct Solution {
    /// The value of each variable.
    pub(crate) values: Vec<f64>,
    /// For each limit, the decrease of the objective when the limit increases by one.
    pub(crate) prices: Vec<f64>,
}

/// The tolerance of limits, relative to their room above the least values.
const EXACT: f64 = 1e-10;
/// If the room of a limit is less than this fraction of the limit, the tolerance is relative to this fraction.
const NEXT_TO_NOTHING: f64 = 1e-5;
/// The number of rounds after which the present result is used. This is far more than needed.
const ROUNDS: usize = 1_000;
/// A decrease of the dual by at most this fraction counts as a rounding error.
const ROUNDING: f64 = 1e-14;
/// A curvature counts as a rounding error if it is at most this fraction of the curvature that limits without common
/// variables would have.
const FLAT: f64 = 1e-10;
/// The number of rounds between two trials in which the prices of limits that are not reached are set to 0.
const SLOW: usize = 4;
/// The largest number of steps in the search for one price or one direction.
const STEPS: usize = 64;

/// Solves the programme. If the lower bounds of the variables exceed some limits, returns the indices of these limits
/// as an error.
pub(crate) fn solve(terms: &[Term], limits: &[Limit<'_>]) -> Result<Solution, Vec<usize>> {
    let least = |limit: &Limit<'_>| limit.terms.iter().map(|&at| terms[at].weight * terms[at].low).sum::<f64>();
    let broken: Vec<_> = (0..limits.len()).filter(|&at| least(&limits[at]) > limits[at].most).collect();
    if !broken.is_empty() {
        return Err(broken);
    }
    let room = |limit: &Limit<'_>| (limit.most - least(limit)).max(NEXT_TO_NOTHING * limit.most);
    let rooms = limits.iter().map(room).collect();
    let mut dual = Dual { terms, limits, rooms, prices: vec![0.0; limits.len()], sums: vec![0.0; terms.len()] };
    for round in 1..=ROUNDS {
        (0..limits.len()).for_each(|limit| dual.settle(limit));
        dual.add_up();
        if dual.error() <= EXACT {
            break;
        }
        dual.step();
        if round % SLOW == 0 {
            dual.drop_slack();
        }
    }
    Ok(dual.into_solution())
}

/// The state of the iteration: prices, and sums that follow from them.
struct Dual<'p> {
    terms: &'p [Term],
    limits: &'p [Limit<'p>],
    /// By limit: its room above the least values.
    rooms: Vec<f64>,
    /// The price of each limit.
    prices: Vec<f64>,
    /// By variable: the sum of the prices of its limits. The function that changes a price must also change these sums.
    sums: Vec<f64>,
}

impl Dual<'_> {
    /// Calculates the sums of prices again, to remove rounding errors.
    fn add_up(&mut self) {
        self.sums.fill(0.0);
        for (limit, price) in self.limits.iter().zip(&self.prices) {
            limit.terms.iter().for_each(|&at| self.sums[at] += price);
        }
    }

    /// Returns the weighted sum of a limit minus its `most`; negative if the limit is not reached.
    fn excess(&self, limit: usize) -> f64 {
        let Limit { terms, most } = self.limits[limit];
        terms.iter().map(|&at| self.terms[at].share(self.sums[at]).0).sum::<f64>() - most
    }

    /// Returns the largest violation of the conditions of the optimum, relative to the room of a limit. The conditions
    /// are that no limit is exceeded, and that each limit with a price is reached.
    fn error(&self) -> f64 {
        let of_limit = |at: usize| {
            let excess = self.excess(at);
            let wrong = if self.prices[at] > 0.0 { excess.abs() } else { excess.max(0.0) };
            wrong / self.rooms[at]
        };
        (0..self.limits.len()).map(of_limit).fold(0.0, f64::max)
    }

    /// Returns the value of the dual, a lower bound of the objective.
    fn worth(&self) -> f64 {
        let of_term = |(term, price): (&Term, &f64)| {
            let value = term.value(*price);
            term.gain / value + price * term.weight * value
        };
        let terms: f64 = self.terms.iter().zip(&self.sums).map(of_term).sum();
        terms - self.limits.iter().zip(&self.prices).map(|(limit, price)| price * limit.most).sum::<f64>()
    }

    /// True if these prices are nearer to the optimum than prices with this error and this value of the dual.
    fn leads_on(&self, (error, worth): (f64, f64)) -> bool {
        self.error() < error && self.worth() >= worth - ROUNDING * worth.abs()
    }

    /// Sets one price to the value at which its limit is reached but not exceeded, without changing other prices. The
    /// price is 0 if the limit is kept without a price.
    fn settle(&mut self, limit: usize) {
        let Limit { terms, most } = self.limits[limit];
        let before = self.prices[limit];
        for &at in terms {
            self.sums[at] = (self.sums[at] - before).max(0.0);
        }
        let price = self.price(terms, (most, self.rooms[limit]), before);
        self.prices[limit] = price;
        terms.iter().for_each(|&at| self.sums[at] += price);
    }

    /// Returns the price at which the shares of `terms` add up to `most`. The caller must have subtracted the present
    /// price of this limit from the `sums` of `terms`. `guess` is the price at which the search starts.
    fn price(&self, terms: &[usize], (most, room): (f64, f64), guess: f64) -> f64 {
        // The sum of variables between their bounds, the sum of variables at a bound, and the slope of the first sum.
        let at_price = |price: f64| {
            terms.iter().fold((0.0, 0.0, 0.0), |(moving, still, slope), &at| {
                let (share, by) = self.terms[at].share(self.sums[at] + price);
                if by == 0.0 { (moving, still + share, slope) } else { (moving + share, still, slope + by) }
            })
        };
        let (moving, still, _) = at_price(0.0);
        if moving + still <= most {
            return 0.0;
        }
        // At this price, all variables are at their lower bounds.
        let highest = |&at: &usize| self.terms[at].gain / (self.terms[at].weight * self.terms[at].low.powi(2));
        let (mut below, mut above) = (0.0, terms.iter().map(highest).fold(0.0, f64::max));
        let mut price = if guess > below && guess < above { guess } else { above / 2.0 };
        for _ in 0..STEPS {
            let (moving, still, slope) = at_price(price);
            let excess = moving + still - most;
            if excess.abs() <= EXACT / 8.0 * room || above - below <= f64::EPSILON * above {
                break;
            }
            if excess > 0.0 {
                below = price
            } else {
                above = price
            };
            // Newton's step for `share^-2`. For one variable, `share^-2` is linear in the price, so the step is exact.
            let wanted = most - still;
            let next = price + (wanted.powi(-2) - moving.powi(-2)) * moving.powi(3) / (-2.0 * slope);
            let inside = wanted > 0.0 && slope < 0.0 && next > below && next < above;
            price = if inside {
                next
            } else if below > 0.0 {
                (below * above).sqrt()
            } else {
                above / 16.0
            };
        }
        price
    }

    /// Sets the prices of limits that are not reached to 0, if this leads nearer to the optimum. Without this method,
    /// if two limits have the same variables, the price of the wider limit would move to the other limit in very small
    /// steps, as small as the distance between the two limits.
    fn drop_slack(&mut self) {
        let (before, from) = (self.prices.clone(), (self.error(), self.worth()));
        let (slack, reached): (Vec<usize>, Vec<usize>) =
            (0..self.limits.len()).partition(|&at| self.excess(at) < -EXACT * self.rooms[at]);
        slack.iter().for_each(|&at| self.prices[at] = 0.0);
        self.add_up();
        reached.iter().chain(&slack).for_each(|&at| self.settle(at));
        self.add_up();
        if !self.leads_on(from) {
            self.prices = before;
            self.add_up();
        }
    }

    /// Makes Newton's step for all positive prices, if it leads nearer to the optimum.
    fn step(&mut self) {
        let free: Vec<usize> = (0..self.limits.len()).filter(|&at| self.prices[at] > 0.0).collect();
        let excess: Vec<f64> = free.iter().map(|&at| self.excess(at)).collect();
        let slopes: Vec<f64> = self.terms.iter().zip(&self.sums).map(|(term, sum)| -term.share(*sum).1).collect();
        let (direction, flat) = self.direction(&free, &excess, &slopes);
        if let Some(flat) = flat {
            self.slide(&free, &flat);
        }
        let (before, from) = (self.prices.clone(), (self.error(), self.worth()));
        for halving in 0..4 {
            let length = 0.5f64.powi(halving);
            for (&at, by) in free.iter().zip(&direction) {
                self.prices[at] = (before[at] + length * by).max(0.0);
            }
            self.add_up();
            if self.leads_on(from) {
                return;
            }
        }
        self.prices = before;
        self.add_up();
    }

    /// Moves the prices of the limits `free` along the direction `flat` until the first price is 0. No variable changes
    /// along this direction, so the dual's value increases linearly. If there are more limits than variables, such a
    /// step is needed, because some of these limits have no price at the optimum.
    fn slide(&mut self, free: &[usize], flat: &[f64]) {
        let (before, worth) = (self.prices.clone(), self.worth());
        let ends = free.iter().zip(flat).filter(|(_, by)| **by < 0.0).map(|(&at, by)| (self.prices[at] / -by, at));
        let Some((length, first)) = ends.min_by(|a, b| a.0.total_cmp(&b.0)) else { return };
        for (&at, by) in free.iter().zip(flat) {
            self.prices[at] = (before[at] + length * by).max(0.0);
        }
        self.prices[first] = 0.0;
        self.add_up();
        if self.worth() < worth - ROUNDING * worth.abs() {
            self.prices = before;
            self.add_up();
        }
    }

    /// Solves `H·direction = excess` by conjugate gradients. H has the derivatives of the sums of the limits `free` by
    /// the prices of these limits, with the opposite sign. `slopes` has, for each variable, the derivative of its part
    /// of a limit by the price, also with the opposite sign. If a part of the excess is along a direction in which no
    /// variable changes, also returns this direction.
    fn direction(&self, free: &[usize], excess: &[f64], slopes: &[f64]) -> (Vec<f64>, Option<Vec<f64>>) {
        let of = |limit: usize| self.limits[limit].terms;
        let diagonal: Vec<f64> = free.iter().map(|&at| of(at).iter().map(|&term| slopes[term]).sum::<f64>()).collect();
        let product = |by: &[f64]| -> Vec<f64> {
            let mut moved = vec![0.0; self.terms.len()];
            for (&at, by) in free.iter().zip(by) {
                of(at).iter().for_each(|&term| moved[term] += by);
            }
            free.iter().map(|&at| of(at).iter().map(|&term| slopes[term] * moved[term]).sum()).collect()
        };
        // A limit whose variables are all at their bounds does not depend on prices, and is left out.
        let scaled = |residual: &[f64]| -> Vec<f64> {
            residual.iter().zip(&diagonal).map(|(r, d)| if *d > 0.0 { r / d } else { 0.0 }).collect()
        };
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let mut solution = vec![0.0; free.len()];
        let mut residual: Vec<f64> =
            excess.iter().zip(&diagonal).map(|(e, d)| if *d > 0.0 { *e } else { 0.0 }).collect();
        let mut conditioned = scaled(&residual);
        let mut search = conditioned.clone();
        let mut size = dot(&residual, &conditioned);
        let enough = size * 1e-16;
        for _ in 0..STEPS {
            let product = product(&search);
            let curvature = dot(&search, &product);
            // Limits on the same variables have directions in which no variable changes. A step along such a direction
            // would be infinite.
            let scale: f64 = search.iter().zip(&diagonal).map(|(by, d)| by * by * d).sum();
            if size <= enough {
                break;
            }
            if curvature <= FLAT * scale {
                return (solution, Some(search));
            }
            let length = size / curvature;
            for at in 0..free.len() {
                solution[at] += length * search[at];
                residual[at] -= length * product[at];
            }
            conditioned = scaled(&residual);
            let next = dot(&residual, &conditioned);
            let keep = next / std::mem::replace(&mut size, next);
            search.iter_mut().zip(&conditioned).for_each(|(search, new)| *search = new + keep * *search);
        }
        (solution, None)
    }

    /// Returns the values, reduced towards their lower bounds until no limit is exceeded. The excess is usually a
    /// rounding error.
    fn into_solution(self) -> Solution {
        let mut values: Vec<f64> = self.terms.iter().zip(&self.sums).map(|(term, sum)| term.value(*sum)).collect();
        let back = |limit: &Limit<'_>| {
            let of = |&at: &usize| (self.terms[at].weight * values[at], self.terms[at].weight * self.terms[at].low);
            let (all, least) = limit.terms.iter().map(of).fold((0.0, 0.0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
            if all > limit.most {
                ((all - limit.most) / (all - least) * (1.0 + 1e-9) + f64::EPSILON).min(1.0)
            } else {
                0.0
            }
        };
        let back = self.limits.iter().map(back).fold(0.0, f64::max);
        for (value, term) in values.iter_mut().zip(self.terms) {
            *value -= (*value - term.low) * back;
        }
        Solution { values, prices: self.prices }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(gain: f64, weight: f64) -> Term {
        Term { gain, weight, low: 1.0, high: 32.0 }
    }

    /// Checks the optimum's conditions: limits are kept, limits with prices are reached, and each variable has its best
    /// value for its prices.
    fn is_solved(terms: &[Term], limits: &[Limit<'_>]) {
        let Solution { values, prices } = solve(terms, limits).expect("limits that can be kept");
        for (limit, price) in limits.iter().zip(&prices) {
            let sum: f64 = limit.terms.iter().map(|&at| terms[at].weight * values[at]).sum();
            let is_reached = (sum / limit.most - 1.0).abs() < 1e-9;
            assert!(sum <= limit.most && (*price == 0.0 || is_reached), "{sum} of {}: {price}", limit.most);
        }
        for (at, (term, value)) in terms.iter().zip(&values).enumerate() {
            let prices = limits.iter().zip(&prices).filter(|(limit, _)| limit.terms.contains(&at));
            let best = term.value(prices.map(|(_, price)| price).sum());
            assert!((value / best - 1.0).abs() < 1e-7, "{at}: {value} {best}");
        }
    }

    /// A sequence of Newton steps that each improved one condition and worsened another once formed a cycle.
    #[test]
    fn the_ascent_does_not_cycle() {
        let terms = [
            term(1.790929318072613, 5.437335024028777e-7),
            term(1.163460859125021, 7.563142440301867e-7),
            term(0.11267925370399905, 8.675303145350872e-7),
            term(1.4193772247634087, 6.49077085968372e-7),
            term(0.41815591208166364, 1.070613227760336e-6),
        ];
        let limit = |terms, most| Limit { terms, most };
        is_solved(
            &terms,
            &[
                limit(&[0, 1, 3], 3.904186e-5),
                limit(&[2], 9.326277e-6),
                limit(&[3], 1.255344e-5),
                limit(&[0, 1, 4], 1.794142e-5),
                limit(&[0, 1, 2, 3, 4], 3.739093e-5),
                limit(&[0, 2], 2.903127e-5),
            ],
        );
    }

    /// Of three limits on two variables, at most two have prices. The search for these once converged in extremely
    /// small steps.
    #[test]
    fn with_more_limits_than_variables_not_all_have_prices() {
        let terms = [term(3.3, 1.0), term(0.15, 1.0)];
        for (first, second) in [(5.7771, 31.8474), (5.7767, 31.8479), (5.9, 31.8474)] {
            is_solved(
                &terms,
                &[
                    Limit { terms: &[0], most: first },
                    Limit { terms: &[1], most: second },
                    Limit { terms: &[0, 1], most: 37.6239 },
                ],
            );
        }
    }
}
