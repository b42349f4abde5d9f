//! What every function does with packets whose upper-layer header is deep, absent, cut short or hidden.
//!
//! A function that permits or denies by protocol or ports drops what hides them under a reason of its own. Every registered
//! function stands in one of two lists: a new one fails the test until it does.

use std::collections::BTreeSet;

use forebay_functions as _;
use forebay_graph::{Decision, Declaration, Gate, Rig, Setup, Surroundings, functions, states};
use forebay_measure::Frequency;
use serde_json::{Value, json};

const TCP: u8 = 6;

fn ethernet(ether_type: u16, rest: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1][..], &ether_type.to_be_bytes(), rest].concat()
}

/// A segment to port 22.
fn segment() -> Vec<u8> {
    let mut bytes = vec![0; 24];
    bytes[..4].copy_from_slice(&[0x04, 0, 0, 22]);
    (bytes[12], bytes[13]) = (0x50, 0x18);
    bytes[20..].copy_from_slice(b"evil");
    bytes
}

fn ipv6(next: u8, rest: &[u8]) -> Vec<u8> {
    let mut header = [0; 40];
    header[0] = 0x60;
    header[4..6].copy_from_slice(&(rest.len() as u16).to_be_bytes());
    (header[6], header[7], header[8], header[24]) = (next, 64, 0x20, 0x20);
    (header[23], header[39]) = (1, 2);
    ethernet(0x86dd, &[&header[..], rest].concat())
}

fn extensions(count: usize) -> Vec<u8> {
    let option = |next| [next, 0, 1, 4, 0, 0, 0, 0];
    let mut bytes = Vec::new();
    (0..count).for_each(|at| bytes.extend(option(if at + 1 == count { TCP } else { 60 })));
    bytes.extend(segment());
    ipv6(if count == 0 { TCP } else { 60 }, &bytes)
}

fn ipv4(fragment: u16, rest: &[u8]) -> Vec<u8> {
    let mut header = [0; 20];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&(20 + rest.len() as u16).to_be_bytes());
    header[6..8].copy_from_slice(&fragment.to_be_bytes());
    (header[8], header[9]) = (64, TCP);
    header[12..].copy_from_slice(&[10, 0, 0, 1, 192, 0, 2, 1]);
    let words = header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u32>();
    let sum = !((words & 0xffff) + (words >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    ethernet(0x0800, &[&header[..], rest].concat())
}

fn tagged(types: &[u16], frame: &[u8]) -> Vec<u8> {
    let tags: Vec<u8> = types.iter().flat_map(|tpid| [tpid.to_be_bytes(), [0, 5]].concat()).collect();
    [&frame[..12], &tags, &frame[12..]].concat()
}

/// What a packet shows of the segment to port 22.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shows {
    /// All.
    All,
    /// It is a later fragment, or has no next header: no port, and that is known.
    NoPorts,
    /// It hides the protocol or the ports.
    Hidden,
    /// It hides that it is IP.
    HiddenIp,
}

fn rows() -> Vec<(&'static str, Shows, Vec<u8>)> {
    let part = |offset: u16, rest: &[u8]| {
        let header = [&[TCP, 0][..], &offset.to_be_bytes(), &[0, 0, 0, 9]].concat();
        ipv6(44, &[&header, rest].concat())
    };
    let mut short = extensions(0);
    short[18..20].copy_from_slice(&2u16.to_be_bytes());
    let mut options = ipv4(0, &segment());
    options[14] = 0x4f;
    options.truncate(40);
    vec![
        ("no extension header", Shows::All, extensions(0)),
        ("8 extension headers", Shows::All, extensions(8)),
        ("9 extension headers", Shows::Hidden, extensions(9)),
        ("16 extension headers", Shows::Hidden, extensions(16)),
        ("a first fragment, IPv6", Shows::All, part(1, &segment())),
        ("a later fragment, IPv6", Shows::NoPorts, part(9, &segment())),
        ("a first fragment, IPv4", Shows::All, ipv4(0x2000, &segment())),
        ("a later fragment, IPv4", Shows::NoPorts, ipv4(0x2003, &segment())),
        ("a first fragment without ports", Shows::Hidden, ipv4(0x2000, &segment()[..2])),
        ("a truncated header, IPv4", Shows::Hidden, ipv4(0, &segment()[..3])),
        ("a truncated header, IPv6", Shows::Hidden, short),
        ("an extension header that is cut short", Shows::Hidden, ipv6(60, &[TCP, 7, 0, 0, 0, 0, 0, 0])),
        ("options that are cut off", Shows::Hidden, options),
        ("a third tag", Shows::All, tagged(&[0x88a8, 0x8100, 0x8100], &ipv4(0, &segment()))),
        ("a tag of type 0x9100", Shows::All, tagged(&[0x9100], &ipv4(0, &segment()))),
        ("tags of types 0x9200, 0x88a8", Shows::All, tagged(&[0x9200, 0x88a8], &extensions(0))),
        ("a fifth tag", Shows::HiddenIp, tagged(&[0x8100; 5], &ipv4(0, &segment()))),
        ("no next header", Shows::NoPorts, ipv6(59, &[])),
    ]
}

