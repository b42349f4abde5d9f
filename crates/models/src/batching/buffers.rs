//! Which modules are to have a buffer (Batchy section 4.3), and whose costs a buffer decides about.
//!
//! What is said here is about one period. Whoever decides keeps what it decided before long enough that a steady load has a steady
//! control.

use super::measured::Measured;
use super::{Line, Model, Module};

/// Batches that arrive with so much of the largest are large enough.
const LARGE_ENOUGH: f64 = 0.7;

impl Model {
    /// Modules whose buffers are to be short-circuited: batches that arrive are large enough, or no smaller than the trigger, or
    /// waiting for one batch alone is longer than the objective of a flow.
    #[must_use]
    pub fn needless_buffers(&self, measured: &Measured<'_>) -> Vec<usize> {
        let (triggers, tightest) = (measured.triggers, self.tightest());
        let buffered = (0..triggers.len()).filter(|&at| measured.moves(at));
        buffered.filter(|&at| self.is_needless(at, triggers[at], tightest[at])).collect()
    }

    /// Modules that may get a buffer, and its trigger, one packet more than what arrives: those that save most by what they delay
    /// first. Each flow has time for all of them together.
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
        let worth = (0..measured.triggers.len()).filter(fits).map(|at| (saving(at) / delay(at), at));
        let through = self.through(&bounds);
        let mut delays: Vec<f64> = bounds.iter().map(|bound| bound.delay).collect();
        let mut found = Vec::new();
        for at in self.best_first(worth.filter(|(worth, _)| *worth > 0.0).collect()) {
            if through[at].iter().all(|&place| delays[place] + delay(at) < bounds[place].limit) {
                through[at].iter().for_each(|&place| delays[place] += delay(at));
                found.push((at, trigger(at)));
            }
        }
        found
    }

    /// Whether packets come to a module in batches that are large enough as they are.
    #[must_use]
    pub fn arrives_large(&self, at: usize) -> bool {
        self.modules()[at].ingress >= LARGE_ENOUGH * self.largest()
    }

    fn is_needless(&self, at: usize, trigger: usize, tightest: f64) -> bool {
        let arrives = self.modules()[at].ingress;
        self.arrives_large(at)
            || trigger as f64 <= arrives
            || trigger as f64 > self.largest()
            || trigger as f64 / self.rates()[at] > tightest
    }

    /// Whether waiting for one batch of `trigger` packets is longer than the objective of a flow through the module.
    #[must_use]
    pub fn waits_too_long(&self, at: usize, trigger: usize) -> bool {
        trigger as f64 / self.rates()[at] > self.tightest()[at]
    }

    /// By module: the shortest objective of a flow through it; infinite without one.
    fn tightest(&self) -> Vec<f64> {
        let mut tightest = vec![f64::INFINITY; self.modules().len()];
        for flow in self.flows() {
            flow.path.iter().for_each(|&at| tightest[at] = flow.slo.min(tightest[at]));
        }
        tightest
    }

    /// The modules with what the trigger of each decides about: a module without a buffer is called with what the nearest buffer
    /// before it lets go, so that its costs are that one's. A call of it costs a call more there; a packet, as much as is the share of
    /// packets that come to it. Behind several buffers it is told at each of them, once; for packets that passed none, at itself.
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
        let mut told = self.modules().to_vec();
        for way in ways.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let (buffer, at, _) = way[0];
            let rate: f64 = way.iter().map(|(.., rate)| rate).sum();
            let (there, gone) = (rate / self.rates()[buffer], rate / self.rates()[at]);
            let of = self.modules()[at];
            let (to, from) = (
                |line: &mut Line, of: Line| {
                    line.fixed += of.fixed;
                    line.each += of.each * there;
                },
                |line: &mut Line, of: Line| {
                    line.fixed = (line.fixed - of.fixed * gone).max(0.0);
                    line.each = (line.each - of.each * gone).max(0.0);
                },
            );
            to(&mut told[buffer].cpu, of.cpu);
            to(&mut told[buffer].delay, of.delay);
            from(&mut told[at].cpu, of.cpu);
            from(&mut told[at].delay, of.delay);
        }
        told
    }
}
