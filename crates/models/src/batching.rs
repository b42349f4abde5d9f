//! The batch model of Batchy (Lévai et al., NSDI 2020, section 4): the load of a worker's modules and the delay of
//! flows, as functions of the batch sizes.
//!
//! A [`Model`] is the graph with its costs and rates. The paper has two formulations: by the batch that each module
//! waits for ([`run_to_completion`], equations 11 to 13), and by the rate at which each module is executed
//! ([`explicit`], equations 8 to 10).

pub mod buffers;
pub mod decomposition;
pub mod explicit;
pub mod gradient;
mod holding;
pub mod measured;
mod projection;
pub mod recovery;
pub mod run_to_completion;
mod search;
mod segments;
mod spare;
pub mod waiting;

/// The duration of a call as a function of its packets: `fixed + each · n` seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Line {
    /// Seconds per call: T0.
    pub fixed: f64,
    /// Seconds per packet: T1.
    pub each: f64,
}

impl Line {
    /// Returns the duration of a call with `packets` packets, in seconds.
    #[must_use]
    pub fn at(self, packets: f64) -> f64 {
        self.fixed + self.each * packets
    }

    /// Returns the batchiness (Batchy section 3): the cost of a packet in a batch of `largest`, relative to its cost
    /// alone, `(T0 + B·T1) / (B·(T0 + T1))`. The batchiness is 1/B if only T0 is above 0, and 1 if T0 is 0.
    #[must_use]
    pub fn batchiness(self, largest: f64) -> f64 {
        let alone = largest * self.at(1.0);
        if alone > 0.0 { self.at(largest) / alone } else { 1.0 }
    }
}

/// A module: a function with its input queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Module {
    /// The time that a call uses of the worker.
    pub cpu: Line,
    /// The delay of packets in a call. Equal to `cpu` for functions. Different from `cpu` if the call only wakes
    /// another thread.
    pub delay: Line,
    /// Packets per batch on arrival, from 1 to the largest batch. A module without a trigger is called with such
    /// batches.
    pub ingress: f64,
}

/// Packets that take the same path and have a delay objective.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// The indices of its modules, in the order in which packets pass them; each index at most once.
    pub path: Vec<usize>,
    /// Packets per second.
    pub rate: f64,
    /// The delay objective, in seconds; infinite if there is none.
    pub slo: f64,
}

/// A worker's modules and the flows through them.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    modules: Vec<Module>,
    flows: Vec<Flow>,
    /// The size of the largest batch.
    largest: f64,
    /// The duration of a turn, in seconds.
    turn: f64,
    /// By module: packets per second, at least the sum of the rates of its flows.
    rates: Vec<f64>,
}

/// A model cannot be created.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// A path contains a module that does not exist.
    #[error("flow {flow}: module {module} does not exist: allowed are numbers below {modules}")]
    Path {
        /// The flow.
        flow: usize,
        /// The module on the path.
        module: usize,
        /// The number of modules.
        modules: usize,
    },
    /// A path contains a module twice. The module's cost would be counted twice.
    #[error("flow {flow}: module {module} is on its path twice: list it once")]
    Twice {
        /// The flow.
        flow: usize,
        /// The module.
        module: usize,
    },
    /// A figure is out of range.
    #[error("{place}: {value}: allowed are {allowed}")]
    Figure {
        /// The name of the figure.
        place: String,
        /// Its value.
        value: f64,
        /// The allowed values.
        allowed: &'static str,
    },
}

impl Model {
    /// Creates a model of `modules` and `flows`, with batches of at most `largest` packets.
    ///
    /// # Errors
    /// [`ModelError`]: a path or a figure is invalid.
    pub fn new(modules: Vec<Module>, flows: Vec<Flow>, largest: f64) -> Result<Self, ModelError> {
        figure(|| "the largest batch".to_owned(), largest, largest >= 1.0 && largest.is_finite(), "1 or more")?;
        for (at, module) in modules.iter().enumerate() {
            for cost in [module.cpu.fixed, module.cpu.each, module.delay.fixed, module.delay.each] {
                figure(|| format!("module {at}: cost"), cost, cost >= 0.0 && cost.is_finite(), "0 seconds and more")?;
            }
            let arrives = module.ingress;
            figure(
                || format!("module {at}: ingress"),
                arrives,
                (1.0..=largest).contains(&arrives),
                "1 to the largest batch",
            )?;
        }
        let mut rates = vec![0.0; modules.len()];
        let mut last = vec![usize::MAX; modules.len()];
        for (at, flow) in flows.iter().enumerate() {
            let Flow { rate, slo, .. } = *flow;
            figure(
                || format!("flow {at}: rate"),
                rate,
                rate >= 0.0 && rate.is_finite(),
                "0 packets a second and more",
            )?;
            figure(|| format!("flow {at}: objective"), slo, slo > 0.0, "more than 0 seconds")?;
            for &module in &flow.path {
                let missing = || ModelError::Path { flow: at, module, modules: modules.len() };
                let last = last.get_mut(module).ok_or_else(missing)?;
                if std::mem::replace(last, at) == at {
                    return Err(ModelError::Twice { flow: at, module });
                }
                rates[module] += rate;
            }
        }
        let turn = modules.iter().map(|module| module.delay.at(largest)).sum();
        Ok(Self { modules, flows, largest, turn, rates })
    }

    /// Sets the duration of a turn to a measured value. The default is the maximum: all modules with full batches.
    #[must_use]
    pub fn with_turn(self, seconds: f64) -> Self {
        Self { turn: seconds, ..self }
    }

    /// Adds packets that belong to no flow. `rates` has the total rate of each module, in packets per second. A rate
    /// below the sum of the rates of the module's flows is replaced by this sum.
    #[must_use]
    pub fn with_rates(mut self, rates: impl IntoIterator<Item = f64>) -> Self {
        self.rates.iter_mut().zip(rates).for_each(|(rate, all)| *rate = rate.max(all));
        self
    }

    /// The modules.
    #[must_use]
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// The flows.
    #[must_use]
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// The size of the largest batch: B.
    #[must_use]
    pub fn largest(&self) -> f64 {
        self.largest
    }

    /// The duration of a turn, in seconds: `T_turn`.
    #[must_use]
    pub fn turn(&self) -> f64 {
        self.turn
    }

    /// The packets per second of each module, R: packets of flows, and packets that belong to no flow.
    #[must_use]
    pub fn rates(&self) -> &[f64] {
        &self.rates
    }
}

/// Returns an error with the name and the value of a figure if it does not fit.
fn figure(name: impl FnOnce() -> String, value: f64, fits: bool, allowed: &'static str) -> Result<(), ModelError> {
    if fits { Ok(()) } else { Err(ModelError::Figure { place: name(), value, allowed }) }
}

/// The triggers with the least load within all objectives, up to numerical precision.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimum {
    /// The batch of each module, 1 to the largest batch, not rounded.
    pub batches: Vec<f64>,
    /// For each flow, the decrease of the load (in seconds per second) for one more second of its objective. 0 if the
    /// objective is not binding.
    pub prices: Vec<f64>,
}

/// The objectives of some flows cannot be kept with any batches.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no batch sizes meet the objectives of flows {flows:?}: allow longer delays, or lower the rates")]
pub struct Infeasible {
    /// The indices of these flows.
    pub flows: Vec<usize>,
}
