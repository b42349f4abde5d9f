//! Changes of a running pipeline: the state that a reload takes over and ends, and the state after a kill.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::forebay;
use crate::running::{PIPELINE, Running, json, temporary, wait_for};

/// Regression: such changes were reported as made, but were lost.
#[test]
fn changes_of_a_table_that_a_reload_replaces_are_refused() {
    let running = Running::start();
    let block: String = (0..4_096).map(|at| format!("add 11.0.{}.{}/32 1\n", at / 256, at % 256)).collect();
    let mut stream = running.connect(format!("{{\"do\":\"change\",\"module\":\"route\"}}\n{block}").as_bytes());
    let entries = || {
        let tables = json(&running.request(&["show", "tables", "--json"]));
        tables[0]["entries"].as_u64().expect("a number")
    };
    wait_for("all entries", || entries() >= 4_096);
    running.write(&PIPELINE.replace("10.0.0.0/8 1", "10.0.0.0/9 1"));
    assert_eq!(running.request(&["reload"]).code, Some(0));
    // More changes than are made at a time: the run skips the rest, and reads the next request.
    let more: String = (0..4_200).map(|at| format!("add 12.0.{}.{}/32 1\n", at / 256, at % 256)).collect();
    write!(stream, "{more}\n{{\"do\":\"tables\"}}\n").expect("it listens");
    let mut responses = BufReader::new(stream).lines().map(|line| line.expect("UTF-8"));
    let response = responses.next().expect("a response");
    assert!(response.contains("a reload has replaced the table 'routes' of module 'route' meanwhile"), "{response}");
    let response = responses.next().expect("a response");
    assert!(response.starts_with("{\"tables\""), "{response}");
    assert_eq!(entries(), 2);
    running.end();
}

/// Regression: rows of removed rules stayed, so that each reload of a changed list made all reports longer.
#[test]
fn counters_of_removed_rules_are_not_listed() {
    let running = Running::start();
    let with = |rule: &str| {
        let rule = format!("  fw: {{ acl: {{ rules: ['@{rule} 0.0.0.0/0 0 : 65535 0 : 65535 0/0 permit'] }} }}\n");
        PIPELINE.replace("modules:\n", &format!("modules:\n{rule}")).replace("in -> route", "in -> fw -> route")
    };
    for rule in ["10.0.0.0/8", "172.16.0.0/12", "0.0.0.0/0"] {
        running.write(&with(rule));
        assert_eq!(running.request(&["reload"]).code, Some(0));
    }
    let counters = || {
        let modules = json(&running.request(&["show", "modules", "--json"]));
        let fw = modules.as_array().expect("modules").iter().find(|module| module["name"] == "fw").expect("it exists");
        fw["counters"].clone()
    };
    let listed = counters();
    assert_eq!(listed["rules, IPv4"].as_object().expect("counters").len(), 1, "{listed}");
    // A function without rules, with the same module name.
    let other = PIPELINE.replace("modules:\n", "modules:\n  fw: { counter: }\n");
    running.write(&other.replace("in -> route", "in -> fw -> route"));
    assert_eq!(running.request(&["reload"]).code, Some(0));
    let listed = counters();
    assert!(listed["rules, IPv4"].is_null(), "{listed}");
    running.end();
}

