//! ICMP through the firewall: queries, errors, messages of other types, and messages between neighbours.

use super::*;

/// Regression: two hosts that pinged each other with the same identifier blocked each other, because the second query
/// was taken for a packet of the first one's connection.
#[test]
fn hosts_that_query_each_other_with_one_identifier_have_two_connections() {
    let queries: [(bool, &[(u8, u8)]); 2] =
        [(false, &[(8, 0), (13, 14), (15, 16), (17, 18), (42, 43)]), (true, &[(128, 129), (139, 140), (160, 161)])];
    for (ipv6, queries) in queries {
        for identifier in [0u16, 1, 7, 8, 0x0fa0, 0xfffe, 0xffff] {
            let mut wall = Both::with(json!({}), json!({ "state": "fw", "default": "permit" }));
            let [high, low] = identifier.to_be_bytes();
            let message =
                |from: End, to: End, kind| icmp_message(from.0, to.0, (kind, 0), [high, low, 0, 1], b"ping", ipv6);
            for (request, reply) in queries {
                let (forward, back) = ((HERE, THERE), (THERE, HERE));
                let send = |rig: &mut Rig, (from, to), kind| rig.run(&message(from, to, kind)).0;
                assert_eq!(send(&mut wall.out, forward, *request), Gate::FIRST);
                assert_eq!(send(&mut wall.out, forward, *reply), NO_SESSION, "{request}: there was no query");
                assert_eq!(send(&mut wall.back, back, *request), Gate::FIRST, "{request} both ways by {identifier}");
                assert_eq!(send(&mut wall.back, back, *reply), Gate::FIRST);
                assert_eq!(send(&mut wall.out, forward, *reply), Gate::FIRST);
                // Errors about queries and replies of both directions.
                for kind in [request, reply] {
                    let sent = message(HERE, THERE, *kind);
                    assert_eq!(wall.back.run(&error(HERE.0, &sent[14..], ipv6)).0, Gate::FIRST, "about {kind}");
                    let sent = message(THERE, HERE, *kind);
                    assert_eq!(wall.out.run(&error(THERE.0, &sent[14..], ipv6)).0, Gate::FIRST, "about {kind}");
                }
            }
            let lines = chosen(&mut wall.out, "connections", "all");
            assert_eq!(lines.len(), 2 * queries.len(), "{lines:?}");
            let port = |end: &str| if identifier == 0 { end.to_owned() } else { format!("{end}:{identifier}") };
            let from: std::collections::BTreeSet<_> = lines.iter().map(|line| word(line, "from").to_owned()).collect();
            if !ipv6 {
                assert_eq!(from, ["10.0.0.7", "10.0.0.9"].map(port).into());
            }
        }
    }
}

/// Regression: an ICMP message of an unlisted type was dropped as malformed, whatever the rules were.
#[test]
fn messages_of_other_types_pass_if_the_rules_permit_them() {
    for (ipv6, listed) in [(false, &[3u8, 4, 11, 12, 0, 14, 16, 18, 43][..]), (true, &[1, 2, 3, 4, 129, 140, 161])] {
        for kind in (0..=255).filter(|kind| !listed.contains(kind)) {
            let mut wall = Both::new(json!({}));
            let message = |from: End, to: End| icmp_message(from.0, to.0, (kind, 0), [0; 4], &[0; 20], ipv6);
            assert_eq!(wall.back.run(&message(THERE, HERE)).0, DENIED, "type {kind}");
            let sent = message(HERE, THERE);
            assert_eq!(wall.out.run(&sent).0, Gate::FIRST, "type {kind}");
            assert_eq!(wall.back.run(&message(THERE, HERE)).0, DENIED, "type {kind}: no answer belongs to it");
            let unassigned_error = ipv6 && kind < 128;
            let about = if unassigned_error { MALFORMED } else { Gate::FIRST };
            assert_eq!(wall.back.run(&error(HERE.0, &sent[14..], ipv6)).0, about, "an error about type {kind}");
        }
        // Four bytes are a complete message of an unknown type.
        let mut wall = Both::new(json!({}));
        let mut short = icmp_message(HERE.0, THERE.0, (200, 0), [0; 4], &[], ipv6);
        short.truncate(short.len() - 4);
        let length = if ipv6 { 14 + 5 } else { 14 + 3 };
        short[length] -= 4;
        assert_eq!(wall.out.run(&short).0, Gate::FIRST);
        short[if ipv6 { 54 } else { 34 }] = if ipv6 { 128 } else { 8 };
        assert_eq!(wall.out.run(&short).0, MALFORMED, "a query without its identifier");
    }
}

