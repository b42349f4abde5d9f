//! The model by executions (Batchy equations 8 to 10): a weighted-fair scheduler calls module v `x_v` times per second,
//! each time with all packets that have arrived. The paper leaves a controller for this model to later work.
//!
//! This formulation is equivalent to the model by triggers ([`run_to_completion`](super::run_to_completion)): with `x =
//! R/b`, both give the same load and the same delays.

use super::{Infeasible, Model};

impl Model {
    /// Returns the executions per second of each module, `R/b`; 0 if no packets arrive. All triggers must be above 0.
    #[must_use]
    pub fn executions(&self, triggers: &[f64]) -> Vec<f64> {
        self.rates.iter().zip(triggers).map(|(rate, trigger)| rate / trigger).collect()
    }

    /// Returns the load (equation 8) for these executions per second.
    #[must_use]
    pub fn load_by_executions(&self, executions: &[f64]) -> f64 {
        let of_module = |(at, module): (usize, &super::Module)| match executions[at] {
            0.0 => 0.0,
            executions => executions * module.cpu.at(self.rates[at] / executions),
        };
        self.modules.iter().enumerate().map(of_module).sum()
    }

    /// Returns the delay of each flow (equation 9), in seconds, for these executions per second. `None` for a flow
    /// without packets.
    #[must_use]
    pub fn delays_by_executions(&self, executions: &[f64]) -> Vec<Option<f64>> {
        let of_module = |&at: &usize| 1.0 / executions[at] + self.modules[at].delay.at(self.rates[at] / executions[at]);
        let flows = self.flows.iter();
        flows.map(|flow| (flow.rate > 0.0).then(|| self.turn + flow.path.iter().map(of_module).sum::<f64>())).collect()
    }

    /// Returns, for each module, the derivative of the load by its executions per second: `T0`.
    #[must_use]
    pub fn load_gradient_by_executions(&self) -> Vec<f64> {
        self.modules.iter().map(|module| module.cpu.fixed).collect()
    }

    /// Returns the derivative of delays by a module's executions per second, for the flows through it: `−(1 +
    /// T1·R)/x²`.
    #[must_use]
    pub fn delay_slope_by_executions(&self, module: usize, executions: f64) -> f64 {
        -(1.0 + self.modules[module].delay.each * self.rates[module]) / executions.powi(2)
    }

    /// True if executions are within their bounds (equation 10), and all flows are within their objectives.
    #[must_use]
    pub fn is_feasible_by_executions(&self, executions: &[f64]) -> bool {
        let within = |(rate, executions): (&f64, &f64)| (rate / self.largest..=*rate).contains(executions);
        let delays = self.delays_by_executions(executions);
        self.rates.iter().zip(executions).all(within)
            && self.flows.iter().zip(delays).all(|(flow, delay)| delay.is_none_or(|delay| delay <= flow.slo))
    }

    /// Returns the executions per second with the least load within all objectives (equations 8 to 10).
    ///
    /// # Errors
    /// [`Infeasible`]: some flows cannot keep their objectives even with one execution per packet.
    pub fn optimum_by_executions(&self) -> Result<Vec<f64>, Infeasible> {
        // With b = R/x, load and limits are the same as in equation 11: one solver is enough.
        self.optimum().map(|optimum| self.executions(&optimum.batches))
    }
}
