//! Tests of rule syntax: a rule is parsed completely, or refused with its line.

use super::*;

#[test]
fn a_rule_is_parsed_completely() {
    let file = read(
        "ipvar HOME 10.0.0.0/8\nportvar WEB [80,8080]\nconfig classification: own, of our own, 7\n# nothing\n\
         alert tcp !$HOME any <> $HOME $WEB (msg:\"a \\\"b\\; c\"; \\\n  content:!\"x|0d 0A|y\\\"\\;\"; nocase; \
         offset:3; depth:9; content:\"z\",fast_pattern,distance -2, within 5; pcre:\"/a;b\\\"\\/c/i\"; dsize:3<>9; \
         flags:S+,CE; classtype:own; reference:url,example.org/a; metadata:x y; \
         threshold: type limit, track by_src, count 1, seconds 60; \
         detection_filter: track by_dst, count 2, seconds 3; rev:3; sid:5;)",
    )
    .unwrap_or_else(|error| panic!("{error}"));
    let rule = &file.rules[0];
    assert_eq!((rule.line, rule.sid, rule.revision, rule.priority, rule.both), (5, 5, 3, 7, true));
    assert_eq!(rule.message, "a \"b; c");
    let contents: Vec<_> =
        rule.contents.iter().map(|content| (&content.bytes[..], content.not, content.nocase, content.place)).collect();
    let absolute = rule::ContentRange::Absolute { offset: 3, depth: Some(9) };
    let relative = rule::ContentRange::Relative { distance: -2, within: Some(5) };
    assert_eq!(contents, [(&b"x\r\ny\";"[..], true, true, absolute), (b"z", false, false, relative)]);
    assert_eq!(rule.fast().expect("one").bytes, b"z");
    assert_eq!(rule.pcres[0].regex.text(), "/a;b\\\"\\/c/i");
    assert_eq!(rule.tests[0], rule::Test::Size(rule::NumberRange { first: 3, last: 9, not: false }));
    assert_eq!(rule.tests[1], rule::Test::Flags { how: rule::BitMatch::All, bits: 2, mask: !0xc0 });
    assert_eq!(rule.references, ["url,example.org/a"]);
}

