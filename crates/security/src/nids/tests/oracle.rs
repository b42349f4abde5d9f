//! Tests of rules against the naive matcher, on generated packets and on captured packets.

use super::*;

/// Generates rules as text. They have much in common with the generated packets.
fn rule_text() -> impl Strategy<Value = String> {
    let letters = || {
        vec(prop::sample::select(b"abAB".to_vec()), 1..4).prop_map(|bytes| String::from_utf8(bytes).expect("letters"))
    };
    let position = prop_oneof![
        3 => Just(String::new()),
        2 => (0u32..6, 3u32..8).prop_map(|(offset, depth)| format!(" offset:{offset}; depth:{depth};")),
        1 => (0u32..6).prop_map(|offset| format!(" offset:{offset};")),
        2 => (-4i32..5).prop_map(|distance| format!(" distance:{distance};")),
        2 => (-4i32..5, 3u32..9).prop_map(|(distance, within)| format!(" distance:{distance}; within:{within};")),
        1 => (3u32..9).prop_map(|within| format!(" within:{within};")),
    ];
    let content =
        (prop::bool::weighted(0.25), letters(), any::<bool>(), position).prop_map(|(not, text, nocase, position)| {
            format!(
                "content:{}\"{text}\";{}{position} ",
                if not { "!" } else { "" },
                if nocase { " nocase;" } else { "" }
            )
        });
    let header = prop::sample::select(vec![
        "tcp any any -> any any",
        "tcp any any -> any 80",
        "tcp any 80 -> any any",
        "tcp any any <> any [80,90:92]",
        "tcp any !80 -> any any",
        "udp any any -> any [53,80]",
        "udp 10.0.0.0/31 any -> any any",
        "udp ![10.0.0.1] any <> any !53",
        "udp any 53 -> 192.0.2.0/24 any",
        "ip any any -> any any",
        "ip [10.0.0.0/8,!10.0.0.2] any -> any any",
        "icmp any any -> any any",
        "udp any :80 -> any 80:",
    ]);
    let other = prop::sample::select(vec![
        "",
        "",
        "",
        "dsize:>4; ",
        "dsize:2<>9; ",
        "ttl:<10; ",
        "pcre:\"/a+b/\"; ",
        "pcre:!\"/^b.a/is\"; ",
        "ip_proto:!6; ",
        "sameip; ",
    ]);
    let action = prop::sample::select(vec!["alert", "alert", "log"]);
    (action, header, vec(content, 0..4), other).prop_map(|(action, header, contents, other)| {
        // No option is relative to a negated content, and expressions come last.
        format!("{action} {header} ({}{other}", contents.concat())
    })
}

