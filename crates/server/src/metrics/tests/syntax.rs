//! Checks the syntax of both text formats, line by line.

use std::collections::HashSet;

use super::*;

/// A line of a text.
struct Line {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

/// Parses the line of a sample.
fn parse(line: &str) -> Line {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("no value: {line}"));
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, value) = rest.split_once("=\"").unwrap_or_else(|| panic!("no label: {line}"));
            assert!(label.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{label}: {line}");
            let (mut text, mut characters) = (String::new(), value.chars());
            loop {
                match characters.next() {
                    Some('"') => break,
                    Some('\\') => match characters.next() {
                        Some('n') => text.push('\n'),
                        Some(escaped @ ('\\' | '"')) => text.push(escaped),
                        other => panic!("escape {other:?}: {line}"),
                    },
                    Some(character) => text.push(character),
                    None => panic!("the value has no end: {line}"),
                }
            }
            labels.push((label.to_owned(), text));
            rest = characters.as_str();
            match (rest.strip_prefix(','), rest.strip_prefix('}')) {
                (Some(next), _) => rest = next,
                (_, Some(next)) => {
                    rest = next;
                    break;
                }
                _ => panic!("neither ',' nor '}}': {line}"),
            }
        }
    }
    let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("no space before the value: {line}"));
    Line { name: name.to_owned(), labels, value: value.parse().unwrap_or_else(|_| panic!("no number: {line}")) }
}

/// Checks that the buckets of each series of a histogram increase, and end with the number of its values.
fn check_buckets(lines: &[Line]) {
    let (mut bound, mut total) = (f64::NEG_INFINITY, 0.0);
    for line in lines {
        let name = line.name.as_str();
        if name.ends_with("_bucket") {
            let (label, text) = line.labels.last().expect("a bound");
            assert_eq!(label, "le");
            let next: f64 = if text == "+Inf" { f64::INFINITY } else { text.parse().expect("a bound") };
            assert!(next > bound && line.value >= total, "{name}: {text}");
            (bound, total) = (next, line.value);
        } else if name.ends_with("_count") {
            assert_eq!((bound, line.value), (f64::INFINITY, total), "{name}");
            (bound, total) = (f64::NEG_INFINITY, 0.0);
        } else {
            assert!(name.ends_with("_sum"), "{name}");
        }
    }
}

/// Checks a text in OpenMetrics or, if `is_open` is false, in the Prometheus format.
pub(super) fn check(text: &str, is_open: bool) {
    let body = if is_open { text.strip_suffix("# EOF\n").expect("an end") } else { text };
    assert!(body.is_empty() || body.ends_with('\n'));
    let mut seen = HashSet::new();
    for block in body.split("# TYPE ").skip(1) {
        let (head, block) = block.split_once('\n').expect("a line");
        let (base, kind) = head.split_once(' ').expect("a kind");
        assert!(seen.insert(base.to_owned()), "{base} comes twice");
        let mut lines = Vec::new();
        for line in block.lines() {
            match line.strip_prefix("# ").map(|comment| comment.split(' ').collect::<Vec<_>>()).as_deref() {
                Some(["UNIT", name, unit]) => {
                    assert!(is_open && *name == base && base.ends_with(&format!("_{unit}")), "{line}");
                }
                // In the Prometheus text, the help comes before the type: it belongs to the next block.
                Some(["HELP", name, ..]) => assert!(!is_open || *name == base, "{line}"),
                Some(_) => panic!("a comment: {line}"),
                None => lines.push(parse(line)),
            }
        }
        assert!(!lines.is_empty(), "{base} has no samples");
        let suffixes: &[&str] = match (kind, is_open) {
            ("counter", true) => &["_total"],
            ("info", true) => &["_info"],
            ("counter" | "gauge", _) => &[""],
            ("histogram", _) => &["_bucket", "_sum", "_count"],
            _ => panic!("{base}: kind {kind}"),
        };
        for line in &lines {
            let suffix = line.name.strip_prefix(base).unwrap_or_else(|| panic!("{} in {base}", line.name));
            assert!(suffixes.contains(&suffix), "{}: kind {kind}", line.name);
            assert!(line.value.is_finite(), "{}", line.name);
            assert!(seen.insert(format!("{} {:?}", line.name, line.labels)), "{} {:?}", line.name, line.labels);
        }
        if kind == "histogram" {
            check_buckets(&lines);
        }
    }
}

#[test]
fn a_small_report_has_valid_syntax() {
    let families = small_families();
    check(&text::encode(&families), false);
    check(&openmetrics::encode(&families), true);
    check(&openmetrics::encode(&[]), true);
}

#[test]
fn hostile_names_come_back_as_they_were() {
    let names = ["a\\b\"c\nd", "\\", "\\n", "\"", "a\",b=\"c", "}", "# EOF", "\n# EOF\n", "ä\u{2028}\r\t", ""];
    let mut report = small_report();
    report.modules = names.iter().map(|name| module(name, "acl")).collect();
    let server = ServerMetrics::default();
    for name in names {
        let families = families(&[instance_with(name, &report)], &server, &Options::default());
        for (text, is_open) in [(text::encode(&families), false), (openmetrics::encode(&families), true)] {
            check(&text, is_open);
            let lines = text.lines().filter(|line| line.starts_with("forebay_module_packets_total")).map(parse);
            let labels: Vec<_> = lines.map(|line| line.labels).collect();
            let expected = names.map(|module| [("instance", name), ("module", module)]);
            let expected =
                expected.map(|labels| labels.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec());
            assert_eq!(labels, expected);
        }
    }
}
