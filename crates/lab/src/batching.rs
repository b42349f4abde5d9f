//! The experiment `batching`: reproduces the evaluation of Batchy (NSDI 2020).
//!
//! It measures the cost of objectives and the savings of batches: every use case under every controller, the effect of
//! branches and bursts, changing objectives and loads, other traffic, the cost of decisions, and scheduling under
//! overload.

mod basis;
mod captures;
mod command;
mod contour;
mod costs;
mod data_path;
mod decomposition;
mod fairness;
mod figures;
mod interval;
mod light;
mod open;
mod overhead;
mod page;
mod profile;
mod router;
mod scenario;
mod settled;
mod steps;
mod tables;
mod testbed;
mod watch;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use forebay_units::Nanos;
use serde::Serialize;

use crate::{Header, LabError, Machine, Progress};

pub use contour::{Claims, ContourGain};
pub use costs::{CostOrigin, Costs};
pub use data_path::DataPath;
pub use decomposition::{Decomposed, Side};
pub use fairness::Fairness;
pub use figures::{Delay, Soundness, Summary};
pub use interval::Ratio;
pub use light::Light;
pub use open::Open;
pub use overhead::DecisionTime;
pub use profile::{Calls, Size as CallSize};
pub use router::Router;
pub use settled::Row;
pub use steps::{Series, Stage};
pub use watch::Moment;

pub(crate) use captures::ENDS as CAPTURES;
use figures::VOID;
use scenario::Span;
use testbed::Testbed;

/// A part of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BatchingPart {
    /// Every use case under every controller.
    Static,
    /// Every size of the paper's use cases under every controller, with unfolded branches.
    Grid,
    /// Changing objectives.
    SloSteps,
    /// Changing loads.
    LoadSteps,
    /// A mobile gateway with a bearer whose load changes.
    Bearer,
    /// The gain of controlled batches over `null`, by branches, batchiness and bursts ([`ContourGain`]).
    Contour,
    /// Open-loop traffic, which keeps to a schedule.
    Open,
    /// Recorded traffic.
    Captures,
    /// Light load, and traffic that stops.
    Light,
    /// The cost of many next hops.
    Router,
    /// The time of decisions.
    Overhead,
    /// The cost of observation for the data path.
    DataPath,
    /// The cost of calls by the size of batches.
    Profile,
    /// Run to completion against weighted-fair.
    Fairness,
    /// Flows that cannot share a worker.
    Decomposition,
}

impl BatchingPart {
    /// All parts.
    pub const ALL: &'static [Self] = &[
        Self::Static,
        Self::Grid,
        Self::SloSteps,
        Self::LoadSteps,
        Self::Bearer,
        Self::Contour,
        Self::Open,
        Self::Captures,
        Self::Light,
        Self::Router,
        Self::Overhead,
        Self::DataPath,
        Self::Profile,
        Self::Fairness,
        Self::Decomposition,
    ];

    /// Returns the name of the part.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Grid => "grid",
            Self::SloSteps => "slo-steps",
            Self::LoadSteps => "load-steps",
            Self::Bearer => "bearer",
            Self::Contour => "contour",
            Self::Open => "open",
            Self::Captures => "captures",
            Self::Light => "light",
            Self::Router => "router",
            Self::Overhead => "overhead",
            Self::DataPath => "data-path",
            Self::Profile => "profile",
            Self::Fairness => "fairness",
            Self::Decomposition => "decomposition",
        }
    }
}

/// The runs to perform, and their duration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchingSettings {
    /// Whether time is simulated.
    pub simulated: bool,
    /// Whether runs are fewer, smaller and shorter, in simulated time.
    pub short: bool,
    /// The parts to run. Empty: all.
    pub only: BTreeSet<BatchingPart>,
    /// The control period. `None`: 10 ms, or 2 ms in a short experiment.
    pub period: Option<Nanos>,
    /// The duration of a run, after the controller has settled. It is rounded down to whole periods, at least one.
    /// `None`: each part decides, and a short experiment has at most 20 periods.
    pub duration: Option<Nanos>,
    /// The number of runs of each row of the static experiment. `None`: 20, or 2 in a short experiment.
    pub runs: Option<usize>,
    /// A folder with captures. `None`: there is no recorded traffic.
    pub captures: Option<PathBuf>,
    /// The use cases of the static experiment and the grid: `vrf`, or with its sizes `vrf 16 4`. Empty: all.
    pub usecases: Vec<String>,
}

/// The use cases of the static experiment and the grid. `*l2l3` has recorded traffic.
pub const USECASES: &[&str] = &["l2l3", "gw", "vrf", "mgw", "rc", "*l2l3"];

/// The number of periods of a run of the static experiment.
const PERIODS: u32 = 100;

