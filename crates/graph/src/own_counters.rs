//! The counters that a function registers for itself.

use std::sync::Arc;

use forebay_measure::Counter;

/// A function's own counters under one heading.
#[derive(Clone, Debug)]
pub struct OwnCounters {
    /// The heading of the counters.
    pub heading: String,
    /// The counters.
    pub counters: Arc<[Counter]>,
    /// The names of the counters, in the same order.
    pub names: Vec<String>,
    /// Whether the counters are gauges ([`Setup::gauges`](crate::Setup::gauges)). A gauge has a present value. Other
    /// counters count events.
    pub gauges: bool,
    /// Whether there is one counter per rule or table entry ([`Setup::entry_counters`](crate::Setup::entry_counters)).
    pub per_entry: bool,
}
