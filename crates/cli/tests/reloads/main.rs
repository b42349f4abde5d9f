//! Consecutive reloads under load. Sessions of unchanged parts continue. State of removed parts is counted, reported
//! and discarded. Memory, open files and threads do not grow.
//!
//! `FOREBAY_RELOADS` is the number of reloads (`make soak`: 1 000).

#[path = "../crowd/echo.rs"]
mod echo;
#[path = "../../../instance/tests/census/responses.rs"]
mod responses;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use forebay_instance::{
    Instance, choose,
    socket::{About, Bound, Patience, Server, Service},
    start,
};
use forebay_measure::{Clock, Tsc, machine::allowed_cores};
use forebay_pipeline::{Conditions, Loaded, Source, load};
use forebay_protocol::{Client, ConfigurationChange, Reloaded, Request, Response, report::Report};

use responses::Responses;

/// Sessions of the part that no reload changes.
const SESSIONS: u64 = 500;
/// Lets one test run at a time: each measures the resources of the process.
static ALONE: Mutex<()> = Mutex::new(());
/// After this number of reloads the configuration repeats, except for its state with sessions.
const ROUND: u64 = 40;

/// Returns the configuration after `reload` reloads. One part keeps its sessions, on whichever worker it runs. In the
/// other part something is replaced each time. No state with sessions ever repeats: if its tables were kept, memory
/// would grow.
fn configuration(reload: u64, workers: usize) -> String {
    let (strangers, users) = (20_000 + reload / 2, 1 + reload / 3);
    let reload = reload % ROUND;
    let mut text = format!(
        "name: reloads
pool: {{ chunks: 4096, frame: 256 }}
ports:
  clients: {{ generator: {{ rate: 40kpps, sessions: {SESSIONS}, source: 10.0.0.0/8, destination: 192.0.2.10/32, \
      destination_port: 80 }} }}
  others: {{ generator: {{ rate: {}kpps, sessions: 200, source: 10.128.0.0/9, destination: [198.51.100.0/25, \
      198.51.100.128/25] }} }}
  network: {{ generator: {{ rate: 5kpps, source: 198.51.100.0/24, destination: 10.60.0.1/32 }} }}
  out: {{ sink: }}
state:
  known: {{ connections: {{ sessions: 4096 }} }}
  web: {{ balancer: {{ sessions: 4096, services: [{{ address: 192.0.2.10, protocol: udp, port: 80, \
      backends: [{{ address: 10.9.0.1 }}, {{ address: 10.9.0.2 }}] }}] }} }}
  nat1: {{ nat: {{ pool: 203.0.112.0/24, sessions: 4096 }} }}
  strangers: {{ connections: {{ sessions: {strangers} }} }}
  users: {{ pdu_sessions: {{ limit: 16384, sessions: ['10.60.0.1 teid={users} peer=192.0.2.10 peer-teid=1'] }} }}
modules:
  fw-out: {{ firewall: {{ state: known, rules: ['@10.0.0.0/8 0.0.0.0/0 0 : 65535 80 : 80 0x11/0xff permit'] }} }}
  lb: {{ balance: {{ state: web, others: drop }} }}
  nat-out: {{ nat_out: {{ state: nat1 }} }}
  servers: {{ crowd_echo: }}
  nat-in: {{ nat_in: {{ state: nat1 }} }}
  lb-back: {{ balance_back: {{ state: web, others: drop }} }}
  fw-in: {{ firewall: {{ state: known }} }}
  wall: {{ firewall: {{ state: strangers, default: permit }} }}
  route: {{ ip_lookup: {{ routes: ['198.51.100.0/25 0', '198.51.100.128/25 {}'], next_hops: 2 }} }}
  slow: {{ shaper: {{ rate: {}Mbps, burst: 2KiB, queue: 64, held: 1024 }} }}
  there: {{ mac_rewrite: {{ source: 02:00:00:00:00:02, destination: 02:00:00:00:01:{:02x} }} }}
  down: {{ upf_downlink: {{ state: users }} }}
",
        10 + reload % 2,
        1 - reload % 3 / 2,
        1 + reload % 5 / 4,
        reload % 7,
    );
    let middle = if reload.is_multiple_of(2) { "extra -> " } else { "" };
    if !middle.is_empty() {
        text.push_str("  extra: { counter: }\n");
    }
    text.push_str(
        "pipeline:\n  - clients -> fw-out -> lb -> nat-out -> servers -> nat-in -> lb-back -> fw-in -> out\n",
    );
    let _ = write!(
        text,
        "  - others -> wall -> {middle}route\n  - route[0] -> slow -> out\n  - route[1] -> there -> out\n  \
         - network -> down -> out\n"
    );
    // Either part moves between workers with all its state.
    let stages = match (reload % 5, workers) {
        (_, 1) | (0 | 1, _) => "  - {}\n",
        (2, _) if middle.is_empty() => "  - {}\n  - { modules: [wall, route, slow, there] }\n",
        (2, _) => "  - {}\n  - { modules: [wall, extra, route, slow, there] }\n",
        (3, _) => "  - {}\n  - { modules: [route, slow, there] }\n",
        _ => "  - {}\n  - { modules: [fw-out, lb, nat-out, servers, nat-in, lb-back, fw-in] }\n",
    };
    let _ = writeln!(text, "workers:\n{stages}");
    text
}

