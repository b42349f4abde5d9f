//! Flows as they are measured: what a change of triggers leads to is what is measured now, and what the model changes by.
//!
//! A model is never quite right. The paper's controllers go from where the flows are in fact (Batchy section 4.2), so that a wrong
//! model makes steps too long or too short, and not objectives that are thought to be kept.

use super::Model;

/// What the controllers of the paper go from.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'m> {
    /// By module: packets in a batch; 0 without a buffer.
    pub triggers: &'m [usize],
    /// By module: whether its trigger stays what it is, whatever that would save or help. Those that are not named may change.
    pub stays: &'m [bool],
    /// By flow: seconds of delay, where enough packets came to say; else the model's are taken.
    pub delays: &'m [Option<f64>],
    /// The share of objectives that is kept free: a flow is in violation from `(1 − guard)` of its objective on.
    pub guard: f64,
}

/// What sums in another order may be over by.
pub(super) const ROUNDING: f64 = 1.0 + 1e-13;

/// A flow that packets come in, with an objective.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    /// The flow.
    pub(super) flow: usize,
    /// Seconds that it has now.
    pub(super) delay: f64,
    /// Seconds from which on it is in violation.
    pub(super) limit: f64,
}

impl Measured<'_> {
    /// Whether a module has a trigger that may change.
    pub(super) fn moves(&self, module: usize) -> bool {
        self.triggers[module] > 0 && self.may_change(module)
    }

    /// Whether a module's trigger may be another one.
    pub(super) fn may_change(&self, module: usize) -> bool {
        !self.stays.get(module).copied().unwrap_or(false)
    }
}

impl Bound {
    pub(super) fn violated(&self) -> bool {
        self.delay >= self.limit
    }
}

impl Model {
    /// The flows with objectives, as they are.
    pub(super) fn bounds(&self, measured: &Measured<'_>) -> Vec<Bound> {
        let triggers: Vec<f64> = measured.triggers.iter().map(|&trigger| trigger as f64).collect();
        let modelled = self.delays(&triggers);
        let delays = measured.delays.iter().zip(modelled).map(|(measured, modelled)| measured.or(modelled));
        let flows = self.flows().iter().zip(delays).enumerate();
        let bound = |(flow, (told, delay)): (usize, (&super::Flow, Option<f64>))| {
            let limit = (1.0 - measured.guard) * told.slo;
            (told.rate > 0.0 && limit.is_finite()).then_some(Bound { flow, delay: delay?, limit })
        };
        flows.filter_map(bound).collect()
    }

    /// What a call of a module delays its packets by, the wait for it included, with this trigger (equation 12).
    pub(super) fn module_delay(&self, module: usize, trigger: usize) -> f64 {
        let (of, rate) = (&self.modules()[module], self.rates()[module]);
        let wait = if trigger > 0 { trigger as f64 / rate } else { 0.0 };
        wait + of.delay.at(if trigger > 0 { trigger as f64 } else { of.ingress })
    }

    /// By how much the load falls if a module's batch goes from `from` to `to` packets: `R·T0·(1/from − 1/to)`.
    pub(super) fn saving(&self, module: usize, from: f64, to: f64) -> f64 {
        self.rates()[module] * self.modules()[module].cpu.fixed * (from.recip() - to.recip())
    }

    /// By how much a flow's delay changes between two sets of triggers.
    pub(super) fn change(&self, flow: usize, from: &[usize], to: &[usize]) -> f64 {
        let path = self.flows()[flow].path.iter().filter(|at| from[**at] != to[**at]);
        path.map(|&at| self.module_delay(at, to[at]) - self.module_delay(at, from[at])).sum()
    }

    /// By flow: what is measured, with other triggers; `None` where nothing is.
    #[must_use]
    pub fn delays_after(&self, measured: &Measured<'_>, triggers: &[usize]) -> Vec<Option<f64>> {
        let flows = measured.delays.iter().enumerate();
        flows.map(|(flow, delay)| Some((*delay)? + self.change(flow, measured.triggers, triggers))).collect()
    }

    /// By module: the places in `bounds` of the flows through it.
    pub(super) fn through(&self, bounds: &[Bound]) -> Vec<Vec<usize>> {
        let mut through = vec![Vec::new(); self.modules().len()];
        for (place, bound) in bounds.iter().enumerate() {
            self.flows()[bound.flow].path.iter().for_each(|&at| through[at].push(place));
        }
        through
    }

    /// Raises whole triggers up to `most`, a packet at a time, as long as no flow gets beyond its room; those first that save most by
    /// what they delay.
    ///
    /// `rooms`: by place in `bounds`, the most seconds of delay, from what it is with the triggers of `now`.
    pub(super) fn round_up(&self, now: &[usize], bounds: &[Bound], rooms: &[f64], to: &mut [usize], most: &[usize]) {
        let mut delays: Vec<f64> = bounds.iter().map(|bound| bound.delay + self.change(bound.flow, now, to)).collect();
        let through = self.through(bounds);
        let mut open: Vec<usize> = (0..to.len()).filter(|&at| to[at] > 0 && to[at] < most[at]).collect();
        while !open.is_empty() {
            let worth = |at: usize| self.saving(at, to[at] as f64, (to[at] + 1) as f64) / self.delay_slope(at);
            open = self.best_first(open.into_iter().map(|at| (worth(at), at)).collect());
            open.retain(|&at| {
                let more = self.delay_slope(at);
                let fits = through[at].iter().all(|&place| delays[place] + more <= rooms[place] * ROUNDING);
                if fits {
                    to[at] += 1;
                    through[at].iter().for_each(|&place| delays[place] += more);
                }
                fits && to[at] < most[at]
            });
        }
    }

    /// Modules by what they are worth, the most first; of twins, the one that packets come to first.
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
