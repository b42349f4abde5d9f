//! A pipeline under constant change: each second another configuration and thousands of table changes, workers and
//! modules that are added, removed and moved, sessions that begin and end, ports that are closed and reopened.
//!
//! Each second all packets are accounted for. The packets of each session leave in order. No packet is lost. Memory
//! does not grow. `FOREBAY_SOAK_SECONDS` is the duration (`make soak`: ten minutes).

mod ports;
#[path = "../../../instance/tests/census/responses.rs"]
mod responses;

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay_instance::{
    Accepted, Instance, choose,
    socket::{About, Bound, Patience, Server, Service},
    start,
};
use forebay_measure::{Clock, Tsc, machine::allowed_cores};
use forebay_pipeline::{Conditions, Loaded, Source, load};
use forebay_protocol::{Client, Request, Response};

use responses::Responses;

/// Number of table changes per second, besides the removals.
const CHANGES: usize = 2_000;

/// Returns the configuration of second `second` for this number of workers.
fn configuration(second: u64, workers: usize) -> String {
    let mut text = String::from("name: soak\npool: { chunks: 4096, frame: 256 }\n");
    // Another parameter, so that the port is closed and reopened.
    let _ = writeln!(text, "ports:\n  in: {{ soak_source: {{ version: {} }} }}", second / 5);
    let _ = writeln!(text, "  out: {{ soak_sink: {{ version: {} }} }}", second / 7);
    text.push_str(
        "modules:\n  valid: { ip_validate: }\n  \
        fw: { acl: { rules: ['@0.0.0.0/0 0.0.0.0/0 0 : 65535 53 : 53 0x11/0xff count'], default: permit } }\n",
    );
    text.push_str(
        "  route: { ip_lookup: { routes: ['10.0.0.0/8 0', '10.1.0.0/16 1', '10.2.0.0/16 2', '0.0.0.0/0 0'] } }\n",
    );
    for hop in 0..3 {
        let _ = writeln!(
            text,
            "  ttl{hop}: {{ ttl: }}\n  \
            mac{hop}: {{ mac_rewrite: {{ source: 02:00:00:00:00:02, destination: 02:00:00:00:01:{:02x} }} }}",
            (second % 3) as usize * 16 + hop
        );
    }
    // A module that is added and removed.
    let middle = if second.is_multiple_of(2) { "extra -> " } else { "" };
    if !middle.is_empty() {
        let _ = writeln!(text, "  extra: {{ counter: }}");
    }
    let _ = writeln!(text, "pipeline:\n  - in -> valid[0] -> {middle}fw[0] -> route");
    for hop in 0..3 {
        let _ = writeln!(text, "  - route[{hop}] -> ttl{hop}[0] -> mac{hop} -> out");
    }
    let stages = match (second % 4, workers) {
        (_, 1) | (0, _) => "  - {}\n",
        (1, _) => "  - {}\n  - {}\n",
        (2, _) => "  - {}\n  - { modules: [route, ttl0, mac0, ttl1, mac1, ttl2, mac2] }\n",
        _ => "  - {}\n  - { modules: [ttl1, mac1, ttl2, mac2] }\n",
    };
    let _ = writeln!(text, "workers:\n{stages}");
    text
}

/// Returns the resident memory of this process, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("Linux");
    line.trim().trim_end_matches("kB").trim().parse().expect("a number")
}

