//! Runs every registered function over packets whose upper-layer header is deep, missing, cut short or hidden.
//!
//! A function that permits or denies by protocol or ports drops a packet that hides them, with a drop reason of its
//! own. Every registered function is in one of four lists: a new function fails a test until it is listed.

mod authenticated;
mod frames;
mod keys;
mod known;
mod others;

use std::collections::BTreeSet;

use forebay_functions as _;
use forebay_graph::{Decision, Declaration, Gate, Rig, Setup, SetupEnvironment, functions, states};
use forebay_packet::{Batch, Network, Word};
use forebay_units::Frequency;
use serde_json::{Value, json};

use frames::{Row, Shows, TCP, UDP, rows};

/// A function, with the states and words to which its parameters refer.
struct Bench {
    function: &'static Declaration,
    rig: Rig,
    /// The word in which session functions read a packet's tunnel.
    teid: Option<Word>,
}

impl Bench {
    /// Builds a function. A state that its parameters name is built from the parameters that `instead` has for it, or
    /// else from its example.
    fn of(function: &'static Declaration, params: &Value, instead: &Value) -> Self {
        let mut all = SetupEnvironment::new(Frequency::new(1e9));
        all.files.base = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let named =
            |name: &str| params.as_object().is_some_and(|params| params.values().any(|value| refers(value, name)));
        for state in states().into_iter().filter(|state| named(state.name)) {
            let example = || serde_saphyr::from_str(state.example).expect("YAML");
            let params = instead.get(state.name).cloned().unwrap_or_else(example);
            let built = state.build(&params, &mut Setup::new(state.name, &mut all));
            let built = built.unwrap_or_else(|error| panic!("{}: {error}", state.name));
            all.objects.states.insert(state.name.to_owned(), built);
        }
        let mut setup = Setup::new(function.name, &mut all);
        let built = function.build(params, &mut setup).unwrap_or_else(|error| panic!("{}: {error}", function.name));
        let rig = Rig::over(built, setup.finish(), function.creates.len());
        Self { function, rig, teid: all.words.get("teid").copied() }
    }

    /// Returns the outcome of a packet, the name of its drop reason or the number of its gate, and its bytes
    /// afterwards.
    fn run(&mut self, frame: &[u8]) -> (String, Vec<u8>) {
        let mut batch = Batch::with_capacity(1);
        let mut packet = self.rig.packet(frame);
        if let Some(word) = self.teid {
            let teid = if packet.network().0 == Network::Ipv6 { TEID_V6 } else { TEID_V4 };
            packet.set_word(word, teid);
            packet.forget_layers();
        }
        batch.push(packet).expect("an empty batch");
        match self.rig.process(&mut batch)[0] {
            Some(gate) => (outcome(self.function, gate), batch[0].data().to_vec()),
            None => ("held".to_owned(), Vec::new()),
        }
    }
}

/// Returns true if a parameter is a state's name, or a list that contains it.
fn refers(value: &Value, name: &str) -> bool {
    value == name || value.as_array().is_some_and(|list| list.iter().any(|element| element == name))
}

/// The tunnels of the users who send the IPv6 and IPv4 rows.
const TEID_V6: u32 = 1;
const TEID_V4: u32 = 2;

fn find(name: &str) -> &'static Declaration {
    functions().into_iter().find(|function| function.name == name).expect("registered")
}

/// Returns the name of a drop reason, or the gate's number.
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

/// A function's name, its parameters, and the outcome of each row.
type Filter = (&'static str, Value, fn(&str, Shows) -> &'static str);

/// Returns functions that permit or deny by protocol or ports, parameters that drop packets to port 22, and the outcome
/// of each row.
fn filters() -> Vec<Filter> {
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
            |_, shows| match shows {
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
            // The first row is a segment that opens no connection, the second a packet without protocol, which no rule
            // permits.
            Shows::All => "no_session",
            Shows::NoPorts => "denied",
        }),
        (
            "dpi",
            json!({ "patterns": ["\"evil\" class=bad"], "classes": [{ "name": "bad", "gate": "drop" }], "depth": 4 }),
            |row, shows| match shows {
                Shows::All | Shows::HiddenIp => "pattern",
                // The whole packet is scanned, and these rows have no payload.
                Shows::Hidden if row.contains("9 ext") || row.contains("16 ext") => "pattern",
                _ => "0",
            },
        ),
    ]
}

