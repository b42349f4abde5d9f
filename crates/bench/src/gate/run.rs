//! Runs the gate: counts all pipelines and compares them. Pipelines whose batches have changed are counted once more,
//! with other batches.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use forebay_pipeline::listed;
use serde::Serialize;

use super::{Compared, Finding, GateVerdict, compare, wants};
use crate::baseline::{Baseline, Case, SCHEMA};
use crate::cases::{CaseError, CountRequest, built_in, count, named};
use crate::counting::{CountError, CountedBuild, Extent, OtherBuild};
use crate::program::Stamp;

/// The names of the groups of built-in pipelines.
pub const GROUPS: [&str; 2] = ["usecases", "functions"];
/// The largest batch that can be set.
const LARGEST: f64 = forebay_packet::MAX_BATCH as f64;

/// The gate has no result.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// A pipeline cannot be counted.
    #[error(transparent)]
    Case(#[from] CaseError),
    /// The counts cannot be compared.
    #[error(transparent)]
    Build(#[from] OtherBuild),
    /// The baseline does not have this pipeline.
    #[error("'{requested}' is not in the baseline: it has {there} (--update adds '{requested}')")]
    Unknown {
        /// The requested pipeline.
        requested: String,
        /// The pipelines of the baseline.
        there: String,
    },
    /// A build does not list its built-in pipelines.
    #[error(transparent)]
    Other(#[from] crate::process::BuildError),
    /// There is no pipeline to compare.
    #[error("{} does not have {missing}: allowed are pipelines that both builds have", .program.display())]
    OnlyOne {
        /// The build that lacks pipelines.
        program: PathBuf,
        /// The missing pipelines.
        missing: String,
    },
    /// No pipeline was named.
    #[error(
        "no pipeline to count: name some, for example `usecases`, `functions`, `usecase:gw` or a configuration file"
    )]
    Nothing,
}

/// The result of the gate.
#[derive(Clone, Debug, Serialize)]
pub struct GateReport {
    /// `yes` if no figure increased by more than the limit, else `no`.
    pub answer: &'static str,
    /// The share by which instructions per packet may increase.
    pub max_ipp: f64,
    /// The build of the baseline.
    pub before: CountedBuild,
    /// The present build.
    pub now: CountedBuild,
    /// A note about differences between the two builds.
    pub note: Option<String>,
    /// Pipelines that only this build has, if two builds are compared. They are not counted.
    pub new: Vec<String>,
    /// Pipelines that only the other build has.
    pub gone: Vec<String>,
    /// By pipeline.
    pub cases: Vec<Compared>,
}

impl GateReport {
    /// True if the answer is yes.
    #[must_use]
    pub fn is_yes(&self) -> bool {
        self.answer == "yes"
    }

    /// Returns all changes, each with its pipeline.
    pub fn findings(&self) -> impl Iterator<Item = (&str, &Finding)> {
        self.cases.iter().flat_map(|case| case.findings.iter().map(|finding| (case.case.as_str(), finding)))
    }

    /// Returns the number of figures with this verdict.
    #[must_use]
    pub fn number(&self, verdict: GateVerdict) -> usize {
        self.findings().filter(|(_, finding)| finding.verdict == verdict).count()
    }
}

/// A callback that gets the number of counted pipelines and the number of all pipelines.
pub type CountProgress<'a> = &'a dyn Fn(usize, usize);

/// The gate: the program, the folder and the limit.
pub struct Gate<'a> {
    /// The program whose instructions are counted.
    pub program: &'a Path,
    /// The folder that file names are relative to.
    pub folder: &'a Path,
    /// The share by which instructions per packet may increase.
    pub max_ipp: f64,
    /// Called after each pipeline.
    pub progress: CountProgress<'a>,
}

