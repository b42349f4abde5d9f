//! The batch model of Batchy (Lévai et al., NSDI 2020, section 4): what the modules of a worker take, and how long flows wait in
//! them, by the size of batches.
//!
//! A [`Model`] is the graph with its costs and rates. The paper tells it twice: by the batch that each module waits for
//! ([`run_to_completion`], equations 11 to 13), and by how often each module is executed ([`explicit`], equations 8 to 10).

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

/// What a call takes by its packets: `fixed + each · n` seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Line {
    /// Seconds a call: T0.
    pub fixed: f64,
    /// Seconds a packet: T1.
    pub each: f64,
}

impl Line {
    /// Seconds for a call with so many packets.
    #[must_use]
    pub fn at(self, packets: f64) -> f64 {
        self.fixed + self.each * packets
    }

    /// Batchiness (Batchy section 3): the share of a packet's cost that is left when `largest` of them come together,
    /// `(T0 + B·T1) / (B·(T0 + T1))`. It is 1/B where all is saved, and 1 where nothing is, also where nothing costs anything.
    #[must_use]
    pub fn batchiness(self, largest: f64) -> f64 {
        let alone = largest * self.at(1.0);
        if alone > 0.0 { self.at(largest) / alone } else { 1.0 }
    }
}

/// A module: a function with the queue before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Module {
    /// What a call takes of the worker.
    pub cpu: Line,
    /// By how much a call delays the packets in it. The same as `cpu` for functions; not where calling is waking somebody.
    pub delay: Line,
    /// Packets in a batch as they arrive: what a module without a trigger is called with. At least 1.
    pub ingress: f64,
}

/// Packets that take one way, and are to be through within a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Its modules, by number; each once.
    pub path: Vec<usize>,
    /// Packets a second.
    pub rate: f64,
    /// How long they may take, in seconds; infinite where that does not matter.
    pub slo: f64,
}

/// A worker's modules and the flows through them.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    modules: Vec<Module>,
    flows: Vec<Flow>,
    largest: f64,
    turn: f64,
    rates: Vec<f64>,
}

/// Why there is no such model.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// A path over a module that is not there.
    #[error("flow {flow}: there is no module {module}: there are {modules}, from 0")]
    Path {
        /// The flow.
        flow: usize,
        /// The module named.
        module: usize,
        /// How many there are.
        modules: usize,
    },
    /// A path over a module twice: its cost would be counted twice.
    #[error("flow {flow}: module {module} is twice on its path")]
    Twice {
        /// The flow.
        flow: usize,
        /// The module.
        module: usize,
    },
    /// A figure that makes no sense.
    #[error("{place}: {value}: allowed are {allowed}")]
    Figure {
        /// Where it stands.
        place: String,
        /// What it is.
        value: f64,
        /// What it may be.
        allowed: &'static str,
    },
}

impl Model {
    /// Of `modules` and `flows`, with batches of at most `largest` packets.
    ///
    /// # Errors
    /// [`ModelError`]: a path or a figure that makes no sense.
    pub fn new(modules: Vec<Module>, flows: Vec<Flow>, largest: f64) -> Result<Self, ModelError> {
        figure(|| "the largest batch".to_owned(), largest, largest >= 1.0 && largest.is_finite(), "1 and more")?;
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

    /// The same with a turn that takes `seconds`, as was measured, instead of the most that it can: all modules with full
    /// batches.
    #[must_use]
    pub fn with_turn(self, seconds: f64) -> Self {
        Self { turn: seconds, ..self }
    }

    /// The same with packets of no flow: `rates`, by module, are what comes in all. What flows say is the least.
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

    /// Packets in the largest batch: B.
    #[must_use]
    pub fn largest(&self) -> f64 {
        self.largest
    }

    /// Seconds that a turn takes: `T_turn`.
    #[must_use]
    pub fn turn(&self) -> f64 {
        self.turn
    }

    /// By module: packets a second, of all flows through it and of none: R.
    #[must_use]
    pub fn rates(&self) -> &[f64] {
        &self.rates
    }
}

fn figure(place: impl FnOnce() -> String, value: f64, fits: bool, allowed: &'static str) -> Result<(), ModelError> {
    if fits { Ok(()) } else { Err(ModelError::Figure { place: place(), value, allowed }) }
}

/// Triggers that cost least within all objectives, or as near to them as can be known.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimum {
    /// By module: packets in a batch, 1 to the largest; not rounded.
    pub batches: Vec<f64>,
    /// By flow: by how much the load would fall, in seconds a second, if its objective were a second longer. 0 where there is time
    /// left.
    pub prices: Vec<f64>,
}

/// Flows whose objectives cannot be kept, whatever the batches are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no batches keep the objectives of flows {flows:?}")]
pub struct Infeasible {
    /// Those flows, by number.
    pub flows: Vec<usize>,
}