/// Returns this process' memory in KiB, and the numbers of its open files and threads.
///
/// The locks of cores are not counted: while a pipeline of another test has the lock of a core, this one does without.
/// There is at most one lock for each worker.
fn process_resources(workers: usize) -> (u64, usize, usize) {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux");
    let entries = |kind: &str| std::fs::read_dir(format!("/proc/self/{kind}")).expect("Linux").flatten();
    let is_lock = |file: &std::path::Path| {
        file.file_name().is_some_and(|name| name.to_str().is_some_and(|name| name.starts_with("core-")))
    };
    // A file that is closed meanwhile is not counted.
    let files = entries("fd").filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let (locks, files): (Vec<_>, Vec<_>) = files.partition(|file| is_lock(file));
    assert!(locks.len() <= workers, "{locks:?}");
    let memory = line.trim().trim_end_matches("kB").trim().parse().expect("a number");
    (memory, files.len(), entries("task").count())
}

fn report(instance: &dyn Instance) -> Report {
    let board = instance.board();
    board.report(&board.nothing(), &board.read(Tsc.now()))
}

/// Returns the numbers of open, opened, ended, evicted and refused sessions of the three tables that are kept.
fn sessions(report: &Report) -> Vec<[u64; 5]> {
    vec![
        sessions_of(report, "fw-out", "connections, IPv4"),
        sessions_of(report, "lb", ""),
        sessions_of(report, "nat-out", ""),
    ]
}

/// Returns the same numbers of one table.
fn sessions_of(report: &Report, module: &str, heading: &str) -> [u64; 5] {
    let module = report.modules.iter().find(|entry| entry.name == module).expect("it exists");
    let counters =
        module.counters.iter().find(|(name, counters)| name.starts_with(heading) && counters.contains_key("opened"));
    let (_, counters) = counters.unwrap_or_else(|| panic!("{:?}", module.counters));
    ["open", "opened", "ended", "evicted", "refused"].map(|name| counters[name])
}

