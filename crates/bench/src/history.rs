//! Saved measurements over time: a series of each figure for each module, and the steps of each series.
//!
//! A series belongs to one pipeline with one list of settings. A series of counts also belongs to one build
//! configuration. Otherwise, differences that the user has made on purpose (other settings, another build) would appear
//! as steps.

mod figure;
mod kind;

use forebay_graph::existing_names;
use jiff::Timestamp;
use serde::Serialize;

use kind::{Build, Subject, ValueGroup};

use crate::measurement::Origin;
use crate::saved::{Saved, existing};
use crate::steps::{Nature, steps};

pub use figure::Figure;

/// The name that stands for the whole chain among the modules.
pub const CHAIN: &str = "(all)";

/// Selects a part of the history. A field that is `None` selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Selects one pipeline: by its name, by the argument with which it was measured (`usecase:NAME`, `function:NAME`,
    /// a file), or by one of the two followed by its settings.
    pub pipeline: Option<String>,
    /// Selects one module, or [`CHAIN`].
    pub module: Option<String>,
    /// Selects one figure.
    pub figure: Option<Figure>,
}

impl Choice {
    /// True if the measurement is of the selected pipeline. Modules and figures are selected later.
    fn matches(&self, saved: &Saved) -> bool {
        let Some(given) = &self.pipeline else { return true };
        let (subject, name) = (Subject::of(saved), saved.measurement.pipeline.as_str());
        // The path of a file is saved as an absolute path.
        let is_this_file = std::path::absolute(given).is_ok_and(|path| path == std::path::Path::new(subject.pipeline));
        is_this_file
            || [name, subject.pipeline]
                .into_iter()
                .any(|known| given == known || *given == subject.with_settings(known))
    }
}

/// The selection is empty.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// No measurement has the pipeline.
    #[error("no saved measurement has pipeline '{given}': {}", existing(.there))]
    Pipeline {
        /// The requested pipeline.
        given: String,
        /// The saved pipelines.
        there: Vec<String>,
    },
    /// No measurement has the module.
    #[error("no saved measurement has a module '{given}': {}", existing(.there))]
    Module {
        /// The requested module.
        given: String,
        /// The saved modules.
        there: Vec<String>,
    },
    /// No measurement has the figure.
    #[error(
        "no saved measurement of the pipeline or module has '{}': {}",
        .given.name(),
        existing_names(.there.iter().copied())
    )]
    Figure {
        /// The requested figure.
        given: Figure,
        /// The available figures.
        there: Vec<&'static str>,
    },
}

/// One value of a series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The measurement's name.
    pub name: String,
    /// The time of the measurement.
    pub at: Timestamp,
    /// The commit of the program, if known.
    pub commit: Option<String>,
    /// The machine's CPU.
    pub cpu: String,
    /// The value.
    pub value: f64,
}

/// A step of a series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// The index of the first value after the step.
    pub at: usize,
    /// The last measurement before the step, and its commit.
    pub before: MeasurementRef,
    /// The first measurement after the step, and its commit.
    pub after: MeasurementRef,
    /// The mean of the values since the previous step, or since the beginning.
    pub from: f64,
    /// The mean of the values up to the next step, or up to the end.
    pub to: f64,
    /// The relative change; `None` if `from` is 0.
    pub change: Option<f64>,
    /// True if the two measurements were made on different CPUs. Then this difference may be the only cause of the
    /// step.
    pub other_cpu: bool,
}

/// The measurement on one side of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MeasurementRef {
    /// Its name.
    pub name: String,
    /// Its commit, if known.
    pub commit: Option<String>,
}

/// A figure of a module over time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// The pipeline's name in tables, with its settings. If another pipeline has the same name and settings, the
    /// argument with which this pipeline was measured replaces the name. If the pipeline has counts of several
    /// instruction sets or build profiles, the set or profile of this series is added.
    pub name: String,
    /// The most recent name of the pipeline.
    pub pipeline: String,
    /// Its settings.
    pub set: Vec<String>,
    /// The instruction set of the counted values. `None` if the values are not counts, or if the instruction set is
    /// unknown.
    pub instruction_set: Option<String>,
    /// The module, or [`CHAIN`].
    pub module: String,
    /// The figure.
    pub figure: Figure,
    /// The origin of the values.
    pub source: Origin,
    /// The values by time; at least one. Measurements without the figure are left out.
    pub points: Vec<Point>,
    /// The relative change from the first to the last value; `None` if the first is 0.
    pub change: Option<f64>,
    /// The steps.
    pub steps: Vec<Step>,
}

/// All series.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct History {
    /// The number of measurements.
    pub measurements: usize,
    /// The series, ordered by pipeline with settings, then by module (both in the order of their first appearance),
    /// then by figure.
    pub series: Vec<Series>,
}

