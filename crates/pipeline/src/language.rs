//! The sections of a configuration whose keys are fixed, as types: they are read by these and described by them.
//!
//! The sections that name functions, ports and kinds of state are described in [`schema`](crate::schema), from what is
//! registered.

use forebay_graph::{Marks, WhenFull};
use forebay_packet::PoolOptions;
use forebay_units::{Nanos, Percentile, Rate};
use schemars::JsonSchema;
use serde::Deserialize;

/// Packet memory.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PoolSection {
    /// How many packets there can be at once; 16384 by default.
    #[schemars(range(min = 1, max = 16_777_216))]
    pub(crate) chunks: usize,
    /// The longest frame in bytes; 2048 by default. Longer ones are dropped where they enter, as
    /// `oversize`.
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
    /// Where they can: the default.
    #[default]
    On,
    /// Every module runs by itself, as it is written.
    Off,
}

/// A module's input queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Buffer {
    /// 0: packets pass at once. Else the module runs on exactly so many packets at a time, up to `batch`.
    #[schemars(range(max = 256))]
    pub(crate) trigger: usize,
    /// The longest that packets wait for the trigger. Without it, it follows from the flows' delay objectives; without
    /// those it is 1ms.
    pub(crate) hold: Option<Nanos>,
}

/// What a module is given where modules share the worker's time (`scheduler: weighted-fair`).
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Share {
    /// Modules that have work get ticks in proportion to their weights; 1 by default.
    #[schemars(range(min = 1, max = 65_535))]
    pub(crate) weight: u32,
    /// The rate that the module does not exceed, of packets (`1Mpps`) or of their bits (`10Gbps`), 1pps to 1000Gpps or
    /// 8bps to 8000Tbps; none by default. What comes faster waits.
    pub(crate) rate: Option<Rate>,
    /// How long an idle module's unused rate is saved up, 0us to 10s; 1ms by default.
    pub(crate) burst: Option<Nanos>,
    /// How many packets the module's input queue is meant for; 1024 by default.
    #[schemars(range(min = 1, max = 16_777_216))]
    pub(crate) queue: u32,
    /// Percent of `queue` at which the module is overloaded; 80 by default.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) high: u32,
    /// Percent of `queue` at which it no longer is; 60 by default.
    #[schemars(range(max = 99))]
    pub(crate) low: u32,
    /// While it is overloaded: `wait`, the default, does not read the ports whose packets can come to it; `drop` drops
    /// packets where the chain begins that leads to it and nowhere else.
    pub(crate) when_full: WhenFull,
}

impl Default for Share {
    fn default() -> Self {
        let forebay_graph::Share { weight, marks: Marks { queue, high, low, when_full }, .. } = Default::default();
        Self { weight, rate: None, burst: None, queue, high, low, when_full }
    }
}

impl Share {
    /// Its marks.
    pub(crate) fn marks(&self) -> Marks {
        Marks { queue: self.queue, high: self.high, low: self.low, when_full: self.when_full }
    }
}

/// The packets that take one path, with their objectives.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Flow {
    /// The flow's name.
    pub(crate) name: String,
    /// Modules on the path in order, `module` or `module[gate]`: a list, or text with arrows between. Others may lie
    /// between them.
    pub(crate) path: Path,
    /// The delay objective, from arrival to departure.
    pub(crate) slo: Option<Nanos>,
    /// Which of the packets' delays must keep the objective: that of a share of them, as a percentile (99 by default),
    /// or `mean`.
    pub(crate) percentile: Option<Percentile>,
    /// The rate objective, 1pps to 1000Gpps or 1bps to 1Tbps: the flow gets at least that much of what it offers,
    /// whatever others offer. In packets a second, or in bits a second of frames, without what the wire adds. The
    /// controller `fair` keeps it, under `scheduler: weighted-fair`.
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
    /// The core that it is bound to; without it, one is chosen.
    #[schemars(range(max = 4_095))]
    pub(crate) core: Option<usize>,
    /// The modules that it runs. Without it, those that no worker names. Modules that several workers run are replicated:
    /// each worker gets its share of the sessions. A worker with an empty list sleeps until modules are moved to it.
    pub(crate) modules: Option<Vec<String>>,
    /// How packets are spread over the workers that run the same modules: by session, which is the default.
    #[allow(dead_code, reason = "read so that what is written is checked: there is one way")]
    pub(crate) dispatch: Option<Dispatch>,
}

/// How packets are spread over workers.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Dispatch {
    /// All packets of a session, in both directions, go to one worker: by a symmetric hash of the addresses, the protocol
    /// and the ports.
    Session,
}

/// What sets the triggers while the pipeline runs, so that flows keep their delay objectives at the fewest cycles.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Control {
    /// The controller: its name, or its name with its parameters.
    pub(crate) batching: serde_json::Value,
    /// How often it decides.
    #[serde(default)]
    pub(crate) period: Option<Nanos>,
    /// The part of each delay objective that is kept in reserve.
    #[serde(default)]
    pub(crate) guard: Option<f64>,
    /// The most workers that it may use.
    #[serde(default)]
    pub(crate) workers: Option<usize>,
}
