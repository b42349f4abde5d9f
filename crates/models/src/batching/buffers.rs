//! Decides which modules get a buffer (Batchy section 4.3), and assigns the costs of other modules to buffers.
//!
//! The functions here decide for one period. The caller must keep earlier decisions for some time, so that a steady
//! load has steady triggers.

use super::measured::Measured;
use super::{Line, Model, Module};

/// Arriving batches count as large enough if they have at least this fraction of the largest batch.
const LARGE_ENOUGH: f64 = 0.7;

impl Model {
    /// Returns the modules whose buffers should be bypassed. A buffer is not needed if arriving batches are large
    /// enough or not smaller than the trigger. A buffer must not be used if waiting for one batch takes longer than
    /// the objective of a flow.
    #[must_use]
    pub fn needless_buffers(&self, measured: &Measured<'_>) -> Vec<usize> {
        let (triggers, tightest) = (measured.triggers, self.tightest());
        let buffered = (0..triggers.len()).filter(|&at| measured.moves(at));
        buffered.filter(|&at| self.is_needless(at, triggers[at], tightest[at])).collect()
    }

    /// Returns modules that may get a buffer, each with the trigger of the buffer: one packet more than the arriving
    /// batch. Modules with the largest saving per delay come first. With all these buffers together, each flow stays
    /// within its objective.
    #[must_use]
    pub fn new_buffers(&self, measured: &Measured<'_>) -> Vec<(usize, usize)> {
        let (bounds, tightest) = (self.bounds(measured), self.tightest());
        let trigger = |at: usize| self.modules()[at].ingress.floor() as usize + 1;
        let delay = |at: usize| self.module_delay(at, trigger(at)) - self.module_delay(at, 0);
        let fits = |at: &usize| {
            measured.triggers[*at] == 0
                && measured.may_change(*at)
                && self.rates()[*at] > 0.0
                && !self.is_needless(*at, trigger(*at), tightest[*at])
        };
        let saving = |at: usize| self.saving(at, self.modules()[at].ingress, trigger(at) as f64);
        let gain_per_delay = (0..measured.triggers.len()).filter(fits).map(|at| (saving(at) / delay(at), at));
        let through = self.through(&bounds);
        let mut delays: Vec<f64> = bounds.iter().map(|bound| bound.delay).collect();
        let mut found = Vec::new();
        for at in self.best_first(gain_per_delay.filter(|(gain_per_delay, _)| *gain_per_delay > 0.0).collect()) {
            if through[at].iter().all(|&slot| delays[slot] + delay(at) < bounds[slot].limit) {
                through[at].iter().for_each(|&slot| delays[slot] += delay(at));
                found.push((at, trigger(at)));
            }
        }
        found
    }

    /// True if packets arrive at a module in batches that are large enough.
    #[must_use]
    pub fn arrives_large(&self, at: usize) -> bool {
        self.modules()[at].ingress >= LARGE_ENOUGH * self.largest()
    }

    /// True if a buffer with this trigger should be bypassed. `tightest` is the shortest objective through the
    /// module, in seconds.
    fn is_needless(&self, at: usize, trigger: usize, tightest: f64) -> bool {
        let arriving = self.modules()[at].ingress;
        self.arrives_large(at)
            || trigger as f64 <= arriving
            || trigger as f64 > self.largest()
            || trigger as f64 / self.rates()[at] > tightest
    }

    /// True if waiting for one batch of `trigger` packets is longer than the objective of a flow through the module.
    #[must_use]
    pub fn waits_too_long(&self, at: usize, trigger: usize) -> bool {
        trigger as f64 / self.rates()[at] > self.tightest()[at]
    }

    /// Returns, for each module, the shortest objective of a flow through it; infinite if there is none.
    fn tightest(&self) -> Vec<f64> {
        let mut tightest = vec![f64::INFINITY; self.modules().len()];
        for flow in self.flows() {
            flow.path.iter().for_each(|&at| tightest[at] = flow.slo.min(tightest[at]));
        }
        tightest
    }

    /// Returns the modules, each with all costs that depend on its trigger.
    ///
    /// A module without a buffer is called with the batches that leave the nearest buffer before it. So its costs are
    /// added to the module of this buffer: the whole cost per call, and the cost per packet times the fraction of the
    /// buffer's packets that continue to the module without a buffer. If a module is behind several buffers, its costs
    /// are added to the module of each buffer. The costs of packets that passed no buffer stay with the module.
    #[must_use]
    pub fn attributed(&self, triggers: &[usize]) -> Vec<Module> {
        let mut ways: Vec<(usize, usize, f64)> = Vec::new();
        for flow in self.flows().iter().filter(|flow| flow.rate > 0.0) {
            let mut nearest = None;
            for &at in &flow.path {
                if triggers[at] > 0 {
                    nearest = Some(at);
                } else if let Some(buffer) = nearest {
                    ways.push((buffer, at, flow.rate));
                }
            }
        }
        ways.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then(a.2.total_cmp(&b.2)));
        let mut attributed = self.modules().to_vec();
        for way in ways.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let (buffer, at, _) = way[0];
            let rate: f64 = way.iter().map(|(.., rate)| rate).sum();
            let (share_of_buffer, share_of_module) = (rate / self.rates()[buffer], rate / self.rates()[at]);
            let of = self.modules()[at];
            let (to, from) = (
                |line: &mut Line, of: Line| {
                    line.fixed += of.fixed;
                    line.each += of.each * share_of_buffer;
                },
                |line: &mut Line, of: Line| {
                    line.fixed = (line.fixed - of.fixed * share_of_module).max(0.0);
                    line.each = (line.each - of.each * share_of_module).max(0.0);
                },
            );
            to(&mut attributed[buffer].cpu, of.cpu);
            to(&mut attributed[buffer].delay, of.delay);
            from(&mut attributed[at].cpu, of.cpu);
            from(&mut attributed[at].delay, of.delay);
        }
        attributed
    }
}