fn built(function: &Declaration, params: &Value) -> Rig {
    let mut all = Surroundings::new(Frequency::new(1e9));
    all.base = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    for state in states() {
        let example: Value = serde_saphyr::from_str(state.example).expect("YAML");
        let state_built = state.build(&example, &mut Setup::new(state.name, &mut all)).expect("the example builds");
        all.state.insert(state.name.to_owned(), state_built);
    }
    let mut setup = Setup::new(function.name, &mut all);
    let built = function.build(params, &mut setup).unwrap_or_else(|error| panic!("{}: {error}", function.name));
    Rig::over(built, setup.finish(), function.creates.len())
}

/// The name of a drop's reason, or the gate's number.
fn outcome(function: &Declaration, gate: Gate) -> String {
    match gate.decision() {
        Decision::Drop(reason) => function.drops[reason].name.to_owned(),
        Decision::Out(gate) => gate.to_string(),
        Decision::Consume(_) => "consumed".to_owned(),
        Decision::Hold => "held".to_owned(),
    }
}

fn any(action: &str, ports: &str) -> [String; 2] {
    ["0.0.0.0/0 0.0.0.0/0", "::/0 ::/0"].map(|nets| format!("@{nets} 0 : 65535 {ports} 0x06/0xff {action}"))
}

/// Functions that permit or deny by protocol or ports: how they are asked to drop what goes to port 22, and what becomes of
/// packets by what they show.
fn filters() -> Vec<(&'static str, Value, fn(&str, Shows) -> &'static str)> {
    vec![
        ("acl", json!({ "rules": any("deny", "22 : 22") }), |_, shows| match shows {
            Shows::All => "denied",
            Shows::NoPorts => "0",
            Shows::Hidden | Shows::HiddenIp => "undecidable",
        }),
        (
            "nids",
            json!({ "rules": ["drop tcp any any -> any 22 (content:\"evil\"; sid:1;)"] }),
            |_, shows| match shows {
                Shows::All => "rule",
                Shows::NoPorts => "0",
                Shows::Hidden | Shows::HiddenIp => "undecidable",
            },
        ),
        (
            "exact_match",
            json!({ "fields": ["tcp.dport"], "rules": [{ "values": [22], "gate": 1 }], "miss": 0 }),
            |row, shows| match shows {
                // Fields are read up to the frame's end; no host takes a segment that its packet's end cuts short.
                Shows::Hidden if row == "a truncated header, IPv6" => "1",
                Shows::All => "1",
                Shows::NoPorts => "0",
                Shows::Hidden | Shows::HiddenIp => "undecidable",
            },
        ),
        ("firewall", json!({ "state": "connections" }), |row, shows| match shows {
            _ if row.contains("fragment, ") => "fragment",
            Shows::HiddenIp => "undecidable",
            Shows::Hidden if row == "a first fragment without ports" => "fragment",
            Shows::Hidden => "undecidable",
            // A segment that opens nothing; a packet of no protocol, which no rule permits.
            Shows::All => "no_session",
            Shows::NoPorts => "denied",
        }),
        (
            "dpi",
            json!({ "patterns": ["\"evil\" class=bad"], "classes": [{ "name": "bad", "gate": "drop" }], "depth": 4 }),
            |row, shows| match shows {
                Shows::All | Shows::HiddenIp => "pattern",
                // All of it is looked at; these have no payload.
                Shows::Hidden if row.contains("9 ext") || row.contains("16 ext") => "pattern",
                _ => "0",
            },
        ),
    ]
}

#[test]
fn what_hides_its_protocol_or_ports_passes_no_filter() {
    for (name, params, expected) in filters() {
        let function = functions().into_iter().find(|function| function.name == name).expect("registered");
        for (row, shows, frame) in rows() {
            let gate = built(function, &params).run(&frame).0;
            assert_eq!(outcome(function, gate), expected(row, shows), "{name}: {row}");
        }
    }
}

