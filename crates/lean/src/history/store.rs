//! The folder that measurements are saved in, read with everything that is wrong there.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Deserialize;

use super::{CHAIN, Figure};
use crate::measurement::Origin;

/// What a measurement's file is called, in the folder that has the measurement's name.
const FILE: &str = "measurement.json";

/// A saved measurement, as far as a history goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    /// What it was saved as.
    pub name: String,
    /// When.
    pub at: Timestamp,
    /// Of which commit, where that is known.
    pub commit: Option<String>,
    /// The machine's CPU, where it is told.
    pub cpu: Option<String>,
    /// The pipeline's name.
    pub pipeline: String,
    pub(super) modules: Vec<Module>,
    pub(super) chain: Chain,
}

/// A module's figures, as they stand in the file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Module {
    pub(super) name: String,
    cpp_ticks: Option<f64>,
    ipp: Option<f64>,
    packets_per_call: Option<f64>,
    #[serde(default)]
    source: Source,
}

/// Where they come from; what is not said is `None`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct Source {
    cpp_ticks: Option<Origin>,
    ipp: Option<Origin>,
    packets_per_call: Option<Origin>,
}

/// The chain's.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Chain {
    cpp_ticks: Option<f64>,
    ipp: Option<f64>,
    cur: Option<f64>,
    /// Whether the machine was elsewhere for too long, so that nothing measured is to be believed.
    #[serde(default)]
    void: bool,
}

/// The file.
#[derive(Deserialize)]
struct File {
    at: String,
    commit: Option<String>,
    cpu: Option<Cpu>,
    pipeline: String,
    modules: Vec<Module>,
    chain: Chain,
}

#[derive(Deserialize)]
struct Cpu {
    model: Option<String>,
}

/// A store that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no store.
    #[error("{}: {error}: allowed is a folder that `forebay measure PIPELINE --save NAME` has written to", .store.display())]
    Folder {
        /// Where.
        store: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// There is nothing in it.
    #[error("{}: no measurement is saved there: `forebay measure PIPELINE --save NAME` saves one", .0.display())]
    Empty(PathBuf),
    /// Files in it are no measurements: all of them, a line each.
    #[error("{}", .0.join("\n"))]
    Files(Vec<String>),
}

/// Reads all measurements of a store, oldest first.
///
/// # Errors
/// [`StoreError`]; every file that is wrong is told.
pub fn read(store: &Path) -> Result<Vec<Saved>, StoreError> {
    let folder = |error| StoreError::Folder { store: store.to_owned(), error };
    let mut folders: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(store).map_err(folder)? {
        let path = entry.map_err(folder)?.path();
        // What else people keep there is theirs, and what is being saved begins with a dot.
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.join(FILE).exists() {
            folders.push(path);
        }
    }
    folders.sort();
    let (mut saved, mut wrong) = (Vec::new(), Vec::new());
    for folder in folders {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match one(name, &folder.join(FILE)) {
            Ok(measurement) => saved.push(measurement),
            Err(error) => wrong.push(format!("{}: {error}", folder.join(FILE).display())),
        }
    }
    if !wrong.is_empty() {
        return Err(StoreError::Files(wrong));
    }
    if saved.is_empty() {
        return Err(StoreError::Empty(store.to_owned()));
    }
    saved.sort_by(|a, b| (a.at, &a.name).cmp(&(b.at, &b.name)));
    Ok(saved)
}

/// A measurement from its file.
fn one(name: String, file: &Path) -> Result<Saved, String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let File { at, commit, cpu, pipeline, modules, chain } =
        serde_json::from_str(&text).map_err(|error| format!("no measurement: {error}"))?;
    let at: Timestamp = at
        .parse()
        .map_err(|_| format!("at: '{at}' is no instant: allowed is RFC 3339, such as 2026-11-21T21:40:00Z"))?;
    Ok(Saved { name, at, commit, cpu: cpu.and_then(|cpu| cpu.model), pipeline, modules, chain })
}

impl Saved {
    /// A figure of a module, or of the chain, and where it comes from. Of a void measurement only what was counted is told.
    pub(super) fn figure(&self, module: &str, figure: Figure) -> Option<(f64, Origin)> {
        self.written(module, figure).filter(|(_, origin)| !self.chain.void || *origin == Origin::Emulated)
    }

    /// A figure as the file has it.
    fn written(&self, module: &str, figure: Figure) -> Option<(f64, Origin)> {
        if module == CHAIN {
            let Chain { cpp_ticks, ipp, cur, .. } = self.chain;
            // The chain's come from where its modules' do.
            let counted = self.modules.iter().find_map(|module| module.source.ipp.filter(|_| module.ipp.is_some()));
            return match figure {
                Figure::Ipp => Some((ipp?, counted.unwrap_or(Origin::Emulated))),
                Figure::CppTicks => Some((cpp_ticks?, Origin::Measured)),
                Figure::Cur => Some((cur?, Origin::Measured)),
                Figure::PacketsPerCall => None,
            };
        }
        let Module { cpp_ticks, ipp, packets_per_call, source, .. } =
            self.modules.iter().find(|told| told.name == module)?;
        match figure {
            Figure::Ipp => Some(((*ipp)?, source.ipp.unwrap_or(Origin::Emulated))),
            Figure::CppTicks => Some(((*cpp_ticks)?, source.cpp_ticks.unwrap_or(Origin::Measured))),
            Figure::PacketsPerCall => Some(((*packets_per_call)?, source.packets_per_call.unwrap_or(Origin::Measured))),
            Figure::Cur => None,
        }
    }
}
