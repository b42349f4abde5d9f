//! Text files as other editors write them: with a byte-order mark, with CR LF, in UTF-16.

use crate::forebay;

/// Every parameter of a module, a state or a port that names a text file, with a valid text. `f` is the file.
const PARAMETERS: &[(&str, &str, &str)] = &[
    ("acl rules", "modules: { m: { acl: { rules: f } } }", "@10.0.0.0/8 0.0.0.0/0 0 : 65535 22 : 22 0x06/0xff deny\n"),
    ("ip_lookup routes", "modules: { m: { ip_lookup: { routes: f } } }", "0.0.0.0/0 0\n# all\n10.0.0.0/8 0\n"),
    ("dpi patterns", "modules: { m: { dpi: { patterns: f, classes: [{ name: x, gate: drop }] } } }", "first\nsecond\n"),
    (
        "nids rules",
        "modules: { m: { nids: { rules: f } } }",
        "alert tcp any any -> any any (content:\"abc\"; sid:1;)\n",
    ),
    (
        "gtpu_encap tunnels",
        "modules: { m: { gtpu_encap: { source: 192.0.2.1, tunnels: f } } }",
        "10.0.0.1 0x1 192.0.2.2\n",
    ),
    ("gtpu_decap teids", "modules: { m: { gtpu_decap: { teids: { file: f } } } }", "1\n2-9\n"),
    (
        "aes_gcm_encrypt keys",
        "modules: { m: { aes_gcm_encrypt: { keys: [{ id: 1, file: f }] } } }",
        "000102030405060708090a0b0c0d0e0f\n",
    ),
    (
        "aes_gcm_decrypt keys",
        "modules: { m: { aes_gcm_decrypt: { keys: [{ id: 1, file: f }] } } }",
        "# a key\n000102030405060708090a0b0c0d0e0f\n",
    ),
    (
        "esp_encrypt key=@FILE",
        "modules: { m: { esp_encrypt: { source: 192.0.2.1, \
        associations: [\"0x1001 key=@f peer=192.0.2.2 for=10.0.0.0/8\"] } } }",
        "000102030405060708090a0b0c0d0e0f00010203\n",
    ),
    (
        "esp_encrypt associations",
        "modules: { m: { esp_encrypt: { source: 192.0.2.1, associations: { file: f } } } }",
        "0x1001 key=000102030405060708090a0b0c0d0e0f00010203 peer=192.0.2.2 for=10.0.0.0/8\n",
    ),
    (
        "esp_decrypt associations",
        "modules: { m: { esp_decrypt: { associations: { file: f } } } }",
        "0x1001 key=000102030405060708090a0b0c0d0e0f00010203 peer=192.0.2.2\n",
    ),
    (
        "pdu_sessions sessions",
        "state: { s: { pdu_sessions: { sessions: f } } }\nmodules: { m: { upf_downlink: { state: s } } }",
        "10.60.0.1 teid=0x1001 peer=192.0.2.10 peer-teid=0x2001 qfi=9\n",
    ),
    (
        "pdu_sessions rules",
        "state: { s: { pdu_sessions: { rules: f } } }\nmodules: { m: { upf_downlink: { state: s } } }",
        "7 tcp port=443\n",
    ),
    ("generator routes", "modules: { m: { counter: } }", "10.0.0.0/8\n# all\n192.168.0.0/16 7\n"),
];

fn configuration(parameter: &str, modules: &str) -> String {
    let generator = if parameter == "generator routes" { "{ destination: { routes: f } }" } else { "" };
    let gates = match parameter {
        "gtpu_decap teids" => r#"in -> m, "m[0] -> out", "m[reply] -> drop", "m[control] -> drop""#,
        _ => "in -> m -> out",
    };
    format!("ports: {{ in: {{ generator: {generator} }}, out: {{ sink: }} }}\n{modules}\npipeline: [ {gates} ]\n")
}

