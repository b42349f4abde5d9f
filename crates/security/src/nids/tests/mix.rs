//! Tests of files with the keywords of real rule sets, and of the number of their rules that load.

use super::*;

/// Rules without HTTP buffers. Each keyword is about as frequent as in the large public rule sets.
fn mixed() -> String {
    let optional = [
        (6, 0, "flowbits:set,seen.login;"),
        (33, 5, "dns_query;"),
        (50, 7, "stream_size:client,<,1000;"),
        (4, 1, "fast_pattern:only;"),
        (12, 2, "byte_test:2,>,512,0,relative,little; byte_jump:1,2,relative,post_offset -1;"),
        (19, 3, "byte_extract:1,0,size; isdataat:!size,relative;"),
        (14, 4, r#"pcre:"/(\w+)=\1(?!x)/i";"#),
        (16, 5, "isdataat:100,relative;"),
        (25, 6, r#"pcre:"/^[^\r\n]{20}/R";"#),
        (3, 1, "content:\"pass\"; nocase; distance:0; within:40;"),
        (5, 2, "dsize:>20; threshold:type limit, track by_src, count 1, seconds 60;"),
        (9, 3, "detection_filter:track by_dst, count 5, seconds 2;"),
    ];
    let heads = [
        "tcp $EXTERNAL_NET any -> $HOME_NET 21",
        "tcp $HOME_NET any -> $EXTERNAL_NET [80,443,8000:8080]",
        "udp any any -> any 53",
        "tcp $EXTERNAL_NET !25 <> $HOME_NET 1024:",
    ];
    let mut text = "ipvar HOME_NET 10.0.0.0/8\nipvar EXTERNAL_NET !$HOME_NET\n".to_owned();
    for sid in 1..=600 {
        let head = heads[sid % heads.len()];
        let flow = if head.starts_with("tcp") { "flow:to_server,established; " } else { "" };
        text += &format!("alert {head} (msg:\"TROJAN {sid}\"; {flow}content:\"|ff 53|user{sid}\"; ");
        for (each, rest, option) in optional {
            if sid % each == rest {
                text += option;
                text.push(' ');
            }
        }
        text += &format!("reference:url,example.org/{sid}; metadata:policy balanced-ips drop; ");
        text += &format!("classtype:trojan-activity; sid:{sid}; rev:2;)\n");
    }
    text
}

#[test]
fn of_rules_with_the_keywords_of_real_rule_sets_six_of_ten_load() {
    let with_table = Dialect { skip: true, flow: FlowMode::Session, ..Dialect::default() };
    let without = Dialect { skip: true, flow: FlowMode::Approximate, ..Dialect::default() };
    for (dialect, least, allowed) in [
        (with_table, 540, &["dns_query", "stream_size"][..]),
        // Without a table of sessions, rules with flowbits are refused.
        (without, 360, &["flowbits", "dns_query", "stream_size"]),
    ] {
        let file = parse("r", mixed().as_bytes(), &dialect).expect("it loads");
        let skipped: Vec<_> = file.skipped.iter().map(|skipped| (&*skipped.keyword, &*skipped.reason)).collect();
        assert_eq!(file.rules.len() + skipped.len(), 600);
        assert!(file.rules.len() >= least, "{} of 600: {skipped:?}", file.rules.len());
        for (keyword, reason) in skipped {
            assert!(allowed.contains(&keyword), "{keyword}: {reason}");
        }
    }
}

#[test]
fn files_full_of_mistakes_load_with_skip() {
    let dialect = Dialect { skip: true, ..Dialect::default() };
    let whole = mixed();
    let mut text = String::new();
    // Every rule is cut at another position or has one more letter.
    for (number, line) in whole.lines().enumerate() {
        let at = (number * 7) % line.len();
        text += &line[..at];
        text += if number % 2 == 0 { "\n" } else { "\"" };
        text += if number % 2 == 0 { "" } else { &line[at..] };
        text.push('\n');
    }
    text += ")\n(\n;;;\nalert\nalert tcp\nalert tcp any any -> any any ()\n\u{e9}\u{1}\n";
    let file = parse("r", text.as_bytes(), &dialect).unwrap_or_else(|error| panic!("{error}"));
    assert!(file.skipped.len() > 300, "{}", file.skipped.len());
}
