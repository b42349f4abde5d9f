//! Whether a module, port or state is the same as one that runs: made of the same parameters and the same files.

use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use forebay_graph::Files;
use serde_json::Value;

use crate::yaml::Node;

/// A file's place, length and last change.
type Stamp = (u64, u64, u64, i64, i64);

/// The files that a configuration names, as they were before any was read: one that changes while it is read is taken for
/// changed when the configuration is looked at again.
pub(crate) struct Stamps {
    base: PathBuf,
    /// By the name in the configuration.
    known: HashMap<String, Stamp>,
}

impl Stamps {
    /// Those of all files that `root` may name, relative to `base`.
    pub(crate) fn of(root: &Node, base: &Path) -> Self {
        let mut known = HashMap::new();
        for section in ["state", "modules", "ports"] {
            each_text(&root.get(section).map(Node::to_json).unwrap_or_default(), &mut |text| {
                if let Some(told) = base.join(text).metadata().ok().filter(Metadata::is_file) {
                    known
                        .insert(text.to_owned(), (told.dev(), told.ino(), told.len(), told.mtime(), told.mtime_nsec()));
                }
            });
        }
        Self { base: base.to_owned(), known }
    }
}

/// What something is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    kind: String,
    params: Value,
    /// Of the files that the parameters name.
    files: Vec<Stamp>,
    /// The same of the state that they name.
    state: Vec<Identity>,
}

impl Identity {
    /// Whether it is a function that has or looks up state of each session.
    pub(crate) fn is_keyed(&self) -> bool {
        let known = forebay_graph::functions();
        known.iter().any(|known| known.name == self.kind && known.is_keyed(&self.params))
    }

    /// The kind of function, port or state.
    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }

    /// Of what stands under `name` in a section of the configuration `root`; files are as `stamps` says. Files
    /// that are written change all the time, and are not part of it.
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

/// Every text among the parameters: any may be a file's name.
fn each_text(value: &Value, look: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => look(text),
        Value::Array(list) => list.iter().for_each(|item| each_text(item, look)),
        Value::Object(map) => map.values().for_each(|item| each_text(item, look)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Findings;
    use crate::yaml;

    #[test]
    fn a_changed_parameter_file_or_state_makes_another_identity() {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        std::fs::write(folder.path().join("routes"), "10.0.0.0/8 0").expect("a writable folder");
        let of = |text: &str| {
            let root = yaml::parse(text, &mut Findings::default()).expect("YAML");
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

    /// What was written while a list was read and compiled was taken for what had been read: a reload kept the old list.
    #[test]
    fn a_file_that_changes_after_the_stamps_were_taken_is_another_the_next_time() {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let file = folder.path().join("routes");
        std::fs::write(&file, "10.0.0.0/8 0").expect("a writable folder");
        let root = yaml::parse("{ modules: { a: { f: { file: routes } } } }", &mut Findings::default()).expect("YAML");
        let of = |stamps: &Stamps| Identity::of(&root, "modules", "a", "f", stamps, &Files::default());
        let before = Stamps::of(&root, folder.path());
        std::fs::write(&file, "10.0.0.0/8 1 ").expect("a writable folder");
        assert_ne!(of(&before), of(&Stamps::of(&root, folder.path())));
        let mut written = Files::default();
        written.claim("port 'out'", &file, true).expect("nobody else uses it");
        let left_out = Identity::of(&root, "modules", "a", "f", &before, &written);
        assert_eq!(left_out, Identity::of(&root, "modules", "a", "f", &Stamps::of(&root, folder.path()), &written));
    }
}
