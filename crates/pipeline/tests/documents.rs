//! Tests that the check accepts the examples and those of the documentation.

use std::fs;
use std::path::{Path, PathBuf};

use forebay_pipeline::{Conditions, Source, check, load};
use forebay_units::Frequency;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the YAML blocks of a page, each at its own line, so that errors name the lines of the page.
fn blocks(page: &str) -> Vec<String> {
    let mut blocks: Vec<String> = Vec::new();
    let mut inside = false;
    for (number, line) in page.lines().enumerate() {
        match line {
            "```yaml" => {
                inside = true;
                blocks.push("\n".repeat(number + 1));
            }
            "```" => inside = false,
            line if inside => {
                let block = blocks.last_mut().expect("a block has begun");
                block.push_str(line);
                block.push('\n');
            }
            _ => {}
        }
    }
    blocks
}

/// Completes a single section to a configuration with the smallest pipeline.
fn whole(block: &str) -> String {
    if block.contains("\nports:") {
        return block.to_owned();
    }
    format!("{block}ports: {{ in: {{ generator: }}, out: {{ sink: }} }}\npipeline: [in -> out]\n")
}

#[test]
fn every_example_of_the_documentation_is_valid() {
    for page in [
        "docs/af_xdp.md",
        "docs/balancer.md",
        "docs/configuration.md",
        "docs/control.md",
        "docs/dpi.md",
        "docs/encryption.md",
        "docs/fragments.md",
        "docs/neighbours.md",
        "docs/nids.md",
        "docs/ports.md",
        "docs/rules.md",
        "docs/sessions.md",
        "docs/traffic.md",
        "docs/usecases.md",
        "docs/workers.md",
    ] {
        let text = fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        for block in blocks(&text) {
            let source = Source::new(whole(&block), page, root().join("examples"));
            if let Err(problems) = check(&source) {
                panic!("{problems}\n{}", block.trim_start());
            }
        }
    }
    let text = fs::read_to_string(root().join("docs/configuration.md")).expect("the page");
    assert!(blocks(&text).len() >= 7, "the page has examples");
}

#[test]
fn every_shipped_example_is_valid() {
    let mut seen = 0;
    let folders = ["examples", "examples/netns"].map(|folder| fs::read_dir(root().join(folder)));
    for entry in folders.into_iter().flat_map(|folder| folder.expect("a folder of examples")) {
        let path = entry.expect("an entry").path();
        // A file of chains is not a pipeline: `forebay place` makes one of it.
        if path.extension().is_some_and(|extension| extension == "yaml") && !path.ends_with("chains.yaml") {
            seen += 1;
            let source = Source::read(&path).unwrap_or_else(|problems| panic!("{problems}"));
            check(&source).unwrap_or_else(|problems| panic!("{problems}"));
        }
    }
    assert!(seen >= 2, "{seen} examples");
}

#[test]
fn a_missing_or_binary_file_is_an_error_with_its_name() {
    let missing = Source::read(Path::new("no-such-folder/gateway.yaml")).expect_err("refused").to_string();
    assert!(missing.starts_with("no-such-folder/gateway.yaml: cannot be read: "), "{missing}");
    let path = std::env::temp_dir().join(format!("forebay-{}-bytes.yaml", std::process::id()));
    fs::write(&path, b"name: x\nbatch: \xff\n").expect("a temporary file");
    let wrong = Source::read(&path).expect_err("refused").to_string();
    fs::remove_file(&path).expect("it was written");
    assert!(wrong.ends_with("-bytes.yaml:2: byte 0xff is not UTF-8 text"), "{wrong}");
}

#[test]
fn output_files_are_unchanged_until_the_pipeline_runs() {
    let path = std::env::temp_dir().join(format!("forebay-{}-tap.pcap", std::process::id()));
    fs::write(&path, b"kept").expect("a temporary file");
    let text = |gate: &str| {
        let tap = format!("modules: {{ tap: {{ tap: {{ file: {} }} }} }}", path.display());
        format!(
            "ports: {{ in: {{ generator: }}, out: {{ sink: }} }}\n{tap}\npipeline: [in -> tap, 'tap[{gate}] -> out']\n"
        )
    };
    let conditions = Conditions { frequency: Frequency::new(1e9), simulated: false };
    check(&Source::new(text("0"), "tap", "")).unwrap_or_else(|problems| panic!("{problems}"));
    assert!(load(&Source::new(text("1"), "tap", ""), conditions).is_err(), "there is no gate 1");
    assert_eq!(fs::read(&path).expect("the file"), b"kept");
    drop(load(&Source::new(text("0"), "tap", ""), conditions).unwrap_or_else(|problems| panic!("{problems}")));
    assert_eq!(fs::read(&path).expect("the file"), b"kept", "loaded, but not run");
    fs::remove_file(&path).expect("it was written");
}
