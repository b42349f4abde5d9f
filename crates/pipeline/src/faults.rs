//! Collects the faults of a configuration.
//!
//! A configuration is read completely before faults are reported, so that its author sees all faults at once. A value
//! has at most one fault. The schema check finds most faults, and the reader of the value may replace a vague message
//! by a more precise one.

use std::collections::BTreeMap;

use forebay_graph::SetupError;
use forebay_protocol::check::Fault;

use crate::conform::{Rules, Wrong};
use crate::located::{LocatedFault, SourceLocation};
use crate::wording::quote;
use crate::yaml::{Node, NodeKind};

/// The faults of a configuration. [`finish`](Self::finish) turns them into an error at the end.
#[derive(Default)]
pub(crate) struct FaultCollector {
    /// The faults that are not about a single value.
    pub(crate) located: Vec<LocatedFault>,
    /// The faults of values, by path. Each part of a path ends with a zero byte.
    of_values: BTreeMap<String, ValueFault>,
}

/// The fault of one value.
struct ValueFault {
    found: LocatedFault,
    /// The bounds of a quantity, which are appended to a more precise message.
    bounds: String,
    /// True if the schema gives no reason, so that the reader of the value may replace the message.
    vague: bool,
}

impl FaultCollector {
    /// Adds a fault at a place.
    pub(crate) fn add(&mut self, place: SourceLocation, message: impl Into<String>) {
        self.located.push(LocatedFault::new(place, message));
    }

    /// Adds a fault at a place, which has the value, the allowed values or a hint apart from its message.
    pub(crate) fn add_fault(&mut self, place: SourceLocation, fault: Fault) {
        self.located.push(LocatedFault::from_fault(place, fault));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.located.is_empty() && self.of_values.is_empty()
    }

    /// Checks `root` against the rules of a schema, and adds each violation.
    pub(crate) fn check(&mut self, rules: &Rules, root: &Node) {
        for wrong in rules.walk(root) {
            let Wrong { path, fault, of_key, whole, vague, bounds, .. } = wrong;
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            let bounds = bounds.map(|bounds| format!("; {bounds}")).unwrap_or_default();
            let shown = shown_path(root, &path[..path.len() - usize::from(of_key)]);
            let allowed = fault.allowed.map(|allowed| format!("{allowed}{bounds}"));
            let fault = Fault { path: shown, message: format!("{}{bounds}", fault.message), allowed, ..fault };
            let place = if whole { key_place(root, &path) } else { root.place_of(path.iter().copied()) };
            let fault = ValueFault { found: LocatedFault::from_fault(place, fault), bounds, vague };
            self.of_values.entry(joined(&path)).or_insert(fault);
        }
    }

    /// Returns whether the value at `path`, or a value below it, has a fault.
    pub(crate) fn within(&self, path: &[&str]) -> bool {
        let key = joined(path);
        self.of_values.range(key.clone()..).next().is_some_and(|(found, _)| found.starts_with(&key))
    }

    /// Adds the fault that the reader of the value at `path` found. Ignores this fault if the value, a value above it
    /// or a value below it has a fault already. There is one exception: a vague fault of the value itself is replaced,
    /// if `message` is not a general message of the deserializer.
    pub(crate) fn add_at(&mut self, root: &Node, path: &[&str], message: &str) {
        self.add_value(root, path, Fault::new(message));
    }

    /// Adds the faults of the parameters at `path`. The paths in `error` are relative to `path`.
    pub(crate) fn add_all(&mut self, root: &Node, path: &[&str], error: SetupError) {
        for fault in error.faults {
            let within = fault.path.clone();
            let path: Vec<&str> = path.iter().copied().chain(parts(&within)).collect();
            self.add_value(root, &path, fault);
        }
    }

    /// Adds the fault of the value at `path`, by the rules of [`add_at`](Self::add_at).
    fn add_value(&mut self, root: &Node, path: &[&str], fault: Fault) {
        let key = joined(path);
        let fault = Fault { path: shown_path(root, path), ..fault };
        if let Some(known) = self.of_values.get_mut(&key) {
            // Messages of a generated reader (serde) are less precise than messages of the schema check.
            let generic = ["unknown variant", "data did not match", "invalid type", "invalid value", "invalid length"];
            if known.vague && !generic.iter().any(|start| fault.message.starts_with(start)) {
                let before = &known.found.fault;
                let value = fault.value.or_else(|| before.value.clone());
                let allowed = fault.allowed.or_else(|| before.allowed.clone());
                let fault = Fault { message: format!("{}{}", fault.message, known.bounds), value, allowed, ..fault };
                let found = LocatedFault::from_fault(known.found.place, fault);
                *known = ValueFault { found, bounds: String::new(), vague: false };
            }
            return;
        }
        let above = (0..path.len()).any(|parts| self.of_values.contains_key(&joined(&path[..parts])));
        if !above && !self.within(path) {
            let found = LocatedFault::from_fault(root.place_of(path.iter().copied()), fault);
            self.of_values.insert(key, ValueFault { found, bounds: String::new(), vague: false });
        }
    }

    /// Returns all faults in the order of their places, each once.
    pub(crate) fn sorted(self) -> Vec<LocatedFault> {
        let of_values = self.of_values.into_values().map(|fault| fault.found);
        let mut all: Vec<_> = self.located.into_iter().chain(of_values).collect();
        all.sort_by_cached_key(|found| (found.place, found.fault.text()));
        all.dedup();
        all
    }
}

/// Returns the parts of a path such as `rules[3].action`.
pub(crate) fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split(['.', '[']).map(|part| part.trim_end_matches(']')).filter(|part| !part.is_empty())
}

/// Returns the key of a path in [`FaultCollector::of_values`]. The key of a value is the beginning of the keys of all
/// values below it.
fn joined(path: &[&str]) -> String {
    path.iter().flat_map(|part| [*part, "\u{0}"]).collect()
}

/// Returns a path in the form of `--set`, but with list indices in brackets: `modules.fw.acl.rules[3]`.
fn shown_path(root: &Node, path: &[&str]) -> String {
    let mut text = String::new();
    let mut node = Some(root);
    for part in path {
        let list = node.is_some_and(|node| node.as_list().is_some());
        node = node.and_then(|node| child(node, part));
        if list {
            text.push_str(&format!("[{part}]"));
        } else {
            text.push_str(if text.is_empty() { "" } else { "." });
            text.push_str(quote(part).trim_matches('\''));
        }
    }
    text
}

/// Returns the place of the key at the end of `path`.
fn key_place(root: &Node, path: &[&str]) -> SourceLocation {
    let Some((key, above)) = path.split_last() else { return root.place };
    let node = above.iter().try_fold(root, |node, part| child(node, part));
    let entry = node.and_then(Node::as_map).and_then(|map| map.get(key));
    entry.map_or_else(|| root.place_of(path.iter().copied()), |entry| entry.place)
}

/// Returns the value of a key or of a list index.
fn child<'n>(node: &'n Node, part: &str) -> Option<&'n Node> {
    match &node.kind {
        NodeKind::List(list) => list.get(part.parse::<usize>().ok()?),
        _ => node.get(part),
    }
}
