//! The shape of a pipeline for controllers: the properties that do not change while it runs.

use forebay_units::Percentile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The schedulers, by their names in configurations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulerKind {
    /// Each module that is ready runs once a turn, in topological order.
    #[default]
    RunToCompletion,
    /// Modules share the worker's time by their weights.
    WeightedFair,
}

/// The shape of a pipeline. Modules and flows have the same indices as in snapshots and decisions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Layout {
    /// The pipeline's name.
    pub pipeline: String,
    /// The largest batch, in packets.
    pub batch: usize,
    /// The scheduler of its workers.
    pub scheduler: SchedulerKind,
    /// The number of workers.
    pub workers: usize,
    /// The modules.
    pub modules: Vec<ModuleLayout>,
    /// The flows.
    pub flows: Vec<FlowLayout>,
}

/// A module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModuleLayout {
    /// Its name.
    pub name: String,
    /// Its function's name.
    pub function: String,
    /// The module that runs for it: itself, or the first of equal branches that run as one. Only that one has a queue.
    pub leader: usize,
    /// The running modules that its packets come from.
    pub before: Vec<usize>,
    /// Whether packets come to it from a port.
    pub entry: bool,
    /// Whether the configuration sets its trigger. Then no controller changes it.
    pub fixed: bool,
    /// The workers that run it.
    pub workers: Vec<usize>,
    /// Whether only one worker can run it: packets change its state, or packets come to it from a port.
    #[serde(default)]
    pub single: bool,
}

/// A flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowLayout {
    /// Its name.
    pub name: String,
    /// The running modules on its path, first to last. Empty if the flow has no objective and no share of time.
    pub path: Vec<usize>,
    /// The delay objective, in seconds.
    pub slo_s: Option<f64>,
    /// The delay that must keep the objective: a percentile, or the mean.
    pub percentile: Percentile,
    /// The rate objective, in packets per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rate: Option<f64>,
    /// The rate objective, in bits of frames per second, if it is stated in bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rate_bits: Option<f64>,
}

impl Layout {
    /// Returns the modules for which no other module runs, with their indices.
    pub fn running(&self) -> impl Iterator<Item = (usize, &ModuleLayout)> {
        self.modules.iter().enumerate().filter(|(at, module)| module.leader == *at)
    }

    /// Returns, by module, the running modules that its packets go to.
    #[must_use]
    pub fn after(&self) -> Vec<Vec<usize>> {
        let mut after = vec![Vec::new(); self.modules.len()];
        for (at, module) in self.running() {
            module.before.iter().for_each(|&before| after[before].push(at));
        }
        after
    }
}
