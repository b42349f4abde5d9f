use etherparse::PacketBuilder;
use forebay_graph::{Decision, Rig};
use forebay_packet::Batch;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::pattern::Pattern;
use super::set::{Entry, Set};
use super::*;

fn udp(payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([10, 0, 0, 1], [192, 0, 2, 1], 64).udp(1_000, 53);
    builder.write(&mut frame, payload).expect("memory");
    frame
}

fn tcp(payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([1; 16], [2; 16], 64).tcp(1_000, 80, 1, 2);
    builder.write(&mut frame, payload).expect("memory");
    frame
}

fn rig(params: &Value) -> Rig {
    Rig::of::<Dpi>(params).unwrap_or_else(|error| panic!("{error}"))
}

fn classes() -> Value {
    json!([
        { "name": "bad", "gate": "drop" }, { "name": "video", "gate": "video" }, { "name": "seen", "gate": "clean" },
    ])
}

/// Runs a frame and returns the name of its gate.
fn gate(rig: &mut Rig, frame: &[u8]) -> String {
    let (gate, after) = rig.run(frame);
    assert_eq!(after, frame, "packets do not change");
    match gate.decision() {
        Decision::Out(number) => rig.declared.gates[number].clone(),
        Decision::Drop(reason) => DROPS[reason].name.to_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_strongest_class_decides_and_the_first_pattern_of_it_is_counted() {
    let mut rig = rig(&json!({ "classes": classes(), "patterns": [
        "\"EVIL\" class=bad nocase", "\"watch\" class=video", "\"/watch?v\" class=video", "\"GET \" class=seen",
        "\"get /evil\" class=video nocase", "\"x|00|y\" class=bad"
    ] }));
    for make in [udp, tcp] {
        assert_eq!(gate(&mut rig, &make(b"nothing of it")), "clean");
        assert_eq!(gate(&mut rig, &make(b"GET / HTTP/1.1")), "clean");
        assert_eq!(gate(&mut rig, &make(b"GET /watch?v=1")), "video");
        assert_eq!(gate(&mut rig, &make(b"GET /watch?v=1 Evil")), "pattern");
        assert_eq!(gate(&mut rig, &make(b"x\0y")), "pattern");
        assert_eq!(gate(&mut rig, &make(b"WATCH")), "clean", "this pattern is case-sensitive");
    }
    assert_eq!(gate(&mut rig, &[7; 60]), "clean");
    let counts = rig.counters("payloads");
    let expected = [("bad", 4), ("clean", 4), ("seen", 2), ("unseen", 1), ("video", 2)];
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), expected);
    let (_, matches) = rig.declared.tables.iter().find(|(name, _)| name == "matches").expect("a table");
    let lines = matches.entries(None, 9).expect("all");
    let expected = [
        "2 \"EVIL\" nocase class=bad",
        "2 \"GET \" case class=seen",
        "2 \"watch\" case class=video",
        "2 \"x\\x00y\" case class=bad",
    ];
    assert_eq!(lines, expected, "/watch?v contains watch and never decides");
    assert_eq!(rig.counters("patterns")["shadowed"], 2);
}

#[test]
fn only_payload_is_inspected_up_to_the_depth() {
    let mut first = rig(&json!({ "patterns": ["ab"], "depth": 4 }));
    assert_eq!(gate(&mut first, &udp(b"..ab")), "match");
    assert_eq!(gate(&mut first, &udp(b"...ab")), "clean");
    let mut frame = udp(b"....");
    frame.extend(b"ab");
    let mut all = rig(&json!({ "patterns": ["ab"] }));
    assert_eq!(gate(&mut all, &frame), "clean", "padding is not payload");
    // The bytes of the ports do not belong to the payload.
    let mut ports = rig(&json!({ "patterns": ["|03 e8|"] }));
    assert_eq!(gate(&mut ports, &udp(b"x")), "clean");
    assert_eq!(gate(&mut ports, &udp(b"\x03\xe8")), "match");
}

#[test]
fn fragments_are_scanned_passed_or_dropped() {
    let mut later = udp(b"an evil one");
    later[20..22].copy_from_slice(&5u16.to_be_bytes());
    for (policy, expected, counted) in
        [("scan", "match", "match"), ("pass", "clean", "unseen"), ("drop", "fragment", "unseen")]
    {
        let mut rig = rig(&json!({ "patterns": ["evil"], "fragments": policy }));
        assert_eq!(gate(&mut rig, &later), expected);
        assert_eq!(rig.counters("payloads")[counted], 1);
    }
}

