//! Saved measurements. Each has its own folder, with the program and the pipeline that were measured. So a later
//! comparison can run the same program with the same pipeline again.

mod slim;

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use forebay_graph::existing_names;
use forebay_graph::files::{OWNER_ALONE, read_text};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::measurement::Measurement;

/// The name of the measurement file in its folder.
const FILE: &str = "measurement.json";
/// The name of the program in the folder of a measurement.
const PROGRAM: &str = "program";
/// The longest name, in characters.
const LONGEST: usize = 64;
/// The largest measurement file that is read, in bytes: more than enough for thousands of modules and the pipeline's
/// whole file.
const MOST: u64 = 64 << 20;

/// A pipeline, described so that a later measurement can use the same pipeline.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// `usecase:NAME`, `function:NAME`, or the absolute path of a file.
    pub pipeline: String,
    /// Its settings (`--set`).
    pub set: Vec<String>,
    /// The contents of the file; `None` for a built-in pipeline.
    pub text: Option<String>,
}

/// Leaves out the text and the settings, which may contain keys.
impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("pipeline", &self.pipeline).finish_non_exhaustive()
    }
}

impl Subject {
    /// Creates the subject for a pipeline and reads the present contents of its file. `pipeline` is `usecase:NAME`,
    /// `function:NAME` or the absolute path of a file.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of(pipeline: String, set: Vec<String>) -> io::Result<Self> {
        let text = if forebay_pipeline::is_built_in(&pipeline) { None } else { Some(text(&pipeline)?) };
        Ok(Self { pipeline, set, text })
    }

    /// Returns the arguments of `forebay measure` for this pipeline.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let set = self.set.iter().flat_map(|set| ["--set".to_owned(), set.clone()]);
        std::iter::once(self.pipeline.clone()).chain(set).collect()
    }
}

/// Reads the contents of a configuration file.
fn text(pipeline: &str) -> io::Result<String> {
    let bytes = read_text(Path::new(pipeline), MOST)?;
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not a text in UTF-8"))
}

/// A measurement that was saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// The name of its folder.
    pub name: String,
    /// The time of the measurement.
    pub at: Timestamp,
    /// The commit of the program, if known.
    pub commit: Option<String>,
    /// The measured pipeline.
    pub subject: Subject,
    /// The figures.
    #[serde(flatten)]
    pub measurement: Measurement,
}

/// A measurement cannot be saved or found.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// The name is not allowed as a folder name.
    #[error("the name '{0}': allowed are 1 to {LONGEST} letters, digits, '-', '_' and '.'; it must not begin with '.'")]
    Name(String),
    /// A measurement of this name exists.
    #[error("{}: a measurement of this name exists: choose another name, or remove that folder", shown(.0))]
    There(PathBuf),
    /// No measurement has this name.
    #[error("no measurement '{}' in {}: {}", in_one_line(.name), shown(.store), listed(.there))]
    Missing {
        /// The name.
        name: String,
        /// The store.
        store: PathBuf,
        /// The names in the store.
        there: Vec<String>,
    },
    /// The file is not a measurement.
    #[error("{}: not a measurement: {error}", shown(.file))]
    Broken {
        /// The file.
        file: PathBuf,
        /// The error.
        error: serde_json::Error,
    },
    /// The time of the measurement cannot be parsed.
    #[error(
        "{}: at: '{}' is not a time: allowed is RFC 3339, for example 2026-11-21T21:40:00Z",
        shown(.file),
        in_one_line(.at)
    )]
    Instant {
        /// The file.
        file: PathBuf,
        /// The text in the file.
        at: String,
    },
    /// Several files cannot be read: their errors, one per line.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Several(Vec<SavedError>),
    /// The store does not exist or cannot be read.
    #[error(
        "{}: {error}: allowed is a folder that `forebay measure PIPELINE --save NAME` has written to",
        shown(.store)
    )]
    Folder {
        /// The store.
        store: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The store is empty.
    #[error("{}: the folder has no measurements: `forebay measure PIPELINE --save NAME` saves one", shown(.0))]
    Empty(PathBuf),
    /// The pipeline's file has changed since the measurement.
    #[error(
        "{pipeline} has changed since '{name}' was saved: save a measurement under a new name (`measure \
         --save`), or restore the file"
    )]
    Changed {
        /// The file.
        pipeline: String,
        /// The measurement.
        name: String,
    },
    /// A file cannot be read or written.
    #[error("{}: {error}", shown(.file))]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// Formats the names of a store for an error, or how to save the first measurement.
