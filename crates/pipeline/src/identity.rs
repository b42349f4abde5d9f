//! Compares a module, port or state with a running one. Both are the same if their parameters and files are the same.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use forebay_graph::Files;
use serde_json::Value;

use crate::yaml::Node;

/// The device, inode, length, and modification time (seconds and nanoseconds) of a file.
type Stamp = (u64, u64, u64, i64, i64);

/// The stamps of the files that a configuration names, taken before any file is read. Therefore a file that changes
/// while it is read counts as changed at the next reload.
pub(crate) struct Stamps {
    base: PathBuf,
    /// The stamps, by the file name in the configuration.
    known: HashMap<String, Stamp>,
}

impl Stamps {
    /// Takes the stamps of all files that `root` may name, relative to `base`.
    pub(crate) fn of(root: &Node, base: &Path) -> Self {
        let mut known = HashMap::new();
        for section in ["state", "modules", "ports"] {
            each_text(&root.get(section).map(Node::to_json).unwrap_or_default(), &mut |text| {
                if let Some(file) = base.join(text).metadata().ok().filter(Metadata::is_file) {
                    known
                        .insert(text.to_owned(), (file.dev(), file.ino(), file.len(), file.mtime(), file.mtime_nsec()));
                }
            });
        }
        Self { base: base.to_owned(), known }
    }
}

/// Everything that a module, port or state is created from. If two identities are equal, a reload can take over the
/// running object instead of creating it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    kind: String,
    params: Value,
    /// The stamps of the files that the parameters name.
    files: Vec<Stamp>,
    /// The identities of the state that the parameters name.
    state: Vec<Identity>,
}

impl Identity {
    /// True if this is a function that keeps state for each session, or looks up such state.
    pub(crate) fn is_keyed(&self) -> bool {
        let known = forebay_graph::functions();
        known.iter().any(|known| known.name == self.kind && known.is_keyed(&self.params))
    }

    /// Returns the kind of function, port or state.
    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns the identity of the entry `name` in a section of the configuration `root`. `stamps` has the stamps of
    /// its files. Files that `used` lists as written are not part of the identity, because they change all the time.
    pub(crate) fn of(root: &Node, section: &str, name: &str, kind: &str, stamps: &Stamps, used: &Files) -> Self {
        let params = root.get(section).and_then(|all| all.get(name)?.get(kind));
        let params = params.map(Node::to_json).unwrap_or_default();
        let (mut files, mut state) = (Vec::new(), Vec::new());
        each_text(&params, &mut |text| {
            let stamp = stamps.known.get(text).filter(|_| !used.is_written(&stamps.base.join(text)));
            files.extend(stamp);
            let of_state = || root.get("state")?.get(text)?.as_map()?.iter().next();
            if let Some(kind) = of_state().filter(|_| section != "state") {
                state.push(Self::of(root, "state", text, &kind.key, stamps, used));
            }
        });
        Self { kind: kind.to_owned(), params, files, state }
    }
}

/// Calls `visit` with every text among the parameters. Any of these texts may be a file name.
fn each_text(value: &Value, visit: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(list) => list.iter().for_each(|item| each_text(item, visit)),
        Value::Object(map) => map.values().for_each(|item| each_text(item, visit)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml;

    #[test]
    fn a_changed_parameter_file_or_state_makes_another_identity() {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        std::fs::write(folder.path().join("routes"), "10.0.0.0/8 0").expect("a writable folder");
        let of = |text: &str| {
            let root = yaml::parse(text, &mut Vec::new()).expect("YAML");
            Identity::of(&root, "modules", "a", "f", &Stamps::of(&root, folder.path()), &Files::default())
        };
        let text = "{ modules: { a: { f: { file: routes, table: s, n: 1 } } }, state: { s: { t: { size: 1 } } } }";
        let first = of(text);
        assert_eq!(first, of(text));
        assert_ne!(first, of(&text.replace("n: 1", "n: 2")));
        assert_ne!(first, of(&text.replace("size: 1", "size: 2")));
        std::fs::write(folder.path().join("routes"), "10.0.0.0/8 01").expect("a writable folder");
        assert_ne!(first, of(text));
    }

    /// Regression: a file that changed while its list was compiled counted as already read, and a reload kept the old
    /// list.
    #[test]
    fn a_file_that_changes_after_its_stamp_was_taken_counts_as_changed() {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let file = folder.path().join("routes");
        std::fs::write(&file, "10.0.0.0/8 0").expect("a writable folder");
        let root = yaml::parse("{ modules: { a: { f: { file: routes } } } }", &mut Vec::new()).expect("YAML");
        let of = |stamps: &Stamps| Identity::of(&root, "modules", "a", "f", stamps, &Files::default());
        let before = Stamps::of(&root, folder.path());
        std::fs::write(&file, "10.0.0.0/8 1 ").expect("a writable folder");
        assert_ne!(of(&before), of(&Stamps::of(&root, folder.path())));
        let mut written = Files::default();
        written.claim("port 'out'", &file, true).expect("the file is not in use");
        let without_file = Identity::of(&root, "modules", "a", "f", &before, &written);
        assert_eq!(without_file, Identity::of(&root, "modules", "a", "f", &Stamps::of(&root, folder.path()), &written));
    }
}
