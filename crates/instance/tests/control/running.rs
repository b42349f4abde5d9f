//! Tests the controller of a pipeline in real time: it decides, follows reloads, and ends.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay_control::{Log, Settings};
use forebay_instance::{ControlInputs, Instance, choose, start};
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::{Conditions, Loaded, Source, load, usecase};
use forebay_protocol::{Decision, Layout, Snapshot};

/// The time limit of a step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The log of a controller: the name of the controller and the number of modules of each begin, and the number of
/// periods since.
#[derive(Clone, Default)]
struct Recorded(Arc<Mutex<Vec<(String, usize, u64)>>>);

impl Log for Recorded {
    fn begin(&mut self, settings: &Settings, layout: &Layout) {
        let begin = (settings.controller.name.to_owned(), layout.modules.len(), 0);
        self.0.lock().expect("no thread panicked").push(begin);
    }

    fn period(&mut self, snapshot: &Snapshot, _: &Decision) {
        let mut all = self.0.lock().expect("no thread panicked");
        let (_, modules, periods) = all.last_mut().expect("it has begun");
        assert_eq!(snapshot.modules.len(), *modules, "the snapshot is of the present pipeline");
        *periods += 1;
    }
}

impl Recorded {
    fn last(&self) -> Option<(String, usize, u64)> {
        self.0.lock().expect("no thread panicked").last().cloned()
    }
}

fn until<T>(what: &str, mut is: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = is() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn gateway(hops: usize, control: &[&str]) -> Source {
    let sets = [format!("n={hops}"), "rate=200kpps".to_owned(), "slo=5ms".to_owned(), "fold=off".to_owned()];
    let sets: Vec<_> = sets.into_iter().chain(control.iter().map(|set| (*set).to_owned())).collect();
    usecase("gw", &sets).unwrap_or_else(|problems| panic!("{problems}"))
}

fn run(source: &Source, log: &Recorded) -> Arc<dyn Instance> {
    let conditions = Conditions { frequency: Tsc.frequency(), simulated: false };
    let Loaded { plans, cores, made, .. } = load(source, conditions).unwrap_or_else(|problems| panic!("{problems}"));
    let cores = choose(&cores).expect("a core");
    let control_inputs = ControlInputs { log: Some(Box::new(log.clone())), ..ControlInputs::default() };
    start(plans, &cores, made, Box::new(|_| None), control_inputs).expect("it starts")
}

fn reload(instance: &dyn Instance, source: &Source) {
    let reloaded = instance.reload(source, &mut || Ok(())).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(reloaded.missing, 0);
}

#[test]
fn a_controller_follows_reloads() {
    let log = Recorded::default();
    let instance = run(&gateway(4, &["control.batching=optimal", "control.period=5ms"]), &log);
    let decides =
        |modules: usize| until("it decides", || log.last().filter(|(_, of, periods)| *of == modules && *periods > 10));
    assert_eq!(decides(3 + 5 * 4).0, "optimal");
    // After each reload with another layout, a new decider starts.
    for hops in [6, 2, 4] {
        reload(&*instance, &gateway(hops, &["control.batching=max", "control.period=5ms"]));
        assert_eq!(decides(3 + 5 * hops).0, "max");
        let board = instance.board();
        let report = until("triggers are set", || {
            let report = board.report(&board.nothing(), &board.read(Tsc.now()));
            report.modules.iter().all(|module| module.trigger == 32).then_some(report)
        });
        let control = report.control.expect("a controller");
        assert_eq!((control.controller.as_str(), control.trouble), ("max", None));
        assert!(control.took_us.is_some() && !control.changes.is_empty());
    }
    // Without a controller its triggers are removed, and no trigger is set.
    reload(&*instance, &gateway(4, &[]));
    let board = instance.board();
    let report = board.report(&board.nothing(), &board.read(Tsc.now()));
    assert!(report.control.is_none() && report.modules.iter().all(|module| module.trigger == 0));
    let before = log.last();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(log.last(), before);
    let outcome = instance.end();
    assert!(outcome.troubles.is_empty(), "{:?}", outcome.troubles);
    let report = board.report(&board.nothing(), &board.read(outcome.at));
    assert_eq!((report.packets.missing(), report.packets.queued), (0, 0));
}

#[test]
fn a_reload_may_add_a_controller() {
    let log = Recorded::default();
    let instance = run(&gateway(4, &[]), &log);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(log.last(), None);
    reload(&*instance, &gateway(4, &["control.batching={static: {trigger: 8}}", "control.period=5ms"]));
    until("it decides", || log.last().filter(|(name, _, periods)| name == "static" && *periods > 2));
    instance.end();
    let ended = log.last();
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(log.last(), ended, "it has ended with the run");
}

/// Regression: the recording of a run that ended within a few milliseconds was empty.
#[test]
fn the_log_begins_however_soon_a_run_ends() {
    let log = Recorded::default();
    let instance = run(&gateway(2, &["control.batching=optimal", "control.period=10s"]), &log);
    let began = log.last();
    instance.end();
    assert_eq!(began.map(|(controller, ..)| controller).as_deref(), Some("optimal"), "before packets run");
}
