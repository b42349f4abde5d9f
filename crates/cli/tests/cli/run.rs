//! `forebay run`: the end of a run, simulated time, triggers, objectives, failing ports.

use std::io::{BufRead, BufReader, Write as _};
use std::process::{Command, Stdio};

use crate::{File, ROUTER, contract, forebay};

#[test]
fn a_run_ends_with_a_summary() {
    let file = File::new(ROUTER);
    let out = forebay(&["run", file.path()]).success();
    let both = ["in 1 000 + created 0", "every packet accounted for"];
    for expected in both.iter().chain(&["ticks/packet", "in > kind[ipv4]", " on core ", "--full shows all: "]) {
        assert!(out.contains(expected), "'{expected}' is not in\n{out}");
    }
    assert!(out.lines().count() <= 24, "the summary fits a terminal:\n{out}");
    let full = forebay(&["run", file.path(), "--full"]).success();
    for expected in both.iter().chain(&["ether_split", "write", "batch out", "in > kind[ipv4]"]) {
        assert!(full.contains(expected), "'{expected}' is not in\n{full}");
    }
    assert!(!out.contains('\u{1b}'), "colours without a terminal:\n{out}");
}

#[test]
fn simulated_runs_with_the_same_seed_are_equal() {
    let file = File::new(&ROUTER.replace("sessions: 4", "sessions: 64, skew: 1, rate: 1Mpps, arrivals: poisson"));
    let run = |seed: &str| {
        let done = forebay(&[
            "run",
            file.path(),
            "--json",
            "--virtual",
            "--cost",
            "*=100+10",
            "--cost",
            "hop=500",
            "--seed",
            seed,
        ]);
        assert_eq!(done.code, Some(0), "{}", done.err);
        done.out
    };
    let first = run("7");
    assert_eq!(first, run("7"));
    assert_ne!(first, run("8"));
    let report: serde_json::Value = serde_json::from_str(&first).expect("JSON");
    contract::check(&report);
    assert_eq!((report["kind"].as_str(), report["packets"]["in"].as_u64()), (Some("simulated"), Some(1_000)));
    let module = |name: &str| {
        report["modules"].as_array().expect("a list").iter().find(|it| it["name"] == name).expect("it exists")
    };
    assert_eq!(module("hop")["ticks_per_batch"].as_f64(), Some(500.0), "each call takes the given cost");
}

#[test]
fn triggers_from_the_command_line_are_in_force() {
    let file = File::new(&ROUTER.replace("count: 1000", "count: 960, rate: 1Mpps"));
    let done = forebay(&["run", file.path(), "--json", "--virtual", "--trigger", "hop=16", "--duration", "1s"]);
    let report = done.json();
    let hop =
        report["modules"].as_array().expect("a list").iter().find(|it| it["name"] == "hop").expect("it exists").clone();
    assert_eq!((hop["trigger"].as_u64(), hop["batch_mean"].as_f64()), (Some(16), Some(16.0)), "{hop}");
    assert!(hop["hold_us"].is_number());
}

/// Both schedulers do the same work. Weights are reported only with the scheduler that uses them.
#[test]
fn the_scheduler_can_be_chosen_on_the_command_line() {
    let file = File::new(ROUTER);
    for (scheduler, weight) in [("weighted-fair", Some(1)), ("run-to-completion", None)] {
        let report = forebay(&["run", file.path(), "--json", "--virtual", "--scheduler", scheduler]).json();
        contract::check(&report);
        assert_eq!(report["packets"]["in"].as_u64(), Some(1_000), "{scheduler}");
        for module in report["modules"].as_array().expect("a list") {
            assert_eq!(module["weight"].as_u64(), weight, "{scheduler}: {module}");
        }
    }
    let done = forebay(&["run", file.path(), "--scheduler", "fair"]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("run-to-completion") && done.err.contains("weighted-fair"), "{}", done.err);
}

/// A chain that gets more packets than its rate drops the rest at its beginning, and counts the reason.
#[test]
fn an_overloaded_chain_drops_packets_with_a_reason() {
    let file = File::new(
        "scheduler: weighted-fair
ports: { in: { generator: { count: 100000 } }, out: { sink: } }
modules: { first: { counter: }, slow: { counter: } }
shares: { slow: { rate: 1Mpps, burst: 0us, when_full: drop } }
pipeline: [in -> first -> slow -> out]
",
    );
    let report = forebay(&["run", file.path(), "--json", "--virtual", "--cost", "*=100+1", "--duration", "1s"]).json();
    let dropped = report["packets"]["dropped"].as_object().expect("reasons");
    assert_eq!(dropped.keys().collect::<Vec<_>>(), ["first.backpressure"]);
    let (dropped, out) = (dropped["first.backpressure"].as_u64(), report["packets"]["out"].as_u64());
    assert!(dropped > Some(0) && out > Some(0), "{}", report["packets"]);
    assert_eq!(dropped.zip(out).map(|(dropped, out)| dropped + out), Some(100_000));
}