impl Gate<'_> {
    /// Counts these cases of the baseline `before` with the present build, and compares the counts. Returns the report
    /// and the present counts, in the order of `cases`.
    ///
    /// # Errors
    /// [`GateError`].
    pub fn compare(&self, before: &Baseline, cases: &[&Case]) -> Result<(GateReport, Vec<Case>), GateError> {
        let requests: Vec<_> = cases.iter().map(|case| CountRequest::of(case)).collect();
        let stamp = Stamp::of(self.program);
        let now = self.count(self.program, &requests, before.extent)?;
        let note = before.build.compares(&now.build)?;
        // If the batches have changed, another count shows their effect.
        let mut again = Vec::new();
        for (at, (was, is)) in cases.iter().zip(&now.cases).enumerate() {
            if let Some(batch) = wants(was, is, self.max_ipp).and_then(|factor| other_batch(now.batches[at], factor)) {
                let CountRequest { pipeline, mut set } = requests[at].clone();
                set.push(format!("batch={batch}"));
                again.push((at, CountRequest { pipeline, set }));
            }
        }
        let mut others: Vec<Option<Case>> = vec![None; cases.len()];
        let (indices, again): (Vec<_>, Vec<_>) = again.into_iter().unzip();
        match self.count(self.program, &again, before.extent) {
            Ok(counted) => indices.into_iter().zip(counted.cases).for_each(|(at, case)| others[at] = Some(case)),
            Err(_) => {
                // A pipeline that cannot run with the other batch size is compared without a second count.
                for (at, request) in indices.into_iter().zip(again) {
                    others[at] = match self.count(self.program, &[request], before.extent) {
                        Ok(mut counted) => counted.cases.pop(),
                        Err(GateError::Case(CaseError { error: CountError::Failed(_), .. })) => None,
                        Err(error) => return Err(error),
                    };
                }
            }
        }
        if stamp != Stamp::of(self.program) {
            let (case, error) = (self.program.display().to_string(), CountError::Replaced(self.program.to_owned()));
            return Err(CaseError { case, error }.into());
        }
        let pairs = cases.iter().zip(&now.cases).zip(&others);
        let compared: Vec<_> = pairs.map(|((was, is), other)| compare(was, is, other.as_ref(), self.max_ipp)).collect();
        let answer = if compared.iter().any(Compared::fails) { "no" } else { "yes" };
        let (was, is) = (before.build.clone(), now.build);
        let (new, gone) = (Vec::new(), Vec::new());
        let report =
            GateReport { answer, max_ipp: self.max_ipp, before: was, now: is, note, new, gone, cases: compared };
        Ok((report, now.cases))
    }

    /// Compares with the build `other`, which counts the same pipelines now. The compared pipelines are `pipelines`
    /// with the settings `set`, or all built-in pipelines if `pipelines` is empty. Pipelines that only one of the
    /// builds has are listed in the report, and are not compared.
    ///
    /// # Errors
    /// [`GateError`].
    pub fn against(&self, other: &Path, pipelines: &[String], set: &[String]) -> Result<GateReport, GateError> {
        let groups = GROUPS.map(str::to_owned);
        let named = if pipelines.is_empty() { &groups[..] } else { pipelines };
        let (own, others) = (crate::process::built_in(self.program)?, crate::process::built_in(other)?);
        let Shared { requests, new, gone } = shared(named, set, &own, &others);
        if requests.is_empty() {
            let (lacking, missing) = if new.is_empty() { (self.program, gone) } else { (other, new) };
            return Err(GateError::OnlyOne { program: lacking.to_owned(), missing: missing.join(", ") });
        }
        let before = self.baseline(other, &requests, Extent::default())?;
        let (report, _) = self.compare(&before, &before.cases.iter().collect::<Vec<_>>())?;
        Ok(GateReport { new, gone, ..report })
    }

    /// Counts these pipelines with `program` and returns the counts as a baseline.
    ///
    /// # Errors
    /// [`GateError`].
    pub fn baseline(&self, program: &Path, requests: &[CountRequest], extent: Extent) -> Result<Baseline, GateError> {
        if requests.is_empty() {
            return Err(GateError::Nothing);
        }
        let counted = self.count(program, requests, extent)?;
        Ok(Baseline { schema: SCHEMA, build: counted.build, extent, cases: counted.cases })
    }

    /// Counts these pipelines with `program` and reports the progress.
    fn count(
        &self,
        program: &Path,
        requests: &[CountRequest],
        extent: Extent,
    ) -> Result<crate::cases::Counted, GateError> {
        let mut done = 0;
        let mut report = |_: &CountRequest| {
            done += 1;
            (self.progress)(done, requests.len());
        };
        Ok(count(program, self.folder, requests, extent, &mut report)?)
    }
}

/// Returns the batch size for the second count: `factor` times `batch`. With this size, a module whose batches have
/// become smaller by `factor` may get batches of the earlier size. If the result is `batch` again, returns half of
/// `batch`, or `None` if that is 0.
fn other_batch(batch: usize, factor: f64) -> Option<usize> {
    let wanted = (batch as f64 * factor).round().clamp(1.0, LARGEST) as usize;
    let other = if wanted == batch { batch / 2 } else { wanted };
    (other > 0).then_some(other)
}

/// The pipelines to compare between two builds, and the pipelines that only one of the builds has.
#[derive(Debug, PartialEq)]
pub(super) struct Shared {
    /// The pipelines to compare.
    pub(super) requests: Vec<CountRequest>,
    /// Pipelines that only the present build has, with their settings.
    pub(super) new: Vec<String>,
    /// Pipelines that only the other build has.
    pub(super) gone: Vec<String>,
}

/// Divides the pipelines that `named` stands for into [`Shared`]; `own` and `others` are the built-in pipelines of the
/// two builds.
pub(super) fn shared(named: &[String], set: &[String], own: &BTreeSet<String>, others: &BTreeSet<String>) -> Shared {
    let (new, requests): (Vec<_>, Vec<_>) = requests_for(named, set)
        .into_iter()
        .partition(|request| own.contains(&request.pipeline) && !others.contains(&request.pipeline));
    let gone: Vec<_> =
        others.difference(own).filter(|name| named.iter().any(|requested| is_in(requested, name))).cloned().collect();
    let requests = requests.into_iter().filter(|request| !gone.contains(&request.pipeline)).collect();
    Shared { requests, new: new.iter().map(CountRequest::name).collect(), gone }
}

