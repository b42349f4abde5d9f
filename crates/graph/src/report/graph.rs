//! A pipeline as a drawing shows it: modules, ports, and where packets go between them.

use serde::{Deserialize, Serialize};

use crate::scheduler::SchedulerKind;

use forebay_units::Percentile;

/// A pipeline's graph. Names of modules and ports differ, so that edges name their ends by them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GraphReport {
    /// The version of this format: [`VERSION`](Self::VERSION).
    pub version: u32,
    /// The pipeline's name.
    pub pipeline: String,
    /// Packets in the largest batch.
    pub batch: usize,
    /// The workers' scheduler.
    pub scheduler: SchedulerKind,
    /// By worker.
    pub workers: Vec<GraphWorker>,
    /// In topological order: no edge leads to an earlier module.
    pub modules: Vec<GraphModule>,
    /// In the order of the configuration.
    pub ports: Vec<GraphPort>,
    /// From ports, then from modules, gate by gate.
    pub edges: Vec<GraphEdge>,
    /// Flows that the configuration declares. Without any, every path is a flow.
    pub flows: Vec<GraphFlow>,
}

impl GraphReport {
    /// The present version. It changes when a field goes or means something else.
    pub const VERSION: u32 = 1;
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphWorker {
    /// Its number.
    pub id: usize,
    /// The core that it is bound to; `None` where it is chosen at the start.
    pub core: Option<usize>,
}

/// A module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphModule {
    /// Its name.
    pub name: String,
    /// Its function.
    pub function: String,
    /// The workers that run it.
    pub workers: Vec<usize>,
    /// The module that runs for it where equal modules of branches run as one; itself where it is the first of them.
    /// `None` where it runs by itself.
    pub folded: Option<String>,
    /// Its output gates.
    pub gates: Vec<String>,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphPort {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// The workers that it is open on.
    pub workers: Vec<usize>,
}

/// A way of packets from a port or a module's gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphEdge {
    /// The port or module.
    pub from: String,
    /// The module's gate; `None` of a port.
    pub gate: Option<String>,
    /// The module or port; `None` where packets are dropped.
    pub to: Option<String>,
}

/// A declared flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GraphFlow {
    /// Its name.
    pub name: String,
    /// Modules on its path, in order, with the gate where that matters: `vlans[100]`. Others may lie between.
    pub path: Vec<String>,
    /// The delay objective, in microseconds.
    pub slo_us: Option<f64>,
    /// Which of its delays must keep it: a percentile, or the mean.
    pub percentile: Percentile,
    /// The rate objective, in packets a second.
    pub min_rate_pps: Option<f64>,
    /// The rate objective in bits a second of frames, where it is stated so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rate_bps: Option<f64>,
}
