//! Measurements that were saved, over time: by module a series of each figure, and where it took a step.
//!
//! A store is a folder with a folder for each measurement, which has its name; what is read there is as much of a
//! measurement as a history needs, so that measurements of older and newer versions can stand side by side.

mod store;

use jiff::Timestamp;
use serde::Serialize;

use crate::measurement::Origin;
use crate::steps::{Nature, steps};

pub use store::{Saved, StoreError, read};

/// A figure that a history follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Instructions per packet.
    Ipp,
    /// Ticks per packet.
    CppTicks,
    /// Packets per call.
    PacketsPerCall,
    /// Effective CPU utilisation; of the chain alone.
    Cur,
}

impl Figure {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Ipp, Self::CppTicks, Self::PacketsPerCall, Self::Cur];

    /// What it is of.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Ipp => "instructions a packet",
            Self::CppTicks => "ticks a packet",
            Self::PacketsPerCall => "packets a call",
            Self::Cur => "share of the workers' time",
        }
    }

    /// As options and JSON name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ipp => "ipp",
            Self::CppTicks => "cpp_ticks",
            Self::PacketsPerCall => "packets_per_call",
            Self::Cur => "cur",
        }
    }
}

/// What stands for the whole chain among the modules.
pub const CHAIN: &str = "(all)";

/// What a history is of; what is `None` is not left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Only this pipeline.
    pub pipeline: Option<String>,
    /// Only this module, or [`CHAIN`].
    pub module: Option<String>,
    /// Only this figure.
    pub figure: Option<Figure>,
}

/// Nothing is of what was chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// No measurement is of the pipeline.
    #[error("no saved measurement is of pipeline '{given}': there are {}", .there.join(", "))]
    Pipeline {
        /// What was asked for.
        given: String,
        /// What there is.
        there: Vec<String>,
    },
    /// No measurement has the module.
    #[error("no saved measurement has a module '{given}': there are {}", .there.join(", "))]
    Module {
        /// What was asked for.
        given: String,
        /// What there is.
        there: Vec<String>,
    },
    /// No measurement has the figure.
    #[error("no saved measurement has '{}' of it: there are {}", .given.name(), .there.join(", "))]
    Figure {
        /// What was asked for.
        given: Figure,
        /// What there is.
        there: Vec<&'static str>,
    },
}

/// One value of a series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The measurement's name.
    pub name: String,
    /// When it was made.
    pub at: Timestamp,
    /// Of which commit, where that is known.
    pub commit: Option<String>,
    /// The machine's CPU, where it is told.
    pub cpu: Option<String>,
    /// The value.
    pub value: f64,
}

/// A step of a series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// The number of the first value after it.
    pub at: usize,
    /// The last measurement before it, and its commit.
    pub before: Place,
    /// The first one after it, and its commit.
    pub after: Place,
    /// The mean before, back to the step before.
    pub from: f64,
    /// The mean after, to the next step.
    pub to: f64,
    /// By how much it changed, in parts of what it was; `None` where that was 0.
    pub change: Option<f64>,
    /// Whether the two measurements were made on different CPUs, which may be all that changed.
    pub other_cpu: bool,
}

/// A measurement, as a step names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Its name.
    pub name: String,
    /// Its commit, where that is known.
    pub commit: Option<String>,
}

/// A figure of a module over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// Of which pipeline.
    pub pipeline: String,
    /// Of which module, or [`CHAIN`].
    pub module: String,
    /// Which figure.
    pub figure: Figure,
    /// How its values came to be.
    pub source: Origin,
    /// By time; one at least. Measurements that do not have it are left out.
    pub points: Vec<Point>,
    /// From the first to the last, in parts of the first; `None` where that is 0.
    pub change: Option<f64>,
    /// Where it took a step.
    pub steps: Vec<Step>,
}

/// All series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct History {
    /// How many measurements there are.
    pub measurements: usize,
    /// By pipeline, module and figure, in the order in which they appear.
    pub series: Vec<Series>,
}

