//! Several workers on the command line.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::forebay;

const RINGS: &str = "
ports:
  in:   { generator: { rate: 200kpps } }
  away: { ring: { to: inner } }
  here: { ring: { from: inner } }
  back: { ring: { to: outer } }
  home: { ring: { from: outer } }
  out:  { sink: }
modules:
  first: { counter: }
  second: { mac_swap: }
  third: { counter: }
pipeline:
  - in -> first -> away
  - here -> second -> back
  - home -> third -> out
workers:
  - {}
  - { modules: [second] }
";

/// Regression: a second run chose the core of the first run, and each run got half of the core.
#[test]
fn concurrent_pipelines_choose_different_cores() {
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let run = || {
        let mut process = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(["run", "usecase:l2l3", "--set", "rate=1kpps", "--no-live", "--no-socket", "--duration", "60s"])
            .env("XDG_RUNTIME_DIR", folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command can be started");
        let mut line = String::new();
        BufReader::new(process.stderr.take().expect("piped")).read_line(&mut line).expect("UTF-8");
        (process, line.trim().rsplit_once("the worker runs on core ").expect(&line).1.replace('"', ""))
    };
    let kill = |mut process: Child| {
        process.kill().expect("it runs");
        process.wait().expect("it ends");
    };
    let all = forebay_measure::machine::allowed_cores().len();
    let (runs, mut cores): (Vec<_>, Vec<_>) = (0..all.min(3)).map(|_| run()).unzip();
    let first = cores[0].clone();
    assert!(cores.iter().all(|core| core.parse::<usize>().is_ok()), "{cores:?}");
    cores.sort();
    cores.dedup();
    assert_eq!(cores.len(), runs.len());
    if all == runs.len() {
        let (one_more, core) = run();
        assert_eq!(core, format!("{first}, which another pipeline also uses"));
        kill(one_more);
    }
    // When the runs end, for whatever reason, their cores are free.
    runs.into_iter().for_each(kill);
    let (again, core) = run();
    assert_eq!(core, first);
    kill(again);
}

fn simulated(arguments: &[&str]) -> (String, String) {
    let mut all = vec!["run", "--virtual", "--no-live", "--duration", "5ms"];
    all.extend(arguments);
    let done = forebay(&all);
    assert_eq!(done.code, Some(0), "{}", done.err);
    (done.out, done.err)
}

#[test]
fn several_workers_in_simulated_time_have_reproducible_traces() {
    let arguments = [
        "usecase:gw",
        "--set",
        "n=4",
        "--set",
        "ports.in.generator.arrivals=poisson",
        "--workers",
        "3",
        "--trace",
        "50",
        "--cost",
        "*=100+10",
    ];
    let first = simulated(&arguments);
    assert!(first.0.contains("packet 50 from in") && first.0.contains("worker 2"), "{}", first.0);
    assert!(first == simulated(&arguments), "equal seeds, different traces");
    let other = simulated(&[&arguments[..], &["--seed", "2"]].concat());
    assert!(first.0 != other.0, "different seeds, equal traces");
}

#[test]
fn all_packets_through_rings_are_accounted_for() {
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let file = folder.path().join("rings.yaml");
    std::fs::write(&file, RINGS).expect("a writable folder");
    let file = file.to_str().expect("UTF-8");
    let check = |done: super::CommandResult| {
        assert_eq!(done.code, Some(0), "{}", done.err);
        let report: Value = serde_json::from_str(done.out.lines().last().expect("a report")).expect("JSON");
        let module = |at: usize| report["modules"][at]["packets"].as_u64().expect("a number");
        assert!(module(2) > 500 && module(0) >= module(1) && module(1) >= module(2), "{report}");
        assert_eq!(report["packets"]["in_flight"], 0);
        let ports = report["ports"].as_array().expect("a list").iter().filter(|port| port["kind"] == "ring");
        let lost: u64 = ports.map(|port| port["dropped"].as_u64().expect("a number")).sum();
        assert!(lost <= 2_048, "packets in the rings at the end: {lost}");
    };
    check(forebay(&["run", file, "--virtual", "--duration", "20ms", "--json"]));
    // A machine with one core has no core for the second worker.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores > 1 {
        check(forebay(&["run", file, "--duration", "300ms", "--no-live", "--no-socket", "--json"]));
    }
    for (from, to, expected) in [
        ("{ to: outer }", "{ to: inner }", "another port leads into the ring 'inner'"),
        ("{ to: inner }", "{ to: inner, size: 0 }", "allowed are 1 to 1048576"),
    ] {
        std::fs::write(file, RINGS.replace(from, to)).expect("a writable folder");
        let done = forebay(&["run", file, "--virtual"]);
        assert!(done.code == Some(2) && done.err.contains(expected), "{expected}: {}", done.err);
    }
}

