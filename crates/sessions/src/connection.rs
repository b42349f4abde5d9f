//! The state of a connection as its packets show it, and the time for which the state is kept without packets.
//!
//! A translator or firewall follows TCP's state no closer than it needs to (RFC 5382 section 5, RFC 7857 section 2):
//! whether a connection is opening, established or closing. Sequence numbers are not checked, so the hosts may ignore a
//! packet that changes the state here (RFC 5961 section 3). Such a packet alone must not end a connection. Therefore
//! this module uses the state machine of RFC 6146 section 3.5.2.2, in which traffic after a reset returns the
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
    /// The events of TCP that were seen, as flags: [`OPENED`], [`ANSWERED`], [`ENDED`], [`ESTABLISHED`], and
    /// [`MARKED`].
    seen: u8,
}

/// The SYN of the opener.
const OPENED: u8 = 1;
/// The SYN with an acknowledgement of the other side.
const ANSWERED: u8 = 2;
/// A FIN of the opener. The next higher bit is a FIN of the other side.
const ENDED: u8 = 4;
/// FINs of both sides.
const BOTH_ENDED: u8 = 3 * ENDED;
/// The handshake was complete. After a reset, this flag shows that traffic returns the connection to the established
/// phase.
const ESTABLISHED: u8 = 16;
/// Another module stores something about the connection.
const MARKED: u8 = 32;

impl Connection {
    /// Creates the state from the first packet of a connection: its protocol and its TCP flags. `icmp` is the protocol
    /// number of the ICMP that belongs to the packet's IP version. ICMP of the other version is handled like any other
    /// protocol, because its 5-tuple does not show which side sends the query.
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

    /// Returns true if both sides have agreed on the connection. `reply` is true if the present packet comes from the
    /// side that did not open the connection. For ICMP queries and other protocols only this is known: a reply proves
    /// that both sides have sent packets.
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

    /// Returns true if the connection is [marked](Self::mark).
    #[must_use]
    pub fn is_marked(self) -> bool {
        self.seen & MARKED != 0
    }

    /// Returns true if a packet with these TCP flags (0 for other protocols) certainly leaves the state unchanged, as
    /// nearly all packets do. Otherwise [`passes`](Self::passes) must be called. `reply` is true for a packet of the
    /// side that did not open the connection.
    #[inline(always)]
    #[must_use]
    pub fn goes_on(self, flags: u8, reply: bool) -> bool {
        const STEADY: u32 = 1 << Phase::TcpEstablished as u32 | 1 << Phase::UdpEstablished as u32;
        const UNANSWERED: u32 = STEADY | 1 << Phase::UdpOpening as u32;
        let steady = if reply { STEADY } else { UNANSWERED };
        (steady >> self.phase) & 1 == 1 && flags & (SYN | FIN | RST) == 0
    }

    /// Updates the state for a packet with these TCP flags (0 for other protocols). `reply` is true for a packet of the
    /// side that did not open the connection.
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
        // A reset has led to `TcpClosing` (TRANS in the RFC). Any packet except another reset leads back.
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
        // A connection cannot end before the other side has answered the opener's SYN, so a FIN is ignored until then.
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
                // If a connection was established before this SYN, the answer shows that a new connection replaces it.
                // The new connection is not marked.
                let kept = if self.seen & ESTABLISHED == 0 { MARKED } else { 0 };
                self.seen = self.seen & (kept | !MARKED) | ANSWERED;
                false
            }
            // The third packet of the handshake. Or, in a connection that is older than this table, a packet of the
            // other side.
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

/// Returns true if a TCP packet with these flags may open a connection: a SYN without ACK, FIN and RST.
#[must_use]
pub fn opens(flags: u8) -> bool {
    flags & (SYN | ACK | FIN | RST) == SYN
}

/// Returns true if no TCP sends these flags: none of SYN, ACK and RST, or SYN together with FIN or RST.
#[must_use]
pub fn are_impossible(flags: u8) -> bool {
    flags & (SYN | ACK | RST) == 0 || flags & SYN != 0 && flags & (FIN | RST) != 0
}

#[cfg(test)]
mod tests;
