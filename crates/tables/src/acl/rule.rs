//! The filter rule: address prefixes, port ranges, a masked protocol and an action.
//!
//! The parser builds types that cannot hold invalid values: a prefix has no bits past its length, and a range does not
//! run backwards. Code behind the parser therefore does not check again.

use std::fmt;
use std::hash::Hash;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::BitAnd;

use forebay_packet::wire::icmp::ICMPV6;
use forebay_packet::wire::ipv4::ICMP;
use forebay_simd::interval_map::Key as IntervalKey;

use super::key::{Decision, HeaderKey, NO_PORTS, TYPED};

/// An address of one family: `u32` for IPv4, `u128` for IPv6. The number is in host byte order, so that the addresses
/// of a prefix are consecutive numbers.
pub trait RuleAddress: IntervalKey + Hash + fmt::Debug + BitAnd<Output = Self> + Send + Sync + 'static {
    /// The number of bits in an address.
    const BITS: u8;
    /// The lowest address.
    const MIN: Self;
    /// The protocol number of the family's ICMP.
    const ICMP: u8;
    /// Returns the mask of a prefix of `length` bits. A length above [`RuleAddress::BITS`] counts as the full length.
    fn mask(length: u8) -> Self;
    /// Returns the last address of the prefix of `length` bits that starts at `self`.
    fn last(self, length: u8) -> Self;
    /// Returns the address before this one; for the lowest address, itself.
    fn before(self) -> Self;
    /// Returns the address in its usual text form.
    fn text(self) -> String;
    /// Returns the address in the lowest [`RuleAddress::BITS`] of 128 bits.
    fn truncate(bits: u128) -> Self;
    /// Returns 128 bits with the address in the lowest.
    fn widen(self) -> u128;
}

