//! The last configuration that was accepted, kept in a file: whatever ends the process, the next start begins there.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use forebay_graph::files::{read_text, replace_private};
use forebay_pipeline::{Source, is_built_in};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

/// The longest such file, in bytes: more than the longest configuration, with its settings, takes.
const MOST: u64 = 64 << 20;

/// A configuration as it was accepted.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// Its name in messages.
    file: String,
    /// What relative names of files in it are relative to.
    base: PathBuf,
    text: String,
    sets: Vec<String>,
    /// What it was asked for by, where that is more: a use case's parameters are in the text already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    given: Option<Vec<String>>,
    /// The [fingerprint] of the file that the run was started from, when this was written. Older versions had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started_from: Option<String>,
    /// The source that the run was started from: a file's whole path, or a use case. Older versions had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
}

/// Returns a hash of the text of a configuration file, without its settings. A use
/// case is the same as long as it has its name.
#[must_use]
pub fn fingerprint(source: &Source) -> Option<String> {
    if is_built_in(source.file()) {
        return Some(source.file().to_owned());
    }
    let hash = digest(&SHA256, source.text().as_bytes());
    Some(hash.as_ref().iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}")))
}

/// Without the text and the settings, which may have keys in them.
impl fmt::Debug for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accepted").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Accepted {
    /// What `source` says now.
    #[must_use]
    pub fn of(source: &Source) -> Self {
        // The folder in which a file is that was named without one.
        let base = if source.base().as_os_str().is_empty() { Path::new(".") } else { source.base() };
        let base = base.canonicalize().unwrap_or_else(|_| base.to_owned());
        let (file, text, sets) = (source.file().to_owned(), source.text().to_owned(), source.sets().to_vec());
        let given = (source.given() != sets).then(|| source.given().to_vec());
        Self { file, base, text, sets, given, started_from: None, origin: None }
    }

    /// The same, of a run that was started from `origin`, a file with this fingerprint.
    #[must_use]
    pub fn started_from(self, fingerprint: Option<String>, origin: Option<String>) -> Self {
        Self { started_from: fingerprint, origin, ..self }
    }

    /// The file or use case that the run was started from, where that is known.
    #[must_use]
    pub fn origin(&self) -> Option<&str> {
        self.origin.as_deref()
    }

    /// The fingerprint of the file that the run was started from, when this was written; `None` where an older version
    /// wrote it.
    #[must_use]
    pub fn fingerprint(&self) -> Option<&str> {
        self.started_from.as_deref()
    }

    /// The configuration.
    #[must_use]
    pub fn source(&self) -> Source {
        let source = Source::new(self.text.clone(), &self.file, &self.base);
        let source = self.sets.iter().fold(source, |source, setting| source.set(setting));
        match &self.given {
            Some(given) => source.given_as(given.clone()),
            None => source,
        }
    }

    /// Writes it to the file at `path`, which its owner alone may read. At any moment there is the old one or the new
    /// one, whole.
    ///
    /// # Errors
    /// As writing files.
    pub fn keep(&self, path: &Path) -> io::Result<()> {
        replace_private(path, serde_json::to_string_pretty(self)?.as_bytes())
    }

    /// Copies what was kept at `path` to `path.old`, which its owner alone may read, before another takes its place.
    ///
    /// # Errors
    /// As reading and writing files.
    pub fn keep_old(path: &Path) -> io::Result<()> {
        let mut old = path.as_os_str().to_owned();
        old.push(".old");
        match read_text(path, MOST) {
            Ok(bytes) => replace_private(Path::new(&old), &bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reads what was kept; `None` where nothing was.
    ///
    /// # Errors
    /// As reading files; a file that is not of this kind.
    pub fn read(path: &Path) -> io::Result<Option<Self>> {
        match read_text(path, MOST) {
            Ok(bytes) => {
                // The error itself may quote a text of the file.
                let why = |error: serde_json::Error| {
                    io::Error::other(format!(
                        "it is no file of an accepted configuration (line {} column {}): --prefer file does without, \
                         and keeps it as {}.old",
                        error.line(),
                        error.column(),
                        path.display()
                    ))
                };
                Ok(Some(serde_json::from_slice(&bytes).map_err(why)?))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_kept_is_read_again_and_a_broken_file_is_told() {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let path = folder.path().join("state.json");
        assert_eq!(Accepted::read(&path).expect("nothing is there"), None);
        let source = Source::new("batch: 8", "a.yaml", folder.path()).set("seed=3");
        let accepted = Accepted::of(&source);
        accepted.keep(&path).expect("a writable folder");
        let again = Accepted::read(&path).expect("it is there").expect("it is there");
        assert_eq!(Accepted::of(&again.source()), accepted);
        let mode = || fs::metadata(&path).expect("it is there").permissions().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        // One that an older version has left for all to read.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("our own file");
        accepted.keep(&path).expect("a writable folder");
        assert_eq!(mode(), 0o600);
        assert!(!format!("{accepted:?} {source:?}").contains("seed=3"));
        fs::write(&path, "{").expect("a writable folder");
        assert!(Accepted::read(&path).is_err());
        assert!(accepted.keep(&folder.path().join("not/there")).is_err());
    }
}
