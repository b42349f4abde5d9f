//! The text of a configuration, its origin, and the settings that override parts of it.

mod read;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::faults::FaultCollector;
use crate::located::SourceLocation;
use crate::wording::quote;
use crate::yaml::{self, Entry, Map, Node, NodeKind};

/// A configuration that has not been checked yet.
#[derive(Clone)]
pub struct Source {
    /// The name in messages: the file name as the user gave it.
    pub(crate) file: String,
    pub(crate) text: String,
    /// The file that the text was read from; `None` for the standard input or a built-in pipeline.
    pub(crate) path: Option<PathBuf>,
    /// The folder that relative file names in the configuration refer to.
    pub(crate) base: PathBuf,
    /// Settings, `key=value`, applied in order.
    pub(crate) sets: Vec<String>,
    /// All settings that the user gave. They include the parameters of a use case, whose values are in `text` already.
    pub(crate) given: Vec<String>,
    /// The folders whose files the configuration may name. `None` allows all files.
    pub(crate) allowed_folders: Option<Vec<PathBuf>>,
}

/// Omits the text and the settings, because they may contain keys.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("file", &self.file).field("base", &self.base).finish_non_exhaustive()
    }
}

impl Source {
    /// Creates a configuration from a text. `file` is its name in messages. File names in the text are relative to
    /// `base`.
    #[must_use]
    pub fn new(text: impl Into<String>, file: impl Into<String>, base: impl Into<PathBuf>) -> Self {
        Self {
            file: file.into(),
            text: text.into(),
            path: None,
            base: base.into(),
            sets: Vec::new(),
            given: Vec::new(),
            allowed_folders: None,
        }
    }

    /// Adds a setting that overrides a part of the text: `batch=64`, `ports.access.generator.rate=1Mpps`,
    /// `flows.0.slo=100us`. The value is YAML.
    #[must_use]
    pub fn set(mut self, setting: impl Into<String>) -> Self {
        let setting = setting.into();
        self.given.push(setting.clone());
        self.sets.push(setting);
        self
    }

    /// Allows the configuration to name files in these folders only.
    #[must_use]
    pub fn within(self, folders: Vec<PathBuf>) -> Self {
        Self { allowed_folders: Some(folders), ..self }
    }

    /// Returns the same configuration with a setting that replaces the section `workers` by the YAML text `workers`.
    /// Removes other settings of that section.
    pub(crate) fn with_workers(&self, workers: &str) -> Self {
        let setting = [format!("workers={workers}")];
        let (sets, given) = (with_settings(&self.sets, &setting), with_settings(&self.given, &setting));
        Self { sets, given, ..self.clone() }
    }

    /// Sets the settings that the user gave, if they differ from those that are applied.
    #[must_use]
    pub fn given_as(self, given: Vec<String>) -> Self {
        Self { given, ..self }
    }

    /// Returns the name of the configuration in messages.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the folder that relative file names in the configuration refer to.
    #[must_use]
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// Returns the settings, in the order in which they are applied.
    #[must_use]
    pub fn sets(&self) -> &[String] {
        &self.sets
    }

    /// Returns all settings that the user gave, in their order: the [applied](Self::sets) settings and the parameters
    /// of the use case.
    #[must_use]
    pub fn given(&self) -> &[String] {
        &self.given
    }

    /// Returns the text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the text as a tree with the settings applied. Reads as much as possible in spite of errors, which are
    /// added to `faults`. Returns `None` if the text has no tree.
    pub(crate) fn tree(&self, faults: &mut FaultCollector) -> Option<Node> {
        let mut root = match yaml::parse(&self.text, &mut faults.located) {
            Ok(root) => Some(root),
            Err(fault) => {
                faults.located.push(fault);
                None
            }
        };
        for (number, setting) in self.sets.iter().enumerate() {
            let place = SourceLocation::Set(number);
            let value = setting.split_once('=').ok_or_else(|| "not a setting: write `key=value`".to_owned()).and_then(
                |(key, text)| {
                    let mut within = Vec::new();
                    let value = if text.trim().is_empty() {
                        Ok(Node { place, kind: NodeKind::Null })
                    } else if text.trim() == "-" {
                        // The name of the standard input. YAML would read a list with an empty item.
                        Ok(Node { place, kind: NodeKind::Text("-".to_owned()) })
                    } else {
                        yaml::parse(text, &mut within)
                    };
                    let value = value.map_err(|found| format!("the value {}: {}", quote(text), found.fault.message))?;
                    if within.is_empty() {
                        Ok((key.trim(), value))
                    } else {
                        Err(format!("the value {} has a key twice", quote(text)))
                    }
                },
            );
            // `KEY=` has no value, and `KEY=null` leaves the key out.
            let is_null = setting.split_once('=').is_some_and(|(_, text)| !text.trim().is_empty());
            let done = value.and_then(|(key, value)| match &mut root {
                Some(root) => put(root, key, value.moved_to(place), is_null),
                None => Ok(()),
            });
            if let Err(message) = done {
                faults.add(place, message);
            }
        }
        if let Some(root) = &mut root {
            self.leave_kinds_out(root);
        }
        root
    }

