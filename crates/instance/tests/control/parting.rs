//! Flows that cannot be together part while packets flow, and come together again: nothing is lost and nothing overtakes.

use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use forebay_control::{Log, Profiled, Settings, recording::Period};
use forebay_graph::{Cost, RunToCompletion, drive::wind_up_team};
use forebay_instance::{ControlInputs, SimulatedTeam, Simulation, choose, start};
use forebay_measure::{Clock, Tsc, machine::allowed_cores};
use forebay_models::batching::Line;
use forebay_pipeline::{Conditions, Loaded, Source, load};
use forebay_protocol::{
    Decision, Layout, Snapshot,
    report::{ControlReport, MoveReason, MoveReport, Report},
};
use forebay_units::Ticks;

use crate::numbered::{Stream, left_in_order, left_without_overtaking, write};

/// How long something may take to come about on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const HEAVY: [u16; 2] = [5_001, 5_003];
const TIGHT: [u16; 2] = [5_000, 5_002];

/// A mobile gateway in small: two users with an objective on one bearer, and two directions of another bearer whose modules are slow.
fn text(heavy: &str, control: &str) -> String {
    format!(
        "name: bearers
ports:
  tight: {{ pcap: {{ read: tight.pcap }} }}
  bulk: {{ pcap: {{ read: bulk.pcap }} }}
  out: {{ pcap: {{ write: out.pcap }} }}
modules:
  users: {{ exact_match: {{ fields: [udp.dport], rules: [{{ values: [5000], gate: 0 }}, {{ values: [5001], gate: 1 }}, {{ values: [5002], gate: 2 }}, {{ values: [5003], gate: 3 }}] }} }}
  quick0: {{ counter: }}
  quick2: {{ counter: }}
  heavy1: {{ bypass: {heavy} }}
  heavy3: {{ bypass: {heavy} }}
  after1: {{ counter: }}
  sum: {{ ip_checksum: }}
pipeline:
  - tight -> users
  - bulk -> users
  - users[0] -> quick0 -> sum
  - users[1] -> heavy1 -> after1 -> sum
  - users[2] -> quick2 -> sum
  - users[3] -> heavy3 -> sum
  - sum -> out
flows:
  - {{ name: first, path: 'users[0] -> quick0', slo: 1ms }}
  - {{ name: second, path: 'users[2] -> quick2', slo: 1ms }}
fold: off
control: {control}
"
    )
}

/// Traffic for the pipeline; slow packets come until `bulk_ms`.
fn streams(tight: (u64, u64), bulk: (u64, u64), folder: &Path) -> Vec<(u16, u64)> {
    let stream = |(every_us, until_ms): (u64, u64)| move |port| Stream { port, sessions: 4, every_us, until_ms };
    let (tight, bulk) = (TIGHT.map(stream(tight)), HEAVY.map(stream(bulk)));
    write(&folder.join("tight.pcap"), &tight);
    write(&folder.join("bulk.pcap"), &bulk);
    tight.iter().chain(&bulk).map(|stream| (stream.port, stream.count())).collect()
}

/// By shape, its periods.
type Shapes = Vec<(Layout, Vec<Period>)>;

/// What was seen and decided.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Shapes>>);

impl Log for Seen {
    fn begin(&mut self, _: &Settings, layout: &Layout) {
        self.0.lock().expect("nobody panicked").push((layout.clone(), Vec::new()));
    }

    fn period(&mut self, snapshot: &Snapshot, actions: &Decision) {
        let period = Period { snapshot: snapshot.clone(), actions: actions.clone() };
        self.0.lock().expect("nobody panicked").last_mut().expect("it has begun").1.push(period);
    }
}

/// A run in simulated time.
struct Run {
    seen: Shapes,
    report: Report,
}

impl Run {
    fn moves(&self) -> &[MoveReport] {
        &self.report.control.as_ref().expect("a controller").moves
    }

    /// The longest 99th percentile of a flow with an objective in each period, in microseconds.
    fn p99(&self, shape: usize) -> Vec<f64> {
        let (layout, periods) = &self.seen[shape];
        let of = |period: &Period| {
            let flows = layout.flows.iter().zip(&period.snapshot.flows).filter(|(flow, _)| flow.slo_s.is_some());
            flows.filter_map(|(_, told)| Some(told.delay_s?.p99 * 1e6)).fold(0.0, f64::max)
        };
        periods.iter().map(of).collect()
    }
}

