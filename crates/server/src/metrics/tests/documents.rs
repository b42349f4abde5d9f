//! Compares the documentation, the rules and the dashboard with the table of families.

use std::collections::BTreeSet;
use std::path::Path;

use super::*;

/// Reads a file of the repository.
fn read(path: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Returns the names of series in a text.
fn names_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|character: char| !(character.is_ascii_alphanumeric() || "_:".contains(character)));
    words.filter(|word| word.starts_with("forebay_")).collect()
}

/// Returns the names of all series that the formats write.
fn names_of_series() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for family in all_families() {
        match family.kind {
            MetricType::Histogram => {
                names.extend(["_bucket", "_sum", "_count"].map(|suffix| format!("{}{suffix}", family.name)));
            }
            _ => {
                names.insert(family.name.to_owned());
            }
        }
    }
    names
}

#[test]
fn the_page_lists_every_family_with_its_kind() {
    let page = read("docs/metrics.md");
    for family in all_families() {
        let kind = match family.kind {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
            MetricType::Histogram => "histogram",
            MetricType::Info => "info",
        };
        let start = format!("| `{}` | {kind}", family.name);
        assert!(page.lines().any(|line| line.starts_with(&start)), "docs/metrics.md lacks a line '{start}'");
    }
    let rows = page.lines().filter(|line| line.starts_with("| `forebay_")).count();
    assert_eq!(rows, all_families().len(), "docs/metrics.md describes a family that does not exist");
}

#[test]
fn rules_and_dashboard_use_series_that_exist() {
    let known = names_of_series();
    for path in ["deploy/prometheus/rules.yaml", "deploy/grafana/forebay.json"] {
        let text = read(path);
        let names = names_in(&text);
        assert!(!names.is_empty(), "{path}");
        for name in names {
            assert!(known.contains(name), "{path}: {name}");
        }
    }
}
