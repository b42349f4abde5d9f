//! Functions that do not filter by protocol or ports. Each of them runs over every row, too.

use super::*;

/// A function, its parameters, states that replace the examples, and the outcome of each row: the drop reason or the
/// gate's number, with a star if the packet changes.
pub struct Case {
    pub name: &'static str,
    pub params: Value,
    pub states: Value,
    protocol: u8,
    expected: fn(&Row) -> &'static str,
}

impl Case {
    fn of(name: &'static str, params: Value, expected: fn(&Row) -> &'static str) -> Self {
        Self { name, params, states: json!({}), protocol: TCP, expected }
    }

    fn with(self, states: Value) -> Self {
        Self { states, ..self }
    }

    fn udp(self) -> Self {
        Self { protocol: UDP, ..self }
    }
}

/// Returns true if a packet hides its protocol, and not only its ports.
fn hides_protocol(row: &Row) -> bool {
    row.shows == Shows::Hidden && row.is_ipv6() && row.name != "a truncated header, IPv6"
}

const CUT_OPTIONS: &str = "options that are cut off";

/// Returns the outcome of functions that read only addresses, and drop a packet that shows none.
fn by_address(row: &Row, otherwise: &'static str) -> &'static str {
    match row {
        row if row.shows == Shows::HiddenIp => "not_ip",
        _ => otherwise,
    }
}

/// Returns the outcome of functions that put whole packets into tunnels.
fn into_tunnel(row: &Row) -> &'static str {
    if row.name == CUT_OPTIONS { "truncated" } else { by_address(row, "0*") }
}

