//! What a filter rule says: address prefixes, port ranges, a masked protocol and an action.
//!
//! Parsed once at the edge into types that cannot hold nonsense (a prefix has no bits past its length, a range does
//! not run backwards), so that nothing behind the parser checks again.

use std::fmt;
use std::hash::Hash;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::BitAnd;

use forebay_packet::wire::icmp::ICMPV6;
use forebay_packet::wire::ipv4::ICMP;
use forebay_simd::interval_map::Key as IntervalKey;

use super::key::{Decision, Key, NO_PORTS, TYPED};

/// An address family's address: `u32` for IPv4, `u128` for IPv6, in host byte order so that numeric order is
/// prefix order.
pub trait Address: IntervalKey + Hash + fmt::Debug + BitAnd<Output = Self> + Send + Sync + 'static {
    /// Bits in an address.
    const BITS: u8;
    /// The lowest address.
    const MIN: Self;
    /// The protocol number of the family's ICMP.
    const ICMP: u8;
    /// The mask of a prefix of `length` bits; longer lengths count as the full one.
    fn mask(length: u8) -> Self;
    /// The last address of the prefix that starts at `self`.
    fn last(self, length: u8) -> Self;
    /// The address before this one; the lowest stays.
    fn before(self) -> Self;
    /// The address as people write it.
    fn text(self) -> String;
    /// The address from 128 bits, of which the lowest [`Address::BITS`] count.
    fn truncate(bits: u128) -> Self;
    /// The address in the lowest bits of 128.
    fn widen(self) -> u128;
}

macro_rules! address {
    ($type:ty, $text:ty, $icmp:expr) => {
        impl Address for $type {
            const BITS: u8 = <$type>::BITS as u8;
            const MIN: Self = 0;
            const ICMP: u8 = $icmp;
            fn mask(length: u8) -> Self {
                <$type>::MAX.checked_shl(u32::from(<Self as Address>::BITS.saturating_sub(length))).unwrap_or(0)
            }
            fn last(self, length: u8) -> Self {
                self | !Self::mask(length)
            }
            fn before(self) -> Self {
                self.saturating_sub(1)
            }
            fn text(self) -> String {
                <$text>::from(self).to_string()
            }
            fn truncate(bits: u128) -> Self {
                bits as $type
            }
            fn widen(self) -> u128 {
                self.into()
            }
        }
    };
}
address!(u32, Ipv4Addr, ICMP);
address!(u128, Ipv6Addr, ICMPV6);

/// An address prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix<A> {
    address: A,
    length: u8,
}

impl<A: Address> Prefix<A> {
    /// The prefix that holds every address.
    pub const ANY: Prefix<A> = Prefix { address: A::MIN, length: 0 };

    /// The prefix of `length` bits that holds `address`; bits past the length are cleared, longer lengths count as
    /// the full one.
    pub fn new(address: A, length: u8) -> Prefix<A> {
        let length = length.min(A::BITS);
        Prefix { address: address & A::mask(length), length }
    }

    /// The lowest address it holds.
    pub fn first(self) -> A {
        self.address
    }

    /// The highest address it holds.
    pub fn last(self) -> A {
        self.address.last(self.length)
    }

    /// Its length in bits.
    pub fn length(self) -> u8 {
        self.length
    }

    /// Whether it holds every address of `other`.
    pub fn covers(self, other: Self) -> bool {
        self.length <= other.length && self.contains(other.address)
    }

    /// Whether it holds `address`.
    pub fn contains(self, address: A) -> bool {
        address & A::mask(self.length) == self.address
    }
}

impl<A: Address> fmt::Display for Prefix<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address.text(), self.length)
    }
}

/// A range of ports, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortRange {
    low: u16,
    high: u16,
}

impl PortRange {
    /// Every port, and packets that show none.
    pub const ANY: PortRange = PortRange { low: 0, high: u16::MAX };

    /// The ports from the lower to the higher of both.
    pub fn new(one: u16, other: u16) -> PortRange {
        PortRange { low: one.min(other), high: one.max(other) }
    }

    /// The first port.
    pub fn low(self) -> u16 {
        self.low
    }

    /// The last port.
    pub fn high(self) -> u16 {
        self.high
    }

    /// Whether it holds every port, so that it constrains nothing.
    pub fn is_any(self) -> bool {
        self == PortRange::ANY
    }

    /// Whether it holds every port of `other`.
    pub fn covers(self, other: Self) -> bool {
        self.low <= other.low && other.high <= self.high
    }

    /// Whether it holds `port`.
    pub fn contains(self, port: u16) -> bool {
        self.low <= port && port <= self.high
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} : {}", self.low, self.high)
    }
}

/// A protocol number under a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProtocolMatch {
    value: u8,
    mask: u8,
}

impl ProtocolMatch {
    /// Every protocol.
    pub const ANY: ProtocolMatch = ProtocolMatch { value: 0, mask: 0 };