/// Regression: multicast listener messages were dropped, whatever the rules were (RFC 4890 section 4.4.1).
#[test]
fn messages_that_are_provably_between_neighbours_pass() {
    const LINK_LOCAL: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    const GLOBAL: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let all_nodes = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let mut wall = Both::new(json!({}));
    let mut gate = |kind: u8, source: [u8; 16], hop_limit: u8, alert: bool| {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6(source, all_nodes, hop_limit);
        builder.icmpv6_raw(kind, 0, [0; 4]).write(&mut frame, &[0; 20]).expect("memory");
        if alert {
            // Hop-by-hop options with a router alert (RFC 2711), which listener messages have.
            frame.splice(54..54, [58, 0, 5, 2, 0, 0, 1, 0]);
            (frame[20], frame[19]) = (0, frame[19] + 8);
        }
        wall.back.run(&frame).0
    };
    for alert in [false, true] {
        for kind in [130, 131, 132, 143] {
            assert_eq!(gate(kind, LINK_LOCAL, 1, alert), Gate::FIRST, "{kind}");
            assert_eq!(gate(kind, [0; 16], 1, alert), Gate::FIRST, "{kind}: no address yet (RFC 3590)");
            assert_eq!(gate(kind, GLOBAL, 1, alert), DENIED, "{kind}: not from the link");
            assert_eq!(gate(kind, LINK_LOCAL, 2, alert), DENIED, "{kind}: not for the link");
        }
        for kind in 151..=153 {
            assert_eq!(gate(kind, LINK_LOCAL, 1, alert), Gate::FIRST, "{kind}");
            assert_eq!(gate(kind, [0; 16], 1, alert), DENIED, "{kind}");
        }
        for kind in [133, 134, 135, 136, 137, 141, 142, 148, 149] {
            assert_eq!(gate(kind, GLOBAL, 255, alert), Gate::FIRST, "{kind}");
            assert_eq!(gate(kind, LINK_LOCAL, 254, alert), DENIED, "{kind}: it has passed a router");
        }
        // Router renumbering and Mobile IPv6: the rules decide.
        for kind in [138, 144, 145, 146, 147] {
            assert_eq!(gate(kind, LINK_LOCAL, 255, alert), DENIED, "{kind}");
        }
    }
}

/// Regression: errors about first fragments were dropped, so the sender of long datagrams never learned the path MTU.
#[test]
fn errors_about_first_fragments_pass() {
    let mut wall = Both::new(json!({}));
    for ipv6 in [false, true] {
        let sent = frame(HERE, THERE, None, ipv6, false);
        assert_eq!(wall.out.run(&sent).0, Gate::FIRST);
        let fragment = |offset: u16, more: bool| {
            let mut quoted = sent[14..].to_vec();
            let field = offset << if ipv6 { 3 } else { 0 };
            if ipv6 {
                let [high, low] = (field | u16::from(more)).to_be_bytes();
                quoted.splice(40..40, [17, 0, high, low, 0, 0, 0, 9]);
                (quoted[6], quoted[5]) = (44, quoted[5] + 8);
            } else {
                quoted[6..8].copy_from_slice(&(field | u16::from(more) << 13).to_be_bytes());
            }
            quoted
        };
        assert_eq!(wall.back.run(&error(HERE.0, &fragment(0, true), ipv6)).0, Gate::FIRST, "ipv6: {ipv6}");
        assert_eq!(
            wall.back.run(&error(HERE.0, &fragment(0, false), ipv6)).0,
            Gate::FIRST,
            "an atomic fragment (RFC 6946)"
        );
        for more in [false, true] {
            assert_eq!(wall.back.run(&error(HERE.0, &fragment(1, more), ipv6)).0, MALFORMED, "it shows no ports");
        }
        assert_eq!(wall.back.run(&error(8, &fragment(0, true), ipv6)).0, NO_SESSION, "to another host");
    }
}

/// Regression: over IPv6 the host that was pinged could ping back, and the connection had the time-out of other
/// protocols.
#[test]
fn replies_to_pings_pass_and_pings_back_do_not() {
    for ipv6 in [false, true] {
        let mut wall = Both::new(json!({}));
        assert_eq!(wall.back.run(&ping(THERE, HERE, true, ipv6)).0, NO_SESSION);
        assert_eq!(wall.out.run(&ping(HERE, THERE, false, ipv6)).0, Gate::FIRST);
        assert_eq!(wall.back.run(&ping(THERE, HERE, true, ipv6)).0, Gate::FIRST);
        assert_eq!(wall.back.run(&ping(THERE, HERE, false, ipv6)).0, DENIED);
        assert_eq!(wall.out.run(&ping(HERE, THERE, true, ipv6)).0, NO_SESSION);
        wall.pass(65);
        assert_eq!(wall.back.run(&ping(THERE, HERE, true, ipv6)).0, NO_SESSION, "a minute later");
    }
}

