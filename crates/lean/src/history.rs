//! Measurements that were saved, over time: by module a series of each figure, and where it took a step.
//!
//! A series is of one pipeline with one list of settings, and counts are of one kind of build: anything else would show as
//! steps what was only asked for.

mod figure;
mod kind;

use jiff::Timestamp;
use serde::Serialize;

use kind::{Build, Kind, Subject};

use crate::measurement::Origin;
use crate::saved::{Saved, joined};
use crate::steps::{Nature, steps};

pub use figure::Figure;

/// What stands for the whole chain among the modules.
pub const CHAIN: &str = "(all)";

/// What a history is of; what is `None` is not left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Only this pipeline: its name, what it was named by (`usecase:NAME`, `function:NAME`, a file), or either with its settings.
    pub pipeline: Option<String>,
    /// Only this module, or [`CHAIN`].
    pub module: Option<String>,
    /// Only this figure.
    pub figure: Option<Figure>,
}

impl Choice {
    fn is_of(&self, saved: &Saved) -> bool {
        let Some(given) = &self.pipeline else { return true };
        let (subject, name) = (Subject::of(saved), saved.measurement.pipeline.as_str());
        // A file is saved by its whole path.
        let whole = std::path::absolute(given).is_ok_and(|whole| whole == std::path::Path::new(subject.pipeline));
        whole || [name, subject.pipeline].into_iter().any(|told| given == told || *given == subject.told(told))
    }
}

/// Nothing is of what was chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// No measurement is of the pipeline.
    #[error("no saved measurement is of pipeline '{given}': there are {}", joined(.there))]
    Pipeline {
        /// What was asked for.
        given: String,
        /// What there is.
        there: Vec<String>,
    },
    /// No measurement has the module.
    #[error("no saved measurement has a module '{given}': there are {}", joined(.there))]
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
    /// The machine's CPU.
    pub cpu: String,
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
    /// The pipeline as tables tell it: its name with its settings; where another has both, too, what it was named by in place of
    /// its name; and the instruction set and the profile where the pipeline's counts are of several.
    pub name: String,
    /// The pipeline's name, the last that it had.
    pub pipeline: String,
    /// Its settings.
    pub set: Vec<String>,
    /// The instruction set that its values are counted of; `None` where they are not counted, or it is not told.
    pub instruction_set: Option<String>,
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
    /// By pipeline with its settings, module and figure, in the order in which they appear.
    pub series: Vec<Series>,
}

impl History {
    /// What `saved` tells of what was chosen.
    ///
    /// # Errors
    /// [`ChoiceError`]
    pub fn of(saved: &[Saved], choice: &Choice) -> Result<Self, ChoiceError> {
        let chosen: Vec<&Saved> = saved.iter().filter(|saved| choice.is_of(saved)).collect();
        if let (Some(given), true) = (&choice.pipeline, chosen.is_empty()) {
            let there = unique(saved.iter().map(|saved| saved.measurement.pipeline.clone()));
            return Err(ChoiceError::Pipeline { given: given.clone(), there });
        }
        let mut rows = rows(&chosen);
        if let Some(given) = &choice.module {
            let there = unique(rows.iter().map(|row| row.module.to_owned()));
            rows.retain(|row| row.module == given);
            if rows.is_empty() {
                return Err(ChoiceError::Module { given: given.clone(), there });
            }
        }
        let all = rows.iter().flat_map(|row| Figure::ALL.into_iter().flat_map(|figure| row.series(figure)));
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

/// A module of a subject.
struct Row<'s> {
    /// The subject's name in tables.
    name: String,
    /// The measurements of the subject, by time.
    saved: Vec<&'s Saved>,
    /// Of what builds its counts are.
    builds: Vec<Build<'s>>,
    /// The module, or [`CHAIN`].
    module: &'s str,
}

/// All modules of all subjects. Those of one subject stand together even if modules came later, and subjects of one pipeline.
fn rows<'s>(saved: &[&'s Saved]) -> Vec<Row<'s>> {
    let pipelines = unique(saved.iter().map(|saved| &saved.measurement.pipeline));
    let mut subjects: Vec<(Subject<'_>, Vec<&Saved>)> = Vec::new();
    for one in saved {
        let subject = Subject::of(one);
        match subjects.iter_mut().find(|(known, _)| *known == subject) {
            Some((_, of_it)) => of_it.push(one),
            None => subjects.push((subject, vec![one])),
        }
    }
    let pipeline = |of_it: &[&'s Saved]| of_it.last().map_or("", |last| last.measurement.pipeline.as_str());
    subjects.sort_by_key(|(_, of_it)| pipelines.iter().position(|name| *name == pipeline(of_it)));
    let names: Vec<_> = subjects.iter().map(|(subject, of_it)| subject.told(pipeline(of_it))).collect();
    let rows = subjects.iter().zip(&names).flat_map(|((subject, of_it), name)| {
        let alone = names.iter().filter(|other| *other == name).count() == 1;
        let name = if alone { name.clone() } else { subject.told(subject.pipeline) };
        let modules =
            of_it.iter().flat_map(|saved| saved.measurement.modules.iter().map(|module| module.name.as_str()));
        let modules = unique(std::iter::once(CHAIN).chain(modules));
        let builds = unique(of_it.iter().filter_map(|saved| Build::counted(saved)));
        let row = move |module| Row { name: name.clone(), saved: of_it.clone(), builds: builds.clone(), module };
        modules.into_iter().map(row)
    });
    rows.collect()
}

impl Row<'_> {
    /// The series of a figure, by kind; none where no measurement has it.
    fn series(&self, figure: Figure) -> Vec<Series> {
        let told = self.saved.iter().filter_map(|saved| {
            let (value, origin) = figure.of(saved, self.module)?;
            Some((*saved, Kind::of(saved, origin), value))
        });
        let told: Vec<(&Saved, Kind<'_>, f64)> = told.collect();
        let kinds = unique(told.iter().map(|(_, kind, _)| *kind));
        let of_kind = |kind: Kind<'_>| {
            let values = told.iter().filter(move |(_, other, _)| *other == kind);
            self.of_kind(figure, kind, values.map(|(saved, _, value)| (*saved, *value)).collect())
        };
        kinds.into_iter().filter_map(of_kind).collect()
    }

    fn of_kind(&self, figure: Figure, kind: Kind<'_>, told: Vec<(&Saved, f64)>) -> Option<Series> {
        let ((_, first), (last_saved, last)) = (told.first()?, told.last()?);
        let points = told.iter().map(|(saved, value)| Point {
            name: saved.name.clone(),
            at: saved.at,
            commit: saved.commit.clone(),
            cpu: saved.measurement.cpu.model.clone(),
            value: *value,
        });
        let points: Vec<_> = points.collect();
        let nature = if kind.origin == Origin::Emulated { Nature::Counted } else { Nature::Measured };
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
        let apart = kind.build.and_then(|build| build.apart(&self.builds));
        Some(Series {
            name: apart.map_or_else(|| self.name.clone(), |apart| format!("{} ({apart})", self.name)),
            pipeline: last_saved.measurement.pipeline.clone(),
            set: last_saved.subject.set.iter().map(|set| forebay_pipeline::shown_setting(set)).collect(),
            instruction_set: kind.build.and_then(|build| build.set).map(str::to_owned),
            module: self.module.to_owned(),
            figure,
            source: kind.origin,
            change: change(*first, *last),
            steps: steps(&values, nature).into_iter().map(step).collect(),
            points,
        })
    }
}

#[cfg(test)]
mod tests;
