//! Which run is next, what is kept, and when to end: without any clock or thread of its own.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::plan::competitors;
use crate::record::{Competitor, FunctionRecord, Records, Sample, Void};
use crate::subject::Subject;
use crate::synthetic::Demand;

/// What measures runs: this machine, or a test's made-up one.
pub trait Bench {
    /// Starts a function alone on its core.
    ///
    /// # Errors
    /// [`Trouble`].
    fn begin(&mut self, subject: &Subject) -> Result<(), Trouble>;

    /// Measures the function that was begun: alone, beside these, alone. The pass is left 0.
    ///
    /// # Errors
    /// [`Trouble`].
    fn sample(&mut self, competitors: &[Competitor]) -> Result<Sample, Trouble>;

    /// Ends the function that was begun.
    ///
    /// # Errors
    /// [`Trouble`].
    fn end(&mut self) -> Result<(), Trouble>;

    /// Why figures are missing from the spans: name and reason.
    fn unavailable(&self) -> Vec<(String, String)>;
}

/// Why there is no run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// It is to end.
    #[error("interrupted")]
    Interrupted,
    /// The run does not count.
    #[error("{0}")]
    Void(String),
    /// The function cannot run at all.
    #[error("{0}")]
    Failed(String),
}

/// The measurement ended before all runs were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

/// How far measuring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress<'a> {
    /// The function that is measured now.
    pub function: &'a str,
    /// Runs that are done, those of earlier measurements included.
    pub done: usize,
    /// All runs.
    pub all: usize,
}

/// What is measured beside what.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// The functions.
    pub subjects: &'a [Subject],
    /// The levels of the synthetic competitor.
    pub demands: &'a [Demand],
    /// Cores that competitors run on.
    pub cores: usize,
    /// How often all functions take their turn.
    pub passes: usize,
}

/// How a measurement is seen from outside.
pub trait Observer {
    /// A run begins.
    fn at(&mut self, progress: Progress<'_>);

    /// Records have changed: a moment to keep them.
    fn keep(&mut self, records: &Records);
}

/// Makes all runs that `records` does not have, until `stop` is set. By function that cannot run: why.
///
/// # Errors
/// [`Interrupted`]: `records` has all runs until then.
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
            // Up and down: what changes in the course of a pass is shared by all.
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

/// Measures a function beside each of these sets.
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
