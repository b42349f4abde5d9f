//! Reloads under load, one after the other: sessions of what a change does not touch go on, what it takes away is counted and
//! said, and is gone for good, and nothing grows, neither memory nor open files nor threads.
//!
//! `FOREBAY_RELOADS` says how many (`make soak`: 1 000).

#[path = "../crowd/echo.rs"]
mod echo;

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

/// Sessions of the part that no reload touches.
const SESSIONS: u64 = 500;
/// What a process takes is looked at, and tests of one file are one.
static ALONE: Mutex<()> = Mutex::new(());
/// After so many reloads a configuration is as it was.
const ROUND: u64 = 40;

/// The configuration after so many reloads. One part keeps its sessions, wherever it runs and whatever is around it; of the other
/// something is made anew each time. State with sessions is never made again as it was once: were its tables kept, memory would grow.
fn configuration(reload: u64, workers: usize) -> String {
    let (strangers, users) = (20_000 + reload / 2, 1 + reload / 3);
    let reload = reload % ROUND;
    let mut text = format!(
        "name: reloads
pool: {{ chunks: 4096, frame: 256 }}
ports:
  clients: {{ generator: {{ rate: 40kpps, sessions: {SESSIONS}, source: 10.0.0.0/8, destination: 192.0.2.10/32, destination_port: 80 }} }}
  others: {{ generator: {{ rate: {}kpps, sessions: 200, source: 10.128.0.0/9, destination: [198.51.100.0/25, 198.51.100.128/25] }} }}
  network: {{ generator: {{ rate: 5kpps, source: 198.51.100.0/24, destination: 10.60.0.1/32 }} }}
  out: {{ sink: }}
state:
  known: {{ connections: {{ sessions: 4096 }} }}
  web: {{ balancer: {{ sessions: 4096, services: [{{ address: 192.0.2.10, protocol: udp, port: 80, backends: [{{ address: 10.9.0.1 }}, {{ address: 10.9.0.2 }}] }}] }} }}
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
    let between = if reload.is_multiple_of(2) { "extra -> " } else { "" };
    if !between.is_empty() {
        text.push_str("  extra: { counter: }\n");
    }
    text.push_str(
        "pipeline:\n  - clients -> fw-out -> lb -> nat-out -> servers -> nat-in -> lb-back -> fw-in -> out\n",
    );
    let _ = write!(
        text,
        "  - others -> wall -> {between}route\n  - route[0] -> slow -> out\n  - route[1] -> there -> out\n  \
         - network -> down -> out\n"
    );
    // Either part moves from worker to worker with all that it has.
    let stages = match (reload % 5, workers) {
        (_, 1) | (0 | 1, _) => "  - {}\n",
        (2, _) if between.is_empty() => "  - {}\n  - { modules: [wall, route, slow, there] }\n",
        (2, _) => "  - {}\n  - { modules: [wall, extra, route, slow, there] }\n",
        (3, _) => "  - {}\n  - { modules: [route, slow, there] }\n",
        _ => "  - {}\n  - { modules: [fw-out, lb, nat-out, servers, nat-in, lb-back, fw-in] }\n",
    };
    let _ = writeln!(text, "workers:\n{stages}");
    text
}

/// What this process has in memory, in KiB, and how many files and threads.
fn owned() -> (u64, usize, usize) {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux");
    let count = |what: &str| std::fs::read_dir(format!("/proc/self/{what}")).expect("Linux").count();
    (line.trim().trim_end_matches("kB").trim().parse().expect("a number"), count("fd"), count("task"))
}

fn report(instance: &dyn Instance) -> Report {
    let board = instance.board();
    board.report(&board.nothing(), &board.read(Tsc.now()))
}

/// Open, opened, ended, evicted and refused, of the three tables that are kept.
fn sessions(report: &Report) -> Vec<[u64; 5]> {
    vec![of(report, "fw-out", "connections, IPv4"), of(report, "lb", ""), of(report, "nat-out", "")]
}

/// The same of one.
fn of(report: &Report, module: &str, heading: &str) -> [u64; 5] {
    let module = report.modules.iter().find(|told| told.name == module).expect("it is there");
    let counters =
        module.counters.iter().find(|(told, counters)| told.starts_with(heading) && counters.contains_key("opened"));
    let (_, counters) = counters.unwrap_or_else(|| panic!("{:?}", module.counters));
    ["open", "opened", "ended", "evicted", "refused"].map(|name| counters[name])
}

/// A pipeline that runs, where it can be asked.
struct Begun {
    instance: Arc<dyn Instance>,
    server: Server,
    client: Client,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Begun {
    fn of(text: &str) -> Self {
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
        }) {
            Ok(Response::Reloaded(told)) => told,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until what is reported is so.
    fn wait(&self, is_so: impl Fn(&Report) -> bool) {
        let begin = Instant::now();
        while !is_so(&report(&*self.instance)) {
            assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", report(&*self.instance).modules);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// What was changed and changed back found the sessions that it had had before, of which nobody had heard meanwhile.
#[test]
fn what_is_changed_and_changed_back_begins_with_no_sessions() {
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
    let mut begun = Begun::of(&text(1_000, 100, 200));
    let table = |begun: &Begun, module: &str, table: &str| {
        let tables = begun.instance.tables();
        Arc::clone(&tables.iter().find(|told| (&*told.module, &*told.name) == (module, table)).expect("there").table)
    };
    begun.wait(|report| of(report, "wall", "connections, IPv4")[..2] == [200, 200]);
    assert_eq!(table(&begun, "down", "sessions").apply(&["add 10.60.0.1 teid=1 peer=192.0.2.10 peer-teid=1"]).made, 1);
    let told = begun.reload(&text(1_001, 101, 5));
    assert_eq!(told.change.forgotten, ["strangers", "users"], "it is said: {told:?}");
    begun.wait(|report| of(report, "wall", "connections, IPv4")[..2] == [5, 5]);
    let told = begun.reload(&text(1_000, 100, 5));
    assert_eq!(told.change.forgotten, ["strangers", "users"], "{told:?}");
    begun.wait(|report| of(report, "wall", "connections, IPv4")[0] == 5);
    assert_eq!(of(&report(&*begun.instance), "wall", "connections, IPv4"), [5, 5, 0, 0, 0], "not the 200 of before");
    assert_eq!(table(&begun, "wall", "connections").len(), 5);
    assert_eq!(table(&begun, "down", "sessions").len(), 0, "the session was of a table that is gone");
    let Begun { instance, server, client, .. } = begun;
    drop((client, server));
    assert!(instance.end().troubles.is_empty());
}

/// Bits that rules keep for sessions stay as long as the rules have their names.
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
    // How often the two rules matched.
    let matches = |report: &Report, sid: u32| {
        let ids = report.modules.iter().find(|module| module.name == "ids").expect("it is there");
        [sid, sid + 1].map(|sid| ids.counters["matches"].get(&format!("{sid} rule {sid}")).copied().unwrap_or_default())
    };
    let mut begun = Begun::of(&text(FIRST, 1));
    begun.wait(|report| of(report, "wall", "connections, IPv4")[0] == 20 && matches(report, 1)[1] > 500);
    assert_eq!(matches(&report(&*begun.instance), 1)[0], 20, "once a session");
    for (options, sid, unset) in [
        (["flowbits:isnotset,seen;", "flowbits:isset,other|seen;"], 11, 0),
        (["flowbits:isnotset,other; flowbits:set,other;", "flowbits:isset,other&seen;"], 21, 20),
        // No rule asks for a bit.
        (["dsize:65000;", "dsize:<65000;"], 31, 0),
        (FIRST, 41, 20),
    ] {
        let ConfigurationChange { changed, forgotten, .. } = begun.reload(&text(options, sid)).change;
        assert_eq!((changed, forgotten), (vec!["ids".to_owned()], vec![]), "{options:?}");
        begun.wait(|report| matches(report, sid)[0] >= unset && matches(report, sid)[1] > 500);
        assert_eq!(matches(&report(&*begun.instance), sid)[0], unset, "{options:?}");
        assert_eq!(of(&report(&*begun.instance), "wall", "connections, IPv4"), [20, 20, 0, 0, 0], "the same sessions");
    }
    let Begun { instance, server, client, .. } = begun;
    drop((client, server));
    assert!(instance.end().troubles.is_empty());
}

#[test]
fn sessions_survive_reloads_that_do_not_touch_them_and_nothing_grows() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let reloads: u64 = std::env::var("FOREBAY_RELOADS").ok().map_or(200, |text| text.parse().expect("a number"));
    let workers = allowed_cores().len().min(2);
    if workers < 2 {
        let _ = writeln!(std::io::stderr(), "one core: modules do not move between workers");
    }
    let mut begun = Begun::of(&configuration(0, workers));
    let instance = Arc::clone(&begun.instance);
    // All sessions are open before the first reload, and told.
    let begin = Instant::now();
    begun.wait(|report| sessions(report).iter().all(|told| told[0] >= SESSIONS));

    let (mut memory, mut pauses, mut taken, mut held) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let (mut before, mut made_anew) = (0, 0);
    for reload in 1..=reloads {
        let told = begun.reload(&configuration(reload, workers));
        assert_eq!(told.missing, 0, "reload {reload}: {told:?}");
        let untouched = ["fw-out", "lb", "nat-out", "servers", "nat-in", "lb-back", "fw-in"];
        let lost = |name: &&String| untouched.contains(&name.as_str());
        let ConfigurationChange { changed, added, removed, forgotten, .. } = &told.change;
        let lost: Vec<_> = changed.iter().chain(added).chain(removed).filter(lost).collect();
        assert!(lost.is_empty(), "reload {reload}: {lost:?}");
        let gone = [("strangers", 2), ("users", 3)].map(|(name, every)| (name, reload.is_multiple_of(every)));
        let gone: Vec<_> = gone.into_iter().filter(|(_, gone)| *gone).map(|(name, _)| name).collect();
        assert_eq!(*forgotten, gone, "reload {reload}: {told:?}");
        made_anew += changed.len();
        held += told.dropped;
        pauses.push(told.pause_us);
        let census = instance.census().expect("every worker answers");
        assert_eq!(census.missing(), 0, "reload {reload}: {census:?}");
        assert!(census.left > before, "reload {reload}: packets go on");
        before = census.left;
        // Not one session was begun anew: had one been lost, its next packet would have opened another.
        let told = sessions(&report(&*instance));
        for table in &told {
            assert_eq!(*table, [SESSIONS, SESSIONS, 0, 0, 0], "reload {reload}: {told:?}");
        }
        memory.push(owned().0);
        if reload.is_multiple_of(ROUND) {
            // Between two workers' turns and a thread's end there may be a moment.
            let mut now = owned();
            for _ in 0..100 {
                if taken.first().is_none_or(|first: &(u64, usize, usize)| (first.1, first.2) == (now.1, now.2)) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
                now = owned();
            }
            taken.push(now);
        }
    }
    let report_now = report(&*instance);
    let Begun { server, client, .. } = begun;
    drop((client, server));
    let outcome = instance.end();
    assert!(outcome.troubles.is_empty(), "{:?}", outcome.troubles);
    let board = instance.board();
    let report = board.report(&board.nothing(), &board.read(outcome.at));
    assert_eq!((report.packets.missing(), report.packets.queued, report.packets.held), (0, 0, 0));
    // Nothing is dropped but what the shaper has no room for, and what it held when it went: as the reloads said.
    let of = |reason: &str| report_now.packets.dropped.get(reason).copied().unwrap_or(0);
    assert_eq!(of("wound_up"), held, "{:?}", report_now.packets.dropped);
    let reasons: Vec<_> =
        report.packets.dropped.iter().filter(|(_, count)| **count > 0).map(|(name, _)| name).collect();
    assert!(reasons.iter().all(|name| *name == "wound_up" || name.starts_with("slow.")), "{reasons:?}");
    pauses.sort_by(f64::total_cmp);
    let quarter = memory.len() / 4;
    let early = memory[quarter..2 * quarter].iter().max().copied().unwrap_or(0);
    let late = memory[memory.len() - quarter.max(1)..].iter().max().copied().unwrap_or(0);
    let _ = writeln!(
        std::io::stderr(),
        "reloads: {reloads} in {:.1} s, {} packets out, {held} held ones dropped, {made_anew} modules made anew, pause median {:.0} us, \
         most {:.0} us; memory {early} KiB, at the end {late} KiB; files and threads {:?}",
        begin.elapsed().as_secs_f64(),
        report.packets.out,
        pauses[pauses.len() / 2],
        pauses[pauses.len() - 1],
        taken.iter().map(|(_, files, threads)| (files, threads)).collect::<Vec<_>>(),
    );
    assert!(held > 0 && made_anew > 0, "something was dropped with its module, and said");
    assert!(taken.windows(2).all(|pair| (pair[0].1, pair[0].2) == (pair[1].1, pair[1].2)), "{taken:?}");
    // A fiftieth, and what the allocator keeps and packets touch for the first time.
    assert!(late <= early + early / 50 + 8_192, "memory grows: {memory:?}");
}
