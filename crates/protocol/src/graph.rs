//! The graph of a pipeline, complete enough to draw it: modules, ports, and the edges between them.

use forebay_units::Percentile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::layout::SchedulerKind;

/// A pipeline's graph. Each name is unique among modules and ports, so an edge identifies its two ends by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GraphReport {
    /// The version of this format: [`VERSION`](Self::VERSION).
    pub version: u32,
    /// The pipeline's name.
    pub pipeline: String,
    /// The largest batch, in packets.
    pub batch: usize,
    /// The workers' scheduler.
    pub scheduler: SchedulerKind,
    /// The workers.
    pub workers: Vec<GraphWorker>,
    /// The modules in topological order: no edge leads to an earlier module.
    pub modules: Vec<GraphModule>,
    /// The ports in the order of the configuration.
    pub ports: Vec<GraphPort>,
    /// The edges: from ports first, then from modules, gate by gate.
    pub edges: Vec<GraphEdge>,
    /// The flows that the configuration declares. If it declares none, every path is a flow.
    pub flows: Vec<GraphFlow>,
}

impl GraphReport {
    /// The present version. It changes when a field is removed or changes its meaning.
    pub const VERSION: u32 = 1;
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GraphWorker {
    /// Its number.
    pub id: usize,
    /// The core that it is bound to; `None` if it is chosen at the start.
    pub core: Option<usize>,
}

/// A module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GraphModule {
    /// Its name.
    pub name: String,
    /// Its function.
    pub function: String,
    /// The workers that run it.
    pub workers: Vec<usize>,
    /// If equal branches run as one: the name of the module that runs for this module. It is the first of the branches,
    /// and may be this module. `None` if this module runs alone.
    pub folded: Option<String>,
    /// Its output gates.
    pub gates: Vec<String>,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GraphPort {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: String,
    /// The workers that it is open on.
    pub workers: Vec<usize>,
}

/// An edge from a port or from a module's gate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GraphEdge {
    /// The port or module.
    pub from: String,
    /// The module's gate; `None` for a port.
    pub gate: Option<String>,
    /// The module or port; `None` if packets are dropped.
    pub to: Option<String>,
}

/// A declared flow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GraphFlow {
    /// Its name.
    pub name: String,
    /// The modules of the flow's path, in order. If the configuration states a gate of a module, it follows the name:
    /// `vlans[100]`. Packets may pass other modules between two of them.
    pub path: Vec<String>,
    /// The delay objective, in microseconds.
    pub slo_us: Option<f64>,
    /// The delay that must keep the objective: a percentile, or the mean.
    pub percentile: Percentile,
    /// The rate objective, in packets per second.
    pub min_rate_pps: Option<f64>,
    /// The rate objective, in bits of frames per second, if it is stated in bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_rate_bps: Option<f64>,
}
