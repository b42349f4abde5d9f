//! Decisions of a controller: recorded during a run, and decided again by `replay`.

use std::io::Write as _;

use serde_json::Value;

use crate::{File, ROUTER, forebay};

/// A run of branches that differ, each with an objective, in simulated time.
const CASE: &[&str] = &[
    "run",
    "usecase:gw",
    "--virtual",
    "--cost",
    "*=300+50",
    "--duration",
    "300ms",
    "--set",
    "n=4",
    "--set",
    "slo=400us",
    "--set",
    "fold=off",
    "--set",
    "control.period=10ms",
];

/// Returns a recording of [`CASE`] under a controller.
fn recorded(controller: &str) -> File {
    let file = File::new("");
    let done = forebay(&[CASE, &["--controller", controller, "--decisions", file.path()]].concat());
    assert_eq!(done.code, Some(0), "{}", done.err);
    file
}

fn replayed(arguments: &[&str]) -> Value {
    serde_json::from_str(&forebay(&[&["replay"], arguments, &["--json"]].concat()).success()).expect("JSON")
}

/// Regression: two runs that wrote to one file both ended successfully, and the file was unreadable.
#[test]
fn a_recording_is_written_by_one_process_at_a_time() {
    let file = File::new("as it was");
    let locked = std::fs::File::open(file.path()).expect("the file");
    locked.lock().expect("no other process has a lock");
    let done = forebay(&[CASE, &["--controller", "optimal", "--decisions", file.path()]].concat());
    assert!(done.code == Some(2) && done.err.contains("another process writes this file"), "{}", done.err);
    assert_eq!(std::fs::read_to_string(file.path()).expect("the file"), "as it was");
}

#[test]
fn the_recorded_controller_makes_the_same_decisions_again() {
    for controller in ["optimal", "gradient", "on-off"] {
        let file = recorded(controller);
        let replay = replayed(&[file.path()]);
        let [part] = &replay["parts"].as_array().expect("a list")[..] else { panic!("{replay}") };
        assert_eq!((&part["recorded"], part["recorded"]["controller"].as_str()), (&part["replayed"], Some(controller)));
        let summary = &part["summary"];
        let periods = summary["periods"].as_u64().expect("a count");
        assert!(periods >= 30 && summary["different"] == 0, "{controller}: {summary}");
        assert!(summary["recorded"]["changes"].as_u64() > Some(0), "{controller} decides something: {summary}");
        assert_eq!(summary["recorded"], summary["replayed"]);
        assert_eq!(part["periods"].as_array().map(Vec::len), Some(periods as usize));
    }
}

#[test]
fn another_controller_is_shown_beside_the_recorded_one() {
    let file = recorded("optimal");
    let replay = replayed(&[file.path(), "--controller", "null"]);
    let summary = &replay["parts"][0]["summary"];
    let load = |side: &str| summary[side]["load"].as_f64().expect("periods");
    assert!(load("replayed") > load("recorded") && summary["different"].as_u64() > Some(0), "{summary}");
    let replay = replayed(&[file.path(), "--controller", "static", "--set", "trigger=2", "--guard", "0.5"]);
    let replayed = serde_json::json!({ "controller": "static", "params": { "trigger": 2 }, "guard": 0.5 });
    assert_eq!(replay["parts"][0]["replayed"], replayed);
    let table = forebay(&["replay", file.path(), "--controller", "null", "--periods", "3"]).success();
    for expected in [
        "different decisions in ",
        "recorded  optimal",
        "replayed  null",
        "the last 3 periods:",
        "slowest of its objective",
    ] {
        assert!(table.contains(expected), "'{expected}' is not in\n{table}");
    }
    assert_eq!(table.lines().filter(|line| line.contains(" s  ")).count(), 3, "{table}");
    let short = forebay(&["replay", file.path(), "--periods", "0"]).success();
    assert!(short.contains("same decisions") && !short.contains("the last"), "{short}");
}