#[test]
fn patterns_come_and_go_while_packets_run() {
    let mut rig = rig(&json!({ "classes": classes(), "patterns": ["one"], "capacity": 3 }));
    let tables = std::mem::take(&mut rig.declared.tables);
    let table = &tables.iter().find(|(name, _)| name == "patterns").expect("a table").1;
    assert_eq!(gate(&mut rig, &udp(b"one two")), "pattern");
    let outcome =
        table.apply(&["remove one", "add \"two\" class=video", "add two", "remove three", "add \"x\" class=no"]);
    assert_eq!(outcome.made, 2);
    let refused: Vec<_> = outcome.refused.iter().map(ToString::to_string).collect();
    let expected = [
        "change 3: \"two\" case exists already: use 'replace'",
        "change 4: there is no pattern \"three\" case: `forebay show table NAME` lists the patterns, with case or \
         nocase",
        "change 5: there is no class 'no': there are bad, video, seen",
    ];
    assert_eq!(refused, expected);
    assert_eq!(gate(&mut rig, &udp(b"one two")), "video");
    assert_eq!(table.apply(&["replace \"two\" class=seen"]).made, 1);
    assert_eq!(gate(&mut rig, &udp(b"one two")), "clean");
    let outcome = table.apply(&["add a", "add b", "add c"]);
    assert_eq!((outcome.made, outcome.refused[0].change), (2, 2));
    assert!(outcome.refused[0].message.contains("'capacity' allows 3"), "{}", outcome.refused[0]);
    assert_eq!(table.entries(None, 2).expect("all"), ["\"a\" case class=bad", "\"b\" case class=bad"]);
    assert_eq!(table.entries(Some("\"b\" case class=bad"), 2).expect("rest"), ["\"two\" case class=seen"]);
}

