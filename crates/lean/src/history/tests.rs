//! Stores of all kinds, well and ill.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

fn measurement(at: &str, ipp: f64, ticks: f64) -> Value {
    json!({
        "pipeline": "gw-4", "forebay": "0.1.0", "at": at, "commit": "c0ffee", "cpu": { "model": "a CPU", "tsc_ghz": 2.6 },
        "modules": [
            { "name": "acl0", "cpp_ticks": ticks, "ipp": ipp, "packets_per_call": 31.5,
              "source": { "cpp_ticks": "measured", "ipp": "emulated", "ipc": "n/a", "packets_per_call": "measured" } },
            { "name": "ttl0", "cpp_ticks": null, "ipp": 9.0 },
        ],
        "chain": { "cpp_ticks": ticks * 4.0, "cur": 0.5, "ipp": 600.0, "something": "new" },
    })
}

fn save(store: &Path, name: &str, text: &str) {
    let folder = store.join(name);
    std::fs::create_dir_all(&folder).expect("a folder of the test");
    std::fs::write(folder.join("measurement.json"), text).expect("a file of the test");
}

/// Ten measurements; from the sixth on `acl0` has more instructions and takes more ticks. Names are in no order.
fn store() -> TempDir {
    let store = TempDir::new().expect("a folder for the test");
    for number in 0..10 {
        let (ipp, ticks) = if number < 5 { (41.0, 50.0) } else { (43.5, 70.0) };
        let noise = [0.3, -0.2, 0.4, -0.4, 0.1, 0.2, -0.3, 0.0, -0.1, 0.25][number];
        let told = measurement(&format!("2026-11-{:02}T21:40:00Z", number + 1), ipp, ticks + noise);
        save(store.path(), &format!("m{}", (number * 7) % 10), &told.to_string());
    }
    store
}

fn history(choice: &Choice) -> Result<History, ChoiceError> {
    let store = store();
    History::of(&read(store.path()).expect("a store"), choice)
}

fn named<'h>(history: &'h History, module: &str, figure: Figure) -> &'h Series {
    let is = |series: &&Series| series.module == module && series.figure == figure;
    history.series.iter().find(is).unwrap_or_else(|| panic!("{module} has no {figure:?}"))
}

#[test]
fn series_are_by_time_and_steps_name_what_they_are_between() {
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
    // What no measurement has is no series.
    assert!(history.series.iter().all(|series| series.module != "ttl0" || series.figure == Figure::Ipp));
}

#[test]
fn one_module_and_one_figure_can_be_chosen_and_others_are_named() {
    let choice = |pipeline: Option<&str>, module: Option<&str>, figure| Choice {
        pipeline: pipeline.map(str::to_owned),
        module: module.map(str::to_owned),
        figure,
    };
    let one = history(&choice(Some("gw-4"), Some("acl0"), Some(Figure::Ipp))).expect("it is there");
    assert_eq!(one.series.len(), 1);
    let told = |choice| history(&choice).expect_err("it is not there").to_string();
    assert_eq!(told(choice(Some("gw"), None, None)), "no saved measurement is of pipeline 'gw': there are gw-4");
    assert_eq!(
        told(choice(None, Some("acl"), None)),
        "no saved measurement has a module 'acl': there are (all), acl0, ttl0"
    );
    assert_eq!(
        told(choice(None, Some("ttl0"), Some(Figure::Cur))),
        "no saved measurement has 'cur' of it: there are ipp"
    );
}

#[test]
fn instants_are_ordered_as_instants() {
    let store = TempDir::new().expect("a folder for the test");
    // The second is half a second later, though as text it comes first; the third is of another zone.
    for (name, at) in
        [("a", "2026-11-01T12:00:00.5Z"), ("b", "2026-11-01T12:00:00Z"), ("c", "2026-11-01T12:30:00+02:00")]
    {
        save(store.path(), name, &measurement(at, 41.0, 50.0).to_string());
    }
    let names: Vec<_> = read(store.path()).expect("a store").into_iter().map(|saved| saved.name).collect();
    assert_eq!(names, ["c", "b", "a"]);
}

#[test]
fn every_broken_file_is_named_and_what_is_none_is_passed_over() {
    let store = store();
    std::fs::create_dir(store.path().join("notes")).expect("a folder of the test");
    assert_eq!(read(store.path()).expect("a store").len(), 10);
    save(store.path(), "broken", "{ \"pipeline\": ");
    save(store.path(), "late", &measurement("yesterday", 1.0, 1.0).to_string());
    let told = read(store.path()).expect_err("broken").to_string();
    let lines: Vec<_> = told.lines().collect();
    assert_eq!(lines.len(), 2, "{told}");
    assert!(lines[0].contains("broken/measurement.json: no measurement: EOF"), "{told}");
    assert!(
        lines[1].ends_with("at: 'yesterday' is no instant: allowed is RFC 3339, such as 2026-11-21T21:40:00Z"),
        "{told}"
    );
}

#[test]
fn stores_that_are_none_are_refused() {
    let empty = TempDir::new().expect("a folder for the test");
    assert!(read(empty.path()).expect_err("empty").to_string().contains("no measurement is saved there"));
    let none = read(&empty.path().join("none")).expect_err("not there").to_string();
    assert!(none.contains("none: ") && none.contains("allowed is a folder"), "{none}");
}

#[test]
fn of_a_void_measurement_only_what_was_counted_is_told() {
    let store = store();
    let mut void = measurement("2026-11-20T00:00:00Z", 43.5, 900.0);
    void["chain"]["void"] = true.into();
    save(store.path(), "void", &void.to_string());
    let history = History::of(&read(store.path()).expect("a store"), &Choice::default()).expect("something");
    assert_eq!(named(&history, "acl0", Figure::Ipp).points.len(), 11);
    assert_eq!(named(&history, "acl0", Figure::CppTicks).points.len(), 10);
}

#[test]
fn a_step_on_another_machine_says_so() {
    let store = TempDir::new().expect("a folder for the test");
    for (name, day, cpu) in [("a", 1, "one"), ("b", 2, "other")] {
        let mut told = measurement(&format!("2026-11-0{day}T00:00:00Z"), 40.0 + f64::from(day), 50.0);
        told["cpu"]["model"] = cpu.into();
        save(store.path(), name, &told.to_string());
    }
    let history = History::of(&read(store.path()).expect("a store"), &Choice::default()).expect("something");
    assert!(named(&history, "acl0", Figure::Ipp).steps[0].other_cpu);
}