/// The model predicts that `voice` keeps its objective. It misses it because another flow's calls take half of the
/// objective.
const LATE: &str = "\
ports:
  up: { generator: { rate: 500kpps, arrivals: poisson } }
  down: { sink: }
modules:
  cls: { weighted_split: { weights: [1, 1] } }
  voice: { ttl: }
  inspect: { bypass: }
  bulk: { ttl: }
pipeline:
  - up -> cls
  - cls[0] -> voice -> down
  - cls[1] -> inspect -> bulk -> down
flows:
  - { name: voice, path: 'cls[0] -> voice', slo: 12us }
  - { name: bulk, path: 'cls[1] -> bulk', slo: 5ms }
control: { batching: optimal, period: 10ms }
";

/// Regression: only the model's figures were printed. No period missed an objective, although most periods were
/// measured to miss one. Without batches the load would be above the available time.
#[test]
fn measured_figures_are_shown_beside_the_models_figures() {
    let (file, decisions) = (File::new(LATE), File::new(""));
    let costs = ["--cost", "*=100+20", "--cost", "inspect=8000+200"];
    let run = ["run", file.path(), "--virtual", "--duration", "300ms", "--json", "--decisions", decisions.path()];
    let report = forebay(&[&run[..], &costs].concat()).json();
    let replay = replayed(&[decisions.path(), "--controller", "null"]);
    let (part, summary) = (&replay["parts"][0], &replay["parts"][0]["summary"]);
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} in {summary}"));
    assert_eq!(summary["measured"]["missed"], report["control"]["violated"]);
    assert!(number(&summary["measured"]["missed"]) > number(&summary["periods"]) / 2.0, "{summary}");
    // The periods are 1, 2, 4 and 8 ms, then the first of 10 ms.
    let periods = part["periods"].as_array().expect("a list");
    assert_eq!((summary["first"].as_u64(), periods.iter().filter(|it| it["settled"] == false).count()), (Some(5), 5));
    let mean = |of: &dyn Fn(&Value) -> f64| periods[5..].iter().map(of).sum::<f64>() / (periods.len() - 5) as f64;
    let near = |value: &Value, mean: f64| assert!((number(value) - mean).abs() < 1e-9, "{mean}: {summary}");
    near(&summary["measured"]["busy"], mean(&|it| number(&it["measured"]["busy"])));
    near(&summary["recorded"]["load"], mean(&|it| number(&it["recorded"]["load"])));
    let busy = number(&report["workers"][0]["busy"]);
    assert!((number(&summary["measured"]["busy"]) / busy - 1.0).abs() < 0.2, "{busy}: {summary}");
    assert!(number(&summary["replayed"]["load"]) > 1.0, "{summary}");
    let table = forebay(&["replay", decisions.path(), "--controller", "null", "--periods", "1"]).success();
    for expected in [
        "measured  optimal",
        "loads are means without the first 5 periods",
        "> 100 %: more than the available time",
        " yes ",
    ] {
        assert!(table.contains(expected), "'{expected}' is not in\n{table}");
    }
    let alike = forebay(&["replay", decisions.path(), "--periods", "1"]).success();
    assert!(alike.contains("same decisions"), "{alike}");
}

fn refused(arguments: &[&str], all: &[&str]) {
    let done = forebay(arguments);
    assert_eq!(done.code, Some(2), "{arguments:?}: {}{}", done.out, done.err);
    for expected in all {
        assert!(done.err.contains(expected), "{arguments:?}: '{expected}' is not in\n{}", done.err);
    }
}

