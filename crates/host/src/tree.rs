//! The kernel's files beneath a root folder: the files of this machine, or a tree of files with the same structure.
//!
//! The content of such a tree is not trusted. The amount of data that is read is limited, and an unexpected type of
//! file (a folder, a pipe, a loop of links) is reported as an error.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::fact::{Fact, Known};

/// The largest file with one value, in bytes. Most files of the kernel have at most a page, and lists of the largest
/// machines are slightly longer.
const MOST_VALUE: u64 = 64 << 10;
/// The largest file with many lines, in bytes. The list of interrupts of 2 000 devices at 1 024 CPUs takes 23 MB.
const MOST_LISTING: u64 = 32 << 20;
/// The largest number of names in a folder that are read.
const MOST_NAMES: usize = 4_096;

/// The reason why a value is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// The file does not exist.
    #[error("{0} is missing")]
    Missing(String),
    /// The process has no permission to read the file.
    #[error("{0} cannot be read: permission denied")]
    Denied(String),
    /// The path is a folder, a device or a pipe.
    #[error("{0} is not a file")]
    NoFile(String),
    /// The file is longer than any such file of a kernel.
    #[error("{path} is longer than {most} bytes")]
    TooLong {
        /// The path.
        path: String,
        /// The largest number of bytes that are read.
        most: u64,
    },
    /// The file exists, but its content is invalid.
    #[error("{path} contains {text:?}: allowed is {allowed}")]
    Senseless {
        /// The path.
        path: String,
        /// The content, or its beginning.
        text: String,
        /// The allowed content.
        allowed: String,
    },
    /// Any other error of the system.
    #[error("{path} cannot be read: {error}")]
    System {
        /// The path.
        path: String,
        /// The system's error.
        error: String,
    },
}

impl Unknown {
    /// Replaces the path in the error by the file's path including the root of `tree`, so that a user can open the
    /// file.
    pub(crate) fn beneath(mut self, tree: &Tree) -> Self {
        let (Self::Missing(path)
        | Self::Denied(path)
        | Self::NoFile(path)
        | Self::TooLong { path, .. }
        | Self::Senseless { path, .. }
        | Self::System { path, .. }) = &mut self;
        *path = tree.place(path).display().to_string();
        self
    }
}

/// The root folder of the kernel's files.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The root folder: `/` for the running machine.
    root: PathBuf,
}

impl Default for Tree {
    /// Returns the tree with the files of this machine.
    fn default() -> Self {
        Self::at("/")
    }
}

impl Tree {
    /// Uses the files beneath `root`: `/sys/…` is `root/sys/…`.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns true if the tree has the files of the running machine.
    #[must_use]
    pub fn is_this_machine(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Returns the location of a file beneath the root folder. `path` is its path on its machine.
    #[must_use]
    pub fn place(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Reads a file with one value, without the white space around it.
    ///
    /// # Errors
    /// Returns [`Unknown`] if the file cannot be read.
    pub fn value(&self, path: &str) -> Result<String, Unknown> {
        self.read(path, MOST_VALUE).map(|text| text.trim().to_owned())
    }

    /// Reads a file with many lines, for example one line per CPU.
    ///
    /// # Errors
    /// Returns [`Unknown`] if the file cannot be read.
    pub fn listing(&self, path: &str) -> Result<String, Unknown> {
        self.read(path, MOST_LISTING)
    }

    /// Reads a file with one value, and parses the value with `read`. If `read` returns `None`, the fact is unknown.
    /// `allowed` describes the allowed content for this case.
    pub fn fact<T>(&self, path: &str, allowed: &str, read: impl FnOnce(&str) -> Option<T>) -> Fact<T> {
        let known = self.value(path).and_then(|text| match read(&text) {
            Some(value) => Ok(Known { value, text }),
            None => Err(senseless(path, &text, allowed)),
        });
        Fact { path: path.to_owned(), known }
    }

    /// Returns the names in a folder, sorted. Returns an empty list if the folder is missing or cannot be read.
    #[must_use]
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.place(path)).into_iter().flatten().take(MOST_NAMES).flatten();
        let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Returns true if there is a file or folder with this path.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        self.place(path).exists()
    }

