//! Stores profiles in the user's cache, one file for each CPU model, build and largest batch.
//!
//! A profile of another build or another machine is not valid, because the code or the costs differ.

use std::fmt;
use std::fs;
use std::hash::Hasher;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use forebay_graph::files::{open_regular, read_text, replace};
use serde::{Deserialize, Serialize};

use super::{Profile, SCHEMA};
use crate::saved::in_one_line;

/// The largest file that is read, in bytes: enough for thousands of functions.
const MOST: u64 = 16 << 20;

/// A build of Forebay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// The version of Forebay.
    pub forebay: String,
    /// The hash of the program file, in 16 hexadecimal digits.
    pub program: String,
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.forebay, self.program)
    }
}

/// The machine, build and largest batch that a profile belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// The CPU's model.
    pub cpu: String,
    /// The build.
    pub build: Build,
    /// The largest batch.
    pub batch: usize,
}

impl Key {
    /// Returns the key of this machine and this program, with `batch` as the largest batch.
    ///
    /// # Errors
    /// The program's own file cannot be read.
    pub fn this(batch: usize) -> Result<Self, StoreError> {
        let program = Path::new("/proc/self/exe");
        let io = |error| StoreError::Io { file: program.to_owned(), error };
        let program = hash(&mut fs::File::open(program).map_err(io)?).map_err(io)?;
        let forebay = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Self {
            cpu: forebay_measure::machine::cpu().model,
            build: Build { forebay, program: format!("{program:016x}") },
            batch,
        })
    }

    /// Returns the name of the file: first the CPU model, which people look for, then the parts that distinguish it
    /// from other files.
    #[must_use]
    pub fn file_name(&self) -> String {
        let plain = |text: &str| -> String {
            text.chars()
                .map(|letter| if letter.is_ascii_alphanumeric() || letter == '.' { letter } else { '-' })
                .collect()
        };
        let Build { forebay, program } = &self.build;
        format!("{}_{}_{}_{}.json", plain(&self.cpu), plain(forebay), plain(program), self.batch)
    }
}

/// Returns the hash of a file. Hashes are only compared by the same program, so the algorithm may change between
/// builds.
fn hash(file: &mut impl Read) -> io::Result<u64> {
    let mut hasher = std::hash::DefaultHasher::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            read => hasher.write(&buffer[..read]),
        }
    }
}

/// A profile cannot be read or stored.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no folder for profiles.
    #[error("no folder for profiles: set XDG_CACHE_HOME or HOME to an absolute path")]
    NoPlace,
    /// A file cannot be read or written.
    #[error("{}: {error}", shown(.file))]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The contents of the file cannot be used.
    #[error("{}: {why}", shown(.file))]
    Unusable {
        /// The file.
        file: PathBuf,
        /// The reason.
        why: Unusable,
    },
}

/// The reason why the contents of a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The file is not a profile.
    #[error("not a profile: {0}")]
    Form(#[from] serde_json::Error),
    /// The file has another version.
    #[error("schema {0} is not supported, allowed is {SCHEMA}")]
    Schema(u64),
    /// The profile belongs to another machine, build or largest batch.
    #[error("it belongs to {0}: it is not valid here")]
    Foreign(String),
    /// The costs of a function are impossible.
    #[error("{0}: these costs are impossible")]
    Costs(String),
}

fn shown(path: &Path) -> String {
    in_one_line(&path.to_string_lossy())
}

/// The folder of profiles.
#[derive(Clone, Debug)]
pub struct Store(PathBuf);

impl Store {
    /// Returns the user's store: `forebay/profile` in `$XDG_CACHE_HOME`, else in `~/.cache`. Relative paths are ignored
    /// (XDG Base Directory Specification).
    ///
    /// # Errors
    /// [`StoreError::NoPlace`].
    pub fn of_user() -> Result<Self, StoreError> {
        Ok(Self::at(&Self::folder("profile")?))
    }

    /// Returns the user's folder of this name, beside the folder of profiles.
    ///
    /// # Errors
    /// [`StoreError::NoPlace`].
    pub fn folder(name: &str) -> Result<PathBuf, StoreError> {
        let named = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let cache = named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")));
        Ok(cache.ok_or(StoreError::NoPlace)?.join("forebay").join(name))
    }

