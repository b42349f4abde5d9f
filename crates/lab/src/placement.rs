//! The experiment `placement`: the evaluation of Octans (INFOCOM 2019), made in the contention simulator.
//!
//! Which metric stands for a function, how competitors slow it down, how well models predict mixes they were not fitted
//! to, what a good placement gains, and how long the search for it takes.

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
pub enum Part {
    /// Where the two functions of a chain run (Fig. 2).
    Order,
    /// The metric under competition, and beside the rate alone (Fig. 4).
    Metric,
    /// Drops by type and number of competitors (Fig. 5).
    Drops,
    /// Errors of predictions (Fig. 7).
    Prediction,
    /// The gain of placements over others (Fig. 8).
    Gain,
    /// How long the search takes, and how good its answers are (Fig. 9).
    Search,
    /// The simulator beside co-runs on this machine.
    Validity,
}

impl Part {
    /// All of them.
    pub const ALL: &'static [Self] =
        &[Self::Order, Self::Metric, Self::Drops, Self::Prediction, Self::Gain, Self::Search, Self::Validity];

    /// Its name.
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

/// How much is run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Fewer runs and smaller instances.
    pub short: bool,
    /// The parts; none: all.
    pub only: BTreeSet<Part>,
    /// What random numbers begin with.
    pub seed: u64,
}

impl Settings {
    fn has(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }
}

/// All that the experiment has found. Parts that were not asked for are empty.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Results {
    /// Which experiment, and when.
    #[serde(flatten)]
    pub header: Header,
    /// What is typed to make it again; `DIR` is any folder.
    pub command: String,
    /// What random numbers began with.
    pub seed: u64,
    /// The parts that are complete, where the experiment was interrupted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<String>,
    /// Where times and `validity` were measured; everything else is simulated.
    pub machine: Machine,
    /// The models that predictions and searches rest on; `None` if it was interrupted before they were there.
    pub models: Option<Models>,
    /// Where the two functions of a chain run.
    pub order: Vec<Order>,
    /// The metric under competition, and beside the rate alone.
    pub metric: Vec<Metric>,
    /// Drops by type and number of competitors.
    pub drops: Vec<Drops>,
    /// Errors of predictions.
    pub prediction: Vec<Predicted>,
    /// The gain of placements over others.
    pub gain: Vec<Gain>,
    /// How long the search takes, and how good its answers are.
    pub search: Vec<Searched>,
    /// The simulator beside co-runs on this machine: one, or none.
    pub validity: Vec<Validity>,
}

/// Runs the experiment.
///
/// # Errors
/// [`LabError`].
pub fn run(settings: &Settings, earlier: Option<Earlier>, progress: &mut dyn Progress) -> Result<Results, LabError> {
    let header = Header::now("placement", settings.short);
    let mut results = Results {
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
    let mut make = Maker { settings, basis: &basis, progress, complete: Vec::new(), is_stopped: false };
    results.order = make.part(Part::Order, earlier.order, order::measure)?;
    results.metric = make.part(Part::Metric, earlier.metric, metric::measure)?;
    results.drops = make.part(Part::Drops, earlier.drops, drops::measure)?;
    results.prediction = make.part(Part::Prediction, earlier.prediction, prediction::measure)?;
    results.gain = make.part(Part::Gain, earlier.gain, gain::measure)?;
    results.search = make.part(Part::Search, earlier.search, search::measure)?;
    results.validity = make.part(Part::Validity, earlier.validity, validity::measure)?;
    results.interrupted = make.is_stopped.then(|| match &make.complete[..] {
        [] => "models".to_owned(),
        complete => complete.iter().map(|part| part.name()).collect::<Vec<_>>().join(", "),
    });
    Ok(results)
}

/// Makes a part's figures.
type Measure<T> = fn(&Basis, &Settings, &mut dyn Progress) -> Result<Vec<T>, LabError>;

/// Makes the parts that are asked for.
struct Maker<'a> {
    settings: &'a Settings,
    basis: &'a Basis,
    progress: &'a mut dyn Progress,
    /// The parts that were made whole.
    complete: Vec<Part>,
    /// Whether the experiment was interrupted: nothing further is made.
    is_stopped: bool,
}

impl Maker<'_> {
    /// A part: that of an earlier run where there is one, or a new one; empty where it was not asked for, or if the
    /// experiment is interrupted before it is complete.
    fn part<T>(&mut self, part: Part, earlier: Vec<T>, measure: Measure<T>) -> Result<Vec<T>, LabError> {
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

/// Parts of an interrupted run, which are not made again.
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
    /// The parts in a folder that an interrupted run of these settings, by this version, has written; `None` where
    /// there are none.
    #[must_use]
    pub fn read(folder: &Path, settings: &Settings) -> Option<Self> {
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

    /// The names of its parts.
    #[must_use]
    pub fn parts(&self) -> Vec<&'static str> {
        let parts = [
            (Part::Order, self.order.is_empty()),
            (Part::Metric, self.metric.is_empty()),
            (Part::Drops, self.drops.is_empty()),
            (Part::Prediction, self.prediction.is_empty()),
            (Part::Gain, self.gain.is_empty()),
            (Part::Search, self.search.is_empty()),
            (Part::Validity, self.validity.is_empty()),
        ];
        parts.into_iter().filter(|(_, is_empty)| !is_empty).map(|(part, _)| part.name()).collect()
    }
}

/// Begins steps of a part; a step that the user has interrupted ends the part.
fn step(progress: &mut dyn Progress, what: &str) -> Result<(), LabError> {
    progress.step(what);
    if progress.is_stopped() { Err(LabError::Interrupted) } else { Ok(()) }
}

/// Writes results to a folder, which is made where it is not there: `results.json`, the models as `forebay place` reads
/// them, a CSV file for each table, `index.html`. The files that were written.
///
/// # Errors
/// [`LabError`].
pub fn write(results: &Results, folder: &Path) -> Result<Vec<PathBuf>, LabError> {
    let mut files = vec![("index.html", Some(page::page(results)?))];
    files.push(("models.json", results.models.as_ref().map(Models::registry)));
    files.extend(tables::all(results));
    crate::folder::write(folder, results, files)
}

#[cfg(test)]
mod tests;
