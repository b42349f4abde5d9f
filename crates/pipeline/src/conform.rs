//! Checks a configuration against the schema of the language, and describes each violation in words.
//!
//! Forebay has its own validator, because the messages of others are written for programmers, and because a complete
//! one takes longer to compile than this whole crate. The tests compare it with a complete one.

mod walk;
mod words;

use std::collections::BTreeMap;

use crate::problem::{Findings, SourceLocation};
use crate::yaml::{Node, NodeKind};

pub use walk::Rules;

/// The violations of the schema, by path. Each part of a path ends with a zero byte.
#[derive(Default)]
pub(crate) struct Misfits {
    found: BTreeMap<String, Misfit>,
}

struct Misfit {
    place: SourceLocation,
    message: String,
    /// The bounds of a quantity, to be added to a more precise message.
    bounds: String,
    /// True if the schema gives no reason. The reader of the value may have a more precise message.
    vague: bool,
}

impl Misfits {
    /// Checks `root` against the schema of the language.
    pub(crate) fn find(root: &Node) -> Self {
        Self::against(crate::schema::rules(), root)
    }

    /// Checks `root` against any rules.
    pub(crate) fn against(rules: &Rules, root: &Node) -> Self {
        let mut misfits = Self::default();
        for wrong in rules.walk(root) {
            let path: Vec<&str> = wrong.path.iter().map(String::as_str).collect();
            let bounds = wrong.bounds.map(|bounds| format!("; {bounds}")).unwrap_or_default();
            let message = format!("{}{bounds}", wrong.message);
            let message = worded(root, &path[..path.len() - usize::from(wrong.of_key)], &message);
            let place = if wrong.whole { key_place(root, &path) } else { root.place_of(path.iter().copied()) };
            let misfit = Misfit { place, message, bounds, vague: wrong.vague };
            misfits.found.entry(joined(&path)).or_insert(misfit);
        }
        misfits
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// Returns whether there is a violation at or below `path`.
    pub(crate) fn within(&self, path: &[&str]) -> bool {
        let key = joined(path);
        self.found.range(key.clone()..).next().is_some_and(|(found, _)| found.starts_with(&key))
    }

    /// Adds an error that the reader of the value at `path` found, unless there is a more precise message already.
    pub(crate) fn add(&mut self, root: &Node, path: &[&str], message: &str) {
        let key = joined(path);
        if let Some(known) = self.found.get_mut(&key) {
            // Messages of a generated reader are less precise than those of the schema.
            let generic = ["unknown variant", "data did not match", "invalid type", "invalid value", "invalid length"];
            if known.vague && !generic.iter().any(|start| message.starts_with(start)) {
                let message = worded(root, path, &format!("{message}{}", known.bounds));
                *known = Misfit { place: known.place, message, bounds: String::new(), vague: false };
            }
            return;
        }
        let above = (0..path.len()).any(|parts| self.found.contains_key(&joined(&path[..parts])));
        if !above && !self.within(path) {
            let place = root.place_of(path.iter().copied());
            let message = worded(root, path, message);
            self.found.insert(key, Misfit { place, message, bounds: String::new(), vague: false });
        }
    }

    pub(crate) fn report(self, findings: &mut Findings) {
        for misfit in self.found.into_values() {
            findings.add(misfit.place, misfit.message);
        }
    }
}

fn joined(path: &[&str]) -> String {
    path.iter().flat_map(|part| [*part, "\u{0}"]).collect()
}

/// Returns a message with its path in front, in the form of `--set`: `modules.fw.acl.rules`.
fn worded(root: &Node, path: &[&str], message: &str) -> String {
    let mut text = String::new();
    let mut node = Some(root);
    for part in path {
        let list = node.is_some_and(|node| node.as_list().is_some());
        node = node.and_then(|node| match &node.kind {
            NodeKind::List(list) => list.get(part.parse::<usize>().ok()?),
            _ => node.get(part),
        });
        if list {
            text.push_str(&format!("[{part}]"));
        } else {
            text.push_str(if text.is_empty() { "" } else { "." });
            text.push_str(crate::problem::quote(part).trim_matches('\''));
        }
    }
    if text.is_empty() { message.to_owned() } else { format!("{text}: {message}") }
}

/// Returns the place of the key at the end of `path`.
fn key_place(root: &Node, path: &[&str]) -> SourceLocation {
    let Some((key, above)) = path.split_last() else { return root.place };
    let mut node = Some(root);
    for part in above {
        node = node.and_then(|node| match &node.kind {
            NodeKind::List(list) => list.get(part.parse::<usize>().ok()?),
            _ => node.get(part),
        });
    }
    let entry = node.and_then(Node::as_map).and_then(|map| map.get(key));
    entry.map_or_else(|| root.place_of(path.iter().copied()), |entry| entry.place)
}

#[cfg(test)]
mod tests;
