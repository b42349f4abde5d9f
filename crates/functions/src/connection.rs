//! What is known of a connection from the packets that were seen of it, and how long it is remembered without any.
//!
//! A translator or firewall in the middle follows TCP's state no closer than it needs to (RFC 5382 section 5, RFC 7857
//! section 2): whether a connection is opening, established or closing. Sequence numbers are not looked at, so that a
//! packet may be one that the ends ignore (RFC 5961 section 3). No such packet alone may end a connection: the machine
//! is that of RFC 6146 section 3.5.2.2, in which traffic after a reset leads back to where the connection was.

mod headers;
mod icmp;
mod lookup;
mod timeouts;

use zerocopy::FromZeros;

pub use headers::{Headers, Plain, Shown};
pub use icmp::shown_ports;
pub use lookup::{FoundSession, LentSessions, SessionLookup, SessionRow, SessionStanding};
pub use timeouts::{ENDS, ENDS_WOKEN, SlotClock, TimeoutParams, Timeouts};

use forebay_packet::wire::ipv4::{TCP, UDP};

/// TCP's control bits (RFC 9293 section 3.1).
pub mod flags {
    /// No more data from the sender.
    pub const FIN: u8 = 1;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 2;
    /// Reset the connection.
    pub const RST: u8 = 4;
    /// The acknowledgement field means something.
    pub const ACK: u8 = 16;
}
use flags::{ACK, FIN, RST, SYN};

/// How far a connection is: what decides how long it is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// TCP before its handshake is complete.
    TcpOpening,
    /// TCP.
    TcpEstablished,
    /// TCP that both sides have ended, or one has reset.
    TcpClosing,
    /// UDP of which one side was heard.
    UdpOpening,
    /// UDP of which both sides were heard.
    UdpEstablished,
    /// ICMP queries.
    Icmp,
    /// Whatever else.
    Other,
}

impl Phase {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::TcpOpening,
        Self::TcpEstablished,
        Self::TcpClosing,
        Self::UdpOpening,
        Self::UdpEstablished,
        Self::Icmp,
        Self::Other,
    ];

    /// Its name, as it is shown.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TcpOpening => "opening",
            Self::TcpEstablished | Self::UdpEstablished => "established",
            Self::TcpClosing => "closing",
            Self::UdpOpening => "unanswered",
            Self::Icmp | Self::Other => "seen",
        }
    }
}

/// Places for phases: as many as there are, up to a power of two, so that no number need be checked.
const PHASES: usize = Phase::ALL.len().next_power_of_two();
/// Phases by their numbers.
const BY_NUMBER: [Phase; PHASES] = {
    let mut all = [Phase::Other; PHASES];
    all.split_at_mut(Phase::ALL.len()).0.copy_from_slice(&Phase::ALL);
    all
};

/// A connection as far as its packets tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct Connection {
    /// The number of its [`Phase`].
    phase: u8,
    /// Which of TCP's turning points were seen.
    seen: u8,
}

/// The opener's SYN.
const OPENED: u8 = 1;
/// The other side's SYN with an acknowledgement.
const ANSWERED: u8 = 2;
/// A FIN, of the opener and (shifted by one) of the other side.
const ENDED: u8 = 4;
const BOTH_ENDED: u8 = 3 * ENDED;
/// The end of a handshake. After a reset it says whether traffic leads back to an established connection.
const ESTABLISHED: u8 = 16;
/// A module keeps something about the connection elsewhere.
const MARKED: u8 = 32;

impl Connection {
    /// A connection whose first packet, of this protocol and with these TCP flags, has just been seen. `icmp` is the number of the
    /// ICMP that belongs to the packet's IP version: the other version's is a protocol like others, of which nobody can tell who asks.
    #[must_use]
    pub fn new(protocol: u8, flags: u8, icmp: u8) -> Self {
        let phase = match protocol {
            TCP => Phase::TcpOpening,
            UDP => Phase::UdpOpening,
            it if it == icmp => Phase::Icmp,
            _ => Phase::Other,
        };
        let mut new = Self { phase: phase as u8, seen: 0 };
        if protocol == TCP && flags & (SYN | ACK) == SYN {
            new.seen = OPENED;
        }
        new.passes(flags, false);
        new
    }

