//! Instructions of several cases, counted at once: other work on the machine does not change them.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use forebay_lean::counting::{CountError, Counts, Extent};
use forebay_measure::machine::allowed_cores;

use crate::trial::Case;
use crate::{LabError, Progress};

/// The counts of each case, in order, or why there are none: no counter, or this machine has no valgrind.
pub(super) fn all(
    cases: &[Case],
    counter: Option<&Path>,
    extent: Extent,
    progress: &mut dyn Progress,
) -> Result<(Vec<Option<Counts>>, Option<String>), LabError> {
    let Some(counter) = counter else { return Ok((vec![None; cases.len()], Some("it was not asked for".to_owned()))) };
    let (next, (tell, told)) = (AtomicUsize::new(0), channel());
    let (mut counts, mut why): (Vec<Option<Counts>>, _) = (vec![None; cases.len()], None);
    std::thread::scope(|scope| {
        for _ in 0..allowed_cores().len().clamp(1, cases.len().max(1)) {
            let (next, tell) = (&next, tell.clone());
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(at) else { return };
                    if tell.send((at, case.count(counter, extent))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(tell);
        for (at, count) in &told {
            progress.step(&format!("instructions of {}", cases[at].told()));
            // The first that fails is told; the others end with what they are at.
            if count.is_err() {
                next.store(cases.len(), Ordering::Relaxed);
            }
            match count {
                Ok(count) => counts[at] = Some(count),
                Err(LabError::Count { error: error @ CountError::Valgrind(_), .. }) => why = Some(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        Ok(if why.is_some() { (vec![None; cases.len()], why) } else { (counts, None) })
    })
}
