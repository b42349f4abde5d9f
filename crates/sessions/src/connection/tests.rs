//! Packets of connections, and the phases that they lead to.

use forebay_packet::wire::icmp::ICMPV6;
use forebay_packet::wire::ipv4::ICMP;

use super::*;

/// Returns the phase after packets, each with its flags and whether it is a reply.
fn after(protocol: u8, packets: &[(u8, bool)]) -> Phase {
    let mut connection = Connection::new(protocol, packets[0].0, ICMP);
    for (flags, reply) in &packets[1..] {
        connection.passes(*flags, *reply);
    }
    connection.phase()
}

#[test]
fn a_handshake_establishes() {
    assert_eq!(after(TCP, &[(SYN, false)]), Phase::TcpOpening);
    assert_eq!(after(TCP, &[(SYN, false), (SYN | ACK, true)]), Phase::TcpOpening);
    assert_eq!(after(TCP, &[(SYN, false), (SYN | ACK, true), (ACK, false)]), Phase::TcpEstablished);
    // One side alone does not establish a connection, nor does an answer without a SYN.
    assert_eq!(after(TCP, &[(SYN, false), (ACK, false), (ACK, false)]), Phase::TcpOpening);
    assert_eq!(after(TCP, &[(SYN, false), (ACK, true)]), Phase::TcpOpening);
}

#[test]
fn both_ends_or_a_reset_close() {
    let open = [(SYN, false), (SYN | ACK, true), (ACK, false)];
    let and = |more: &[(u8, bool)]| after(TCP, &[&open[..], more].concat());
    assert_eq!(and(&[(FIN | ACK, false)]), Phase::TcpEstablished, "half closed is open");
    assert_eq!(and(&[(FIN | ACK, false), (FIN | ACK, true)]), Phase::TcpClosing);
    assert_eq!(and(&[(RST, true)]), Phase::TcpClosing);
    assert_eq!(and(&[(FIN | ACK, false), (FIN | ACK, true), (ACK, false)]), Phase::TcpClosing);
    assert_eq!(and(&[(RST, true), (SYN, false)]), Phase::TcpOpening, "the ports are used again");
    assert_eq!(and(&[(SYN, false)]), Phase::TcpEstablished, "a SYN does not end a connection");
}

/// Regression: a stray reset left a live connection on the short time-out forever.
#[test]
fn traffic_after_a_reset_leads_back() {
    let open = [(SYN, false), (SYN | ACK, true), (ACK, false)];
    let and = |more: &[(u8, bool)]| after(TCP, &[&open[..], more].concat());
    for stray in [false, true] {
        for lives in [false, true] {
            let reset = (RST, stray);
            assert_eq!(and(&[reset, (ACK, lives)]), Phase::TcpEstablished);
            assert_eq!(and(&[reset, reset, (ACK, lives), reset]), Phase::TcpClosing);
            assert_eq!(and(&[reset, (SYN, true)]), Phase::TcpEstablished, "RFC 6146: all but a reset");
            // A half-closed connection stays half closed; the FIN of the other side still ends it.
            assert_eq!(and(&[(FIN | ACK, false), reset, (ACK, lives)]), Phase::TcpEstablished);
            assert_eq!(and(&[(FIN | ACK, false), reset, (ACK, lives), (FIN | ACK, true)]), Phase::TcpClosing);
            // A connection that both sides have ended stays closed.
            assert_eq!(and(&[(FIN | ACK, false), (FIN | ACK, true), reset, (ACK, lives)]), Phase::TcpClosing);
            // A forged SYN after the reset. The answer to it comes from the connection that is still alive.
            assert_eq!(and(&[reset, (SYN, false), (ACK, lives)]), Phase::TcpEstablished);
            assert_eq!(and(&[reset, (SYN, false), (SYN | ACK, true)]), Phase::TcpOpening);
            assert_eq!(and(&[reset, (SYN, false), reset, (SYN, true)]), Phase::TcpEstablished, "RFC 6146: likewise");
            // Before a connection is established, its handshake continues after a reset, and only the handshake
            // establishes it.
            assert_eq!(after(TCP, &[(SYN, false), reset]), Phase::TcpClosing);
            assert_eq!(after(TCP, &[(SYN, false), reset, (ACK, lives)]), Phase::TcpOpening);
            assert_eq!(after(TCP, &[(SYN, false), reset, (SYN | ACK, true), (ACK, false)]), Phase::TcpEstablished);
            assert_eq!(after(TCP, &[(SYN, false), reset, (SYN, false), (ACK, false)]), Phase::TcpOpening);
        }
    }
}