    /// How far it is.
    #[inline(always)]
    #[must_use]
    pub fn phase(self) -> Phase {
        BY_NUMBER[usize::from(self.phase) % PHASES]
    }

    /// Whether both sides have agreed on it. Of ICMP queries and others nothing is remembered: a `reply` shows that
    /// there were both.
    #[must_use]
    pub fn is_established(self, reply: bool) -> bool {
        match self.phase() {
            Phase::TcpEstablished | Phase::UdpEstablished => true,
            Phase::TcpOpening => false,
            // What ends a connection, or resets it, is of an established one.
            Phase::TcpClosing => self.seen & ESTABLISHED != 0,
            Phase::UdpOpening | Phase::Icmp | Phase::Other => reply,
        }
    }

    /// Marks the connection. The mark ends with it: a connection that takes over its ports is not marked. A reset and a
    /// SYN alone do not end a connection. The answer to the SYN does.
    pub fn mark(&mut self) {
        self.seen |= MARKED;
    }

    /// Whether it is [marked](Self::mark).
    #[must_use]
    pub fn is_marked(self) -> bool {
        self.seen & MARKED != 0
    }

    /// Whether it goes on as before when a packet with these TCP flags passes (0 of what is not TCP), of the side that did not
    /// open it where it is a `reply`: what nearly all do.
    #[inline(always)]
    #[must_use]
    pub fn goes_on(self, flags: u8, reply: bool) -> bool {
        const STEADY: u32 = 1 << Phase::TcpEstablished as u32 | 1 << Phase::UdpEstablished as u32;
        const UNANSWERED: u32 = STEADY | 1 << Phase::UdpOpening as u32;
        let steady = if reply { STEADY } else { UNANSWERED };
        (steady >> self.phase) & 1 == 1 && flags & (SYN | FIN | RST) == 0
    }

    /// A packet passes, of the side that did not open the connection where it is a `reply`.
    pub fn passes(&mut self, flags: u8, reply: bool) {
        let after = match self.phase() {
            Phase::UdpOpening if reply => Phase::UdpEstablished,
            tcp @ (Phase::TcpOpening | Phase::TcpEstablished | Phase::TcpClosing) => self.tcp(tcp, flags, reply),
            other => other,
        };
        self.phase = after as u8;
    }

    /// The phase after a packet of TCP. Two phases differ from the states of RFC 6146 section 3.5.2.2: a connection is
    /// opening until the handshake's third packet, and a reset leads to the short time-out whatever was before (RFC
    /// 7857 section 2.2).
    fn tcp(&mut self, phase: Phase, flags: u8, reply: bool) -> Phase {
        if flags & RST != 0 {
            return Phase::TcpClosing;
        }
        let over = self.seen & BOTH_ENDED == BOTH_ENDED;
        if flags & (SYN | ACK) == SYN && phase == Phase::TcpClosing && !reply {
            // The same ports again: RFC 9293 section 3.6.1 allows it once the connection before is over. It may not be:
            // a reset or a FIN outside of the window ends nothing, and its receiver answers the SYN with an ACK (RFC
            // 5961 section 4). So what was established is remembered until the other side answers.
            let may_live = self.seen & ESTABLISHED != 0;
            self.seen = OPENED | if may_live { self.seen & (ESTABLISHED | MARKED) } else { 0 };
            return Phase::TcpOpening;
        }
        if over {
            return Phase::TcpClosing;
        }
        // Any packet but a reset leads back from the state TRANS.
        let established = self.seen & ESTABLISHED != 0;
        let phase = match phase {
            Phase::TcpClosing if established => Phase::TcpEstablished,
            Phase::TcpClosing => Phase::TcpOpening,
            other => other,
        };
        if flags & (SYN | ACK) == SYN {
            return phase;
        }
        let phase = if phase == Phase::TcpOpening { self.handshake(flags, reply) } else { phase };
        // Between the opener's SYN and its answer nothing can end: such a FIN is none of the connection's.
        let unanswered = phase == Phase::TcpOpening && self.seen & (OPENED | ANSWERED) == OPENED;
        if flags & FIN != 0 && !unanswered {
            self.seen |= if reply { ENDED << 1 } else { ENDED };
        }
        if self.seen & BOTH_ENDED == BOTH_ENDED { Phase::TcpClosing } else { phase }
    }