    /// Leaves out functions, kinds of ports and kinds of state that settings have set to `null`, if the same module,
    /// port or state has another kind: `--set ports.in.generator=null --set ports.in.pcap.read=in.pcap`.
    fn leave_kinds_out(&self, root: &mut Node) {
        let sets = self.sets.iter().filter_map(|set| set.split_once('='));
        let keys = sets.filter(|(_, text)| !text.trim().is_empty()).map(|(key, _)| key.trim());
        let nulls: Vec<Vec<&str>> = keys.filter(|key| is_kind(key)).map(|key| key.split('.').collect()).collect();
        for path in &nulls {
            let Some(kinds) = root.get_mut(path[0]).and_then(|parts| parts.get_mut(path[1])) else { continue };
            let NodeKind::Map(kinds) = &mut kinds.kind else { continue };
            let is_null = |entry: &Entry| {
                matches!(entry.value.kind, NodeKind::Null)
                    && nulls.iter().any(|null| null[..2] == path[..2] && null[2] == entry.key)
            };
            let (mut others, mut is_new) = (false, false);
            for entry in kinds.iter() {
                if is_null(entry) { is_new |= entry.new } else { others = true }
            }
            // If settings have set all kinds of this module, port or state to `null`, the kind that a setting has added
            // replaces the kind in the text.
            for entry in kinds.iter_mut().filter(|entry| is_null(entry)) {
                entry.left_out = others || (is_new && !entry.new);
            }
        }
    }
}

/// Returns whether the key is that of a function, a kind of port or a kind of state: `ports.in.pcap`.
fn is_kind(key: &str) -> bool {
    let mut parts = key.split('.');
    parts.next().is_some_and(|part| ["modules", "ports", "state"].contains(&part)) && parts.count() == 2
}

/// Returns the settings `sets`, then the settings `more`. Leaves out settings of `sets` that `more` overrides
/// completely.
#[must_use]
pub fn with_settings(sets: &[String], more: &[String]) -> Vec<String> {
    let key = |set: &String| set.split_once('=').map_or(set.as_str(), |(key, _)| key).trim().to_owned();
    let all: Vec<_> = sets.iter().chain(more).collect();
    let is_within = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let kept = all.iter().enumerate().filter(|(index, set)| {
        // All settings of `more` stay, in their order.
        *index >= sets.len() || more.iter().all(|later| !is_within(&key(set), &key(later)))
    });
    kept.map(|(_, set)| (*set).clone()).collect()
}

impl Node {
    /// Returns the same node, with all places set to `place`.
    fn moved_to(self, place: SourceLocation) -> Self {
        let kind = match self.kind {
            NodeKind::List(list) => NodeKind::List(list.into_iter().map(|node| node.moved_to(place)).collect()),
            NodeKind::Map(map) => {
                let mut moved = Map::default();
                for entry in map.iter() {
                    // `add` cannot fail, because the keys of a mapping differ.
                    let _ = moved.add(Entry { place, value: entry.value.clone().moved_to(place), ..entry.clone() });
                }
                NodeKind::Map(moved)
            }
            kind => kind,
        };
        Self { place, kind }
    }
}

/// Returns whether `null` is a value at this key, and does not mean that the key is left out. `null` is a value for a
/// function, kind of port or kind of state without parameters, and for the controller `null`.
fn is_null_a_value(key: &str) -> bool {
    key == "control.batching" || is_kind(key)
}

