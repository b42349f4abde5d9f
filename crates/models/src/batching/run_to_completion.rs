//! The model by triggers (Batchy equations 11 to 13): module v is called when `b_v` packets have arrived, and processes
//! all of them.
//!
//! With a trigger of 0, batches pass as they arrive: the module is called with its [ingress
//! batch](super::Module::ingress), and no packet waits.

use super::{Infeasible, Model, Optimum};
use crate::separable::{self, Limit, Term};

impl Model {
    /// Returns the load (equation 11): the busy share of the worker's time. 1 means always busy.
    ///
    /// `triggers` are by module: 0 without a trigger, or 1 to the largest batch.
    #[must_use]
    pub fn load(&self, triggers: &[f64]) -> f64 {
        let of_module = |(at, module): (usize, &super::Module)| {
            let batch = if triggers[at] > 0.0 { triggers[at] } else { module.ingress };
            self.rates[at] / batch * module.cpu.at(batch)
        };
        self.modules.iter().enumerate().map(of_module).sum()
    }

    /// Returns the delay of each flow (equation 12), in seconds: one turn, the waits for batches, and the calls. `None`
    /// for a flow without packets.
    #[must_use]
    pub fn delays(&self, triggers: &[f64]) -> Vec<Option<f64>> {
        let of_module = |&at: &usize| {
            let (module, trigger) = (&self.modules[at], triggers[at]);
            if trigger > 0.0 {
                trigger / self.rates[at] + module.delay.at(trigger)
            } else {
                module.delay.at(module.ingress)
            }
        };
        let flows = self.flows.iter();
        flows.map(|flow| (flow.rate > 0.0).then(|| self.turn + flow.path.iter().map(of_module).sum::<f64>())).collect()
    }

    /// Returns, for each module, the derivative of the load by its trigger, which must be above 0: `−R·T0/b²`.
    #[must_use]
    pub fn load_gradient(&self, triggers: &[f64]) -> Vec<f64> {
        let of_module =
            |(at, module): (usize, &super::Module)| -self.rates[at] * module.cpu.fixed / triggers[at].powi(2);
        self.modules.iter().enumerate().map(of_module).collect()
    }

    /// Returns the derivative of the delay of flows through a module by its trigger, in seconds per packet: `1/R + T1`.
    /// Infinite if no packets arrive.
    #[must_use]
    pub fn delay_slope(&self, module: usize) -> f64 {
        1.0 / self.rates[module] + self.modules[module].delay.each
    }

    /// True if triggers are within their bounds (equation 13), and all flows are within their objectives.
    #[must_use]
    pub fn is_feasible(&self, triggers: &[f64]) -> bool {
        let bounds = triggers.iter().all(|trigger| (1.0..=self.largest).contains(trigger));
        let delays = self.delays(triggers);
        bounds && self.flows.iter().zip(delays).all(|(flow, delay)| delay.is_none_or(|delay| delay <= flow.slo))
    }

    /// Returns the triggers with the least load within all objectives (equations 11 to 13). The least load is unique,
    /// because the load is convex and the delays are linear. Modules without a gain or without packets get a trigger of
    /// 1.
    ///
    /// # Errors
    /// [`Infeasible`]: some flows cannot keep their objectives even with triggers of 1.
    pub fn optimum(&self) -> Result<Optimum, Infeasible> {
        let terms = self.modules.iter().enumerate().map(|(at, module)| {
            let comes = self.rates[at] > 0.0;
            let (gain, weight) =
                if comes { (self.rates[at] * module.cpu.fixed, self.delay_slope(at)) } else { (0.0, 1.0) };
            Term { gain, weight, low: 1.0, high: self.largest }
        });
        let terms: Vec<_> = terms.collect();
        let held = |(_, flow): &(usize, &super::Flow)| flow.rate > 0.0 && flow.slo.is_finite();
        let held: Vec<_> = self.flows.iter().enumerate().filter(held).collect();
        let limits = held.iter().map(|(_, flow)| {
            let calls: f64 = flow.path.iter().map(|&at| self.modules[at].delay.fixed).sum();
            Limit { terms: &flow.path, most: flow.slo - self.turn - calls }
        });
        let limits: Vec<_> = limits.collect();
        let flow_of = |limit: usize| held[limit].0;
        let solved = separable::solve(&terms, &limits)
            .map_err(|limits| Infeasible { flows: limits.into_iter().map(flow_of).collect() })?;
        let mut prices = vec![0.0; self.flows.len()];
        for (limit, price) in solved.prices.into_iter().enumerate() {
            prices[flow_of(limit)] = price;
        }
        let mut batches = solved.values;
        // `delays` adds in another order, so a rounding error may exceed an objective. Batches are reduced until no
        // objective is exceeded.
        let mut back = f64::EPSILON;
        while !self.is_feasible(&batches) && back < 1.0 {
            batches.iter_mut().for_each(|batch| *batch -= (*batch - 1.0) * back);
            back *= 2.0;
        }
        Ok(Optimum { batches, prices })
    }
}
