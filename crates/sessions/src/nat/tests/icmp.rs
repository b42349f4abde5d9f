//! ICMP: errors that quote packets of sessions, and queries by identifier.

use super::*;

#[test]
fn errors_reach_the_sender_of_the_quoted_packet() {
    let mut nat = plain();
    let router = [203, 0, 113, 1];
    for (sent, quote) in [
        (udp((HOST, 5_000), (PEER, 53), b"a long enough payload"), 28),
        (udp((HOST, 5_000), (PEER, 53), b"a long enough payload"), 40),
        (tcp((HOST, 5_001), (PEER, 80), "S"), 28),
        (tcp((HOST, 5_002), (PEER, 80), "S"), 40),
        (echo(HOST, PEER, 9, false), 32),
    ] {
        let outside = nat.goes_out(&sent).expect("it opens a session");
        let (source, _) = ends(&outside);
        // A router's error about a packet that went out.
        let back = nat.comes_back(&error(router, source.0, &outside, quote)).expect("a session");
        assert_eq!(back, error(router, HOST, &sent, quote));
        // The host's error about a packet that came back.
        let answer = match sent[23] {
            6 => tcp((PEER, 80), source, "SA"),
            17 => udp((PEER, 53), source, b"an answer"),
            _ => echo(PEER, source.0, source.1, true),
        };
        let inner = nat.comes_back(&answer).expect("a session");
        let out = nat.goes_out(&error(HOST, PEER, &inner, quote.min(inner.len() - 14))).expect("a session");
        assert_eq!(out, error(source.0, PEER, &answer, quote.min(inner.len() - 14)));
    }
    let stranger = udp((HOST, 1), (PEER, 9_999), b"12345678");
    assert_eq!(nat.goes_out(&error(HOST, PEER, &stranger, 28)), None, "the quoted packet has no session");
    assert_eq!(nat.comes_back(&error(router, [192, 0, 2, 1], &stranger, 20)), None, "it quotes too little");
}

/// Regression: errors about first fragments were dropped, although they quote the ports (RFC 5508 section 4.2).
#[test]
fn errors_about_first_fragments_reach_the_sender_of_the_datagram() {
    let mut nat = plain();
    let router = [203, 0, 113, 1];
    // Makes a fragment of a frame, as a router would: sets the flags and offset, and updates the header's checksum.
    let fragment = |frame: &[u8], offset: u16| {
        let mut frame = frame.to_vec();
        let old = u16::from_be_bytes([frame[20], frame[21]]);
        frame[20..22].copy_from_slice(&offset.to_be_bytes());
        let sum = checksum::replace16(u16::from_be_bytes([frame[24], frame[25]]), old, offset);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    for (sent, quote) in [
        (udp((HOST, 5_000), (PEER, 53), b"a long enough payload"), 28),
        (udp((HOST, 5_000), (PEER, 53), b"a long enough payload"), 40),
        (tcp((HOST, 5_001), (PEER, 80), "S"), 28),
        (tcp((HOST, 5_002), (PEER, 80), "S"), 40),
        (echo(HOST, PEER, 9, false), 32),
    ] {
        let outside = nat.goes_out(&sent).expect("it opens a session");
        let (source, _) = ends(&outside);
        let about = |frame: &[u8], offset| fragment(frame, offset);
        let back = nat.comes_back(&error(router, source.0, &about(&outside, 0x2000), quote)).expect("a session");
        assert_eq!(back, error(router, HOST, &about(&sent, 0x2000), quote));
        assert_eq!(
            nat.comes_back(&error(router, source.0, &about(&outside, 0x2001), quote)),
            None,
            "a later fragment does not quote ports"
        );
    }
}

/// A query from outside cannot use the identifier of a session, and does not change the session.
#[test]
fn a_query_from_outside_by_a_known_identifier_disturbs_nothing() {
    let mut nat = plain();
    let query = |from, to, id: u16, kind: u8| {
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from, to, 64);
        let [high, low] = id.to_be_bytes();
        let mut frame = Vec::new();
        builder.icmpv4_raw(kind, 0, [high, low, 0, 1]).write(&mut frame, b"query").expect("memory");
        frame
    };
    for (request, reply) in [(8, 0), (13, 14), (15, 16), (17, 18), (42, 43)] {
        let out = nat.goes_out(&query(HOST, PEER, 77, request)).expect("a query opens a session");
        let outside = ([out[26], out[27], out[28], out[29]], u16::from_be_bytes([out[38], out[39]]));
        assert_eq!(out, query(outside.0, PEER, outside.1, request), "nothing else changes");
        assert_eq!(nat.back.run(&query(PEER, outside.0, outside.1, request)).0, NO_SESSION);
        assert_eq!(nat.out.run(&query(HOST, PEER, 77, reply)).0, NO_SESSION);
        let back = nat.comes_back(&query(PEER, outside.0, outside.1, reply)).expect("an answer");
        assert_eq!(back, query(PEER, HOST, 77, reply));
        let back = nat.comes_back(&error([203, 0, 113, 1], outside.0, &out, 28)).expect("a session");
        assert_eq!(back, error([203, 0, 113, 1], HOST, &query(HOST, PEER, 77, request), 28));
    }
    // Messages that are not queries have no identifier to translate.
    for kind in [5, 9, 10, 40, 255] {
        assert_eq!(nat.out.run(&query(HOST, PEER, 77, kind)).0, PROTOCOL, "{kind}");
    }
}

/// Regression: if a quoted checksum was zero after the address was replaced, it was taken for a missing checksum.
#[test]
fn a_quoted_checksum_that_passes_through_zero_is_still_one() {
    let mut nat = plain();
    let router = [203, 0, 113, 1];
    let checksum = |frame: &[u8]| u16::from_be_bytes([frame[40], frame[41]]);
    let over_address = |frame: &[u8], old: [u8; 4], new: [u8; 4]| {
        checksum::replace32(checksum(frame), u32::from_be_bytes(old), u32::from_be_bytes(new))
    };
    let (outside, _) = ends(&nat.goes_out(&udp((HOST, 5_000), (PEER, 53), b"ab")).expect("a port"));
    let (mut sent, mut answered) = (0, 0);
    for payload in (0..=u16::MAX).map(u16::to_be_bytes) {
        let went = udp(outside, (PEER, 53), &payload);
        if over_address(&went, outside.0, HOST) == 0 {
            let back = nat.comes_back(&error(router, outside.0, &went, 30)).expect("a session");
            assert_eq!(back, error(router, HOST, &udp((HOST, 5_000), (PEER, 53), &payload), 30));
            sent += 1;
        }
        let came = udp((PEER, 53), (HOST, 5_000), &payload);
        if over_address(&came, HOST, outside.0) == 0 {
            let out = nat.goes_out(&error(HOST, PEER, &came, 30)).expect("a session");
            assert_eq!(out, error(outside.0, PEER, &udp((PEER, 53), outside, &payload), 30));
            answered += 1;
        }
    }
    assert!(sent > 0 && answered > 0, "there must be packets of both types");
}
