//! The file with the last accepted configuration. The next start reads it, however the process ended.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use forebay_graph::files::{read_text, replace_private};
use forebay_pipeline::{Source, is_built_in};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

/// The size limit of the file, in bytes. It is larger than the longest configuration with its settings.
const MAX_FILE_SIZE: u64 = 64 << 20;

/// An accepted configuration.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// The name of the configuration in messages.
    file: String,
    /// The folder that relative file names in the configuration refer to.
    base: PathBuf,
    /// The text of the configuration.
    text: String,
    /// The settings, which are not yet applied to `text`.
    sets: Vec<String>,
    /// The settings that the user gave, if they differ from `sets`. For a use case they differ: the text of a use case
    /// already contains the parameters that the user gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    given: Option<Vec<String>>,
    /// The [fingerprint] of the file that the run was started from, taken when this file was written. Older versions
    /// did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started_from: Option<String>,
    /// The source that the run was started from: the full path of a file, or a use case. Older versions did not write
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
}

/// Returns a hash of the text of a configuration file, without its settings. For a use case, returns its name.
#[must_use]
pub fn fingerprint(source: &Source) -> Option<String> {
    if is_built_in(source.file()) {
        return Some(source.file().to_owned());
    }
    let hash = digest(&SHA256, source.text().as_bytes());
    Some(hash.as_ref().iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}")))
}

/// Omits the text and the settings, because they may contain keys.
impl fmt::Debug for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accepted").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Accepted {
    /// Creates the accepted configuration from its source.
    #[must_use]
    pub fn of(source: &Source) -> Self {
        // A file name without a folder refers to the current folder.
        let base = if source.base().as_os_str().is_empty() { Path::new(".") } else { source.base() };
        let base = base.canonicalize().unwrap_or_else(|_| base.to_owned());
        let (file, text, sets) = (source.file().to_owned(), source.text().to_owned(), source.sets().to_vec());
        let given = (source.given() != sets).then(|| source.given().to_vec());
        Self { file, base, text, sets, given, started_from: None, origin: None }
    }

    /// Sets the fingerprint of the file that the run was started from, and the file or use case itself.
    #[must_use]
    pub fn started_from(self, fingerprint: Option<String>, origin: Option<String>) -> Self {
        Self { started_from: fingerprint, origin, ..self }
    }

    /// Returns the file or use case that the run was started from, if it is known.
    #[must_use]
    pub fn origin(&self) -> Option<&str> {
        self.origin.as_deref()
    }

    /// Returns the fingerprint of the file that the run was started from, taken when this file was written. `None` if
    /// an older version wrote this file.
    #[must_use]
    pub fn fingerprint(&self) -> Option<&str> {
        self.started_from.as_deref()
    }

    /// Returns the configuration.
    #[must_use]
    pub fn source(&self) -> Source {
        let source = Source::new(self.text.clone(), &self.file, &self.base);
        let source = self.sets.iter().fold(source, |source, setting| source.set(setting));
        match &self.given {
            Some(given) => source.given_as(given.clone()),
            None => source,
        }
    }

    /// Writes the configuration to the file at `path`, which only its owner can read. At any moment the file is the
    /// complete old one or the complete new one.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn keep(&self, path: &Path) -> io::Result<()> {
        replace_private(path, serde_json::to_string_pretty(self)?.as_bytes())
    }

    /// Copies the file at `path` to `path.old`, which only its owner can read. Does nothing if there is no file.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or written.
    pub fn keep_old(path: &Path) -> io::Result<()> {
        let mut old = path.as_os_str().to_owned();
        old.push(".old");
        match read_text(path, MAX_FILE_SIZE) {
            Ok(bytes) => replace_private(Path::new(&old), &bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Reads the file at `path`. Returns `None` if there is no file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or does not contain an accepted configuration.
    pub fn read(path: &Path) -> io::Result<Option<Self>> {
        match read_text(path, MAX_FILE_SIZE) {
            Ok(bytes) => {
                // Omits the text of the error: it may quote the file, which may contain keys.
                let why = |error: serde_json::Error| {
                    io::Error::other(format!(
                        "the file does not contain an accepted configuration (line {} column {}): to start \
                         from the configuration file, use --prefer file, which keeps the state as {}.old",
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
    fn a_written_configuration_is_read_again_and_a_broken_file_is_an_error() {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let path = folder.path().join("state.json");
        assert_eq!(Accepted::read(&path).expect("no file is no error"), None);
        let source = Source::new("batch: 8", "a.yaml", folder.path()).set("seed=3");
        let accepted = Accepted::of(&source);
        accepted.keep(&path).expect("a writable folder");
        let again = Accepted::read(&path).expect("the file is valid").expect("the file exists");
        assert_eq!(Accepted::of(&again.source()), accepted);
        let mode = || fs::metadata(&path).expect("the file exists").permissions().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        // A file that an older version wrote is readable for all users.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("the file is ours");
        accepted.keep(&path).expect("a writable folder");
        assert_eq!(mode(), 0o600);
        assert!(!format!("{accepted:?} {source:?}").contains("seed=3"));
        fs::write(&path, "{").expect("a writable folder");
        assert!(Accepted::read(&path).is_err());
        assert!(accepted.keep(&folder.path().join("not/there")).is_err());
    }
}
