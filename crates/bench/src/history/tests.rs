//! Histories of stores in temporary folders.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::saved::MeasurementStore;

fn measurement(at: &str, ipp: f64, ticks: f64) -> Value {
    let module = |name: &str, ticks: Option<f64>, ipp: f64, packets_per_call: Option<f64>| {
        let source =
            json!({ "cpp_ticks": "measured", "ipp": "emulated", "ipc": "n/a", "packets_per_call": "measured" });
        json!({ "name": name, "cpp_ticks": ticks, "ipp": ipp, "packets_per_call": packets_per_call, "source": source })
    };
    json!({
        "name": "any", "pipeline": "gw-4", "forebay": "0.1.0", "at": at, "commit": "c0ffee",
        "cpu": { "model": "a CPU", "tsc_ghz": 2.6 }, "instruction_set": "avx2", "profile": "release",
        "subject": { "pipeline": "usecase:gw", "set": ["n=4"], "text": null }, "workers": [],
        "modules": [module("acl0", Some(ticks), ipp, Some(31.5)), module("ttl0", None, 9.0, None)],
        "chain": { "entered_pps": 1e6, "cpp_ticks": ticks * 4.0, "cur": 0.5, "ipp": 600.0, "something": "new" },
    })
}

fn save(store: &Path, name: &str, text: &str) {
    let folder = store.join(name);
    std::fs::create_dir_all(&folder).expect("a folder of the test");
    std::fs::write(folder.join("measurement.json"), text).expect("a file of the test");
}

/// Ten measurements. From the sixth on, `acl0` has more instructions and takes more ticks. Names are not in order of
/// time.
fn store() -> TempDir {
    let store = TempDir::new().expect("a folder for the test");
    for number in 0..10 {
        let (ipp, ticks) = if number < 5 { (41.0, 50.0) } else { (43.5, 70.0) };
        let noise = [0.3, -0.2, 0.4, -0.4, 0.1, 0.2, -0.3, 0.0, -0.1, 0.25][number];
        let measured = measurement(&format!("2026-11-{:02}T21:40:00Z", number + 1), ipp, ticks + noise);
        save(store.path(), &format!("m{}", (number * 7) % 10), &measured.to_string());
    }
    store
}

fn of(store: &TempDir, choice: &Choice) -> Result<History, ChoiceError> {
    History::of(&MeasurementStore::new(store.path()).all().expect("a store"), choice)
}

fn history(choice: &Choice) -> Result<History, ChoiceError> {
    let store = store();
    of(&store, choice)
}

fn named<'h>(history: &'h History, module: &str, figure: Figure) -> &'h Series {
    let is = |series: &&Series| series.module == module && series.figure == figure;
    history.series.iter().find(is).unwrap_or_else(|| panic!("{module} has no {figure:?}"))
}

#[test]
fn series_are_sorted_by_time_and_steps_name_their_neighbours() {
    let history = history(&Choice::default()).expect("there is something");
    assert_eq!(history.measurements, 10);
    let ipp = named(&history, "acl0", Figure::Ipp);
    assert_eq!(ipp.points.iter().map(|point| point.name.as_str()).collect::<Vec<_>>()[..3], ["m0", "m7", "m4"]);
    assert_eq!(ipp.source, Origin::Emulated);
    let [step] = &ipp.steps[..] else { panic!("one step: {:?}", ipp.steps) };
    assert_eq!((step.at, step.before.name.as_str(), step.after.name.as_str()), (5, "m8", "m5"));
    assert_eq!((step.from, step.to, step.after.commit.as_deref()), (41.0, 43.5, Some("c0ffee")));
    assert!((step.change.expect("not from 0") - 2.5 / 41.0).abs() < 1e-12 && !step.other_cpu);
    let ticks = named(&history, "acl0", Figure::CppTicks);
    assert_eq!(ticks.steps.iter().map(|step| step.at).collect::<Vec<_>>(), [5]);
    assert!(named(&history, "acl0", Figure::PacketsPerCall).steps.is_empty());
    assert_eq!(named(&history, CHAIN, Figure::Cur).change, Some(0.0));
    // A figure that no measurement has is not a series.
    assert!(history.series.iter().all(|series| series.module != "ttl0" || series.figure == Figure::Ipp));
}

