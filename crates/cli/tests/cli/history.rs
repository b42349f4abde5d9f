//! `forebay history`: trends and steps of a store of measurements, and invalid stores.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::forebay;

/// Creates a store of twelve measurements. From the eighth on, the firewall needs 2.5 more instructions.
fn store() -> TempDir {
    let store = TempDir::new().expect("a folder for the test");
    for number in 0..12 {
        let ipp = if number < 7 { 41.0 } else { 43.5 };
        let source =
            json!({ "cpp_ticks": "measured", "ipp": "emulated", "ipc": "n/a", "packets_per_call": "measured" });
        let module = |name: &str, ipp: f64| -> Value {
            json!({ "name": name, "cpp_ticks": 50.0, "ipp": ipp, "packets_per_call": 32.0, "source": source })
        };
        let measurement = json!({
            "name": format!("n{number}"), "at": format!("2026-11-{:02}T08:00:00Z", number + 1),
            "commit": format!("{number:02}c0ffee00c0ffee00"), "pipeline": "gw-4", "forebay": "0.1.0",
            "subject": { "pipeline": "usecase:gw", "set": ["n=4"], "text": null },
            "cpu": { "model": "a CPU", "tsc_ghz": 2.6 }, "instruction_set": "avx2", "workers": [],
            "modules": [module("acl0", ipp), module("ttl<0>", 9.0)],
            "chain": { "entered_pps": 1e6, "cpp_ticks": 200.0, "cur": 0.5, "ipp": 600.0 },
        });
        save(store.path(), &format!("n{number}"), &measurement.to_string());
    }
    store
}

fn save(store: &Path, name: &str, text: &str) {
    std::fs::create_dir(store.join(name)).expect("a folder of the test");
    std::fs::write(store.join(name).join("measurement.json"), text).expect("a file of the test");
}

/// Saves a changed copy of the store's `n0`.
fn save_changed(store: &TempDir, name: &str, change: impl Fn(&mut Value)) {
    let text = std::fs::read_to_string(store.path().join("n0/measurement.json")).expect("it exists");
    let mut measurement = serde_json::from_str(&text).expect("JSON");
    change(&mut measurement);
    save(store.path(), name, &measurement.to_string());
}

fn path(store: &TempDir) -> &str {
    store.path().to_str().expect("a plain name")
}

#[test]
fn a_step_is_reported_with_the_measurements_before_and_after() {
    let store = store();
    let output = forebay(&["history", "--store", path(&store)]).success();
    let step =
        "gw-4 n=4 acl0: between n6 (06c0ffee00c0) and n7 (07c0ffee00c0): 41.0 → 43.5 instructions a packet (+6.1 %)\n";
    assert!(output.contains(step) && output.contains("▁▁▁▁▁▁▁█████"), "{output}");
    assert!(output.contains("12 measurements, 1 step\n"), "{output}");
    // Modules without a step are hidden unless `--module` names them.
    assert!(!output.contains("ttl<0>"), "{output}");
    let one = forebay(&["history", "--store", path(&store), "--module", "ttl<0>", "--figure", "ipp"]).success();
    assert!(one.contains("ttl<0>") && one.contains("0 %"), "{one}");
}

#[test]
fn json_has_every_series_and_the_page_is_well_formed() {
    let store = store();
    let page = store.path().join("page.html");
    let file = page.to_str().expect("a plain name");
    let output = forebay(&["history", "--store", path(&store), "--json", "--html", file]).success();
    let history: Value = serde_json::from_str(&output).expect("JSON");
    let series = history["series"].as_array().expect("a list");
    assert_eq!(series.len(), 2 * 3 + 3);
    let steps: Vec<_> = series.iter().filter(|series| series["steps"] != json!([])).collect();
    assert!(steps.len() == 1 && steps[0]["module"] == "acl0" && steps[0]["steps"][0]["at"] == 7, "{steps:?}");
    let html = std::fs::read_to_string(&page).expect("it was written");
    let options = roxmltree::ParsingOptions { allow_dtd: true, ..Default::default() };
    let document = roxmltree::Document::parse_with_options(&html, options).expect("well-formed");
    assert_eq!(document.descendants().filter(|node| node.has_tag_name("svg")).count(), series.len());
    assert!(!html.contains("http") && html.contains("ttl&lt;0&gt;"));
}

#[test]
fn invalid_stores_and_options_are_named() {
    let store = store();
    save(store.path(), "broken", "{");
    for (arguments, expected) in [
        (vec!["--store", path(&store)], "broken/measurement.json: not a measurement: EOF"),
        (vec!["--store", "/nowhere"], "/nowhere: No such file or directory"),
        (vec!["--figure", "speed"], "possible values: ipp, cpp_ticks, packets_per_call, cur"),
    ] {
        let done = forebay(&[&["history"], &arguments[..]].concat());
        assert!(done.code == Some(2) && done.err.contains(expected), "{}", done.err);
    }
    std::fs::remove_dir_all(store.path().join("broken")).expect("it exists");
    for (option, expected) in [("--pipeline", "there is gw-4"), ("--module", "there are (all), acl0, ttl<0>")] {
        let done = forebay(&["history", "--store", path(&store), option, "other"]);
        assert!(done.code == Some(2) && done.err.contains(expected), "{}", done.err);
    }
}