/// Sets the value at the dotted `key`. Creates missing mappings on the way. `is_null` is true if a `null` was written,
/// which leaves the key out; false if the value is empty. Returns a message if the key cannot exist.
fn put(root: &mut Node, key: &str, value: Node, is_null: bool) -> Result<(), String> {
    if key.split('.').any(str::is_empty) {
        return Err(format!("{} is not a key: write names with dots between", quote(key)));
    }
    let mut node = root;
    let mut path = String::new();
    let leaves_out = is_null && matches!(value.kind, NodeKind::Null) && !is_null_a_value(key);
    let place = value.place;
    let mut parts = key.split('.').peekable();
    while let Some(part) = parts.next() {
        if matches!(node.kind, NodeKind::Null) {
            *node = Node { place, kind: NodeKind::Map(Map::default()) };
        }
        node = match &mut node.kind {
            NodeKind::Map(map) => {
                if map.get(part).is_none() {
                    let value = Node { place, kind: NodeKind::Null };
                    let entry = Entry { key: part.to_owned(), place, new: true, left_out: false, value };
                    let _ = map.add(entry);
                }
                let entry = map.get_mut(part).ok_or_else(|| format!("no key {}", quote(part)))?;
                entry.place = place;
                entry.left_out = leaves_out && parts.peek().is_none();
                &mut entry.value
            }
            NodeKind::List(list) => {
                let count = list.len();
                let named = list.iter().position(|item| item.get("name").and_then(Node::as_text) == Some(part));
                let item = part.parse::<usize>().ok().and_then(|index| list.get_mut(index));
                let item = item.ok_or_else(|| {
                    let meant = named.map_or_else(String::new, |index| format!(" (did you mean '{path}.{index}'?)"));
                    format!("the list '{path}' has no item {}: it has {count}, numbered from 0{meant}", quote(part))
                })?;
                if leaves_out && parts.peek().is_none() {
                    return Err(format!(
                        "{path}[{part}]: null leaves out a key, but this is an item of a list: write a value, or \
                         `{path}=null` to leave out the whole list"
                    ));
                }
                item
            }
            _ => return Err(format!("'{path}' is a single value: it has no {}", quote(part))),
        };
        path.push_str(if path.is_empty() { "" } else { "." });
        path.push_str(part);
    }
    *node = value;
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn later_settings_replace_earlier_ones_with_the_same_key() {
        let sets =
            texts(&["batch=8", "ports.in.generator.rate=1Mpps", "ports.inner=1", "ports.in . sink=", "batch=16"]);
        let with = |more: &[&str]| with_settings(&sets, &texts(more));
        assert_eq!(with(&[]), sets);
        assert_eq!(with(&["seed=3"]), [sets.clone(), texts(&["seed=3"])].concat());
        assert_eq!(with(&[" batch =32"])[..], [&sets[1..4], &texts(&[" batch =32"])].concat());
        assert_eq!(
            with(&["ports.in={}", "ports.in.sink="]),
            texts(&["batch=8", "ports.inner=1", "ports.in . sink=", "batch=16", "ports.in={}", "ports.in.sink="])
        );
    }

    proptest! {
        /// The remaining settings have the same effect as all settings in order.
        #[test]
        fn removed_settings_make_no_difference(
            sets in prop::collection::vec("[ab](\\.[ab]){0,2}=[12]", 0..8),
            more in prop::collection::vec("[ab](\\.[ab]){0,2}=(\\{\\}|[12])", 0..4),
        ) {
            let tree = |sets: &[String]| {
                let source = sets.iter().fold(Source::new("{}", "test.yaml", ""), Source::set);
                let mut faults = FaultCollector::default();
                let tree = source.tree(&mut faults).map(|tree| shown(&tree));
                faults.is_empty().then_some(tree)
            };
            // Errors of removed settings disappear with them.
            if let Some(all) = tree(&[&sets[..], &more[..]].concat()) {
                prop_assert_eq!(tree(&with_settings(&sets, &more)), Some(all));
            }
        }
    }

    /// A tree without its places.
    fn shown(node: &Node) -> String {
        match &node.kind {
            NodeKind::Map(map) => {
                // A removed setting may have created a key earlier, so that the order differs.
                let mut entries: Vec<_> =
                    map.iter().map(|entry| format!("{}: {}", entry.key, shown(&entry.value))).collect();
                entries.sort();
                format!("{{{}}}", entries.join(", "))
            }
            kind => format!("{kind:?}"),
        }
    }
}
