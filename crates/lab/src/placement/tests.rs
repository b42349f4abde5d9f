//! Tests an interrupted run and its continuation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// A progress that stops after a number of steps.
struct StopAfter {
    steps: usize,
    stop: Arc<AtomicBool>,
}

impl StopAfter {
    fn of(steps: usize) -> Self {
        Self { steps, stop: Arc::default() }
    }
}

impl Progress for StopAfter {
    fn begin(&mut self, _: usize) {}

    fn step(&mut self, _: &str) {
        match self.steps.checked_sub(1) {
            Some(fewer) => self.steps = fewer,
            None => self.stop.store(true, Ordering::Relaxed),
        }
    }

    fn stop(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }
}

/// A run is interrupted in its second part and continued. The first part is taken from the interrupted run, and the
/// second part is run.
#[test]
fn an_interrupted_run_is_continued() {
    let folder = tempfile::tempdir().expect("a folder");
    let settings = PlacementSettings { short: true, only: [PlacementPart::Order, PlacementPart::Gain].into(), seed: 3 };
    // 14 steps of the models, 4 of the first part, 2 of the second.
    let first = run(&settings, None, &mut StopAfter::of(20)).expect("a run");
    assert_eq!((first.interrupted.as_deref(), first.order.len(), first.gain.len()), (Some("order"), 4, 0));
    write(&first, folder.path()).expect("space");
    let other = PlacementSettings { seed: 4, ..settings.clone() };
    assert!(Earlier::read(folder.path(), &other).is_none(), "a run with another seed is not continued");
    let mut earlier = Earlier::read(folder.path(), &settings).expect("an interrupted run");
    assert_eq!(earlier.parts(), ["order"]);
    // A mark that a new run would not set.
    earlier.order[0].name = "as it was".to_owned();
    let second = run(&settings, Some(earlier), &mut StopAfter::of(usize::MAX)).expect("a run");
    assert_eq!((second.interrupted.as_deref(), second.order[0].name.as_str()), (None, "as it was"));
    assert_eq!((second.gain.len(), &second.models), (6, &first.models), "the same seed gives the same models");
    write(&second, folder.path()).expect("space");
    assert!(Earlier::read(folder.path(), &settings).is_none(), "a complete run is not continued");
    let never = run(&settings, None, &mut StopAfter::of(3)).expect("a run");
    assert!(never.models.is_none() && never.interrupted.as_deref() == Some("no parts"));
    let names = write(&never, folder.path()).expect("space").len();
    assert_eq!(names, 2, "the page and the results");
}
