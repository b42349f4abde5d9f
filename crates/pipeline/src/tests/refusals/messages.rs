//! Tests the messages for values that are nearly right.

use super::refused;

/// Regression: the largest numbers were out of ranges that end with them, because they were compared as floating-point
/// numbers.
#[test]
fn the_largest_whole_number_is_allowed() {
    let with = |seed: &str| {
        format!("seed: {seed}\nports: {{ in: {{ generator: {{}} }}, out: {{ sink: }} }}\npipeline: [in -> out]\n")
    };
    assert!(super::load(&with("18446744073709551615")).is_ok());
    let error = refused(&with("18446744073709551616"));
    assert!(error.contains("seed: '1.8446744073709552e+19' is out of range"), "{error}");
    let chunks = with("1").replace("seed: 1", "pool: { chunks: 100g }");
    let error = refused(&chunks);
    assert!(error.contains("digits alone, from 1 to 16777216"), "{error}");
}

/// Regression: messages did not name the allowed numbers and lists. The ranges were those of a Rust type, or missing.
#[test]
fn messages_name_allowed_numbers_and_lists() {
    insta::assert_snapshot!(refused("
ports: { in: { generator: { queue: -1, burst: 1e3 } }, out: { sink: } }
state:
  a: { nat: { pool: 192.0.2.0/28, sessions: 99999999999999999999999 } }
  b: { connections: { sessions: 100k } }
  c: { connections: { sessions: many } }
  d: { connections: { sessions: -1 } }
modules:
  nat: { nat_out: }
  ids: { nids: { rules: [], trackers: 1.5, alerts: { file: x, rate: 99999999999999999999 } } }
  split: { test_split: { gates: x } }
pipeline: in -> nat -> out
"), @"
        test.yaml:1: ports.in.generator.queue: '-1' is out of range: allowed is a whole number from 1 to 1048576
        test.yaml:3: state.a.nat.sessions: '1e+23' is out of range: allowed is a whole number from 1 to 268435456
        test.yaml:4: state.b.connections.sessions: '100k' is not a whole number: allowed are digits alone, such as \
            100000, from 1 to 268435456
        test.yaml:5: state.c.connections.sessions: 'many' is not a whole number: allowed are digits alone, from 1 to \
            268435456
        test.yaml:6: state.d.connections.sessions: '-1' is out of range: allowed is a whole number from 1 to 268435456
        test.yaml:8: modules.nat.nat_out: `state` is missing (The name of a state `nat`)
        test.yaml:9: modules.ids.nids.trackers: '1.5' is not a whole number from 1 to 4194304
        test.yaml:9: modules.ids.nids.alerts.rate: '1e+20' is out of range: allowed is a whole number from 1 to 1000000
        test.yaml:10: modules.split.test_split.gates: 'x' is not a list: write [x]
        test.yaml:11: pipeline: 'in -> nat -> out' is not a list: write [in -> nat -> out]
        ");
}

/// Regression: errors in lists of rules named lines that do not exist.
#[test]
fn elements_of_lists_are_named() {
    insta::assert_snapshot!(refused(r#"
ports: { in: { generator: }, out: { sink: } }
state: { c: { connections: { } } }
modules:
  list:
    acl:
      rules:
        - "@10.0.0.0/8 0.0.0.0/0 0 : 65535 0 : 65535 0x06/0xFF"
        - x
  fw: { firewall: { state: c, rules: ["@10.0.0.0/8 0.0.0.0/0 0 : 65535 0 : 65535 0x06/0xFF", x] } }
  look: { dpi: { patterns: ["abc", "|1", "abc"] } }
  ids:
    nids:
      rules:
        - "alert tcp any any -> any any (sid:1;)"
        - "alert tcp any any -> any any (sid:0;)"
        - "alert tcp any any -> any any (sid:1;)"
pipeline: [in -> list -> fw -> look, "look[clean] -> ids", "look[match] -> drop", ids -> out]
"#), @"
        test.yaml:8: modules.list.acl.rules[1]: 'x' is not a valid action: allowed are permit, deny (or drop) and \
            count; a set begins with 'set', a ClassBench rule with '@', a comment with '#'
        test.yaml:9: modules.fw.firewall.rules[1]: 'x' is not a valid action: allowed are permit, deny (or drop) and \
            count; a set begins with 'set', a ClassBench rule with '@', a comment with '#'
        test.yaml:10: modules.look.dpi.patterns[1]: a '|' has no closing '|': write hexadecimal bytes as |0d 0a|, \
            and the character as \\|
        test.yaml:10: modules.look.dpi.patterns[2]: this pattern is already in patterns[0]: each pattern is allowed \
            once
        test.yaml:15: modules.ids.nids.rules[1]: sid '0': allowed are 1 to 4294967295
        test.yaml:16: modules.ids.nids.rules[2]: sid 1 is already used by the rule in rules[0]: each sid is allowed \
            once per revision
        ");
}

#[test]
fn a_state_of_a_wrong_kind_is_named_with_both_kinds() {
    insta::assert_snapshot!(refused("
ports: { in: { generator: }, out: { sink: } }
state: { c: { connections: { } } }
modules: { o: { nat_out: { state: c } } }
pipeline: [in -> o -> out]
"), @"test.yaml:3: modules.o.nat_out.state: the state 'c' is a 'connections': allowed is a 'nat'");
}

/// Regression: the hint did not say how to name a file, a large number was 'no number', and two limits contradicted
/// each other.
#[test]
fn errors_of_nearly_valid_values_say_what_is_wrong() {
    insta::assert_snapshot!(refused(r#"
ports: { in: { generator: }, out: { sink: } }
state:
  b: {balancer: {places: 4294967291, services: [{address: 192.0.2.10, protocol: udp, backends: [{address: 10.0.0.1}]}]}}
modules:
  seal: { aes_gcm_encrypt: { use: 1, keys: [{ id: 1, key: "@my.key" }] } }
  esp:
    esp_encrypt:
      source: 192.0.2.1
      associations:
        - "0x100 key=000102030405060708090a0b0c0d0e0f10111213 peer=192.0.2.2 hard-packets=99999999999999999999999"
        - "0x101 key=my.key peer=192.0.2.2"
  lb: { balance: { state: b } }
pipeline: [in -> lb -> seal -> esp -> out]
"#), @"
        test.yaml:3: state.b.balancer.places: 4294967291 places: allowed are primes from 3 to 2097152, such as 65537
        test.yaml:5: modules.seal.aes_gcm_encrypt.keys[0].key: byte 1 of the key is not a hexadecimal digit (the key \
            itself is not shown); to read the key from a file, write `file`, as in { id: 1, file: site.key }
        test.yaml:10: modules.esp.esp_encrypt.associations[0]: hard-packets: not a valid number: allowed are whole \
            numbers from 1 to 18446744073709551615
        test.yaml:11: modules.esp.esp_encrypt.associations[1]: byte 1 of the key is not a hexadecimal digit (the key \
            itself is not shown); to read the key from a file, write key=@FILE
        ");
}

/// Regression: the list of the configuration's own ports omitted a port that another setting changed.
#[test]
fn ports_that_settings_touch_are_the_configurations_own() {
    let text = "ports: { in: { generator: }, more: { generator: }, out: { sink: } }\nmodules: { m: { counter: } \
        }\npipeline: [in -> m -> out, more -> drop]\n";
    let source = crate::Source::new(text, "test.yaml", "")
        .set("ports.in.generator.rate=1Mpps")
        .set("ports.inn.generator.rate=1Mpps");
    let error = crate::tests::load_source(&source).err().expect("refused").to_string();
    assert_eq!(
        error,
        "--set ports.inn.generator.rate=1Mpps: the setting makes a new port 'inn', which no line begins with: the \
            configuration's own ports are in, more, out"
    );
}

/// Regression: a misspelt metadata word was accepted, and was always 0.
#[test]
fn metadata_words_that_no_function_uses_are_refused() {
    let with = |word: &str, route: &str| {
        format!(
            "ports: {{ in: {{ generator: }}, out: {{ sink: }} }}
modules:
  route: {{ {route} }}
  whole: {{ reassemble: {{ words: [{word}], held: 64 }} }}
  slow: {{ shaper: {{ rate: 10Mbps, burst: 16KiB, key: {{ word: {word} }}, held: 64 }} }}
pipeline: [in -> route -> whole -> slow -> out]
"
        )
    };
    let writes = "ip_lookup: { routes: [0.0.0.0/0 0], to: word }";
    assert!(super::load(&with("next_hop", writes)).is_ok());
    let error = refused(&with("next_hopp", writes));
    let wrong = "no function uses the metadata word 'next_hopp' (did you mean 'next_hop'?): allowed are ";
    for place in ["test.yaml:4: modules.whole.reassemble.words[0]", "test.yaml:5: modules.slow.shaper.key.word"] {
        assert!(error.contains(&format!("{place}: {wrong}")), "{error}");
    }
    // A module can be measured by itself, without the function that writes its word.
    assert!(super::load(&with("next_hop", "counter: {}")).is_ok());
}

/// Regression: a flow could have an empty name.
#[test]
fn names_of_flows_are_not_empty() {
    let error = refused(
        "ports: { in: { generator: }, out: { sink: } }
modules: { m: { counter: } }
pipeline: [in -> m -> out]
flows: [{ name: '', path: m }]
",
    );
    assert!(error.contains("test.yaml:4: flows[0].name: '' is too short: allowed are texts of at least 1"), "{error}");
}
