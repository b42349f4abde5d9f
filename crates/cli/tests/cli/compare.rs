//! `forebay measure --save` and `forebay compare`: what is kept, and what two builds are found to differ in. The builds are
//! scripts that tell figures: how real ones are told apart is for a quiet machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::measure::measured;
use crate::{Done, forebay};

/// Saves a measurement whose program tells that measurement.
fn save(store: &Path, name: &str, change: impl Fn(&mut Value)) {
    let mut told = measured(&["--no-count"]);
    for (at, part) in told["modules"].as_array_mut().expect("a list").iter_mut().enumerate() {
        let about = 10.0 + at as f64;
        (part["cpp_ticks"], part["ipp"], part["packets_per_call"]) = (about.into(), (4.0 * about).into(), 32.into());
    }
    (told["chain"]["void"], told["chain"]["cpp_ticks"], told["chain"]["residue_ticks"]) =
        (false.into(), 100.into(), 2.into());
    told["workers"][0]["slept"] = 0.001.into();
    change(&mut told);
    let folder = store.join(name);
    fs::create_dir_all(&folder).expect("a folder");
    let text = told.to_string();
    let program = folder.join("program");
    fs::write(&program, format!("#!/bin/sh\necho '{text}'\n")).expect("a script");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a script");
    told["name"] = name.into();
    told["at"] = "2026-01-02T03:04:05Z".into();
    told["subject"] = json!({ "pipeline": "usecase:l2l3", "set": ["n=2"], "text": null });
    fs::write(folder.join("measurement.json"), told.to_string()).expect("a file");
}

fn compare(store: &Path, names: [&str; 2], more: &[&str]) -> Done {
    let store = store.to_str().expect("UTF-8");
    forebay(&[&["compare", names[0], names[1], "--store", store, "--time", "200s"], more].concat())
}

#[test]
fn what_is_alike_is_no_other_and_what_is_dearer_is_named_with_why() {
    let folder = TempDir::new().expect("a folder");
    let store = folder.path();
    save(store, "before", |_| {});
    save(store, "code", |told| {
        let part = &mut told["modules"][2];
        (part["cpp_ticks"], part["ipp"]) = (12.6.into(), 50.4.into());
    });
    save(store, "memory", |told| told["modules"][2]["cpp_ticks"] = 20.into());
    save(store, "batches", |told| {
        let part = &mut told["modules"][2];
        (part["cpp_ticks"], part["ipp"], part["packets_per_call"]) = (20.into(), 60.into(), 4.into());
    });
    save(store, "sleep", |told| told["workers"][0]["slept"] = 0.2.into());
    save(store, "better", |told| told["modules"][2]["cpp_ticks"] = 9.into());
    let told = compare(store, ["before", "before"], &[]).well();
    assert!(told.contains("Nothing has changed that 40 pairs of runs would show."), "{told}");
    let name = measured(&["--no-count"])["modules"][2]["name"].as_str().expect("a name").to_owned();
    for (other, why) in [
        ("code", "more instructions (+5.0 % instructions, +5.0 % ticks)"),
        ("memory", "more ticks for an instruction: memory or branches (+0.0 % instructions, +66.7 % ticks)"),
        ("batches", "smaller batches (4.0 packets per call instead of 32.0)"),
    ] {
        let done = compare(store, ["before", other], &[]);
        assert_eq!(done.code, Some(1), "{}", done.err);
        assert!(done.out.contains(&format!("{name} is dearer: {why}")), "{}", done.out);
        assert_eq!(done.out.matches("is dearer").count(), 1, "{}", done.out);
    }
    let done = compare(store, ["before", "sleep"], &["--json"]);
    assert_eq!((done.code, &done.json()["comparison"]["less_busy"]["cause"]), (Some(1), &"less_busy".into()));
    let told = compare(store, ["before", "better"], &[]).well();
    assert!(told.contains(&format!("{name} is cheaper: fewer ticks for an instruction")), "{told}");
}

/// A side whose file of alerts lacked lines looked quicker, and nothing said why.
#[test]
fn lines_that_files_lack_are_reported_by_side() {
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
fn what_is_saved_is_found_and_nothing_is_written_over() {
    let folder = TempDir::new().expect("a folder");
    let store = folder.path().to_str().expect("UTF-8");
    let save = |name: &str| {
        let arguments = ["measure", "usecase:l2l3", "--no-count", "--duration", "50ms", "--store", store];
        forebay(&[&arguments, &["--save", name][..]].concat())
    };
    let done = save("../x");
    assert!(done.code == Some(2) && done.err.contains("the name '../x': allowed are"), "{}", done.err);
    let done = save("one");
    // Where other tests have the cores, it may be void: it is kept all the same, and that is told.
    assert_eq!(done.code, Some(i32::from(done.err.contains("3 runs were void"))), "{}", done.err);
    assert!(done.err.contains("saved in"), "{}", done.err);
    let again = save("one");
    assert!(again.code == Some(2) && again.err.contains("a measurement of this name exists"), "{}", again.err);
    let program = folder.path().join("one/program");
    let size = |path: &std::path::Path| fs::metadata(path).expect("it is there").len();
    assert!(size(&program) < size(env!("CARGO_BIN_EXE_forebay").as_ref()), "it has no debugging sections");
    let version = |program: &std::path::Path| {
        std::process::Command::new(program).arg("--version").output().expect("it runs").stdout
    };
    assert_eq!(version(&program), version(env!("CARGO_BIN_EXE_forebay").as_ref()));
    let short = forebay(&["compare", "one", "--store", store, "--time", "39s"]);
    assert!(short.code == Some(2) && short.err.contains("allowed are 40s to 1h"), "{}", short.err);
    let missing = forebay(&["compare", "two", "--store", store]);
    assert!(missing.code == Some(2) && missing.err.contains("there are one"), "{}", missing.err);
}

#[test]
fn a_program_that_fails_is_told_by_name() {
    let folder = TempDir::new().expect("a folder");
    save(folder.path(), "before", |_| {});
    save(folder.path(), "after", |_| {});
    fs::write(folder.path().join("after/program"), "#!/bin/sh\necho no such thing >&2; exit 2\n").expect("a script");
    let done = compare(folder.path(), ["before", "after"], &[]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("after/program measure usecase:l2l3 --set n=2: no such thing"), "{}", done.err);
}
