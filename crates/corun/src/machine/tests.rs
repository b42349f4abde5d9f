//! Tests short co-runs on this machine. They check counts and structure, not speed.

use std::io::Write as _;

use forebay_bench::profile::Key;
use forebay_functions as _;
use forebay_ports as _;

use super::*;
use crate::record::Records;
use crate::session::{Interrupted, Observer, Progress, Work, measure};

struct Quiet;

impl Observer for Quiet {
    fn at(&mut self, _: Progress<'_>) {}

    fn keep(&mut self, _: &Records) {}
}

/// Tests that start workers hold this lock, so that a test can count its own workers' threads.
static ALONE: Mutex<()> = Mutex::new(());

/// Returns the number of workers' threads in this process.
fn worker_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("procfs");
    // A thread may end before its name is read.
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("worker-")).count()
}

/// Returns the cores for a measurement. Prints the reason if this machine has too few.
fn seats_here() -> Option<Seats> {
    let print = |error: &SeatsError| drop(writeln!(std::io::stderr(), "skipped: {error}"));
    seats(&Tree::default()).inspect_err(print).ok()
}

#[test]
fn functions_run_beside_each_other_and_beside_synthetic_competitors() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(seats) = seats_here() else { return };
    let subjects: Vec<_> =
        ["ttl", "mac_swap"].map(|name| Subject::function(name, 32).expect("a function")).into_iter().collect();
    let demands = [Demand { bytes: 1 << 16, streamed: 0, pace: 100 }, Demand { bytes: 4096, streamed: 50, pace: 50 }];
    let stop = Arc::new(AtomicBool::new(false));
    let span = Duration::from_millis(2);
    let mut machine = Machine::new(seats.clone(), &subjects, &demands, 1 << 16, span, Arc::clone(&stop));
    let mut records = Records::empty(Key::this(32).expect("this program"), seats.clone(), 1e9);
    let work = Work { subjects: &subjects, demands: &demands, cores: seats.competitors.len(), passes: 1 };
    let failed = measure(&work, &mut records, &mut machine, &stop, &mut Quiet).expect("nothing stops it");
    assert_eq!(failed, []);
    let keys: Vec<_> = subjects.iter().map(|subject| subject.key.clone()).collect();
    let planned = crate::plan::runs(&keys, &demands, seats.competitors.len(), 1);
    let made: usize = records.functions.values().map(|it| it.samples.len() + it.void.runs).sum();
    assert_eq!((records.functions.len(), made), (2, planned));
    for sample in records.functions.values().flat_map(|record| &record.samples) {
        assert!(sample.before.packets > 0 && sample.beside.packets > 0 && sample.after.packets > 0, "{sample:?}");
        assert_eq!(sample.loads.len(), sample.competitors.len());
        for (competitor, load) in sample.competitors.iter().zip(&sample.loads) {
            let works = match competitor {
                Competitor::Function(_) => load.packets > 0.0 && load.walked == 0.0,
                Competitor::Synthetic(demand) => {
                    load.walked > 0.0 && (load.streamed > 0.0) == (demand.streamed > 0) && load.packets == 0.0
                }
            };
            assert!(works, "{competitor:?} {load:?}");
        }
    }
    // The records can be written and read again.
    let folder = tempfile::tempdir().expect("a folder");
    let key = Key::this(32).expect("this program");
    let file = Records::file(folder.path(), &key);
    assert!(Records::read(&file, &key).is_ok_and(|none| none.is_none()));
    records.write(&file).expect("a folder of our own");
    let again = Records::read(&file, &key).unwrap_or_else(|error| panic!("{error}")).expect("it was written");
    assert!(again.functions.keys().eq(records.functions.keys()));
    // A set stop flag ends the measurement before the next run.
    stop.store(true, Ordering::Relaxed);
    let mut none = Records::empty(key, seats, 1e9);
    assert_eq!(measure(&work, &mut none, &mut machine, &stop, &mut Quiet), Err(Interrupted));
    assert!(none.functions.is_empty());
}

/// Regression test: the function continued to run.
#[test]
fn a_function_whose_warm_up_is_interrupted_ends() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(seats) = seats_here() else { return };
    let subject = Subject::function("ttl", 32).expect("a function");
    // A running function is visible among the threads.
    let running = start(&subject, seats.subject).expect("it starts");
    assert!(worker_threads() > 0);
    assert_eq!(running.end(), Ok(()));
    let stop = Arc::new(AtomicBool::new(true));
    let span = Duration::from_millis(2);
    let mut machine = Machine::new(seats, std::slice::from_ref(&subject), &[], 1 << 16, span, stop);
    assert_eq!(machine.begin(&subject), Err(Trouble::Interrupted));
    assert!(machine.running.is_none());
    // An ended thread may exist for a moment longer.
    let begin = Instant::now();
    while worker_threads() > 0 {
        assert!(begin.elapsed() < Duration::from_secs(10), "the function's thread ends");
        std::thread::sleep(Duration::from_millis(10));
    }
}