#[test]
fn invalid_recordings_and_controllers_are_refused() {
    let file = recorded("optimal");
    let path = file.path();
    refused(&["replay", "/nonexistent.jsonl"], &["/nonexistent.jsonl", "No such file"]);
    refused(
        &["replay", path, "--controller", "optimel"],
        &["--controller: there is no controller 'optimel'", "did you mean 'optimal'?", "on-off"],
    );
    refused(&["replay", path, "--controller", "nfvnice"], &["`scheduler: weighted-fair`", "run-to-completion"]);
    refused(&["replay", path, "--controller", "static"], &["static", "trigger", "--set"]);
    refused(&["replay", path, "--set", "size=3"], &["--set size=3: unknown key 'size'", "describe optimal"]);
    let one = |set, all: &[&str]| refused(&["replay", path, "--controller", "static", "--set", set], all);
    one("trgger=3", &["--set trgger=3: ", "unknown key 'trgger' (did you mean 'trigger'?)"]);
    one("trigger=x", &["--set trigger=x: trigger: 'x' is not a whole number"]);
    // The range of the configuration applies. Regression: the value was taken as the largest batch.
    one("trigger=257", &["--set trigger=257: trigger: '257' is out of range", "to 256"]);
    one("trigger=", &["--set trigger=: trigger: it has no value: allowed is a whole number"]);
    refused(&["replay", path, "--guard", "1"], &["0 to less than 1"]);
    let text = std::fs::read_to_string(path).expect("a recording");
    let broken = |name: &str, text: &str, all: &[&str]| {
        let damaged = file.beside(name);
        std::fs::write(&damaged, text).expect("a file beside the test's");
        refused(&["replay", &damaged], &[&[damaged.as_str()], all].concat());
    };
    broken("empty", "", &["the file is empty", "forebay run --decisions"]);
    broken("other", ROUTER, &["line 1, column 1", "forebay run --decisions"]);
    let (begin, periods) = text.split_once('\n').expect("lines");
    broken("early", periods, &["line 1: a period comes before the first `begin`"]);
    broken("middle", &text.replacen("\"period_s\"", "\"perod_s\"", 3), &["line 1, column", "period_s"]);
    broken(
        "shape",
        &text.replacen("\"flows\":[{\"packets\"", "\"flows\":[],\"more\":[{\"packets\"", 1),
        &["line 2: ", "0 flows"],
    );
    broken("wide", &text.replacen("\"hold_s\":0.0", "\"hold_s\":1e300", 1), &["line 2: a module's time of 1e300 s: "]);
    let trigger = "\"params\":{\"trigger\":900}";
    let wrong = text.replacen("optimal", "static", 1).replacen("\"params\":null", trigger, 1);
    broken("params", &wrong, &["static: trigger: '900' is out of range", "to 256"]);
    let gzip = file.beside("day.jsonl.gz");
    std::fs::write(&gzip, b"\x1f\x8b\x08\x00\x00").expect("a file beside the test's");
    refused(&["replay", &gzip], &[&gzip, "compressed by gzip", "gunzip"]);
    broken("name", &text.replacen("optimal", "optimel", 1), &["'optimel'", "did you mean 'optimal'?"]);
    broken(
        "none",
        &text.replacen("\"percentile\":99.0", "\"percentile\":-1", 1),
        &["line 1: ", "percentile -1", "more than 0 to 100"],
    );
    // A recording that was cut off during writing is valid up to its last complete line.
    let cut = file.beside("cut");
    std::fs::write(&cut, &text[..text.len() - 40]).expect("a file beside the test's");
    let done = forebay(&["replay", &cut, "--json"]);
    assert!(done.err.contains("the last line is incomplete and is ignored"), "{}", done.err);
    let replay: Value = serde_json::from_str(&done.out).expect("JSON");
    let whole = text.lines().count() as u64;
    assert_eq!((replay["parts"][0]["summary"]["periods"].as_u64(), begin.is_empty()), (Some(whole - 2), false));
}