#[test]
fn a_module_and_a_figure_can_be_selected_and_errors_list_the_others() {
    let choice = |pipeline: Option<&str>, module: Option<&str>, figure| Choice {
        pipeline: pipeline.map(str::to_owned),
        module: module.map(str::to_owned),
        figure,
    };
    let one = history(&choice(Some("gw-4"), Some("acl0"), Some(Figure::Ipp))).expect("the selection has measurements");
    assert_eq!(one.series.len(), 1);
    let refusal = |choice| history(&choice).expect_err("the selection is empty").to_string();
    assert_eq!(refusal(choice(Some("gw"), None, None)), "no saved measurement has pipeline 'gw': there is gw-4");
    assert_eq!(
        refusal(choice(None, Some("acl"), None)),
        "no saved measurement has a module 'acl': there are (all), acl0, ttl0"
    );
    assert_eq!(
        refusal(choice(None, Some("ttl0"), Some(Figure::Cur))),
        "no saved measurement of the pipeline or module has 'cur': there is ipp"
    );
}

#[test]
fn a_void_measurement_has_only_counted_figures() {
    let store = store();
    let mut void = measurement("2026-11-20T00:00:00Z", 43.5, 900.0);
    void["chain"]["void"] = true.into();
    save(store.path(), "void", &void.to_string());
    let history = of(&store, &Choice::default()).expect("something");
    assert_eq!(named(&history, "acl0", Figure::Ipp).points.len(), 11);
    assert_eq!(named(&history, "acl0", Figure::CppTicks).points.len(), 10);
}

#[test]
fn a_step_between_two_machines_is_marked() {
    let store = TempDir::new().expect("a folder for the test");
    for (name, day, cpu) in [("a", 1, "one"), ("b", 2, "other")] {
        let mut measured = measurement(&format!("2026-11-0{day}T00:00:00Z"), 40.0 + f64::from(day), 50.0);
        measured["cpu"]["model"] = cpu.into();
        save(store.path(), name, &measured.to_string());
    }
    let history = of(&store, &Choice::default()).expect("something");
    assert!(named(&history, "acl0", Figure::Ipp).steps[0].other_cpu);
}

/// A store of measurements from consecutive days, each changed by one of these functions.
fn changing(changes: &[fn(&mut Value)]) -> TempDir {
    let store = TempDir::new().expect("a folder for the test");
    for (day, change) in changes.iter().enumerate() {
        let mut measured = measurement(&format!("2026-11-{:02}T21:40:00Z", day + 1), 41.0, 50.0);
        change(&mut measured);
        save(store.path(), &format!("day{}", day + 1), &measured.to_string());
    }
    store
}

/// For each series of the whole chain's instructions: its name, its settings and its number of values.
fn chains<'h>(history: &'h History) -> Vec<(&'h str, Vec<&'h str>, usize)> {
    let all = history.series.iter().filter(|series| series.module == CHAIN && series.figure == Figure::Ipp);
    let row = |series: &'h Series| {
        let set = series.set.iter().map(String::as_str).collect();
        (series.name.as_str(), set, series.points.len())
    };
    all.map(row).collect()
}

fn with(measured: &mut Value, set: &[&str], ipp: f64) {
    measured["subject"]["set"] = set.into();
    measured["chain"]["ipp"] = ipp.into();
}

/// Measurements of two sizes of a use case were in one series, with a step between them.
#[test]
fn other_settings_are_another_series() {
    let store = changing(&[
        |measured| with(measured, &["n=1"], 300.0),
        |measured| with(measured, &["n=4"], 600.0),
        |measured| with(measured, &["n=1"], 300.0),
        |measured| with(measured, &[], 300.0),
        |measured| with(measured, &["n=4", "rate=max"], 600.0),
    ]);
    let all = of(&store, &Choice::default()).expect("something");
    assert_eq!(
        chains(&all),
        [
            ("gw-4 n=1", vec!["n=1"], 2),
            ("gw-4 n=4", vec!["n=4"], 1),
            ("gw-4", vec![], 1),
            ("gw-4 n=4 rate=max", vec!["n=4", "rate=max"], 1),
        ]
    );
    assert!(all.series.iter().all(|series| series.steps.is_empty()));
    let chosen = |given: &str| {
        let choice = Choice { pipeline: Some(given.to_owned()), ..Choice::default() };
        of(&store, &choice).map(|history| history.measurements)
    };
    assert_eq!(["gw-4", "usecase:gw", "gw-4 n=1", "usecase:gw n=4"].map(chosen), [Ok(5), Ok(5), Ok(2), Ok(1)]);
    let error = chosen("gw-4 n=2").expect_err("it does not exist").to_string();
    assert_eq!(error, "no saved measurement has pipeline 'gw-4 n=2': there is gw-4");
}

