//! The state of a connection as its packets show it, and how long it is kept without packets.
//!
//! A translator or firewall follows TCP's state no closer than it needs to (RFC 5382 section 5, RFC 7857 section 2):
//! whether a connection is opening, established or closing. Sequence numbers are not checked, so a packet that changes
//! the state may be one that the hosts ignore (RFC 5961 section 3). No such packet alone may end a connection.
//! Therefore this is the state machine of RFC 6146 section 3.5.2.2, in which traffic after a reset returns the
//! connection to its previous state.

mod headers;
mod icmp;
mod lookup;
mod timeouts;

use zerocopy::FromZeros;

pub use headers::{Headers, Shown};
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
    /// The acknowledgement field is valid.
    pub const ACK: u8 = 16;
}
use flags::{ACK, FIN, RST, SYN};

/// The phase of a connection, which determines its time-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// TCP before the handshake is complete.
    TcpOpening,
    /// TCP after the handshake.
    TcpEstablished,
    /// TCP after FINs from both sides, or after a reset.
    TcpClosing,
    /// UDP with packets from one side only.
    UdpOpening,
    /// UDP with packets from both sides.
    UdpEstablished,
    /// ICMP queries.
    Icmp,
    /// Any other protocol.
    Other,
}

impl Phase {
    /// All phases, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::TcpOpening,
        Self::TcpEstablished,
        Self::TcpClosing,
        Self::UdpOpening,
        Self::UdpEstablished,
        Self::Icmp,
        Self::Other,
    ];

    /// Returns the name that operators see.
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

/// Number of phases, rounded up to a power of two so that an index can be masked instead of checked.
const PHASES: usize = Phase::ALL.len().next_power_of_two();
/// The phases by their numbers.
const BY_NUMBER: [Phase; PHASES] = {
    let mut all = [Phase::Other; PHASES];
    all.split_at_mut(Phase::ALL.len()).0.copy_from_slice(&Phase::ALL);
    all
};

/// State of a connection, as its packets show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromZeros)]
#[repr(C)]
pub struct Connection {
    /// The number of its [`Phase`].
    phase: u8,
    /// Events of TCP that were seen: [`OPENED`] and the flags after it.
    seen: u8,
}

/// The SYN of the opener.
const OPENED: u8 = 1;
/// The SYN with an acknowledgement of the other side.
const ANSWERED: u8 = 2;
/// A FIN of the opener. Shifted left by one: of the other side.
const ENDED: u8 = 4;
const BOTH_ENDED: u8 = 3 * ENDED;
/// The handshake was complete. After a reset it shows that traffic returns the connection to the established phase.
const ESTABLISHED: u8 = 16;
/// Another module stores something about the connection.
const MARKED: u8 = 32;

impl Connection {
    /// Creates the state from the first packet of a connection: its protocol and its TCP flags. `icmp` is the protocol
    /// number of the ICMP that belongs to the packet's IP version. The other version's ICMP is handled like any other
    /// protocol, because it does not show which side sends the query.
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

    /// Returns the phase.
    #[inline(always)]
    #[must_use]
    pub fn phase(self) -> Phase {
        BY_NUMBER[usize::from(self.phase) % PHASES]
    }

    /// Whether both sides have agreed on the connection. For ICMP queries and other protocols no state is kept: a
    /// `reply` shows that there are packets from both sides.
    #[must_use]
    pub fn is_established(self, reply: bool) -> bool {
        match self.phase() {
            Phase::TcpEstablished | Phase::UdpEstablished => true,
            Phase::TcpOpening => false,
            // A FIN or a reset only belongs to an established connection.
            Phase::TcpClosing => self.seen & ESTABLISHED != 0,
            Phase::UdpOpening | Phase::Icmp | Phase::Other => reply,
        }
    }

    /// Marks the connection. The mark ends with the connection: a new connection with the same ports is not marked. A
    /// reset and a SYN do not end a connection until the other side answers the SYN.
    pub fn mark(&mut self) {
        self.seen |= MARKED;
    }

    /// Whether it is [marked](Self::mark).
    #[must_use]
    pub fn is_marked(self) -> bool {
        self.seen & MARKED != 0
    }