#[test]
fn a_missed_objective_sets_the_exit_code_only_with_strict() {
    let flows = "flows:\n  - { name: all, path: [hop], slo: 1us }\n";
    let file = File::new(&format!("{}{flows}", ROUTER.replace("count: 1000", "count: 1000, rate: 100kpps")));
    // Every call takes ten times the objective.
    let slow = ["run", file.path(), "--json", "--virtual", "--cost", "hop=10000"];
    let lax = forebay(&slow);
    assert_eq!((lax.code, &lax.json()["flows"][0]["kept"]), (Some(0), &false.into()));
    assert_eq!(forebay(&[&slow[..], &["--strict"]].concat()).code, Some(1));
    let quick = ["run", file.path(), "--virtual", "--strict"];
    assert_eq!(forebay(&quick).code, Some(0));
}

#[test]
fn duration_ends_an_endless_run() {
    let file = File::new(&ROUTER.replace("count: 1000, ", ""));
    let done = forebay(&["run", file.path(), "--json", "--duration", "300ms", "--interval", "100ms"]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    contract::check(&done.json());
    assert!(done.json()["duration_s"].as_f64().expect("a number") >= 0.3);
    assert!(done.err.contains("the worker runs on core"), "{}", done.err);
}

#[test]
fn a_signal_ends_a_run_with_its_summary() {
    let file = File::new(&ROUTER.replace("count: 1000, ", ""));
    for signal in ["-INT", "-TERM"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["run", file.path(), "--json", "--interval", "50ms"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command can be started");
        // A line of figures shows that the pipeline runs.
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let running = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains(" pps")));
        assert!(running.is_some(), "it ended by itself");
        let killed = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill can be run");
        assert!(killed.success());
        // The pipe needs a reader until the process ends.
        lines.for_each(drop);
        let output = child.wait_with_output().expect("it ends");
        let report = serde_json::from_slice(&output.stdout).expect("JSON");
        contract::check(&report);
        assert_eq!(output.status.code(), Some(0));
    }
}

#[test]
fn a_failing_port_is_reported_and_sets_the_exit_code() {
    let full = std::path::Path::new("/dev/full");
    if !full.exists() {
        let _ = writeln!(std::io::stderr(), "skipped: there is no /dev/full");
        return;
    }
    let file =
        File::new(&ROUTER.replace("sink: {}", "pcap: { write: /dev/full }").replace("count: 1000", "count: 100000"));
    let done = forebay(&["run", file.path(), "--json"]);
    assert_eq!(done.code, Some(2), "{}", done.err);
    assert!(done.err.contains("port 'out'") && done.err.contains("/dev/full"), "{}", done.err);
    contract::check(&done.json());
}

