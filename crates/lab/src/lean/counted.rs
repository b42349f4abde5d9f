//! Instructions of the cases, where this machine can count them.

use std::path::Path;

use forebay_lean::cases::{self, Asked};
use forebay_lean::counting::{CountError, Counts, Extent};

use crate::trial::Case;
use crate::{LabError, Progress};

/// The counts of each case, in order, or why there are none: no counter, or this machine has no valgrind.
pub(super) fn all(
    cases: &[Case],
    counter: Option<&Path>,
    extent: Extent,
    progress: &mut dyn Progress,
) -> Result<(Vec<Option<Counts>>, Option<String>), LabError> {
    let none = |why: String| Ok((vec![None; cases.len()], Some(why)));
    let Some(counter) = counter else { return none("it was not asked for".to_owned()) };
    let asked = |case: &Case| Asked { pipeline: format!("usecase:{}", case.name), set: case.settings.clone() };
    let asked: Vec<_> = cases.iter().map(asked).collect();
    let mut told = |asked: &Asked| progress.step(&format!("instructions of {}", asked.name()));
    match cases::counts(counter, Path::new(""), &asked, extent, &mut told) {
        Ok(counts) => Ok((counts.into_iter().map(Some).collect(), None)),
        Err(error) if matches!(error.error, CountError::NoValgrind) => none(error.error.to_string()),
        Err(error) => Err(error.into()),
    }
}
