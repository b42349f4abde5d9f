//! Reads the sections of a configuration.

use forebay_graph::unreadable;
use serde::de::DeserializeOwned;

use crate::faults::FaultCollector;
use crate::yaml::{Entry, Node};

/// Returns the entries of a section. With an empty name, returns the sections themselves.
pub(crate) fn entries<'r>(root: &'r Node, section: &str) -> impl Iterator<Item = &'r Entry> {
    let node = if section.is_empty() { Some(root) } else { root.get(section) };
    node.and_then(Node::as_map).into_iter().flat_map(|map| map.iter())
}

/// Returns the entry with the kind of a module, port or state as its key, and with the parameters as its value. `None`
/// if the module, port or state does not have exactly one key.
pub(crate) fn kind_of(entry: &Entry) -> Option<&Entry> {
    let mut kinds = entry.value.as_map()?.iter();
    kinds.next().filter(|_| kinds.next().is_none())
}

/// Reads a value with fixed keys. If the value has faults, adds them to `faults` and returns `None`. `path` leads to
/// the value in `root`.
pub(crate) fn read<T: DeserializeOwned>(
    faults: &mut FaultCollector,
    root: &Node,
    path: &[&str],
    node: &Node,
) -> Option<T> {
    let value = node.to_json();
    match serde_path_to_error::deserialize(&value) {
        Ok(read) => Some(read),
        Err(error) => {
            faults.add_all(root, path, unreadable(&value, error));
            None
        }
    }
}
