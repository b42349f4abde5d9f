//! The layers and session in a packet's metadata: after each function, they must equal the layers and session that a
//! search in its bytes finds.
//!
//! Layers and session are found once and kept with the packet. A function that changes, adds or removes a header must
//! not leave the previous values.

use forebay_packet::Packet;

use super::*;

/// Returns an ICMP error about a packet of the table, from an address without mapping, session or service.
fn error_about(frame: &[u8]) -> Vec<u8> {
    let quoted = &frame[14..];
    let mut icmp = [&[3, 1, 0, 0, 0, 0, 0, 0][..], quoted].concat();
    let sum = frames::checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut error = frames::ipv4(1, 0, &icmp);
    error[26..30].copy_from_slice(&[198, 18, 0, 9]);
    error[30..34].copy_from_slice(&frame[26..30]);
    frames::sum_ipv4(&mut error);
    error
}

/// Returns the frames that functions process: all rows, and errors about some of them in both directions.
fn packets() -> Vec<Vec<u8>> {
    let mut all: Vec<_> = [TCP, UDP].into_iter().flat_map(rows).map(|row| row.frame).collect();
    for protocol in [TCP, UDP] {
        let row = rows(protocol).into_iter().find(|row| row.name == "a tag of type 0x9100").expect("a row");
        let plain = [&row.frame[..12], &row.frame[16..]].concat();
        let mut back = plain.clone();
        back[26..30].copy_from_slice(&plain[30..34]);
        back[30..34].copy_from_slice(&plain[26..30]);
        all.extend([error_about(&plain), error_about(&back), plain, back]);
    }
    all
}

/// Returns all metadata of a packet as text.
fn known(packet: &mut Packet) -> String {
    let (network, start) = packet.network();
    // If it is not IP, the offset has no meaning.
    let start = (network != Network::Other).then_some(start);
    let [transport, ports] = [format!("{:?}", packet.transport()), format!("{:?}", packet.ports())];
    let (end, session) = (packet.network_end(), packet.session_hash());
    format!("{network:?} at {start:?} to {end}, transport {transport}, ports {ports}, session {session:#x}")
}

/// Runs a function over a packet with complete metadata, and compares the metadata afterwards with the metadata that a
/// search in its bytes finds. Returns the packet if it was forwarded.
fn run(name: &str, params: &Value, states: &Value, frame: &[u8]) -> Option<Vec<u8>> {
    let mut bench = Bench::of(find(name), params, states);
    let mut batch = Batch::with_capacity(1);
    let mut packet = bench.rig.packet(frame);
    if let Some(word) = bench.teid {
        let teid = if packet.network().0 == Network::Ipv6 { TEID_V6 } else { TEID_V4 };
        packet.set_word(word, teid);
    }
    known(&mut packet);
    batch.push(packet).expect("an empty batch");
    let gate = bench.rig.process(&mut batch)[0]?;
    if !matches!(gate.decision(), Decision::Out(_)) {
        return None;
    }
    let packet = &mut batch[0];
    let before = known(packet);
    packet.forget_layers();
    assert_eq!(before, known(packet), "{name} with {params}: {frame:02x?} became {:02x?}", packet.data());
    Some(packet.data().to_vec())
}

#[test]
fn behind_each_function_layers_and_session_are_those_of_the_packet() {
    let filters = filters().into_iter().map(|(name, params, _)| (name, params, json!({})));
    let keyed = keys::keyed().into_iter().map(|(name, params)| (name, params, json!({})));
    let below = BELOW.iter().map(|(name, _)| {
        let example: Value = serde_saphyr::from_str(find(name).example).expect("YAML");
        (*name, example, json!({}))
    });
    let others = others::cases().into_iter().map(|case| (case.name, case.params, case.states));
    let mut forwarded = BTreeSet::new();
    for (name, params, states) in filters.chain(keyed).chain(below).chain(others) {
        for frame in packets() {
            if run(name, &params, &states, &frame).is_some() {
                forwarded.insert(name);
            }
        }
    }
    let all: BTreeSet<_> = functions().iter().map(|function| function.name).collect();
    let never: Vec<_> = all.difference(&forwarded).copied().collect();
    // The firewall opens no session for these packets and changes no packet. `interface_out` holds them until it knows
    // the neighbour's address. The other functions take packets out of tunnels: see the test below.
    assert_eq!(never, ["esp_decrypt", "firewall", "gtpu_decap", "interface_out", "vxlan_decap"]);
}

/// After decapsulation, the packet has the layers and the session of the inner packet.
#[test]
fn behind_a_tunnel_layers_and_session_are_those_of_the_packet_inside() {
    let cases = others::cases();
    let params = |name: &str| &cases.iter().find(|case| case.name == name).expect("a case").params;
    let any = json!({ "vnis": [1] });
    for (into, out, its) in [
        ("aes_gcm_encrypt", "aes_gcm_decrypt", params("aes_gcm_decrypt")),
        ("esp_encrypt", "esp_decrypt", params("esp_decrypt")),
        ("gtpu_encap", "gtpu_decap", params("gtpu_decap")),
        ("vxlan_encap", "vxlan_decap", &any),
    ] {
        let mut restored = 0;
        for frame in packets() {
            let Some(sent) = run(into, params(into), &json!({}), &frame) else { continue };
            // Behind a tag, the packet takes the slow path.
            for sent in [sent.clone(), frames::tagged(&[0x8100], &sent)] {
                restored += usize::from(run(out, its, &json!({}), &sent).is_some());
            }
        }
        assert!(restored > 30, "{out}: {restored}");
    }
}
