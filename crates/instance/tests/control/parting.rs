//! Tests that flows that cannot share a worker are separated while packets flow, and merged again, without lost or
//! reordered packets.

use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use forebay_control::{Log, Profiled, Settings, recording::Period};
use forebay_graph::{Cost, RunToCompletion, drive::shut_down_team};
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
use crate::responses::Responses;

/// The time limit of a step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const HEAVY: [u16; 2] = [5_001, 5_003];
const TIGHT: [u16; 2] = [5_000, 5_002];

/// Returns a small mobile gateway: two users with an objective on one bearer, and two directions of another bearer with
/// slow modules.
fn text(heavy: &str, control: &str) -> String {
    format!(
        "name: bearers
ports:
  tight: {{ pcap: {{ read: tight.pcap }} }}
  bulk: {{ pcap: {{ read: bulk.pcap }} }}
  out: {{ pcap: {{ write: out.pcap }} }}
modules:
  users:
    exact_match:
      fields: [udp.dport]
      rules:
        - {{ values: [5000], gate: 0 }}
        - {{ values: [5001], gate: 1 }}
        - {{ values: [5002], gate: 2 }}
        - {{ values: [5003], gate: 3 }}
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

/// Writes the captures for the pipeline. Returns the number of packets of each UDP port.
fn streams(tight: (u64, u64), bulk: (u64, u64), folder: &Path) -> Vec<(u16, u64)> {
    let stream = |(every_us, until_ms): (u64, u64)| move |port| Stream { port, sessions: 4, every_us, until_ms };
    let (tight, bulk) = (TIGHT.map(stream(tight)), HEAVY.map(stream(bulk)));
    write(&folder.join("tight.pcap"), &tight);
    write(&folder.join("bulk.pcap"), &bulk);
    tight.iter().chain(&bulk).map(|stream| (stream.port, stream.count())).collect()
}

/// The periods of each layout.
type Shapes = Vec<(Layout, Vec<Period>)>;

/// The recorded snapshots and decisions.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Shapes>>);

impl Log for Seen {
    fn begin(&mut self, _: &Settings, layout: &Layout) {
        self.0.lock().expect("no thread panicked").push((layout.clone(), Vec::new()));
    }

    fn period(&mut self, snapshot: &Snapshot, actions: &Decision) {
        let period = Period { snapshot: snapshot.clone(), actions: actions.clone() };
        self.0.lock().expect("no thread panicked").last_mut().expect("it has begun").1.push(period);
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

    /// Returns the longest 99th percentile of a flow with an objective in each period, in microseconds.
    fn p99(&self, shape: usize) -> Vec<f64> {
        let (layout, periods) = &self.seen[shape];
        let of = |period: &Period| {
            let flows = layout.flows.iter().zip(&period.snapshot.flows).filter(|(flow, _)| flow.slo_s.is_some());
            flows.filter_map(|(_, sample)| Some(sample.delay_s?.p99 * 1e6)).fold(0.0, f64::max)
        };
        periods.iter().map(of).collect()
    }
}

/// Creates the pipeline in simulated time, and its log. Slow modules take `heavy` nanoseconds per call and per packet.
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

/// Returns the report about all decisions so far.
fn decided(team: &SimulatedTeam<RunToCompletion>) -> ControlReport {
    let report = team.board.report(&team.board.nothing(), &team.board.read(team.workers[0].clock().now()));
    report.control.expect("a controller")
}

/// Runs the pipeline for `millis` milliseconds, and counts all packets each millisecond. Slow modules take `heavy`
/// nanoseconds per call and per packet.
fn simulate(folder: &Path, control: &str, heavy: (u64, u64), millis: u64) -> Run {
    let run = simulate_overloaded(folder, control, heavy, millis);
    assert_eq!(run.report.packets.all_dropped(), 0);
    run
}

/// Does the same as [`simulate`], but allows drops at full rings.
fn simulate_overloaded(folder: &Path, control: &str, heavy: (u64, u64), millis: u64) -> Run {
    let (mut team, seen) = team(folder, control, heavy);
    for at_ms in 1..=millis {
        team.run(Ticks(at_ms * 1_000_000));
        let now = team.workers.iter_mut().map(|worker| (worker.census(), worker.clock().now()).1).max();
        let report = team.board.report(&team.board.nothing(), &team.board.read(now.expect("a worker")));
        assert_eq!(report.packets.missing(), 0, "at {at_ms} ms: {:?}", report.packets);
    }
    assert!(shut_down_team(&mut team.workers).is_empty());
    let report = team.board.report(&team.board.nothing(), &team.board.read(team.workers[0].clock().now()));
    assert_eq!((report.packets.missing(), report.packets.queued), (0, 0));
    let seen = std::mem::take(&mut *seen.0.lock().expect("no thread panicked"));
    Run { seen, report }
}

/// The paper's cost: 250 000 cycles a call and 50 000 a packet, at 2.4 GHz.
const PAPERS: (u64, u64) = (104_167, 20_833);

#[test]
fn flows_are_separated_and_merged_without_loss_or_reordering() {
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let sent = streams((20, 400), (60, 150), folder.path());
    let run = simulate(folder.path(), "{ batching: optimal, period: 5ms, workers: 2 }", PAPERS, 400);
    assert_eq!(left_in_order(&folder.path().join("out.pcap")), sent.into_iter().collect());
    for moved in run.moves() {
        let mut modules = moved.modules.clone();
        modules.sort();
        assert_eq!(modules, ["after1", "heavy1", "heavy3"]);
    }
    let moves: Vec<_> = run.moves().iter().map(|moved| (moved.why, moved.from, moved.to)).collect();
    assert_eq!(moves, [(MoveReason::Apart, 0, 1), (MoveReason::Together, 1, 0)]);
    // Before the move, packets are late. They are in time from the third period after it, because the first periods
    // have too few packets.
    let before = run.p99(0);
    assert!(before.iter().rev().take(3).all(|p99| *p99 > 1_000.0), "{before:?}");
    for shape in [1, 2] {
        let after = run.p99(shape);
        assert!(after[2..].iter().all(|p99| *p99 < 1_000.0), "{after:?}");
    }
    // The log has the workers of modules after each move.
    let workers: Vec<_> = run.seen.iter().map(|(layout, _)| layout.workers).collect();
    assert_eq!(workers, [1, 2, 1]);
    let on = |shape: usize, name: &str| {
        let module = run.seen[shape].0.modules.iter().find(|module| module.name == name).expect("a module");
        module.workers.clone()
    };
    // Modules of both groups of flows are on both workers. The others have not moved.
    assert_eq!((on(1, "users"), on(1, "heavy1"), on(1, "sum")), (vec![0], vec![1], vec![0, 1]));
    assert_eq!((on(2, "heavy1"), on(2, "sum")), (vec![0], vec![0]));
    // Counters continue on the other worker.
    let counted = |name: &str| {
        let module = run.report.modules.iter().find(|module| module.name == name).expect("a module");
        module.packets
    };
    assert_eq!((counted("after1"), counted("quick0")), (150_000 / 60, 400_000 / 20));
}

/// Regression: when the ring to the new worker was full, its packets blocked all others, because the first worker read
/// no port.
#[test]
fn packets_beyond_the_capacity_of_the_new_worker_are_dropped() {
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
fn without_further_workers_no_module_moves() {
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    streams((20, 60), (60, 60), folder.path());
    let run = simulate(folder.path(), "{ batching: optimal, period: 5ms }", PAPERS, 60);
    assert_eq!(run.moves(), []);
    assert!(run.p99(0).iter().rev().skip(2).take(3).all(|p99| *p99 > 1_000.0));
}

/// Regression: the reason was reported for one period only.
#[test]
fn the_reason_why_modules_do_not_move_is_reported_until_they_do() {
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    streams((20, 600), (60, 600), folder.path());
    let (mut team, _) = team(folder.path(), "{ batching: optimal, period: 5ms, workers: 2 }", PAPERS);
    // The file has the same packets, but another time of modification.
    let bulk = std::fs::File::options().append(true).open(folder.path().join("bulk.pcap")).expect("it was written");
    let written = bulk.metadata().and_then(|file| file.modified()).expect("a file");
    bulk.set_modified(SystemTime::UNIX_EPOCH).expect("the file is ours");
    let mut reasons: Vec<Option<String>> = Vec::new();
    for at_ms in 1..=300 {
        team.run(Ticks(at_ms * 1_000_000));
        reasons.push(decided(&team).unmoved);
    }
    let first = reasons.iter().position(Option::is_some).expect("a move is tried");
    let is_changed = |reason: &Option<String>| {
        reason.as_ref().is_some_and(|reason| reason.contains("'bulk' reads a file that has changed since"))
    };
    assert!(first < 100 && reasons[first..].iter().all(is_changed), "{reasons:?}");
    bulk.set_modified(written).expect("the file is ours");
    let moved = (301..=600).find(|at_ms| {
        team.run(Ticks(at_ms * 1_000_000));
        let now = decided(&team);
        assert_eq!(now.unmoved.is_none(), now.moves.len() == 1, "{now:?}");
        now.unmoved.is_none()
    });
    assert!(moved.is_some(), "modules move when it is possible");
    assert!(shut_down_team(&mut team.workers).is_empty());
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

/// Slow modules with costs from well below to well above the limit: a decision stays in force.
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
fn flows_are_separated_and_merged_on_threads() {
    if allowed_cores().len() < 2 {
        let _ = writeln!(std::io::stderr(), "skipped: flows_are_separated_and_merged_on_threads: one core");
        return;
    }
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let sent = streams((200, 4_000), (400, 2_000), folder.path());
    // 1.5 ms for a full batch.
    let cycles = (Tsc.frequency().hertz() * 1.5e-3) as u64;
    let heavy = format!("{{ cycles_per_batch: {cycles} }}");
    let control = "{ batching: optimal, period: 20ms, workers: 2 }";
    // On a busy machine the rings to the slow modules fill. Modules that have moved drop packets then, unless they are
    // configured to wait.
    let shares = "shares: { heavy1: { when_full: wait }, heavy3: { when_full: wait } }\n";
    let source = Source::new(text(&heavy, control) + shares, "bearers.yaml", folder.path());
    let conditions = Conditions { frequency: Tsc.frequency(), simulated: false };
    let Loaded { plans, cores, made, .. } = load(&source, conditions).unwrap_or_else(|problems| panic!("{problems}"));
    // The costs of slow modules are given. On a busy machine, learning them from few calls takes longer than the
    // captures.
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
    let mut responses = Responses::with_late(10);
    for moves in [1, 2] {
        while control().moves.len() < moves {
            assert!(begin.elapsed() < PATIENCE, "{:?}", control());
            let census = responses.census(&*instance);
            assert_eq!((census.missing(), census.dropped), (0, 0), "{census:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(instance.workers(), 3 - moves);
    }
    let moves: Vec<_> = control().moves.iter().map(|moved| (moved.why, moved.from, moved.to)).collect();
    assert_eq!(moves, [(MoveReason::Apart, 0, 1), (MoveReason::Together, 1, 0)]);
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