impl History {
    /// Returns the selected history of the measurements in `saved`, which must be in order of time.
    ///
    /// # Errors
    /// [`ChoiceError`].
    pub fn of(saved: &[Saved], choice: &Choice) -> Result<Self, ChoiceError> {
        let chosen: Vec<&Saved> = saved.iter().filter(|saved| choice.matches(saved)).collect();
        if let (Some(given), true) = (&choice.pipeline, chosen.is_empty()) {
            let known = unique(saved.iter().map(|saved| saved.measurement.pipeline.clone()));
            return Err(ChoiceError::Pipeline { given: given.clone(), there: known });
        }
        let mut rows = rows(&chosen);
        if let Some(given) = &choice.module {
            let known = unique(rows.iter().map(|row| row.module.to_owned()));
            rows.retain(|row| row.module == given);
            if rows.is_empty() {
                return Err(ChoiceError::Module { given: given.clone(), there: known });
            }
        }
        let all = rows.iter().flat_map(|row| Figure::ALL.into_iter().flat_map(|figure| row.series(figure)));
        let mut all: Vec<Series> = all.collect();
        if let Some(given) = choice.figure {
            let known = unique(all.iter().map(|series| series.figure.name()));
            all.retain(|series| series.figure == given);
            if all.is_empty() && !known.is_empty() {
                return Err(ChoiceError::Figure { given, there: known });
            }
        }
        Ok(Self { measurements: chosen.len(), series: all })
    }
}

/// Returns each item once, in the order in which the items first appear.
fn unique<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut all: Vec<T> = Vec::new();
    for item in items {
        if !all.contains(&item) {
            all.push(item);
        }
    }
    all
}

/// Returns the relative change from `from` to `to`, or `None` if `from` is 0.
fn change(from: f64, to: f64) -> Option<f64> {
    (from != 0.0).then(|| (to - from) / from)
}

/// A module of a subject.
struct Row<'s> {
    /// The name of the subject in tables.
    name: String,
    /// The measurements of the subject, by time.
    saved: Vec<&'s Saved>,
    /// The build configurations of the counts of the subject. If there are several, the names of series state them.
    builds: Vec<Build<'s>>,
    /// The module, or [`CHAIN`].
    module: &'s str,
}

/// Returns all modules of all subjects. The modules of a subject are adjacent, also the modules that appear only in
/// later measurements. The subjects of a pipeline are adjacent, too.
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
    let names: Vec<_> = subjects.iter().map(|(subject, of_it)| subject.with_settings(pipeline(of_it))).collect();
    let rows = subjects.iter().zip(&names).flat_map(|((subject, of_it), name)| {
        let alone = names.iter().filter(|other| *other == name).count() == 1;
        let name = if alone { name.clone() } else { subject.with_settings(subject.pipeline) };
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
    /// Returns the series of a figure, one for each group of comparable values. Empty if no measurement has the figure.
    fn series(&self, figure: Figure) -> Vec<Series> {
        let values = self.saved.iter().filter_map(|saved| {
            let (value, origin) = figure.of(saved, self.module)?;
            Some((*saved, ValueGroup::of(saved, origin), value))
        });
        let values: Vec<(&Saved, ValueGroup<'_>, f64)> = values.collect();
        let groups = unique(values.iter().map(|(_, group, _)| *group));
        let of_group = |group: ValueGroup<'_>| {
            let own = values.iter().filter(move |(_, other, _)| *other == group);
            self.of_group(figure, group, own.map(|(saved, _, value)| (*saved, *value)).collect())
        };
        groups.into_iter().filter_map(of_group).collect()
    }

    /// Returns the series of one group of values, which are in order of time. `None` if there are no values.
    fn of_group(&self, figure: Figure, group: ValueGroup<'_>, values: Vec<(&Saved, f64)>) -> Option<Series> {
        let ((_, first), (last_saved, last)) = (values.first()?, values.last()?);
        let points = values.iter().map(|(saved, value)| Point {
            name: saved.name.clone(),
            at: saved.at,
            commit: saved.commit.clone(),
            cpu: saved.measurement.cpu.model.clone(),
            value: *value,
        });
        let points: Vec<_> = points.collect();
        let nature = if group.origin == Origin::Emulated { Nature::Counted } else { Nature::Measured };
        let values: Vec<f64> = points.iter().map(|point| point.value).collect();
        let side = |at: usize| MeasurementRef { name: points[at].name.clone(), commit: points[at].commit.clone() };
        let step = |step: crate::steps::DetectedStep| Step {
            at: step.at,
            before: side(step.at - 1),
            after: side(step.at),
            from: step.from,
            to: step.to,
            change: change(step.from, step.to),
            other_cpu: points[step.at - 1].cpu != points[step.at].cpu,
        };
        let difference = group.build.and_then(|build| build.difference(&self.builds));
        Some(Series {
            name: difference.map_or_else(|| self.name.clone(), |difference| format!("{} ({difference})", self.name)),
            pipeline: last_saved.measurement.pipeline.clone(),
            set: last_saved.subject.set.iter().map(|set| forebay_pipeline::shown_setting(set)).collect(),
            instruction_set: group.build.and_then(|build| build.set).map(str::to_owned),
            module: self.module.to_owned(),
            figure,
            source: group.origin,
            change: change(*first, *last),
            steps: steps(&values, nature).into_iter().map(step).collect(),
            points,
        })
    }
}

#[cfg(test)]
mod tests;
