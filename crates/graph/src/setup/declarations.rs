//! Registers gates, counters and tables of a function.

use std::sync::Arc;

use forebay_measure::Counter;

use super::{Setup, SetupError};
use crate::gate::MAX_GATES;
use crate::own_counters::OwnCounters;
use crate::table::Table;

/// How reports show a group of counters.
#[derive(Clone, Copy)]
struct Shown {
    /// [`OwnCounters::gauges`].
    gauges: bool,
    /// [`OwnCounters::per_entry`].
    per_entry: bool,
}

impl Setup<'_> {
    /// Names the module's output gates, in order. Without this call the module has one gate, `0`.
    ///
    /// # Errors
    /// No names, too many names, or a duplicate name.
    pub fn gates(&mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Result<(), SetupError> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        if names.is_empty() || names.len() > MAX_GATES {
            return Err(SetupError::not_allowed("", format!("{} gates", names.len()), format!("1 to {MAX_GATES}")));
        }
        let mut sorted: Vec<_> = names.iter().collect();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            let wrong = format!("two gates are called '{}'", twice[0]);
            return Err(SetupError::with_hint("", wrong, "give each gate its own name"));
        }
        self.declared.gates = names;
        Ok(())
    }

    /// Declares how many packets the module [holds](crate::Context::hold) at most. `parameter` is the parameter that
    /// sets this number. The compiler checks that the rest of the pool suffices for new packets.
    pub fn holds(&mut self, parameter: &'static str, most: usize) {
        self.declared.holds = Some((parameter, most));
    }

    /// Creates the function's own counters, one for each of `names`, under `heading`. Reports show them with the
    /// module's counters. After a change of the configuration their values are added to the earlier ones.
    pub fn counters(&mut self, heading: &str, names: impl IntoIterator<Item = String>) -> Arc<[Counter]> {
        self.register(heading, names, Shown { gauges: false, per_entry: false })
    }

    /// Creates one counter per rule or table entry. Reports show them only on request, because there may be thousands.
    pub fn entry_counters(&mut self, heading: &str, names: impl IntoIterator<Item = String>) -> Arc<[Counter]> {
        self.register(heading, names, Shown { gauges: false, per_entry: true })
    }

    /// Creates gauges. A gauge shows a present value, for example a number of entries, or counts for an object that
    /// outlives the function, for example a shared state. When the module is created again, earlier values are not
    /// added.
    pub fn gauges(&mut self, heading: &str, names: impl IntoIterator<Item = String>) -> Arc<[Counter]> {
        self.register(heading, names, Shown { gauges: true, per_entry: false })
    }

    /// Creates and registers one counter for each of `names`.
    fn register(&mut self, heading: &str, names: impl IntoIterator<Item = String>, shown: Shown) -> Arc<[Counter]> {
        let names: Vec<String> = names.into_iter().collect();
        let counters: Arc<[Counter]> = names.iter().map(|_| Counter::new()).collect();
        let Shown { gauges, per_entry } = shown;
        let (heading, own) = (heading.to_owned(), Arc::clone(&counters));
        self.declared.counters.push(OwnCounters { heading, counters: own, names, gauges, per_entry });
        counters
    }

    /// Registers the table called `name`, which may be changed while packets run.
    pub fn table(&mut self, name: &str, table: Arc<dyn Table>) {
        self.declared.tables.push((name.to_owned(), table));
    }
}
