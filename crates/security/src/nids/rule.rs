//! The types of a parsed rule.

mod payload;

use forebay_sessions::connection::SessionStanding;

use super::ranges::{Hosts, Ranges};
pub use payload::{
    Amount, Base, ChainStep, Comparison, Content, ContentRange, Jump, Link, Number, NumberForm, Operator, Pcre,
};

/// The action on a packet that a rule matches. The variants are in order of precedence: if several rules match a
/// packet, the first of their actions decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// The packet passes, whatever other rules match it.
    Pass,
    /// The packet is dropped and reported.
    Drop,
    /// The packet is reported.
    Alert,
    /// The packet is reported, and counted as logged instead of alerted.
    Log,
}

impl Action {
    /// Returns the action's name in rules.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Drop => "drop",
            Self::Alert => "alert",
            Self::Log => "log",
        }
    }
}

/// The protocol in a rule's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP or ICMPv6.
    Icmp,
    /// Any protocol over IP.
    Ip,
}

/// A test of a number against a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberRange {
    /// The least number in the range.
    pub first: u32,
    /// The greatest number in the range.
    pub last: u32,
    /// True if the number must be outside the range.
    pub not: bool,
}

impl NumberRange {
    /// Returns true if `number` passes the test.
    #[inline]
    #[must_use]
    pub fn holds(self, number: u32) -> bool {
        (self.first..=self.last).contains(&number) != self.not
    }
}

/// How bits are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitMatch {
    /// Exactly these bits are set.
    Exactly,
    /// All of these bits are set.
    All,
    /// At least one of these bits is set.
    Any,
    /// None of these bits is set.
    None,
}

impl BitMatch {
    /// Returns true if the packet's bits `is` pass the comparison with `bits`.
    #[inline]
    #[must_use]
    pub fn holds(self, is: u8, bits: u8) -> bool {
        match self {
            Self::Exactly => is == bits,
            Self::All => is & bits == bits,
            Self::Any => is & bits != 0,
            Self::None => is & bits == 0,
        }
    }
}

/// A test of headers or of the payload's size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// The payload's size in bytes.
    Size(NumberRange),
    /// TCP's control bits within a mask.
    Flags {
        /// The comparison.
        how: BitMatch,
        /// The bits to compare with.
        bits: u8,
        /// The bits that are compared.
        mask: u8,
    },
    /// TCP's control bits within a mask. Packets of other protocols pass the test.
    FlagsOfTcp {
        /// The comparison.
        how: BitMatch,
        /// The bits to compare with.
        bits: u8,
        /// The bits that are compared.
        mask: u8,
    },
    /// The type of an ICMP message.
    IcmpType(NumberRange),
    /// The code of an ICMP message.
    IcmpCode(NumberRange),
    /// The time to live, or the hop limit.
    Ttl(NumberRange),
    /// The protocol above IP.
    IpProtocol(NumberRange),
    /// The source address equals the destination address.
    SameAddress,
    /// Another number in a header.
    Field(Field, NumberRange),
    /// The fragment bits of an IPv4 header: reserved (4), don't fragment (2), more fragments (1).
    FragmentBits {
        /// The comparison.
        how: BitMatch,
        /// The bits to compare with.
        bits: u8,
    },
    /// The presence of an IPv4 header option with this number, or of any option.
    IpOption(Option<u8>),
}

/// A number in a header. It is read only when a rule compares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Type of service, or traffic class.
    Tos,
    /// The identification of an IPv4 header.
    Id,
    /// The fragment offset of an IPv4 header, in units of eight bytes.
    FragmentOffset,
    /// TCP's sequence number.
    Sequence,
    /// TCP's acknowledgement number.
    Acknowledgement,
    /// TCP's window.
    Window,
    /// The identifier of an echo request or reply.
    IcmpId,
    /// The sequence number of an echo request or reply.
    IcmpSequence,
}

/// The addresses by which matches are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Track {
    /// By source.
    Source,
    /// By destination.
    Destination,
    /// By pair of source and destination.
    Both,
    /// All matches of the rule together.
    Rule,
}

/// The effect of a limit ([`Limit`]), according to the number of matches within a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    /// The first `count` matches of a period are ignored. The rule matches from the next one on (`detection_filter`).
    Filter,
    /// The first `count` matches of a period are reported.
    Limit,
    /// Every match whose number in the period is a multiple of `count` is reported.
    Threshold,
    /// Only match number `count` of a period is reported.
    Both,
}

/// A limit on how often a rule matches or is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The effect.
    pub kind: LimitKind,
    /// The addresses by which matches are counted.
    pub track: Track,
    /// The number of matches.
    pub count: u32,
    /// The length of the period, in seconds.
    pub seconds: u32,
}

/// The conditions of the option `flow` on a packet's session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowTest {
    /// True if the session must be established, false if it must not be established, `None` if both match.
    pub established: Option<bool>,
    /// True if the sender must be the side that opened the session, false if it must be the other side, `None` if both
    /// match.
    pub to_server: Option<bool>,
}

impl FlowTest {
    /// Returns true if the session meets the conditions.
    #[must_use]
    pub fn matches(self, standing: SessionStanding) -> bool {
        self.established.is_none_or(|wanted| wanted == standing.established)
            && self.to_server.is_none_or(|wanted| standing.to_server == Some(wanted))
    }
}

