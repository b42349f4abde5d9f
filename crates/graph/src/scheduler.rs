//! Schedulers: which module runs next, and which must wait.

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

/// The worker's knowledge of the cost of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Took {
    /// The call was not timed.
    Unknown,
    /// The call was one of the few timed ones.
    Sampled(Ticks),
    /// The exact cost, because time is simulated.
    Exactly(Ticks),
}

/// Decides which module runs next. Modules do not know which scheduler runs them.
///
/// Nodes are numbered in topological order: modules, then the nodes by which packets leave. Within a turn each call of
/// [`next`](Self::next) returns a node that was reported [`ready`](Self::ready) since it last ran.
///
/// The methods with a default body are for schedulers that share time ([`SHARES`](Self::SHARES)). Other schedulers do
/// not implement these methods, and the calls of their default bodies cost nothing.
pub trait Scheduler: Send {
    /// The scheduler's name in configurations.
    const NAME: &'static str;
    /// Whether the scheduler shares time. Then a module runs one batch each time it is chosen, and the worker reports
    /// costs of calls and lengths of queues.
    const SHARES: bool;

    /// Creates a scheduler for a graph. No node is ready.
    fn new(topology: &Topology) -> Self;

    /// Begins a turn at `now`.
    fn begin(&mut self, now: Ticks);

    /// Reports that node `node` has packets to run on. May be repeated.
    fn ready(&mut self, node: usize);

    /// Returns the node to run next in this turn, which is then no longer ready. `None` ends the turn.
    fn next(&mut self) -> Option<usize>;

    /// Returns a node that [`next`](Self::next) will soon return, if it is cheap to know, so that its data can be
    /// prefetched.
    fn peek(&self) -> Option<usize>;

    /// Returns whether no node is ready to run at once. Nodes that wait for their rate limits are not ready.
    fn is_idle(&self) -> bool;

    /// Returns whether `node` may run straight after the running node, without being scheduled, while its packets are
    /// in the cache. The caller has checked that only the running node feeds `node`, and that no packet waits there.
    #[inline]
    fn straight_on(&mut self, node: usize) -> bool {
        let _ = node;
        true
    }

    /// Returns whether the calls of this turn should be timed. Called at most once a turn, after
    /// [`begin`](Self::begin).
    #[inline]
    fn wants_time(&mut self) -> bool {
        false
    }

    /// Reports that node `node` is about to run on `batch`, and that `waiting` packets stay in its queue.
    #[inline]
    fn take(&mut self, node: usize, batch: &Batch, waiting: usize) {
        let _ = (node, batch, waiting);
    }

    /// Reports that node `node` has run on `packets` packets. A measured time includes the distribution of the packets
    /// after the call. Also called for a node that ran [straight on](Self::straight_on).
    #[inline]
    fn charge(&mut self, node: usize, packets: usize, took: Took) {
        let _ = (node, packets, took);
    }

    /// Reports that the chosen node `node` has run, and whether it has more packets. [`next`](Self::next) may return a
    /// module that ports feed even without packets, so that its ports are read.
    #[inline]
    fn ran(&mut self, node: usize, more: bool) {
        let _ = (node, more);
    }

    /// Reports that more than a batch waits for node `node`: `waiting` packets.
    #[inline]
    fn fill(&mut self, node: usize, waiting: usize) {
        let _ = (node, waiting);
    }

    /// Returns whether port `port` must not be read now.
    #[inline]
    fn holds(&self, port: usize) -> bool {
        let _ = port;
        false
    }

    /// Returns whether port `port`, which feeds node `node`, should be read only when the node runs. Packets read
    /// earlier would only wait, and leave the cache. All ports of a node are read in the same turns.
    #[inline]
    fn waits(&self, port: usize, node: usize) -> bool {
        let _ = (port, node);
        false
    }

    /// Returns whether packets for node `node` are to be dropped now, because a module after it is overloaded.
    #[inline]
    fn refuses(&self, node: usize) -> bool {
        let _ = node;
        false
    }

    /// Returns the earliest instant at which a node that waits for its rate limit may run. `None` if no node waits.
    #[inline]
    fn wake(&self) -> Option<Ticks> {
        None
    }

    /// Ends all rate limits and overloads for good, because the worker drains.
    fn lift(&mut self) {}

    /// Sets a module's weight. The caller has checked its range.
    fn set_weight(&mut self, module: usize, weight: u32) {
        let _ = (module, weight);
    }

    /// Sets or removes a module's rate limit. The caller has checked its range.
    fn set_limit(&mut self, module: usize, limit: Option<RateLimit>) {
        let _ = (module, limit);
    }
}
