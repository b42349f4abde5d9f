//! What is known of a connection from the packets that were seen of it, and how long it is remembered without any.
//!
//! A translator or firewall in the middle follows TCP's state no closer than it needs to (RFC 5382 section 5, RFC 7857
//! section 2): whether a connection is opening, established or closing. Sequence numbers are not looked at.

mod headers;
mod timeouts;

use zerocopy::FromZeros;

pub use headers::{Headers, Plain, Shown};
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

    fn tcp(&mut self, phase: Phase, flags: u8, reply: bool) -> Phase {
        if flags & RST != 0 {
            return Phase::TcpClosing;
        }
        if flags & (SYN | ACK) == SYN {
            // The same ports again: RFC 9293 section 3.6.1 allows it once the connection before is over.
            if phase == Phase::TcpClosing && !reply {
                *self = Self { phase: self.phase, seen: OPENED };
                return Phase::TcpOpening;
            }
            return phase;
        }
        if flags & FIN != 0 {
            self.seen |= if reply { ENDED << 1 } else { ENDED };
        }
        if self.seen & BOTH_ENDED == BOTH_ENDED {
            return Phase::TcpClosing;
        }
        if phase != Phase::TcpOpening {
            return phase;
        }
        match (self.seen & (OPENED | ANSWERED), reply, flags & (SYN | ACK)) {
            (OPENED, true, both) if both == SYN | ACK => {
                self.seen |= ANSWERED;
                phase
            }
            // The handshake's third packet; or, of a connection that was there before we were, one of the other side.
            (3, false, ACK) | (0, true, ACK) => Phase::TcpEstablished,
            _ => phase,
        }
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
