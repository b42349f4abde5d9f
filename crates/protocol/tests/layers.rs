//! Tests the dependencies between crates (ARCHITECTURE.md), and which crates have examples in their documentation.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The crates, lowest first: a crate depends only on crates before it.
const ORDER: &[&str] = &[
    "units",
    "simd",
    "aead",
    "memory",
    "models",
    "host",
    "plot",
    "frames",
    "protocol",
    "server",
    "measure",
    "packet",
    "graph",
    "control",
    "ports",
    "tables",
    "tunnels",
    "sessions",
    "security",
    "mobile",
    "encryption",
    "traffic",
    "forwarding",
    "neighbours",
    "functions",
    "pipeline",
    "instance",
    "sim",
    "placement",
    "bench",
    "observe",
    "contention",
    "corun",
    "lab",
    "cli",
];

/// The crates whose dependencies within the workspace are fixed, because other programs use them without the data
/// plane.
const FIXED: &[(&str, &[&str])] = &[
    ("units", &[]),
    ("protocol", &["units"]),
    ("models", &[]),
    ("host", &[]),
    ("server", &["host", "protocol", "units"]),
];

/// All libraries that the protocol crate links, apart from those of the workspace.
const PROTOCOL_LIBRARIES: &[&str] = &["libc", "schemars", "serde", "serde_json", "thiserror"];

/// Returns whether a source file has an example that Cargo compiles: a block of code in a documentation comment whose
/// language is Rust.
fn has_example(file: &Path) -> bool {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let comments = text.lines().map(str::trim_start).filter_map(|line| {
        let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
        text.trim_start().strip_prefix("```")
    });
    // Every second line of this form ends a block.
    comments.step_by(2).any(|language| ["", "rust", "no_run", "should_panic"].contains(&language.trim()))
}

fn has_examples(folder: &Path) -> bool {
    std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).any(|path| {
        if path.is_dir() {
            has_examples(&path)
        } else {
            path.extension().is_some_and(|it| it == "rs") && has_example(&path)
        }
    })
}

/// Returns the names in the section `[dependencies]` of a crate's Cargo.toml.
fn dependencies(manifest: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(manifest).unwrap_or_else(|error| panic!("{}: {error}", manifest.display()));
    let section = text.lines().skip_while(|line| line.trim() != "[dependencies]").skip(1);
    let lines = section.take_while(|line| !line.starts_with('[')).map(str::trim);
    let names = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    names.map(|line| line.split([' ', '=', '.']).next().expect("a name").to_owned()).collect()
}

fn all() -> BTreeMap<String, BTreeSet<String>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let entries = std::fs::read_dir(folder).expect("the folder of crates").map(|entry| entry.expect("an entry").path());
    let manifests = entries.map(|entry| entry.join("Cargo.toml")).filter(|manifest| manifest.is_file());
    manifests
        .map(|manifest| {
            let name = manifest.parent().and_then(Path::file_name).expect("a folder").to_string_lossy().into_owned();
            (name, dependencies(&manifest))
        })
        .collect()
}

#[test]
fn no_crate_depends_on_one_above_it() {
    let all = all();
    let known: BTreeSet<&str> = ORDER.iter().copied().collect();
    let found: BTreeSet<&str> = all.keys().map(String::as_str).collect();
    assert_eq!(found, known, "a new crate gets its place in ORDER and in ARCHITECTURE.md");
    let level = |name: &str| ORDER.iter().position(|known| *known == name).expect("a known crate");
    for (name, dependencies) in &all {
        for dependency in dependencies.iter().filter_map(|name| name.strip_prefix("forebay-")) {
            assert!(level(dependency) < level(name), "{name} depends on {dependency}, which is above it");
        }
    }
}

#[test]
fn programs_outside_link_no_data_plane() {
    let all = all();
    for (name, allowed) in FIXED {
        let own: BTreeSet<&str> = all[*name].iter().filter_map(|name| name.strip_prefix("forebay-")).collect();
        assert_eq!(own, allowed.iter().copied().collect(), "{name}");
    }
    let others = all["protocol"].iter().map(String::as_str).filter(|name| !name.starts_with("forebay-"));
    assert_eq!(others.collect::<Vec<_>>(), PROTOCOL_LIBRARIES);
}

#[test]
fn only_tests_use_frames() {
    for (name, dependencies) in all() {
        assert!(!dependencies.contains("forebay-frames"), "{name}: frames are built for tests");
    }
}

/// Cargo takes seconds to look for examples in a crate that has none. So these crates have `doctest = false`. In a
/// crate with an example, that line would prevent the test of the example.
#[test]
fn no_example_is_hidden_from_tests() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for name in all().keys() {
        let crate_folder = folder.join(name);
        let manifest = std::fs::read_to_string(crate_folder.join("Cargo.toml")).expect("a manifest");
        let is_hidden = manifest.lines().any(|line| line == "doctest = false");
        assert!(
            !is_hidden || !has_examples(&crate_folder.join("src")),
            "{name} has an example: remove doctest = false"
        );
    }
}
