//! A refined model of waiting, with whole triggers, which the controller `optimal` solves in each period.
//!
//! In equation 12, packets wait `b/R` at every module with a trigger, even if they arrive in batches. But if a module
//! gathers 16 packets, the next module with a trigger of 16 does not wait. In this model, packets wait only for the
//! packets that are missing in the batch: `max(0, b − b_in)/R`. Arriving batches follow from the trigger of the module
//! before. A trigger that is not larger than the arriving batch has no effect. The model does not include the longer
//! waits of high percentiles: hold limits end such waits, and the rest appears in measured delays.

use super::{Flow, Model};

/// The arrival of packets at modules, in addition to the costs and rates of a [`Model`].
#[derive(Clone, Debug, PartialEq)]
pub struct Arrivals {
    /// By module: the module from which all its packets come, if there is one. That module has a lower index.
    pub before: Vec<Option<usize>>,
    /// By module: the size of arriving batches, as a fraction of the batches that leave the module before; 0 to 1.
    pub kept: Vec<f64>,
    /// By module: the number of buffers over which its packets are spread evenly, one for each worker that runs it; at
    /// least 1.
    pub buffers: Vec<f64>,
    /// By module: its configured trigger; 0 if there is none.
    pub stated: Vec<usize>,
    /// The additional worker time, in seconds, of a packet for each batch that it waits for. The worker spends this
    /// time in the module where the packet waits, and elsewhere.
    pub held: f64,
    /// The additional worker time, in seconds, of a packet that has waited for a batch before, for each further batch.
    /// If `held` is more, `held` is used.
    pub again: f64,
}

impl Arrivals {
    /// Returns the additional worker time, in seconds, of a packet that waits for a batch. `before` is true if the
    /// packet has waited before.
    pub(super) fn price(&self, before: bool) -> f64 {
        if before { self.held.max(self.again) } else { self.held }
    }
}

/// The predicted effect of triggers.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicted {
    /// The busy share of the worker's time.
    pub load: f64,
    /// By module: packets per call.
    pub batches: Vec<f64>,
    /// By flow: the delay in seconds; `None` without packets.
    pub delays: Vec<Option<f64>>,
}

/// The batches of modules.
pub(super) struct Called {
    /// The busy share of the worker's time.
    pub(super) load: f64,
    /// By module: packets per arriving batch.
    pub(super) arrived: Vec<f64>,
    /// By module: packets per call.
    pub(super) batches: Vec<f64>,
}

impl Model {
    /// Predicts the effect of `triggers` (for each module 0 to the largest batch).
    #[must_use]
    pub fn predict(&self, arrivals: &Arrivals, triggers: &[usize]) -> Predicted {
        let Called { load, arrived, batches } = self.called(arrivals, triggers);
        let delay = |flow: &Flow| (flow.rate > 0.0).then(|| self.delay(arrivals, flow, &arrived, &batches));
        let delays = self.flows().iter().map(delay).collect();
        Predicted { load, batches, delays }
    }

    /// Returns the batches of modules with these triggers, and their load.
    pub(super) fn called(&self, arrivals: &Arrivals, triggers: &[usize]) -> Called {
        let many = triggers.len();
        let mut called = Called { load: 0.0, arrived: Vec::with_capacity(many), batches: Vec::with_capacity(many) };
        // By module: true if packets that leave the module have waited for a batch, in this module or before.
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

    /// Returns the wait at a module for each packet that is missing in the batch, in seconds.
    pub(super) fn wait(&self, arrivals: &Arrivals, at: usize) -> f64 {
        arrivals.buffers[at] / self.rates()[at]
    }

    /// Returns the batch in which packets arrive at the module `at`, and the batch of its calls. `batches` are the
    /// calls' batches of the modules with lower indices. A configured trigger replaces `trigger`.
    pub(super) fn batch(&self, arrivals: &Arrivals, batches: &[f64], at: usize, trigger: usize) -> (f64, f64) {
        let arrives = match arrivals.before[at] {
            Some(before) => (arrivals.kept[at] * batches[before]).clamp(1.0, self.largest()),
            None => self.modules()[at].ingress,
        };
        let trigger = if arrivals.stated[at] > 0 { arrivals.stated[at] } else { trigger };
        (arrives, arrives.max(trigger as f64))
    }

    /// Returns the delay of a flow, in seconds: one turn, the waits for batches, and the calls.
    fn delay(&self, arrivals: &Arrivals, flow: &Flow, arrived: &[f64], batches: &[f64]) -> f64 {
        let of_module = |&at: &usize| {
            let missing = (batches[at] - arrived[at]).max(0.0);
            missing * self.wait(arrivals, at) + self.modules()[at].delay.at(batches[at])
        };
        self.turn() + flow.path.iter().map(of_module).sum::<f64>()
    }

    /// Returns, for each module, the time in seconds for which its buffer may hold a packet: the module's modelled wait
    /// for a batch, plus a share of the remaining time of its flows in proportion to this wait. So later modules can
    /// hold the packet for their times, too. Infinite if no flow has an objective.
    ///
    /// Along a path whose objective can be kept, the sum of holds, turn and calls does not exceed the objective.
    #[must_use]
    pub fn holds(&self, arrivals: &Arrivals, triggers: &[usize]) -> Vec<f64> {
        let Called { arrived, batches, .. } = self.called(arrivals, triggers);
        let wait = |at: usize| (batches[at] - arrived[at]).max(0.0) * self.wait(arrivals, at);
        let mut holds = vec![f64::INFINITY; triggers.len()];
        for flow in self.flows().iter().filter(|flow| flow.rate > 0.0 && flow.slo.is_finite()) {
            let remaining = (flow.slo - self.delay(arrivals, flow, &arrived, &batches)).max(0.0);
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
                holds[at] = holds[at].min(wait(at) + remaining * share);
            }
        }
        holds
    }
}
