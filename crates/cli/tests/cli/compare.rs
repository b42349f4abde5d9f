//! `forebay measure --save` and `forebay compare`: stored files and reported differences. The compared builds are
//! scripts that print fixed figures, because real builds need an idle machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::measure::measured;
use crate::{CommandResult, forebay};

/// Saves a measurement. Its program prints the same measurement.
fn save(store: &Path, name: &str, change: impl Fn(&mut Value)) {
    let mut measurement = measured(&["--no-count"]);
    for (at, part) in measurement["modules"].as_array_mut().expect("a list").iter_mut().enumerate() {
        let about = 10.0 + at as f64;
        (part["cpp_ticks"], part["ipp"], part["packets_per_call"]) = (about.into(), (4.0 * about).into(), 32.into());
    }
    (measurement["chain"]["void"], measurement["chain"]["cpp_ticks"], measurement["chain"]["residue_ticks"]) =
        (false.into(), 100.into(), 2.into());
    measurement["workers"][0]["slept"] = 0.001.into();
    change(&mut measurement);
    let folder = store.join(name);
    fs::create_dir_all(&folder).expect("a folder");
    let text = measurement.to_string();
    let program = folder.join("program");
    fs::write(&program, format!("#!/bin/sh\necho '{text}'\n")).expect("a script");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a script");
    measurement["name"] = name.into();
    measurement["at"] = "2026-01-02T03:04:05Z".into();
    measurement["subject"] = json!({ "pipeline": "usecase:l2l3", "set": ["n=2"], "text": null });
    fs::write(folder.join("measurement.json"), measurement.to_string()).expect("a file");
}

fn compare(store: &Path, names: [&str; 2], more: &[&str]) -> CommandResult {
    let store = store.to_str().expect("UTF-8");
    forebay(&[&["compare", names[0], names[1], "--store", store, "--time", "200s"], more].concat())
}

#[test]
fn equal_builds_have_no_change_and_an_increase_is_named_with_its_cause() {
    let folder = TempDir::new().expect("a folder");
    let store = folder.path();
    save(store, "before", |_| {});
    save(store, "code", |measurement| {
        let part = &mut measurement["modules"][2];
        (part["cpp_ticks"], part["ipp"]) = (12.6.into(), 50.4.into());
    });
    save(store, "memory", |measurement| measurement["modules"][2]["cpp_ticks"] = 20.into());
    save(store, "batches", |measurement| {
        let part = &mut measurement["modules"][2];
        (part["cpp_ticks"], part["ipp"], part["packets_per_call"]) = (20.into(), 60.into(), 4.into());
    });
    save(store, "sleep", |measurement| measurement["workers"][0]["slept"] = 0.2.into());
    save(store, "better", |measurement| measurement["modules"][2]["cpp_ticks"] = 9.into());
    let output = compare(store, ["before", "before"], &[]).success();
    assert!(output.contains("40 pairs of runs show no change."), "{output}");
    let name = measured(&["--no-count"])["modules"][2]["name"].as_str().expect("a name").to_owned();
    for (other, why) in [
        ("code", "more instructions (+5.0 % instructions, +5.0 % ticks)"),
        ("memory", "more ticks per instruction: memory or branches (+0.0 % instructions, +66.7 % ticks)"),
        ("batches", "smaller batches (4.0 packets per call instead of 32.0)"),
    ] {
        let done = compare(store, ["before", other], &[]);
        assert_eq!(done.code, Some(1), "{}", done.err);
        assert!(done.out.contains(&format!("{name} is slower: {why}")), "{}", done.out);
        assert_eq!(done.out.matches("is slower").count(), 1, "{}", done.out);
    }
    let done = compare(store, ["before", "sleep"], &["--json"]);
    assert_eq!((done.code, &done.json()["comparison"]["less_busy"]["cause"]), (Some(1), &"less_busy".into()));
    let output = compare(store, ["before", "better"], &[]).success();
    assert!(output.contains(&format!("{name} is faster: fewer ticks per instruction")), "{output}");
}

/// Regression: a side whose file of alerts missed lines looked faster, and nothing reported it.
#[test]
fn lost_lines_are_reported_by_side() {
    let folder = TempDir::new().expect("a folder");
    let store = folder.path();
    save(store, "before", |_| {});
    let lost = json!([{ "module": "ids", "lines": "alerts", "over_rate": 2, "lost": 1, "unwritten": 0 }]);
    save(store, "after", |measurement| measurement["lost_lines"] = lost.clone());
    let done = compare(store, ["before", "after"], &["--json"]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    let found = done.json()["lost_lines"].clone();
    let count = found[1][0]["lost"].as_u64().expect("a number");
    assert!(count > 40 && found[0] == json!([]), "each of the runs: {found}");
    let total = 3 * count;
    let expected = format!("after: ids: alerts: {total} lines are not in the file (");
    assert!(done.err.contains(&expected) && !done.err.contains("before: "), "{}", done.err);
    let done = compare(store, ["before", "before"], &["--json"]);
    assert!(done.json().get("lost_lines").is_none() && done.err.is_empty(), "{}", done.err);
}

#[test]
fn a_saved_measurement_is_found_and_never_overwritten() {
    let folder = TempDir::new().expect("a folder");
    let store = folder.path().to_str().expect("UTF-8");
    let save = |name: &str| {
        let arguments = ["measure", "usecase:l2l3", "--no-count", "--duration", "50ms", "--store", store];
        forebay(&[&arguments, &["--save", name][..]].concat())
    };
    let done = save("../x");
    assert!(done.code == Some(2) && done.err.contains("the name '../x': allowed are"), "{}", done.err);
    let done = save("one");
    // If other tests occupy the cores, runs may be void. The measurement is stored anyway, with a warning.
    assert_eq!(done.code, Some(i32::from(done.err.contains("3 runs were void"))), "{}", done.err);
    assert!(done.err.contains("saved in"), "{}", done.err);
    let again = save("one");
    assert!(again.code == Some(2) && again.err.contains("a measurement of this name exists"), "{}", again.err);
    let program = folder.path().join("one/program");
    let size = |path: &std::path::Path| fs::metadata(path).expect("it exists").len();
    assert!(size(&program) < size(env!("CARGO_BIN_EXE_forebay").as_ref()), "it has no debugging sections");
    let version = |program: &std::path::Path| {
        std::process::Command::new(program).arg("--version").output().expect("it runs").stdout
    };
    assert_eq!(version(&program), version(env!("CARGO_BIN_EXE_forebay").as_ref()));
    let short = forebay(&["compare", "one", "--store", store, "--time", "39s"]);
    assert!(short.code == Some(2) && short.err.contains("allowed are 40s to 1h"), "{}", short.err);
    let missing = forebay(&["compare", "two", "--store", store]);
    assert!(missing.code == Some(2) && missing.err.contains("there is one"), "{}", missing.err);
}

#[test]
fn a_program_that_fails_is_named() {
    let folder = TempDir::new().expect("a folder");
    save(folder.path(), "before", |_| {});
    save(folder.path(), "after", |_| {});
    fs::write(folder.path().join("after/program"), "#!/bin/sh\necho no such thing >&2; exit 2\n").expect("a script");
    let done = compare(folder.path(), ["before", "after"], &[]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("after/program measure usecase:l2l3 --set n=2: no such thing"), "{}", done.err);
}