    /// The phase after a packet of a connection whose handshake is not complete.
    fn handshake(&mut self, flags: u8, reply: bool) -> Phase {
        let complete = match (self.seen & (OPENED | ANSWERED), reply, flags & (SYN | ACK)) {
            (OPENED, true, both) if both == SYN | ACK => {
                // After a reset, the answer to a SYN is that of another connection.
                let kept = if self.seen & ESTABLISHED == 0 { MARKED } else { 0 };
                self.seen = self.seen & (kept | !MARKED) | ANSWERED;
                false
            }
            // The handshake's third packet; or, of a connection that was there before we were, one of the other side.
            (3, false, ACK) | (0, true, ACK) => true,
            // The connection from before a reset and a SYN lives on.
            _ => self.seen & ESTABLISHED != 0 && flags & SYN == 0,
        };
        if !complete {
            return Phase::TcpOpening;
        }
        self.seen |= ESTABLISHED;
        Phase::TcpEstablished
    }
}

/// Whether a TCP packet with these flags may be the first of a connection.
#[must_use]
pub fn opens(flags: u8) -> bool {
    flags & (SYN | ACK | FIN | RST) == SYN
}

/// Whether no TCP sends such flags: none of SYN, ACK and RST, or SYN together with what ends a connection.
#[must_use]
pub fn are_impossible(flags: u8) -> bool {
    flags & (SYN | ACK | RST) == 0 || flags & SYN != 0 && flags & (FIN | RST) != 0
}

#[cfg(test)]
mod tests {
    use forebay_packet::wire::icmp::ICMPV6;
    use forebay_packet::wire::ipv4::ICMP;

    use super::*;

