//! Functions that choose by a session's key: bytes that a packet hides are not part of any key.
//!
//! A packet that hides its ports has the key of its addresses and first next header. A sender cannot spread hidden
//! packets over many keys, and packets of one session stay together.

use super::*;

/// Returns functions that choose by session, with parameters under which a packet's gate reveals its key.
pub fn keyed() -> Vec<(&'static str, Value)> {
    // The bucket has room for few packets, and does not fill again, because no time passes.
    let once = json!({ "cir": "1kbps", "cbs": "1B", "ebs": "240B" });
    vec![
        ("hash_split", json!({ "gates": 16_384 })),
        ("weighted_split", json!({ "weights": vec![1; 1_000] })),
        ("meter", json!({ "srtcm": once, "key": "session", "capacity": 16, "layer": "frame" })),
        (
            "shaper",
            json!({ "rate": "1kbps", "burst": "240B", "key": "session", "capacity": 16, "queue": 1, "layer": "frame" }),
        ),
    ]
}

/// Sends copies of the first packet until they use up the limit of their key, and then the second packet. Returns the
/// outcome of the second packet.
fn outcome_of_second(name: &str, params: &Value, [first, second]: [&[u8]; 2]) -> String {
    let mut bench = Bench::of(find(name), params, &json!({}));
    for _ in 0..10 {
        bench.run(first);
    }
    bench.run(second).0
}

/// Returns true if two packets have the same key: the second has the outcome of a copy of the first.
fn share_a_key(name: &str, params: &Value, frames: [&[u8]; 2]) -> bool {
    outcome_of_second(name, params, frames) == outcome_of_second(name, params, [frames[0], frames[0]])
}

/// Returns a frame with changed bytes from `from` on, counted from the start of IP.
fn changed(frame: &[u8], network: usize, from: usize) -> Vec<u8> {
    let mut changed = frame.to_vec();
    changed.iter_mut().skip(network + from).for_each(|byte| *byte ^= 0x55);
    changed
}

#[test]
fn hidden_bytes_are_in_no_key() {
    for (name, params) in keyed() {
        for Row { name: row, shows, frame } in rows(TCP) {
            // The offset after which no bytes are read as a header.
            let (network, from) = match row {
                "no extension header" => (14, 44),
                "8 extension headers" => (14, 40 + 8 * 8 + 4),
                "9 extension headers" => (14, 40 + 9 * 8),
                "16 extension headers" => (14, 40 + 16 * 8),
                "a first fragment, IPv6" | "a later fragment, IPv6" => (14, 48),
                "a tag of type 0x9100" => (18, 24),
                "a third tag" => (26, 24),
                "tags of types 0x9200, 0x88a8" => (22, 44),
                "a fifth tag" => (34, 0),
                "a truncated header, IPv6" | "an extension header that is cut short" => (14, 42),
                "no next header" | "an experimental protocol" => (14, 40),
                "mobility, HIP and Shim6 headers" => (14, 40 + 3 * 8 + 4),
                "a mobility message" => (14, 42),
                _ => (14, 20),
            };
            let other = changed(&frame, network, from);
            let shared = share_a_key(name, &params, [&frame, &other]);
            assert!(shared, "{name}: {row}, which shows {shows:?}");
        }
    }
}

/// Addresses are in the key of every row that shows them. Without this, the test above would prove nothing.
#[test]
fn packets_of_other_addresses_have_other_keys() {
    for (name, params) in keyed() {
        for row in rows(TCP).into_iter().filter(|row| row.shows != Shows::HiddenIp) {
            let tags = row.frame[12..].chunks(4).take_while(|tag| matches!(tag[0], 0x81 | 0x88 | 0x91 | 0x92)).count();
            let source = 14 + 4 * tags + if row.is_ipv6() { 23 } else { 15 };
            // Two keys may have the same gate. Three keys with the same gate are unlikely.
            let shared = [0x11, 0x22, 0x33].map(|bits| {
                let mut other = row.frame.clone();
                other[source] ^= bits;
                share_a_key(name, &params, [&row.frame, &other])
            });
            assert!(shared.contains(&false), "{name}: {}", row.name);
        }
    }
}

/// Extension headers and tags do not change the session.
#[test]
fn a_session_has_one_key_behind_any_headers_that_are_searched() {
    for (name, params) in keyed() {
        for ipv6 in [false, true] {
            let whole = |row: &Row| row.shows == Shows::All && !row.is_fragment() && row.is_ipv6() == ipv6;
            let frames: Vec<_> = rows(TCP).into_iter().filter(whole).collect();
            assert!(frames.len() > 1);
            for row in &frames {
                let gate = |frame: &[u8]| Bench::of(find(name), &params, &json!({})).run(frame).0;
                assert_eq!(gate(&row.frame), gate(&frames[0].frame), "{name}: {}", row.name);
            }
        }
    }
}

/// Fragments of one datagram stay together.
#[test]
fn all_fragments_of_a_datagram_have_one_key() {
    for (name, params) in keyed() {
        for family in ["IPv4", "IPv6"] {
            let frames: Vec<_> =
                rows(TCP).into_iter().filter(|row| row.is_fragment() && row.name.ends_with(family)).collect();
            let [first, later] = &frames[..] else { panic!("two fragments of {family}") };
            assert!(share_a_key(name, &params, [&first.frame, &later.frame]), "{name}: {family}");
        }
    }
}
