//! The kernel's files beneath a root: the machine's own, or a tree that is laid out like one.
//!
//! Nothing in such a tree is trusted: what is read is bounded, and whatever stands where a file should be (a folder, a pipe, a
//! loop of links) is reported as what it is.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::fact::{Fact, Known};

/// The longest file of one value: the kernel's own are a page, lists of the largest machines a little more.
const MOST_VALUE: u64 = 64 << 10;
/// The longest listing: interrupts of 2 000 devices by 1 024 CPUs are 23 MB.
const MOST_LISTING: u64 = 32 << 20;
/// The most names of a folder that are looked at.
const MOST_NAMES: usize = 4_096;

/// Why something cannot be known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// There is no such file.
    #[error("{0} is not there")]
    Missing(String),
    /// The right to read it is missing.
    #[error("{0} may not be read")]
    Denied(String),
    /// A folder, a device or a pipe is in its place.
    #[error("{0} is no file")]
    NoFile(String),
    /// It is longer than any such file of a kernel.
    #[error("{path} is longer than {most} bytes")]
    TooLong {
        /// Which.
        path: String,
        /// What is read at most.
        most: u64,
    },
    /// It is there, but what it says makes no sense.
    #[error("{path} says {text:?}: allowed is {allowed}")]
    Senseless {
        /// Which.
        path: String,
        /// What it says, or how that begins.
        text: String,
        /// What is allowed.
        allowed: String,
    },
    /// Anything else that the system says.
    #[error("{path} cannot be read: {error}")]
    System {
        /// Which.
        path: String,
        /// What the system says.
        error: String,
    },
}

impl Unknown {
    /// With the file as it is called outside of `tree`. Errors have it, so that the file can be opened.
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

/// Where the kernel's files are.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
}

impl Default for Tree {
    /// This machine's.
    fn default() -> Self {
        Self::at("/")
    }
}

impl Tree {
    /// Files beneath `root`: `/sys/…` is `root/sys/…`.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Whether this is the running machine itself.
    #[must_use]
    pub fn is_this_machine(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Where the file that a machine calls `path` is.
    #[must_use]
    pub fn place(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// A file of one value, without the end of its line.
    ///
    /// # Errors
    /// [`Unknown`].
    pub fn value(&self, path: &str) -> Result<String, Unknown> {
        self.read(path, MOST_VALUE).map(|text| text.trim().to_owned())
    }

    /// A file with a line for each of many things.
    ///
    /// # Errors
    /// [`Unknown`].
    pub fn listing(&self, path: &str) -> Result<String, Unknown> {
        self.read(path, MOST_LISTING)
    }

    /// What a file of one value says; `allowed` says what is right in it.
    pub fn fact<T>(&self, path: &str, allowed: &str, read: impl FnOnce(&str) -> Option<T>) -> Fact<T> {
        let known = self.value(path).and_then(|text| match read(&text) {
            Some(value) => Ok(Known { value, text }),
            None => Err(senseless(path, &text, allowed)),
        });
        Fact { path: path.to_owned(), known }
    }

    /// The names in a folder, in order; nothing where there is none.
    #[must_use]
    pub fn names(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.place(path)).into_iter().flatten().take(MOST_NAMES).flatten();
        let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Whether there is anything of this path.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        self.place(path).exists()
    }

    fn read(&self, path: &str, most: u64) -> Result<String, Unknown> {
        let system = |error: std::io::Error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Unknown::Missing(path.to_owned()),
            ErrorKind::PermissionDenied => Unknown::Denied(path.to_owned()),
            _ => Unknown::System { path: path.to_owned(), error: error.to_string() },
        };
        let place = self.place(path);
        // Asked before it is opened: opening a pipe waits for who writes it.
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

/// What a file says makes no sense.
pub(crate) fn senseless(path: &str, text: &str, allowed: &str) -> Unknown {
    let text = text.chars().take(MOST_SHOWN).collect();
    Unknown::Senseless { path: path.to_owned(), text, allowed: allowed.to_owned() }
}

/// The characters of a wrong text that errors show.
const MOST_SHOWN: usize = 60;

/// A text as errors show it: its beginning, where it is long.
pub(crate) fn shown(text: &str) -> String {
    let cut = if text.chars().nth(MOST_SHOWN).is_some() { "…" } else { "" };
    text.chars().take(MOST_SHOWN).chain(cut.chars()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn laid_out() -> (tempfile::TempDir, Tree) {
        let folder = tempfile::tempdir().expect("a folder");
        let tree = Tree::at(folder.path());
        (folder, tree)
    }

    #[test]
    fn a_file_is_read_beneath_the_root() {
        let (folder, tree) = laid_out();
        std::fs::create_dir_all(folder.path().join("sys/a")).expect("a folder");
        std::fs::write(folder.path().join("sys/a/b"), " 7\n").expect("a file");
        let fact = tree.fact("/sys/a/b", "a number", |text| text.parse::<u8>().ok());
        assert_eq!((fact.value(), fact.path.as_str()), (Some(&7), "/sys/a/b"));
        let fact = tree.fact("/sys/a/b", "a letter", |_| None::<u8>);
        assert_eq!(fact.why().as_deref(), Some("/sys/a/b says \"7\": allowed is a letter"));
        assert_eq!(tree.names("/sys/a"), ["b"]);
        assert!(tree.has("/sys/a") && !tree.has("/sys/b") && !tree.is_this_machine());
    }

    #[test]
    fn what_is_no_file_is_told_as_what_it_is_and_never_waited_for() {
        let (folder, tree) = laid_out();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("folder")).expect("a folder");
        symlink("loop", at("loop")).expect("a link");
        File::create(at("long")).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
        std::fs::write(at("bytes"), [0xff, 0xfe]).expect("a file");
        let why = |path| tree.value(path).expect_err("it cannot be known").to_string();
        assert_eq!(why("/none"), "/none is not there");
        assert_eq!(why("/bytes/none"), "/bytes/none is not there");
        assert_eq!(why("/folder"), "/folder is no file");
        assert_eq!(why("/long"), "/long is longer than 65536 bytes");
        assert!(why("/loop").starts_with("/loop cannot be read: "), "{}", why("/loop"));
        assert!(why("/bytes").ends_with("allowed is text"), "{}", why("/bytes"));
        assert_eq!(tree.names("/bytes"), [""; 0]);
        if Path::new("/dev/tty").exists() {
            assert_eq!(Tree::default().value("/dev/null").expect_err("a device").to_string(), "/dev/null is no file");
        }
    }
}