fn listed(names: &[String]) -> String {
    if names.is_empty() {
        return "the store is empty; `forebay measure PIPELINE --save NAME` saves one".to_owned();
    }
    existing(names)
}

/// Returns the existing names of a store with their verb, for an error.
pub(crate) fn existing(names: &[String]) -> String {
    let names: Vec<_> = names.iter().map(|name| in_one_line(name)).collect();
    existing_names(names.iter().map(String::as_str))
}

fn shown(path: &Path) -> String {
    in_one_line(&path.to_string_lossy())
}

/// Returns `text` for a message or a table, with control characters (including line ends) escaped as in JSON. Needed
/// for text from outside, for example a folder's name.
#[must_use]
pub fn in_one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            line.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            line.push(character);
        }
    }
    line
}

/// The folder of saved measurements.
#[derive(Clone, Debug)]
pub struct MeasurementStore(PathBuf);

impl MeasurementStore {
    /// Returns a store in the folder `path`. The folder is created when a measurement is saved.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Returns the path of a new measurement's folder, and does not create it.
    ///
    /// # Errors
    /// The name is not allowed or exists.
    pub fn place(&self, name: &str) -> Result<PathBuf, SavedError> {
        let letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if !(1..=LONGEST).contains(&name.len()) || !name.chars().all(letter) || name.starts_with('.') {
            return Err(SavedError::Name(name.to_owned()));
        }
        let folder = self.0.join(name);
        if folder.exists() { Err(SavedError::There(folder)) } else { Ok(folder) }
    }

    /// Creates the store if needed and checks that a measurement can be saved. Called before the measurement is made.
    ///
    /// # Errors
    /// Same as [`place`](Self::place); also if files cannot be written.
    pub fn ready(&self, name: &str) -> Result<(), SavedError> {
        self.place(name)?;
        let io = |error| SavedError::Io { file: self.0.clone(), error };
        let is_new = !self.0.exists();
        fs::create_dir_all(&self.0).map_err(io)?;
        tempfile::tempfile_in(&self.0).map_err(io)?;
        if is_new {
            // Programs are large and should not be committed to a repository.
            fs::write(self.0.join(".gitignore"), "*\n").map_err(io)?;
        }
        Ok(())
    }

    /// Saves a measurement and its program, completely or not at all. The debug sections of the program are left out.
    /// Returns the path of the measurement's folder.
    ///
    /// # Errors
    /// [`SavedError`].
    pub fn save(&self, saved: &Saved, program: &Path) -> Result<PathBuf, SavedError> {
        let folder = self.place(&saved.name)?;
        let io = |file: &Path| {
            let file = file.to_owned();
            move |error| SavedError::Io { file, error }
        };
        fs::create_dir_all(&self.0).map_err(io(&self.0))?;
        // If the folder is not renamed below, it is removed when the variable goes out of scope.
        let temporary = tempfile::Builder::new().prefix(".new").tempdir_in(&self.0).map_err(io(&self.0))?;
        let (file, copy) = (temporary.path().join(FILE), temporary.path().join(PROGRAM));
        let text = serde_json::to_string_pretty(saved).map_err(|error| io(&file)(error.into()))?;
        // The file contains the pipeline's text, which may contain keys: only its owner may read it.
        let private = |file: &Path| fs::File::options().write(true).create_new(true).mode(OWNER_ALONE).open(file);
        private(&file).and_then(|mut new| new.write_all(text.as_bytes())).map_err(io(&file))?;
        let whole = fs::read(program).map_err(io(program))?;
        let kept = slim::slim(&whole);
        let same = self
            .names()
            .into_iter()
            .map(|name| self.0.join(name).join(PROGRAM))
            .find(|other| has_contents(other, &kept));
        // If the file belongs to another user, a hard link to it may be forbidden.
        if same.is_none_or(|same| fs::hard_link(same, &copy).is_err()) {
            let may = fs::metadata(program).map_err(io(program))?.permissions();
            fs::write(&copy, &*kept).and_then(|()| fs::set_permissions(&copy, may)).map_err(io(&copy))?;
        }
        fs::rename(temporary.path(), &folder).map_err(|error| match error.kind() {
            // Another process has saved a measurement of this name in the meantime.
            io::ErrorKind::DirectoryNotEmpty => SavedError::There(folder.clone()),
            _ => io(&folder)(error),
        })?;
        Ok(folder)
    }

