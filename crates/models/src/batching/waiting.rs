//! A truer model of waiting than the paper's, by whole triggers: what `optimal` solves each period.
//!
//! Equation 12 lets packets wait `b/R` at every module with a trigger, also where they come in batches already: behind a module
//! that gathers 16, another that wants 16 waits for nothing. Here packets wait for what is missing,
//! `max(0, b − b_in)/R`, and what arrives follows from the trigger of the module before. A trigger of no more than what arrives is
//! none: packets pass as they come. By how much the chosen percentile waits longer is not modelled: hold limits end waits that are
//! longer than that, and what is left shows in delays.

use super::{Flow, Model};

/// What arrives at modules, beside the costs and rates of a [`Model`].
#[derive(Clone, Debug, PartialEq)]
pub struct Arrivals {
    /// By module: the one that all its packets come from, where there is one; it has a lower number.
    pub before: Vec<Option<usize>>,
    /// By module with one before it: packets that arrive together, for each that was together there; 0 to 1.
    pub kept: Vec<f64>,
    /// By module: buffers that its packets are spread over evenly, one a worker that runs it; 1 and more.
    pub buffers: Vec<f64>,
    /// By module: the trigger that it has whatever is decided; 0 where there is none.
    pub stated: Vec<usize>,
    /// Seconds of the worker's time that a packet costs more, here and elsewhere, for each batch that it waits for.
    pub held: f64,
    /// The same for a packet that has waited for a batch before, where that is more.
    pub again: f64,
}

impl Arrivals {
    /// What it costs that a packet waits for a batch, which has waited for one before or not.
    pub(super) fn price(&self, before: bool) -> f64 {
        if before { self.held.max(self.again) } else { self.held }
    }
}

/// What triggers lead to.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicted {
    /// The share of its time that the worker is busy.
    pub load: f64,
    /// By module: packets a call.
    pub batches: Vec<f64>,
    /// By flow, in seconds; `None` without packets.
    pub delays: Vec<Option<f64>>,
}

/// What modules are called with.
pub(super) struct Called {
    /// The share of its time that the worker is busy.
    pub(super) load: f64,
    /// By module: packets that come together.
    pub(super) arrived: Vec<f64>,
    /// By module: packets a call.
    pub(super) batches: Vec<f64>,
}

impl Model {
    /// What `triggers` (by module, 0 to the largest batch) lead to.
    #[must_use]
    pub fn predict(&self, arrivals: &Arrivals, triggers: &[usize]) -> Predicted {
        let Called { load, arrived, batches } = self.called(arrivals, triggers);
        let delay = |flow: &Flow| (flow.rate > 0.0).then(|| self.delay(arrivals, flow, &arrived, &batches));
        let delays = self.flows().iter().map(delay).collect();
        Predicted { load, batches, delays }
    }

    pub(super) fn called(&self, arrivals: &Arrivals, triggers: &[usize]) -> Called {
        let many = triggers.len();
        let mut called = Called { load: 0.0, arrived: Vec::with_capacity(many), batches: Vec::with_capacity(many) };
        // By module: whether packets have waited for a batch when they leave it.
        let mut waited = Vec::with_capacity(many);
        for (at, (module, trigger)) in self.modules().iter().zip(triggers).enumerate() {
            let (arrives, batch) = self.batch(arrivals, &called.batches, at, *trigger);
            let (waits, before) = (batch > arrives, arrivals.before[at].is_some_and(|before| waited[before]));
            let held = if waits { arrivals.price(before) } else { 0.0 };
            called.load += self.rates()[at] * (module.cpu.at(batch) / batch + held);
            called.arrived.push(arrives);
            called.batches.push(batch);
            waited.push(waits || before);
        }
        called
    }

    /// Seconds that are waited at a module for each packet that is missing.
    pub(super) fn wait(&self, arrivals: &Arrivals, at: usize) -> f64 {
        arrivals.buffers[at] / self.rates()[at]
    }

    /// What arrives at a module, and what it is called with.
    pub(super) fn batch(&self, arrivals: &Arrivals, batches: &[f64], at: usize, trigger: usize) -> (f64, f64) {
        let arrives = match arrivals.before[at] {
            Some(before) => (arrivals.kept[at] * batches[before]).clamp(1.0, self.largest()),
            None => self.modules()[at].ingress,
        };
        let trigger = if arrivals.stated[at] > 0 { arrivals.stated[at] } else { trigger };
        (arrives, arrives.max(trigger as f64))
    }

    fn delay(&self, arrivals: &Arrivals, flow: &Flow, arrived: &[f64], batches: &[f64]) -> f64 {
        let of_module = |&at: &usize| {
            let missing = (batches[at] - arrived[at]).max(0.0);
            missing * self.wait(arrivals, at) + self.modules()[at].delay.at(batches[at])
        };
        self.turn() + flow.path.iter().map(of_module).sum::<f64>()
    }

    /// By module, the seconds for which its buffer may hold a packet, whatever comes after it: what it is modelled to wait for a
    /// batch, and of the time that is left to its flows as much as its share of the waiting. Infinite where no flow has an objective.
    ///
    /// Along a path whose objective can be kept, the holds, the turn and the calls are never more than that together.
    #[must_use]
    pub fn holds(&self, arrivals: &Arrivals, triggers: &[usize]) -> Vec<f64> {
        let Called { arrived, batches, .. } = self.called(arrivals, triggers);
        let wait = |at: usize| (batches[at] - arrived[at]).max(0.0) * self.wait(arrivals, at);
        let mut holds = vec![f64::INFINITY; triggers.len()];
        for flow in self.flows().iter().filter(|flow| flow.rate > 0.0 && flow.slo.is_finite()) {
            let left = (flow.slo - self.delay(arrivals, flow, &arrived, &batches)).max(0.0);
            let waited: f64 = flow.path.iter().map(|&at| wait(at)).sum();
            let buffers = flow.path.iter().filter(|at| triggers[**at] > 0).count() as f64;
            for &at in &flow.path {
                let share = if waited > 0.0 {
                    wait(at) / waited
                } else if triggers[at] > 0 {
                    buffers.recip()
                } else {
                    0.0
                };
                holds[at] = holds[at].min(wait(at) + left * share);
            }
        }
        holds
    }
}