/// Returns the YAML block with this number on a page of the documentation, as a file.
fn yaml_block(page: &str, number: usize) -> File {
    let path = format!("{}/../../docs/{page}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("a page");
    let block = text.split("```yaml\n").nth(number + 1).and_then(|rest| rest.split("```").next());
    File::new(block.unwrap_or_else(|| panic!("{page} has no block {number}")))
}

/// Regression: the traffic of these examples matched no pattern and no rule, and had no fragments and no replies.
#[test]
fn examples_demonstrate_their_functions() {
    let inspection = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/inspection.yaml");
    let run = |path: &str| {
        let done = forebay(&["run", path, "--json", "--virtual", "--duration", "20ms"]);
        assert_eq!(done.code, Some(0), "{path}: {}", done.err);
        done.json()["packets"].clone()
    };
    let packets = run(inspection);
    assert!(packets["dropped"]["look.pattern"].as_u64() > Some(0), "{packets}");
    for (page, number) in
        [("dpi.md", 0), ("fragments.md", 0), ("balancer.md", 0), ("sessions.md", 0), ("sessions.md", 3)]
    {
        let packets = run(yaml_block(page, number).path());
        assert!(packets["out"].as_u64() > Some(0), "{page}: {packets}");
        match page {
            "dpi.md" => assert!(packets["dropped"]["look.pattern"].as_u64() > Some(0), "{packets}"),
            "fragments.md" => assert!(packets["consumed"]["whole.reassembled"].as_u64() > Some(0), "{packets}"),
            // All replies are sent, and at most the initial packets of the other side are not.
            _ => assert!(
                packets["out"].as_u64() > packets["in"].as_u64().map(|entered| entered / 2),
                "{page}: {packets}"
            ),
        }
    }
    for file in [inspection, yaml_block("nids.md", 0).path()] {
        let done = forebay(&["run", file, "--virtual", "--full", "--duration", "20ms"]).success();
        assert!(
            done.lines().any(|line| line.starts_with("ids packets: alerted ") && !line.contains("alerted 0,")),
            "{done}"
        );
    }
}

/// Regression: sessions were counted every quarter of a second and not at the end. A short run reported only one
/// session.
#[test]
fn sessions_are_counted_until_the_end_of_a_run() {
    let file = File::new(
        "ports:
  in: { generator: { sessions: 100, count: 1000, destination: 192.0.2.10/32, destination_port: 80 } }
  out: { sink: }
state:
  known: { connections: {} }
  pool: { nat: { pool: 198.51.100.0/28 } }
  web: { balancer: { services: [{ address: 192.0.2.10, protocol: udp, port: 80, backends: [{ address: 10.0.0.1 }] }] } }
modules:
  wall: { firewall: { state: known, default: permit } }
  gate: { nat_out: { state: pool } }
  lb: { balance: { state: web } }
pipeline:
  - in -> wall -> gate -> lb -> out
",
    );
    for time in [&["--virtual", "--duration", "10ms"][..], &["--duration", "150ms"]] {
        let done = forebay(&[&["run", file.path(), "--json"], time].concat());
        assert_eq!(done.code, Some(0), "{}", done.err);
        let report = done.json();
        let count = |module: &str, heading: &str, name: &str| {
            let modules = report["modules"].as_array().expect("modules");
            let module = modules.iter().find(|entry| entry["name"] == module).expect("it exists");
            let counters = module["counters"][heading].as_object().expect("counters");
            let (_, count) = counters.iter().find(|(counter, _)| counter.starts_with(name)).expect("it exists");
            count.as_u64()
        };
        assert_eq!(count("wall", "connections, IPv4", "open"), Some(100), "{report}");
        assert_eq!(count("gate", "sessions", "open"), Some(100), "{report}");
        assert_eq!(count("lb", "sessions", "open"), Some(100), "{report}");
        assert_eq!(count("lb", "packets by backend", ""), Some(1_000), "{report}");
    }
}

/// Regression: packets of a capture were missing in the file of dropped packets, although the capture could have
/// waited.
#[test]
fn dropped_packets_of_a_capture_are_all_written() {
    let folder = crate::running::temporary();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let made = File::new(
        "ports: { in: { generator: { count: 5000, size: 1400 } }, out: { pcap: { write: none } } }\n\
         pipeline: [ in -> out ]\n",
    );
    forebay(&["run", made.path(), "--virtual", "--set", &format!("ports.out.pcap.write={}", path("a.pcap"))]).success();
    let denied = File::new(
        "ports: { in: { pcap: { read: none, speed: fast } }, out: { sink: } }\n\
         modules: { no: { acl: { rules: [], default: deny } } }\n\
         pipeline: [ in -> no -> out ]\n",
    );
    let read = format!("ports.in.pcap.read={}", path("a.pcap"));
    let done = forebay(&["run", denied.path(), "--no-live", "--set", &read, "--drops", &path("d.pcapng")]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(done.err.contains("5000 dropped packets written"), "{}", done.err);
}

/// Regression: a run did not report the rules that it had skipped.
#[test]
fn a_run_reports_the_rules_that_it_skips() {
    let file = File::new(
        "name: edge\n\
         ports: { in: { generator: { count: 1 } }, out: { sink: } }\n\
         modules: { ids: { nids: { unknown: skip, rules: [\
         'alert ip any any -> any any (sid:1;)', 'alert ip any any -> any any (xyz; sid:2;)'] } } }\n\
         pipeline: [ in -> ids -> out ]\n",
    );
    let done = forebay(&["run", file.path(), "--virtual"]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(done.err.contains("ids: 1 rule skipped ('forebay check --json' lists all)"), "{}", done.err);
}

/// Regression: the example read a capture that was not part of the project.
#[test]
fn the_example_with_a_capture_runs_as_it_is_shipped() {
    let folder = crate::running::temporary();
    let write = format!("ports.out.pcap.write={}", folder.path().join("result.pcap").display());
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/capture.yaml");
    let done = forebay(&["run", file, "--json", "--no-live", "--set", &write]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert_eq!((&done.json()["packets"]["in"], &done.json()["packets"]["out"]), (&200.into(), &200.into()));
}

#[test]
fn the_examples_and_use_cases_run() {
    for name in [
        "l2l3", "gw", "vrf", "mgw", "rc", "sfc_a", "sfc_b", "forward", "router", "firewall", "nids", "dpi", "vpn",
        "aes",
    ] {
        let pipeline = format!("usecase:{name}");
        let done = forebay(&["run", &pipeline, "--json", "--virtual", "--set", "n=2", "--duration", "5ms"]);
        assert_eq!(done.code, Some(0), "{name}: {}", done.err);
        contract::check(&done.json());
        assert!(done.json()["packets"]["out"].as_u64() > Some(0), "{name}");
    }
}

/// The pipeline of the README is the first that a new user copies.
#[test]
fn the_pipeline_of_the_readme_runs_and_keeps_its_objective() {
    let text = include_str!("../../../../README.md");
    let block = text.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a pipeline");
    assert!(block.lines().count() <= 10, "it is short:\n{block}");
    let file = File::new(block);
    let costs = ["--virtual", "--cost", "*=100+20", "--duration", "50ms"];
    let report = forebay(&[&["run", file.path(), "--json"], &costs[..]].concat()).json();
    assert!(report["packets"]["out"].as_u64() > Some(20_000), "{report}");
    assert_eq!(report["flows"][0]["kept"], true, "{report}");
}