/// Counts with and without AVX2 were in one series.
#[test]
fn another_instruction_set_or_profile_starts_a_series_of_counts_but_not_of_ticks() {
    let store = changing(&[
        |_| {},
        |measured| measured["instruction_set"] = "none".into(),
        |measured| measured["profile"] = "debug".into(),
        |measured| measured["modules"][0]["ipp"] = 42.0.into(),
        // A version that did not report the profile, and a measurement without counts.
        |measured| drop(measured.as_object_mut().expect("an object").remove("profile")),
        |measured| {
            (measured["instruction_set"], measured["profile"], measured["chain"]["ipp"]) =
                (Value::Null, Value::Null, Value::Null);
            (0..2).for_each(|module| measured["modules"][module]["ipp"] = Value::Null);
        },
    ]);
    let all = of(&store, &Choice::default()).expect("something");
    let set = || vec!["n=4"];
    assert_eq!(
        chains(&all),
        [
            ("gw-4 n=4 (avx2, release build)", set(), 3),
            ("gw-4 n=4 (none, release build)", set(), 1),
            ("gw-4 n=4 (avx2, debug build)", set(), 1),
        ]
    );
    let acl: Vec<_> = all.series.iter().filter(|series| series.module == "acl0").collect();
    let sets: Vec<_> = acl.iter().map(|series| (series.figure, series.instruction_set.as_deref())).collect();
    assert_eq!(sets[..3], [(Figure::Ipp, Some("avx2")), (Figure::Ipp, Some("none")), (Figure::Ipp, Some("avx2"))]);
    assert_eq!(sets[3..], [(Figure::CppTicks, None), (Figure::PacketsPerCall, None)]);
    // Measurements of other series in between do not cause steps.
    let steps = acl[0].steps.iter().map(|step| (step.before.name.as_str(), step.after.name.as_str()));
    assert_eq!(steps.collect::<Vec<_>>(), [("day1", "day4"), ("day4", "day5")]);
    assert_eq!((acl[3].name.as_str(), acl[3].points.len()), ("gw-4 n=4", 6));
}

#[test]
fn a_changed_file_is_the_same_subject_and_another_file_of_its_name_is_named_by_its_path() {
    let put = |store: &TempDir, day: u32, path: &str, text: &str, ipp: f64| {
        let mut measured = measurement(&format!("2026-11-0{day}T00:00:00Z"), 41.0, 50.0);
        measured["subject"] = json!({ "pipeline": path, "set": [], "text": text });
        measured["chain"]["ipp"] = ipp.into();
        save(store.path(), &format!("day{day}"), &measured.to_string());
    };
    let store = TempDir::new().expect("a folder for the test");
    put(&store, 1, "/a/gw.yaml", "batch: 8", 600.0);
    put(&store, 2, "/a/gw.yaml", "batch: 16", 700.0);
    let all = of(&store, &Choice::default()).expect("something");
    assert_eq!(chains(&all), [("gw-4", vec![], 2)]);
    assert_eq!(named(&all, CHAIN, Figure::Ipp).steps.len(), 1);
    put(&store, 3, "/b/gw.yaml", "batch: 8", 600.0);
    let all = of(&store, &Choice::default()).expect("something");
    assert_eq!(chains(&all), [("/a/gw.yaml", vec![], 2), ("/b/gw.yaml", vec![], 1)]);
    let choice = Choice { pipeline: Some("/b/gw.yaml".to_owned()), ..Choice::default() };
    assert_eq!(of(&store, &choice).expect("it exists").measurements, 1);
}
