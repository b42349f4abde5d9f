//! Changes that users write to tables of a running pipeline, the resulting messages, and the arguments of `show`.

use serde_json::Value;

use crate::CommandResult;
use crate::running::Running;

/// Sends changes of the routes over standard input.
fn change(pipeline: &Running, input: impl Into<Vec<u8>>, more: &[&str]) -> CommandResult {
    let output = assert_cmd::Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["table", "route", "--socket", &pipeline.socket()])
        .args(more)
        .write_stdin(input)
        .output()
        .expect("the command can be started");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    CommandResult { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

fn has_control_characters(text: &str) -> bool {
    text.chars().any(|character| character.is_control() && character != '\n')
}

#[test]
fn refused_changes_are_reported_with_their_line_numbers() {
    let pipeline = Running::start();
    // More changes than are sent or made at a time.
    let mut lines: Vec<String> = (0..65_536).map(|n| format!("add 11.{}.{}.0/24 1", n / 256, n % 256)).collect();
    for (line, text) in [(21, ""), (22, "# a comment"), (501, "add 12.0.0.0/8 9"), (502, "  # more")] {
        lines[line - 1] = text.to_owned();
    }
    lines.push("addd x".to_owned());
    let done = change(&pipeline, lines.join("\n"), &[]);
    assert_eq!((done.code, done.out.as_str()), (Some(1), "65 532 changes made, 2 refused\n"), "{}", done.err);
    assert!(done.err.contains("line 501: next hop \"9\" is not allowed"), "{}", done.err);
    assert!(done.err.contains("line 65537: 'addd' is not a kind of change (did you mean 'add'?)"), "{}", done.err);
    let json = change(&pipeline, "\n# x\nremove 12.0.0.0/8\n", &["--json"]).json();
    assert_eq!((&json["changed"]["refusals"], &json["changed"]["refused"][0][0]), (&1.into(), &3.into()), "{json}");
    let done =
        pipeline.request(&["table", "route", "# arguments are counted, too", "add 12.0.0.0/8 0", "add 12.0.0.0/8 0"]);
    assert_eq!((done.code, done.out.as_str()), (Some(1), "1 change made, 1 refused\n"), "{}", done.err);
    assert!(done.err.starts_with("change 3: 12.0.0.0/8 already exists"), "{}", done.err);
}

#[test]
fn the_syntax_of_changes_is_printed_once() {
    let pipeline = Running::start();
    let done = change(&pipeline, "addd 1\nfoo\nadd\ndelete x\n", &[]);
    assert_eq!(done.code, Some(1));
    assert_eq!(done.err.matches("add PREFIX NEXT-HOP       adds a route").count(), 1, "{}", done.err);
    for expected in [
        "line 1: 'addd' is not a kind of change (did you mean 'add'?): allowed are add, remove and replace\n",
        "line 2: 'foo' is not a kind of change: allowed",
        "line 3: 'add' lacks an entry: write add PREFIX NEXT-HOP\n",
        "line 4: 'delete' is not a kind of change (did you mean 'remove'?)",
        "\nsyntax of changes of routes:\n  add PREFIX",
    ] {
        assert!(done.err.contains(expected), "'{expected}' is not in\n{}", done.err);
    }
    let known = change(&pipeline, "add\nremove 9.0.0.0/8\n", &[]);
    assert_eq!(known.err.lines().count(), 2, "no syntax for a user who knows the verbs:\n{}", known.err);
    let json = change(&pipeline, "foo\nadd\nadd 1", &["--json"]).json();
    let refused = json["changed"]["refused"].as_array().expect("a list");
    assert!(refused.len() == 3 && refused.iter().all(|it| !it[1].as_str().expect("text").contains('\n')), "{json}");
}

#[test]
fn control_characters_from_outside_are_escaped() {
    let pipeline = Running::start();
    let done = change(&pipeline, "add\0x\n\u{1b}]0;t\u{7}\nadd \u{9b}2J\r\n", &[]);
    assert_eq!(done.code, Some(1));
    assert!(done.err.contains("line 1: 'add\\u0000x' is not a kind of change"), "{}", done.err);
    assert!(done.err.contains("line 2: '\\u001b]0;t\\u0007' is not a kind of change"), "{}", done.err);
    assert!(!has_control_characters(&done.err) && !has_control_characters(&done.out), "{:?}", done.err);
    for arguments in [
        &["table", "\u{1b}[31mx", "add 1"][..],
        &["table", "route", "\u{1b}[31mfoo"],
        &["table", "route", "add \u{1b}[31mfoo 1"],
        &["show", "table", "\u{1b}[31mx"],
        &["show", "modules", "\u{1b}[31mx"],
        &["reload", "/\u{1b}[31mx"],
        &["reload", "--set", "\u{1b}[31mx=1"],
    ] {
        let done = pipeline.request(arguments);
        assert!(matches!(done.code, Some(1 | 2)) && done.err.contains("[31m"), "{arguments:?}: {:?}", done.err);
        assert!(
            !has_control_characters(&done.err) && !has_control_characters(&done.out),
            "{arguments:?}: {:?}",
            done.err
        );
    }
    let done = change(&pipeline, "\u{9b}\u{7f}\n", &["--json"]);
    assert!(!has_control_characters(&done.out), "{:?}", done.out);
    assert!(done.json()["changed"]["refused"][0][1].as_str().expect("text").contains("'\\u009b\\u007f'"));
}

#[test]
fn show_accepts_a_name_and_refuses_options_without_effect() {
    let pipeline = Running::start();
    let names = |arguments: &[&str]| -> Vec<Value> {
        let json = pipeline.request(&[arguments, &["--json"]].concat()).json();
        json.as_array().expect("a list").iter().map(|entry| entry["name"].clone()).collect()
    };
    assert_eq!(names(&["show", "modules"]), ["route", "a", "b"]);
    assert_eq!(names(&["show", "modules", "a"]), ["a"]);
    assert_eq!(names(&["show", "ports", "out"]), ["out"]);
    let flow = names(&["show", "flows"]).first().and_then(Value::as_str).expect("a flow").to_owned();
    assert_eq!(names(&["show", "flows", &flow]), [flow]);
    assert!(!pipeline.request(&["show", "modules", "a"]).success().contains("ip_lookup"));
    for (arguments, expected) in [
        (
            &["show", "modules", "ruote"][..],
            "no module is called 'ruote' (did you mean 'route'?): there are route, a, b",
        ),
        (&["show", "workers", "0"], "`show workers` takes no name ('0')"),
        (&["show", "trace", "a"], "`show trace` takes no name ('a')"),
        (&["show", "modules", "--count", "3"], "--count does not apply to `show modules`"),
        (&["show", "tables", "--filter", "tcp"], "--filter does not apply to `show tables`"),
    ] {
        let done = pipeline.request(arguments);
        assert!(done.code == Some(2) && done.err.contains(expected), "{arguments:?}: {}{}", done.out, done.err);
    }
}
