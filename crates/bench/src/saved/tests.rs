//! Stores in temporary folders.

use super::*;

fn measurement() -> Measurement {
    serde_json::from_value(serde_json::json!({
        "pipeline": "p", "forebay": "0.1.0", "cpu": { "model": "none", "tsc_ghz": 1.0 }, "instruction_set": null,
        "modules": [], "workers": [],
        "chain": { "pps": null, "entered_pps": 0.0, "cpp_ticks": null, "cur": 0.0, "ipp": null, "residue_ipp": null,
            "residue_ticks": null, "sum_ticks": null, "void": false },
        "unavailable": {}, "search": null
    }))
    .expect("a measurement")
}

/// A measurement file with only the fields that every version has written, made at the given time.
fn oldest(at: &str) -> String {
    let source =
        serde_json::json!({ "cpp_ticks": "measured", "ipp": "emulated", "ipc": "n/a", "packets_per_call": "measured" });
    serde_json::json!({
        "name": "any", "at": at, "commit": null, "subject": { "pipeline": "usecase:gw", "set": [], "text": null },
        "pipeline": "gw", "forebay": "0.1.0", "cpu": { "model": "none", "tsc_ghz": 1.0 }, "instruction_set": "avx2",
        "modules": [{ "name": "acl", "cpp_ticks": 50.0, "ipp": 41.0, "ipc": null, "instructions_per_tick": 0.8,
            "packets_per_call": 32.0, "source": source }],
        "workers": [{ "id": 0, "core": 1, "cur": 0.5 }],
        "chain": { "pps": null, "entered_pps": 1e6, "cpp_ticks": 200.0, "cur": 0.5, "ipp": 600.0, "residue_ipp": 9.0,
            "residue_ticks": null },
    })
    .to_string()
}

fn put(store: &Path, name: &str, text: &str) {
    fs::create_dir_all(store.join(name)).expect("a folder of the test");
    fs::write(store.join(name).join("measurement.json"), text).expect("a file of the test");
}

fn saved(name: &str, pipeline: &Path) -> Saved {
    let subject = Subject::of(pipeline.display().to_string(), vec!["n=2".to_owned()]).expect("it exists");
    Saved { name: name.to_owned(), at: Timestamp::UNIX_EPOCH, commit: None, subject, measurement: measurement() }
}

#[test]
fn a_saved_measurement_is_found_with_its_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let (program, pipeline) = (folder.path().join("forebay"), folder.path().join("p.yaml"));
    fs::write(&program, vec![7; 200_000]).expect("it can be written");
    fs::write(&pipeline, "name: p").expect("it can be written");
    let store = MeasurementStore::new(&folder.path().join("kept/here"));
    let one = saved("one", &pipeline);
    store.save(&one, &program).expect("it can be saved");
    let (found, copy) = store.find("one").expect("it exists");
    assert_eq!(found, one);
    assert_eq!(fs::read(&copy).expect("it exists"), vec![7; 200_000]);
    assert_eq!(found.subject.arguments()[1..], ["--set", "n=2"]);
    // The same program is stored once; another program has its own file.
    store.save(&saved("two", &pipeline), &program).expect("it can be saved");
    fs::write(&program, vec![8; 200_000]).expect("it can be written");
    store.save(&saved("three", &pipeline), &program).expect("it can be saved");
    use std::os::unix::fs::MetadataExt;
    let file = |name: &str| fs::metadata(store.find(name).expect("it exists").1).expect("it exists").ino();
    assert!(file("one") == file("two") && file("one") != file("three"));
}

#[test]
fn built_in_pipelines_have_no_file() {
    for name in ["usecase:gw", "function:acl"] {
        assert_eq!(Subject::of(name.to_owned(), Vec::new()).expect("no file is read").text, None);
    }
    assert!(Subject::of("/no/such/file".to_owned(), Vec::new()).is_err());
}

#[test]
fn invalid_names_and_files_are_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let (program, pipeline) = (folder.path().join("forebay"), folder.path().join("p.yaml"));
    fs::write(&pipeline, "name: p").expect("it can be written");
    let store = MeasurementStore::new(folder.path());
    for name in ["", ".a", "a/b", "..", "a b", &"a".repeat(65)] {
        assert!(matches!(store.place(name), Err(SavedError::Name(_))), "{name}");
    }
    // A measurement that could not be saved completely leaves no files.
    let error = store.save(&saved("one", &pipeline), &program).expect_err("there is no program");
    assert!(matches!(error, SavedError::Io { .. }), "{error}");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    fs::write(&program, "x").expect("it can be written");
    store.save(&saved("one", &pipeline), &program).expect("it can be saved");
    assert!(matches!(store.save(&saved("one", &pipeline), &program), Err(SavedError::There(_))));
    let error = store.find("two").expect_err("it does not exist").to_string();
    assert!(error.contains("no measurement 'two'") && error.contains("there is one"), "{error}");
    fs::write(&pipeline, "name: q").expect("it can be written");
    assert!(matches!(store.find("one"), Err(SavedError::Changed { .. })));
    fs::write(folder.path().join("one/measurement.json"), "{").expect("it can be written");
    assert!(matches!(store.find("one"), Err(SavedError::Broken { .. })));
}