/// Where rules ask for addresses alone, they decide, whatever the packet hides above IP.
#[test]
fn a_list_of_addresses_alone_decides() {
    let function = functions().into_iter().find(|function| function.name == "acl").expect("registered");
    let rules = [
        "@2000::/16 ::/0 0 : 65535 0 : 65535 0x00/0x00 deny",
        "@10.0.0.0/8 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00 deny",
    ];
    for (row, shows, frame) in rows() {
        let gate = built(function, &json!({ "rules": rules })).run(&frame).0;
        let expected = if shows == Shows::HiddenIp { "undecidable" } else { "denied" };
        assert_eq!(outcome(function, gate), expected, "{row}");
    }
}

/// Functions that neither permit nor deny by protocol or ports, or that have tests of their own, and why.
const OTHERS: &[(&str, &str)] = &[
    ("aes_gcm_decrypt", "takes UDP alone: what hides its protocol is `not_udp` or `bad_length`"),
    ("aes_gcm_encrypt", "takes UDP alone: what hides its protocol is `not_udp` or `bad_length`"),
    ("balance", "no filter: what is not for a service leaves as `others` says, and a cut header is `malformed`"),
    ("balance_back", "no filter: what is from no session leaves as `others` says, and a cut header is `malformed`"),
    ("bypass", "looks at nothing above Ethernet and its tags"),
    ("copy", "looks at nothing above Ethernet and its tags"),
    ("counter", "looks at nothing above Ethernet and its tags"),
    ("esp_decrypt", "takes ESP alone: what hides its protocol is `not_esp` or `bad_length`"),
    ("esp_encrypt", "selects by address"),
    ("ether_split", "looks at nothing above Ethernet and its tags"),
    ("gtpu_decap", "takes UDP to one port alone: what hides its protocol is dropped as `not_gtpu` or `bad_length`"),
    ("gtpu_encap", "selects by address or metadata"),
    ("hash_split", "a key: what hides its ports has that of its addresses and the first next header"),
    ("icmp_error", "tells of nothing that hides its protocol: `not_told`"),
    ("interface_in", "addresses decide; a message that hides its type is no neighbour discovery"),
    ("interface_out", "addresses decide"),
    ("ip_checksum", "reads the IP header alone"),
    ("ip_lookup", "addresses decide"),
    ("ip_swap", "swaps ports where it finds them"),
    ("ip_validate", "reads the IP header alone"),
    ("mac_rewrite", "looks at nothing above Ethernet and its tags"),
    ("mac_swap", "looks at nothing above Ethernet and its tags"),
    ("mac_table", "looks at nothing above Ethernet and its tags"),
    ("meter", "a key: what hides its ports has that of its addresses and the first next header"),
    ("mss_clamp", "changes the option where it finds a SYN; what hides its protocol goes on as it is"),
    ("mtu", "reads lengths; ports are not looked at"),
    ("nat_in", "translates IPv4 alone: a cut header is `protocol`, and IP that tags hide is `undecidable`"),
    ("nat_out", "translates IPv4 alone: a cut header is `protocol`, and IP that tags hide is `undecidable`"),
    ("punt", "addresses decide; of multicast that hides its ICMPv6 type nothing is the host's"),
    ("random_split", "looks at nothing above Ethernet and its tags"),
    ("reassemble", "puts fragments together; what hides a fragment header goes on as it is"),
    ("shaper", "a key: what hides its ports has that of its addresses and the first next header"),
    ("static_nat", "translates addresses; ports are not looked at"),
    ("tap", "looks at nothing above Ethernet and its tags"),
    ("ttl", "reads the IP header alone"),
    ("vlan_pop", "looks at nothing above Ethernet and its tags"),
    ("vlan_push", "looks at nothing above Ethernet and its tags"),
    ("vlan_split", "looks at nothing above Ethernet and its tags"),
    ("vxlan_decap", "takes UDP to one port alone: what hides its protocol is dropped"),
    ("vxlan_encap", "ports are one of the inputs of the source port; what hides them has that of its addresses"),
    ("weighted_split", "looks at nothing above Ethernet and its tags"),
    ("upf_uplink", "needs sessions: `pdu_sessions/tests.rs`"),
    ("upf_downlink", "needs sessions: `pdu_sessions/tests.rs`"),
];

#[test]
fn every_function_is_in_one_of_the_two_lists() {
    let filters: BTreeSet<_> = filters().iter().map(|(name, ..)| *name).collect();
    let others: BTreeSet<_> = OTHERS.iter().map(|(name, _)| *name).collect();
    let all: BTreeSet<_> = functions().iter().map(|function| function.name).collect();
    assert!(filters.is_disjoint(&others), "a function is in both lists");
    let listed: BTreeSet<_> = filters.union(&others).copied().collect();
    let unlisted: Vec<_> = all.symmetric_difference(&listed).collect();
    assert!(unlisted.is_empty(), "functions that are in no list, or listed and gone: {unlisted:?}");
}
