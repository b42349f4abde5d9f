//! Measurements that are kept: each in a folder of its own, with the program and the pipeline that it is of, so that both
//! can run again beside others.

mod slim;

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use forebay_graph::files::{OWNER_ALONE, read_text};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::measurement::Measurement;

/// What the measurement is called in its folder, and the program.
const FILE: &str = "measurement.json";
const PROGRAM: &str = "program";
/// How long a name may be.
const LONGEST: usize = 64;
/// How long a measurement's file may be, in bytes: thousands of modules, and the pipeline's whole file, take less.
const MOST: u64 = 64 << 20;

/// A pipeline as it can be named again.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// `usecase:NAME`, `function:NAME`, or a file's whole path.
    pub pipeline: String,
    /// Settings.
    pub set: Vec<String>,
    /// What the file said.
    pub text: Option<String>,
}

/// Without the text and the settings, which may have keys in them.
impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("pipeline", &self.pipeline).finish_non_exhaustive()
    }
}

impl Subject {
    /// A pipeline named by `usecase:NAME`, `function:NAME` or a file's whole path, as it is now.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of(pipeline: String, set: Vec<String>) -> io::Result<Self> {
        let text = if forebay_pipeline::is_built_in(&pipeline) { None } else { Some(text(&pipeline)?) };
        Ok(Self { pipeline, set, text })
    }

    /// What to give `forebay measure` for it.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let set = self.set.iter().flat_map(|set| ["--set".to_owned(), set.clone()]);
        std::iter::once(self.pipeline.clone()).chain(set).collect()
    }
}

/// What a configuration file says.
fn text(pipeline: &str) -> io::Result<String> {
    let bytes = read_text(Path::new(pipeline), MOST)?;
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no text in UTF-8"))
}

/// A measurement that was saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// What it was saved as: its folder's name.
    pub name: String,
    /// When.
    pub at: Timestamp,
    /// The commit that the program is of, where that is known.
    pub commit: Option<String>,
    /// What was measured.
    pub subject: Subject,
    /// The figures.
    #[serde(flatten)]
    pub measurement: Measurement,
}

/// Why a measurement cannot be saved, or found.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// A name that no folder should have.
    #[error("the name '{0}': allowed are 1 to {LONGEST} letters, digits, '-', '_' and '.', the first no '.'")]
    Name(String),
    /// It is there.
    #[error("{}: a measurement of this name is there: choose another name, or remove that folder", shown(.0))]
    There(PathBuf),
    /// It is not there.
    #[error("no measurement '{}' in {}: {}", in_one_line(.name), shown(.store), listed(.there))]
    Missing {
        /// The name.
        name: String,
        /// Where it should be.
        store: PathBuf,
        /// What there is.
        there: Vec<String>,
    },
    /// What is there is none.
    #[error("{}: no measurement: {error}", shown(.file))]
    Broken {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        error: serde_json::Error,
    },
    /// When it was made cannot be read.
    #[error("{}: at: '{}' is no instant: allowed is RFC 3339, such as 2026-11-21T21:40:00Z", shown(.file), in_one_line(.at))]
    Instant {
        /// The file.
        file: PathBuf,
        /// What it says.
        at: String,
    },
    /// Several cannot be read: all of them, a line each.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Several(Vec<SavedError>),
    /// There is no store.
    #[error("{}: {error}: allowed is a folder that `forebay measure PIPELINE --save NAME` has written to", shown(.store))]
    Folder {
        /// Where.
        store: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// There is nothing in it.
    #[error("{}: no measurement is saved there: `forebay measure PIPELINE --save NAME` saves one", shown(.0))]
    Empty(PathBuf),
    /// The file has changed since.
    #[error(
        "{pipeline} has changed since '{name}' was saved: `measure --save` it under a new name, or bring the file back"
    )]
    Changed {
        /// The file.
        pipeline: String,
        /// The measurement.
        name: String,
    },
    /// Files.
    #[error("{}: {error}", shown(.file))]
    Io {
        /// The file.
        file: PathBuf,
        /// What the system says.
        error: io::Error,
    },
}

fn listed(names: &[String]) -> String {
    if names.is_empty() {
        return "nothing is saved there; `forebay measure PIPELINE --save NAME` does".to_owned();
    }
    format!("there are {}", joined(names))
}

/// Names of a store in a message.
pub(crate) fn joined(names: &[String]) -> String {
    names.iter().map(|name| in_one_line(name)).collect::<Vec<_>>().join(", ")
}

fn shown(path: &Path) -> String {
    in_one_line(&path.to_string_lossy())
}

/// `text` as a message or a table repeats it where it comes from outside, such as a folder's name: control characters, the
/// end of a line among them, as JSON escapes them.
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

/// The folder that measurements are saved in.
#[derive(Clone, Debug)]
pub struct Store(PathBuf);

impl Store {
    /// The folder `path`, which is made when something is saved.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Where a new measurement goes.
    ///
    /// # Errors
    /// A name that is not allowed, or that is there.
    pub fn place(&self, name: &str) -> Result<PathBuf, SavedError> {
        let letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if !(1..=LONGEST).contains(&name.len()) || !name.chars().all(letter) || name.starts_with('.') {
            return Err(SavedError::Name(name.to_owned()));
        }
        let folder = self.0.join(name);
        if folder.exists() { Err(SavedError::There(folder)) } else { Ok(folder) }
    }

