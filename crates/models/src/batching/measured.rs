//! Flows with measured delays: the result of a change of triggers is the measured delay plus the change in the model.
//!
//! A model is never exact. The paper's controllers therefore start from the measured state of the flows (Batchy section
//! 4.2). An error of the model then makes steps too long or too short, but objectives are still checked against
//! measured delays.

use super::Model;

/// The state from which the paper's controllers start.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'m> {
    /// The trigger of each module, in packets; 0 without a buffer.
    pub triggers: &'m [usize],
    /// For each module, true if its trigger must not change. Missing entries mean false.
    pub stays: &'m [bool],
    /// The measured delay of each flow, in seconds; `None` if too few packets were measured. Then the model's delay is
    /// used.
    pub delays: &'m [Option<f64>],
    /// The share of an objective that is kept in reserve: a flow is in violation from `(1 − guard)` of its objective.
    pub guard: f64,
}

/// The factor by which a delay may exceed its limit, as a tolerance for sums that are calculated in another order.
pub(super) const ROUNDING: f64 = 1.0 + 1e-13;

/// A flow with packets and with an objective.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    /// The index of the flow.
    pub(super) flow: usize,
    /// Its present delay, in seconds.
    pub(super) delay: f64,
    /// The delay, in seconds, from which the flow is in violation: the objective without the reserve.
    pub(super) limit: f64,
}

impl Measured<'_> {
    /// True if the module has a trigger, and this trigger may change.
    pub(super) fn moves(&self, module: usize) -> bool {
        self.triggers[module] > 0 && self.may_change(module)
    }

    /// True if the module's trigger may change.
    pub(super) fn may_change(&self, module: usize) -> bool {
        !self.stays.get(module).copied().unwrap_or(false)
    }
}

impl Bound {
    /// Returns whether the flow is in violation.
    pub(super) fn violated(&self) -> bool {
        self.delay >= self.limit
    }
}

impl Model {
    /// Returns the flows with packets and objectives, with their present delays.
    pub(super) fn bounds(&self, measured: &Measured<'_>) -> Vec<Bound> {
        let triggers: Vec<f64> = measured.triggers.iter().map(|&trigger| trigger as f64).collect();
        let modelled = self.delays(&triggers);
        let delays = measured.delays.iter().zip(modelled).map(|(measured, modelled)| measured.or(modelled));
        let flows = self.flows().iter().zip(delays).enumerate();
        let bound = |(flow, (definition, delay)): (usize, (&super::Flow, Option<f64>))| {
            let limit = (1.0 - measured.guard) * definition.slo;
            (definition.rate > 0.0 && limit.is_finite()).then_some(Bound { flow, delay: delay?, limit })
        };
        flows.filter_map(bound).collect()
    }

    /// Returns the delay of packets in a module with this trigger, in seconds, including the wait for the batch
    /// (equation 12).
    pub(super) fn module_delay(&self, module: usize, trigger: usize) -> f64 {
        let (of, rate) = (&self.modules()[module], self.rates()[module]);
        let wait = if trigger > 0 { trigger as f64 / rate } else { 0.0 };
        wait + of.delay.at(if trigger > 0 { trigger as f64 } else { of.ingress })
    }

    /// Returns the decrease of the load when a module's batch changes from `from` to `to` packets: `R·T0·(1/from −
    /// 1/to)`.
    pub(super) fn saving(&self, module: usize, from: f64, to: f64) -> f64 {
        self.rates()[module] * self.modules()[module].cpu.fixed * (from.recip() - to.recip())
    }

    /// Returns the change of a flow's delay, in seconds, if the triggers change from `from` to `to`.
    pub(super) fn change(&self, flow: usize, from: &[usize], to: &[usize]) -> f64 {
        let path = self.flows()[flow].path.iter().filter(|at| from[**at] != to[**at]);
        path.map(|&at| self.module_delay(at, to[at]) - self.module_delay(at, from[at])).sum()
    }

    /// Returns, for each flow, the measured delay after a change to other triggers; `None` for a flow without a
    /// measured delay.
    #[must_use]
    pub fn delays_after(&self, measured: &Measured<'_>, triggers: &[usize]) -> Vec<Option<f64>> {
        let flows = measured.delays.iter().enumerate();
        flows.map(|(flow, delay)| Some((*delay)? + self.change(flow, measured.triggers, triggers))).collect()
    }

    /// Returns, for each module, the indices in `bounds` of the flows through it.
    pub(super) fn through(&self, bounds: &[Bound]) -> Vec<Vec<usize>> {
        let mut through = vec![Vec::new(); self.modules().len()];
        for (slot, bound) in bounds.iter().enumerate() {
            self.flows()[bound.flow].path.iter().for_each(|&at| through[at].push(slot));
        }
        through
    }

    /// Raises whole triggers up to `most`, one packet at a time, while no flow exceeds its room. Triggers with the
    /// largest saving per delay are raised first.
    ///
    /// `rooms` are the largest delays, in seconds, for each index in `bounds`. `now` are the triggers with which the
    /// delays in `bounds` were measured. `to` are the triggers to raise; triggers of 0 are not raised.
    pub(super) fn round_up(&self, now: &[usize], bounds: &[Bound], rooms: &[f64], to: &mut [usize], most: &[usize]) {
        let mut delays: Vec<f64> = bounds.iter().map(|bound| bound.delay + self.change(bound.flow, now, to)).collect();
        let through = self.through(bounds);
        let mut open: Vec<usize> = (0..to.len()).filter(|&at| to[at] > 0 && to[at] < most[at]).collect();
        while !open.is_empty() {
            let gain_per_delay = |at: usize| self.saving(at, to[at] as f64, (to[at] + 1) as f64) / self.delay_slope(at);
            open = self.best_first(open.into_iter().map(|at| (gain_per_delay(at), at)).collect());
            open.retain(|&at| {
                let more = self.delay_slope(at);
                let fits = through[at].iter().all(|&slot| delays[slot] + more <= rooms[slot] * ROUNDING);
                if fits {
                    to[at] += 1;
                    through[at].iter().for_each(|&slot| delays[slot] += more);
                }
                fits && to[at] < most[at]
            });
        }
    }

    /// Returns the modules of `worth`, which has pairs of worth and module, in the order of falling worth. Modules with
    /// equal worth are in the order in which packets reach them.
    #[must_use]
    pub fn best_first(&self, mut worth: Vec<(f64, usize)>) -> Vec<usize> {
        let mut hops = vec![0; self.modules().len()];
        for flow in self.flows() {
            flow.path.iter().enumerate().for_each(|(hop, &at)| hops[at] = hop.max(hops[at]));
        }
        worth.sort_by(|(a, at), (b, bt)| b.total_cmp(a).then(hops[*at].cmp(&hops[*bt])));
        worth.into_iter().map(|(_, at)| at).collect()
    }
}
