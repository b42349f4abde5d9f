//! Results of changes to a running pipeline: a reload, and a move of modules to other workers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The differences between two configurations, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigurationChange {
    /// The number of modules whose state at least one worker takes over.
    pub kept: usize,
    /// Modules that are made again, because their configuration changed or because other sessions come to their
    /// workers.
    pub changed: Vec<String>,
    /// New modules.
    pub added: Vec<String>,
    /// Removed modules.
    pub removed: Vec<String>,
    /// Modules that run on other workers than before.
    pub moved: Vec<String>,
    /// The states whose sessions are lost, because the state is made differently, runs on another number of workers, or
    /// was removed. For a function without a named state, this is the name of the module.
    #[serde(default)]
    pub forgotten: Vec<String>,
    /// Ports that the reload opens, including ports that it closes and opens again.
    pub ports_opened: Vec<String>,
    /// Ports that the reload closes, including ports that it opens again.
    pub ports_closed: Vec<String>,
}

/// The result of a reload.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reloaded {
    /// The differences.
    #[serde(flatten)]
    pub change: ConfigurationChange,
    /// Packets that removed functions held. They were dropped.
    pub dropped: u64,
    /// The core of each worker.
    pub cores: Vec<usize>,
    /// The time from reading the configuration to the change of the last worker, in milliseconds.
    pub took_ms: f64,
    /// The longest time in which a worker took no packets from ports, in microseconds.
    pub pause_us: f64,
    /// Packets of the replaced graph that are unaccounted for. Any value but 0 is a defect.
    pub missing: i64,
    /// The settings in force: those of the start and of all reloads.
    pub sets: Vec<String>,
}

/// A module and the workers that are to run it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WantedWorkers {
    /// The module.
    pub module: String,
    /// The workers, in any order.
    pub to: Vec<usize>,
}

/// A module that moves to other workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModuleMove {
    /// The module.
    pub module: String,
    /// The workers that ran it, lowest first.
    pub from: Vec<usize>,
    /// The workers that run it after the move, lowest first.
    pub to: Vec<usize>,
}

/// The result of a move.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Moved {
    /// The modules that moved, in topological order. Empty if all modules were on the requested workers already. Then
    /// nothing has changed.
    pub moves: Vec<ModuleMove>,
    /// The requested moves that were not made, because more moves were requested than `most` allows.
    pub remaining: Vec<ModuleMove>,
    /// The reload that moved them.
    #[serde(flatten)]
    pub reloaded: Reloaded,
}