/// A running pipeline with its socket.
struct RunningPipeline {
    instance: Arc<dyn Instance>,
    server: Server,
    client: Client,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

impl RunningPipeline {
    fn start(text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let file = folder.path().join("reloads.yaml");
        std::fs::write(&file, text).expect("a writable folder");
        let source = Source::read(&file).expect("it was written");
        let conditions = Conditions { frequency: Tsc.frequency(), simulated: false };
        let Loaded { plans, cores, made, .. } =
            load(&source, conditions).unwrap_or_else(|problems| panic!("{problems}"));
        let cores = choose(&cores).expect("a core for each worker");
        let instance: Arc<dyn Instance> =
            start(plans, &cores, made, Box::new(|_| None), forebay_instance::ControlInputs::default())
                .expect("it starts");
        let service = Service {
            instance: Arc::clone(&instance),
            source: Mutex::new(source),
            origin: Some(file.display().to_string()),
            state: Some(folder.path().join("state.json")),
            fingerprint: Mutex::default(),
            events: Arc::default(),
            trace: Box::new(|_, _, _| Err("not here".to_owned())),
            patience: Patience::default(),
            stop: Arc::new(AtomicBool::new(false)),
            drops: Box::new(|_, _| Err("not here".to_owned())),
            about: About::default(),
            ledger: Mutex::default(),
            ending: Arc::default(),
        };
        let bound = Bound::at(&folder.path().join("reloads.sock")).expect("a socket");
        let server = Server::start(bound, service).expect("a socket");
        let client = Client::connect(server.path()).expect("it listens");
        Self { instance, server, client, file, _folder: folder }
    }

