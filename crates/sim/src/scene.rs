//! The input of a simulation: the shape of a pipeline on each of its workers, and the routes that packets take through
//! it.

use std::sync::Arc;

use forebay_graph::{Pace, Topology};
use forebay_protocol::{Layout, report::LostLines};
use forebay_units::Nanos;

use crate::pattern::Pattern;

/// The last hop of a route whose packets are dropped or consumed.
pub(crate) const GONE: u32 = u32::MAX;
/// The last hop of a route whose packets are sent and belong to no flow. It follows the hop of the port.
pub(crate) const NO_FLOW: u32 = u32::MAX;

/// A pipeline that can be simulated: its shape and its traffic. [`learn`](Self::learn) builds it from the pipeline
/// itself.
#[derive(Clone)]
pub struct Scene {
    pub(crate) layout: Layout,
    /// The number of flows, including those for which the layout has no path.
    pub(crate) flows: usize,
    /// By flow: the mean length of its packets when they are sent, in bytes; 0 if none was sent.
    pub(crate) lengths: Vec<f64>,
    /// The routes, one after the other. A route is the sequence of nodes that a packet visits. A node is given by its
    /// number, which is valid only for its worker. The last hop is not a node: it is the flow of a packet that is sent,
    /// or [`NO_FLOW`], or [`GONE`].
    pub(crate) hops: Arc<[u32]>,
    pub(crate) workers: Vec<WorkerPlan>,
    /// Rings between workers.
    pub(crate) rings: Vec<RingPlan>,
    /// By port: the module that its packets enter, if there is one.
    pub(crate) entries: Vec<Option<usize>>,
    /// By module: the configured trigger and hold limit.
    pub(crate) buffers: Vec<(usize, Option<Nanos>)>,
    /// By module: the lines that are missing in the module's file after the packets were observed.
    pub(crate) lost_lines: Vec<LostLines>,
}

/// The plan of one worker.
#[derive(Clone)]
pub(crate) struct WorkerPlan {
    /// The input of the worker's scheduler.
    pub(crate) topology: Topology,
    /// The types of the modules, the ports and the drop node, then of the nodes at which packets to other workers wait.
    pub(crate) nodes: Vec<NodeType>,
    /// By node: true if only one module or port of this worker leads to it.
    pub(crate) single_feed: Vec<bool>,
    pub(crate) sources: Vec<SourcePlan>,
    /// The indices of the rings from other workers, in the order in which the worker reads them.
    pub(crate) ins: Vec<usize>,
}

/// The type of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeType {
    /// A module. It may run on other workers only, or be folded into another module: then no packets come here.
    Module,
    /// Packets are sent or dropped here.
    Out,
    /// Each packet goes on to the worker of its session.
    Spread,
    /// All packets go to the ring with this index. If the second value is a module, packets are dropped while the ring
    /// is full, and counted for this module. If the second value is `None`, packets wait until the ring has room.
    Transfer(usize, Option<usize>),
}

/// A port by which packets enter.
#[derive(Clone)]
pub(crate) struct SourcePlan {
    /// The index of the port.
    pub(crate) port: usize,
    /// The node that the packets of the port enter.
    pub(crate) entry: usize,
    /// The arrival times.
    pub(crate) pace: Pace,
    /// The routes of the packets.
    pub(crate) pattern: Pattern,
}

/// A ring from one worker to another. The order of the fields is the order in which rings are sorted and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RingPlan {
    /// The worker that receives from the ring.
    pub(crate) to: usize,
    pub(crate) crossing: Crossing,
    /// The worker that sends to the ring.
    pub(crate) from: usize,
}

/// The reason why packets go to another worker. The engine has separate rings for each reason, so that workers never
/// wait for each other in a circle. The values are indices of the worker's `stuck`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Crossing {
    /// Packets that have entered by a port and whose session belongs to another worker.
    Entry,
    /// Packets whose next module belongs to another worker.
    Work,
    /// Packets that are sent by another worker's port.
    Leave,
}

impl Scene {
    /// Returns the layout of the pipeline, as a controller sees it.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }
}
