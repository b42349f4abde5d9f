//! The types of the sections with fixed keys. They define how a section is read and its schema.
//!
//! The schemas of the sections that name functions, ports and kinds of state are in [`schema`](crate::schema). They are
//! generated from the registered declarations.

use forebay_graph::{Marks, WhenFull};
use forebay_packet::PoolOptions;
use forebay_units::{Nanos, Percentile, Rate};
use schemars::JsonSchema;
use serde::Deserialize;

/// The largest number of workers. Machines with more cores are rare.
pub(crate) const MOST_WORKERS: usize = 256;

/// Packet memory.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PoolSection {
    /// The number of packets that can exist at once; 16384 by default.
    #[schemars(range(min = 1, max = 16_777_216))]
    pub(crate) chunks: usize,
    /// The longest frame in bytes; 2048 by default. Ports drop longer frames, as `oversize`.
    #[schemars(range(min = 64, max = 65_343))]
    pub(crate) frame: usize,
}

impl Default for PoolSection {
    fn default() -> Self {
        let PoolOptions { chunks, frame, .. } = PoolOptions::default();
        Self { chunks, frame }
    }
}

/// Whether equal modules of branches run as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Fold {
    /// Modules run as one where possible: the default.
    #[default]
    On,
    /// Every module runs by itself, as it is written.
    Off,
}

/// A module's input queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Buffer {
    /// The number of packets for which the module waits, up to `batch`; 0 by default. With 0, packets pass at once.
    #[schemars(range(max = 256))]
    pub(crate) trigger: usize,
    /// The longest time that packets wait for the trigger. By default it follows from the flows' delay objectives;
    /// without objectives it is 1ms.
    pub(crate) hold: Option<Nanos>,
}

/// A module's share of the worker's time (`scheduler: weighted-fair`).
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Share {
    /// The weight of the module; 1 by default. Modules with waiting packets get processor time in proportion to their
    /// weights.
    #[schemars(range(min = 1, max = 65_535))]
    pub(crate) weight: u32,
    /// The module's largest rate, in packets (`1Mpps`) or bits (`10Gbps`) a second, 1pps to 1000Gpps or 8bps to
    /// 8000Tbps; none by default. Packets beyond the rate wait.
    pub(crate) rate: Option<Rate>,
    /// The time for which an idle module saves its unused rate, 0us to 10s; 1ms by default.
    pub(crate) burst: Option<Nanos>,
    /// The intended size of the module's input queue, in packets; 1024 by default.
    #[schemars(range(min = 1, max = 16_777_216))]
    pub(crate) queue: u32,
    /// Percent of `queue` at which the module is overloaded; 80 by default.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) high: u32,
    /// Percent of `queue` at which the overload ends; 60 by default.
    #[schemars(range(max = 99))]
    pub(crate) low: u32,
    /// The reaction to overload of the module. With `wait` (the default), the worker does not read the ports whose
    /// packets can reach the module. With `drop`, the worker drops packets at the start of the chain that leads only to
    /// the module.
    pub(crate) when_full: WhenFull,
}

impl Default for Share {
    fn default() -> Self {
        let forebay_graph::Share { weight, marks: Marks { queue, high, low, when_full }, .. } = Default::default();
        Self { weight, rate: None, burst: None, queue, high, low, when_full }
    }
}

impl Share {
    /// Returns the marks of the input queue.
    pub(crate) fn marks(&self) -> Marks {
        Marks { queue: self.queue, high: self.high, low: self.low, when_full: self.when_full }
    }
}

/// The packets that take one path, with their objectives.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Flow {
    /// The flow's name, without control characters.
    #[schemars(length(min = 1), regex(pattern = crate::schema::ONE_LINE))]
    pub(crate) name: String,
    /// The modules on the path in order, each `module` or `module[gate]`: a list, or text with arrows between. Packets
    /// may pass other modules between them.
    pub(crate) path: Path,
    /// The delay objective, from arrival to departure.
    pub(crate) slo: Option<Nanos>,
    /// The part of the packets whose delay must keep the objective, as a percentile (99 by default), or `mean` for
    /// their mean delay.
    pub(crate) percentile: Option<Percentile>,
    /// The rate objective, 1pps to 1000Gpps or 1bps to 1Tbps: the flow gets at least this rate if it offers this rate,
    /// independent of other flows. The rate is in packets a second, or in bits a second of frames without preamble and
    /// gaps. The controller `fair` keeps it, under `scheduler: weighted-fair`.
    pub(crate) min_rate: Option<Rate>,
}

/// A flow's path.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Path {
    /// As text with arrows: `vlans[100] -> fw -> route`.
    Text(String),
    /// As a list of modules.
    List(Vec<String>),
}

/// A thread that runs the pipeline, or a part of it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Worker {
    /// The core that the worker is bound to; chosen automatically by default.
    #[schemars(range(max = 4_095))]
    pub(crate) core: Option<usize>,
    /// The modules that the worker runs. By default, it runs the modules that no worker names. Modules that several
    /// workers run are replicated: each worker gets a part of the sessions. A worker with an empty list sleeps until
    /// modules move to it.
    pub(crate) modules: Option<Vec<String>>,
    /// How packets are distributed over the workers that run the same modules: by session, which is the default.
    #[allow(dead_code, reason = "read only to check it: there is one value")]
    pub(crate) dispatch: Option<Dispatch>,
}

/// How packets are distributed over workers.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Dispatch {
    /// All packets of a session, in both directions, go to one worker, by a symmetric hash of the addresses, the
    /// protocol and the ports.
    Session,
}

/// The controller that sets the triggers while the pipeline runs, so that flows keep their delay objectives with the
/// fewest cycles.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Control {
    /// The controller: its name, or its name with its parameters.
    pub(crate) batching: serde_json::Value,
    /// The period of its decisions.
    #[serde(default)]
    pub(crate) period: Option<Nanos>,
    /// The part of each delay objective that is kept in reserve.
    #[serde(default)]
    pub(crate) guard: Option<f64>,
    /// The largest number of workers that it may use.
    #[serde(default)]
    pub(crate) workers: Option<usize>,
}