/// The pipeline in simulated time, and what will be seen of it. Slow modules take `heavy` nanoseconds a call and a packet.
fn team(folder: &Path, control: &str, heavy: (u64, u64)) -> (SimulatedTeam<RunToCompletion>, Seen) {
    let source = Source::new(text("{}", control), "bearers.yaml", folder);
    let conditions = Conditions { frequency: Simulation::frequency(), simulated: true };
    let loaded = load(&source, conditions).unwrap_or_else(|problems| panic!("{problems}"));
    let (heavy, light) = (Cost { per_batch: heavy.0, per_packet: heavy.1 }, Cost { per_batch: 100, per_packet: 20 });
    let cost = |name: &str| if name.starts_with("heavy") { heavy } else { light };
    let costs: Vec<_> = loaded.plans[0].modules.iter().map(|module| cost(&module.name)).collect();
    let seen = Seen::default();
    let log = Some(Box::new(seen.clone()) as Box<dyn Log>);
    (SimulatedTeam::with_log(loaded.plans, &costs, Some(loaded.made), log).expect("a plan that runs"), seen)
}

/// What has been decided by now.
fn decided(team: &SimulatedTeam<RunToCompletion>) -> ControlReport {
    let report = team.board.report(&team.board.nothing(), &team.board.read(team.workers[0].clock().now()));
    report.control.expect("a controller")
}

/// Runs it for so long, looking at all packets each millisecond. Slow modules take `heavy` nanoseconds a call and a packet.
fn simulate(folder: &Path, control: &str, heavy: (u64, u64), millis: u64) -> Run {
    let run = simulate_overloaded(folder, control, heavy, millis);
    assert_eq!(run.report.packets.all_dropped(), 0);
    run
}

/// The same where packets may find the ring full.
fn simulate_overloaded(folder: &Path, control: &str, heavy: (u64, u64), millis: u64) -> Run {
    let (mut team, seen) = team(folder, control, heavy);
    for at in 1..=millis {
        team.run(Ticks(at * 1_000_000));
        let now = team.workers.iter_mut().map(|worker| (worker.census(), worker.clock().now()).1).max();
        let report = team.board.report(&team.board.nothing(), &team.board.read(now.expect("a worker")));
        assert_eq!(report.packets.missing(), 0, "at {at} ms: {:?}", report.packets);
    }
    assert!(wind_up_team(&mut team.workers).is_empty());
    let report = team.board.report(&team.board.nothing(), &team.board.read(team.workers[0].clock().now()));
    assert_eq!((report.packets.missing(), report.packets.queued), (0, 0));
    let seen = std::mem::take(&mut *seen.0.lock().expect("nobody panicked"));
    Run { seen, report }
}

/// The paper's cost: 250 000 cycles a call and 50 000 a packet, at 2.4 GHz.
const PAPERS: (u64, u64) = (104_167, 20_833);

#[test]
fn flows_part_and_come_together_and_nothing_is_lost_or_overtaken() {
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let sent = streams((20, 400), (60, 150), folder.path());
    let run = simulate(folder.path(), "{ batching: optimal, period: 5ms, workers: 2 }", PAPERS, 400);
    assert_eq!(left_in_order(&folder.path().join("out.pcap")), sent.into_iter().collect());
    for moved in run.moves() {
        let mut modules = moved.modules.clone();
        modules.sort();
        assert_eq!(modules, ["after1", "heavy1", "heavy3"]);
    }
    let ways: Vec<_> = run.moves().iter().map(|moved| (moved.why, moved.from, moved.to)).collect();
    assert_eq!(ways, [(MoveReason::Apart, 0, 1), (MoveReason::Together, 1, 0)]);
    // Late before; in time from the second period on, and for good: what is told of that one is of the first, too, which has too few
    // packets to tell.
    let before = run.p99(0);
    assert!(before.iter().rev().take(3).all(|p99| *p99 > 1_000.0), "{before:?}");
    for shape in [1, 2] {
        let after = run.p99(shape);
        assert!(after[2..].iter().all(|p99| *p99 < 1_000.0), "{after:?}");
    }
    // The controller has been told where modules are, and of each move.
    let workers: Vec<_> = run.seen.iter().map(|(layout, _)| layout.workers).collect();
    assert_eq!(workers, [1, 2, 1]);
    let on = |shape: usize, name: &str| {
        let module = run.seen[shape].0.modules.iter().find(|module| module.name == name).expect("it is there");
        module.workers.clone()
    };
    // What both ways pass is on both workers; what stays has not moved.
    assert_eq!((on(1, "users"), on(1, "heavy1"), on(1, "sum")), (vec![0], vec![1], vec![0, 1]));
    assert_eq!((on(2, "heavy1"), on(2, "sum")), (vec![0], vec![0]));
    // Counters go on from worker to worker.
    let counted = |name: &str| {
        let module = run.report.modules.iter().find(|module| module.name == name).expect("it is there");
        module.packets
    };
    assert_eq!((counted("after1"), counted("quick0")), (150_000 / 60, 400_000 / 20));
}

