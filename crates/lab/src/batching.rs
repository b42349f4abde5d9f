//! The experiment `batching`: Batchy's evaluation (NSDI 2020), made here.
//!
//! What objectives cost and what batches save: every use case under every controller, what branches and bursts make of it, objectives and
//! loads that change, other traffic, what deciding takes, and whose turn it is where there is not enough time for all.

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
mod place;
mod profile;
mod router;
mod scenario;
mod settled;
mod steps;
mod tables;
mod watch;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use forebay_measure::Nanos;
use serde::Serialize;

use crate::{Header, LabError, Machine, Progress};

pub use contour::{Claims, Gain};
pub use costs::{Costs, Origin};
pub use data_path::DataPath;
pub use decomposition::{Decomposed, Side};
pub use fairness::Fairness;
pub use figures::{Delay, Soundness, Told};
pub use interval::Ratio;
pub use light::Light;
pub use open::Open;
pub use overhead::Took;
pub use profile::{Calls, Size as CallSize};
pub use router::Router;
pub use settled::Row;
pub use steps::{Series, Stage};
pub use watch::Moment;

pub(crate) use captures::ENDS as CAPTURES;
use figures::VOID;
use place::Place;
use scenario::Span;

/// A part of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Every use case under every controller.
    Static,
    /// The same for every size of the paper, as written.
    Grid,
    /// Objectives that change.
    SloSteps,
    /// Loads that change.
    LoadSteps,
    /// A mobile gateway with a bearer whose load changes.
    Bearer,
    /// What is gained by branches, batchiness and bursts.
    Contour,
    /// Traffic that keeps to a schedule.
    Open,
    /// Recorded traffic.
    Captures,
    /// Light load, and traffic that stops.
    Light,
    /// What many next hops cost.
    Router,
    /// What deciding takes.
    Overhead,
    /// What being watched takes of the data path.
    DataPath,
    /// What calls cost by the size of batches.
    Profile,
    /// Run to completion against weighted-fair.
    Fairness,
    /// Flows that cannot be together on a worker.
    Decomposition,
}

impl Part {
    /// All of them.
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

    /// Its name.
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

/// What is run, and how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// In simulated time.
    pub simulated: bool,
    /// Fewer, smaller and shorter runs, in simulated time.
    pub short: bool,
    /// The parts; none: all.
    pub only: BTreeSet<Part>,
    /// A control period.
    pub period: Option<Nanos>,
    /// How long a run is, once the controller has settled.
    pub duration: Option<Nanos>,
    /// How often each is run in the static experiment.
    pub runs: Option<usize>,
    /// A folder with captures.
    pub captures: Option<PathBuf>,
    /// The use cases of the static experiment and the grid: `vrf`, or with its sizes `vrf 16 4`; none: all.
    pub usecases: Vec<String>,
}

/// The use cases of the static experiment and the grid; `*l2l3` has recorded traffic.
pub const USECASES: &[&str] = &["l2l3", "gw", "vrf", "mgw", "rc", "*l2l3"];

/// Periods of a run of the static experiment.
const PERIODS: u32 = 100;

/// How long and how often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Extents {
    /// Whether there is little of everything.
    #[serde(skip)]
    short: bool,
    #[serde(skip)]
    span: Span,
    /// The most periods of any run with a steady load; `None`: as many as its part asks for.
    #[serde(skip)]
    most: Option<u32>,
    /// How often each is run in the static experiment.
    pub runs: usize,
    /// The same, where it is stated.
    #[serde(skip)]
    stated_runs: Option<usize>,
    /// The use cases of the static experiment and the grid; none: all.
    #[serde(skip)]
    usecases: Vec<String>,
    /// A folder with captures.
    #[serde(skip)]
    captures: Option<PathBuf>,
}

