//! Tests frames in tunnels.

use super::*;

/// Returns the frames of `n` sessions in a tunnel, with the parameters `more`.
fn tunnelled(tunnel: Value, more: &[(&str, Value)], n: usize) -> Vec<Vec<u8>> {
    let mut params = json!({ "sessions": n, "tunnel": tunnel });
    for (key, value) in more {
        params[*key] = value.clone();
    }
    take(params, n).into_iter().map(|(_, frame)| frame).collect()
}

#[test]
fn frames_come_in_tunnels() {
    let ends = |more: Value| {
        let mut all = json!({ "source": "192.0.2.10", "destination": "192.0.2.1" });
        more.as_object().expect("a map").iter().for_each(|(key, value)| all[key] = value.clone());
        all
    };
    let gtpu = json!({ "gtpu": ends(json!({ "teid": 0x1001, "tunnels": 3 })) });
    for (more, ether_type) in [
        (vec![("size", json!(96))], [0x08, 0x00]),
        (vec![("destination", json!("2001:db8::/64")), ("transport", json!("tcp"))], [0x86, 0xdd]),
    ] {
        for (session, frame) in tunnelled(gtpu.clone(), &more, 7).into_iter().enumerate() {
            assert_eq!(frame[12..16], [0x08, 0x00, 0x45, 0]);
            assert_eq!(frame[26..42], [192, 0, 2, 10, 192, 0, 2, 1, 8, 0x68, 8, 0x68, 0, frame.len() as u8 - 34, 0, 0]);
            assert_eq!(frame[42..46], [0x30, 0xff, 0, frame.len() as u8 - 50]);
            assert_eq!(frame[46..50], [0, 0, 0x10, 1 + (session % 3) as u8]);
            check(&[&frame[..12], &ether_type, &frame[50..]].concat());
            check_outer(&frame);
        }
    }
    let error = try_open(json!({ "size": 75, "tunnel": gtpu })).err().expect("refused").to_string();
    assert!(error.contains("75: allowed are 80 to 65343"), "{error}");
    let vxlan = json!({ "vxlan": ends(json!({ "vni": 0xff_fffe, "networks": 2 })) });
    for (session, frame) in tunnelled(vxlan, &[("vlans", json!([7])), ("size", json!(300))], 5).into_iter().enumerate()
    {
        assert_eq!(frame[12..20], [0x81, 0, 0, 7, 0x08, 0x00, 0x45, 0]);
        assert_eq!(
            frame[38..54],
            [0x12, 0xb5, 0x12, 0xb5, 1, 6, 0, 0, 8, 0, 0, 0, 0xff, 0xff, 0xfe + (session % 2) as u8, 0]
        );
        assert_eq!(frame[54..66], frame[..12], "the same addresses inside");
        check(&frame[54..]);
        check_outer(&frame);
        assert_eq!(frame.len(), 300);
    }
}

/// Checks the outer IPv4 header with an independent implementation.
fn check_outer(frame: &[u8]) {
    let headers = PacketHeaders::from_ethernet_slice(frame).expect("a frame");
    let Some(NetHeaders::Ipv4(ip, _)) = headers.net else { panic!("no IPv4") };
    assert_eq!(ip.header_checksum, ip.calc_header_checksum());
    let Some(TransportHeader::Udp(udp)) = headers.transport else { panic!("no UDP") };
    assert_eq!(usize::from(udp.length), 8 + headers.payload.slice().len());
}

#[test]
fn invalid_tunnels_are_rejected_with_the_cause() {
    for (tunnel, path, message) in [
        (json!({ "gtpu": { "teid": u32::MAX, "tunnels": 2 } }), "tunnel.gtpu.tunnels", "2: allowed is only 1"),
        (json!({ "gtpu": { "teid": 1, "tunnels": 0 } }), "tunnel.gtpu.tunnels", "0: allowed are 1 to"),
        (json!({ "vxlan": { "vni": 1 << 24 } }), "tunnel.vxlan.vni", "16777216: allowed are 0 to 16777215"),
    ] {
        let mut tunnel = tunnel;
        for inside in tunnel.as_object_mut().expect("a map").values_mut() {
            (inside["source"], inside["destination"]) = (json!("192.0.2.1"), json!("192.0.2.2"));
        }
        let error = try_open(json!({ "tunnel": tunnel })).err().expect("refused");
        assert_eq!(error.faults[0].path, path, "{error}");
        assert!(error.to_string().contains(message), "{error}");
    }
}