#[test]
fn decisions_are_written_or_the_reason_is_reported() {
    let file = File::new(ROUTER);
    let run = |more: &[&'static str]| forebay(&[&["run", file.path(), "--virtual", "--no-socket"], more].concat());
    let done = run(&["--decisions", "/tmp/never"]);
    assert!(
        done.code == Some(2) && done.err.contains("--decisions: the pipeline has no controller: name one"),
        "{}",
        done.err
    );
    let done = run(&["--controller", "max", "--decisions", "/nonexistent/x"]);
    assert!(done.code == Some(2) && done.err.contains("--decisions /nonexistent/x: No such file"), "{}", done.err);
    let done = run(&["--controller", "optimel"]);
    assert!(done.code == Some(2) && done.err.contains("did you mean 'optimal'?"), "{}", done.err);
    if !std::path::Path::new("/dev/full").exists() {
        drop(writeln!(std::io::stderr(), "skipped: there is no /dev/full"));
        return;
    }
    // The run continues to its end although the file cannot be written.
    let done = forebay(&[CASE, &["--controller", "optimal", "--decisions", "/dev/full"]].concat());
    assert!(
        done.code == Some(2) && done.err.contains("--decisions /dev/full: No space left on device"),
        "{}",
        done.err
    );
    assert!(done.out.contains("every packet accounted for"), "{}", done.out);
}

/// Checks the report of a run with a controller, as text and as JSON.
#[test]
fn a_run_reports_the_decisions_of_its_controller() {
    let out = forebay(&[CASE, &["--controller", "optimal"]].concat()).success();
    for expected in [
        "optimal every 10.00 ms, guard 5 %: ",
        "\nlast: ",
        "(",
        "objectives: ",
        " of 4 kept",
        "trigger",
        "  measured  verdict  late  packets/s",
    ] {
        assert!(out.contains(expected), "'{expected}' is not in\n{out}");
    }
    let json = forebay(&[CASE, &["--controller", "optimal", "--json"]].concat()).json();
    let control = &json["control"];
    assert_eq!((control["controller"].as_str(), control["guard"].as_f64()), (Some("optimal"), Some(0.05)));
    assert!(control["periods"].as_u64() >= Some(30) && control["changes"][0]["why"].is_string(), "{control}");
    assert!(
        json["modules"][0]["ingress_mean"].is_number() && json["flows"][0]["at_percentile_us"].is_number(),
        "{json}"
    );
    // If calls alone take longer than the objective, no decision keeps it.
    let out = forebay(&[CASE, &["--set", "slo=1us", "--controller", "optimal"]].concat()).success();
    assert!(out.contains(" cannot keep 1.000 us (5 % in reserve): it takes ") && out.contains("MISSED: "), "{out}");
    let json = forebay(&[CASE, &["--set", "slo=1us", "--controller", "optimal", "--json"]].concat()).json();
    assert!(json["control"]["unkept"][0]["least_us"].as_f64() > Some(1.0), "{json}");
}

/// Regression: the tables of `docs/control.md` were of another version of the controller.
#[test]
fn the_documentation_shows_the_output_of_the_program() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/control.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let block = |command: &str| -> Vec<String> {
        let lines = page.lines().skip_while(|line| !line.starts_with(command));
        let lines = lines.take_while(|line| !line.starts_with("```"));
        // Skips the command. The time of decisions depends on the machine.
        let shown = lines.skip_while(|line| line.ends_with('\\') || line.starts_with(['$', ' ']));
        shown
            .filter(|line| !line.is_empty() && *line != "…" && !line.contains("it decides in"))
            .map(str::to_owned)
            .collect()
    };
    let file = File::new("");
    let sets = "n=8 fold=off slo=200us control.period=10ms".split(' ').flat_map(|set| ["--set", set]);
    let run =
        ["run", "usecase:gw", "--controller", "optimal", "--virtual", "--cost", "*=300+50", "--duration", "300ms"];
    let run: Vec<&str> = run.into_iter().chain(sets).chain(["--decisions", file.path()]).collect();
    let replay = ["replay", file.path(), "--controller", "gradient", "--periods", "2"];
    for (command, out) in
        [("$ forebay run usecase:gw", forebay(&run).success()), ("$ forebay replay", forebay(&replay).success())]
    {
        let shown = block(command);
        assert!(shown.len() >= 8, "{command}: {shown:?}");
        let missing: Vec<&String> = shown.iter().filter(|line| !out.lines().any(|printed| printed == *line)).collect();
        assert!(missing.is_empty(), "{command}: {missing:#?} is not in\n{out}");
    }
}
