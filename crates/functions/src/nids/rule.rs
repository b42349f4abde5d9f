//! A rule, read: what is asked of a packet, in types.

use crate::connection::SessionStanding;

use super::ranges::{Hosts, Ranges};
use super::regex::Regex;

/// What becomes of a packet that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// It goes on, whatever other rules say of it.
    Pass,
    /// It is dropped, and told of.
    Drop,
    /// It is told of.
    Alert,
    /// It is told of, as something to keep rather than to look into.
    Log,
}

impl Action {
    /// As rules write it.
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

/// What a rule's header says of protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP, of IPv4 or IPv6.
    Icmp,
    /// Any over IP.
    Ip,
}

/// A comparison with a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The least.
    pub first: u32,
    /// The greatest.
    pub last: u32,
    /// Whether it must not be within.
    pub not: bool,
}

impl Span {
    /// Whether a number is as it should be.
    #[inline]
    #[must_use]
    pub fn holds(self, number: u32) -> bool {
        (self.first..=self.last).contains(&number) != self.not
    }
}

/// How TCP's control bits are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    /// They are these.
    Exactly,
    /// These are among them.
    All,
    /// One of these is among them.
    Any,
    /// None of these is among them.
    None,
}

impl Bits {
    /// Whether the bits of a packet are as they should be.
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

/// Something asked of headers, or of the payload's size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// How many bytes the payload has.
    Size(Span),
    /// TCP's control bits, those outside the mask disregarded.
    Flags {
        /// How.
        how: Bits,
        /// The bits.
        bits: u8,
        /// Which of them count.
        mask: u8,
    },
    /// The same of TCP packets. Packets of other protocols pass the test.
    FlagsOfTcp {
        /// How.
        how: Bits,
        /// The bits.
        bits: u8,
        /// Which of them count.
        mask: u8,
    },
    /// The type of an ICMP message.
    IcmpType(Span),
    /// Its code.
    IcmpCode(Span),
    /// Time to live, or hop limit.
    Ttl(Span),
    /// The protocol above IP.
    IpProtocol(Span),
    /// Source and destination are one address.
    SameAddress,
    /// Another number of a header.
    Field(Field, Span),
    /// The fragment bits of an IPv4 header: reserved (4), don't fragment (2), more fragments (1).
    FragmentBits {
        /// How.
        how: Bits,
        /// The bits.
        bits: u8,
    },
    /// An option of an IPv4 header, by its number; any where there is none.
    IpOption(Option<u8>),
}

/// A number of a header that is read where a rule compares it.
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

/// Bytes that must be in the payload, or must not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Whether ASCII letters are found in either case.
    pub nocase: bool,
    /// Whether they must not be there.
    pub not: bool,
    /// Whether they are what the rule is found by.
    pub fast: bool,
    /// Whether they are sought in either case, anywhere, and nothing is relative to them (`fast_pattern:only`).
    pub only: bool,
    /// Where they may be.
    pub place: Place,
    /// Variables in the place of offset or distance, and of depth or within.
    pub by: (Option<u8>, Option<u8>),
    /// Whether they must be the end of the payload.
    pub end: bool,
}

/// Where bytes may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Within `depth` bytes from `offset` on.
    Absolute {
        /// Bytes from the payload's start.
        offset: u32,
        /// How many bytes from there they are in; all where nothing is said.
        depth: Option<u32>,
    },
    /// Within `within` bytes from `distance` behind the end of the content before.
    Relative {
        /// Bytes, backwards where it is negative.
        distance: i32,
        /// How many bytes from there they are in.
        within: Option<u32>,
    },
}

/// A number, or the variable that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// The number.
    Fixed(i64),
    /// The variable's index.
    Variable(u8),
}

/// How a number is written in a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberForm {
    /// The most significant byte first.
    Big,
    /// The least significant byte first.
    Little,
    /// In digits of this base.
    Text(u8),
}