#[test]
fn unavailable_workers_are_refused() {
    let many = forebay(&["run", "usecase:gw", "--workers", "200", "--duration", "1ms"]);
    assert!(many.code == Some(2) && many.err.contains("200 workers need a core each"), "{}", many.err);
    let none = forebay(&["run", "usecase:gw", "--workers", "0"]);
    assert!(none.code == Some(2) && none.err.contains("1 to 256"), "{}", none.err);
    let core = forebay(&["run", "usecase:gw", "--workers", "2", "--core", "0"]);
    assert!(core.code == Some(2) && core.err.contains("2 workers"), "{}", core.err);
}

/// Regression: threads that are not workers ran on the worker's core, and the worker had less time.
#[test]
fn other_threads_stay_off_the_workers_cores() {
    let allowed = forebay_measure::machine::allowed_cores();
    if allowed.len() < 2 {
        let why = "skipped: other_threads_stay_off_the_workers_cores: one core";
        return drop(std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{why}\n")));
    }
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let (file, log, socket) = (folder.path().join("p.yaml"), folder.path().join("nat.log"), folder.path().join("s"));
    let text = |workers: &str| {
        format!(
            "
ports: {{ in: {{ generator: {{ rate: 10kpps }} }}, out: {{ sink: {{}} }} }}
state: {{ n: {{ nat: {{ pool: 192.0.2.0/28, log: {{ file: {} }} }} }} }}
modules: {{ nat: {{ nat_out: {{ state: n }} }} }}
pipeline: [ in -> nat -> out ]
workers: {workers}
",
            log.display()
        )
    };
    std::fs::write(&file, text("[ {} ]")).expect("a writable folder");
    let mut process = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["run", "--no-live", "--duration", "60s", "--socket"])
        .args([&socket, &file])
        .env("XDG_RUNTIME_DIR", folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command can be started");
    super::running::wait_for("the socket", || socket.exists());
    // The name of each thread and its cores.
    let threads = || -> Vec<(String, Vec<usize>)> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", process.id())).expect("it runs").flatten();
        let read = |task: std::fs::DirEntry| {
            let text = std::fs::read_to_string(task.path().join("status")).ok()?;
            let field = |name: &str| Some(text.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned());
            let ranges = field("Cpus_allowed_list:")?;
            let cores = ranges.split(',').flat_map(|range| {
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                first.parse::<usize>().expect("a number")..=last.parse().expect("a number")
            });
            Some((field("Name:")?, cores.collect()))
        };
        tasks.filter_map(read).collect()
    };
    let is_worker = |name: &str| name.starts_with("worker");
    let overlap = || {
        let threads = threads();
        let workers: Vec<usize> =
            threads.iter().filter(|(name, _)| is_worker(name)).flat_map(|(_, cores)| cores.clone()).collect();
        let others = threads.iter().filter(|(name, _)| !is_worker(name));
        let near: Vec<_> =
            others.filter(|(_, cores)| cores.iter().any(|core| workers.contains(core))).cloned().collect();
        (workers.len(), near)
    };
    super::running::wait_for("threads off the worker's core", || overlap() == (1, Vec::new()));
    // With a reload that makes the function again, its thread is started by a worker.
    std::fs::write(&file, text("[ {} ]").replace("192.0.2.0/28", "192.0.2.0/29")).expect("a writable folder");
    super::forebay(&["reload", "--socket", socket.to_str().expect("UTF-8")]).success();
    super::running::wait_for("threads off the worker's core", || overlap() == (1, Vec::new()));
    process.kill().expect("it runs");
    process.wait().expect("it ends");
}