    /// Whether a packet with these TCP flags (0 for other protocols) leaves the state unchanged. `reply` is true for a
    /// packet of the side that did not open the connection. Nearly all packets leave it unchanged.
    #[inline(always)]
    #[must_use]
    pub fn goes_on(self, flags: u8, reply: bool) -> bool {
        const STEADY: u32 = 1 << Phase::TcpEstablished as u32 | 1 << Phase::UdpEstablished as u32;
        const UNANSWERED: u32 = STEADY | 1 << Phase::UdpOpening as u32;
        let steady = if reply { STEADY } else { UNANSWERED };
        (steady >> self.phase) & 1 == 1 && flags & (SYN | FIN | RST) == 0
    }

    /// Updates the state for a packet. `reply` is true for a packet of the side that did not open the connection.
    pub fn passes(&mut self, flags: u8, reply: bool) {
        let after = match self.phase() {
            Phase::UdpOpening if reply => Phase::UdpEstablished,
            tcp @ (Phase::TcpOpening | Phase::TcpEstablished | Phase::TcpClosing) => self.tcp(tcp, flags, reply),
            other => other,
        };
        self.phase = after as u8;
    }

    /// Returns the phase after a TCP packet. Two phases differ from the states of RFC 6146 section 3.5.2.2. A
    /// connection is opening until the third packet of the handshake. A reset leads to the short time-out from any
    /// state (RFC 7857 section 2.2).
    fn tcp(&mut self, phase: Phase, flags: u8, reply: bool) -> Phase {
        if flags & RST != 0 {
            return Phase::TcpClosing;
        }
        let over = self.seen & BOTH_ENDED == BOTH_ENDED;
        if flags & (SYN | ACK) == SYN && phase == Phase::TcpClosing && !reply {
            // The opener uses the ports again, which RFC 9293 section 3.6.1 allows after the previous connection. That
            // connection may still be alive: its receiver ignores a reset or a FIN outside of the window, and answers
            // the SYN with an ACK (RFC 5961 section 4). So an established state is remembered until the other side
            // answers.
            let may_live = self.seen & ESTABLISHED != 0;
            self.seen = OPENED | if may_live { self.seen & (ESTABLISHED | MARKED) } else { 0 };
            return Phase::TcpOpening;
        }
        if over {
            return Phase::TcpClosing;
        }
        // Any packet except a reset leads back from the state TRANS.
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
        // Between the opener's SYN and its answer a connection cannot end, so a FIN is ignored.
        let unanswered = phase == Phase::TcpOpening && self.seen & (OPENED | ANSWERED) == OPENED;
        if flags & FIN != 0 && !unanswered {
            self.seen |= if reply { ENDED << 1 } else { ENDED };
        }
        if self.seen & BOTH_ENDED == BOTH_ENDED { Phase::TcpClosing } else { phase }
    }

    /// Returns the phase after a packet of a connection whose handshake is not complete.
    fn handshake(&mut self, flags: u8, reply: bool) -> Phase {
        let complete = match (self.seen & (OPENED | ANSWERED), reply, flags & (SYN | ACK)) {
            (OPENED, true, both) if both == SYN | ACK => {
                // After a reset, an answer to a SYN belongs to a new connection.
                let kept = if self.seen & ESTABLISHED == 0 { MARKED } else { 0 };
                self.seen = self.seen & (kept | !MARKED) | ANSWERED;
                false
            }
            // The third packet of the handshake; or a packet of the other side, if the connection is older than this
            // table.
            (3, false, ACK) | (0, true, ACK) => true,
            // The connection from before a reset and a SYN is still alive.
            _ => self.seen & ESTABLISHED != 0 && flags & SYN == 0,
        };
        if !complete {
            return Phase::TcpOpening;
        }
        self.seen |= ESTABLISHED;
        Phase::TcpEstablished
    }
}

/// Whether a TCP packet with these flags may open a connection.
#[must_use]
pub fn opens(flags: u8) -> bool {
    flags & (SYN | ACK | FIN | RST) == SYN
}

/// Whether no TCP sends these flags: none of SYN, ACK and RST, or SYN together with FIN or RST.
#[must_use]
pub fn are_impossible(flags: u8) -> bool {
    flags & (SYN | ACK | RST) == 0 || flags & SYN != 0 && flags & (FIN | RST) != 0
}

#[cfg(test)]
mod tests {
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
                assert_eq!(
                    and(&[reset, (SYN, false), reset, (SYN, true)]),
                    Phase::TcpEstablished,
                    "RFC 6146: likewise"
                );
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
}
