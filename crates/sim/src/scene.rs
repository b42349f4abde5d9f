//! What is simulated: a pipeline's shape, as each of its workers has it, and the ways that packets take through it.

use std::sync::Arc;

use forebay_graph::report::LostLines;
use forebay_graph::{Layout, Pace, Topology};
use forebay_measure::Nanos;

use crate::pattern::Pattern;

/// A way ends here otherwise than by a port: its packets are dropped, or end in a function.
pub(crate) const GONE: u32 = u32::MAX;
/// What leaves is of no flow.
pub(crate) const NO_FLOW: u32 = u32::MAX;

/// A pipeline that can be simulated: its shape, and what traffic it has. [Learnt](Self::learn) from the pipeline itself.
#[derive(Clone)]
pub struct Scene {
    pub(crate) layout: Layout,
    /// By flow: its name, and its objective, also of those of which the layout has no path.
    pub(crate) flows: usize,
    /// By flow: the mean length of its packets as they leave, in bytes; 0 where none left.
    pub(crate) lengths: Vec<f64>,
    /// Ways, one after the other: the nodes that a packet comes to, each by its number in the worker where that is; past a
    /// port by which it leaves, its flow.
    pub(crate) hops: Arc<[u32]>,
    pub(crate) workers: Vec<Site>,
    /// Rings between workers.
    pub(crate) rings: Vec<RingPlan>,
    /// By port: the module that its packets enter by, where there is one.
    pub(crate) entries: Vec<Option<usize>>,
    /// By module: trigger and hold limit as configured.
    pub(crate) buffers: Vec<(usize, Option<Nanos>)>,
    /// Lines that modules' files lack, of the packets that were watched.
    pub(crate) lost_lines: Vec<LostLines>,
}

/// A worker's part.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) topology: Topology,
    /// Modules, ports, the bin, then places where packets wait that are for other workers.
    pub(crate) nodes: Vec<Place>,
    /// By node: whether one edge alone leads there.
    pub(crate) alone: Vec<bool>,
    pub(crate) sources: Vec<SourcePlan>,
    /// Rings from other workers, in the order in which they are read.
    pub(crate) ins: Vec<usize>,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A module that runs here or elsewhere, or none that runs.
    Module,
    /// Packets leave here, or end.
    Out,
    /// Each packet goes on to its session's worker.
    Spread,
    /// All go by this ring; those that find it full are dropped, where there is a module here that they are for.
    Away(usize, Option<usize>),
}

/// A port that packets enter by.
#[derive(Clone)]
pub(crate) struct SourcePlan {
    /// Its number among the ports.
    pub(crate) port: usize,
    /// The node that its packets come to.
    pub(crate) entry: usize,
    pub(crate) pace: Pace,
    pub(crate) pattern: Pattern,
}

/// A ring from one worker to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RingPlan {
    pub(crate) to: usize,
    pub(crate) crossing: Crossing,
    pub(crate) from: usize,
}

/// Why packets go to another worker; the engine keeps them apart, so that workers never wait for each other in a circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Crossing {
    /// They have entered by a port, and their session is another worker's.
    Entry,
    /// The next module is another worker's.
    Work,
    /// They leave by another worker's port.
    Leave,
}

impl Scene {
    /// What a controller sees of the pipeline.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }
}
