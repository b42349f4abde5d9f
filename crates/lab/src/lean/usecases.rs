//! Every use case: what a packet costs, module by module.

use std::time::Duration;

use forebay_lean::counting::Counts;
use forebay_lean::measurement::Measurement;
use serde::Serialize;

use crate::trial::{Case, Part, alike, away, missing, parts};
use crate::{LabError, Progress};

/// A use case's figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UseCase {
    /// What was run.
    pub case: Case,
    /// What it is.
    pub summary: &'static str,
    /// Module by module.
    pub measurement: Measurement,
    /// Alike modules together, per packet that entered.
    pub parts: Vec<Part>,
    /// Packets of the run that are unaccounted for.
    pub missing: i64,
    /// The share of the run in which the machine was elsewhere; the measurement says whether that was too much.
    pub away: f64,
}

/// What is run: every use case, of a size that shows how batches break up at branches, as many packets as it takes.
pub(super) fn cases() -> Vec<Case> {
    let case = |case: &forebay_pipeline::UseCase| {
        let mut settings = vec!["rate=max"];
        settings.extend(case.parameters.iter().filter_map(|parameter| match parameter.name {
            "n" => Some("n=4"),
            "m" => Some("m=2"),
            _ => None,
        }));
        Case::new(case.name, &settings)
    };
    forebay_pipeline::usecases().iter().map(case).collect()
}

/// Runs all of them. Those that `counts` has nothing of have no instructions.
pub(super) fn measure(
    cases: &[Case],
    counts: &[Option<Counts>],
    span: Duration,
    progress: &mut dyn Progress,
) -> Result<Vec<UseCase>, LabError> {
    let mut all = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        let counts = counts.get(at).and_then(Option::as_ref);
        progress.step(&case.told());
        let timed = case.run(span)?;
        let summary = forebay_pipeline::usecases().iter().find(|told| told.name == case.name);
        all.push(UseCase {
            case: case.clone(),
            summary: summary.map_or("", |told| told.summary),
            measurement: Measurement::of(&timed, counts),
            parts: parts(&timed, counts, alike),
            missing: missing(&timed),
            away: away(&timed),
        });
        if progress.is_stopped() {
            break;
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_use_case_is_there_and_in_order() {
        let cases = cases();
        assert_eq!(cases.len(), forebay_pipeline::usecases().len());
        for case in cases {
            assert!(forebay_pipeline::usecase(case.name, &case.settings).is_ok(), "{}", case.told());
        }
    }
}
