//! Tests measurements on a simulated machine: the records after an interruption, and the continuation.

use forebay_bench::profile::{Build, Key};
use forebay_pipeline::Source;
use proptest::prelude::*;

use super::*;
use crate::record::{Load, Seats, Span};

/// A machine on which all runs are equal.
#[derive(Default)]
struct MadeUp {
    function: Option<String>,
    runs: usize,
    /// The number of runs after which the stop flag is set. If the second value is true, the last run is interrupted.
    stops: Option<(usize, bool)>,
    /// A run whose number is a multiple of this number does not count. 0 if all runs count.
    void_every: usize,
}

fn span(packets: u64) -> Span {
    let (instructions, stalls, llc_misses, memory_bytes) = (None, None, None, None);
    Span { seconds: 1.0, packets, away: 0.0, instructions, stalls, llc_misses, memory_bytes }
}

/// Returns a run in which each competitor reduces 1000 packets by ten.
pub(crate) fn sample(competitors: &[Competitor]) -> Sample {
    let loads = vec![Load::default(); competitors.len()];
    let beside = span(1000 - 10 * competitors.len() as u64);
    let competitors = competitors.to_vec();
    Sample { competitors, pass: 0, before: span(1000), beside, after: span(1000), loads }
}

struct Stopping<'a>(MadeUp, &'a AtomicBool);

impl Bench for Stopping<'_> {
    fn begin(&mut self, subject: &Subject) -> Result<(), Trouble> {
        assert_eq!(self.0.function, None, "the one before has ended");
        if subject.key == "broken" {
            return Err(Trouble::Failed("it has no port".to_owned()));
        }
        self.0.function = Some(subject.key.clone());
        Ok(())
    }

    fn sample(&mut self, competitors: &[Competitor]) -> Result<Sample, Trouble> {
        assert!(self.0.function.is_some(), "it has begun");
        if let Some((runs, is_inside)) = self.0.stops.filter(|(runs, _)| *runs == self.0.runs) {
            let _ = runs;
            self.1.store(true, Ordering::Relaxed);
            if is_inside {
                return Err(Trouble::Interrupted);
            }
        }
        self.0.runs += 1;
        if self.0.void_every > 0 && self.0.runs.is_multiple_of(self.0.void_every) {
            return Err(Trouble::Void("the host had the core".to_owned()));
        }
        Ok(sample(competitors))
    }

    fn end(&mut self) -> Result<(), Trouble> {
        self.0.function = None;
        Ok(())
    }

    fn unavailable(&self) -> Vec<(String, String)> {
        vec![("stalls".to_owned(), "there are no counters".to_owned())]
    }
}

/// Records the progress and the last records.
#[derive(Default)]
pub(crate) struct Kept {
    pub(crate) last: Option<Records>,
    progress: Vec<(usize, usize)>,
}

impl Observer for Kept {
    fn at(&mut self, progress: Progress<'_>) {
        self.progress.push((progress.done, progress.all));
    }

    fn keep(&mut self, records: &Records) {
        self.last = Some(records.clone());
    }
}

pub(crate) fn subjects(names: &[&str]) -> Vec<Subject> {
    let subject = |name: &&str| Subject {
        key: (*name).to_owned(),
        name: (*name).to_owned(),
        source: Source::new("", "none", ""),
        counted: None,
        packets_bytes: 60,
    };
    names.iter().map(subject).collect()
}

pub(crate) fn empty() -> Records {
    let build = Build { forebay: "0.0.0".to_owned(), program: "0".to_owned() };
    let seats = Seats { subject: 0, competitors: vec![1], siblings: false };
    Records::empty(Key { cpu: "made up".to_owned(), build, batch: 32 }, seats, 1e9)
}

fn all_at_once(work: &Work<'_>, void_every: usize) -> Records {
    let (mut records, stop) = (empty(), AtomicBool::new(false));
    let mut bench = Stopping(MadeUp { void_every, ..MadeUp::default() }, &stop);
    let mut kept = Kept::default();
    measure(work, &mut records, &mut bench, &stop, &mut kept).expect("nothing stops it");
    assert_eq!(kept.last.as_ref(), Some(&records), "the last run is kept");
    let (done, all) = *kept.progress.last().expect("there was progress");
    assert!(done == all && kept.progress.is_sorted(), "{:?}", kept.progress);
    records
}

