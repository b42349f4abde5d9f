//! Counts accepted changes, so that a client can see whether the configuration has changed since the client read it.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use forebay_pipeline::Source;
use forebay_protocol::ConfigurationChange;

/// The number of accepted changes since the start.
#[derive(Default)]
pub struct Ledger {
    /// The number of accepted changes of the configuration.
    pub(super) changes: u64,
    /// The number of changes of entries, by table: `module.table`. Only tables that differ from the text are in it.
    pub(super) tables: BTreeMap<String, u64>,
    /// Random keys of this run, so that a version contains no information about a secret in the text.
    state: RandomState,
}

impl Ledger {
    /// Records `made` changes of a table's entries.
    pub(super) fn note_entries(&mut self, module: &str, table: &str, made: u64) {
        if made > 0 {
            *self.tables.entry(format!("{module}.{table}")).or_default() += made;
        }
    }

    /// Records a change of the configuration. Tables of modules that were made again have the entries of the text, so
    /// their counts are removed.
    pub(super) fn note_reload(&mut self, change: &ConfigurationChange) {
        self.changes += 1;
        let is_made_again = |name: &String| {
            let all = change.changed.iter().chain(&change.added).chain(&change.removed);
            all.into_iter().any(|module| name.strip_prefix(module.as_str()).is_some_and(|rest| rest.starts_with('.')))
        };
        self.tables.retain(|name, _| !is_made_again(name));
    }

    /// Returns the version of the configuration in force. It depends on the number of changes and on the text. It has
    /// twelve digits, because a longer number could be mistaken for a key.
    pub(super) fn version(&self, source: &Source) -> String {
        let hash = self.state.hash_one((self.changes, source.text(), source.sets()));
        format!("{:012x}", hash & 0xffff_ffff_ffff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_change_with_every_accepted_change_and_tables_are_forgotten_with_their_module() {
        let source = Source::new("batch: 8", "a.yaml", "");
        let mut ledger = Ledger::default();
        let first = ledger.version(&source);
        assert_eq!((first.len(), ledger.version(&source)), (12, first.clone()));
        ledger.note_entries("route", "routes", 2);
        ledger.note_entries("route", "routes", 1);
        ledger.note_entries("router", "routes", 1);
        ledger.note_entries("fw", "rules", 0);
        assert_eq!(ledger.version(&source), first, "entries are no part of the text");
        ledger
            .note_reload(&ConfigurationChange { changed: vec!["route".to_owned()], ..ConfigurationChange::default() });
        assert_ne!(ledger.version(&source), first, "also where the text is the same");
        assert_eq!(ledger.tables, BTreeMap::from([("router.routes".to_owned(), 1)]));
    }
}
