//! Measurements that are kept: each in a folder of its own, with the program and the pipeline that it is of, so that both
//! can run again beside others.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::measurement::Measurement;

/// What the measurement is called in its folder, and the program.
const FILE: &str = "measurement.json";
const PROGRAM: &str = "program";
/// How long a name may be.
const LONGEST: usize = 64;

/// A pipeline as it can be named again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// `usecase:NAME`, `function:NAME`, or a file's whole path.
    pub pipeline: String,
    /// Settings.
    pub set: Vec<String>,
    /// What the file said.
    pub text: Option<String>,
}

impl Subject {
    /// A pipeline named by `usecase:NAME`, `function:NAME` or a file's whole path, as it is now.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of(pipeline: String, set: Vec<String>) -> io::Result<Self> {
        let text = if forebay_pipeline::is_built_in(&pipeline) { None } else { Some(fs::read_to_string(&pipeline)?) };
        Ok(Self { pipeline, set, text })
    }

    /// What to give `forebay measure` for it.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let set = self.set.iter().flat_map(|set| ["--set".to_owned(), set.clone()]);
        std::iter::once(self.pipeline.clone()).chain(set).collect()
    }
}

/// A measurement that was saved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// What it was saved as.
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
    #[error("{}: a measurement of this name is there: choose another name, or remove that folder", .0.display())]
    There(PathBuf),
    /// It is not there.
    #[error("no measurement '{name}' in {}: {}", .store.display(), listed(.there))]
    Missing {
        /// The name.
        name: String,
        /// Where it should be.
        store: PathBuf,
        /// What there is.
        there: Vec<String>,
    },
    /// What is there is none.
    #[error("{}: {error}", .file.display())]
    Broken {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        error: serde_json::Error,
    },
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
    #[error("{}: {error}", .file.display())]
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
    format!("there are {}", names.join(", "))
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

    /// Saves a measurement with the program that made it: all of it or nothing. Where it is.
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
        let text =
            serde_json::to_string_pretty(saved).map_err(|error| SavedError::Broken { file: file.clone(), error })?;
        fs::write(&file, text).map_err(io(&file))?;
        let same =
            self.names().into_iter().map(|name| self.0.join(name).join(PROGRAM)).find(|other| same(other, program));
        match same {
            Some(same) => fs::hard_link(&same, &copy).map_err(io(&copy))?,
            None => drop(fs::copy(program, &copy).map_err(io(&copy))?),
        }
        fs::rename(temporary.path(), &folder).map_err(io(&folder))?;
        Ok(folder)
    }

    /// A measurement, and its program.
    ///
    /// # Errors
    /// [`SavedError`]; also where its pipeline's file has changed since.
    pub fn find(&self, name: &str) -> Result<(Saved, PathBuf), SavedError> {
        let folder = self.0.join(name);
        let file = folder.join(FILE);
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(SavedError::Missing { name: name.to_owned(), store: self.0.clone(), there: self.names() });
            }
            Err(error) => return Err(SavedError::Io { file, error }),
        };
        let saved: Saved = serde_json::from_str(&text).map_err(|error| SavedError::Broken { file, error })?;
        if let Some(text) = &saved.subject.text
            && fs::read_to_string(&saved.subject.pipeline).ok().as_ref() != Some(text)
        {
            return Err(SavedError::Changed { pipeline: saved.subject.pipeline, name: name.to_owned() });
        }
        Ok((saved, folder.join(PROGRAM)))
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let saved = entries.filter(|entry| entry.path().join(FILE).is_file());
        let mut names: Vec<_> = saved.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        names
    }
}

/// Whether two files are there and say the same.
fn same(one: &Path, other: &Path) -> bool {
    let open = |path: &Path| fs::File::open(path).ok().map(io::BufReader::new);
    let length = |path: &Path| fs::metadata(path).ok().map(|told| told.len());
    let (Some(one_length), Some(other_length)) = (length(one), length(other)) else { return false };
    let (Some(mut a), Some(mut b)) = (open(one), open(other)) else { return false };
    let (mut left, mut right) = ([0; 65_536], [0; 65_536]);
    one_length == other_length
        && (0..one_length.div_ceil(left.len() as u64)).all(|piece| {
            let size = (one_length - piece * left.len() as u64).min(left.len() as u64) as usize;
            let (left, right) = (&mut left[..size], &mut right[..size]);
            a.read_exact(left).is_ok() && b.read_exact(right).is_ok() && left == right
        })
}

#[cfg(test)]
mod tests;
