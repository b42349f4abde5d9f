//! Packets with an authentication header: if a function changes a byte that its integrity check covers, the receiver
//! drops the packet (RFC 4302 section 3.3.3).
//!
//! Hop limit, traffic class and the IPv4 header's checksum are mutable and are not covered.

use super::*;

/// Functions that change covered bytes, and the place that documents it.
const CHANGES: &[(&str, &str)] = &[
    // `aes_gcm_decrypt` restores the bytes.
    ("aes_gcm_encrypt", "docs/encryption.md"),
    ("ip_swap", "the help of ip_swap"),
    ("static_nat", "the help of static_nat (RFC 3715 section 2.1)"),
];

/// Returns the header: 24 bytes, of which 12 are the check value.
fn authentication(next: u8) -> [u8; 24] {
    let mut header = [0x5a; 24];
    (header[0], header[1], header[2], header[3]) = (next, 4, 0, 0);
    header
}

/// Returns IPv6 packets with the header before TCP or UDP, also between options, and an IPv4 packet.
fn packets(protocol: u8) -> Vec<Vec<u8>> {
    let all = rows(protocol);
    let plain = &all.iter().find(|row| row.name == "no extension header").expect("a row").frame;
    let segment = &plain[54..];
    let options = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
    let tagged = &all.iter().find(|row| row.name == "a tag of type 0x9100").expect("a row").frame;
    let mut v4 = [&tagged[..12], &tagged[16..38], &authentication(protocol), &tagged[38..]].concat();
    v4[23] = 51;
    v4[17] += 24;
    frames::sum_ipv4(&mut v4);
    vec![
        frames::ipv6(51, &[&authentication(protocol), segment].concat()),
        frames::ipv6(60, &[&options(51)[..], &authentication(60), &options(protocol), segment].concat()),
        v4,
    ]
}

/// Returns the part of a packet that the check covers: from its addresses on.
fn covered(frame: &[u8]) -> &[u8] {
    &frame[if frame[12] == 0x86 { 14 + 8 } else { 14 + 12 }..]
}

#[test]
fn bytes_that_an_authentication_header_covers_are_not_changed() {
    let mut changes = BTreeSet::new();
    for case in others::cases() {
        for frame in [packets(TCP), packets(UDP)].concat() {
            let (outcome, after) = Bench::of(find(case.name), &case.params, &case.states).run(&frame);
            let is_forwarded = outcome.parse::<u16>().is_ok();
            // An encrypted packet in a tunnel cannot be compared; it is complete.
            if is_forwarded && case.name != "esp_encrypt" {
                let covered = covered(&frame);
                if !after.windows(covered.len()).any(|bytes| bytes == covered) {
                    changes.insert(case.name);
                }
            }
        }
    }
    assert_eq!(changes, CHANGES.iter().map(|(name, _)| *name).collect());
}

/// Both ends of an encrypted path together restore the packet, so that its check value is correct at the receiver.
#[test]
fn encryption_of_an_authenticated_datagram_is_undone_by_decryption() {
    let params = json!({ "keys": [{ "id": 1, "key": "000102030405060708090a0b0c0d0e0f" }], "others": "pass" });
    let run = |name: &str, frame: &[u8]| Bench::of(find(name), &params, &json!({})).run(frame);
    for frame in packets(UDP) {
        let (gate, sent) = run("aes_gcm_encrypt", &frame);
        assert_eq!(gate, "0");
        let hidden = !sent.windows(4).any(|bytes| bytes == b"evil");
        // In IPv4 the authentication header is the protocol above IP, which is then not UDP.
        assert_eq!(hidden, frame[12] == 0x86);
        assert_eq!(run("aes_gcm_decrypt", &sent), ("0".to_owned(), frame));
    }
}