/// The duration and number of runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Extents {
    /// Whether the experiment is short.
    #[serde(skip)]
    short: bool,
    /// The control period, and the number of periods of a run of the static experiment.
    #[serde(skip)]
    span: Span,
    /// The maximum number of periods of a run with a steady load. `None`: each part decides.
    #[serde(skip)]
    most: Option<u32>,
    /// The number of runs of each row of the static experiment.
    pub runs: usize,
    /// The number of runs, if the user has set it.
    #[serde(skip)]
    stated_runs: Option<usize>,
    /// The use cases of the static experiment and the grid. Empty: all.
    #[serde(skip)]
    usecases: Vec<String>,
    /// A folder with captures.
    #[serde(skip)]
    captures: Option<PathBuf>,
}

impl BatchingSettings {
    /// Returns whether a part is selected.
    fn has(&self, part: BatchingPart) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    /// Returns the duration and number of runs, with defaults for everything that is not set.
    fn extents(&self) -> Extents {
        let (period, few, runs) = if self.short { (2_000_000, Some(20), 2) } else { (10_000_000, None, 20) };
        let period = self.period.unwrap_or(Nanos(period));
        let stated = self.duration.map(|duration| u32::try_from(duration.0 / period.0).unwrap_or(u32::MAX).max(1));
        let most = stated.or(few);
        let span = Span { period, periods: most.unwrap_or(PERIODS) };
        let stated_runs = self.runs.map(|runs| runs.max(1));
        let (usecases, captures) = (self.usecases.clone(), self.captures.clone());
        Extents { short: self.short, span, most, runs: stated_runs.unwrap_or(runs), stated_runs, usecases, captures }
    }
}

impl Extents {
    /// Returns whether a use case of this name, including its sizes, is selected.
    fn has(&self, name: &str) -> bool {
        let is = |requested: &String| {
            name.strip_prefix(requested.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        self.usecases.is_empty() || self.usecases.iter().any(is)
    }

    /// Returns the duration of a run of this many periods, or of fewer if the number of periods is limited.
    fn lasting(&self, periods: u32) -> Span {
        Span { periods: self.most.map_or(periods, |most| periods.min(most)), ..self.span }
    }
}

/// The results of the experiment. Parts that were not selected are empty.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BatchingResults {
    /// The experiment and its time. A short experiment also has smaller use cases.
    #[serde(flatten)]
    pub header: Header,
    /// The command that repeats the experiment. `DIR` stands for any folder.
    pub command: String,
    /// The names of the complete parts, if the experiment was interrupted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<String>,
    /// Whether time was simulated.
    pub simulated: bool,
    /// The control period, in milliseconds.
    pub period_ms: f64,
    /// The number of periods that count in a run of the static experiment.
    pub periods: u32,
    /// The number of runs of each row of the static experiment.
    pub runs: usize,
    /// The machine on which the experiment ran.
    pub machine: Machine,
    /// The costs of calls. In simulated time they are exact, otherwise they are the initial estimates of controllers.
    pub costs: Costs,
    /// Every use case under every controller.
    #[serde(rename = "static")]
    pub rows: Vec<Row>,
    /// Every size of the paper's use cases under every controller, with unfolded branches.
    pub grid: Vec<Row>,
    /// Changing objectives.
    pub slo_steps: Vec<Series>,
    /// Changing loads.
    pub load_steps: Vec<Series>,
    /// A bearer whose load changes.
    pub bearer: Vec<Series>,
    /// The gain of controlled batches over `null`, by branches, batchiness and bursts. Simulated.
    pub contour: Vec<ContourGain>,
    /// The number of points for which the claims hold. `None` if there are no points.
    pub contour_claims: Option<Claims>,
    /// Open-loop traffic, which keeps to a schedule.
    pub open: Vec<Open>,
    /// Recorded traffic. `None` if no captures were given.
    pub captures: Option<Vec<Open>>,
    /// Light load, and traffic that stops.
    pub light: Vec<Light>,
    /// The cost of many next hops.
    pub router: Vec<Router>,
    /// The time of decisions.
    pub controller_us: Vec<DecisionTime>,
    /// The cost of observation for the data path. Empty in simulated time.
    pub data_path: Vec<DataPath>,
    /// The cost of calls by the size of batches.
    pub profile: Vec<Calls>,
    /// Run to completion against weighted-fair.
    pub fairness: Vec<Fairness>,
    /// Flows that cannot share a worker, with one worker and with two.
    pub decomposition: Vec<Decomposed>,
}

/// Runs the experiment.
///
/// # Errors
/// Returns [`LabError`] if a setting is not valid, a run fails, or a file cannot be read.
pub fn run(settings: &BatchingSettings, progress: &mut dyn Progress) -> Result<BatchingResults, LabError> {
    let header = Header::now("batching", settings.short);
    // The captures are checked before hours are spent on other parts.
    settings.captures.as_deref().map(captures::files).transpose()?;
    let captures = settings.captures.as_deref().filter(|_| settings.has(BatchingPart::Captures));
    let extents = settings.extents();
    // A short experiment uses the same costs on every machine.
    let costs = if settings.short { Costs::published() } else { Costs::stored() };
    extents.usecases.iter().try_for_each(|requested| settled::known(requested, settings, &extents))?;
    let testbed = Testbed::new(settings.simulated || settings.short, costs, progress.stop());
    let mut runner = PartRunner {
        settings,
        testbed: &testbed,
        extents: &extents,
        progress,
        complete: Vec::new(),
        is_stopped: false,
    };
    let rows = runner.part(BatchingPart::Static, settled::measure)?;
    let grid = runner.part(BatchingPart::Grid, settled::grid)?;
    let slo_steps = runner.part(BatchingPart::SloSteps, steps::objectives)?;
    let load_steps = runner.part(BatchingPart::LoadSteps, steps::loads)?;
    let bearer = runner.part(BatchingPart::Bearer, steps::bearer)?;
    let contour = runner.part(BatchingPart::Contour, contour::measure)?;
    let open = runner.part(BatchingPart::Open, open::measure)?;
    let captures = match captures {
        Some(folder) => runner
            .attempt(BatchingPart::Captures, |progress| captures::measure(folder, &testbed, &extents, progress))?,
        None => None,
    };
    let light = runner.part(BatchingPart::Light, light::measure)?;
    let router = runner.part(BatchingPart::Router, router::measure)?;
    let controller_us = runner.part(BatchingPart::Overhead, overhead::measure)?;
    let data_path = runner.part(BatchingPart::DataPath, data_path::measure)?;
    let profile = runner.part(BatchingPart::Profile, profile::measure)?;
    let fairness = runner.part(BatchingPart::Fairness, fairness::measure)?;
    let decomposition = runner.part(BatchingPart::Decomposition, decomposition::measure)?;
    let interrupted = runner.is_stopped.then(|| match &runner.complete[..] {
        [] => "no parts".to_owned(),
        complete => complete.iter().map(|part| part.name()).collect::<Vec<_>>().join(", "),
    });
    Ok(BatchingResults {
        header,
        interrupted,
        command: command::line(settings),
        simulated: testbed.simulated,
        period_ms: extents.span.period.0 as f64 / 1e6,
        periods: extents.span.periods,
        runs: extents.runs,
        machine: Machine::this(),
        costs: testbed.costs(),
        rows,
        grid,
        slo_steps,
        load_steps,
        bearer,
        contour_claims: (!contour.is_empty()).then(|| Claims::of(&contour)),
        contour,
        open,
        captures,
        light,
        router,
        controller_us,
        data_path,
        profile,
        fairness,
        decomposition,
    })
}

/// A function that performs the runs of a part.
type Measure<T> = fn(&Testbed, &Extents, &mut dyn Progress) -> Result<Vec<T>, LabError>;

/// Performs the selected parts.
struct PartRunner<'a> {
    settings: &'a BatchingSettings,
    testbed: &'a Testbed,
    extents: &'a Extents,
    progress: &'a mut dyn Progress,
    /// The parts that are complete.
    complete: Vec<BatchingPart>,
    /// Whether the experiment was interrupted. No further part is started then.
    is_stopped: bool,
}

