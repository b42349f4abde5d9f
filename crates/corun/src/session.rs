//! Selects the next run, keeps the results, and decides when to end. This module has no clock and no thread.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::plan::competitors;
use crate::record::{Competitor, FunctionRecord, Records, Sample, Void};
use crate::subject::Subject;
use crate::synthetic::Demand;

/// Performs runs: on this machine, or in a test.
pub trait Bench {
    /// Starts a function alone on its core. After an error, [`end`](Self::end) is not called.
    ///
    /// # Errors
    /// Returns [`Trouble`] if the function cannot run, or if the user has interrupted the measurement.
    fn begin(&mut self, subject: &Subject) -> Result<(), Trouble>;

    /// Measures the function that was started: alone, beside these competitors, and alone again. The pass in the result
    /// is 0; the caller sets it.
    ///
    /// # Errors
    /// Returns [`Trouble`] if the run does not count or fails, or if the user has interrupted the measurement.
    fn sample(&mut self, competitors: &[Competitor]) -> Result<Sample, Trouble>;

    /// Ends the function that was started. Called also after an error of [`sample`](Self::sample).
    ///
    /// # Errors
    /// Returns [`Trouble`] if the function failed.
    fn end(&mut self) -> Result<(), Trouble>;

    /// Returns the names of figures that are missing from the spans, with the reasons.
    fn unavailable(&self) -> Vec<(String, String)>;
}

/// The reason why a run has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The user has interrupted the measurement.
    #[error("interrupted")]
    Interrupted,
    /// The run does not count.
    #[error("{0}")]
    Void(String),
    /// The function cannot run at all.
    #[error("{0}")]
    Failed(String),
}

/// The error of a measurement that was interrupted before all runs were done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

/// The progress of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The function that is measured now.
    pub function: &'a str,
    /// The number of runs that are done, including those of earlier measurements.
    pub done: usize,
    /// The number of all runs.
    pub all: usize,
}

/// The runs to perform.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// The functions.
    pub subjects: &'a [Subject],
    /// The demands of the synthetic competitors.
    pub demands: &'a [Demand],
    /// The number of cores for competitors.
    pub cores: usize,
    /// The number of passes over all functions.
    pub passes: usize,
}

/// Observes a measurement.
pub trait Observer {
    /// Receives the progress at the start of a function and after each run.
    fn at(&mut self, progress: Progress<'_>);

    /// Receives the changed records, so that they can be saved.
    fn keep(&mut self, records: &Records);
}

/// Performs all runs that `records` does not contain, until `stop` is set. Returns the functions that cannot run, with
/// the reasons.
///
/// # Errors
/// Returns [`Interrupted`] if `stop` was set. `records` contains all runs until then.
pub fn measure(
    work: &Work<'_>,
    records: &mut Records,
    bench: &mut dyn Bench,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<Vec<(String, String)>, Interrupted> {
    let keys: Vec<_> = work.subjects.iter().map(|subject| subject.key.clone()).collect();
    let all = crate::plan::runs(&keys, work.demands, work.cores, work.passes);
    let (mut done, mut failed) = (0, Vec::<(String, String)>::new());
    for pass in 0..work.passes {
        for (index, subject) in work.subjects.iter().enumerate() {
            let mut sets = competitors(&keys, index, work.demands, work.cores);
            // Every second pass has the sets in reverse order, so that a slow change of the machine's speed during a
            // pass affects all sets alike.
            if pass % 2 == 1 {
                sets.reverse();
            }
            let planned = sets.len();
            sets.retain(|set| !records.has(&subject.key, set, pass));
            done += planned - sets.len();
            let has_failed = failed.iter().any(|(key, _)| *key == subject.key);
            if sets.is_empty() || has_failed {
                done += sets.len();
                continue;
            }
            if stop.load(Ordering::Relaxed) {
                return Err(Interrupted);
            }
            observer.at(Progress { function: &subject.name, done, all });
            let ended = turn(subject, sets, pass, records, bench, stop, &mut |records| {
                done += 1;
                observer.at(Progress { function: &subject.name, done, all });
                observer.keep(records);
            });
            match ended {
                Ok(()) => {}
                Err(Trouble::Interrupted) => return Err(Interrupted),
                Err(Trouble::Failed(why) | Trouble::Void(why)) => failed.push((subject.key.clone(), why)),
            }
        }
    }
    Ok(failed)
}

/// Measures a function beside each of these sets, in a pass. Adds the results to `records`, and calls `made` after each
/// run. Runs that do not count are counted as void. Ends early if the function fails or if `stop` is set.
fn turn(
    subject: &Subject,
    sets: Vec<Vec<Competitor>>,
    pass: usize,
    records: &mut Records,
    bench: &mut dyn Bench,
    stop: &AtomicBool,
    made: &mut dyn FnMut(&Records),
) -> Result<(), Trouble> {
    bench.begin(subject)?;
    let mut ended = Ok(());
    for set in sets {
        if stop.load(Ordering::Relaxed) {
            ended = Err(Trouble::Interrupted);
            break;
        }
        let sample = match bench.sample(&set) {
            Ok(sample) => Ok(Sample { pass, ..sample }),
            Err(Trouble::Void(why)) => Err(why),
            Err(trouble) => {
                ended = Err(trouble);
                break;
            }
        };
        records.unavailable.extend(bench.unavailable());
        let empty = || FunctionRecord {
            packets_bytes: subject.packets_bytes,
            simulated: None,
            samples: Vec::new(),
            void: Void::default(),
        };
        let record = records.functions.entry(subject.key.clone()).or_insert_with(empty);
        match sample {
            Ok(sample) => record.samples.push(sample),
            Err(why) => {
                record.void.runs += 1;
                record.void.why = Some(why);
            }
        }
        made(records);
    }
    let closed = bench.end();
    ended.and(closed)
}

#[cfg(test)]
pub(crate) mod tests;