#[test]
fn a_mark_ends_once_another_connection_is_sure() {
    let open = [(SYN, false), (SYN | ACK, true), (ACK, false)];
    // Returns for each packet whether it removes the mark. The mark is set before each packet.
    let lost = |packets: &[(u8, bool)]| {
        let mut connection = Connection::new(TCP, packets[0].0, ICMP);
        assert!(!connection.is_marked());
        let mut step = |(flags, reply): &(u8, bool)| {
            let mut unmarked = connection;
            connection.mark();
            connection.passes(*flags, *reply);
            unmarked.passes(*flags, *reply);
            let lost = !connection.is_marked();
            unmarked.seen |= connection.seen & MARKED;
            assert_eq!(connection, unmarked, "the mark changes nothing else");
            connection.seen &= !MARKED;
            lost
        };
        packets[1..].iter().map(&mut step).collect::<Vec<_>>()
    };
    let and = |more: &[(u8, bool)]| lost(&[&open[..], more].concat())[2..].to_vec();
    let ends = [(FIN | ACK, false), (FIN | ACK, true), (ACK, false)];
    assert_eq!(lost(&open), [false; 2]);
    assert_eq!(and(&ends), [false; 3]);
    assert_eq!(and(&[&ends[..], &open[..]].concat()), [false, false, false, false, true, false]);
    assert_eq!(and(&[(RST, true), (SYN, false), (ACK, false)]), [false; 3], "the connection is still alive");
    assert_eq!(and(&[(RST, true), (SYN, false), (SYN | ACK, true), (ACK, false)]), [false, false, true, false]);
    assert_eq!(and(&[(SYN, false), (SYN, true), (SYN | ACK, true)]), [false; 3]);
    assert_eq!(lost(&[(SYN, false), (RST, true), (SYN, false)]), [false, true], "refused, then tried again");
}

/// Regression: a FIN and a SYN outside of the window changed a live connection to one that is not established. The
/// receiver answers them with an ACK (RFC 5961 section 4).
#[test]
fn a_forged_fin_and_syn_do_not_end_an_established_connection() {
    let ends = [(FIN | ACK, true), (FIN | ACK, false), (SYN, false)];
    for (answer, established) in [((ACK, true), true), ((SYN | ACK, true), false)] {
        let mut connection = Connection::new(TCP, SYN, ICMP);
        for (flags, reply) in [(SYN | ACK, true), (ACK, false)].iter().chain(&ends).chain([&answer]) {
            connection.passes(*flags, *reply);
        }
        assert_eq!(connection.is_established(false), established);
        connection.passes(ACK, false);
        assert!(connection.is_established(false));
    }
}

/// Regression: a FIN before the answer to the SYN was counted, so that a FIN of the other side alone ended the
/// connection.
#[test]
fn a_stray_fin_before_the_answer_ends_nothing() {
    let open = [(SYN | ACK, true), (ACK, false)];
    for stray in [false, true] {
        let before = [&[(SYN, false), (FIN | ACK, stray)], &open[..]].concat();
        assert_eq!(after(TCP, &[&before[..], &[(FIN | ACK, !stray)]].concat()), Phase::TcpEstablished);
    }
    // A server that closes the connection at once.
    let early = [(SYN, false), (SYN | ACK, true), (FIN | ACK, true), (ACK, false)];
    assert_eq!(after(TCP, &early), Phase::TcpEstablished);
    assert_eq!(after(TCP, &[&early[..], &[(FIN | ACK, false)]].concat()), Phase::TcpClosing);
}