fn frame() -> impl Strategy<Value = Vec<u8>> {
    let payload = vec(prop_oneof![8 => prop::sample::select(b"abAB".to_vec()), 1 => Just(b'\n')], 0..24);
    let port = || prop::sample::select(vec![53u16, 80, 91, 1_000]);
    (payload, port(), port(), 0u8..4, 0u8..6).prop_map(|(payload, from, to, choice, source)| match choice {
        0 => tcp(&payload, from, to, 0x18),
        1 => ping(&payload),
        2 => {
            let mut later = udp(&payload, source, from, to);
            later[20..22].copy_from_slice(&3u16.to_be_bytes());
            later
        }
        _ => udp(&payload, source, from, to),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]
    #[test]
    fn rules_match_like_the_naive_matcher(texts in vec(rule_text(), 1..25), frames in vec(frame(), 1..20)) {
        let texts: Vec<String> = texts.into_iter().zip(1..).map(|(text, sid)| format!("{text}sid:{sid};)")).collect();
        let rules = read(&texts.join("\n")).unwrap_or_else(|error| panic!("{error}")).rules;
        let mut rig = Rig::of::<Nids>(&json!({ "rules": texts })).unwrap_or_else(|error| panic!("{error}"));
        let mut batch = Batch::with_capacity(frames.len());
        let mut expected = vec![0u64; rules.len()];
        for frame in &frames {
            batch.push(rig.packet(frame)).expect("room");
            let plain = naive::read(frame).expect("IP");
            for (rule, count) in rules.iter().zip(&mut expected) {
                *count += u64::from(naive::matches(rule, &plain));
            }
        }
        rig.process(&mut batch);
        let mut counts = vec![0u64; rules.len()];
        for line in matched(&rig) {
            let words: Vec<u64> = line.split(' ').take(2).map(|word| word.parse().expect("a number")).collect();
            counts[words[1] as usize - 1] = words[0];
        }
        prop_assert_eq!(counts, expected);
    }
}

/// Regression: contents that may each follow every position of the content before took exponential time.
#[test]
fn contents_in_sequence_do_not_take_exponential_time() {
    let options = format!("content:\"a\"; {}", "content:\"a\"; distance:0; ".repeat(62)) + "content:\"b\"; distance:0;";
    let rule = format!("alert udp any any -> any any ({options} sid:1;)");
    let mut rig = rig(&[&rule]);
    rig.run(&udp(&[b'a'; 1_400], 1, 2, 3));
    assert_eq!(matched(&rig), [""; 0]);
    rig.run(&udp(&[&[b'a'; 1_399][..], b"b"].concat(), 1, 2, 3));
    assert_eq!(matched(&rig), ["1 1 rule 1"]);
}

const CAPTURED: &str = include_str!("../testing/captured.rules");

/// Each rule has as many matches in real captures as the naive matcher finds.
#[test]
fn rules_match_in_captures_like_the_naive_matcher() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/pcap");
    let rules = read(CAPTURED).unwrap_or_else(|error| panic!("{error}")).rules;
    let texts: Vec<&str> = CAPTURED.lines().collect();
    let mut all = 0;
    for name in ["web.pcap", "many-flows.pcap", "rtp.pcap", "modbus.pcap", "echo-connections.pcap.gz"] {
        let path = folder.join(name);
        if !path.exists() {
            skip(&format!("{name} is not in ../shared/data/pcap"));
            continue;
        }
        let mut rig = Rig::of::<Nids>(&json!({ "rules": texts })).unwrap_or_else(|error| panic!("{error}"));
        let mut expected = vec![0u64; rules.len()];
        let mut batch = Batch::with_capacity(256);
        let bytes = std::fs::read(&path).expect("a readable file");
        let (mut frames, fault) = forebay_ports::pcap::read_memory(&bytes);
        assert!(fault.is_none() && !frames.is_empty(), "{name} is a capture");
        // A part of the largest capture is enough.
        frames.truncate(20_000);
        for chunk in frames.chunks(256) {
            batch.drain_each(|_, packet| drop(packet));
            for (_, frame) in chunk.iter().filter(|(_, frame)| frame.len() <= 1_900) {
                batch.push(rig.packet(frame)).expect("room");
                let Some(plain) = naive::read(frame) else { continue };
                for (rule, count) in rules.iter().zip(&mut expected) {
                    *count += u64::from(naive::matches(rule, &plain));
                }
            }
            rig.process(&mut batch);
        }
        let expected: std::collections::BTreeMap<u64, u64> =
            rules.iter().map(|rule| u64::from(rule.sid)).zip(expected).filter(|(_, count)| *count > 0).collect();
        let counts: std::collections::BTreeMap<u64, u64> = matched(&rig)
            .iter()
            .map(|line| {
                let words: Vec<u64> = line.split(' ').take(2).map(|word| word.parse().expect("a number")).collect();
                (words[1], words[0])
            })
            .collect();
        assert_eq!(counts, expected, "{name}");
        all += counts.values().sum::<u64>();
    }
    assert!(all > 100 || !folder.exists(), "{all} matches: too few for a meaningful test");
}