    /// The protocols that equal `value` where `mask` has ones.
    pub fn new(value: u8, mask: u8) -> ProtocolMatch {
        ProtocolMatch { value: value & mask, mask }
    }

    /// Exactly this protocol.
    pub fn exactly(value: u8) -> ProtocolMatch {
        ProtocolMatch { value, mask: 0xff }
    }

    /// The wanted bits.
    pub fn value(self) -> u8 {
        self.value
    }

    /// Which bits count.
    pub fn mask(self) -> u8 {
        self.mask
    }

    /// Whether it holds every protocol.
    pub fn is_any(self) -> bool {
        self == ProtocolMatch::ANY
    }

    /// Whether it holds every protocol of `other`.
    pub fn covers(self, other: Self) -> bool {
        self.mask & other.mask == self.mask && self.contains(other.value)
    }

    /// Whether it holds `protocol`.
    #[inline]
    pub fn contains(self, protocol: u8) -> bool {
        protocol & self.mask == self.value
    }
}

impl fmt::Display for ProtocolMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:02X}/0x{:02X}", self.value, self.mask)
    }
}

/// What a rule does to a packet that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Let it pass; no further rule is asked.
    Permit,
    /// Drop it; no further rule is asked.
    Deny,
    /// Count it and go on with the next rule.
    Count,
}

impl Action {
    /// What it decides; nothing for `count`.
    pub fn decision(self) -> Option<Decision> {
        match self {
            Action::Permit => Some(Decision::Permit),
            Action::Deny => Some(Decision::Deny),
            Action::Count => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Action::Permit => "permit",
            Action::Deny => "deny",
            Action::Count => "count",
        })
    }
}

/// A filter rule of one address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rule<A> {
    /// Source addresses.
    pub src: Prefix<A>,
    /// Destination addresses.
    pub dst: Prefix<A>,
    /// Source ports; of a rule for exactly the family's ICMP its types.
    pub sport: PortRange,
    /// Destination ports; of a rule for exactly the family's ICMP its codes.
    pub dport: PortRange,
    /// Protocols.
    pub protocol: ProtocolMatch,
    /// What happens to a packet that matches.
    pub action: Action,
}

/// An IPv4 rule.
pub type Rule4 = Rule<u32>;
/// An IPv6 rule.
pub type Rule6 = Rule<u128>;

impl<A: Address> Rule<A> {
    /// The rule that holds every packet.
    pub fn any(action: Action) -> Rule<A> {
        Rule {
            src: Prefix::ANY,
            dst: Prefix::ANY,
            sport: PortRange::ANY,
            dport: PortRange::ANY,
            protocol: ProtocolMatch::ANY,
            action,
        }
    }

    /// Whether the rule says anything about ports, or about ICMP's types; such a rule matches no packet that shows
    /// none.
    pub fn constrains_ports(&self) -> bool {
        !(self.sport.is_any() && self.dport.is_any())
    }

    /// Whether what it says about ports is about the types and codes of the family's ICMP, which has no ports.
    pub fn constrains_icmp(&self) -> bool {
        self.protocol == ProtocolMatch::exactly(A::ICMP) && self.constrains_ports()
    }

    /// Whether it matches every packet that `other` matches.
    pub fn covers(&self, other: &Self) -> bool {
        let ports = !self.constrains_ports()
            || other.constrains_ports()
                && self.constrains_icmp() == other.constrains_icmp()
                && self.sport.covers(other.sport)
                && self.dport.covers(other.dport);
        ports && self.src.covers(other.src) && self.dst.covers(other.dst) && self.protocol.covers(other.protocol)
    }

    /// Whether it can match keys with this word: the protocol, and whether there are ports or a type.
    pub(super) fn fits(&self, word: u16) -> bool {
        let shown = match (self.constrains_icmp(), self.constrains_ports()) {
            (true, _) => word & TYPED != 0,
            (false, true) => word & NO_PORTS == 0,
            (false, false) => true,
        };
        shown && self.protocol.contains(word as u8)
    }

    /// Whether the rule matches `key`: the definition that every classifier here is tested against.
    pub fn matches(&self, key: &Key<A>) -> bool {
        let shown = if self.constrains_icmp() { key.icmp_type() } else { key.ports() };
        let ports = match shown {
            Some((sport, dport)) => self.sport.contains(sport) && self.dport.contains(dport),
            None => !self.constrains_ports(),
        };
        ports && self.src.contains(key.src()) && self.dst.contains(key.dst()) && self.protocol.contains(key.protocol())
    }
}

/// The ClassBench line of the rule, its action at the end.
impl<A: Address> fmt::Display for Rule<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}\t{}\t{}\t{}\t{}\t{}", self.src, self.dst, self.sport, self.dport, self.protocol, self.action)
    }
}