/// The other IP version's ICMP is handled like any other protocol, because it does not show which side sends a query.
#[test]
fn icmp_of_the_other_version_is_a_protocol_like_others() {
    for ipv6 in [false, true] {
        let mut wall = Both::new(json!({}));
        let foreign = |from: End, to: End| {
            let mut frame = ping(from, to, false, ipv6);
            // Change the protocol. The checksum of an IPv4 header is not checked here.
            let at = if ipv6 { 14 + 6 } else { 14 + 9 };
            frame[at] = if ipv6 { 1 } else { 58 };
            frame
        };
        assert_eq!(wall.out.run(&foreign(HERE, THERE)).0, Gate::FIRST);
        wall.pass(200);
        assert_eq!(wall.back.run(&foreign(THERE, HERE)).0, Gate::FIRST);
    }
}

#[test]
fn neighbour_discovery_passes() {
    let mut wall = Both::new(json!({}));
    let mut advertisement = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([0xfe; 16], [0xff; 16], 255).icmpv6_raw(136, 0, [0; 4]);
    builder.write(&mut advertisement, &[0; 16]).expect("memory");
    assert_eq!(wall.back.run(&advertisement).0, Gate::FIRST);
}

#[test]
fn errors_about_a_connection_pass() {
    let mut wall = Both::new(json!({}));
    for ipv6 in [false, true] {
        let sent = frame(HERE, THERE, None, ipv6, false);
        let error = |quoted: &[u8]| error(HERE.0, quoted, ipv6);
        assert_eq!(wall.back.run(&error(&sent[14..])).0, NO_SESSION);
        assert_eq!(wall.out.run(&sent).0, Gate::FIRST);
        assert_eq!(wall.back.run(&error(&sent[14..])).0, Gate::FIRST);
        assert_eq!(wall.back.run(&error(&sent[14..40])).0, MALFORMED, "it quotes too little");
    }
}

/// Regression: an error that quoted another host's connection passed to any host.
#[test]
fn errors_reach_only_the_sender_of_the_quoted_packet() {
    let mut wall = Both::new(json!({}));
    for ipv6 in [false, true] {
        let sent = frame(HERE, THERE, None, ipv6, false);
        assert_eq!(wall.out.run(&sent).0, Gate::FIRST);
        for to in [8, THERE.0] {
            assert_eq!(wall.back.run(&error(to, &sent[14..], ipv6)).0, NO_SESSION, "to {to}");
        }
        assert_eq!(wall.back.run(&error(HERE.0, &sent[14..], ipv6)).0, Gate::FIRST);
        // The inside host's error about a packet that came back.
        let answer = frame(THERE, HERE, None, ipv6, false);
        assert_eq!(wall.out.run(&error(THERE.0, &answer[14..], ipv6)).0, Gate::FIRST);
        assert_eq!(wall.out.run(&error(8, &answer[14..], ipv6)).0, NO_SESSION);
    }
}

/// Regression: errors about packets with extension headers were dropped, so no path MTU was found.
#[test]
fn errors_pass_with_any_quoted_extension_headers() {
    let mut wall = Both::new(json!({}));
    let sent = frame(HERE, THERE, None, true, false);
    assert_eq!(wall.out.run(&sent).0, Gate::FIRST);
    // Each extension header has eight bytes: the next header, a length of zero, and padding (RFC 8200 section 4.2) or
    // options.
    let quoted = |kinds: &[u8]| {
        let mut quoted = sent[14..54].to_vec();
        let mut next_header = 6;
        for kind in kinds {
            quoted[next_header] = *kind;
            next_header = quoted.len();
            quoted.extend([17, 0, 1, 4, 0, 0, 0, 0]);
        }
        quoted.extend(&sent[54..]);
        quoted[5] += 8 * kinds.len() as u8;
        quoted
    };
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENTED: u8 = 44;
    const DESTINATION: u8 = 60;
    for kinds in [&[HOP_BY_HOP][..], &[DESTINATION], &[ROUTING], &[HOP_BY_HOP, DESTINATION, ROUTING]] {
        let quoted = quoted(kinds);
        assert_eq!(wall.back.run(&error(HERE.0, &quoted, true)).0, Gate::FIRST, "{kinds:?}");
        let cut = 40 + 8 * kinds.len() + 7;
        assert_eq!(wall.back.run(&error(HERE.0, &quoted[..cut], true)).0, MALFORMED, "{kinds:?}: it quotes too little");
    }
    assert_eq!(wall.back.run(&error(HERE.0, &quoted(&[FRAGMENTED]), true)).0, MALFORMED, "a fragment");
    assert_eq!(wall.back.run(&error(HERE.0, &quoted(&[50]), true)).0, NO_SESSION, "another protocol");
}