/// Regression: if a reload removed a shaper, its held packets were counted but missing in traces and files of drops.
#[test]
fn held_packets_that_a_reload_drops_are_written() {
    let folder = temporary();
    let drops = folder.path().join("drops.pcapng");
    let shaped = PIPELINE
        .replace("  b: { counter: }", "  b: { shaper: { rate: 8kbps, burst: 2KiB, queue: 100 } }")
        .replace("rate: 100kpps", "rate: 100kpps, count: 100");
    let more = ["--drops", &drops.display().to_string(), "--trace", "100"];
    let running = Running::in_folder(folder, &shaped, &more);
    // All packets have entered, and most of them are held for seconds.
    let entered = |shown: &Value| shown["in"].as_u64().expect("a number");
    wait_for("all packets", || entered(&json(&running.request(&["show", "drops", "--json"]))) >= 100);
    running.write(&shaped.replace("b: { shaper: { rate: 8kbps, burst: 2KiB, queue: 100 } }", "b: { counter: }"));
    let reloaded = json(&running.request(&["reload", "--json"]))["reloaded"].clone();
    let dropped = reloaded["dropped"].as_u64().expect("a number");
    assert!(dropped > 0, "{reloaded}");
    let (report, folder) = running.end_keeping();
    assert_eq!(report["packets"]["dropped"]["held_at_close"].as_u64(), Some(dropped));
    let written = std::fs::read(drops).expect("it exists");
    let comment = b"b.held_at_close";
    let seen = written.windows(comment.len()).filter(|window| window == comment).count();
    assert_eq!(seen as u64, dropped);
    drop(folder);
}

/// Regression: with another address for a `tap` port, the kernel reported that the interface was in use, and the reload
/// was refused.
#[test]
fn a_tap_port_keeps_its_interface_when_it_changes() {
    let folder = temporary();
    let interface = format!("fbl{}", std::process::id());
    let with = |more: &str| {
        PIPELINE
            .replace(
                "out: { sink: }",
                &format!("out: {{ sink: }}\n  host: {{ tap: {{ interface: {interface}, {more} }} }}"),
            )
            .replace("pipeline:", "pipeline:\n  - host -> drop")
    };
    let file = folder.path().join("pipeline.yaml");
    std::fs::write(&file, with("mtu: 1400")).expect("a writable folder");
    let probe = forebay(&["run", file.to_str().expect("UTF-8"), "--no-live", "--no-socket", "--duration", "10ms"]);
    if probe.code == Some(2) && ["CAP_NET_ADMIN", "/dev/net/tun"].iter().any(|why| probe.err.contains(why)) {
        let _ = writeln!(std::io::stderr(), "skipped: a_tap_port_keeps_its_interface_when_it_changes: {}", probe.err);
        return;
    }
    let read = |attribute: &str| {
        std::fs::read_to_string(format!("/sys/class/net/{interface}/{attribute}")).map(|text| text.trim().to_owned())
    };
    let running = Running::in_folder(folder, &with("mtu: 1400"), &[]);
    let number = read("ifindex").expect("it exists");
    assert_eq!(read("mtu").expect("it exists"), "1400");
    running.write(&with("mtu: 1300, poll: 1ms"));
    let reloaded = json(&running.request(&["reload", "--json"]))["reloaded"].clone();
    assert_eq!(reloaded["ports_opened"], serde_json::json!(["host"]), "{reloaded}");
    assert_eq!(
        (read("ifindex").expect("it exists"), read("mtu").expect("it exists")),
        (number.clone(), "1300".to_owned())
    );
    // A refused reload leaves the interface unchanged.
    for wrong in [with("mtu: 1200") + "  - in -> nowhere\n", with("mtu: 1200, mac: '03:00:00:00:00:01'")] {
        running.write(&wrong);
        assert_eq!(running.request(&["reload"]).code, Some(2));
        assert_eq!(
            (read("ifindex").expect("it exists"), read("mtu").expect("it exists")),
            (number.clone(), "1300".to_owned())
        );
    }
    running.write(&with("mtu: 1200").replace("host:", "other:").replace("host ->", "other ->"));
    let done = running.request(&["reload"]);
    assert!(done.code == Some(2) && done.err.contains("in use by the port 'host'"), "{}", done.err);
    running.end();
    assert!(read("mtu").is_err(), "the interface is removed");
}