    /// Returns a store in the folder `path`. The folder is created when a profile is stored.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Returns the path of a profile's file.
    #[must_use]
    pub fn file(&self, key: &Key) -> PathBuf {
        self.0.join(key.file_name())
    }

    /// Creates the folder and checks that files can be written in it.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn ready(&self) -> Result<(), StoreError> {
        let io = |error| StoreError::Io { file: self.0.clone(), error };
        fs::create_dir_all(&self.0).map_err(io)?;
        tempfile::tempfile_in(&self.0).map(drop).map_err(io)
    }
}

impl Profile {
    /// Reads the stored profile. Returns `None` if there is none.
    ///
    /// # Errors
    /// [`StoreError`]: the file cannot be used.
    pub fn stored(store: &Store, key: &Key) -> Result<Option<Self>, StoreError> {
        let file = store.file(key);
        let bytes = match read_text(&file, MOST) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreError::Io { file, error }),
        };
        match Self::parse(&bytes).and_then(|profile| profile.of(key)) {
            Ok(profile) => Ok(Some(profile)),
            Err(why) => Err(StoreError::Unusable { file, why }),
        }
    }

    /// Parses the contents of a file and checks the costs. The caller checks the key.
    fn parse(bytes: &[u8]) -> Result<Self, Unusable> {
        #[derive(Deserialize)]
        struct Any {
            schema: u64,
        }
        // The schema is read first, so that the error for a later format names its number.
        let Any { schema } = serde_json::from_slice(bytes)?;
        if schema != u64::from(SCHEMA) {
            return Err(Unusable::Schema(schema));
        }
        let profile: Self = serde_json::from_slice(bytes)?;
        match profile.functions.iter().find(|(_, costed)| !costed.is_sound()) {
            Some((function, _)) => Err(Unusable::Costs(in_one_line(function))),
            None => Ok(profile),
        }
    }

    /// Returns the profile if it belongs to `key`.
    fn of(self, key: &Key) -> Result<Self, Unusable> {
        let Key { cpu, build, batch } = &self.key;
        let belongs_to = || format!("{cpu}, Forebay {build}, batches of {batch}");
        if self.key == *key { Ok(self) } else { Err(Unusable::Foreign(in_one_line(&belongs_to()))) }
    }

    /// The file's text.
    fn text(&self) -> Result<String, Unusable> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Stores the profile. The file is replaced atomically. Functions that only the existing file has are kept, because
    /// another process may have measured them meanwhile. Returns the path of the file.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn keep(&self, store: &Store) -> Result<PathBuf, StoreError> {
        store.ready()?;
        let file = store.file(&self.key);
        let mut all = self.clone();
        // An unreadable file is ignored and replaced.
        if let Ok(Some(existing)) = Self::stored(store, &self.key) {
            for (name, costed) in existing.functions {
                all.functions.entry(name).or_insert(costed);
            }
        }
        // Anything but a regular file, for example a pipe, is not replaced.
        if let Err(error) = open_regular(&file)
            && error.kind() == io::ErrorKind::InvalidInput
        {
            return Err(StoreError::Io { file, error });
        }
        let text = match all.text() {
            Ok(text) => text,
            Err(why) => return Err(StoreError::Unusable { file, why }),
        };
        match replace(&file, text.as_bytes()) {
            Ok(()) => Ok(file),
            Err(error) => Err(StoreError::Io { file, error }),
        }
    }
}

/// Parses any bytes, for fuzzing. A profile that is accepted must be writable, and must have the same functions when it
/// is read again.
pub fn fuzz_profile(bytes: &[u8]) {
    if let Ok(profile) = Profile::parse(bytes) {
        let text = profile.text().expect("plain values can be written");
        // Decimal fractions may differ in the last bit after reading. Then an interval may end before it begins, and
        // the text is refused.
        if let Ok(again) = Profile::parse(text.as_bytes()) {
            assert!(again.key == profile.key && again.functions.keys().eq(profile.functions.keys()));
        }
    }
}

#[cfg(test)]
mod tests;