/// The ring to the new worker was full, and its packets held up all others: the first worker read no port meanwhile.
#[test]
fn more_than_the_new_worker_can_do_is_dropped_and_the_others_go_on() {
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let sent: std::collections::BTreeMap<_, _> = streams((20, 400), (5, 400), folder.path()).into_iter().collect();
    let run = simulate_overloaded(folder.path(), "{ batching: optimal, period: 5ms, workers: 2 }", PAPERS, 2_000);
    assert_eq!(run.moves().iter().map(|moved| moved.why).next(), Some(MoveReason::Apart));
    let left = left_without_overtaking(&folder.path().join("out.pcap"), &HEAVY);
    for port in TIGHT {
        assert_eq!(left[&port], sent[&port], "none of {port} is lost");
    }
    let lost: u64 = HEAVY.iter().map(|port| sent[port] - left[port]).sum();
    let dropped = &run.report.packets.dropped;
    assert!(
        dropped.keys().all(|reason| ["heavy1.backpressure", "heavy3.backpressure"].contains(&&reason[..])),
        "{dropped:?}"
    );
    assert_eq!((dropped.values().sum::<u64>(), lost > 10_000), (lost, true), "{dropped:?}");
    let after = run.p99(1);
    assert!(after.len() > 10 && after[2..].iter().all(|p99| *p99 < 1_000.0), "{after:?}");
}

#[test]
fn without_leave_nothing_moves() {
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    streams((20, 60), (60, 60), folder.path());
    let run = simulate(folder.path(), "{ batching: optimal, period: 5ms }", PAPERS, 60);
    assert_eq!(run.moves(), []);
    assert!(run.p99(0).iter().rev().skip(2).take(3).all(|p99| *p99 > 1_000.0));
}

/// The reason was there for one period, and gone in the next.
#[test]
fn why_nothing_moves_is_told_until_it_does() {
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    streams((20, 600), (60, 600), folder.path());
    let (mut team, _) = team(folder.path(), "{ batching: optimal, period: 5ms, workers: 2 }", PAPERS);
    // The same packets still, but who knows.
    let bulk = std::fs::File::options().append(true).open(folder.path().join("bulk.pcap")).expect("it was written");
    let written = bulk.metadata().and_then(|told| told.modified()).expect("a file");
    bulk.set_modified(SystemTime::UNIX_EPOCH).expect("its owner may");
    let mut told: Vec<Option<String>> = Vec::new();
    for at in 1..=300 {
        team.run(Ticks(at * 1_000_000));
        told.push(decided(&team).unmoved);
    }
    let first = told.iter().position(Option::is_some).expect("it is tried");
    let why =
        |told: &Option<String>| told.as_ref().is_some_and(|why| why.contains("'bulk' reads a file that was changed"));
    assert!(first < 100 && told[first..].iter().all(why), "{told:?}");
    bulk.set_modified(written).expect("its owner may");
    let moved = (301..=600).find(|at| {
        team.run(Ticks(at * 1_000_000));
        let now = decided(&team);
        assert_eq!(now.unmoved.is_none(), now.moves.len() == 1, "{now:?}");
        now.unmoved.is_none()
    });
    assert!(moved.is_some(), "it moves once it can");
    assert!(wind_up_team(&mut team.workers).is_empty());
}

