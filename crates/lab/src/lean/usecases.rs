//! Measures the cost of a packet in every use case, by module.

use std::time::Duration;

use forebay_bench::counting::Counts;
use forebay_bench::measurement::Measurement;
use serde::Serialize;

use crate::trial::{Case, Part, away, common_name, missing, parts};
use crate::{LabError, Progress};

/// The figures of a use case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UseCase {
    /// The use case that was run.
    pub case: Case,
    /// The summary of the use case.
    pub summary: &'static str,
    /// The figures of each module.
    pub measurement: Measurement,
    /// The cost per packet that entered, with similar modules added up.
    pub parts: Vec<Part>,
    /// The number of packets of the run that are unaccounted for.
    pub missing: i64,
    /// The share of the run in which the machine did other work. If the share is too large, the measurement states
    /// that the run is void.
    pub away: f64,
}

/// Returns the cases to run: every use case, at the highest rate that it accepts, with a size at which batches split up
/// at branches.
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

/// Runs all cases. Cases without an entry in `counts` have no instructions.
pub(super) fn measure(
    cases: &[Case],
    counts: &[Option<Counts>],
    span: Duration,
    progress: &mut dyn Progress,
) -> Result<Vec<UseCase>, LabError> {
    let mut all = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        let counts = counts.get(at).and_then(Option::as_ref);
        progress.step(&case.arguments());
        let timed = case.run(span)?;
        let summary = forebay_pipeline::usecases().iter().find(|usecase| usecase.name == case.name);
        all.push(UseCase {
            case: case.clone(),
            summary: summary.map_or("", |usecase| usecase.summary),
            measurement: Measurement::of(&timed, counts),
            parts: parts(&timed, counts, common_name),
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
    fn every_use_case_is_valid() {
        let cases = cases();
        assert_eq!(cases.len(), forebay_pipeline::usecases().len());
        for case in cases {
            assert!(forebay_pipeline::usecase(case.name, &case.settings).is_ok(), "{}", case.arguments());
        }
    }
}
