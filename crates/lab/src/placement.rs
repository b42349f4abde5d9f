//! The experiment `placement`: reproduces the evaluation of Octans (INFOCOM 2019) in the contention simulator.
//!
//! It measures which metric characterises a function, how competitors slow a function down, how well models predict
//! mixes to which they were not fitted, the gain of a good placement, and the time of the search for it.

mod basis;
mod command;
mod drops;
mod gain;
mod metric;
mod order;
mod page;
mod prediction;
mod probe;
mod search;
mod tables;
mod validity;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Header, LabError, Machine, Progress};

use basis::Basis;
pub use basis::{Candidate, Errors, Fitted, Models, Variant};
pub use drops::Drops;
pub use gain::{Gain, Method};
pub use metric::Metric;
pub use order::Order;
pub use prediction::{Predicted, Prediction};
pub use search::Searched;
pub use validity::{Pair, Validity};

/// A part of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlacementPart {
    /// The placement of the two functions of a chain (Fig. 2).
    Order,
    /// The metric under competition, and its relation to the solo rate (Fig. 4).
    Metric,
    /// Drops by type and number of competitors (Fig. 5).
    Drops,
    /// Errors of predictions (Fig. 7).
    Prediction,
    /// The gain of good placements over other placements (Fig. 8).
    Gain,
    /// The time of the search, and the quality of its results (Fig. 9).
    Search,
    /// The simulator beside co-runs on this machine.
    Validity,
}

impl PlacementPart {
    /// All parts.
    pub const ALL: &'static [Self] =
        &[Self::Order, Self::Metric, Self::Drops, Self::Prediction, Self::Gain, Self::Search, Self::Validity];

    /// Returns the name of the part.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::Metric => "metric",
            Self::Drops => "drops",
            Self::Prediction => "prediction",
            Self::Gain => "gain",
            Self::Search => "search",
            Self::Validity => "validity",
        }
    }
}

/// The extent of the experiment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementSettings {
    /// Whether the experiment makes fewer runs and searches smaller placement problems.
    pub short: bool,
    /// The parts to run. Empty: all.
    pub only: BTreeSet<PlacementPart>,
    /// The seed of random numbers.
    pub seed: u64,
}

impl PlacementSettings {
    /// Returns whether a part is selected.
    fn has(&self, part: PlacementPart) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

/// The results of the experiment. Parts that were not selected are empty.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlacementResults {
    /// The experiment and its time.
    #[serde(flatten)]
    pub header: Header,
    /// The command that repeats the experiment. `DIR` stands for any folder.
    pub command: String,
    /// The seed of random numbers.
    pub seed: u64,
    /// The complete parts, if the experiment was interrupted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<String>,
    /// The machine on which times and `validity` were measured. Everything else is simulated.
    pub machine: Machine,
    /// The models for predictions and searches. `None` if the experiment was interrupted before they were fitted.
    pub models: Option<Models>,
    /// The placement of the two functions of a chain.
    pub order: Vec<Order>,
    /// The metric under competition, and its relation to the solo rate.
    pub metric: Vec<Metric>,
    /// Drops by type and number of competitors.
    pub drops: Vec<Drops>,
    /// Errors of predictions.
    pub prediction: Vec<Predicted>,
    /// The gain of good placements over other placements.
    pub gain: Vec<Gain>,
    /// The time of the search, and the quality of its results.
    pub search: Vec<Searched>,
    /// The simulator beside co-runs on this machine: one entry, or none.
    pub validity: Vec<Validity>,
}

/// Runs the experiment. Parts in `earlier` are not run again; the models always are, because all parts need them.
///
/// # Errors
/// Returns [`LabError`] if a run fails or the models cannot be fitted.
pub fn run(
    settings: &PlacementSettings,
    earlier: Option<Earlier>,
    progress: &mut dyn Progress,
) -> Result<PlacementResults, LabError> {
    let header = Header::now("placement", settings.short);
    let mut results = PlacementResults {
        header,
        command: command::of(settings),
        seed: settings.seed,
        interrupted: None,
        machine: Machine::this(),
        models: None,
        order: Vec::new(),
        metric: Vec::new(),
        drops: Vec::new(),
        prediction: Vec::new(),
        gain: Vec::new(),
        search: Vec::new(),
        validity: Vec::new(),
    };
    let earlier = earlier.unwrap_or_default();
    progress.part("models");
    let basis = match Basis::make(settings, progress) {
        Ok(basis) => basis,
        Err(LabError::Interrupted) => {
            results.interrupted = Some("no parts".to_owned());
            return Ok(results);
        }
        Err(error) => return Err(error),
    };
    results.models = Some(basis.models.clone());
    let mut runner = PartRunner { settings, basis: &basis, progress, complete: Vec::new(), is_stopped: false };
    results.order = runner.part(PlacementPart::Order, earlier.order, order::measure)?;
    results.metric = runner.part(PlacementPart::Metric, earlier.metric, metric::measure)?;
    results.drops = runner.part(PlacementPart::Drops, earlier.drops, drops::measure)?;
    results.prediction = runner.part(PlacementPart::Prediction, earlier.prediction, prediction::measure)?;
    results.gain = runner.part(PlacementPart::Gain, earlier.gain, gain::measure)?;
    results.search = runner.part(PlacementPart::Search, earlier.search, search::measure)?;
    results.validity = runner.part(PlacementPart::Validity, earlier.validity, validity::measure)?;
    results.interrupted = runner.is_stopped.then(|| match &runner.complete[..] {
        [] => "models".to_owned(),
        complete => complete.iter().map(|part| part.name()).collect::<Vec<_>>().join(", "),
    });
    Ok(results)
}