/// A number in a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// How many bytes it has, or digits at most.
    pub bytes: u8,
    /// Where it begins.
    pub offset: Amount,
    /// Whether that is counted from where the option before has ended.
    pub relative: bool,
    /// How it is written.
    pub form: NumberForm,
    /// Which of its bits count, moved down to the lowest; all where none is set.
    pub mask: u32,
}

/// How a number is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `<`
    Less,
    /// `>`
    More,
    /// `=`
    Equal,
    /// `<=`
    AtMost,
    /// `>=`
    AtLeast,
    /// `&`: they have a bit in common.
    And,
    /// `^`: they differ in a bit.
    Xor,
}

/// An operator, and whether it must not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The operator.
    pub operator: Operator,
    /// Whether it must not hold.
    pub not: bool,
}

/// The origin of a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The end of the number.
    Number,
    /// The start of the payload.
    Start,
    /// The end of the payload; the jump goes on from there.
    End,
}

/// A jump to where a number in the payload says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// The number.
    pub number: Number,
    /// The number is multiplied by this.
    pub multiplier: u32,
    /// Whether it is rounded up to a multiple of four.
    pub align: bool,
    /// Where the jump starts.
    pub base: Base,
    /// What is added.
    pub post: Amount,
}

/// An option that is matched in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// A content, by its index.
    Content(usize),
    /// An expression, by its index.
    Pcre(usize),
    /// Whether the payload has a byte there.
    DataAt {
        /// Whether it must not.
        not: bool,
        /// Whether that is counted from where the option before has ended.
        relative: bool,
        /// Where.
        at: Amount,
    },
    /// A number that is compared.
    Test {
        /// The number.
        number: Number,
        /// Whether it must not be so.
        not: bool,
        /// How it is compared.
        operator: Operator,
        /// With what.
        value: Amount,
    },
    /// A jump.
    Jump(Jump),
    /// A number that becomes a variable.
    Extract {
        /// The number.
        number: Number,
        /// The variable's index.
        variable: u8,
        /// The number is multiplied by this.
        multiplier: u32,
        /// It is rounded up to a multiple of this; of 0 it is not.
        align: u8,
    },
}

/// An option of a chain, and what later ones look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainStep {
    /// The option.
    pub link: Link,
    /// Whether later options look at where it ends.
    pub cursor: bool,
    /// Which variables later options look at.
    pub variables: [bool; 2],
}

/// Bytes that a regular expression must match, or must not.
#[derive(Clone, Debug)]
pub struct Pcre {
    /// The expression.
    pub regex: Regex,
    /// Whether it must not match.
    pub not: bool,
}

/// Whose matches are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Track {
    /// Those of one source.
    Source,
    /// Those of one destination.
    Destination,
    /// Those of one source and one destination.
    Both,
    /// All of them.
    Rule,
}

/// What becomes of matches by their number within so many seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The first few are none: they do not count as matches (`detection_filter`).
    Filter,
    /// The first few are told.
    Limit,
    /// Each so-manieth is told.
    Threshold,
    /// One is told, once there were so many.
    Both,
}

/// A limit on how often a rule matches or is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What it does.
    pub kind: Kind,
    /// Whose matches are counted together.
    pub track: Track,
    /// How many.
    pub count: u32,
    /// Within how many seconds.
    pub seconds: u32,
}

/// What the option `flow` asks of a packet's session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowTest {
    /// Whether it is established.
    pub established: Option<bool>,
    /// Whether the sender is the side that opened the session.
    pub to_server: Option<bool>,
}

impl FlowTest {
    /// Whether a packet is as asked.
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
    /// Asks whether bits are set.
    IsSet,
    /// Asks the opposite of [`IsSet`](Self::IsSet).
    IsNotSet,
    /// Unsets all bits of the session.
    Reset,
}

/// The names of bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BitNames {
    /// Those that the rule lists.
    Listed(Vec<String>),
    /// Those that rules set with this group.
    OfGroup(String),
}

/// An option `flowbits`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitStep {
    /// Its operation.
    pub operation: BitOperation,
    /// Whether it asks for all of its bits (`&`), else for any (`|`).
    pub all: bool,
    /// The names of its bits.
    pub names: BitNames,
    /// The group that its bits become members of.
    pub joins: Option<String>,
    /// The numbers of its bits among the bits of all rules.
    pub bits: Vec<u16>,
}