/// If the run is killed at any moment of a reload, the next start finds a complete configuration: the last or the
/// previous one.
#[test]
fn a_killed_pipeline_restarts_from_the_last_accepted_configuration() {
    let mut running = Running::start();
    let mut accepted = 0;
    for round in 0..4u64 {
        for _ in 0..3 {
            running.write(&format!("name: v{}\n{PIPELINE}", accepted + 1));
            json(&running.request(&["reload", "--json"]));
            accepted += 1;
        }
        // One more reload is in progress when the run is killed.
        running.write(&format!("name: v{}\n{PIPELINE}", accepted + 1));
        let mut last = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["reload", "--socket", &running.socket()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the command can be started");
        std::thread::sleep(std::time::Duration::from_millis(5 * round));
        running.kill();
        last.wait().expect("it ends");
        let stale = running.request(&["show", "modules"]);
        assert!(
            stale.code == Some(2) && stale.err.contains("no process listens there, because the pipeline was killed"),
            "{}",
            stale.err
        );
        // The file now contains another text than the accepted one.
        running = Running::in_folder(running.into_folder(), "this is no configuration", &["--prefer", "state"]);
        let name = running.name();
        if name == format!("v{}", accepted + 1) {
            accepted += 1;
        }
        assert_eq!(name, format!("v{accepted}"));
    }
}

/// Two branches that run folded are changed: first one of them, then the folding.
#[test]
fn folded_branches_can_be_changed_one_by_one() {
    const FOLDED: &str = "
ports:
  in:  { generator: { rate: 100kpps, sessions: 64, source: 198.18.0.0/16 } }
  out: { sink: }
modules:
  split: { hash_split: { gates: 2 } }
  m0: { mac_rewrite: { source: 02:00:00:00:00:00, destination: 06:00:00:00:00:00 } }
  m1: { mac_rewrite: { source: 02:00:00:00:00:01, destination: 06:00:00:00:00:01 } }
  n0: { static_nat: { direction: out, mappings: [{ inside: 198.18.0.0/16, outside: 10.0.0.0/16 }] } }
  n1: { static_nat: { direction: out, mappings: [{ inside: 198.18.0.0/16, outside: 10.1.0.0/16 }], unmatched: drop } }
pipeline:
  - in -> split
  - split[0] -> m0 -> n0 -> out
  - split[1] -> m1 -> n1 -> out
";
    let running = Running::of(FOLDED);
    let modules = || json(&running.request(&["show", "modules", "--json"]));
    let packets = |name: &str| crate::running::packets(&modules(), name);
    let assert_packets_continue = |name: &str| {
        let before = packets(name);
        wait_for("packets", || packets(name) > before + 100);
    };
    ["m0", "m1", "n0", "n1"].into_iter().for_each(assert_packets_continue);
    let folded = |name: &str| {
        let modules = modules();
        let module = modules
            .as_array()
            .expect("modules")
            .iter()
            .find(|module| module["name"] == name)
            .expect("it exists")
            .clone();
        module["folded"].clone()
    };
    assert_eq!([folded("m1"), folded("n1")], ["m0", "n0"]);
    // A table of one of them is changed by its module's name.
    let change = running.request(&["table", "n1", "remove 198.18.0.0/16"]);
    assert_eq!(change.code, Some(0), "{}", change.err);
    let dropped = |report: &Value| report["packets"]["dropped"]["n1.unmatched"].as_u64().unwrap_or(0);
    let changed = FOLDED.replace("06:00:00:00:00:01", "06:00:00:00:00:77");
    running.write(&changed);
    let reloaded = json(&running.request(&["reload", "--json"]))["reloaded"].clone();
    // Folded branches are created again together.
    assert_eq!(reloaded["changed"], serde_json::json!(["m0", "m1"]), "{reloaded}");
    for (text, leader) in [(format!("fold: off{changed}"), Value::Null), (changed, "m0".into())] {
        ["m0", "m1", "n0"].into_iter().for_each(assert_packets_continue);
        running.write(&text);
        assert_eq!(running.request(&["reload"]).code, Some(0));
        assert_eq!(folded("m1"), leader);
    }
    ["m0", "m1", "n0"].into_iter().for_each(assert_packets_continue);
    let report = running.end();
    let packets_of = |name: &str| {
        let mut modules = report["modules"].as_array().expect("modules").iter();
        modules.find(|module| module["name"] == name).expect("it exists")["packets"].as_u64().expect("a number")
    };
    let entered = report["packets"]["in"].as_u64().expect("a number");
    assert_eq!(report["packets"]["out"].as_u64().expect("a number") + dropped(&report), entered);
    assert!(dropped(&report) > 0, "{report}");
    assert_eq!(
        (packets_of("m0") + packets_of("m1"), packets_of("n0"), packets_of("n1")),
        (entered, packets_of("m0"), packets_of("m1"))
    );
}

/// Regression: a module that was created again counted the continuing sessions once more, and never counted their end.
#[test]
fn sessions_that_continue_over_a_reload_are_counted_once() {
    const BALANCER: &str = "
ports:
  in:
    generator:
      { rate: 20kpps, sessions: 100, source: 198.51.100.0/24, destination: 192.0.2.10/32, destination_port: 80 }
  out: { sink: }
state:
  web: { balancer: { services: [{ address: 192.0.2.10, protocol: udp, port: 80, backends: [{ address: 10.0.0.1 }] }] } }
modules:
  lb: { balance: { state: web } }
pipeline:
  - in -> lb -> out
";
    const BACKEND: &str = "192.0.2.10:80 udp 10.0.0.1";
    let running = Running::of(BALANCER);
    let counters = || json(&running.request(&["show", "modules", "lb", "--json"]))[0]["counters"].clone();
    let of_backend = |counters: &serde_json::Value, heading: &str| {
        let all = counters[heading].as_object().expect("counters");
        all.iter()
            .find(|(name, _)| name.starts_with(BACKEND))
            .and_then(|(_, count)| count.as_u64())
            .expect("the backend's")
    };
    let packets = || of_backend(&counters(), "packets by backend");
    // Counters are updated from time to time. Waits for the next update.
    let is_updated = || {
        let before = packets();
        (0..600).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            packets() > before
        })
    };
    assert!(is_updated() && is_updated(), "{}", counters());
    assert_eq!(counters()["sessions"]["open"], 100);
    running.write(&BALANCER.replace("{ address: 10.0.0.1 }", "{ address: 10.0.0.1 }, { address: 10.0.0.2 }"));
    let reloaded = json(&running.request(&["reload", "--json"]))["reloaded"].clone();
    assert_eq!(reloaded["changed"], serde_json::json!(["lb"]), "{reloaded}");
    assert!(is_updated() && is_updated(), "{}", counters());
    let after = counters();
    assert_eq!((&after["sessions"]["open"], &after["sessions"]["opened"]), (&100.into(), &100.into()), "{after}");
    assert_eq!(of_backend(&after, "open sessions by backend"), 100, "{after}");
    running.end();
}