fn check(parameter: &str, modules: &str, bytes: &[u8]) -> crate::CommandResult {
    let file = crate::File::new(&configuration(parameter, modules));
    std::fs::write(file.folder.path().join("f"), bytes).expect("a writable folder");
    let path = file.path.to_str().expect("UTF-8");
    // The file of a port is read when the port is opened.
    let run = ["run", path, "--virtual", "--duration", "1us", "--no-live", "--no-socket"];
    if parameter == "generator routes" { forebay(&run) } else { forebay(&["check", path]) }
}

#[test]
fn byte_order_marks_and_windows_line_ends_are_ignored() {
    for (parameter, modules, text) in PARAMETERS {
        let windows = text.replace('\n', "\r\n");
        for text in [(*text).to_owned(), format!("\u{feff}{text}"), windows.clone(), format!("\u{feff}{windows}")] {
            let done = check(parameter, modules, text.as_bytes());
            assert_eq!(done.code, Some(0), "{parameter}: {text:?}: {}", done.err);
        }
    }
}

#[test]
fn text_in_utf_16_is_refused_and_named() {
    for (parameter, modules, text) in PARAMETERS {
        for (mark, encode) in [([0xff, 0xfe], u16::to_le_bytes as fn(u16) -> [u8; 2]), ([0xfe, 0xff], u16::to_be_bytes)]
        {
            let bytes: Vec<u8> = mark.into_iter().chain(text.encode_utf16().flat_map(encode)).collect();
            let done = check(parameter, modules, &bytes);
            assert!(done.code == Some(2) && done.err.contains("UTF-16"), "{parameter}: {} {}", done.out, done.err);
        }
    }
}

/// Regression: a second mark, and the mark of a file that was appended to another, became part of a rule or a pattern.
#[test]
fn further_marks_are_refused_and_named() {
    for (parameter, modules, text) in PARAMETERS {
        let two = check(parameter, modules, format!("\u{feff}\u{feff}{text}").as_bytes());
        let named = two.err.contains("it begins with two byte-order marks (EF BB BF): allowed is one");
        assert!(two.code == Some(2) && named, "{parameter}: {} {}", two.out, two.err);
        let appended = check(parameter, modules, format!("\u{feff}{text}\u{feff}{text}").as_bytes());
        let part = format!("line {} begins with a byte-order mark (EF BB BF)", text.lines().count() + 1);
        assert!(
            appended.code == Some(2) && appended.err.contains(&part),
            "{parameter}: {} {}",
            appended.out,
            appended.err
        );
    }
    let text = configuration("", PARAMETERS[13].1);
    let file = crate::File::new(&format!("\u{feff}\u{feff}{text}"));
    let done = forebay(&["check", file.path.to_str().expect("UTF-8")]);
    assert!(done.code == Some(2) && done.err.contains("two byte-order marks"), "{}", done.err);
}

/// Regression: the first pattern of a file with a mark was never found in a packet.
#[test]
fn a_mark_is_not_part_of_the_first_pattern() {
    let modules = PARAMETERS[2].1;
    for text in ["\u{feff}first\nsecond\nfirst\n", "\u{feff}first\r\nsecond\r\nfirst\r\n"] {
        let done = check("dpi patterns", modules, text.as_bytes());
        assert!(done.code == Some(2) && done.err.contains("this pattern is already in line 1"), "{}", done.err);
    }
}

#[test]
fn a_configuration_may_begin_with_a_mark_but_not_be_utf_16() {
    let text = configuration("", PARAMETERS[13].1);
    for (text, code) in [(format!("\u{feff}{text}"), 0), (format!("\u{feff}{}", text.replace('\n', "\r\n")), 0)] {
        let file = crate::File::new(&text);
        assert_eq!(forebay(&["check", file.path.to_str().expect("UTF-8")]).code, Some(code));
    }
    let file = crate::File::new("");
    let bytes: Vec<u8> = [0xff, 0xfe].into_iter().chain(text.encode_utf16().flat_map(u16::to_le_bytes)).collect();
    std::fs::write(&file.path, bytes).expect("a writable folder");
    let done = forebay(&["check", file.path.to_str().expect("UTF-8")]);
    assert!(done.code == Some(2) && done.err.contains("UTF-16"), "{}", done.err);
}
