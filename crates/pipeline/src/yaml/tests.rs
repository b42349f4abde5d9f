//! Tests of the located tree.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::faults::FaultCollector;

fn read(text: &str) -> Result<Node, LocatedFault> {
    parse(text, &mut Vec::new())
}

#[test]
fn values_are_those_of_the_core_schema() {
    let node = read(
        "a: [1, -2, 0x1f, 0o17, 1.5, 1e3, .inf, 02:00:00:00:00:01, 192.0.2.0/28, 300us]\n\
         b: {t: true, n: ~, e: , s: '1', u: !!str 2}\n",
    );
    let expected = json!({
        "a": [1, -2, 31, 15, 1.5, 1000, ".inf", "02:00:00:00:00:01", "192.0.2.0/28", "300us"],
        "b": { "t": true, "n": null, "e": null, "s": "1", "u": "2" },
    });
    assert_eq!(node.expect("YAML").to_json(), expected);
}

#[test]
fn every_value_has_its_line_and_column() {
    let node = read("a:\n  b:\n    - 1\n    - c: two\n").expect("YAML");
    assert_eq!(node.place_of(["a", "b", "1", "c"]), SourceLocation::Line(4, 10));
    assert_eq!(node.place_of(["a", "b"]), SourceLocation::Line(2, 3));
    assert_eq!(node.place_of(["a", "b", "0"]), SourceLocation::Line(3, 7));
    assert_eq!(node.place_of(["a", "nothing", "0"]), SourceLocation::Line(1, 1));
}

#[test]
fn gates_are_allowed_in_lists_without_quotes() {
    let node = read("f: { path: [vlans[100], fw], x: 'a[1]' } # m[x]\np: [[a]]\nl: v[other] -> drop\n").expect("YAML");
    assert_eq!(
        node.to_json(),
        json!({ "f": { "path": ["vlans[100]", "fw"], "x": "a[1]" }, "p": [["a"]], "l": "v[other] -> drop" })
    );
}

#[test]
fn aliases_repeat_values() {
    let node = read("a: &x { k: [1] }\nb: *x\n").expect("YAML");
    assert_eq!(node.to_json(), json!({ "a": { "k": [1] }, "b": { "k": [1] } }));
}

#[test]
fn a_duplicate_key_is_a_finding_with_both_lines() {
    let mut faults = FaultCollector::default();
    parse("a: 1\nb: 2\na: 3\n", &mut faults.located).expect("a tree");
    let problems = faults.finish("f", "", &[]).expect_err("a duplicate");
    assert_eq!(
        problems.to_string(),
        "f:3: the key 'a' is here a second time; the first is in line 1: remove one of them"
    );
}

fn refused(text: &str, place: SourceLocation, expected: &str) {
    let found = read(text).expect_err(expected);
    assert!(found.fault.message.contains(expected), "{}", found.fault);
    assert_eq!(found.place, place, "{}", found.fault);
}

#[test]
fn hostile_texts_meet_limits() {
    refused("", SourceLocation::START, "the text is empty");
    refused("# only a comment\n", SourceLocation::START, "the text is empty");
    refused("a: 1\n---\nb: 2\n", SourceLocation::Line(2, 1), "a second document");
    refused("a: !secret 1\n", SourceLocation::Line(1, 12), "the tag '!secret'");
    refused("? [a]\n: 1\n", SourceLocation::Line(1, 3), "a key is a list");
    refused("a: &x [*x]\n", SourceLocation::Line(1, 8), "inside the value that it repeats");
    refused("a: 1\nb: [*nosuch, 2]\n", SourceLocation::Line(2, 5), "no anchor is called 'nosuch': write `&`");
    // Regression: the error had other characters in place of the brackets.
    refused("a: [*b[x]]\n", SourceLocation::Line(1, 5), "no anchor is called 'b[x]': write `&`");
    let deep = read(&"[".repeat(100_000)).expect_err("too deep").fault.message;
    assert!(deep.contains("recursion limit"), "{deep}");
    assert!(
        read(&format!("{}{}", "[".repeat(65), "]".repeat(65)))
            .expect_err("too deep")
            .fault
            .message
            .contains("more than 64 levels deep")
    );
    let block: String = (0..200).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert!(read(&block).expect_err("too deep").fault.message.contains("more than 64 levels deep"));
    let laughs: String = (1..20).map(|n| format!("a{n}: &a{n} [{}]\n", format!("*a{},", n - 1).repeat(10))).collect();
    let bomb = read(&format!("a0: &a0 [x]\n{laughs}")).expect_err("too many").fault.message;
    assert!(bomb.contains("values"), "{bomb}");
    let long = read(&" ".repeat(MAX_TEXT + 1)).expect_err("too long").fault.message;
    assert!(long.contains("16777217 bytes"), "{long}");
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC*") {
        let _ = read(&text);
    }

    #[test]
    fn no_text_of_yaml_letters_makes_it_panic(text in "[-a\\[\\]{}:,&*!|>'\"%@#?<= \t\n01x~]{0,200}") {
        let _ = read(&text);
    }
}