/// Every sequence of six packets, compared with the states of RFC 6146 section 3.5.2.2 and the two documented
/// differences.
#[test]
fn it_is_the_machine_of_rfc_6146() {
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum State {
        Init {
            answered: bool,
        },
        Established,
        FinReceived {
            reply: bool,
        },
        BothFinReceived,
        /// Index of the state to which a packet leads back.
        Trans(u8),
    }
    use State::{BothFinReceived, Established, FinReceived, Init, Trans};
    const HALF: State = FinReceived { reply: false };
    const FROM: [State; 5] =
        [Init { answered: false }, Init { answered: true }, Established, HALF, FinReceived { reply: true }];
    let step = |state: State, flags: u8, reply: bool| {
        if flags == RST {
            let back = FROM.iter().position(|from| *from == state);
            return back.map_or(state, |back| Trans(back as u8));
        }
        let state = if let Trans(back) = state { FROM[usize::from(back)] } else { state };
        match (state, flags, reply) {
            (Init { answered: false }, SYN_ACK, true) => Init { answered: true },
            (Init { answered: true }, ACK, false) => Established,
            (Init { answered: true }, FIN_ACK, false) => FinReceived { reply: false },
            (Established, FIN_ACK, reply) => FinReceived { reply },
            (FinReceived { reply: before }, FIN_ACK, reply) if before != reply => BothFinReceived,
            (state, ..) => state,
        }
    };
    const SYN_ACK: u8 = SYN | ACK;
    const FIN_ACK: u8 = FIN | ACK;
    // Left out: a SYN, which opens again, and a FIN of the other side before the handshake ends. Other tests cover
    // them.
    let packets = [SYN_ACK, ACK, FIN_ACK, RST].into_iter().flat_map(|it| [(it, false), (it, true)]);
    let packets: Vec<_> = packets.collect();
    for sequence in 0..packets.len().pow(6) {
        let (mut connection, mut state) = (Connection::new(TCP, SYN, ICMP), Init { answered: false });
        let mut rest = sequence;
        for _ in 0..6 {
            let (flags, reply) = packets[rest % packets.len()];
            rest /= packets.len();
            if (flags, reply) == (FIN_ACK, true) && matches!(state, Init { .. } | Trans(0 | 1)) {
                continue;
            }
            connection.passes(flags, reply);
            state = step(state, flags, reply);
            let expected = match state {
                Init { .. } => Phase::TcpOpening,
                Established | FinReceived { .. } => Phase::TcpEstablished,
                BothFinReceived | Trans(_) => Phase::TcpClosing,
            };
            assert_eq!(connection.phase(), expected, "{state:?} in {sequence}");
        }
    }
}

#[test]
fn an_older_connection_is_established_once_both_sides_have_sent_packets() {
    assert_eq!(after(TCP, &[(ACK, false)]), Phase::TcpOpening);
    assert_eq!(after(TCP, &[(ACK, false), (ACK, true)]), Phase::TcpEstablished);
}

#[test]
fn other_protocols_have_little_state() {
    assert_eq!(after(UDP, &[(0, false), (0, false)]), Phase::UdpOpening);
    assert_eq!(after(UDP, &[(0, false), (0, true)]), Phase::UdpEstablished);
    assert_eq!(after(ICMP, &[(0, false), (0, true)]), Phase::Icmp);
    assert_eq!(after(47, &[(0, false), (0, true)]), Phase::Other);
}

/// Regression: ICMPv6 was treated like any protocol other than TCP and UDP.
#[test]
fn icmp_is_that_of_the_ip_version() {
    for icmp in [ICMP, ICMPV6] {
        let phases = [ICMP, ICMPV6].map(|protocol| Connection::new(protocol, 0, icmp).phase());
        let own = phases.map(|phase| phase == Phase::Icmp);
        assert_eq!(own, [icmp == ICMP, icmp == ICMPV6], "{phases:?}");
    }
}

/// `goes_on` and `passes` agree for all flags.
#[test]
fn a_packet_that_goes_on_changes_nothing() {
    for protocol in [TCP, UDP, ICMP, 47] {
        for first in 0..64 {
            for (second, third) in (0..64).flat_map(|second| (0..64).map(move |third| (second, third))) {
                let mut connection = Connection::new(protocol, if protocol == TCP { first } else { 0 }, ICMP);
                connection.passes(second, true);
                for reply in [false, true] {
                    let before = connection;
                    if connection.goes_on(if protocol == TCP { third } else { 0 }, reply) {
                        connection.passes(third, reply);
                        assert_eq!(connection, before);
                    }
                }
            }
        }
    }
}

#[test]
fn flags_that_no_host_sends() {
    for flags in [0, FIN, SYN | FIN, SYN | RST, FIN | 0x28] {
        assert!(are_impossible(flags), "{flags:#x}");
    }
    for flags in [SYN, SYN | ACK, ACK, FIN | ACK, RST, RST | ACK, SYN | 0xc0] {
        assert!(!are_impossible(flags), "{flags:#x}");
    }
    assert!(opens(SYN) && opens(SYN | 0xc0) && !opens(SYN | ACK) && !opens(ACK));
}