/// An operation of `flowbits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitOperation {
    /// Sets bits.
    Set,
    /// Unsets bits.
    Unset,
    /// Sets bits that are not set, and unsets the others.
    Toggle,
    /// Tests whether bits are set.
    IsSet,
    /// Tests the opposite of [`IsSet`](Self::IsSet).
    IsNotSet,
    /// Unsets all bits of the session.
    Reset,
}

/// The names of bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BitNames {
    /// The bits that the rule lists.
    Listed(Vec<String>),
    /// The bits that rules put into this group.
    OfGroup(String),
}

/// An option `flowbits`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitStep {
    /// Its operation.
    pub operation: BitOperation,
    /// True if it tests all of its bits (`&`), false if it tests any of them (`|`).
    pub all: bool,
    /// The names of its bits.
    pub names: BitNames,
    /// The group that its bits become members of.
    pub joins: Option<String>,
    /// The numbers of its bits among the bits of all rules. The parser sets them when it has read all rules.
    pub bits: Vec<u16>,
}

impl BitStep {
    /// Creates an operation on all bits with these names. The numbers are set later.
    #[must_use]
    pub fn new(operation: BitOperation, names: BitNames) -> Self {
        Self { operation, all: true, names, joins: None, bits: Vec::new() }
    }

    /// Returns true if it tests bits, false if it changes them.
    #[must_use]
    pub fn is_test(&self) -> bool {
        matches!(self.operation, BitOperation::IsSet | BitOperation::IsNotSet)
    }
}

/// A rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The line in which it begins.
    pub line: usize,
    /// The action on packets that match.
    pub action: Action,
    /// The protocol of the packets.
    pub protocol: Protocol,
    /// Source addresses.
    pub source: Hosts,
    /// Source ports.
    pub source_ports: Ranges,
    /// True if packets in the other direction match, too.
    pub both: bool,
    /// Destination addresses.
    pub destination: Hosts,
    /// Destination ports.
    pub destination_ports: Ranges,
    /// The message of its alerts.
    pub message: String,
    /// Its number.
    pub sid: u32,
    /// The generator ID (`gid`): 1 for text rules.
    pub generator: u32,
    /// True if matches of the rule are not reported (`noalert`).
    pub silent: bool,
    /// Its revision.
    pub revision: u32,
    /// Its class, if it has one.
    pub class: Option<String>,
    /// Its priority; 1 is the most urgent.
    pub priority: u8,
    /// References to further information.
    pub references: Vec<String>,
    /// The conditions on the packet's session. They are tested last.
    pub flow: Option<FlowTest>,
    /// Options `flowbits`, in order. Tests of bits come after all other tests. Bits change only if the rule matches.
    pub bits: Vec<BitStep>,
    /// Tests of headers.
    pub tests: Vec<Test>,
    /// Contents, in the rule's order.
    pub contents: Vec<Content>,
    /// Regular expressions. If the chain is empty, each is matched on its own.
    pub pcres: Vec<Pcre>,
    /// All options about the payload, in order. Empty if the rule has only expressions and contents without `endswith`,
    /// and no option depends on another, except contents that are relative to other contents.
    pub chain: Vec<ChainStep>,
    /// `detection_filter`.
    pub filter: Option<Limit>,
    /// `threshold`.
    pub threshold: Option<Limit>,
}

impl Rule {
    /// Returns true if it tests the packet's session or changes its bits.
    #[must_use]
    pub fn involves_session(&self) -> bool {
        self.flow.is_some() || !self.bits.is_empty()
    }

    /// Returns true if the match depends on the packet's session.
    #[must_use]
    pub fn needs_session(&self) -> bool {
        self.flow.is_some() || self.bits.iter().any(BitStep::is_test)
    }

    /// Returns true if the match depends on earlier packets of the session.
    #[must_use]
    pub fn needs_history(&self) -> bool {
        self.flow.is_some_and(|flow| flow.established.is_some()) || self.bits.iter().any(BitStep::is_test)
    }

    /// Returns the rank of the rule in the order of evaluation. Rules that test no bits come first (0), then rules that
    /// test and change bits (1). Rules that only test bits come last (2).
    #[must_use]
    pub fn evaluation_rank(&self) -> u8 {
        let tests = self.bits.iter().any(BitStep::is_test);
        let changes = self.bits.iter().any(|step| !step.is_test());
        match (tests, changes) {
            (true, true) => 1,
            (true, false) => 2,
            _ => 0,
        }
    }

    /// Returns the content by which the rule is found: the content with `fast_pattern`, otherwise the longest content.
    /// `None` if the rule requires no content.
    #[must_use]
    pub fn fast(&self) -> Option<&Content> {
        let required = || self.contents.iter().filter(|content| !content.not);
        required().find(|content| content.fast).or_else(|| {
            // `max_by_key` returns the last of equal elements. With `rev`, this is the first of equally long contents.
            required().rev().max_by_key(|content| content.bytes.len())
        })
    }

    /// Returns the content of [`fast`](Self::fast) in lower case. In this form the content is searched together with
    /// the contents of other rules. Afterwards, the test of the rule compares the exact bytes.
    pub fn folded(&self) -> Option<Vec<u8>> {
        self.fast().map(|content| content.bytes.to_ascii_lowercase())
    }
}
