//! Which module runs next, and which may not run yet.

mod run_to_completion;
pub(crate) mod share;
mod topology;
mod weighted_fair;

use forebay_packet::Batch;
use forebay_protocol::RateLimit;
use forebay_units::Ticks;

pub use run_to_completion::RunToCompletion;
pub use share::{MAX_QUEUE, MAX_WEIGHT, Marks, Share, ShareError, WhenFull};
pub use topology::Topology;
pub use weighted_fair::WeightedFair;

/// What a call took, as far as the worker knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Took {
    /// It was not timed.
    Unknown,
    /// It was one of the few that are timed.
    Sampled(Ticks),
    /// Exactly this, as every call: time is simulated.
    Exactly(Ticks),
}

/// Decides which module runs next. Modules do not know which scheduler runs them.
///
/// Nodes are numbered in topological order: modules, then the places where packets leave. Within a turn each call of
/// [`next`](Self::next) names a node that has been reported [`ready`](Self::ready) since it last ran.
///
/// What has a body here is for schedulers that share time out ([`SHARES`](Self::SHARES)); the others leave it alone, and
/// it costs them nothing.
pub trait Scheduler: Send {
    /// Its name in configurations.
    const NAME: &'static str;
    /// Whether it shares time out. Then a module runs one batch each time it is chosen, and the scheduler is told what
    /// calls take and how full queues are.
    const SHARES: bool;

    /// A scheduler for a graph, none of whose nodes is ready.
    fn new(topology: &Topology) -> Self;

    /// A turn begins.
    fn begin(&mut self, now: Ticks);

    /// Node `node` has something to run on. May be said again.
    fn ready(&mut self, node: usize);

    /// The node to run next in this turn, no longer ready by that; `None` ends the turn.
    fn next(&mut self) -> Option<usize>;

    /// A node that [`next`](Self::next) will name soon, where that is known at little cost: what it needs can be fetched
    /// ahead.
    fn peek(&self) -> Option<usize>;

    /// Whether nothing is ready that could run at once.
    fn is_idle(&self) -> bool;

    /// Whether `node`, which only the running node feeds and where nothing waits, may run straight after it without
    /// being scheduled: its packets are in the cache then.
    #[inline]
    fn straight_on(&mut self, node: usize) -> bool {
        let _ = node;
        true
    }

    /// Whether the calls of this turn should be timed.
    #[inline]
    fn wants_time(&mut self) -> bool {
        false
    }

    /// Node `node` is about to run on `batch`; `waiting` packets stay in its queue.
    #[inline]
    fn take(&mut self, node: usize, batch: &Batch, waiting: usize) {
        let _ = (node, batch, waiting);
    }

    /// Node `node` has run on so many packets, what follows from the call included.
    #[inline]
    fn charge(&mut self, node: usize, packets: usize, took: Took) {
        let _ = (node, packets, took);
    }

    /// Node `node`, which was chosen, has run, and has more to run on or has not. A module that ports feed may be named by
    /// [`next`](Self::next) all the same, for its ports to be read.
    #[inline]
    fn ran(&mut self, node: usize, more: bool) {
        let _ = (node, more);
    }

    /// More than a batch waits for node `node`: so many packets.
    #[inline]
    fn fill(&mut self, node: usize, waiting: usize) {
        let _ = (node, waiting);
    }

    /// Whether port `port` is not to be read now.
    #[inline]
    fn holds(&self, port: usize) -> bool {
        let _ = port;
        false
    }

    /// Whether port `port`, which feeds node `node`, is to be read when that runs and not before: what was read earlier
    /// would only wait, in colder and colder memory. All ports of a node are read in the same turns.
    #[inline]
    fn waits(&self, port: usize, node: usize) -> bool {
        let _ = (port, node);
        false
    }

    /// Whether packets for node `node` are to be dropped now.
    #[inline]
    fn refuses(&self, node: usize) -> bool {
        let _ = node;
        false
    }

    /// When a node that waits for its rate limit may run, nothing else being ready.
    #[inline]
    fn wake(&self) -> Option<Ticks> {
        None
    }

    /// The end has come: limits and marks no longer hold anything up.
    fn lift(&mut self) {}

    /// Sets a module's weight.
    fn set_weight(&mut self, module: usize, weight: u32) {
        let _ = (module, weight);
    }

    /// Sets a module's rate limit, or takes it away.
    fn set_limit(&mut self, module: usize, limit: Option<RateLimit>) {
        let _ = (module, limit);
    }
}