#[test]
fn packets_that_hide_protocol_or_ports_pass_no_filter() {
    for (name, params, expected) in filters() {
        for Row { name: row, shows, frame } in rows(TCP) {
            let actual = Bench::of(find(name), &params, &json!({})).run(&frame).0;
            assert_eq!(actual, expected(row, shows), "{name}: {row}");
        }
    }
}

/// If rules check only addresses, the addresses decide, whatever the packet hides above IP.
#[test]
fn a_list_of_addresses_alone_decides() {
    let rules = [
        "@2000::/16 ::/0 0 : 65535 0 : 65535 0x00/0x00 deny",
        "@10.0.0.0/8 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00 deny",
    ];
    for Row { name: row, shows, frame } in rows(TCP) {
        let actual = Bench::of(find("acl"), &json!({ "rules": rules }), &json!({})).run(&frame).0;
        assert_eq!(actual, if shows == Shows::HiddenIp { "undecidable" } else { "denied" }, "{row}");
    }
}

/// Rules match a message of mobility, HIP or Shim6 by its number. If another header follows, rules match the following
/// header.
#[test]
fn rules_name_messages_of_mobility_hip_and_shim6() {
    for protocol in [135u8, 139, 140, 253] {
        let rules = [format!("@::/0 ::/0 0 : 65535 0 : 65535 {protocol:#04x}/0xff deny")];
        let acl = json!({ "rules": rules });
        let nids = json!({ "rules": [format!("drop ip any any -> any any (ip_proto:{protocol}; sid:1;)")] });
        let followed = frames::ipv6(protocol, &[&[TCP, 0, 0, 0, 0, 0, 0, 0][..], &[0x50; 20]].concat());
        for (name, params, denied) in [("acl", acl, "denied"), ("nids", nids, "rule")] {
            let run = |frame: &[u8]| Bench::of(find(name), &params, &json!({})).run(frame).0;
            assert_eq!(run(&frames::message(protocol)), denied, "{name}: {protocol}");
            let expected = if protocol == 253 { denied } else { "0" };
            assert_eq!(run(&followed), expected, "{name}: {protocol} before TCP");
        }
    }
}

/// Functions that read nothing above Ethernet and its tags, and the gate of every row.
const BELOW: &[(&str, &str)] = &[
    ("bypass", "0"),
    ("copy", "0"),
    ("counter", "0"),
    ("ether_split", ""),
    ("mac_rewrite", "0"),
    ("mac_swap", "0"),
    ("mac_table", ""),
    ("random_split", ""),
    ("tap", "0"),
    ("vlan_pop", ""),
    ("vlan_push", "0"),
    ("vlan_split", ""),
];

#[test]
fn functions_below_ip_do_the_same_with_packets_of_the_same_tags() {
    for (name, gate) in BELOW.iter().filter(|(_, gate)| !gate.is_empty()) {
        let function = find(name);
        let params = serde_saphyr::from_str(function.example).expect("YAML");
        for Row { name: row, frame, .. } in rows(TCP) {
            assert_eq!(&Bench::of(function, &params, &json!({})).run(&frame).0, gate, "{name}: {row}");
        }
    }
}

#[test]
fn every_function_is_in_one_of_the_lists() {
    let filters = filters().into_iter().map(|(name, ..)| name);
    let others: BTreeSet<_> = others::cases().iter().map(|case| case.name).collect();
    let keyed = keys::keyed().into_iter().map(|(name, _)| name);
    let below = BELOW.iter().map(|(name, _)| *name);
    let mut listed: Vec<_> = filters.chain(others).chain(keyed).chain(below).collect();
    listed.sort_unstable();
    let all: Vec<_> = functions().iter().map(|function| function.name).collect();
    assert_eq!(listed, all, "functions in no list, in two, or not registered");
}