#[test]
fn unknown_syntax_is_refused_with_its_line_and_advice() {
    for (rule, expected) in [
        ("alert tcp any any -> any any (msg:\"a\";)", "r:2: the rule has no number: write sid: NUMBER, from 1"),
        ("alrt tcp any any -> any any (sid:1;)", "r:2: 'alrt' does not begin a rule (did you mean 'alert'?)"),
        (
            "reject tcp any any -> any any (sid:1;)",
            "r:2: the action 'reject' is not supported: allowed are alert, drop, pass and log",
        ),
        ("alert http any any -> any any (sid:1;)", "r:2: the protocol 'http': HTTP buffers are not supported yet"),
        ("alert tcp any any <- any any (sid:1;)", "'<-' is not supported: swap both sides"),
        ("alert tcp any any -> any (sid:1;)", "r:2: the header has 6 words"),
        ("alert tcp any any -> any any sid:1;", "the rule has no '('"),
        ("alert tcp any any -> any any (sid:1;", "the rule has no ')'"),
        ("alert tcp any any -> any any (\n  sid:1;\n)", "if the line ends with a backslash"),
        ("alert tcp any any -> any any (byte_math:bytes 1,offset 0,oper +,rvalue 1,result x; sid:1;)", "byte_math"),
        ("alert tcp any any -> any any (sid:1)", "no ';' after 'sid:1'"),
        ("alert tcp $X any -> any any (sid:1;)", "unknown variable 'X'"),
        ("alert tcp any any -> any any (xbits:set,x; sid:1;)", "the option 'xbits' is not supported yet"),
        ("alert tcp any any -> any any (http_uri; sid:1;)", "HTTP buffers are not supported yet"),
        ("alert tcp any any -> any any (contet:\"a\"; sid:1;)", "did you mean 'content'?"),
        ("alert tcp any any -> any any (flow:established; sid:1;)", "'flow' needs the state of connections"),
        ("alert tcp any any -> any any (content:\"\"; sid:1;)", "a content of 0 bytes: allowed are 1 to 1024"),
        ("alert tcp any any -> any any (content:\"|0|\"; sid:1;)", "two digits each"),
        ("alert tcp any any -> any any (nocase; sid:1;)", "'nocase' comes before any content"),
        (
            "alert tcp any any -> any any (content:\"abc\"; depth:2; sid:1;)",
            "depth 2 is less than the content, which has 3 bytes",
        ),
        (
            "alert tcp any any -> any any (content:\"abc\"; offset:2; within:9; sid:1;)",
            "'within' cannot be combined with offset or depth",
        ),
        (
            "alert tcp any any -> any any (pcre:\"/(?<=a+)b/\"; sid:1;)",
            "r:2: pcre: '/(?<=a+)b/': the length of a look-behind is not fixed",
        ),
        ("alert tcp any any -> any any (classtype:trojan-activty; sid:1;)", "did you mean 'trojan-activity'?"),
        ("alert udp any any -> any any (flags:S; sid:1;)", "'flags' is allowed only in rules for tcp"),
        ("alert tcp any any -> any any (dsize:>65535; sid:1;)", "no number passes this test"),
        ("alert tcp any any -> any any (dsize:!0<=>65535; sid:1;)", "dsize '!0<=>65535': no number passes this test"),
        ("alert tcp any any -> any any (ttl:!0-; sid:1;)", "ttl '!0-': no number passes this test"),
        ("alert ip any any -> any any (ip_proto:!<=255; sid:1;)", "no number passes this test"),
        ("alert tcp any any -> any any (ttl:5-; ttl:x; sid:1;)", "ttl 'x': allowed are numbers from 0 to 255"),
        (
            "alert tcp any any -> any any (threshold: type limit, track by_src, count 0, seconds 5; sid:1;)",
            "count '0': allowed are 1 to 1000000",
        ),
        (
            "alert tcp any any -> any any (detection_filter: track by_src; sid:1;)",
            "write track by_src|by_dst|by_both|by_rule, count N, seconds N",
        ),
        (
            "alert tcp any any -> any any (sid:9;)",
            "r:2: sid 9 is already used by the rule in line 1: each sid is allowed once",
        ),
        ("include more.rules", "'include' is not supported"),
        ("config something", "'config something' is not supported"),
        ("var X", "write var NAME VALUE"),
    ] {
        let error = read(&format!("alert ip any any -> any any (sid:9;)\n{rule}\n")).expect_err(rule);
        assert!(error.contains(expected) && error.starts_with("r:2: "), "{rule}: {error}");
    }
    let many = "x\n".repeat(50);
    assert!(read(&many).expect_err("50 faults").contains("and 30 more"));
}

#[test]
fn hostile_rules_are_refused_or_read_in_bounded_time() {
    let with = |options: &str| read(&format!("alert tcp any any -> any any ({options} sid:1;)"));
    assert!(with(&"content:\"a\";".repeat(65)).expect_err("many").contains("more than 64 contents"));
    assert!(
        with(&format!("content:\"{}\";", "a".repeat(2_000))).expect_err("long").contains("a content of 2000 bytes")
    );
    assert!(with(&format!("msg:\"{}\";", "a".repeat(1 << 20))).expect_err("huge").contains("more than 65536 bytes"));
    assert!(read(&format!("alert tcp {} any -> any any (sid:1;)", "[".repeat(20_000))).is_err());
    assert!(
        read(&format!("alert tcp {}any any -> any any (sid:1;)", "!".repeat(20_000)))
            .expect_err("deep")
            .contains("deep")
    );
    assert!(read(&"alert \\\n".repeat(100_000)).is_err());
    assert!(
        with("pcre:\"/(((((a{1,100}){1,100}){1,100}){1,100}){1,100})/\";")
            .expect_err("large")
            .contains("use fewer repetitions")
    );
}