    /// Runs a connection through packets, each with its flags and whether it is a reply.
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
        // Neither side alone, nor an answer that was not asked for.
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
        assert_eq!(and(&[(SYN, false)]), Phase::TcpEstablished, "nobody ends a connection by a SYN");
    }

    /// A stray reset left a live connection on the short time-out for good.
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
                // Half closed it was and is; its other half's FIN still ends it.
                assert_eq!(and(&[(FIN | ACK, false), reset, (ACK, lives)]), Phase::TcpEstablished);
                assert_eq!(and(&[(FIN | ACK, false), reset, (ACK, lives), (FIN | ACK, true)]), Phase::TcpClosing);
                // A connection that both sides have ended stays so.
                assert_eq!(and(&[(FIN | ACK, false), (FIN | ACK, true), reset, (ACK, lives)]), Phase::TcpClosing);
                // A SYN after the reset that no host meant; the answer to it comes from the connection that lives on.
                assert_eq!(and(&[reset, (SYN, false), (ACK, lives)]), Phase::TcpEstablished);
                assert_eq!(and(&[reset, (SYN, false), (SYN | ACK, true)]), Phase::TcpOpening);
                assert_eq!(
                    and(&[reset, (SYN, false), reset, (SYN, true)]),
                    Phase::TcpEstablished,
                    "RFC 6146: likewise"
                );
                // Of one that was not established yet the handshake goes on, and nothing but that establishes it.
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
        // Whether the mark is lost at each packet. It is set before each one.
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
        assert_eq!(and(&[(RST, true), (SYN, false), (ACK, false)]), [false; 3], "it lives on");
        assert_eq!(and(&[(RST, true), (SYN, false), (SYN | ACK, true), (ACK, false)]), [false, false, true, false]);
        assert_eq!(and(&[(SYN, false), (SYN, true), (SYN | ACK, true)]), [false; 3]);
        assert_eq!(lost(&[(SYN, false), (RST, true), (SYN, false)]), [false, true], "refused, then tried again");
    }

    /// A FIN and a SYN outside of the window made a live connection one that is not established. Their receiver answers
    /// them with an ACK (RFC 5961 section 4).
    #[test]
    fn a_forged_fin_and_syn_do_not_end_what_is_established() {
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

    /// One side's FIN before the other had answered counted, so that the other side's alone ended the connection.
    #[test]
    fn a_stray_fin_before_the_answer_ends_nothing() {
        let open = [(SYN | ACK, true), (ACK, false)];
        for stray in [false, true] {
            let before = [&[(SYN, false), (FIN | ACK, stray)], &open[..]].concat();
            assert_eq!(after(TCP, &[&before[..], &[(FIN | ACK, !stray)]].concat()), Phase::TcpEstablished);
        }
        // A server that ends at once.
        let early = [(SYN, false), (SYN | ACK, true), (FIN | ACK, true), (ACK, false)];
        assert_eq!(after(TCP, &early), Phase::TcpEstablished);
        assert_eq!(after(TCP, &[&early[..], &[(FIN | ACK, false)]].concat()), Phase::TcpClosing);
    }

    /// Every sequence of six packets, against the states of RFC 6146 section 3.5.2.2 with the two differences that are
    /// documented.
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
            /// From which it leads back.
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
        // No SYN, which opens again, and no FIN of who was asked before the handshake ends: those have tests above.
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
    fn what_was_there_before_is_picked_up_once_both_sides_are_heard() {
        assert_eq!(after(TCP, &[(ACK, false)]), Phase::TcpOpening);
        assert_eq!(after(TCP, &[(ACK, false), (ACK, true)]), Phase::TcpEstablished);
    }

    #[test]
    fn others_have_little_state() {
        assert_eq!(after(UDP, &[(0, false), (0, false)]), Phase::UdpOpening);
        assert_eq!(after(UDP, &[(0, false), (0, true)]), Phase::UdpEstablished);
        assert_eq!(after(ICMP, &[(0, false), (0, true)]), Phase::Icmp);
        assert_eq!(after(47, &[(0, false), (0, true)]), Phase::Other);
    }

    /// Of ICMPv6 nothing was known but that it is no TCP and no UDP.
    #[test]
    fn icmp_is_that_of_the_ip_version() {
        for icmp in [ICMP, ICMPV6] {
            let phases = [ICMP, ICMPV6].map(|protocol| Connection::new(protocol, 0, icmp).phase());
            let own = phases.map(|phase| phase == Phase::Icmp);
            assert_eq!(own, [icmp == ICMP, icmp == ICMPV6], "{phases:?}");
        }
    }

    /// Whatever comes, a connection that goes on as before does: the short way and the long one agree.
    #[test]
    fn what_goes_on_changes_nothing() {
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
    fn flags_that_nobody_sends() {
        for flags in [0, FIN, SYN | FIN, SYN | RST, FIN | 0x28] {
            assert!(are_impossible(flags), "{flags:#x}");
        }
        for flags in [SYN, SYN | ACK, ACK, FIN | ACK, RST, RST | ACK, SYN | 0xc0] {
            assert!(!are_impossible(flags), "{flags:#x}");
        }
        assert!(opens(SYN) && opens(SYN | 0xc0) && !opens(SYN | ACK) && !opens(ACK));
    }
}
