//! `forebay profile --co-runs`: runs are stored, an interrupted measurement continues, wrong arguments are refused. No
//! test depends on speed, or on whether a run counts.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::{CommandResult, File, forebay};

/// Options for a few spans of a few milliseconds.
const SHORT: [&str; 5] = ["--time", "10ms", "--passes", "1", "--no-count"];

fn command(cache: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(["profile", "--co-runs"]).args(arguments).env("XDG_CACHE_HOME", cache.path()).stdin(Stdio::null());
    command
}

fn co_runs(cache: &TempDir, arguments: &[&str]) -> CommandResult {
    let output = command(cache, arguments).output().expect("the command can be started");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    CommandResult { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

fn schema() -> Value {
    serde_json::from_str(&forebay(&["schema", "co-runs"]).success()).expect("JSON")
}

fn check(report: &Value) {
    let validator = jsonschema::draft202012::new(&schema()).expect("a schema");
    let wrong: Vec<_> = validator.iter_errors(report).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{wrong:?}: {report}");
}

/// Returns the content of the only file of runs.
fn runs(cache: &TempDir) -> Value {
    let folder = cache.path().join("forebay/co-runs");
    let files: Vec<PathBuf> =
        fs::read_dir(folder).expect("a folder").map(|file| file.expect("a file").path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    serde_json::from_str(&fs::read_to_string(&files[0]).expect("it was stored")).expect("JSON")
}

/// Returns the numbers of a function's runs that count and that do not count.
fn counts(runs: &Value, function: &str) -> (usize, u64) {
    let record = &runs["functions"][function];
    let void = record["void"]["runs"].as_u64().unwrap_or(0);
    (record["samples"].as_array().map_or(0, Vec::len), void)
}

/// Returns true if this machine has two cores for co-runs. Otherwise prints the reason.
fn has_cores(done: &CommandResult) -> bool {
    let is_error = done.code == Some(2) && done.err.contains("co-runs need two cores");
    if is_error {
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("skipped: {}", done.err));
    }
    !is_error
}

#[test]
fn runs_are_stored_and_continued() {
    let cache = TempDir::new().expect("a folder");
    let first = co_runs(&cache, &[&["ttl", "mac_swap", "--json"][..], &SHORT].concat());
    if !has_cores(&first) {
        return;
    }
    // 1: no run of some function counted because the machine is busy.
    assert!(matches!(first.code, Some(0 | 1)), "{}", first.err);
    let report: Value = serde_json::from_str(&first.out).expect("JSON");
    check(&report);
    assert_eq!((&report["version"], &report["interrupted"]), (&1.into(), &false.into()));
    let known = runs(&cache);
    for function in ["ttl", "mac_swap"] {
        let (samples, void) = counts(&known, function);
        assert!(samples as u64 + void >= 8, "{known}");
        let is_in_one_list = report["functions"].get(function).is_some() != report["missing"].get(function).is_some();
        assert!(is_in_one_list, "{report}");
    }
    // Measures more, as text. Runs that count are not measured again.
    let second = co_runs(&cache, &[&["ttl", "mac_swap"][..], &SHORT].concat());
    assert!(
        second.out.contains("ticks_per_packet*") && second.out.contains("Remote parameters: n/a"),
        "{}",
        second.out
    );
    let long = second.out.lines().filter(|line| line.chars().count() > 80 && !line.contains('/')).collect::<Vec<_>>();
    assert!(long.is_empty(), "{long:?}");
    let more = runs(&cache);
    for function in ["ttl", "mac_swap"] {
        let before = known["functions"][function]["samples"].as_array().expect("a list");
        let now = more["functions"][function]["samples"].as_array().expect("a list");
        assert!(now.len() >= before.len() && now[..before.len()] == before[..], "{function}");
    }
    // The report names a file of models. The placement crate can read it.
    let third = co_runs(&cache, &[&["ttl", "--lms", "--json"][..], &SHORT].concat());
    let report: Value = serde_json::from_str(&third.out).expect("JSON");
    check(&report);
    if let Some(file) = report["models"].as_str() {
        let registry = forebay_placement::Registry::read(Path::new(file)).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert!(registry.functions.values().all(|model| model.remote.is_none()), "one domain");
    }
}

#[test]
fn a_measurement_ends_on_a_signal_and_continues_later() {
    let cache = TempDir::new().expect("a folder");
    let mut child = command(&cache, &["ttl", "mac_swap", "--time", "60s", "--no-count", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command can be started");
    let mut err = BufReader::new(child.stderr.take().expect("it is piped"));
    let mut line = String::new();
    while !(line.starts_with("measuring ") && line.contains(" runs, about ")) {
        line.clear();
        err.read_line(&mut line).expect("a line");
        if line.contains("co-runs need two cores") {
            let _ = child.wait();
            let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("skipped: {line}"));
            return;
        }
        // Other tests may use a core.
        let is_expected = ["another pipeline uses core ", "measuring "].iter().any(|start| line.starts_with(start));
        assert!(is_expected, "not an expected line (empty: the command ended): '{line}'");
    }
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a process")).expect("a process");
    kill_process(pid, Signal::INT).expect("it runs");
    let (mut out, mut rest) = (String::new(), String::new());
    child.stdout.take().expect("it is piped").read_to_string(&mut out).expect("text");
    err.read_to_string(&mut rest).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(1), "{rest}");
    let report: Value = serde_json::from_str(&out).expect("JSON");
    check(&report);
    assert_eq!(report["interrupted"], true);
    assert!(rest.contains("the same command continues from there"), "{rest}");
    assert_eq!(runs(&cache)["schema"], 1);
}

#[test]
fn modules_of_a_pipeline_are_measured_one_by_one() {
    let cache = TempDir::new().expect("a folder");
    let file = File::new(
        "ports: { in: { generator: }, out: { sink: } }\n\
         modules: { few: { acl: { rules: { synthetic: 4 }, default: permit } }, count: { counter: } }\n\
         pipeline: [in -> few -> count -> out]\n",
    );
    let done = co_runs(&cache, &[&[file.path(), "--json"][..], &SHORT].concat());
    if !has_cores(&done) {
        return;
    }
    let report: Value = serde_json::from_str(&done.out).unwrap_or_else(|_| panic!("{}", done.err));
    check(&report);
    let known = runs(&cache);
    let keys: Vec<_> = known["functions"].as_object().expect("an object").keys().cloned().collect();
    assert!(keys.len() == 2 && keys[0].starts_with("acl@") && keys[1].starts_with("counter@"), "{keys:?}");
}

#[test]
fn wrong_arguments_are_refused() {
    let cache = TempDir::new().expect("a folder");
    for (arguments, words) in [
        (&["alc"][..], "there is no function 'alc' (did you mean 'acl'?)"),
        (&["usecase:gw", "acl"], "usecase:gw, acl: name one pipeline, or functions"),
        (&["acl", "--set", "n=4"], "--set n=4: functions are measured with the parameters of their examples"),
        (&["acl", "--passes", "0"], "0"),
        (&["acl", "--batch", "3"], "allowed are 4 to 256"),
        (&["acl", "--time", "1ms"], "10ms to 60s"),
        (&["missing.yaml"], "missing.yaml"),
    ] {
        let done = co_runs(&cache, arguments);
        assert!(done.code == Some(2) && done.err.contains(words), "{arguments:?}: {:?} {}", done.code, done.err);
    }
    for flag in [&["--lms"][..], &["--passes", "2"], &["--no-count"], &["--models", "file"]] {
        let done = forebay(&[&["profile", "ttl"], flag].concat());
        assert!(done.code == Some(2) && done.err.contains("--co-runs"), "{flag:?}: {}", done.err);
    }
    // A file with an unknown schema is reported, and its runs are measured again.
    let folder = cache.path().join("forebay/co-runs");
    let done = co_runs(&cache, &[&["ttl"][..], &SHORT].concat());
    if !has_cores(&done) {
        return;
    }
    let file = fs::read_dir(&folder).expect("a folder").next().expect("a file").expect("a file").path();
    fs::write(&file, "{ \"schema\": 7 }").expect("a writable file");
    let done = co_runs(&cache, &[&["ttl"][..], &SHORT].concat());
    assert!(done.err.contains("schema is 7: allowed is 1: measuring everything again"), "{}", done.err);
}

#[test]
fn the_stored_schema_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema/co-runs.schema.json");
    let stored = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let stored: Value = serde_json::from_str(&stored).expect("JSON");
    assert!(stored == schema(), "schema/co-runs.schema.json is not current: run `make schema`");
}