    /// Reads a text of up to `most` bytes.
    fn read(&self, path: &str, most: u64) -> Result<String, Unknown> {
        let system = |error: std::io::Error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Unknown::Missing(path.to_owned()),
            ErrorKind::PermissionDenied => Unknown::Denied(path.to_owned()),
            _ => Unknown::System { path: path.to_owned(), error: error.to_string() },
        };
        let place = self.place(path);
        // This is checked before the file is opened, because opening a pipe would wait for a writer.
        if !place.metadata().map_err(system)?.is_file() {
            return Err(Unknown::NoFile(path.to_owned()));
        }
        let mut bytes = Vec::new();
        File::open(&place).map_err(system)?.take(most + 1).read_to_end(&mut bytes).map_err(system)?;
        if bytes.len() as u64 > most {
            return Err(Unknown::TooLong { path: path.to_owned(), most });
        }
        String::from_utf8(bytes).map_err(|error| senseless(path, &String::from_utf8_lossy(error.as_bytes()), "text"))
    }
}

/// Creates the error for a file with invalid content. `text` is the content, and `allowed` describes the allowed
/// content.
pub(crate) fn senseless(path: &str, text: &str, allowed: &str) -> Unknown {
    Unknown::Senseless { path: path.to_owned(), text: shown(text), allowed: allowed.to_owned() }
}

/// The largest number of characters of an invalid text that errors show.
const MOST_SHOWN: usize = 60;

/// Returns the text as errors show it: up to [`MOST_SHOWN`] characters, with an ellipsis if it is longer.
pub(crate) fn shown(text: &str) -> String {
    let cut = if text.chars().nth(MOST_SHOWN).is_some() { "…" } else { "" };
    text.chars().take(MOST_SHOWN).chain(cut.chars()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn temporary_tree() -> (tempfile::TempDir, Tree) {
        let folder = tempfile::tempdir().expect("a folder");
        let tree = Tree::at(folder.path());
        (folder, tree)
    }

    #[test]
    fn a_file_is_read_beneath_the_root() {
        let (folder, tree) = temporary_tree();
        std::fs::create_dir_all(folder.path().join("sys/a")).expect("a folder");
        std::fs::write(folder.path().join("sys/a/b"), " 7\n").expect("a file");
        let fact = tree.fact("/sys/a/b", "a number", |text| text.parse::<u8>().ok());
        assert_eq!((fact.value(), fact.path.as_str()), (Some(&7), "/sys/a/b"));
        let fact = tree.fact("/sys/a/b", "a letter", |_| None::<u8>);
        assert_eq!(fact.why().as_deref(), Some("/sys/a/b contains \"7\": allowed is a letter"));
        assert_eq!(tree.names("/sys/a"), ["b"]);
        assert!(tree.has("/sys/a") && !tree.has("/sys/b") && !tree.is_this_machine());
    }

    #[test]
    fn special_files_are_reported_and_never_waited_for() {
        let (folder, tree) = temporary_tree();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("folder")).expect("a folder");
        symlink("loop", at("loop")).expect("a link");
        File::create(at("long")).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
        std::fs::write(at("bytes"), [0xff, 0xfe]).expect("a file");
        let why = |path| tree.value(path).expect_err("it cannot be known").to_string();
        assert_eq!(why("/none"), "/none is missing");
        assert_eq!(why("/bytes/none"), "/bytes/none is missing");
        assert_eq!(why("/folder"), "/folder is not a file");
        assert_eq!(why("/long"), "/long is longer than 65536 bytes");
        assert!(why("/loop").starts_with("/loop cannot be read: "), "{}", why("/loop"));
        assert!(why("/bytes").ends_with("allowed is text"), "{}", why("/bytes"));
        assert_eq!(tree.names("/bytes"), [""; 0]);
        if Path::new("/dev/tty").exists() {
            assert_eq!(
                Tree::default().value("/dev/null").expect_err("a device").to_string(),
                "/dev/null is not a file",
            );
        }
    }
}