#[test]
fn under_constant_change_no_packet_is_lost_and_sessions_stay_in_order() {
    let seconds: u64 = std::env::var("FOREBAY_SOAK_SECONDS").ok().map_or(12, |text| text.parse().expect("a number"));
    let workers = allowed_cores().len().min(2);
    if workers < 2 {
        let _ = writeln!(std::io::stderr(), "one core: workers are not added and removed");
    }
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let file = folder.path().join("soak.yaml");
    std::fs::write(&file, configuration(0, workers)).expect("a writable folder");
    let source = Source::read(&file).expect("it was written");
    let conditions = Conditions { frequency: Tsc.frequency(), simulated: false };
    let Loaded { plans, cores, made, .. } = load(&source, conditions).unwrap_or_else(|problems| panic!("{problems}"));
    let cores = choose(&cores).expect("a core for each worker");
    let instance: Arc<dyn Instance> =
        start(plans, &cores, made, Box::new(|_| None), forebay_instance::ControlInputs::default()).expect("it starts");
    let state = folder.path().join("state.json");
    let service = Service {
        instance: Arc::clone(&instance),
        source: Mutex::new(source),
        origin: Some(file.display().to_string()),
        state: Some(state.clone()),
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
    let server =
        Server::start(Bound::at(&folder.path().join("soak.sock")).expect("a socket"), service).expect("a socket");
    let mut client = Client::connect(server.path()).expect("it listens");

    let (mut memory, mut pauses, mut before) = (Vec::new(), Vec::new(), 0);
    let begin = Instant::now();
    let mut responses = Responses::with_late(10 + seconds / 60);
    for second in 1..=seconds {
        std::fs::write(&file, configuration(second, workers)).expect("a writable folder");
        match client.request(&Request::Reload {
            file: None,
            text: None,
            config_paths: None,
            set: None,
            forget: false,
            if_version: None,
        }) {
            Ok(Response::Reloaded(reloaded)) => {
                assert_eq!((reloaded.missing, reloaded.dropped), (0, 0), "second {second}: {reloaded:?}");
                pauses.push(reloaded.pause_us);
            }
            other => panic!("second {second}: {other:?}"),
        }
        let accepted = Accepted::read(&state).expect("it can be read").expect("it was stored");
        assert_eq!(
            accepted.source().text(),
            configuration(second, workers),
            "the accepted configuration is on the disk"
        );
        // An invalid configuration changes nothing.
        std::fs::write(&file, "ports: {").expect("a writable folder");
        assert!(
            client
                .request(&Request::Reload {
                    file: None,
                    text: None,
                    config_paths: None,
                    set: None,
                    forget: false,
                    if_version: None,
                })
                .is_err()
        );
        let lines: String = (0..CHANGES)
            .map(|at| {
                format!(
                    "{} 172.16.{}.{}/32 {}\n",
                    if at < CHANGES / 2 { "add" } else { "replace" },
                    at % (CHANGES / 2) / 250,
                    at % 250,
                    at % 3
                )
            })
            .chain((0..CHANGES / 2).map(|at| format!("remove 172.16.{}.{}/32\n", at / 250, at % 250)))
            .collect();
        let change = Request::Change { module: "route".to_owned(), table: None };
        match client.change(&change, &mut lines.as_bytes()) {
            Ok(Response::Changed { made, refusals: 0, .. }) => assert_eq!(made, (CHANGES + CHANGES / 2) as u64),
            other => panic!("second {second}: {other:?}"),
        }
        let census = responses.census(&*instance);
        assert_eq!(census.missing(), 0, "second {second}: {census:?}");
        assert_eq!((census.dropped, census.consumed), (0, 0), "second {second}: {census:?}");
        assert!(census.out > before, "second {second}: packets continue");
        before = census.out;
        assert_eq!(ports::overtakings(), 0, "second {second}");
        memory.push(resident());
        let next = begin + Duration::from_secs(second);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    drop((client, server));
    let outcome = instance.end();
    assert!(outcome.troubles.is_empty(), "{:?}", outcome.troubles);
    let board = instance.board();
    let report = board.report(&board.nothing(), &board.read(outcome.at));
    assert_eq!((report.packets.missing(), report.packets.queued, report.packets.held), (0, 0, 0));
    assert_eq!((report.packets.entered, report.packets.all_dropped()), (report.packets.out, 0));
    assert_eq!(ports::given(), report.packets.out);
    assert_eq!(ports::overtakings(), 0);

    let early = memory[memory.len() / 4..memory.len() / 2 + 1].iter().max().expect("some seconds");
    let late = memory[memory.len() * 3 / 4..].iter().max().expect("some seconds");
    pauses.sort_by(f64::total_cmp);
    let _ = writeln!(
        std::io::stderr(),
        "soak: {seconds} s, {} packets, {} reloads, {} table changes, pause median {:.0} us, most {:.0} us, \
        memory {early} KiB, at the end {late} KiB",
        report.packets.out,
        pauses.len(),
        seconds * (CHANGES + CHANGES / 2) as u64,
        pauses[pauses.len() / 2],
        pauses[pauses.len() - 1],
    );
    // A tenth for memory that the allocator keeps.
    assert!(*late <= early + early / 10 + 4_096, "memory grows: {memory:?}");
    let leftovers = std::fs::read_dir(folder.path()).expect("it exists").flatten();
    let leftovers: Vec<_> =
        leftovers.map(|entry| entry.file_name()).filter(|name| name.to_string_lossy().ends_with(".new")).collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
}