#[test]
fn every_run_is_the_same() {
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    streams((20, 150), (60, 60), folder.path());
    let run = || simulate(folder.path(), "{ batching: optimal, period: 5ms, workers: 3 }", PAPERS, 150);
    let (one, other) = (run(), run());
    assert_eq!(one.seen, other.seen);
    assert_eq!(one.moves(), other.moves());
    assert!(!one.moves().is_empty());
}

/// Slow modules from well below what can be kept to well above: what has been decided stays.
#[test]
fn a_load_near_the_limit_does_not_flap() {
    let mut moves = Vec::new();
    for per_packet in [2_000, 6_000, 10_000, 14_000, 17_000, 19_000, 21_000] {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        streams((40, 1_000), (60, 1_000), folder.path());
        let cost = (100_000, per_packet);
        let run = simulate(folder.path(), "{ batching: optimal, period: 5ms, workers: 2 }", cost, 1_000);
        moves.push(run.moves().len());
    }
    assert!(moves.is_sorted() && moves[0] == 0 && moves.last() == Some(&1), "{moves:?}");
}

#[test]
fn flows_part_and_come_together_while_threads_run() {
    if allowed_cores().len() < 2 {
        let _ = writeln!(std::io::stderr(), "skipped: flows_part_and_come_together_while_threads_run: one core");
        return;
    }
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let sent = streams((200, 4_000), (400, 2_000), folder.path());
    // A millisecond and a half for a full batch, whatever the clock's rate.
    let cycles = (Tsc.frequency().hertz() * 1.5e-3) as u64;
    let heavy = format!("{{ cycles_per_batch: {cycles} }}");
    let control = "{ batching: optimal, period: 20ms, workers: 2 }";
    // Beside busy processes the rings to the slow modules fill. Modules that have been moved drop then, unless they are
    // to wait.
    let shares = "shares: { heavy1: { when_full: wait }, heavy3: { when_full: wait } }\n";
    let source = Source::new(text(&heavy, control) + shares, "bearers.yaml", folder.path());
    let conditions = Conditions { frequency: Tsc.frequency(), simulated: false };
    let Loaded { plans, cores, made, .. } = load(&source, conditions).unwrap_or_else(|problems| panic!("{problems}"));
    // What slow modules take is known: to learn it from few calls takes longer on a busy machine than there are packets.
    let line = Line { fixed: 1.5e-3, each: 0.0 };
    let costs = [("bypass".to_owned(), Profiled { line, dispatch: 0.0 })].into();
    let control_inputs = ControlInputs { costs, ..ControlInputs::default() };
    let instance =
        start(plans, choose(&cores).expect("a core"), made, Box::new(|_| None), control_inputs).expect("it starts");
    let board = instance.board();
    let control = || {
        let report = board.report(&board.nothing(), &board.read(Tsc.now()));
        report.control.expect("a controller")
    };
    let begin = Instant::now();
    for moves in [1, 2] {
        while control().moves.len() < moves {
            assert!(begin.elapsed() < PATIENCE, "{:?}", control());
            let census = instance.census().expect("every worker answers");
            assert_eq!((census.missing(), census.dropped), (0, 0), "{census:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(instance.workers(), 3 - moves);
    }
    let told: Vec<_> = control().moves.iter().map(|moved| (moved.why, moved.from, moved.to)).collect();
    assert_eq!(told, [(MoveReason::Apart, 0, 1), (MoveReason::Together, 1, 0)]);
    while !board.is_quiet() {
        assert!(begin.elapsed() < PATIENCE, "the captures end");
        std::thread::sleep(Duration::from_millis(5));
    }
    let outcome = instance.end();
    assert!(outcome.troubles.is_empty(), "{:?}", outcome.troubles);
    let report = board.report(&board.nothing(), &board.read(outcome.at));
    assert_eq!((report.packets.missing(), report.packets.queued, report.packets.all_dropped()), (0, 0, 0));
    assert_eq!(left_in_order(&folder.path().join("out.pcap")), sent.into_iter().collect());
}