macro_rules! address {
    ($type:ty, $text:ty, $icmp:expr) => {
        impl RuleAddress for $type {
            const BITS: u8 = <$type>::BITS as u8;
            const MIN: Self = 0;
            const ICMP: u8 = $icmp;
            fn mask(length: u8) -> Self {
                <$type>::MAX.checked_shl(u32::from(<Self as RuleAddress>::BITS.saturating_sub(length))).unwrap_or(0)
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
pub struct RulePrefix<A> {
    /// The lowest address of the prefix.
    address: A,
    length: u8,
}

impl<A: RuleAddress> RulePrefix<A> {
    /// The prefix that contains every address.
    pub const ANY: RulePrefix<A> = RulePrefix { address: A::MIN, length: 0 };

    /// Creates the prefix of `length` bits that contains `address`. Bits past the length are cleared. A longer length
    /// counts as the full length.
    pub fn new(address: A, length: u8) -> RulePrefix<A> {
        let length = length.min(A::BITS);
        RulePrefix { address: address & A::mask(length), length }
    }

    /// Returns the lowest address of the prefix.
    pub fn first(self) -> A {
        self.address
    }

    /// Returns the highest address of the prefix.
    pub fn last(self) -> A {
        self.address.last(self.length)
    }

    /// Returns the length in bits.
    pub fn length(self) -> u8 {
        self.length
    }

    /// Returns true if the prefix contains every address of `other`.
    pub fn covers(self, other: Self) -> bool {
        self.length <= other.length && self.contains(other.address)
    }

    /// Returns true if the prefix contains `address`.
    pub fn contains(self, address: A) -> bool {
        address & A::mask(self.length) == self.address
    }
}

impl<A: RuleAddress> fmt::Display for RulePrefix<A> {
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
    /// Every port, and packets without ports.
    pub const ANY: PortRange = PortRange { low: 0, high: u16::MAX };

    /// Creates the range between two ports, in either order.
    pub fn new(one: u16, other: u16) -> PortRange {
        PortRange { low: one.min(other), high: one.max(other) }
    }

    /// Returns the first port.
    pub fn low(self) -> u16 {
        self.low
    }

    /// Returns the last port.
    pub fn high(self) -> u16 {
        self.high
    }

    /// Returns true if the range contains every port and so constrains nothing.
    pub fn is_any(self) -> bool {
        self == PortRange::ANY
    }

    /// Returns true if the range contains every port of `other`.
    pub fn covers(self, other: Self) -> bool {
        self.low <= other.low && other.high <= self.high
    }

    /// Returns true if the range contains `port`.
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
    /// The value of the compared bits. All other bits are 0.
    value: u8,
    /// The bits that are compared.
    mask: u8,
}

impl ProtocolMatch {
    /// Every protocol.
    pub const ANY: ProtocolMatch = ProtocolMatch { value: 0, mask: 0 };

    /// Matches the protocols that equal `value` in the bits that `mask` sets.
    pub fn new(value: u8, mask: u8) -> ProtocolMatch {
        ProtocolMatch { value: value & mask, mask }
    }

    /// Matches exactly this protocol.
    pub fn exactly(value: u8) -> ProtocolMatch {
        ProtocolMatch { value, mask: 0xff }
    }

    /// Returns the value of the compared bits.
    pub fn value(self) -> u8 {
        self.value
    }

    /// Returns the mask of the compared bits.
    pub fn mask(self) -> u8 {
        self.mask
    }

    /// Returns true if every protocol matches.
    pub fn is_any(self) -> bool {
        self == ProtocolMatch::ANY
    }

    /// Returns true if this matches every protocol that `other` matches.
    pub fn covers(self, other: Self) -> bool {
        self.mask & other.mask == self.mask && self.contains(other.value)
    }

    /// Returns true if `protocol` matches.
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

/// The action of a rule on a packet that it matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Permit the packet; later rules are not tested.
    Permit,
    /// Drop the packet; later rules are not tested.
    Deny,
    /// Count the packet and continue with the next rule.
    Count,
}

impl Action {
    /// Returns the decision of the action, or `None` for `count`.
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
    pub src: RulePrefix<A>,
    /// Destination addresses.
    pub dst: RulePrefix<A>,
    /// Source ports. In a rule for exactly the family's ICMP: the types.
    pub sport: PortRange,
    /// Destination ports. In a rule for exactly the family's ICMP: the codes.
    pub dport: PortRange,
    /// Protocols.
    pub protocol: ProtocolMatch,
    /// The action on a packet that matches.
    pub action: Action,
}

/// An IPv4 rule.
pub type Rule4 = Rule<u32>;
/// An IPv6 rule.
pub type Rule6 = Rule<u128>;

impl<A: RuleAddress> Rule<A> {
    /// Creates the rule that matches every packet.
    pub fn any(action: Action) -> Rule<A> {
        Rule {
            src: RulePrefix::ANY,
            dst: RulePrefix::ANY,
            sport: PortRange::ANY,
            dport: PortRange::ANY,
            protocol: ProtocolMatch::ANY,
            action,
        }
    }

    /// Returns true if the rule constrains ports, or types and codes of ICMP. The rule then does not match a packet
    /// without these fields.
    pub fn constrains_ports(&self) -> bool {
        !(self.sport.is_any() && self.dport.is_any())
    }

    /// Returns true if the rule's port fields constrain the type and the code of the family's ICMP, which has no ports.
    pub fn constrains_icmp(&self) -> bool {
        self.protocol == ProtocolMatch::exactly(A::ICMP) && self.constrains_ports()
    }

    /// Returns true if the rule matches every packet that `other` matches.
    pub fn covers(&self, other: &Self) -> bool {
        let ports = !self.constrains_ports()
            || other.constrains_ports()
                && self.constrains_icmp() == other.constrains_icmp()
                && self.sport.covers(other.sport)
                && self.dport.covers(other.dport);
        ports && self.src.covers(other.src) && self.dst.covers(other.dst) && self.protocol.covers(other.protocol)
    }

    /// Returns true if the rule can match keys with this protocol word ([`HeaderKey::protocol_word`]).
    pub(super) fn fits(&self, word: u16) -> bool {
        let shown = match (self.constrains_icmp(), self.constrains_ports()) {
            (true, _) => word & TYPED != 0,
            (false, true) => word & NO_PORTS == 0,
            (false, false) => true,
        };
        shown && self.protocol.contains(word as u8)
    }

    /// Returns true if the rule matches `key`. All classifiers are tested against this definition.
    pub fn matches(&self, key: &HeaderKey<A>) -> bool {
        let shown = if self.constrains_icmp() { key.icmp_type() } else { key.ports() };
        let ports = match shown {
            Some((sport, dport)) => self.sport.contains(sport) && self.dport.contains(dport),
            None => !self.constrains_ports(),
        };
        ports && self.src.contains(key.src()) && self.dst.contains(key.dst()) && self.protocol.contains(key.protocol())
    }
}

/// Writes the rule as a ClassBench line with the action at the end.
impl<A: RuleAddress> fmt::Display for Rule<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}\t{}\t{}\t{}\t{}\t{}", self.src, self.dst, self.sport, self.dport, self.protocol, self.action)
    }
}
