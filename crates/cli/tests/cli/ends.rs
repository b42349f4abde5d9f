//! The end of a run: it ends at once after the last packet of its sources. Also settings with `null`, which remove a
//! key.

use crate::running::{Running, wait_for};
use crate::{File, forebay};

const SESSIONS: &str = "ports:
  in: { generator: { sessions: 100, count: 1000, rate: 4kpps } }
  out: { sink: {} }
state: { known: { connections: {} }, pool: { nat: { pool: 198.51.100.0/28 } } }
modules:
  wall: { firewall: { state: known, default: permit } }
  gate: { nat_out: { state: pool } }
pipeline:
  - in -> wall -> gate -> out
";

/// Regression: a run waited up to 7 440 s for the time-outs of its sessions. A simulated run ended after 100 ms.
#[test]
fn a_run_ends_after_the_last_packet_of_its_sources() {
    let file = File::new(SESSIONS);
    for how in [&["--virtual"][..], &[], &["--virtual", "--duration", "7000s"]] {
        let done = forebay(&[&["run", file.path(), "--json", "--no-socket"], how].concat());
        assert_eq!(done.code, Some(0), "{}", done.err);
        let report = done.json();
        assert_eq!(report["packets"]["out"], 1000, "{how:?}: {report}");
        assert!(report["duration_s"].as_f64().is_some_and(|seconds| seconds > 0.2), "{report}");
        if how.contains(&"--virtual") {
            assert!(report["duration_s"].as_f64().is_some_and(|seconds| seconds < 0.3), "{report}");
        }
        assert_eq!(report["modules"][0]["counters"]["connections, IPv4"]["open"], 100, "{report}");
        assert!(!done.err.contains("never runs out"), "{}", done.err);
    }
}

#[test]
fn a_simulated_run_with_an_endless_source_ends_and_reports_it() {
    let file = File::new(&SESSIONS.replace("count: 1000, ", ""));
    let done = forebay(&["run", file.path(), "--virtual", "--json"]);
    assert!(done.code == Some(0) && done.err.contains("port 'in' never runs out of packets"), "{}", done.err);
    assert!(done.json()["duration_s"].as_f64().is_some_and(|seconds| (seconds - 0.1).abs() < 0.01), "{}", done.out);
}

/// The same for a load balancer.
#[test]
fn a_run_does_not_wait_for_sessions_of_a_balancer() {
    let file = File::new(
        "ports:
  clients: { generator: { destination: 192.0.2.10/32, destination_port: 80, sessions: 50, count: 100, rate: 1kpps } }
  out: { sink: }
state:
  web:
    balancer: { services: [{ address: 192.0.2.10, protocol: udp, port: 80, backends: [{ address: 10.0.0.1 }] }] }
modules: { lb: { balance: { state: web } } }
pipeline: [ clients -> lb -> out ]
",
    );
    for how in [&["--virtual"][..], &["--no-socket"]] {
        let done = forebay(&[&["run", file.path(), "--json"], how].concat());
        assert_eq!(done.code, Some(0), "{}", done.err);
        let (report, sessions) = (done.json(), "sessions");
        assert_eq!(report["packets"]["out"], 100, "{report}");
        assert!(report["modules"][0]["counters"][sessions]["open"].as_u64() > Some(0), "{report}");
        assert!(
            report["duration_s"].as_f64().is_some_and(|seconds| how[0] != "--virtual" || seconds < 0.2),
            "{report}"
        );
    }
}

/// Regression: a run printed nothing while it waited for packets that a module held.
#[test]
fn a_run_that_waits_for_held_packets_reports_it() {
    let text = "ports: { in: { generator: { count: 3, size: 1500 } }, out: { sink: } }
modules: { slow: { shaper: { rate: 1kbps, burst: 2KiB } } }
pipeline: [ in -> slow -> out ]
";
    let mut running = Running::of(text);
    let line = running.line("modules still hold 2 packets; the next one leaves in ");
    assert!(line.contains("the sources are exhausted") && line.contains("event=waiting"), "{line}");
    let report = running.end();
    assert_eq!(
        (&report["packets"]["out"], &report["packets"]["dropped"]["held_at_close"]),
        (&1.into(), &2.into()),
        "{report}"
    );
    // Simulated time does not wait.
    let done = forebay(&["run", File::new(text).path(), "--virtual", "--json"]);
    assert!(done.code == Some(0) && done.json()["packets"]["out"] == 3, "{}{}", done.out, done.err);
}