fn sorted(mut records: Records) -> Records {
    for record in records.functions.values_mut() {
        record.samples.sort_by(|a, b| (a.pass, &a.competitors).cmp(&(b.pass, &b.competitors)));
    }
    records
}

proptest! {
    /// For any interruptions, no run is lost or performed twice, and the final records are the same.
    #[test]
    fn an_interrupted_measurement_is_continued(
        stops in prop::collection::vec((0usize..40, any::<bool>()), 0..6),
        cores in 1usize..4,
        passes in 1usize..4,
    ) {
        let subjects = subjects(&["a", "bb", "ccc", "dddd"]);
        let demands = crate::synthetic::levels(1 << 14, 1 << 18);
        let work = Work { subjects: &subjects, demands: &demands, cores, passes };
        let whole = all_at_once(&work, 0);
        let (mut records, mut runs) = (empty(), 0);
        for stops in stops {
            let stop = AtomicBool::new(false);
            let mut bench = Stopping(MadeUp { stops: Some(stops), ..MadeUp::default() }, &stop);
            let mut kept = Kept { last: Some(records.clone()), ..Kept::default() };
            let before = records.clone();
            let ended = measure(&work, &mut records, &mut bench, &stop, &mut kept);
            let made: usize = records.functions.values().map(|it| it.samples.len()).sum();
            runs += bench.0.runs;
            prop_assert_eq!(made, runs, "no run is made twice");
            prop_assert!(kept.last == Some(records.clone()) || records == before, "all runs are saved");
            prop_assert!(bench.0.function.is_none(), "the function has ended");
            prop_assert_eq!(ended.is_err(), stop.load(Ordering::Relaxed) && made < work.passes * made_in_a_pass(&work));
        }
        let stop = AtomicBool::new(false);
        let mut bench = Stopping(MadeUp::default(), &stop);
        measure(&work, &mut records, &mut bench, &stop, &mut Kept::default()).expect("nothing stops it");
        prop_assert_eq!(sorted(records), sorted(whole));
    }
}

fn made_in_a_pass(work: &Work<'_>) -> usize {
    let keys: Vec<_> = work.subjects.iter().map(|subject| subject.key.clone()).collect();
    crate::plan::runs(&keys, work.demands, work.cores, 1)
}

#[test]
fn void_runs_are_counted_and_repeated_later() {
    let subjects = subjects(&["a", "bb"]);
    let demands = crate::synthetic::levels(1 << 14, 1 << 18);
    let work = Work { subjects: &subjects, demands: &demands, cores: 1, passes: 2 };
    let records = all_at_once(&work, 5);
    let void: usize = records.functions.values().map(|record| record.void.runs).sum();
    let valid: usize = records.functions.values().map(|record| record.samples.len()).sum();
    assert_eq!((void, valid + void), (work.passes * made_in_a_pass(&work) / 5, work.passes * made_in_a_pass(&work)));
    assert_eq!(records.unavailable["stalls"], "there are no counters");
    let (mut again, stop) = (records, AtomicBool::new(false));
    let mut bench = Stopping(MadeUp::default(), &stop);
    measure(&work, &mut again, &mut bench, &stop, &mut Kept::default()).expect("nothing stops it");
    assert_eq!(bench.0.runs, void);
}

#[test]
fn a_function_that_cannot_run_leaves_the_others() {
    let subjects = subjects(&["a", "broken", "ccc"]);
    let demands = crate::synthetic::levels(1 << 14, 1 << 18);
    let work = Work { subjects: &subjects, demands: &demands, cores: 1, passes: 2 };
    let (mut records, stop) = (empty(), AtomicBool::new(false));
    let mut bench = Stopping(MadeUp::default(), &stop);
    let failed = measure(&work, &mut records, &mut bench, &stop, &mut Kept::default()).expect("nothing stops it");
    assert_eq!(failed, [("broken".to_owned(), "it has no port".to_owned())]);
    assert_eq!(records.functions.keys().collect::<Vec<_>>(), ["a", "ccc"]);
}