    fn reload(&mut self, text: &str) -> Reloaded {
        std::fs::write(&self.file, text).expect("a writable folder");
        match self.client.request(&Request::Reload {
            file: None,
            text: None,
            config_paths: None,
            set: None,
            forget: false,
            if_version: None,
        }) {
            Ok(Response::Reloaded(reloaded)) => reloaded,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until a report fulfils the condition.
    fn wait(&self, is_so: impl Fn(&Report) -> bool) {
        let begin = Instant::now();
        while !is_so(&report(&*self.instance)) {
            assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", report(&*self.instance).modules);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Regression: state that was changed and changed back had its earlier sessions, which were not reported in the
/// meantime.
#[test]
fn state_that_is_changed_and_changed_back_begins_without_sessions() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let text = |sessions: usize, users: usize, sources: usize| {
        format!(
            "ports:
  others: {{ generator: {{ rate: 40kpps, sessions: {sources}, source: 10.128.0.0/9, destination: 198.51.100.0/24 }} }}
  network: {{ generator: {{ rate: 1kpps, destination: 10.60.0.1/32 }} }}
  out: {{ sink: }}
state:
  strangers: {{ connections: {{ sessions: {sessions} }} }}
  users: {{ pdu_sessions: {{ limit: {users} }} }}
modules:
  wall: {{ firewall: {{ state: strangers, default: permit }} }}
  down: {{ upf_downlink: {{ state: users }} }}
pipeline:
  - others -> wall -> out
  - network -> down -> out
"
        )
    };
    let mut running = RunningPipeline::start(&text(1_000, 100, 200));
    let table = |running: &RunningPipeline, module: &str, table: &str| {
        let tables = running.instance.tables();
        Arc::clone(&tables.iter().find(|entry| (&*entry.module, &*entry.name) == (module, table)).expect("there").table)
    };
    running.wait(|report| sessions_of(report, "wall", "connections, IPv4")[..2] == [200, 200]);
    assert_eq!(
        table(&running, "down", "sessions").apply(&["add 10.60.0.1 teid=1 peer=192.0.2.10 peer-teid=1"]).made,
        1
    );
    let reloaded = running.reload(&text(1_001, 101, 5));
    assert_eq!(reloaded.change.forgotten, ["strangers", "users"], "the loss is reported: {reloaded:?}");
    running.wait(|report| sessions_of(report, "wall", "connections, IPv4")[..2] == [5, 5]);
    let reloaded = running.reload(&text(1_000, 100, 5));
    assert_eq!(reloaded.change.forgotten, ["strangers", "users"], "{reloaded:?}");
    running.wait(|report| sessions_of(report, "wall", "connections, IPv4")[0] == 5);
    assert_eq!(
        sessions_of(&report(&*running.instance), "wall", "connections, IPv4"),
        [5, 5, 0, 0, 0],
        "not the 200 earlier sessions"
    );
    assert_eq!(table(&running, "wall", "connections").len(), 5);
    assert_eq!(table(&running, "down", "sessions").len(), 0, "the session was in the removed table");
    let RunningPipeline { instance, server, client, .. } = running;
    drop((client, server));
    assert!(instance.end().troubles.is_empty());
}

/// Flowbits of sessions stay as long as the rules use their names.
#[test]
fn flowbits_survive_reloads_that_keep_their_names() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let text = |options: [&str; 2], sid: u32| {
        let rule = |at: usize| format!("alert udp any any -> any any ({} sid:{};)", options[at], sid + at as u32);
        format!(
            "ports:
  others: {{ generator: {{ rate: 20kpps, sessions: 20, source: 10.128.0.0/9, destination: 198.51.100.0/24 }} }}
  out: {{ sink: }}
state: {{ known: {{ connections: {{ sessions: 1000 }} }} }}
modules:
  wall: {{ firewall: {{ state: known, default: permit }} }}
  ids: {{ nids: {{ flow: {{ state: known }}, count: rule, rules: ['{}', '{}'] }} }}
pipeline:
  - others -> wall -> ids -> out
",
            rule(0),
            rule(1)
        )
    };
    const FIRST: [&str; 2] = ["flowbits:isnotset,seen; flowbits:set,seen;", "flowbits:isset,seen;"];
    // Returns the numbers of matches of the two rules.
    let matches = |report: &Report, sid: u32| {
        let ids = report.modules.iter().find(|module| module.name == "ids").expect("it exists");
        [sid, sid + 1].map(|sid| ids.counters["matches"].get(&format!("{sid} rule {sid}")).copied().unwrap_or_default())
    };
    let mut running = RunningPipeline::start(&text(FIRST, 1));
    running.wait(|report| sessions_of(report, "wall", "connections, IPv4")[0] == 20 && matches(report, 1)[1] > 500);
    assert_eq!(matches(&report(&*running.instance), 1)[0], 20, "once a session");
    for (options, sid, unset) in [
        (["flowbits:isnotset,seen;", "flowbits:isset,other|seen;"], 11, 0),
        (["flowbits:isnotset,other; flowbits:set,other;", "flowbits:isset,other&seen;"], 21, 20),
        // No rule uses a bit.
        (["dsize:65000;", "dsize:<65000;"], 31, 0),
        (FIRST, 41, 20),
    ] {
        let ConfigurationChange { changed, forgotten, .. } = running.reload(&text(options, sid)).change;
        assert_eq!((changed, forgotten), (vec!["ids".to_owned()], vec![]), "{options:?}");
        running.wait(|report| matches(report, sid)[0] >= unset && matches(report, sid)[1] > 500);
        assert_eq!(matches(&report(&*running.instance), sid)[0], unset, "{options:?}");
        assert_eq!(
            sessions_of(&report(&*running.instance), "wall", "connections, IPv4"),
            [20, 20, 0, 0, 0],
            "the same sessions"
        );
    }
    let RunningPipeline { instance, server, client, .. } = running;
    drop((client, server));
    assert!(instance.end().troubles.is_empty());
}

#[test]
fn sessions_survive_reloads_of_other_parts_and_nothing_grows() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let reloads: u64 = std::env::var("FOREBAY_RELOADS").ok().map_or(200, |text| text.parse().expect("a number"));
    let workers = allowed_cores().len().min(2);
    if workers < 2 {
        let _ = writeln!(std::io::stderr(), "one core: modules do not move between workers");
    }
    let mut running = RunningPipeline::start(&configuration(0, workers));
    let instance = Arc::clone(&running.instance);
    // All sessions are open and counted before the first reload.
    let begin = Instant::now();
    running.wait(|report| sessions(report).iter().all(|table| table[0] >= SESSIONS));

    let (mut memory, mut pauses, mut resources, mut held) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let (mut before, mut replaced) = (0, 0);
    let mut responses = Responses::with_late(10);
    for reload in 1..=reloads {
        let reloaded = running.reload(&configuration(reload, workers));
        assert_eq!(reloaded.missing, 0, "reload {reload}: {reloaded:?}");
        let untouched = ["fw-out", "lb", "nat-out", "servers", "nat-in", "lb-back", "fw-in"];
        let lost = |name: &&String| untouched.contains(&name.as_str());
        let ConfigurationChange { changed, added, removed, forgotten, .. } = &reloaded.change;
        let lost: Vec<_> = changed.iter().chain(added).chain(removed).filter(lost).collect();
        assert!(lost.is_empty(), "reload {reload}: {lost:?}");
        let expected = [("strangers", 2), ("users", 3)].map(|(name, every)| (name, reload.is_multiple_of(every)));
        let expected: Vec<_> = expected.into_iter().filter(|(_, forgotten)| *forgotten).map(|(name, _)| name).collect();
        assert_eq!(*forgotten, expected, "reload {reload}: {reloaded:?}");
        replaced += changed.len();
        held += reloaded.dropped;
        pauses.push(reloaded.pause_us);
        let census = responses.census(&*instance);
        assert_eq!(census.missing(), 0, "reload {reload}: {census:?}");
        assert!(census.out > before, "reload {reload}: packets continue");
        before = census.out;
        // No session was opened again: after a loss, the next packet of a session would have opened another.
        let tables = sessions(&report(&*instance));
        for table in &tables {
            assert_eq!(*table, [SESSIONS, SESSIONS, 0, 0, 0], "reload {reload}: {tables:?}");
        }
        memory.push(process_resources(workers).0);
        if reload.is_multiple_of(ROUND) {
            // An ended thread may exist for a moment longer.
            let mut now = process_resources(workers);
            for _ in 0..100 {
                if resources.first().is_none_or(|first: &(u64, usize, usize)| (first.1, first.2) == (now.1, now.2)) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
                now = process_resources(workers);
            }
            resources.push(now);
        }
    }
    let report_now = report(&*instance);
    let RunningPipeline { server, client, .. } = running;
    drop((client, server));
    let outcome = instance.end();
    assert!(outcome.troubles.is_empty(), "{:?}", outcome.troubles);
    let board = instance.board();
    let report = board.report(&board.nothing(), &board.read(outcome.at));
    assert_eq!((report.packets.missing(), report.packets.queued, report.packets.held), (0, 0, 0));
    // Only packets without room in the shaper are dropped, and packets that it held when it was removed, as reported by
    // the reloads.
    let dropped = |reason: &str| report_now.packets.dropped.get(reason).copied().unwrap_or(0);
    assert_eq!(dropped("held_at_close"), held, "{:?}", report_now.packets.dropped);
    let reasons: Vec<_> =
        report.packets.dropped.iter().filter(|(_, count)| **count > 0).map(|(name, _)| name).collect();
    assert!(reasons.iter().all(|name| *name == "held_at_close" || name.starts_with("slow.")), "{reasons:?}");
    pauses.sort_by(f64::total_cmp);
    let quarter = memory.len() / 4;
    let early = memory[quarter..2 * quarter].iter().max().copied().unwrap_or(0);
    let late = memory[memory.len() - quarter.max(1)..].iter().max().copied().unwrap_or(0);
    let _ = writeln!(
        std::io::stderr(),
        "reloads: {reloads} in {:.1} s, {} packets out, {held} held ones dropped, {replaced} modules replaced, \
        pause median {:.0} us, most {:.0} us; memory {early} KiB, at the end {late} KiB; files and threads {:?}",
        begin.elapsed().as_secs_f64(),
        report.packets.out,
        pauses[pauses.len() / 2],
        pauses[pauses.len() - 1],
        resources.iter().map(|(_, files, threads)| (files, threads)).collect::<Vec<_>>(),
    );
    assert!(held > 0 && replaced > 0, "held packets were dropped with their module, and reported");
    assert!(resources.windows(2).all(|pair| (pair[0].1, pair[0].2) == (pair[1].1, pair[1].2)), "{resources:?}");
    // A fiftieth, plus memory that the allocator keeps and that packets touch for the first time.
    assert!(late <= early + early / 50 + 8_192, "memory grows: {memory:?}");
}
