//! The controller of a pipeline that runs by the machine's clock: it decides, follows changes of the configuration, and ends.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay_control::{Log, Settings};
use forebay_instance::{ControlInputs, Instance, choose, start};
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::{Conditions, Loaded, Source, load, usecase};
use forebay_protocol::{Decision, Layout, Snapshot};

/// How long something may take to come about on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a controller has said: the shapes that it began with, and how many periods there were since.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<(String, usize, u64)>>>);

impl Log for Said {
    fn begin(&mut self, settings: &Settings, layout: &Layout) {
        let told = (settings.controller.name.to_owned(), layout.modules.len(), 0);
        self.0.lock().expect("nobody panicked").push(told);
    }

    fn period(&mut self, snapshot: &Snapshot, _: &Decision) {
        let mut all = self.0.lock().expect("nobody panicked");
        let (_, modules, periods) = all.last_mut().expect("it has begun");
        assert_eq!(snapshot.modules.len(), *modules, "a snapshot of the pipeline that it decides for");
        *periods += 1;
    }
}

impl Said {
    fn last(&self) -> Option<(String, usize, u64)> {
        self.0.lock().expect("nobody panicked").last().cloned()
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

fn run(source: &Source, said: &Said) -> Arc<dyn Instance> {
    let conditions = Conditions { frequency: Tsc.frequency(), simulated: false };
    let Loaded { plans, cores, made, .. } = load(source, conditions).unwrap_or_else(|problems| panic!("{problems}"));
    let cores = choose(&cores).expect("a core");
    let control_inputs = ControlInputs { log: Some(Box::new(said.clone())), ..ControlInputs::default() };
    start(plans, &cores, made, Box::new(|_| None), control_inputs).expect("it starts")
}

fn reload(instance: &dyn Instance, source: &Source) {
    let told = instance.reload(source, &mut || Ok(())).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(told.missing, 0);
}

#[test]
fn a_controller_goes_on_with_the_configuration_that_is_in_force() {
    let said = Said::default();
    let instance = run(&gateway(4, &["control.batching=optimal", "control.period=5ms"]), &said);
    let decides =
        |modules: usize| until("it decides", || said.last().filter(|(_, of, periods)| *of == modules && *periods > 10));
    assert_eq!(decides(3 + 5 * 4).0, "optimal");
    // Another shape, twice, and back: each time it begins anew, for what runs.
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
    // Without a controller nothing is set any more, and its triggers are gone with it.
    reload(&*instance, &gateway(4, &[]));
    let board = instance.board();
    let report = board.report(&board.nothing(), &board.read(Tsc.now()));
    assert!(report.control.is_none() && report.modules.iter().all(|module| module.trigger == 0));
    let before = said.last();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(said.last(), before);
    let outcome = instance.end();
    assert!(outcome.troubles.is_empty(), "{:?}", outcome.troubles);
    let report = board.report(&board.nothing(), &board.read(outcome.at));
    assert_eq!((report.packets.missing(), report.packets.queued), (0, 0));
}

#[test]
fn a_controller_may_come_with_a_change() {
    let said = Said::default();
    let instance = run(&gateway(4, &[]), &said);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(said.last(), None);
    reload(&*instance, &gateway(4, &["control.batching={static: {trigger: 8}}", "control.period=5ms"]));
    until("it decides", || said.last().filter(|(name, _, periods)| name == "static" && *periods > 2));
    instance.end();
    let ended = said.last();
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(said.last(), ended, "it has ended with the run");
}

/// A recording was empty where a run ended within a few milliseconds.
#[test]
fn what_is_controlled_is_told_however_soon_a_run_ends() {
    let said = Said::default();
    let instance = run(&gateway(2, &["control.batching=optimal", "control.period=10s"]), &said);
    let began = said.last();
    instance.end();
    assert_eq!(began.map(|(controller, ..)| controller).as_deref(), Some("optimal"), "before packets run");
}
