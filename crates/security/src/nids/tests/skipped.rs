//! Tests of skipped rules and of their list.

use super::*;

fn dialect(skip_drop: bool) -> Dialect {
    Dialect { skip: true, skip_drop, ..Dialect::default() }
}

fn skipping(rules: &[u8], skip_drop: bool) -> Result<File, String> {
    parse("r", rules, &dialect(skip_drop))
}

#[test]
fn unknown_rules_are_skipped_and_listed_completely() {
    let mut text = String::new();
    for sid in 1..=100 {
        text += &format!("alert tcp any any -> any 80 (content:\"x\"; http_uri; sid:{sid};)\n");
    }
    text += "alert tcp any any -> any 80 (content:\"x\"; sid:101;)\n";
    text += "nonsense\nalert http any any -> any any (sid:102;)\ninclude x\nvar X\nalert tcp any any -> any any (";
    let file = skipping(text.as_bytes(), false).expect("it loads");
    assert_eq!(file.rules.iter().map(|rule| rule.sid).collect::<Vec<_>>(), [101]);
    assert_eq!(file.skipped.len(), 105);
    let first = &file.skipped[0];
    assert_eq!((first.line, first.sid, &*first.keyword), (1, Some(1), "http_uri"));
    assert!(first.reason.contains("HTTP buffers are not supported yet"), "{}", first.reason);
    let rest: Vec<_> =
        file.skipped[100..].iter().map(|skipped| (skipped.line, skipped.sid, &*skipped.keyword)).collect();
    assert_eq!(
        rest,
        [(102, None, ""), (103, Some(102), "http"), (104, None, "include"), (105, None, "var"), (106, None, "")]
    );
}

#[test]
fn rules_that_drop_are_skipped_only_if_configured() {
    for action in ["drop", "block", "reject", "sdrop", "rejectboth"] {
        let text = format!("alert ip any any -> any any (sid:1;)\n{action} tcp any any -> any any (http_uri; sid:2;)");
        let error = skipping(text.as_bytes(), false).expect_err(action);
        assert!(error.starts_with("r:2: ") && error.contains("set 'skip_drop: true'"), "{error}");
        let file = skipping(text.as_bytes(), true).expect(action);
        assert_eq!((file.rules.len(), file.skipped[0].sid), (1, Some(2)), "{action}");
    }
}

#[test]
fn files_that_are_not_text_or_too_large_are_refused_even_with_skip() {
    let long = format!("alert tcp any any -> any any (msg:\"{}\"; sid:1;)", "a".repeat(70_000));
    for (bytes, reported) in [
        (&b"# one\n\0\x01"[..], "r:2: a byte of value 0"),
        (b"\xff\xfea\0", "r:1: the file is UTF-16"),
        (long.as_bytes(), "r:1: the rule has more than 65536 bytes"),
    ] {
        let error = skipping(bytes, true).expect_err(reported);
        assert!(error.contains(reported), "{error}");
    }
}

#[test]
fn the_newest_revision_of_a_rule_counts() {
    let rule =
        |rev: u32, content: &str| format!("alert tcp any any -> any any (content:\"{content}\"; sid:1; rev:{rev};)\n");
    for (text, line) in [(rule(1, "a") + &rule(2, "b"), 1), (rule(2, "b") + &rule(1, "a"), 2)] {
        let file = read(&text).expect("it loads");
        assert_eq!((file.rules.len(), file.rules[0].revision, &*file.rules[0].contents[0].bytes), (1, 2, &b"b"[..]));
        let skipped = &file.skipped[0];
        assert_eq!((skipped.line, skipped.sid, &*skipped.keyword), (line, Some(1), "rev"));
    }
    let error = read(&(rule(1, "a") + &rule(1, "b"))).expect_err("twice");
    assert!(error.contains("sid 1 is already used by the rule in line 1"), "{error}");
    // Numbers of different generators are different.
    let other = "alert tcp any any -> any any (gid:1000001; sid:1; rev:1;)\n";
    assert_eq!(read(&(rule(1, "a") + other)).expect("it loads").rules.len(), 2);
}

#[test]
fn skipped_rules_are_a_table_and_a_gauge() {
    let params = json!({ "unknown": "skip", "rules": [
        "alert tcp any any -> any 80 (http_uri; sid:7;)", "alert tcp any any -> any 80 (file_data; sid:8;)",
    ] });
    let rig = Rig::of::<Nids>(&params).unwrap_or_else(|error| panic!("{error}"));
    let (_, table) = rig.declared.tables.iter().find(|(name, _)| name == "skipped").expect("a table");
    let lines = table.entries(None, usize::MAX).expect("all");
    let entries: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(
        (&entries[0]["line"], &entries[0]["sid"], &entries[0]["keyword"]),
        (&json!(1), &json!(7), &json!("http_uri"))
    );
    assert_eq!(table.entries(Some(&lines[0]), 1).expect("one"), lines[1..]);
    assert!(table.entries(Some("x"), 1).is_err());
    assert_eq!((table.apply(&["remove x"]).made, table.len()), (0, 2));
    assert_eq!(rig.counters("rules")["skipped"], 2);
}

#[test]
fn encodings_comments_and_line_ends_are_read() {
    for (text, message, bytes) in [
        (&b"\xef\xbb\xbfalert tcp any any -> any 80 (msg:\"a\"; content:\"x\"; sid:1;)\n"[..], "a", &b"x"[..]),
        (b"alert tcp any any -> any 80 (msg:\"a\"; content:\"x\"; sid:1;)\r\n\r\n", "a", b"x"),
        (b"alert tcp any any -> any 80 (msg:\"a\"; \\\r\n content:\"x\"; sid:1;)\r\n", "a", b"x"),
        (b"\talert tcp any any -> any 80 (msg:\"a\"; content:\"x\"; sid:1;)   # a (comment;)\n", "a", b"x"),
        (b"alert tcp any any -> any 80 (msg:\"a) # b\"; content:\"#x\"; sid:1; )#\n", "a) # b", b"#x"),
        (
            b"alert tcp any any -> any 80 (msg:\"caf\xe9\"; content:\"\xe9|00|\\\xe8\"; sid:1;)\n",
            "caf\u{e9}",
            b"\xe9\0\xe8",
        ),
        (
            "alert tcp any any -> any 80 (msg:\"caf\u{e9}\"; content:\"\u{e9}\"; sid:1;)".as_bytes(),
            "caf\u{e9}",
            b"\xc3\xa9",
        ),
        (b"alert  tcp  any  any  ->  any  80  ( msg: \"a\" ; content: \"x\" ; sid: 1 ; rev: 1 ; )", "a", b"x"),
    ] {
        let file = parse("r", text, &Dialect::default()).unwrap_or_else(|error| panic!("{error}"));
        let rule = &file.rules[0];
        assert_eq!((&*rule.message, &*rule.contents[0].bytes), (message, bytes));
    }
}