    /// Returns a measurement and the path of its program.
    ///
    /// # Errors
    /// [`SavedError`]; also if its pipeline's file has changed since the measurement.
    pub fn find(&self, name: &str) -> Result<(Saved, PathBuf), SavedError> {
        let missing = || SavedError::Missing { name: name.to_owned(), store: self.0.clone(), there: self.names() };
        // A path could lead out of the store, to another program.
        let mut parts = Path::new(name).components();
        let (Some(Component::Normal(one)), None) = (parts.next(), parts.next()) else { return Err(missing()) };
        if one != name {
            return Err(missing());
        }
        let folder = self.0.join(name);
        let saved = match read(&folder) {
            Err(SavedError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => return Err(missing()),
            read => read?,
        };
        if let Some(text) = &saved.subject.text
            && self::text(&saved.subject.pipeline).ok().as_ref() != Some(text)
        {
            return Err(SavedError::Changed { pipeline: saved.subject.pipeline, name: name.to_owned() });
        }
        Ok((saved, folder.join(PROGRAM)))
    }

    /// Returns all measurements, the oldest first.
    ///
    /// # Errors
    /// [`SavedError`]: the store does not exist or is empty, or files are not measurements (each is listed).
    pub fn all(&self) -> Result<Vec<Saved>, SavedError> {
        let (mut saved, mut errors) = (Vec::new(), Vec::new());
        for folder in self.folders().map_err(|error| SavedError::Folder { store: self.0.clone(), error })? {
            match read(&folder) {
                Ok(one) => saved.push(one),
                Err(error) => errors.push(error),
            }
        }
        if !errors.is_empty() {
            return Err(SavedError::Several(errors));
        }
        if saved.is_empty() {
            return Err(SavedError::Empty(self.0.clone()));
        }
        saved.sort_by(|a, b| (a.at, &a.name).cmp(&(b.at, &b.name)));
        Ok(saved)
    }

    /// Returns the folders of measurements, sorted by name.
    fn folders(&self) -> io::Result<Vec<PathBuf>> {
        let mut folders = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let path = entry?.path();
            // Other files in the store are ignored. The folder of a measurement that is being saved has a name that
            // begins with a dot.
            let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if !hidden && path.join(FILE).exists() {
                folders.push(path);
            }
        }
        folders.sort();
        Ok(folders)
    }

    /// Returns the names of all measurements. Empty if the store cannot be read.
    fn names(&self) -> Vec<String> {
        self.folders().unwrap_or_default().iter().map(|folder| name(folder)).collect()
    }
}

fn name(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Reads the measurement in a folder.
fn read(folder: &Path) -> Result<Saved, SavedError> {
    #[derive(Deserialize)]
    struct Instant {
        at: String,
    }
    let file = folder.join(FILE);
    // `read_text` refuses a pipe, which would block the reader.
    let text = match read_text(&file, MOST) {
        Ok(text) => text,
        Err(error) => return Err(SavedError::Io { file, error }),
    };
    let parse = || {
        let Instant { at } = serde_json::from_slice(&text)?;
        // Parsed separately, so that the error says which form is allowed.
        if at.parse::<Timestamp>().is_err() {
            return Ok(Err(at));
        }
        serde_json::from_slice::<Saved>(&text).map(Ok)
    };
    match parse() {
        // The folder may have been renamed since.
        Ok(Ok(saved)) => Ok(Saved { name: name(folder), ..saved }),
        Ok(Err(at)) => Err(SavedError::Instant { file, at }),
        Err(error) => Err(SavedError::Broken { file, error }),
    }
}

/// True if the file has exactly these bytes. False also if it cannot be read.
fn has_contents(file: &Path, bytes: &[u8]) -> bool {
    fs::metadata(file).is_ok_and(|metadata| metadata.len() == bytes.len() as u64)
        && fs::read(file).is_ok_and(|contents| contents == bytes)
}

#[cfg(test)]
mod tests;
