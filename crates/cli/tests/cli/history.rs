//! `forebay history`: a store's trends and steps, and stores that are none.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::forebay;

/// Twelve measurements; from the eighth on the firewall has 2.5 instructions more.
fn store() -> TempDir {
    let store = TempDir::new().expect("a folder for the test");
    for number in 0..12 {
        let ipp = if number < 7 { 41.0 } else { 43.5 };
        let source =
            json!({ "cpp_ticks": "measured", "ipp": "emulated", "ipc": "n/a", "packets_per_call": "measured" });
        let module = |name: &str, ipp: f64| json!({ "name": name, "cpp_ticks": 50.0, "ipp": ipp, "packets_per_call": 32.0, "source": source });
        let told = json!({
            "name": format!("n{number}"), "at": format!("2026-11-{:02}T08:00:00Z", number + 1),
            "commit": format!("{number:02}c0ffee00c0ffee00"), "pipeline": "gw-4", "forebay": "0.1.0",
            "cpu": { "model": "a CPU", "tsc_ghz": 2.6 },
            "modules": [module("acl0", ipp), module("ttl<0>", 9.0)],
            "chain": { "cpp_ticks": 200.0, "cur": 0.5, "ipp": 600.0 },
        });
        save(store.path(), &format!("n{number}"), &told.to_string());
    }
    store
}

fn save(store: &Path, name: &str, text: &str) {
    std::fs::create_dir(store.join(name)).expect("a folder of the test");
    std::fs::write(store.join(name).join("measurement.json"), text).expect("a file of the test");
}

fn path(store: &TempDir) -> &str {
    store.path().to_str().expect("a plain name")
}

#[test]
fn a_step_is_told_with_what_it_is_between() {
    let store = store();
    let told = forebay(&["history", "--store", path(&store)]).well();
    let step =
        "gw-4 acl0: between n6 (06c0ffee00c0) and n7 (07c0ffee00c0): 41.0 → 43.5 instructions a packet (+6.1 %)\n";
    assert!(told.contains(step) && told.contains("▁▁▁▁▁▁▁█████"), "{told}");
    assert!(told.contains("12 measurements, 1 step\n"), "{told}");
    // Modules without a step are not in the way, but are there when they are asked for.
    assert!(!told.contains("ttl<0>"), "{told}");
    let one = forebay(&["history", "--store", path(&store), "--module", "ttl<0>", "--figure", "ipp"]).well();
    assert!(one.contains("ttl<0>") && one.contains("0 %"), "{one}");
}

#[test]
fn json_has_every_series_and_the_page_is_well_formed() {
    let store = store();
    let page = store.path().join("page.html");
    let file = page.to_str().expect("a plain name");
    let told = forebay(&["history", "--store", path(&store), "--json", "--html", file]).well();
    let told: Value = serde_json::from_str(&told).expect("JSON");
    let series = told["series"].as_array().expect("a list");
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
fn what_is_wrong_is_named() {
    let store = store();
    save(store.path(), "broken", "{");
    for (arguments, said) in [
        (vec!["--store", path(&store)], "broken/measurement.json: no measurement: EOF"),
        (vec!["--store", "/nowhere"], "/nowhere: No such file or directory"),
        (vec!["--figure", "speed"], "possible values: ipp, cpp_ticks, packets_per_call, cur"),
    ] {
        let done = forebay(&[&["history"], &arguments[..]].concat());
        assert!(done.code == Some(2) && done.err.contains(said), "{}", done.err);
    }
    std::fs::remove_dir_all(store.path().join("broken")).expect("it is there");
    for (option, said) in [("--pipeline", "there are gw-4"), ("--module", "there are (all), acl0, ttl<0>")] {
        let done = forebay(&["history", "--store", path(&store), option, "other"]);
        assert!(done.code == Some(2) && done.err.contains(said), "{}", done.err);
    }
}