/// The standard input is read once: a reload continues to read it, and does not start from the beginning.
#[test]
fn reading_standard_input_continues_over_a_reload() {
    let made = crate::File::new(
        "ports: { in: { generator: { count: 300 } }, out: { pcap: { write: all.pcap } } }
modules: { hop: { ttl: } }
pipeline: [ in -> hop -> out ]
",
    );
    forebay(&["run", made.path(), "--virtual"]).success();
    let capture = std::fs::read(made.beside("all.pcap")).expect("it was written");
    // The capture has a header of 24 bytes, and records of equal length.
    let record = (capture.len() - 24) / 300;
    let text = "ports: { in: { pcap: { read: '-', speed: fast } }, out: { sink: } }
modules: { hop: { ttl: } }
pipeline: [ in -> hop -> out ]
";
    let (running, mut pipe) = Running::with_input(text, &capture[..24 + 100 * record]);
    let received = || {
        let ports: Value =
            serde_json::from_str(&running.request(&["show", "ports", "--json"]).success()).expect("JSON");
        ports[0]["received"].as_u64().expect("a number")
    };
    wait_for("the first packets", || received() >= 100);
    running.request(&["reload", "--set", "name=second"]).success();
    pipe.write_all(&capture[24 + 100 * record..24 + 200 * record]).expect("it is read");
    wait_for("the next packets", || received() >= 200);
    // A changed port would start to read in the middle.
    let done = running.request(&["reload", "--set", "ports.in.pcap.speed=2"]);
    let refused = "'in' already reads the standard input: allowed is one reader in a run";
    assert!(done.code == Some(2) && done.err.contains(refused), "{}", done.err);
    assert_eq!(running.name(), "second");
    pipe.write_all(&capture[24 + 200 * record..]).expect("it is read");
    drop(pipe);
    let (report, _) = running.ended();
    assert_eq!((&report["packets"]["in"], &report["packets"]["out"]), (&300.into(), &300.into()), "{report}");
}