/// Regression: two sizes of a use case were one series.
#[test]
fn settings_and_instruction_sets_separate_series() {
    let store = store();
    save_changed(&store, "larger", |measurement| measurement["subject"]["set"] = json!(["n=8"]));
    save_changed(&store, "plain", |measurement| measurement["instruction_set"] = "none".into());
    let chosen = ["history", "--store", path(&store), "--module", "acl0", "--figure", "ipp", "--pipeline"];
    let output = forebay(&[&chosen[..], &["usecase:gw"]].concat()).success();
    for row in ["gw-4 n=4 (avx2)  acl0    ipp", "gw-4 n=4 (none)  acl0    ipp", "gw-4 n=8         acl0    ipp"] {
        assert!(output.lines().any(|line| line.starts_with(row)), "{output}");
    }
    assert!(
        output.contains("gw-4 n=4 (avx2) acl0: between n6") && output.contains("14 measurements, 1 step\n"),
        "{output}"
    );
    let output = forebay(&[&chosen[..], &["gw-4 n=8", "--json"]].concat()).success();
    let history: Value = serde_json::from_str(&output).expect("JSON");
    let series = &history["series"][0];
    assert_eq!((&history["measurements"], &series["pipeline"]), (&1.into(), &"gw-4".into()));
    assert_eq!((&series["set"], &series["instruction_set"]), (&json!(["n=8"]), &"avx2".into()));
    let ticks = ["history", "--store", path(&store), "--figure", "cpp_ticks", "--json"];
    let history: Value = serde_json::from_str(&forebay(&ticks).success()).expect("JSON");
    assert_eq!(history["series"][0]["instruction_set"], Value::Null);
}

#[test]
fn control_characters_of_a_store_are_escaped() {
    let store = store();
    save_changed(&store, "a\u{1b}[31m\nb", |measurement| {
        measurement["at"] = "2026-11-13T08:00:00Z".into();
        (measurement["subject"]["set"], measurement["commit"]) = (json!(["n=4"]), "\u{1b}c\n".into());
        measurement["modules"][0]["name"] = "x\u{1b}\ny".into();
        measurement["chain"]["ipp"] = 700.0.into();
    });
    let output = forebay(&["history", "--store", path(&store), "--module", "(all)"]).success();
    let step = "gw-4 n=4 (all): between n11 (11c0ffee00c0) and a\\u001b[31m\\u000ab (\\u001bc\\u000a): 600.0";
    assert!(output.lines().any(|line| line.starts_with(step)) && !output.contains('\u{1b}'), "{output}");
    let err = forebay(&["history", "--store", path(&store), "--module", "none"]).err;
    assert!(err.contains("there are (all), acl0, ttl<0>, x\\u001b\\u000ay\n"), "{err}");
    save(store.path(), "c\u{1b}\nd", "{");
    let err = forebay(&["history", "--store", path(&store)]).err;
    assert!(err.contains("/c\\u001b\\u000ad/measurement.json: not a measurement") && err.lines().count() == 1, "{err}");
    let err = forebay(&["compare", "e", "--store", path(&store)]).err;
    assert!(err.contains("there are a\\u001b[31m\\u000ab, c\\u001b\\u000ad, n0") && err.lines().count() == 1, "{err}");
}

/// Regression: a full disk left half a page instead of the previous page.
#[test]
fn a_page_is_written_completely_or_not_at_all() {
    let store = store();
    let folder = TempDir::new().expect("a folder for the test");
    let page = folder.path().join("page.html");
    std::fs::write(&page, "the old one").expect("a file of the test");
    // The shell's limit of blocks per file simulates a full disk, with the limit's signal ignored and not ignored.
    let limited = |signal: &str| {
        let script = format!("{signal} ulimit -c 0; ulimit -f 2; exec \"$0\" history --store \"$1\" --html \"$2\"");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_forebay"), path(&store)]).arg(&page);
        command.output().expect("a shell")
    };
    for signal in ["trap '' XFSZ;", ""] {
        let done = limited(signal);
        let err = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(2), "{err}");
        assert_eq!(err, format!("error: {}: File too large (os error 27)\n", page.display()));
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }
    assert_eq!(std::fs::read_to_string(&page).expect("it exists"), "the old one");
    forebay(&["history", "--store", path(&store), "--html", page.to_str().expect("a plain name")]).success();
    assert!(std::fs::read_to_string(&page).expect("it exists").trim_end().ends_with("</html>"));
}