impl Settings {
    fn has(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

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
    /// Whether a use case of this name, its sizes included, is among those that are asked for.
    fn has(&self, name: &str) -> bool {
        let is = |asked: &String| {
            name.strip_prefix(asked.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        self.usecases.is_empty() || self.usecases.iter().any(is)
    }

    /// A run of so many periods, or of fewer where they are limited.
    fn lasting(&self, periods: u32) -> Span {
        Span { periods: self.most.map_or(periods, |most| periods.min(most)), ..self.span }
    }
}

/// All that the experiment has found. Parts that were not asked for are empty.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Results {
    /// Which experiment, and when; a short one is small, too.
    #[serde(flatten)]
    pub header: Header,
    /// What is typed to make it again; `DIR` is any folder.
    pub command: String,
    /// The parts that are complete, where the experiment was interrupted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupted: Option<String>,
    /// Whether time was simulated.
    pub simulated: bool,
    /// A control period, in milliseconds.
    pub period_ms: f64,
    /// Periods of a run that count.
    pub periods: u32,
    /// Runs of each in the static experiment.
    pub runs: usize,
    /// Where.
    pub machine: Machine,
    /// What calls cost: in simulated time all that there is, else what controllers began with.
    pub costs: Costs,
    /// Every use case under every controller.
    #[serde(rename = "static")]
    pub rows: Vec<Row>,
    /// The same for every size of the paper, with branches as they are written.
    pub grid: Vec<Row>,
    /// Objectives that change.
    pub slo_steps: Vec<Series>,
    /// Loads that change.
    pub load_steps: Vec<Series>,
    /// A bearer whose load changes.
    pub bearer: Vec<Series>,
    /// What is gained by branches, batchiness and bursts. Simulated.
    pub contour: Vec<Gain>,
    /// Of how many places of that is true what is claimed of all; `None` where there are none.
    pub contour_claims: Option<Claims>,
    /// Traffic that keeps to a schedule.
    pub open: Vec<Open>,
    /// Recorded traffic; `None` where no captures were given.
    pub captures: Option<Vec<Open>>,
    /// Light load, and traffic that stops.
    pub light: Vec<Light>,
    /// What many next hops cost.
    pub router: Vec<Router>,
    /// What deciding takes.
    pub controller_us: Vec<Took>,
    /// What being watched takes of the data path; on this machine's clock only.
    pub data_path: Vec<DataPath>,
    /// What calls cost by the size of batches.
    pub profile: Vec<Calls>,
    /// Run to completion against weighted-fair.
    pub fairness: Vec<Fairness>,
    /// Flows that cannot be together, with one worker and with two.
    pub decomposition: Vec<Decomposed>,
}

/// Runs the experiment.
///
/// # Errors
/// [`LabError`].
pub fn run(settings: &Settings, progress: &mut dyn Progress) -> Result<Results, LabError> {
    let header = Header::now("batching", settings.short);
    // Before hours are spent on other parts.
    settings.captures.as_deref().map(captures::files).transpose()?;
    let captures = settings.captures.as_deref().filter(|_| settings.has(Part::Captures));
    let extents = settings.extents();
    // The short form is the same everywhere.
    let costs = if settings.short { Costs::published() } else { Costs::stored() };
    extents.usecases.iter().try_for_each(|asked| settled::known(asked, settings, &extents))?;
    let place = Place::new(settings.simulated || settings.short, costs, progress.stop());
    let mut make =
        Maker { settings, place: &place, extents: &extents, progress, complete: Vec::new(), is_stopped: false };
    let rows = make.part(Part::Static, settled::measure)?;
    let grid = make.part(Part::Grid, settled::grid)?;
    let slo_steps = make.part(Part::SloSteps, steps::objectives)?;
    let load_steps = make.part(Part::LoadSteps, steps::loads)?;
    let bearer = make.part(Part::Bearer, steps::bearer)?;
    let contour = make.part(Part::Contour, contour::measure)?;
    let open = make.part(Part::Open, open::measure)?;
    let captures = match captures {
        Some(folder) => {
            make.attempt(Part::Captures, |progress| captures::measure(folder, &place, &extents, progress))?
        }
        None => None,
    };
    let light = make.part(Part::Light, light::measure)?;
    let router = make.part(Part::Router, router::measure)?;
    let controller_us = make.part(Part::Overhead, overhead::measure)?;
    let data_path = make.part(Part::DataPath, data_path::measure)?;
    let profile = make.part(Part::Profile, profile::measure)?;
    let fairness = make.part(Part::Fairness, fairness::measure)?;
    let decomposition = make.part(Part::Decomposition, decomposition::measure)?;
    let interrupted = make.is_stopped.then(|| match &make.complete[..] {
        [] => "no parts".to_owned(),
        complete => complete.iter().map(|part| part.name()).collect::<Vec<_>>().join(", "),
    });
    Ok(Results {
        header,
        interrupted,
        command: command::told(settings),
        simulated: place.simulated,
        period_ms: extents.span.period.0 as f64 / 1e6,
        periods: extents.span.periods,
        runs: extents.runs,
        machine: Machine::this(),
        costs: place.costs(),
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

/// Makes a part's runs.
type Measure<T> = fn(&Place, &Extents, &mut dyn Progress) -> Result<Vec<T>, LabError>;

/// Makes the parts that are asked for.
struct Maker<'a> {
    settings: &'a Settings,
    place: &'a Place,
    extents: &'a Extents,
    progress: &'a mut dyn Progress,
    /// The parts that were made whole.
    complete: Vec<Part>,
    /// Whether the experiment was interrupted: nothing further is made.
    is_stopped: bool,
}

impl Maker<'_> {
    fn part<T>(&mut self, part: Part, measure: Measure<T>) -> Result<Vec<T>, LabError> {
        if !self.settings.has(part) {
            return Ok(Vec::new());
        }
        let (place, extents) = (self.place, self.extents);
        Ok(self.attempt(part, |progress| measure(place, extents, progress))?.unwrap_or_default())
    }

    /// Makes a part; `None` if the experiment is interrupted before it is complete.
    fn attempt<T>(
        &mut self,
        part: Part,
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

impl Results {
    /// Names of the runs that are void: they were measured while the machine was disturbed, and say nothing.
    #[must_use]
    pub fn void(&self) -> Vec<String> {
        page::void(self)
    }
}

/// Writes results to a folder, which is made where it is not there: `results.json`, a CSV file for each table, `index.html`.
/// The files that were written.
///
/// # Errors
/// [`LabError`].
pub fn write(results: &Results, folder: &Path) -> Result<Vec<PathBuf>, LabError> {
    let mut files = vec![("index.html", Some(page::page(results)?))];
    files.extend(tables::all(results));
    crate::folder::write(folder, results, files)
}
