//! A run of the gate: everything counted as it is now, compared, and where batches have changed counted once more.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{Compared, Finding, Verdict, compare, wants};
use crate::baseline::{Baseline, Case, SCHEMA};
use crate::cases::{Asked, CaseError, built_in, count, named};
use crate::counting::{Build, CountError, Extent, OtherBuild};
use crate::process::Stamp;

/// All of a kind, as they are asked for.
pub const GROUPS: [&str; 2] = ["usecases", "functions"];
/// The largest batch that can be asked for.
const LARGEST: f64 = forebay_packet::MAX_BATCH as f64;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// A pipeline cannot be counted.
    #[error(transparent)]
    Case(#[from] CaseError),
    /// The counts do not compare.
    #[error(transparent)]
    Build(#[from] OtherBuild),
    /// A pipeline that the baseline does not have.
    #[error("'{asked}' is not in the baseline: it has {there} (--update adds one)")]
    Unknown {
        /// What was asked.
        asked: String,
        /// What there is.
        there: String,
    },
    /// Another build that does not say what it has.
    #[error(transparent)]
    Other(#[from] crate::process::BuildError),
    /// Nothing to compare with.
    #[error("{} does not have {missing}: allowed are pipelines that both builds have", .program.display())]
    OnlyOne {
        /// One of the builds.
        program: PathBuf,
        /// What it lacks.
        missing: String,
    },
    /// Nothing to do.
    #[error("no pipeline to count: name some, such as `usecases`, `functions`, `usecase:gw` or a configuration file")]
    Nothing,
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// `yes`: nothing is dearer than the limit.
    pub answer: &'static str,
    /// By which share instructions per packet may grow.
    pub max_ipp: f64,
    /// What was counted before.
    pub before: Build,
    /// What is counted now.
    pub now: Build,
    /// What is to be said of the two.
    pub note: Option<String>,
    /// Pipelines that only this build has, and that only the other has, where two builds are compared: these are not counted.
    pub new: Vec<String>,
    /// The same of the other.
    pub gone: Vec<String>,
    /// By pipeline.
    pub cases: Vec<Compared>,
}

impl Answer {
    /// Whether it is yes.
    #[must_use]
    pub fn is_yes(&self) -> bool {
        self.answer == "yes"
    }

    /// All that changed, with the pipeline that it is of.
    pub fn findings(&self) -> impl Iterator<Item = (&str, &Finding)> {
        self.cases.iter().flat_map(|case| case.findings.iter().map(|finding| (case.case.as_str(), finding)))
    }

    /// How many figures there are of a verdict.
    #[must_use]
    pub fn number(&self, verdict: Verdict) -> usize {
        self.findings().filter(|(_, finding)| finding.verdict == verdict).count()
    }
}

/// Who is told how many of how many pipelines have been counted.
pub type Progress<'a> = &'a dyn Fn(usize, usize);

/// The gate: what counts, where, and how much may change.
pub struct Gate<'a> {
    /// The program whose instructions are counted.
    pub program: &'a Path,
    /// What names of files are relative to.
    pub folder: &'a Path,
    /// By which share instructions per packet may grow.
    pub max_ipp: f64,
    /// Who is told of progress.
    pub progress: Progress<'a>,
}

impl Gate<'_> {
    /// Compares with cases of a baseline.
    ///
    /// # Errors
    /// [`GateError`].
    pub fn compare(&self, before: &Baseline, cases: &[&Case]) -> Result<(Answer, Vec<Case>), GateError> {
        let asked: Vec<_> = cases.iter().map(|case| Asked::of(case)).collect();
        let stamp = Stamp::of(self.program);
        let now = self.count(self.program, &asked, before.extent)?;
        let note = before.build.compares(&now.build)?;
        // Where calls have changed, how much of a difference that makes.
        let mut again = Vec::new();
        for (at, (was, is)) in cases.iter().zip(&now.cases).enumerate() {
            if let Some(batch) = wants(was, is, self.max_ipp).and_then(|factor| other_batch(now.batches[at], factor)) {
                let Asked { pipeline, mut set } = asked[at].clone();
                set.push(format!("batch={batch}"));
                again.push((at, Asked { pipeline, set }));
            }
        }
        let mut others: Vec<Option<Case>> = vec![None; cases.len()];
        let (places, again): (Vec<_>, Vec<_>) = again.into_iter().unzip();
        match self.count(self.program, &again, before.extent) {
            Ok(counted) => places.into_iter().zip(counted.cases).for_each(|(at, case)| others[at] = Some(case)),
            Err(_) => {
                // One that cannot be had with other batches is told with what is known.
                for (at, asked) in places.into_iter().zip(again) {
                    others[at] = match self.count(self.program, &[asked], before.extent) {
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
        let answer = Answer { answer, max_ipp: self.max_ipp, before: was, now: is, note, new, gone, cases: compared };
        Ok((answer, now.cases))
    }

    /// Compares with another build, which counts the same now: `pipelines` with settings, or all that is built in where none
    /// is named. What is built into one of the two only is told.
    ///
    /// # Errors
    /// [`GateError`].
    pub fn against(&self, other: &Path, pipelines: &[String], set: &[String]) -> Result<Answer, GateError> {
        let groups = GROUPS.map(str::to_owned);
        let named = if pipelines.is_empty() { &groups[..] } else { pipelines };
        let (here, there) = (crate::process::built_in(self.program)?, crate::process::built_in(other)?);
        let Shared { asked, new, gone } = shared(named, set, &here, &there);
        if asked.is_empty() {
            let (lacking, missing) = if new.is_empty() { (self.program, gone) } else { (other, new) };
            return Err(GateError::OnlyOne { program: lacking.to_owned(), missing: missing.join(", ") });
        }
        let before = self.baseline(other, &asked, Extent::default())?;
        let (answer, _) = self.compare(&before, &before.cases.iter().collect::<Vec<_>>())?;
        Ok(Answer { new, gone, ..answer })
    }

    /// A baseline of these, as `program` counts them.
    ///
    /// # Errors
    /// [`GateError`].
    pub fn baseline(&self, program: &Path, asked: &[Asked], extent: Extent) -> Result<Baseline, GateError> {
        if asked.is_empty() {
            return Err(GateError::Nothing);
        }
        let counted = self.count(program, asked, extent)?;
        Ok(Baseline { schema: SCHEMA, build: counted.build, extent, cases: counted.cases })
    }

    fn count(&self, program: &Path, asked: &[Asked], extent: Extent) -> Result<crate::cases::Counted, GateError> {
        let mut done = 0;
        let mut told = |_: &Asked| {
            done += 1;
            (self.progress)(done, asked.len());
        };
        Ok(count(program, self.folder, asked, extent, &mut told)?)
    }
}

/// Batches with which a module whose batches have become smaller by `factor` may have those of before; others, where they
/// cannot be as large.
fn other_batch(batch: usize, factor: f64) -> Option<usize> {
    let wanted = (batch as f64 * factor).round().clamp(1.0, LARGEST) as usize;
    let other = if wanted == batch { batch / 2 } else { wanted };
    (other > 0).then_some(other)
}

/// What two builds are both asked, and what is built into one of them only.
#[derive(Debug, PartialEq)]
pub(super) struct Shared {
    pub(super) asked: Vec<Asked>,
    pub(super) new: Vec<String>,
    pub(super) gone: Vec<String>,
}

/// What is meant by `named` of what is built in here and there.
pub(super) fn shared(named: &[String], set: &[String], here: &BTreeSet<String>, there: &BTreeSet<String>) -> Shared {
    let (new, asked): (Vec<_>, Vec<_>) = ask(named, set)
        .into_iter()
        .partition(|asked| here.contains(&asked.pipeline) && !there.contains(&asked.pipeline));
    let gone: Vec<_> =
        there.difference(here).filter(|name| named.iter().any(|asked| is_in(asked, name))).cloned().collect();
    let asked = asked.into_iter().filter(|asked| !gone.contains(&asked.pipeline)).collect();
    Shared { asked, new: new.iter().map(Asked::name).collect(), gone }
}

/// Whether a pipeline is what was asked, or of the kind that was.
fn is_in(asked: &str, pipeline: &str) -> bool {
    match asked {
        "usecases" => pipeline.starts_with("usecase:"),
        "functions" => pipeline.starts_with("function:"),
        asked => pipeline == asked,
    }
}

/// The cases of a baseline that are meant by `pipelines`: by name, by group, and where there are settings with just those; all
/// where none is named.
///
/// # Errors
/// [`GateError::Unknown`], and [`GateError::Nothing`] for a baseline without any.
pub fn select<'a>(baseline: &'a Baseline, pipelines: &[String], set: &[String]) -> Result<Vec<&'a Case>, GateError> {
    let means = |asked: &str, case: &Case| is_in(asked, &case.pipeline) && (set.is_empty() || case.set == set);
    for asked in pipelines {
        if !baseline.cases.iter().any(|case| means(asked, case)) {
            let there: Vec<_> = baseline.cases.iter().map(Case::name).collect();
            let asked = named(asked, set);
            return Err(GateError::Unknown { asked, there: there.join(", ") });
        }
    }
    let all = baseline.cases.iter();
    let cases: Vec<_> =
        all.filter(|case| pipelines.is_empty() || pipelines.iter().any(|asked| means(asked, case))).collect();
    if cases.is_empty() { Err(GateError::Nothing) } else { Ok(cases) }
}

/// What is meant by `pipelines` where no baseline says with which settings: those that are built in have sizes of their own.
#[must_use]
pub fn ask(pipelines: &[String], set: &[String]) -> Vec<Asked> {
    let all = pipelines.iter().flat_map(|pipeline| match built_in(pipeline) {
        built_in if set.is_empty() && !built_in.is_empty() => built_in,
        built_in if built_in.len() > 1 => {
            built_in.into_iter().map(|asked| Asked { set: set.to_vec(), ..asked }).collect()
        }
        _ => vec![Asked { pipeline: pipeline.clone(), set: set.to_vec() }],
    });
    all.collect()
}

/// What a baseline is to have after an update: what it has, but for what is built in no more, and `more`.
#[must_use]
pub fn updated(before: Option<&Baseline>, more: &[Asked]) -> Vec<Asked> {
    let gone = |asked: &Asked| match asked.pipeline.split_once(':') {
        Some(("function", name)) => forebay_graph::functions().iter().all(|function| function.name != name),
        Some(("usecase", name)) => forebay_pipeline::usecases().iter().all(|case| case.name != name),
        _ => false,
    };
    let mut all: Vec<_> = before.into_iter().flat_map(|baseline| &baseline.cases).map(Asked::of).collect();
    all.retain(|asked| !gone(asked));
    for asked in more {
        if !all.contains(asked) {
            all.push(asked.clone());
        }
    }
    all
}

/// What an update has changed.
#[derive(Clone, Debug, Serialize)]
pub struct Changes {
    /// Pipelines that were there, with what changed.
    pub cases: Vec<Compared>,
    /// Pipelines that were not.
    pub added: Vec<String>,
    /// Pipelines that are there no more.
    pub gone: Vec<String>,
}

impl Changes {
    /// All figures that changed, with the pipeline that they are of.
    pub fn findings(&self) -> impl Iterator<Item = (&str, &Finding)> {
        self.cases.iter().flat_map(|case| case.findings.iter().map(|finding| (case.case.as_str(), finding)))
    }
}

/// What changed from one baseline to another.
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
