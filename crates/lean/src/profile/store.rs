//! Where profiles are kept: a file for each CPU model, build and largest batch, in the user's cache.
//!
//! Another build has other code, and another machine other costs: neither's profile says anything here.

use std::fmt;
use std::fs;
use std::hash::Hasher;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use forebay_graph::files::{open_regular, read_text, replace};
use forebay_measure::machine::Cpu;
use serde::{Deserialize, Serialize};

use super::{Profile, SCHEMA};
use crate::saved::in_one_line;

/// The longest file: thousands of functions.
const MOST: u64 = 16 << 20;

/// A build of Forebay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// Its version.
    pub forebay: String,
    /// What its program's file hashes to, in 16 digits.
    pub program: String,
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.forebay, self.program)
    }
}

/// What a profile is of.
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
    /// This machine and program, with a largest batch.
    ///
    /// # Errors
    /// The program's own file cannot be read.
    pub fn this(batch: usize) -> Result<Self, StoreError> {
        let program = Path::new("/proc/self/exe");
        let io = |error| StoreError::Io { file: program.to_owned(), error };
        let program = hash(&mut fs::File::open(program).map_err(io)?).map_err(io)?;
        let forebay = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Self { cpu: Cpu::this().model, build: Build { forebay, program: format!("{program:016x}") }, batch })
    }

    /// The file's name: what people look for first, then what tells it from others.
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

/// What a file hashes to: only the program that it is ever compares it.
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

/// Why a profile cannot be had, or kept.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no place for it.
    #[error("no place for profiles: set XDG_CACHE_HOME or HOME to a folder, by its whole path")]
    NoPlace,
    /// Files.
    #[error("{}: {error}", shown(.file))]
    Io {
        /// The file.
        file: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// What is there cannot be used.
    #[error("{}: {why}", shown(.file))]
    Unusable {
        /// The file.
        file: PathBuf,
        /// Why.
        why: Unusable,
    },
}

/// Why what a file has cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// It is no profile.
    #[error("no profile: {0}")]
    Form(#[from] serde_json::Error),
    /// It is of another time.
    #[error("it is of schema {0}, allowed is {SCHEMA}")]
    Schema(u64),
    /// It is of another machine, build or largest batch.
    #[error("it is of {0}: it says nothing of this one")]
    Foreign(String),
    /// A function cannot cost what it says.
    #[error("{0}: such costs cannot be")]
    Costs(String),
}

fn shown(path: &Path) -> String {
    in_one_line(&path.to_string_lossy())
}

/// The folder of profiles.
#[derive(Clone, Debug)]
pub struct Store(PathBuf);

impl Store {
    /// The user's own: `forebay/profile` in `$XDG_CACHE_HOME`, else in `~/.cache` (XDG Base Directory Specification: a relative path
    /// is to be ignored).
    ///
    /// # Errors
    /// [`StoreError::NoPlace`].
    pub fn of_user() -> Result<Self, StoreError> {
        Ok(Self::at(&Self::folder("profile")?))
    }

    /// The user's own folder of this name: beside that of profiles.
    ///
    /// # Errors
    /// [`StoreError::NoPlace`].
    pub fn folder(name: &str) -> Result<PathBuf, StoreError> {
        let named = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let cache = named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")));
        Ok(cache.ok_or(StoreError::NoPlace)?.join("forebay").join(name))
    }

    /// The folder `path`, which is made when something is kept.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Where a profile is kept.
    #[must_use]
    pub fn file(&self, key: &Key) -> PathBuf {
        self.0.join(key.file_name())
    }

    /// Makes the folder, and finds out whether anything can be kept in it.
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
    /// What was kept; nothing where nothing was.
    ///
    /// # Errors
    /// [`StoreError`]: what is there cannot be used, and why.
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

    fn parse(bytes: &[u8]) -> Result<Self, Unusable> {
        #[derive(Deserialize)]
        struct Any {
            schema: u64,
        }
        // First, so that a later form is told by its number.
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

    fn of(self, key: &Key) -> Result<Self, Unusable> {
        let Key { cpu, build, batch } = &self.key;
        let what = || format!("{cpu}, Forebay {build}, batches of {batch}");
        if self.key == *key { Ok(self) } else { Err(Unusable::Foreign(in_one_line(&what()))) }
    }

    /// The file's text.
    fn text(&self) -> Result<String, Unusable> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Keeps it: the whole file is there afterwards, or the one before. Functions that only the file has stay in it: two programs may
    /// have measured some each. Where it is.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn keep(&self, store: &Store) -> Result<PathBuf, StoreError> {
        store.ready()?;
        let file = store.file(&self.key);
        let mut all = self.clone();
        // What cannot be read is no loss.
        if let Ok(Some(there)) = Self::stored(store, &self.key) {
            for (name, costed) in there.functions {
                all.functions.entry(name).or_insert(costed);
            }
        }
        // Whatever else has the name, such as a pipe, keeps nothing.
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

/// Any bytes, for fuzzing: a profile that is read can be written, and has the same functions when it is read again.
pub fn fuzz_profile(bytes: &[u8]) {
    if let Ok(profile) = Profile::parse(bytes) {
        let text = profile.text().expect("plain values can be written");
        // Decimal fractions need not be read back to the last bit, by which an interval may end before it begins.
        if let Ok(again) = Profile::parse(text.as_bytes()) {
            assert!(again.key == profile.key && again.functions.keys().eq(profile.functions.keys()));
        }
    }
}

#[cfg(test)]
mod tests;