/// Regression: `--duration` ended a run before its source's last packet without a warning.
#[test]
fn unread_packets_are_reported() {
    let (file, slow) = (File::new(SESSIONS), File::new(&SESSIONS.replace("4kpps", "1pps")));
    let has_more = "port 'in' has more packets: the run ended before these packets came in";
    for how in [&["--virtual"][..], &["--no-socket", "--no-live"]] {
        let run =
            |file: &File, duration| forebay(&[&["run", file.path(), "--json", "--duration", duration], how].concat());
        let done = run(&slow, "20ms");
        assert!(done.code == Some(0) && done.err.contains(has_more), "{how:?}: {}", done.err);
        let (report, name) = (done.json(), "name");
        assert!(report["ports"][0][name] == "in" && report["ports"][0]["unread"] == true, "{report}");
        let done = run(&file, "100s");
        assert!(done.code == Some(0) && !done.err.contains(has_more), "{how:?}: {}", done.err);
        assert!(done.json()["ports"][0].get("unread").is_none());
    }
    // An endless source always has more packets.
    let file = File::new(&SESSIONS.replace("count: 1000, ", ""));
    let done = forebay(&["run", file.path(), "--virtual", "--duration", "1ms"]);
    assert!(done.code == Some(0) && !done.err.contains(has_more), "{}", done.err);
}

/// Regression: a simulated run went through a gap in steps of 64 ms: a gap between 1970 and today took half an hour.
#[test]
fn a_simulated_run_skips_gaps_of_a_capture() {
    let made = File::new(
        "ports: { in: { generator: { count: 3, size: 1500 } }, out: { pcap: { write: all.pcap } } }
modules: { hop: { ttl: } }
pipeline: [ in -> hop -> out ]
",
    );
    forebay(&["run", made.path(), "--virtual"]).success();
    let mut capture = std::fs::read(made.beside("all.pcap")).expect("it was written");
    let record = (capture.len() - 24) / 3;
    for (at, second) in [0, 1, u32::MAX].into_iter().enumerate() {
        let stamp = 24 + at * record;
        capture[stamp..stamp + 4].copy_from_slice(&second.to_le_bytes());
        capture[stamp + 4..stamp + 8].fill(0);
    }
    let file = File::new(
        "ports: { in: { pcap: { read: in.pcap } }, out: { sink: } }
state: { known: { connections: {} } }
modules: { wall: { firewall: { state: known, default: permit } }, slow: { shaper: { rate: 1kbps, burst: 2KiB } } }
pipeline: [ in -> wall -> slow -> out ]
",
    );
    std::fs::write(file.beside("in.pcap"), &capture).expect("a writable folder");
    for more in [&[][..], &["--controller", "optimal"]] {
        let report = forebay(&[&["run", file.path(), "--virtual", "--json"], more].concat()).json();
        assert_eq!(report["packets"]["out"], 3, "{report}");
        assert!(report["duration_s"].as_f64().is_some_and(|seconds| seconds >= f64::from(u32::MAX)), "{report}");
        // The second packet waited until the shaper had credit, which was during the gap.
        let longest = report["flows"][0]["delay_us"]["max"].as_f64();
        assert!(longest.is_some_and(|micros| (1e6..20e6).contains(&micros)), "{report}");
        // The sessions of the first packets ended during the gap.
        let sessions = &report["modules"][0]["counters"]["connections, IPv4"];
        assert_eq!((&sessions["open"], &sessions["ended"]), (&1.into(), &2.into()), "{report}");
    }
}