impl History {
    /// What `saved` tells of what was chosen.
    ///
    /// # Errors
    /// [`ChoiceError`]
    pub fn of(saved: &[Saved], choice: &Choice) -> Result<Self, ChoiceError> {
        let of_pipeline = |saved: &&Saved| choice.pipeline.as_ref().is_none_or(|name| *name == saved.pipeline);
        let chosen: Vec<&Saved> = saved.iter().filter(of_pipeline).collect();
        if let (Some(given), true) = (&choice.pipeline, chosen.is_empty()) {
            let there = unique(saved.iter().map(|saved| saved.pipeline.clone()));
            return Err(ChoiceError::Pipeline { given: given.clone(), there });
        }
        let mut pairs = unique(chosen.iter().flat_map(|saved| {
            let modules = saved.modules.iter().map(|module| module.name.clone());
            [CHAIN.to_owned()].into_iter().chain(modules).map(|module| (saved.pipeline.clone(), module))
        }));
        // A pipeline's rows stand together even if modules came later.
        let order = unique(chosen.iter().map(|saved| saved.pipeline.clone()));
        pairs.sort_by_key(|(pipeline, _)| order.iter().position(|name| name == pipeline));
        if let Some(given) = &choice.module {
            let there = unique(pairs.iter().map(|(_, module)| module.clone()));
            pairs.retain(|(_, module)| module == given);
            if pairs.is_empty() {
                return Err(ChoiceError::Module { given: given.clone(), there });
            }
        }
        let all = pairs.iter().flat_map(|(pipeline, module)| {
            let chosen = &chosen;
            Figure::ALL.into_iter().filter_map(move |figure| series(chosen, pipeline, module, figure))
        });
        let mut all: Vec<Series> = all.collect();
        if let Some(given) = choice.figure {
            let there = unique(all.iter().map(|series| series.figure.name()));
            all.retain(|series| series.figure == given);
            if all.is_empty() && !there.is_empty() {
                return Err(ChoiceError::Figure { given, there });
            }
        }
        Ok(Self { measurements: chosen.len(), series: all })
    }
}

/// Each once, in the order in which they appear.
fn unique<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut all: Vec<T> = Vec::new();
    for item in items {
        if !all.contains(&item) {
            all.push(item);
        }
    }
    all
}

/// By how much `to` differs from `from`, in parts of it.
fn change(from: f64, to: f64) -> Option<f64> {
    (from != 0.0).then(|| (to - from) / from)
}

/// A series; `None` where no measurement has the figure.
fn series(saved: &[&Saved], pipeline: &str, module: &str, figure: Figure) -> Option<Series> {
    let mut source = None;
    let mut points = Vec::new();
    for saved in saved.iter().filter(|saved| saved.pipeline == pipeline) {
        if let Some((value, origin)) = saved.figure(module, figure) {
            source = Some(if source.is_none_or(|before| before == origin) { origin } else { Origin::Measured });
            points.push(Point {
                name: saved.name.clone(),
                at: saved.at,
                commit: saved.commit.clone(),
                cpu: saved.cpu.clone(),
                value,
            });
        }
    }
    let (source, first, last) = (source?, points.first()?.value, points.last()?.value);
    let nature = if source == Origin::Emulated { Nature::Counted } else { Nature::Measured };
    let values: Vec<f64> = points.iter().map(|point| point.value).collect();
    let place = |at: usize| Place { name: points[at].name.clone(), commit: points[at].commit.clone() };
    let step = |step: crate::steps::Step| Step {
        at: step.at,
        before: place(step.at - 1),
        after: place(step.at),
        from: step.from,
        to: step.to,
        change: change(step.from, step.to),
        other_cpu: points[step.at - 1].cpu != points[step.at].cpu,
    };
    let steps = steps(&values, nature).into_iter().map(step).collect();
    let change = change(first, last);
    Some(Series { pipeline: pipeline.to_owned(), module: module.to_owned(), figure, source, change, steps, points })
}

#[cfg(test)]
mod tests;
