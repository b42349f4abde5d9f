//! Counts the instructions of the cases, if this machine can.

use std::path::Path;

use forebay_bench::cases::{self, CountRequest};
use forebay_bench::counting::{CountError, Counts, Extent};

use crate::trial::Case;
use crate::{LabError, Progress};

/// Returns the counts of each case, in order. If there is no counter or no valgrind, all counts are `None`, and the
/// reason is returned beside them.
pub(super) fn all(
    cases: &[Case],
    counter: Option<&Path>,
    extent: Extent,
    progress: &mut dyn Progress,
) -> Result<(Vec<Option<Counts>>, Option<String>), LabError> {
    let none = |why: String| Ok((vec![None; cases.len()], Some(why)));
    let Some(counter) = counter else { return none("it was not requested".to_owned()) };
    let request = |case: &Case| CountRequest { pipeline: format!("usecase:{}", case.name), set: case.settings.clone() };
    let requests: Vec<_> = cases.iter().map(request).collect();
    let mut report = |request: &CountRequest| progress.step(&format!("instructions of {}", request.name()));
    match cases::counts(counter, Path::new(""), &requests, extent, &mut report) {
        Ok(counts) => Ok((counts.into_iter().map(Some).collect(), None)),
        Err(error) if matches!(error.error, CountError::NoValgrind) => none(error.error.to_string()),
        Err(error) => Err(error.into()),
    }
}
