//! The gates, counters and tables that a function registers while it is created.

use std::sync::Arc;

use crate::own_counters::OwnCounters;
use crate::table::Table;

/// The gates, counters and tables that a function registered while it was created.
pub struct Declared {
    /// The names of its gates, in order.
    pub gates: Vec<String>,
    /// Its own counters.
    pub counters: Vec<OwnCounters>,
    /// Its tables that may be changed while packets run, by name.
    pub tables: Vec<(String, Arc<dyn Table>)>,
    /// The parameter that limits how many packets the function holds, and that limit. `None` if the function holds no
    /// packets.
    pub holds: Option<(&'static str, usize)>,
    /// Whether the function may have skipped work because the configuration was only checked
    /// ([`Setup::checking`](super::Setup::checking)).
    pub provisional: bool,
}

impl Declared {
    /// Returns the declarations of a function that registers nothing: it has one gate, `0`.
    pub(super) fn new() -> Self {
        let (counters, tables) = (Vec::new(), Vec::new());
        Self { gates: vec!["0".to_owned()], counters, tables, holds: None, provisional: false }
    }
}