/// True if `pipeline` is the named one or a member of the named group.
fn is_in(requested: &str, pipeline: &str) -> bool {
    match requested {
        "usecases" => pipeline.starts_with("usecase:"),
        "functions" => pipeline.starts_with("function:"),
        requested => pipeline == requested,
    }
}

/// Returns the cases of a baseline that `pipelines` stand for, by name or by group. If there are settings, a case must
/// have exactly these. Returns all cases if no pipeline is named.
///
/// # Errors
/// [`GateError::Unknown`], and [`GateError::Nothing`] for an empty baseline.
pub fn select<'a>(baseline: &'a Baseline, pipelines: &[String], set: &[String]) -> Result<Vec<&'a Case>, GateError> {
    let means = |requested: &str, case: &Case| is_in(requested, &case.pipeline) && (set.is_empty() || case.set == set);
    for requested in pipelines {
        if !baseline.cases.iter().any(|case| means(requested, case)) {
            let known: Vec<_> = baseline.cases.iter().map(Case::name).collect();
            let requested = named(requested, set);
            return Err(GateError::Unknown { requested, there: listed(known.iter().map(String::as_str)) });
        }
    }
    let all = baseline.cases.iter();
    let cases: Vec<_> =
        all.filter(|case| pipelines.is_empty() || pipelines.iter().any(|requested| means(requested, case))).collect();
    if cases.is_empty() { Err(GateError::Nothing) } else { Ok(cases) }
}

/// Returns the pipelines that `pipelines` stand for, by name or by group, without a baseline. Built-in pipelines have
/// their default settings if `set` is empty.
#[must_use]
pub fn requests_for(pipelines: &[String], set: &[String]) -> Vec<CountRequest> {
    let all = pipelines.iter().flat_map(|pipeline| match built_in(pipeline) {
        built_in if set.is_empty() && !built_in.is_empty() => built_in,
        built_in if built_in.len() > 1 => {
            built_in.into_iter().map(|request| CountRequest { set: set.to_vec(), ..request }).collect()
        }
        _ => vec![CountRequest { pipeline: pipeline.clone(), set: set.to_vec() }],
    });
    all.collect()
}

/// Returns the pipelines of a baseline after an update: the pipelines of `before` and `more`, each once. Built-in
/// pipelines that do not exist any more are left out.
#[must_use]
pub fn updated(before: Option<&Baseline>, more: &[CountRequest]) -> Vec<CountRequest> {
    let gone = |request: &CountRequest| match request.pipeline.split_once(':') {
        Some(("function", name)) => forebay_graph::functions().iter().all(|function| function.name != name),
        Some(("usecase", name)) => forebay_pipeline::usecases().iter().all(|case| case.name != name),
        _ => false,
    };
    let mut all: Vec<_> = before.into_iter().flat_map(|baseline| &baseline.cases).map(CountRequest::of).collect();
    all.retain(|request| !gone(request));
    for request in more {
        if !all.contains(request) {
            all.push(request.clone());
        }
    }
    all
}

/// The changes of an update.
#[derive(Clone, Debug, Serialize)]
pub struct Changes {
    /// Pipelines that existed before, with their changes.
    pub cases: Vec<Compared>,
    /// New pipelines.
    pub added: Vec<String>,
    /// Removed pipelines.
    pub gone: Vec<String>,
}

impl Changes {
    /// Returns all figures that changed, each with its pipeline.
    pub fn findings(&self) -> impl Iterator<Item = (&str, &Finding)> {
        self.cases.iter().flat_map(|case| case.findings.iter().map(|finding| (case.case.as_str(), finding)))
    }
}

/// Returns the changes from one baseline to another. A pipeline is in both if both have it with the same name and the
/// same settings. Without `before`, all pipelines are new.
#[must_use]
pub fn changes(before: Option<&Baseline>, now: &Baseline, limit: f64) -> Changes {
    let find = |baseline: Option<&'_ Baseline>, like: &Case| -> Option<Case> {
        let all = baseline.into_iter().flat_map(|baseline| &baseline.cases);
        all.into_iter().find(|case| case.pipeline == like.pipeline && case.set == like.set).cloned()
    };
    let (mut cases, mut added) = (Vec::new(), Vec::new());
    for case in &now.cases {
        match find(before, case) {
            Some(was) => cases.push(compare(&was, case, None, limit)),
            None => added.push(case.name()),
        }
    }
    let was = before.into_iter().flat_map(|baseline| &baseline.cases);
    let gone = was.filter(|case| find(Some(now), case).is_none()).map(Case::name).collect();
    Changes { cases, added, gone }
}
