//! `forebay gate`: changes that the test makes in a pipeline are found, named and classified. An unchanged pipeline
//! passes.

use serde_json::Value;

use crate::measure::has_valgrind;
use crate::{File, forebay};

const PIPELINE: &str = "\
ports:
  in: { generator: { rate: 1Mpps } }
  out: { sink: {} }
modules:
  fw: { acl: { rules: { synthetic: 10 }, default: permit } }
  hop: { ttl: }
pipeline:
  - in -> fw -> hop -> out
";

/// A pipeline file with a baseline beside it.
struct Baselined {
    file: File,
    baseline: String,
}

impl Baselined {
    fn new() -> Self {
        Self::of(PIPELINE)
    }

    /// Counts fewer packets than usual: the update of a baseline keeps the extent of the baseline.
    fn of(pipeline: &str) -> Self {
        let file = File::new(pipeline);
        let baseline = file.beside("baseline.json");
        let build = serde_json::json!({ "forebay": "", "profile": "", "instruction_set": "", "c_library": null });
        let extent = serde_json::json!({ "before": 1024, "packets": 4096 });
        let empty = serde_json::json!({ "schema": 2, "build": build, "extent": extent, "cases": [] });
        std::fs::write(&baseline, empty.to_string()).expect("a writable folder");
        let output = forebay(&["gate", "--baseline", &baseline, "--update", file.path()]).success();
        assert!(output.ends_with("has 1 pipeline: 1 pipeline added; 0 of 0 figures changed\n"), "{output}");
        let written = std::fs::read_to_string(&baseline).expect("it exists");
        assert_eq!(serde_json::from_str::<Value>(&written).expect("JSON")["extent"], extent);
        Self { file, baseline }
    }

    /// Replaces `old` by `new` in the pipeline, and runs the gate.
    fn after(&self, old: &str, new: &str) -> (Option<i32>, Value) {
        assert!(PIPELINE.contains(old));
        std::fs::write(&self.file.path, PIPELINE.replace(old, new)).expect("a writable folder");
        let done = forebay(&["gate", "--baseline", &self.baseline, "--json"]);
        (done.code, done.json())
    }
}

/// Returns the verdict and the most important cause that the report has for a part.
fn finding<'a>(report: &'a Value, part: &str) -> Option<(&'a str, &'a str)> {
    let findings = report["cases"][0]["findings"].as_array().expect("a list");
    let found = findings.iter().find(|finding| finding["part"] == part)?;
    Some((found["verdict"].as_str().expect("a word"), found["why"][0]["cause"].as_str().expect("a word")))
}

#[test]
fn only_planted_changes_are_found_and_each_has_its_cause() {
    if !has_valgrind() {
        return;
    }
    let pipeline = Baselined::new();
    let (code, same) = pipeline.after("", "");
    assert_eq!((code, same["answer"].as_str(), finding(&same, "(all)")), (Some(0), Some("yes"), None), "{same}");
    assert_eq!(same["cases"][0]["case"], "test.yaml");

    let (code, larger) = pipeline.after("synthetic: 10 ", "synthetic: 500 ");
    assert_eq!(code, Some(1), "{larger}");
    assert_eq!(finding(&larger, "fw"), Some(("increased", "code")));
    assert_eq!((finding(&larger, "hop"), finding(&larger, "(residue)")), (None, None), "{larger}");

    let (code, smaller) = pipeline.after("ports:", "batch: 4\nports:");
    assert_eq!(code, Some(1), "{smaller}");
    for part in ["fw", "hop", "in.receive", "out.send", "(residue)", "(all)"] {
        assert_eq!(finding(&smaller, part), Some(("increased", "batches")), "{part}: {smaller}");
    }
}

#[test]
fn a_new_module_and_a_decrease_are_reported_and_an_update_accepts_them() {
    if !has_valgrind() {
        return;
    }
    let pipeline = Baselined::of(&PIPELINE.replace("synthetic: 10 ", "synthetic: 500 "));
    let longer = PIPELINE.replace("  hop: { ttl: }\n", "  hop: { ttl: }\n  sum: { ip_checksum: }\n");
    let longer = longer.replace("-> hop ->", "-> hop -> sum ->");
    std::fs::write(&pipeline.file.path, longer).expect("a writable folder");
    let gate = ["gate", "--baseline", &pipeline.baseline];
    let done = forebay(&gate);
    assert_eq!(done.code, Some(1), "{}", done.err);
    let row = |name: &str| {
        let line = done.out.lines().find(|line| line.split_whitespace().nth(1) == Some(name));
        line.unwrap_or_else(|| panic!("{name}: {}", done.out)).to_owned()
    };
    assert!(row("sum").contains("new module +"), "{}", done.out);
    assert!(row("fw").contains("less code -"), "{}", done.out);
    assert!(row("(all)").contains("mostly sum +"), "{}", done.out);
    assert!(done.out.contains(", 1 module not in the baseline"), "{}", done.out);
    let output = forebay(&[&gate[..], &["--update"]].concat()).success();
    assert!(output.contains("has 1 pipeline: 0 pipelines added; "), "{output}");
    assert!(forebay(&gate).success().starts_with("yes: of 7 figures of 1 pipeline, none grew"), "{output}");
}