/// Regression: a reload forgot that a flow which it removed had missed its objective, and `--strict` ended with 0.
#[test]
fn an_objective_that_was_missed_before_a_reload_counts_with_strict() {
    let flows = |objective: &str| format!("{PIPELINE}flows: [ {{ name: all, path: [route]{objective} }} ]\n");
    for after in [PIPELINE.to_owned(), flows("")] {
        // No packet has so short a delay.
        let running = Running::in_folder(temporary(), &flows(", slo: 1ns"), &["--strict"]);
        loop {
            let done = running.request(&["show", "flows", "--json"]);
            let flows: serde_json::Value = serde_json::from_str(done.out.trim()).expect("JSON");
            if flows[0]["kept"] == false {
                break;
            }
        }
        running.write(&after);
        running.request(&["reload"]).success();
        let (code, last, err) = running.end_with();
        let removed = last["removed_flows"].as_array().expect("a list");
        assert_eq!((code, removed.len()), (Some(1), 1), "{err}");
        assert!(removed[0]["name"] == "all" && removed[0]["kept"] == false, "{last}");
        assert!(last["flows"].as_array().expect("a list").iter().all(|flow| flow["kept"] != false), "{last}");
    }
    // A flow that the reload keeps is reported once.
    let running = Running::in_folder(temporary(), &flows(", slo: 10s"), &["--strict"]);
    running.write(PIPELINE);
    running.request(&["reload"]).success();
    let (code, last, err) = running.end_with();
    assert!(code == Some(0) && last.get("removed_flows").is_none(), "{err}");
}

/// Regression: only the first fault of a refused configuration was printed after `error: `.
#[test]
fn each_fault_of_a_refused_reload_is_an_error_line() {
    let running = Running::in_folder(temporary(), PIPELINE, &["--set", "ports.in.generator.rate=50kpps"]);
    running
        .write(&PIPELINE.replace("a: { counter: }", "a: { cuonter: }").replace("b: { counter: }", "b: { cuonter: }"));
    let done = running.request(&["reload"]);
    let lines: Vec<_> = done.err.lines().collect();
    assert_eq!((done.code, lines.len()), (Some(2), 2), "{}", done.err);
    assert!(lines.iter().all(|line| line.starts_with("error: ") && line.contains("'cuonter'")), "{}", done.err);
    // The hint is not an error.
    running.write(&PIPELINE.replace(
        "  in:  { generator: { rate: 100kpps, destination: 10.0.0.0/16 } }",
        "  in: { ring: { from: x } }\n  x: { ring: { to: x } }",
    ));
    let done = running.request(&["reload"]);
    assert_eq!(done.code, Some(2), "{}", done.err);
    let hint = done.err.lines().last().expect("a line");
    assert!(hint.starts_with("  ") && hint.ends_with("use --forget to remove them"), "{}", done.err);
}