#[test]
fn invalid_parameters_are_refused() {
    for (params, expected) in [
        (json!({ "patterns": ["a", "", "|0"] }), "patterns[2]: a '|' has no closing '|'"),
        (json!({ "patterns": ["a", "\"b\" class=c"] }), "patterns[1]: there is no class 'c': there is match"),
        (json!({ "patterns": "no/such/file" }), "patterns: no/such/file: "),
        (json!({ "patterns": [], "depth": 0 }), "depth: 0: allowed are 1 to 65535"),
        (json!({ "patterns": ["a", "b"], "capacity": 1 }), "patterns: 2 patterns: 'capacity' allows 1"),
        (json!({ "patterns": [], "classes": [] }), "classes: 0 classes: allowed are 1 to 64"),
        (json!({ "patterns": [], "classes": [{ "name": "clean", "gate": "x" }] }), "classes[0].name: 'clean': allowed"),
        (
            json!({ "patterns": [], "classes": [{ "name": "a", "gate": "x" }, { "name": "a", "gate": "y" }] }),
            "classes[1].name: two classes have the name 'a'",
        ),
        (json!({ "patterns": 3 }), "patterns: '3' is not allowed: allowed is a file's name or a list of patterns"),
    ] {
        let error = Rig::of::<Dpi>(&params).err().expect("refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn branches_are_inspected_by_their_own_patterns() {
    let mut rig = Rig::folded::<Dpi>(&[
        json!({ "patterns": ["one"], "classes": [{ "name": "a", "gate": "drop" }] }),
        json!({ "patterns": ["two"], "classes": [{ "name": "b", "gate": "drop" }] }),
    ])
    .expect("it folds");
    let mut batch = Batch::with_capacity(4);
    for (flow, payload) in [(0, b"one"), (1, b"one"), (0, b"two"), (1, b"two")] {
        let mut packet = rig.packet(&udp(payload));
        packet.set_flow(flow);
        batch.push(packet).expect("room");
    }
    let [clean, drop] = [Some(Gate::FIRST), Some(PATTERN)];
    assert_eq!(rig.process(&mut batch), [drop, clean, clean, drop]);
}

/// Patterns that differ only in case are compared one by one, so their number is limited.
#[test]
fn too_many_variants_of_one_word_are_refused() {
    let variants = (0..200u32).map(|n| (0..8).map(|at| if n >> at & 1 == 1 { 'A' } else { 'a' }).collect::<String>());
    let patterns: Vec<String> = variants.chain(["z".to_owned()]).map(|text| format!("\"{text}\"")).collect();
    let mixed: Vec<String> = patterns.iter().cloned().chain(["\"other\" nocase".to_owned()]).collect();
    assert!(Rig::of::<Dpi>(&json!({ "patterns": patterns })).is_ok(), "case-sensitive patterns are all different");
    let error = Rig::of::<Dpi>(&json!({ "patterns": mixed })).err().expect("refused").to_string();
    assert!(error.contains("200 patterns match the end of") && error.contains("write nocase"), "{error}");
}

/// The variants are not compared with each other. That would take billions of comparisons before they are refused.
#[test]
fn thousands_of_variants_of_one_word_are_refused_without_comparing_them() {
    let variant = |n: u32| (0..16).map(|at| if n >> at & 1 == 1 { b'A' + at } else { b'a' + at }).collect();
    let entry = |bytes: Vec<u8>, nocase: bool, slot: u32| Entry {
        pattern: Pattern { bytes, nocase, name: None, class: None },
        class: 0,
        slot,
    };
    let mut entries: Vec<Entry> = (0..1 << 16).map(|n| entry(variant(n), false, n)).collect();
    // A case-insensitive pattern makes the search ignore the case of all strings.
    entries.push(entry(b"other".to_vec(), true, 1 << 16));
    let error = Set::new(&entries).expect_err("too many").to_string();
    assert!(error.starts_with("65536 patterns match the end of"), "{error}");
    // A case-insensitive variant shadows all the others.
    entries.push(entry(variant(0), true, 1 + (1 << 16)));
    assert_eq!(Set::new(&entries).expect("two patterns remain").shadowed, 1 << 16);
}

/// The verdict as the module's documentation defines it, found by trying every pattern at every position.
fn naive(entries: &[Entry], payload: &[u8]) -> Option<(u16, u32)> {
    let mut best: Option<(u16, usize, usize, bool, u32)> = None;
    for Entry { pattern, class, slot } in entries {
        let length = pattern.bytes.len();
        for (at, window) in payload.windows(length).enumerate() {
            let same = |one: &u8, other: &u8| match pattern.nocase {
                true => one.eq_ignore_ascii_case(other),
                false => one == other,
            };
            if window.iter().zip(&pattern.bytes).all(|(one, other)| same(one, other)) {
                let found = (*class, at + length, length, !pattern.nocase, *slot);
                best = Some(best.map_or(found, |best| best.min(found)));
            }
        }
    }
    best.map(|(class, .., slot)| (class, slot))
}

fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![6 => prop::sample::select(b"abAB".to_vec()), 1 => prop::sample::select(b"\0\xff{[".to_vec())]
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    vec((vec(byte(), 1..6), any::<bool>(), 0u16..4), 0..25).prop_map(|drawn| {
        let mut known = std::collections::BTreeSet::new();
        let mut entries = Vec::new();
        for (bytes, nocase, class) in drawn {
            let nocase = nocase || !bytes.iter().any(u8::is_ascii_alphabetic);
            let pattern = Pattern { bytes, nocase, name: None, class: None };
            if known.insert(pattern.key()) {
                entries.push(Entry { pattern, class, slot: entries.len() as u32 });
            }
        }
        entries
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]
    #[test]
    fn verdicts_are_those_of_a_naive_search(entries in entries(), payloads in vec(vec(byte(), 0..30), 1..9)) {
        let set = Set::new(&entries).expect("few");
        let mut verdicts = vec![Verdict::CLEAN; payloads.len()];
        set.judge(|at| &payloads[at], &mut verdicts);
        for (payload, verdict) in payloads.iter().zip(verdicts) {
            let found = (verdict.class != Verdict::CLEAN.class).then_some((verdict.class, verdict.slot));
            prop_assert_eq!(found, naive(&entries, payload), "{:?}", payload);
        }
    }

    #[test]
    fn a_pattern_in_a_packet_is_found(
        before in vec(any::<u8>(), 0..900),
        after in vec(any::<u8>(), 0..400),
        over_tcp: bool,
    ) {
        let mut rig = rig(&json!({ "patterns": ["needle in a haystack"] }));
        let payload = [&before[..], b"needle in a haystack", &after].concat();
        prop_assert_eq!(gate(&mut rig, &if over_tcp { tcp(&payload) } else { udp(&payload) }), "match");
    }
}

/// After random changes, a table finds the same as a table that is built from the remaining patterns.
#[test]
fn a_changed_table_equals_a_new_one() {
    let mut runner = proptest::test_runner::TestRunner::default();
    let changes = vec((0usize..3, vec(byte(), 1..4), any::<bool>(), 0usize..3), 1..30);
    runner
        .run(&(changes, vec(byte(), 0..20)), |(changes, payload)| {
            let mut rig = rig(&json!({ "patterns": [], "classes": classes() }));
            let tables = std::mem::take(&mut rig.declared.tables);
            let table = &tables.iter().find(|(name, _)| name == "patterns").expect("a table").1;
            let lines = changes.into_iter().map(|(verb, bytes, nocase, class)| {
                let nocase = nocase || !bytes.iter().any(u8::is_ascii_alphabetic);
                let class = Some(["bad", "video", "seen"][class].to_owned());
                format!("{} {}", ["add", "remove", "replace"][verb], Pattern { bytes, nocase, name: None, class })
            });
            let lines: Vec<String> = lines.collect();
            for batch in lines.chunks(4) {
                table.apply(&batch.iter().map(String::as_str).collect::<Vec<_>>());
            }
            let mut rebuilt =
                self::rig(&json!({ "patterns": table.entries(None, 99).expect("all"), "classes": classes() }));
            prop_assert_eq!(gate(&mut rig, &udp(&payload)), gate(&mut rebuilt, &udp(&payload)));
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
}