impl PartRunner<'_> {
    /// Performs a part. Returns an empty list if the part is not selected, or if the experiment is interrupted before
    /// the part is complete.
    fn part<T>(&mut self, part: BatchingPart, measure: Measure<T>) -> Result<Vec<T>, LabError> {
        if !self.settings.has(part) {
            return Ok(Vec::new());
        }
        let (testbed, extents) = (self.testbed, self.extents);
        Ok(self.attempt(part, |progress| measure(testbed, extents, progress))?.unwrap_or_default())
    }

    /// Performs a part. Returns `None` if the experiment is interrupted before the part is complete.
    fn attempt<T>(
        &mut self,
        part: BatchingPart,
        measure: impl FnOnce(&mut dyn Progress) -> Result<T, LabError>,
    ) -> Result<Option<T>, LabError> {
        if self.is_stopped {
            return Ok(None);
        }
        self.progress.part(part.name());
        match measure(self.progress) {
            Ok(made) => {
                self.complete.push(part);
                Ok(Some(made))
            }
            Err(LabError::Interrupted) => {
                self.is_stopped = true;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl BatchingResults {
    /// Returns the names of the void runs. The machine was disturbed during them, so their figures carry no meaning.
    #[must_use]
    pub fn void(&self) -> Vec<String> {
        page::void(self)
    }
}

/// Writes results to a folder, which is created if it is missing: `results.json`, a CSV file for each table, and
/// `index.html`. Returns the files that were written.
///
/// # Errors
/// Returns [`LabError`] if a figure cannot be drawn or a file cannot be written.
pub fn write(results: &BatchingResults, folder: &Path) -> Result<Vec<PathBuf>, LabError> {
    let mut files = vec![("index.html", Some(page::page(results)?))];
    files.extend(tables::all(results));
    crate::folder::write(folder, results, files)
}