/// Returns the outcome of functions that translate or balance IPv4 by its ports.
fn by_session(row: &Row, hidden: &'static str, hidden_ip: &'static str, all: &'static str) -> &'static str {
    match row.shows {
        Shows::HiddenIp => hidden_ip,
        _ if row.is_ipv6() => "0",
        _ if row.is_fragment() => "fragment",
        Shows::Hidden => hidden,
        _ => all,
    }
}

/// Returns the outcome of functions that process only UDP and let other protocols pass.
fn of_udp(row: &Row, whole: &'static str) -> &'static str {
    match row.shows {
        Shows::HiddenIp => "undecidable",
        _ if row.is_fragment() => "fragment",
        _ if hides_protocol(row) => "undecidable",
        Shows::Hidden => "bad_length",
        Shows::All => whole,
        Shows::NoPorts => "0",
    }
}

/// Returns the outcome of functions that accept only UDP to one port, and drop everything else.
fn of_port(row: &Row, other: &'static str) -> &'static str {
    match row.shows {
        _ if row.is_fragment() => "fragment",
        // The last header that is read announces UDP, which is missing. With 16 headers it is an extension header.
        Shows::Hidden if row.name != "16 extension headers" => "bad_length",
        _ => other,
    }
}

/// Returns the outcome of user plane functions whose filters or rules name ports.
fn by_ports_of_sessions(row: &Row) -> &'static str {
    match row.shows {
        _ if row.name == CUT_OPTIONS => "not_ip",
        Shows::HiddenIp => "not_ip",
        Shows::Hidden => "undecidable",
        Shows::All | Shows::NoPorts => "0",
    }
}

/// Returns the outcome of user plane functions whose filters and rules name only protocols.
fn by_protocol_of_sessions(row: &Row) -> &'static str {
    match by_ports_of_sessions(row) {
        "undecidable" if !hides_protocol(row) => "0",
        outcome => outcome,
    }
}

const KEY: &str = "000102030405060708090a0b0c0d0e0f";

fn tunnels() -> Vec<Case> {
    let aes = json!({ "keys": [{ "id": 1, "key": KEY }], "others": "pass" });
    let all = format!("0x1001 key={KEY}deadbeef peer=203.0.113.2 for=0.0.0.0/0,::/0");
    let users = ["192.0.2.1 1 203.0.113.2", "2000::/64 2 203.0.113.2"];
    let vxlan = json!({ "source": "203.0.113.1", "peer": "203.0.113.2", "vni": 1 });
    vec![
        Case::of("aes_gcm_encrypt", aes.clone(), |row| of_udp(row, "0*")).udp(),
        Case::of("aes_gcm_decrypt", aes, |row| of_udp(row, "too_short")).udp(),
        Case::of("esp_encrypt", json!({ "source": "203.0.113.1", "associations": [all] }), into_tunnel),
        Case::of("esp_decrypt", json!({ "associations": [format!("0x1001 key={KEY}deadbeef")] }), |_| "not_esp"),
        Case::of("gtpu_decap", json!({ "teids": "any" }), |row| of_port(row, "not_gtpu")).udp(),
        Case::of("gtpu_encap", json!({ "source": "203.0.113.1", "tunnels": users }), into_tunnel),
        Case::of("vxlan_decap", json!({ "vnis": [1], "local": ["192.0.2.1"] }), |row| {
            if row.is_ipv6() { "not_vxlan" } else { of_port(row, "not_vxlan") }
        })
        .udp(),
        Case::of("vxlan_encap", vxlan, |_| "0*"),
    ]
}

fn sessions() -> Vec<Case> {
    let state = |name: &str| json!({ "state": name });
    let services = |address: &str, port: u16, backend: &str| {
        let backends = json!([{ "address": backend }]);
        let service = json!({ "address": address, "protocol": "tcp", "port": port, "backends": backends });
        json!({ "balancer": { "services": [service], "replies": "endpoint" } })
    };
    let forwards = json!([{ "outside": "192.0.2.1:22", "inside": "10.1.0.1:22", "protocol": "tcp" }]);
    let forwarding = json!({ "nat": { "pool": "192.0.2.0/28", "forwards": forwards } });
    let mappings = json!([{ "inside": "10.0.0.0/8", "outside": "11.0.0.0/8" }]);
    let users = |more: &str, rules: &[&str]| {
        let users = ["2000::/64", "10.0.0.1", "192.0.2.1"].iter().zip(TEID_V6..);
        let line = |(user, teid)| format!("{user} teid={teid} peer=192.0.2.10 peer-teid={teid} {more}");
        json!({ "pdu_sessions": { "sessions": users.map(line).collect::<Vec<_>>(), "rules": rules } })
    };
    let ports = users("bearer gbr filter=10,tcp,port=22", &[]);
    let up_protocol = users("bearer gbr filter=10,tcp", &[]);
    let mut all =
        vec![
            Case::of("balance", state("balancer"), |row| by_session(row, "malformed", "undecidable", "0*"))
                .with(services("192.0.2.1", 22, "10.9.0.1")),
            Case::of("balance_back", state("balancer"), |row| by_session(row, "malformed", "undecidable", "0*"))
                .with(services("203.0.113.1", 1024, "10.0.0.1")),
            Case::of("nat_in", state("nat"), |row| by_session(row, "protocol", "undecidable", "no_session"))
                .with(forwarding),
            Case::of("nat_out", state("nat"), |row| by_session(row, "protocol", "undecidable", "no_session"))
                .with(json!({ "nat": { "pool": "203.0.113.0/28" } })),
            Case::of("static_nat", json!({ "direction": "out", "mappings": mappings }), |row| match row.shows {
                Shows::HiddenIp => "undecidable",
                _ if row.is_ipv6() => "0",
                _ => "0*",
            }),
        ];
    for name in ["upf_uplink", "upf_downlink"] {
        let case = |expected| Case::of(name, state("pdu_sessions"), expected);
        all.extend([
            case(by_ports_of_sessions).with(ports.clone()),
            case(by_ports_of_sessions).with(users("", &["7 tcp port=22"])),
            case(by_protocol_of_sessions).with(up_protocol.clone()),
            case(by_protocol_of_sessions).with(users("", &["7 tcp"])),
            // If filters and rules need only addresses, the addresses decide.
            case(|row| if row.name == CUT_OPTIONS { "not_ip" } else { by_address(row, "0") })
                .with(users("", &["7 net=192.0.2.0/24"])),
        ]);
    }
    all
}

fn routers() -> Vec<Case> {
    let interface =
        |addresses: [&str; 2]| json!({ "interface": { "mac": "02:00:00:00:00:02", "addresses": addresses } });
    let ours = interface(["192.0.2.1/24", "2000::2/64"]);
    let theirs = interface(["192.0.2.9/24", "2000::9/64"]);
    let error = json!({ "interfaces": ["interface"], "error": "time_exceeded" });
    vec![
        Case::of("icmp_error", error, |row| match row.shows {
            Shows::HiddenIp => "not_ip",
            _ if row.name == CUT_OPTIONS => "bad_header",
            _ if hides_protocol(row) || row.name == "a later fragment, IPv4" => "error_not_allowed",
            _ => "0*",
        })
        .with(theirs.clone()),
        Case::of("interface_in", json!({ "interface": "interface" }), |row| by_address(row, "1")).with(ours),
        Case::of("interface_out", json!({ "interface": "interface" }), |row| by_address(row, "held")).with(theirs),
        Case::of("ip_checksum", json!({}), |row| if row.name == CUT_OPTIONS { "bad_header" } else { "0" }),
        Case::of("ip_lookup", json!({ "routes": ["0.0.0.0/0 0", "::/0 1"] }), |row| {
            by_address(row, if row.is_ipv6() { "1" } else { "0" })
        }),
        Case::of("ip_swap", json!({}), |row| by_address(row, "0*")),
        Case::of("ip_validate", json!({}), |row| {
            by_address(row, if row.name == CUT_OPTIONS { "bad_header" } else { "0" })
        }),
        Case::of("mss_clamp", json!({ "mtu": 1400 }), |_| "0"),
        Case::of("mtu", json!({ "mtu": 1280 }), |_| "0"),
        Case::of("punt", json!({ "addresses": ["192.0.2.1", "2000::2"] }), |row| {
            if row.shows == Shows::HiddenIp { "0" } else { "1" }
        }),
        Case::of("reassemble", json!({}), |row| match row.name {
            "a first fragment without ports" => "malformed",
            _ if row.is_fragment() => "held",
            _ => "0",
        }),
        Case::of("ttl", json!({}), |row| by_address(row, "0*")),
    ]
}

pub fn cases() -> Vec<Case> {
    [tunnels(), sessions(), routers()].into_iter().flatten().collect()
}

#[test]
fn every_other_function_that_reads_above_ethernet_has_the_listed_outcomes() {
    for Case { name, params, states, protocol, expected } in cases() {
        for row in rows(protocol) {
            let (mut outcome, after) = Bench::of(find(name), &params, &states).run(&row.frame);
            let is_forwarded = outcome.parse::<u16>().is_ok();
            if is_forwarded && after != row.frame {
                outcome.push('*');
            }
            assert_eq!(outcome, expected(&row), "{name}: {}, with {states}", row.name);
        }
    }
}

/// A payload length of 0 is a length (RFC 8200 section 3): Ethernet padding is not part of the packet and must not
/// enter a tunnel. A tunnel of Ethernet frames carries the whole frame (RFC 7348 section 4).
#[test]
fn padding_after_an_ipv6_payload_length_of_0_enters_no_tunnel_of_packets() {
    let padded = frames::empty_and_padded();
    let bare = &padded[..padded.len() - 6];
    for Case { name, params, states, .. } in tunnels() {
        let run = |frame: &[u8]| {
            let (outcome, after) = Bench::of(find(name), &params, &states).run(frame);
            assert!(!name.ends_with("_encap") && name != "esp_encrypt" || outcome == "0", "{name}: {outcome}");
            after
        };
        let (with, without) = (run(&padded), run(bare));
        match name {
            "gtpu_encap" => assert_eq!(with, without),
            // The initialisation vector and the ciphertext differ; the lengths do not.
            "esp_encrypt" => assert_eq!(with.len(), without.len()),
            "vxlan_encap" => assert_eq!(with.len(), without.len() + 6),
            _ => {}
        }
    }
}
