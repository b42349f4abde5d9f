//! Recovery from violations (Batchy section 4.3 and appendix E): cuts triggers until delays are within objectives
//! again.
//!
//! Smaller triggers reduce delays but save fewer calls. Triggers are cut where the reduction of delay costs the least
//! saving. This is the convex programme of the optimum with the present triggers as upper bounds. The programme handles
//! all flows together: a cut that helps several flows counts for each of them, and the result does not depend on the
//! order of the flows.

use super::Model;
use super::measured::{Bound, Measured};
use crate::separable::{self, Limit, Term};

/// The relative distance by which a flow is brought below its limit. Larger than errors of the solver and of rounding.
const MARGIN: f64 = 1e-5;
/// A trigger counts as whole if it differs from a whole number by at most this value.
const WHOLE: f64 = 1e-7;

impl Model {
    /// Returns triggers with which flows in violation are within their guarded objectives again, according to the
    /// model.
    ///
    /// No trigger is cut below the size of arriving batches. If even the lowest triggers are too large for a flow, all
    /// buffers on its path are bypassed: their triggers are 0. This also reduces the delays of other flows. Triggers
    /// that must not change stay as they are.
    #[must_use]
    pub fn recovery(&self, measured: &Measured<'_>) -> Vec<usize> {
        let now = measured.triggers;
        let mut to = now.to_vec();
        let mut bounds = self.bounds(measured);
        loop {
            let delay = |bound: &Bound, to: &[usize]| bound.delay + self.change(bound.flow, now, to);
            let violated: Vec<usize> =
                (0..bounds.len()).filter(|&at| delay(&bounds[at], &to) >= bounds[at].limit).collect();
            let lowest: Vec<usize> = (0..to.len())
                .map(|at| if measured.may_change(at) { self.lowest(at, to[at]) } else { to[at] })
                .collect();
            match self.cut(&to, &lowest, violated.iter().map(|&at| (&bounds[at], delay(&bounds[at], &to)))) {
                Ok(values) => {
                    let rooms: Vec<f64> = (bounds.iter().enumerate())
                        .map(|(at, bound)| {
                            let target = bound.limit * (1.0 - MARGIN / 2.0);
                            if violated.contains(&at) { target } else { bound.limit.max(bound.delay) }
                        })
                        .collect();
                    let cut: Vec<usize> = values
                        .iter()
                        .zip(&lowest)
                        .map(|(value, low)| low.max(&((value + WHOLE) as usize)).to_owned())
                        .collect();
                    let most = std::mem::replace(&mut to, cut);
                    self.round_up(now, &bounds, &rooms, &mut to, &most);
                    return to;
                }
                Err(limits) => {
                    let beyond = |limit: usize| {
                        let bound = &bounds[violated[limit]];
                        delay(bound, &lowest) / bound.limit
                    };
                    let worst = limits.iter().map(|&limit| beyond(limit)).fold(0.0, f64::max);
                    let infeasible: Vec<usize> =
                        limits.into_iter().filter(|&limit| beyond(limit) >= worst * (1.0 - WHOLE)).collect();
                    for limit in infeasible.into_iter().rev() {
                        let given_up = bounds.remove(violated[limit]);
                        let path = self.flows()[given_up.flow].path.iter().filter(|at| measured.may_change(**at));
                        path.for_each(|&at| to[at] = 0);
                    }
                }
            }
        }
    }

    /// Returns the least value that a trigger may be cut to.
    fn lowest(&self, module: usize, trigger: usize) -> usize {
        trigger.min((self.modules()[module].ingress.ceil() as usize).max(1))
    }

    /// Returns the values between `lowest` and `to` with the least load that bring the flows `violated` below their
    /// limits. `violated` has each flow with its delay if the triggers are `to`. If no such values exist for some of
    /// these flows, returns their indices in `violated` as an error.
    fn cut<'b>(
        &self,
        to: &[usize],
        lowest: &[usize],
        violated: impl Iterator<Item = (&'b Bound, f64)>,
    ) -> Result<Vec<f64>, Vec<usize>> {
        let term = |at: usize| {
            let moves = to[at] > 0 && self.rates()[at] > 0.0;
            let (low, high) = (lowest[at] as f64, to[at] as f64);
            if moves {
                Term { gain: self.rates()[at] * self.modules()[at].cpu.fixed, weight: self.delay_slope(at), low, high }
            } else {
                Term { gain: 0.0, weight: 1.0, low: 1.0, high: 1.0 }
            }
        };
        let terms: Vec<Term> = (0..to.len()).map(term).collect();
        let mut paths: Vec<Vec<usize>> = Vec::new();
        let mut most = Vec::new();
        for (bound, delay) in violated {
            let path: Vec<usize> = self.flows()[bound.flow].path.iter().copied().filter(|&at| to[at] > 0).collect();
            let held: f64 = path.iter().map(|&at| terms[at].weight * terms[at].high).sum();
            most.push(held - (delay - bound.limit * (1.0 - MARGIN)));
            paths.push(path);
        }
        let limits: Vec<Limit<'_>> = paths.iter().zip(most).map(|(terms, most)| Limit { terms, most }).collect();
        let solved = separable::solve(&terms, &limits)?;
        let mut values: Vec<f64> = to.iter().map(|&trigger| trigger as f64).collect();
        paths.iter().flatten().for_each(|&at| values[at] = solved.values[at]);
        Ok(values)
    }
}