    /// Makes the folder, where it is not there, ready for a new measurement, before it is made.
    ///
    /// # Errors
    /// As [`place`](Self::place), and where nothing can be written.
    pub fn ready(&self, name: &str) -> Result<(), SavedError> {
        self.place(name)?;
        let io = |error| SavedError::Io { file: self.0.clone(), error };
        let is_new = !self.0.exists();
        fs::create_dir_all(&self.0).map_err(io)?;
        tempfile::tempfile_in(&self.0).map_err(io)?;
        if is_new {
            // Programs are large, and no part of anybody's repository.
            fs::write(self.0.join(".gitignore"), "*\n").map_err(io)?;
        }
        Ok(())
    }

    /// Saves a measurement with the program that made it, without what debuggers read: all of it or nothing. Where it
    /// is.
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
        // Removed when it goes out of scope, unless all went well.
        let temporary = tempfile::Builder::new().prefix(".new").tempdir_in(&self.0).map_err(io(&self.0))?;
        let (file, copy) = (temporary.path().join(FILE), temporary.path().join(PROGRAM));
        let text = serde_json::to_string_pretty(saved).map_err(|error| io(&file)(error.into()))?;
        // It has the pipeline's text, in which there may be keys: its owner alone may read it.
        let private = |file: &Path| fs::File::options().write(true).create_new(true).mode(OWNER_ALONE).open(file);
        private(&file).and_then(|mut new| new.write_all(text.as_bytes())).map_err(io(&file))?;
        let whole = fs::read(program).map_err(io(program))?;
        let kept = slim::slim(&whole);
        let same =
            self.names().into_iter().map(|name| self.0.join(name).join(PROGRAM)).find(|other| is_of(other, &kept));
        // Where it is another user's, a link to it may be forbidden.
        if same.is_none_or(|same| fs::hard_link(same, &copy).is_err()) {
            let may = fs::metadata(program).map_err(io(program))?.permissions();
            fs::write(&copy, &*kept).and_then(|()| fs::set_permissions(&copy, may)).map_err(io(&copy))?;
        }
        fs::rename(temporary.path(), &folder).map_err(|error| match error.kind() {
            // Somebody else was quicker.
            io::ErrorKind::DirectoryNotEmpty => SavedError::There(folder.clone()),
            _ => io(&folder)(error),
        })?;
        Ok(folder)
    }

    /// A measurement, and its program.
    ///
    /// # Errors
    /// [`SavedError`]; also where its pipeline's file has changed since.
    pub fn find(&self, name: &str) -> Result<(Saved, PathBuf), SavedError> {
        let missing = || SavedError::Missing { name: name.to_owned(), store: self.0.clone(), there: self.names() };
        // A path would lead out of the store, to another program.
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

    /// All measurements, the oldest first.
    ///
    /// # Errors
    /// [`SavedError`]: there is no store, or nothing in it; and every file that is no measurement.
    pub fn all(&self) -> Result<Vec<Saved>, SavedError> {
        let (mut saved, mut wrong) = (Vec::new(), Vec::new());
        for folder in self.folders().map_err(|error| SavedError::Folder { store: self.0.clone(), error })? {
            match read(&folder) {
                Ok(one) => saved.push(one),
                Err(error) => wrong.push(error),
            }
        }
        if !wrong.is_empty() {
            return Err(SavedError::Several(wrong));
        }
        if saved.is_empty() {
            return Err(SavedError::Empty(self.0.clone()));
        }
        saved.sort_by(|a, b| (a.at, &a.name).cmp(&(b.at, &b.name)));
        Ok(saved)
    }

    /// The folders of measurements, by their names.
    fn folders(&self) -> io::Result<Vec<PathBuf>> {
        let mut folders = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let path = entry?.path();
            // What else people keep there is theirs, and what is being saved begins with a dot.
            let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if !hidden && path.join(FILE).exists() {
                folders.push(path);
            }
        }
        folders.sort();
        Ok(folders)
    }

    fn names(&self) -> Vec<String> {
        self.folders().unwrap_or_default().iter().map(|folder| name(folder)).collect()
    }
}

fn name(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The measurement in a folder.
fn read(folder: &Path) -> Result<Saved, SavedError> {
    #[derive(Deserialize)]
    struct Instant {
        at: String,
    }
    let file = folder.join(FILE);
    // A pipe in its place would keep its reader waiting.
    let text = match read_text(&file, MOST) {
        Ok(text) => text,
        Err(error) => return Err(SavedError::Io { file, error }),
    };
    let parse = || {
        let Instant { at } = serde_json::from_slice(&text)?;
        // By itself, so that it is told what is allowed.
        if at.parse::<Timestamp>().is_err() {
            return Ok(Err(at));
        }
        serde_json::from_slice::<Saved>(&text).map(Ok)
    };
    match parse() {
        // The folder may have got another name since.
        Ok(Ok(saved)) => Ok(Saved { name: name(folder), ..saved }),
        Ok(Err(at)) => Err(SavedError::Instant { file, at }),
        Err(error) => Err(SavedError::Broken { file, error }),
    }
}

/// Whether a file has just these bytes.
fn is_of(file: &Path, bytes: &[u8]) -> bool {
    fs::metadata(file).is_ok_and(|told| told.len() == bytes.len() as u64)
        && fs::read(file).is_ok_and(|there| there == bytes)
}

#[cfg(test)]
mod tests;