#[test]
fn a_new_baseline_has_the_usual_extent() {
    if !has_valgrind() {
        return;
    }
    let file = File::new(PIPELINE);
    let baseline = file.beside("new.json");
    let output = forebay(&["gate", "--baseline", &baseline, "--update", file.path()]).success();
    assert!(output.ends_with("has 1 pipeline: 1 pipeline added; 0 of 0 figures changed\n"), "{output}");
    let written = std::fs::read_to_string(&baseline).expect("it exists");
    let extent = serde_json::json!({ "before": 4096, "packets": 16384 });
    assert_eq!(serde_json::from_str::<Value>(&written).expect("JSON")["extent"], extent);
}

#[test]
fn the_same_build_is_equal_to_itself() {
    if !has_valgrind() {
        return;
    }
    let same = forebay(&["gate", "--against", env!("CARGO_BIN_EXE_forebay"), "function:ttl", "function:acl", "--json"]);
    assert_eq!(same.code, Some(0), "{}", same.err);
    let same = same.json();
    assert_eq!(same["cases"].as_array().map(Vec::len), Some(2), "{same}");
    assert!(same["cases"].as_array().expect("a list").iter().all(|case| case["findings"] == serde_json::json!([])));
}

#[test]
fn a_pipeline_that_the_other_build_lacks_and_a_foreign_program_are_refused() {
    let other = File::new("#!/bin/sh\necho '[{\"name\":\"acl\",\"summary\":\"\"}]'\n");
    std::fs::set_permissions(&other.path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("the owner can change it");
    for (program, expected) in [
        (other.path(), "does not have function:ttl: allowed are pipelines that both builds have"),
        ("/bin/true", "list usecases --json: no list: it is not a build of Forebay"),
    ] {
        let done = forebay(&["gate", "--against", program, "function:ttl"]);
        assert!(done.code == Some(2) && done.err.contains(expected), "{}", done.err);
    }
}

#[test]
fn a_baseline_of_another_processor_or_build_is_refused() {
    if !has_valgrind() {
        return;
    }
    let pipeline = Baselined::new();
    let text = std::fs::read_to_string(&pipeline.baseline).expect("it exists");
    for (old, new) in [("compiled for ", "compiled for sse9 "), ("\"profile\":\"", "\"profile\":\"slow ")] {
        assert!(text.contains(old), "{text}");
        std::fs::write(&pipeline.baseline, text.replace(old, new)).expect("a writable folder");
        let done = forebay(&["gate", "--baseline", &pipeline.baseline]);
        assert_eq!(done.code, Some(2), "{}", done.out);
        assert!(
            done.err.contains("of this program cannot be compared") && done.err.contains("--against"),
            "{}",
            done.err
        );
    }
}

#[test]
fn invalid_arguments_are_refused_with_the_allowed_values() {
    let file = File::new("{ \"schema\": 7 }");
    let empty = file.beside("none.json");
    let refused = |arguments: &[&str], expected: &str| {
        let done = forebay(&[&["gate"], arguments].concat());
        assert_eq!(done.code, Some(2), "{arguments:?}: {}", done.out);
        assert!(done.err.contains(expected), "{arguments:?}: {}", done.err);
    };
    refused(&[], "--baseline FILE or --against PROGRAM is required");
    refused(&["--baseline", &empty], "the file does not exist: create it with --update");
    refused(&["--baseline", &empty, "--update"], "no pipeline to count: name some, for example `usecases`");
    refused(&["--baseline", &empty, "--update", "-"], "the pipeline is read several times: name a file");
    refused(&["--baseline", &empty, "--update", "not/there.yaml"], "neither a file nor built in");
    refused(&["--baseline", file.path()], "schema 7 is not supported, allowed is 2");
    refused(&["--baseline", &empty, "--max-ipp", "1"], "write a share such as +0.5%");
    refused(&["--baseline", &empty, "--against", &empty], "cannot be used with");
    refused(&["--baseline", &empty, "--set", "n=1"], "<PIPELINE>");
    refused(&["--against", &empty], "No such file");
    std::fs::write(&file.path, "nonsense").expect("a writable folder");
    refused(&["--baseline", file.path()], "not a baseline: it is not a JSON object");
    let mut all: Value = serde_json::from_str(&committed_baseline()).expect("JSON");
    std::fs::write(&file.path, all.to_string()).expect("a writable folder");
    refused(&["--baseline", file.path(), "usecase:nat"], "'usecase:nat' is not in the baseline: it has ");
    // A figure lowered by hand contradicts the others.
    all["cases"][0]["modules"][0]["ipp"] = 1.0.into();
    std::fs::write(&file.path, all.to_string()).expect("a writable folder");
    refused(&["--baseline", file.path()], "contradict each other");
}

fn committed_baseline() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../baselines/instructions.json");
    std::fs::read_to_string(path).expect("it is part of the repository")
}

/// Fails if a function was added without its baseline.
#[test]
fn every_function_and_use_case_is_in_the_committed_baseline() {
    let baseline: Value = serde_json::from_str(&committed_baseline()).expect("JSON");
    let cases = baseline["cases"].as_array().expect("a list");
    for (kind, prefix) in [("functions", "function"), ("usecases", "usecase")] {
        let listed: Value = serde_json::from_str(&forebay(&["list", kind, "--json"]).success()).expect("JSON");
        for entry in listed.as_array().expect("a list") {
            let name = format!("{prefix}:{}", entry["name"].as_str().expect("a name"));
            assert!(cases.iter().any(|case| case["pipeline"] == name), "{name} has no baseline: make gate-update");
        }
    }
    assert_eq!(baseline["build"]["profile"], "release", "`make gate-update` counts a release build");
}