/// Regression: a pipe that was open at the end of a run was reported to have more packets although all had been read.
#[test]
fn a_stream_without_waiting_packets_is_not_unread() {
    let made = File::new(
        "ports: { in: { generator: { count: 30 } }, out: { pcap: { write: all.pcap } } }
modules: { hop: { ttl: } }
pipeline: [ in -> hop -> out ]
",
    );
    forebay(&["run", made.path(), "--virtual"]).success();
    let capture = std::fs::read(made.beside("all.pcap")).expect("it was written");
    let text = "ports: { in: { pcap: { read: '-' } }, out: { sink: } }
modules: { hop: { ttl: } }
pipeline: [ in -> hop -> out ]
";
    let (running, pipe) = Running::with_input(text, &capture);
    wait_for("all packets", || running.request(&["show", "drops", "--json"]).json()["in"] == 30);
    let (code, report, err) = running.end_with();
    drop(pipe);
    assert!(code == Some(0) && !err.contains("has more packets"), "{err}");
    assert!(report["packets"]["out"] == 30 && report["ports"][0].get("unread").is_none(), "{report}");
}

/// Regression: some time stamps of simulated time were 1 ns too early.
#[test]
fn time_stamps_of_simulated_time_are_exact() {
    let file = File::new(
        "ports: { in: { generator: { count: 2000, rate: 1Gpps, queue: 2000 } }, out: { sink: } }
modules: { wall: { acl: { rules: [], default: deny } } }
pipeline: [ in -> wall -> out ]
",
    );
    let drops = file.beside("drops.pcapng");
    forebay(&["run", file.path(), "--virtual", "--drops", &drops]).success();
    let bytes = std::fs::read(&drops).expect("it was written");
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
    let (mut at, mut stamps) = (0, Vec::new());
    while at < bytes.len() {
        // An enhanced packet block has type 6 (draft-ietf-opsawg-pcapng, section 4.3).
        if word(at) == 6 {
            stamps.push(u64::from(word(at + 12)) << 32 | u64::from(word(at + 16)));
        }
        at += word(at + 4) as usize;
    }
    // Packets are a nanosecond apart.
    let first = stamps[0];
    assert_eq!(stamps, (first..first + 2000).collect::<Vec<_>>());
}

/// Regression: `KEY=null` removed only keys whose value may be `null`, and was refused for others.
#[test]
fn null_removes_any_key() {
    let file = File::new(SESSIONS);
    for key in [
        "batch",
        "seed",
        "pool",
        "pool.frame",
        "control",
        "flows",
        "scheduler",
        "ports.in.generator.rate",
        "ports.in.generator.sessions",
        "ports.in.generator.count",
        "modules.wall.firewall.default",
        "state.known.connections.timeouts",
        "state.known.connections.timeouts.udp",
        "state.known.connections.sessions",
    ] {
        let done = forebay(&["check", file.path(), "--set", &format!("{key}=null")]);
        assert_eq!(done.code, Some(0), "{key}: {}", done.err);
    }
    for (key, why) in [
        ("batch=", "the value is missing"),
        ("modules.wall.firewall.typo", "unknown key 'typo'"),
        ("modules.wall.firewall.state", "`state` is missing"),
        ("ports", "`ports` is missing"),
    ] {
        let set = if key.ends_with('=') { key.to_owned() } else { format!("{key}=null") };
        let done = forebay(&["check", file.path(), "--set", &set]);
        assert!(done.code == Some(2) && done.err.contains(why), "{key}: {}", done.err);
    }
    for key in ["n", "batch", "seed", "sessions"] {
        for null in ["null", "Null", "NULL", "~"] {
            let sets = [format!("{key}=3"), format!("{key}={null}")];
            let done = forebay(&["check", "usecase:gw", "--set", &sets[0], "--set", &sets[1]]);
            assert_eq!(done.code, Some(0), "{key}={null}: {}", done.err);
        }
    }
}

