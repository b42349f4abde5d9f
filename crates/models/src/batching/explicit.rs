//! The model by executions (Batchy equations 8 to 10): a weighted-fair scheduler calls module v `x_v` times a second, with as many
//! packets as have come. The paper leaves its controller to later work.
//!
//! It is the same model seen from the other side: under `x = R/b` both give the same load and the same delays.

use super::{Infeasible, Model};

impl Model {
    /// By module, executions a second with these triggers, `R/b`; 0 where no packets come.
    #[must_use]
    pub fn executions(&self, triggers: &[f64]) -> Vec<f64> {
        self.rates.iter().zip(triggers).map(|(rate, trigger)| rate / trigger).collect()
    }

    /// Load (equation 8) by executions a second.
    #[must_use]
    pub fn load_by_executions(&self, executions: &[f64]) -> f64 {
        let of_module = |(at, module): (usize, &super::Module)| match executions[at] {
            0.0 => 0.0,
            executions => executions * module.cpu.at(self.rates[at] / executions),
        };
        self.modules.iter().enumerate().map(of_module).sum()
    }

    /// Delays (equation 9) by executions a second, by flow; `None` for a flow without packets.
    #[must_use]
    pub fn delays_by_executions(&self, executions: &[f64]) -> Vec<Option<f64>> {
        let of_module = |&at: &usize| 1.0 / executions[at] + self.modules[at].delay.at(self.rates[at] / executions[at]);
        let flows = self.flows.iter();
        flows.map(|flow| (flow.rate > 0.0).then(|| self.turn + flow.path.iter().map(of_module).sum::<f64>())).collect()
    }

    /// By module, what the load changes by with an execution more a second: `T0`.
    #[must_use]
    pub fn load_gradient_by_executions(&self) -> Vec<f64> {
        self.modules.iter().map(|module| module.cpu.fixed).collect()
    }

    /// What delays change by with an execution of a module more a second, for the flows through it: `−(1 + T1·R)/x²`.
    #[must_use]
    pub fn delay_slope_by_executions(&self, module: usize, executions: f64) -> f64 {
        -(1.0 + self.modules[module].delay.each * self.rates[module]) / executions.powi(2)
    }

    /// Whether executions are within their bounds (equation 10), and all flows within their objectives.
    #[must_use]
    pub fn is_feasible_by_executions(&self, executions: &[f64]) -> bool {
        let within = |(rate, executions): (&f64, &f64)| (rate / self.largest..=*rate).contains(executions);
        let delays = self.delays_by_executions(executions);
        self.rates.iter().zip(executions).all(within)
            && self.flows.iter().zip(delays).all(|(flow, delay)| delay.is_none_or(|delay| delay <= flow.slo))
    }

    /// Executions a second with the least load within all objectives (equations 8 to 10).
    ///
    /// # Errors
    /// [`Infeasible`]: one execution for each packet is too few for some flow.
    pub fn optimum_by_executions(&self) -> Result<Vec<f64>, Infeasible> {
        // With b = R/x the load differs from equation 11 by nothing, and so do the limits: one solver for both.
        self.optimum().map(|optimum| self.executions(&optimum.batches))
    }
}