/// A function that computes the results of a part.
type Measure<T> = fn(&Basis, &PlacementSettings, &mut dyn Progress) -> Result<Vec<T>, LabError>;

/// Runs the selected parts.
struct PartRunner<'a> {
    settings: &'a PlacementSettings,
    basis: &'a Basis,
    progress: &'a mut dyn Progress,
    /// The parts that are complete.
    complete: Vec<PlacementPart>,
    /// Whether the experiment was interrupted. No further part is started then.
    is_stopped: bool,
}

impl PartRunner<'_> {
    /// Returns the results of a part: the results of an earlier run if there are any, or new results. Returns an empty
    /// list if the part was not selected, or if the experiment is interrupted before the part is complete.
    fn part<T>(&mut self, part: PlacementPart, earlier: Vec<T>, measure: Measure<T>) -> Result<Vec<T>, LabError> {
        if self.is_stopped || !self.settings.has(part) {
            return Ok(Vec::new());
        }
        if !earlier.is_empty() {
            self.complete.push(part);
            return Ok(earlier);
        }
        self.progress.part(part.name());
        match measure(self.basis, self.settings, self.progress) {
            Ok(made) => {
                self.complete.push(part);
                Ok(made)
            }
            Err(LabError::Interrupted) => {
                self.is_stopped = true;
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }
}

/// The parts of an interrupted run, which are not run again.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Earlier {
    order: Vec<Order>,
    metric: Vec<Metric>,
    drops: Vec<Drops>,
    prediction: Vec<Predicted>,
    gain: Vec<Gain>,
    search: Vec<Searched>,
    validity: Vec<Validity>,
}

impl Earlier {
    /// Reads the parts that an interrupted run with these settings, by this version, has written to a folder. Returns
    /// `None` if there are none.
    #[must_use]
    pub fn read(folder: &Path, settings: &PlacementSettings) -> Option<Self> {
        #[derive(Deserialize)]
        struct Known {
            experiment: String,
            forebay: String,
            short: bool,
            seed: u64,
            interrupted: String,
        }
        let text = std::fs::read_to_string(folder.join("results.json")).ok()?;
        let known: Known = serde_json::from_str(&text).ok()?;
        let is_same = (known.experiment.as_str(), known.forebay.as_str()) == ("placement", env!("CARGO_PKG_VERSION"))
            && (known.short, known.seed) == (settings.short, settings.seed)
            && !known.interrupted.is_empty();
        if is_same { serde_json::from_str(&text).ok() } else { None }
    }

    /// Returns the names of the parts.
    #[must_use]
    pub fn parts(&self) -> Vec<&'static str> {
        let parts = [
            (PlacementPart::Order, self.order.is_empty()),
            (PlacementPart::Metric, self.metric.is_empty()),
            (PlacementPart::Drops, self.drops.is_empty()),
            (PlacementPart::Prediction, self.prediction.is_empty()),
            (PlacementPart::Gain, self.gain.is_empty()),
            (PlacementPart::Search, self.search.is_empty()),
            (PlacementPart::Validity, self.validity.is_empty()),
        ];
        parts.into_iter().filter(|(_, is_empty)| !is_empty).map(|(part, _)| part.name()).collect()
    }
}

/// Starts a step of a part. Returns an error if the user has interrupted the experiment.
fn step(progress: &mut dyn Progress, what: &str) -> Result<(), LabError> {
    progress.step(what);
    if progress.is_stopped() { Err(LabError::Interrupted) } else { Ok(()) }
}

/// Writes results to a folder, which is created if it is missing: `results.json`, the models in the format that
/// `forebay place` reads, a CSV file for each table, and `index.html`. Returns the files that were written.
///
/// # Errors
/// Returns [`LabError`] if a figure cannot be drawn or a file cannot be written.
pub fn write(results: &PlacementResults, folder: &Path) -> Result<Vec<PathBuf>, LabError> {
    let mut files = vec![("index.html", Some(page::page(results)?))];
    files.push(("models.json", results.models.as_ref().map(Models::registry)));
    files.extend(tables::all(results));
    crate::folder::write(folder, results, files)
}

#[cfg(test)]
mod tests;