#[test]
fn measurements_of_earlier_versions_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    put(folder.path(), "early", &oldest("2026-11-01T12:00:00Z"));
    let store = MeasurementStore::new(folder.path());
    let [early] = &store.all().expect("a store")[..] else { panic!("one measurement") };
    assert_eq!((early, early.name.as_str()), (&store.find("early").expect("it exists").0, "early"));
    let measured = &early.measurement;
    assert_eq!((measured.modules[0].kind, measured.modules[0].packets), (crate::ticks::PartType::Module, 0));
    assert_eq!((&measured.profile, measured.chain.void, &measured.search), (&None, false, &None));
    // Writing it again keeps all fields.
    let again = serde_json::to_string(early).expect("plain values");
    assert_eq!(&serde_json::from_str::<Saved>(&again).expect("a measurement"), early);
}

#[test]
fn measurements_are_sorted_by_time() {
    let folder = tempfile::tempdir().expect("a folder");
    // The second is half a second earlier, although it is greater as text. The third is in another time zone.
    for (name, at) in
        [("a", "2026-11-01T12:00:00.5Z"), ("b", "2026-11-01T12:00:00Z"), ("c", "2026-11-01T12:30:00+02:00")]
    {
        put(folder.path(), name, &oldest(at));
    }
    let names: Vec<_> =
        MeasurementStore::new(folder.path()).all().expect("a store").into_iter().map(|saved| saved.name).collect();
    assert_eq!(names, ["c", "b", "a"]);
}

#[test]
fn every_broken_file_is_named_and_other_files_are_ignored() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = MeasurementStore::new(folder.path());
    fs::create_dir(folder.path().join("notes")).expect("a folder of the test");
    put(folder.path(), ".new1", "{");
    put(folder.path(), "good", &oldest("2026-11-01T12:00:00Z"));
    assert_eq!(store.all().expect("a store").len(), 1);
    put(folder.path(), "broken\nfolder", "{ \"pipeline\": ");
    put(folder.path(), "late", &oldest("yester\u{1b}day"));
    put(folder.path(), "other", r#"{ "at": "2026-11-01T12:00:00Z" }"#);
    fs::create_dir(folder.path().join("pipe")).expect("a folder of the test");
    let pipe = folder.path().join("pipe/measurement.json");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("the command mkfifo").success());
    let error = store.all().expect_err("broken").to_string();
    let lines: Vec<_> = error.lines().collect();
    assert_eq!(lines.len(), 4, "{error}");
    assert!(lines[0].contains("broken\\u000afolder/measurement.json: not a measurement: EOF"), "{error}");
    let instant = "at: 'yester\\u001bday' is not a time: allowed is RFC 3339, for example 2026-11-21T21:40:00Z";
    assert!(lines[1].ends_with(instant), "{error}");
    assert!(lines[2].contains("other/measurement.json: not a measurement: missing field `name`"), "{error}");
    assert!(lines[3].ends_with("pipe/measurement.json: it is a pipe: allowed are regular files"), "{error}");
    // Finding a single measurement gives the same error.
    for (name, line) in [("broken\nfolder", lines[0]), ("late", lines[1]), ("pipe", lines[3])] {
        assert_eq!(store.find(name).expect_err("broken").to_string(), line);
    }
}

#[test]
fn empty_and_missing_stores_are_refused() {
    let empty = tempfile::tempdir().expect("a folder");
    let error = |path: &Path| MeasurementStore::new(path).all().expect_err("no store").to_string();
    assert!(error(empty.path()).contains("the folder has no measurements"));
    let none = error(&empty.path().join("none"));
    assert!(none.contains("none: ") && none.contains("allowed is a folder"), "{none}");
}

/// A name could refer to a program in any folder, which was then run.
#[test]
fn a_name_cannot_refer_to_a_folder_outside_the_store() {
    let folder = tempfile::tempdir().expect("a folder");
    put(folder.path(), "outside", &oldest("2026-11-01T12:00:00Z"));
    put(&folder.path().join("store"), "in\u{1b}side", &oldest("2026-11-01T12:00:00Z"));
    let store = MeasurementStore::new(&folder.path().join("store"));
    let whole = folder.path().join("outside").display().to_string();
    for name in ["../outside", "./in\u{1b}side", "", ".", "..", &whole] {
        let error = store.find(name).expect_err("not in the store");
        assert!(matches!(error, SavedError::Missing { .. }), "{name}: {error}");
        assert!(error.to_string().ends_with("there is in\\u001bside"), "{error}");
    }
    store.find("in\u{1b}side").expect("it exists");
}