/// Regression: `KEY=null` for a port type or a function set it without parameters instead of removing it.
#[test]
fn null_removes_a_port_type_or_function_if_another_is_set() {
    let file = File::new(
        "ports: { in: { generator: { count: 3 } }, out: { sink: } }
modules: { m: { mss_clamp: { mss: 1400 } } }
pipeline: [ in -> m -> out ]
",
    );
    let check = |sets: &[&str]| {
        let mut arguments = vec!["run", file.path(), "--virtual", "--json"];
        sets.iter().for_each(|set| arguments.extend(["--set", set]));
        forebay(&arguments)
    };
    for (sets, port, function) in [
        (&["ports.out.sink=null", "ports.out.pcap.write=o.pcap"][..], "pcap", "mss_clamp"),
        (&["ports.out.pcap.write=o.pcap", "ports.out.sink=null"], "pcap", "mss_clamp"),
        (&["modules.m.mss_clamp=null", "modules.m.ttl={}"], "sink", "ttl"),
        (&["modules.m.mss_clamp=null", "modules.m.counter=null"], "sink", "counter"),
        // A type that is not set is removed already. If it is the only one, `null` is a type without parameters.
        (&["modules.m.ttl=null"], "sink", "mss_clamp"),
        (&["ports.out.sink=null"], "sink", "mss_clamp"),
    ] {
        let done = check(sets);
        assert_eq!(done.code, Some(0), "{sets:?}: {}", done.err);
        let (report, kind) = (done.json(), "kind");
        assert_eq!((&report["ports"][1][kind], &report["modules"][0]["function"]), (&port.into(), &function.into()));
    }
    for (sets, why) in [
        (&["modules.m.mss_clmap=null"][..], "there is no function 'mss_clmap'"),
        (&["modules.m.ttl={}"], "modules.m: it has 2 keys: allowed is 1"),
    ] {
        let done = check(sets);
        assert!(done.code == Some(2) && done.err.contains(why), "{sets:?}: {}", done.err);
    }
}

/// Regression: a run whose standard error was not read never ended, and its report was never written.
#[test]
fn a_run_ends_even_if_its_standard_error_is_not_read() {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    use std::io::Write;
    let (_reader, mut writer) = std::io::pipe().expect("a pipe");
    let flags = fcntl_getfl(&writer).expect("it is open");
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK).expect("it is open");
    for size in [4_096, 1] {
        while writer.write(&vec![b' '; size]).is_ok() {}
    }
    fcntl_setfl(&writer, flags).expect("it is open");
    let file = File::new(SESSIONS);
    for (more, code) in [(&[][..], 0), (&["--set", "batch=0"], 2)] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(["run", file.path(), "--json", "--no-socket", "--no-live", "--duration", "50ms"]).args(more);
        command.stderr(writer.try_clone().expect("it is open"));
        let done = crate::CommandResult::of(command.output().expect("the command can be started"));
        assert_eq!(done.code, Some(code), "{}", done.out);
        assert!(done.json().is_object(), "{}", done.out);
    }
}

/// Regression: if the reader of the output had closed the pipe, the exit code was 0 also for a negative result.
#[test]
fn a_closed_output_pipe_does_not_change_the_exit_code() {
    let unread = |arguments: &[&str]| {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_forebay"));
        let output = command.args(arguments).stdout(writer).output().expect("the command can be started");
        crate::CommandResult::of(output)
    };
    let running = Running::start();
    let socket = running.socket();
    let flows = "flows:\n  - { name: all, path: [hop], slo: 1us }\n";
    let file = File::new(&format!("{}{flows}", crate::ROUTER.replace("count: 1000", "count: 1000, rate: 100kpps")));
    // Every call takes ten times the objective.
    let slow = ["run", file.path(), "--virtual", "--cost", "hop=10000", "--strict"];
    let chains = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/chains.yaml");
    let models = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/place/models.json");
    let rejected = ["place", chains, "--models", models, "--topology", "1x1", "--search", "node-first"];
    for arguments in [&["table", "route", "foo bar", "--socket", &socket][..], &slow[..], &rejected[..]] {
        for more in [&[][..], &["--json"][..]] {
            let done = unread(&[arguments, more].concat());
            assert_eq!(done.code, Some(1), "{arguments:?} {more:?}: {}", done.err);
        }
    }
    // Success stays success, for finite output and for output that may have no end.
    for arguments in [&["list", "functions"][..], &["show", "modules", "--socket", &socket][..]] {
        let done = unread(arguments);
        assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{arguments:?}");
    }
}
