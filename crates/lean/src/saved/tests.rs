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

fn saved(name: &str, pipeline: &Path) -> Saved {
    let subject = Subject::of(pipeline.display().to_string(), vec!["n=2".to_owned()]).expect("it is there");
    Saved { name: name.to_owned(), at: Timestamp::UNIX_EPOCH, commit: None, subject, measurement: measurement() }
}

#[test]
fn what_was_saved_is_found_with_its_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let (program, pipeline) = (folder.path().join("forebay"), folder.path().join("p.yaml"));
    fs::write(&program, vec![7; 200_000]).expect("it can be written");
    fs::write(&pipeline, "name: p").expect("it can be written");
    let store = Store::new(&folder.path().join("kept/here"));
    let one = saved("one", &pipeline);
    store.save(&one, &program).expect("it can be saved");
    let (found, copy) = store.find("one").expect("it is there");
    assert_eq!(found, one);
    assert_eq!(fs::read(&copy).expect("it is there"), vec![7; 200_000]);
    assert_eq!(found.subject.arguments()[1..], ["--set", "n=2"]);
    // Twice the same program is kept once; another is another.
    store.save(&saved("two", &pipeline), &program).expect("it can be saved");
    fs::write(&program, vec![8; 200_000]).expect("it can be written");
    store.save(&saved("three", &pipeline), &program).expect("it can be saved");
    use std::os::unix::fs::MetadataExt;
    let file = |name: &str| fs::metadata(store.find(name).expect("it is there").1).expect("it is there").ino();
    assert!(file("one") == file("two") && file("one") != file("three"));
}

#[test]
fn what_is_built_in_has_no_file() {
    for name in ["usecase:gw", "function:acl"] {
        assert_eq!(Subject::of(name.to_owned(), Vec::new()).expect("no file is read").text, None);
    }
    assert!(Subject::of("/no/such/file".to_owned(), Vec::new()).is_err());
}

#[test]
fn what_is_wrong_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let (program, pipeline) = (folder.path().join("forebay"), folder.path().join("p.yaml"));
    fs::write(&pipeline, "name: p").expect("it can be written");
    let store = Store::new(folder.path());
    for name in ["", ".a", "a/b", "..", "a b", &"a".repeat(65)] {
        assert!(matches!(store.place(name), Err(SavedError::Name(_))), "{name}");
    }
    // Nothing is left of what could not be saved whole.
    let error = store.save(&saved("one", &pipeline), &program).expect_err("there is no program");
    assert!(matches!(error, SavedError::Io { .. }), "{error}");
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    fs::write(&program, "x").expect("it can be written");
    store.save(&saved("one", &pipeline), &program).expect("it can be saved");
    assert!(matches!(store.save(&saved("one", &pipeline), &program), Err(SavedError::There(_))));
    let error = store.find("two").expect_err("it is not there").to_string();
    assert!(error.contains("no measurement 'two'") && error.contains("there are one"), "{error}");
    fs::write(&pipeline, "name: q").expect("it can be written");
    assert!(matches!(store.find("one"), Err(SavedError::Changed { .. })));
    fs::write(folder.path().join("one/measurement.json"), "{").expect("it can be written");
    assert!(matches!(store.find("one"), Err(SavedError::Broken { .. })));
}