impl BitStep {
    /// An operation on all bits with these names. The numbers follow.
    #[must_use]
    pub fn new(operation: BitOperation, names: BitNames) -> Self {
        Self { operation, all: true, names, joins: None, bits: Vec::new() }
    }

    /// Whether it asks for bits, else it changes them.
    #[must_use]
    pub fn asks(&self) -> bool {
        matches!(self.operation, BitOperation::IsSet | BitOperation::IsNotSet)
    }
}

/// A rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The line that it begins in.
    pub line: usize,
    /// What becomes of packets.
    pub action: Action,
    /// Of which protocol they are.
    pub protocol: Protocol,
    /// Where they come from.
    pub source: Hosts,
    /// From which ports.
    pub source_ports: Ranges,
    /// Whether they may go the other way, too.
    pub both: bool,
    /// Where they go to.
    pub destination: Hosts,
    /// To which ports.
    pub destination_ports: Ranges,
    /// What it is to be told as.
    pub message: String,
    /// Its number.
    pub sid: u32,
    /// Who numbers it (`gid`): 1 for rules of text.
    pub generator: u32,
    /// Whether it is not reported (`noalert`).
    pub silent: bool,
    /// Which version of it.
    pub revision: u32,
    /// Its class, where it says one.
    pub class: Option<String>,
    /// How urgent: 1 is the most.
    pub priority: u8,
    /// Where more is said of it.
    pub references: Vec<String>,
    /// What is asked of the packet's session, last of all.
    pub flow: Option<FlowTest>,
    /// Options `flowbits`, in order. The questions are asked last of all. The changes are made if the rule matches.
    pub bits: Vec<BitStep>,
    /// What is asked of headers.
    pub tests: Vec<Test>,
    /// What is asked of the payload, in order.
    pub contents: Vec<Content>,
    /// Likewise, each by itself.
    pub pcres: Vec<Pcre>,
    /// All of these in order with options that depend on others; empty where none does.
    pub chain: Vec<ChainStep>,
    /// `detection_filter`.
    pub filter: Option<Limit>,
    /// `threshold`.
    pub threshold: Option<Limit>,
}

impl Rule {
    /// Whether it asks for the packet's session or changes its bits.
    #[must_use]
    pub fn involves_session(&self) -> bool {
        self.flow.is_some() || !self.bits.is_empty()
    }

    /// Whether it depends on the packet's session if it matches.
    #[must_use]
    pub fn asks_session(&self) -> bool {
        self.flow.is_some() || self.bits.iter().any(BitStep::asks)
    }

    /// Whether it depends on earlier packets of the session if it matches.
    #[must_use]
    pub fn asks_history(&self) -> bool {
        self.flow.is_some_and(|flow| flow.established.is_some()) || self.bits.iter().any(BitStep::asks)
    }

    /// Its turn among the rules for a packet. Rules that only change bits come first. Rules that only ask for bits
    /// come last.
    #[must_use]
    pub fn turn(&self) -> u8 {
        let asks = self.bits.iter().any(BitStep::asks);
        let changes = self.bits.iter().any(|step| !step.asks());
        match (asks, changes) {
            (true, true) => 1,
            (true, false) => 2,
            _ => 0,
        }
    }

    /// The content that the rule is found by: the one that says so, else the longest. None where none must be there.
    #[must_use]
    pub fn fast(&self) -> Option<&Content> {
        let there = || self.contents.iter().filter(|content| !content.not);
        there().find(|content| content.fast).or_else(|| {
            // Of equally long ones the first.
            there().rev().max_by_key(|content| content.bytes.len())
        })
    }

    /// That content as it is sought with those of other rules: in either case. Whether it is the right one the rule
    /// itself says.
    pub fn folded(&self) -> Option<Vec<u8>> {
        self.fast().map(|content| content.bytes.to_ascii_lowercase())
    }
}
