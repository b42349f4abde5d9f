//! What a packet shows to a classifier, and what the classifier says.

use std::sync::Arc;

use forebay_measure::Counter;

use super::rule::Address;

/// The five fields of a packet.
///
/// A packet shows no ports when its protocol has none or when it is a fragment other than the first (RFC 791,
/// section 3.2; RFC 8200, section 4.5): no rule that constrains a port matches it, since nobody can say that it would.
/// ICMP shows a type and a code in place of ports; a rule for exactly that protocol constrains those.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key<A> {
    src: A,
    dst: A,
    sport: u16,
    dport: u16,
    /// The protocol number, and [`NO_PORTS`].
    protocol: u16,
}

/// Marks a key without ports. In the protocol's word, so that classifiers treat such keys as further protocols and
/// need no branch: the rules that constrain ports are not among the rules of those.
pub(super) const NO_PORTS: u16 = 0x100;

/// Beside [`NO_PORTS`]: the fields of the ports hold the type and the code of ICMP.
pub(super) const TYPED: u16 = 0x200;

/// Values of [`Key::protocol_word`].
pub(super) const PROTOCOL_WORDS: usize = 0x400;

/// An IPv4 key.
pub type Key4 = Key<u32>;
/// An IPv6 key.
pub type Key6 = Key<u128>;

impl<A: Copy> Key<A> {
    /// The key of a packet with ports. Addresses are numbers in host byte order (`u32::from(Ipv4Addr)`).
    #[inline]
    pub fn new(src: A, dst: A, sport: u16, dport: u16, protocol: u8) -> Key<A> {
        Key { src, dst, sport, dport, protocol: protocol.into() }
    }

    /// The key of a packet that shows no ports.
    #[inline]
    pub fn without_ports(src: A, dst: A, protocol: u8) -> Key<A> {
        Key { src, dst, sport: 0, dport: 0, protocol: u16::from(protocol) | NO_PORTS }
    }

    /// The key of a packet of ICMP (ICMPv6 over IPv6) that shows its type and code.
    #[inline]
    pub fn icmp(src: A, dst: A, kind: u8, code: u8) -> Key<A>
    where
        A: Address,
    {
        Key { src, dst, sport: kind.into(), dport: code.into(), protocol: u16::from(A::ICMP) | NO_PORTS | TYPED }
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> A {
        self.src
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> A {
        self.dst
    }

    /// Source and destination port, of packets that show them.
    #[inline]
    pub fn ports(&self) -> Option<(u16, u16)> {
        (self.protocol & NO_PORTS == 0).then_some((self.sport, self.dport))
    }

    /// Type and code, of packets of ICMP that show them.
    #[inline]
    pub fn icmp_type(&self) -> Option<(u16, u16)> {
        (self.protocol & TYPED != 0).then_some((self.sport, self.dport))
    }

    /// Protocol number.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.protocol as u8
    }

    /// Source port, 0 where there is none.
    #[inline]
    pub(super) fn sport(&self) -> u16 {
        self.sport
    }

    /// Destination port, 0 where there is none.
    #[inline]
    pub(super) fn dport(&self) -> u16 {
        self.dport
    }

    /// The protocol number with [`NO_PORTS`] and [`TYPED`].
    #[inline]
    pub(super) fn protocol_word(&self) -> u16 {
        self.protocol
    }
}

/// What happens to a packet in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// It passes.
    Permit,
    /// It is dropped.
    Deny,
}

/// A classifier's answer: the decision and the rule that took it, in one word.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Verdict(u32);

const DENY: u32 = 1 << 31;
const BY_DEFAULT: u32 = DENY - 1;

impl Verdict {
    /// Rule `rule` decided.
    pub(super) fn by_rule(rule: u32, decision: Decision) -> Verdict {
        debug_assert!(rule < BY_DEFAULT);
        Verdict(rule | if decision == Decision::Deny { DENY } else { 0 })
    }

    /// No rule decided.
    pub fn by_default(decision: Decision) -> Verdict {
        Verdict(BY_DEFAULT | if decision == Decision::Deny { DENY } else { 0 })
    }

    /// The decision.
    #[inline]
    pub fn decision(self) -> Decision {
        if self.denies() { Decision::Deny } else { Decision::Permit }
    }

    /// Whether the packet is to be dropped.
    #[inline]
    pub fn denies(self) -> bool {
        self.0 & DENY != 0
    }

    /// The rule that decided; none when the default did.
    #[inline]
    pub fn rule(self) -> Option<u32> {
        (self.index() != BY_DEFAULT).then_some(self.index())
    }

    #[inline]
    fn index(self) -> u32 {
        self.0 & BY_DEFAULT
    }
}

/// Permitted by default.
impl Default for Verdict {
    fn default() -> Verdict {
        Verdict::by_default(Decision::Permit)
    }
}

impl std::fmt::Debug for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.rule() {
            Some(rule) => write!(f, "{:?} by rule {rule}", self.decision()),
            None => write!(f, "{:?} by default", self.decision()),
        }
    }
}

/// How many packets each rule has matched: plain words, written by the one who classifies and read by anybody.
#[derive(Debug)]
pub struct Hits {
    rules: Arc<[Counter]>,
    /// One counter for all other rules: those that came later.
    added: Arc<[Counter]>,
    by_default: u64,
}

impl Hits {
    /// Zeros for `rules` rules.
    pub fn new(rules: usize) -> Hits {
        Hits::over((0..rules).map(|_| Counter::new()).collect(), [Counter::new()].into())
    }

    /// Counts into these counters, one a rule, and into the first of `added` for rules with greater numbers.
    pub fn over(rules: Arc<[Counter]>, added: Arc<[Counter]>) -> Hits {
        Hits { rules, added, by_default: 0 }
    }

    /// Packets each rule has matched, in the rules' order. A packet counts for the rule that decided and for each
    /// `count` rule passed on the way.
    pub fn rules(&self) -> Vec<u64> {
        self.rules.iter().map(Counter::get).collect()
    }

    /// Packets that rules with greater numbers have matched, all together.
    pub fn added(&self) -> u64 {
        self.added.iter().map(Counter::get).sum()
    }

    /// Packets for which no rule decided.
    pub fn by_default(&self) -> u64 {
        self.by_default
    }

    /// One more for `rule`; rules it was not made for are counted together.
    #[inline]
    pub(super) fn count_rule(&mut self, rule: u32) {
        if let Some(hits) = self.rules.get(rule as usize).or_else(|| self.added.first()) {
            hits.add(1);
        }
    }

    /// One more for the rule that decided, or the default, for each of at most [`CHUNK`] verdicts.
    ///
    /// Incrementing a word per packet would chain each packet to the one before where most of them fall to the
    /// default, so those are counted by comparison, and the others gathered without a branch first.
    #[inline]
    pub(super) fn count_verdicts(&mut self, verdicts: &[Verdict]) {
        debug_assert!(verdicts.len() <= CHUNK);
        let mut decided = [0u32; CHUNK];
        let mut count = 0;
        for verdict in verdicts {
            decided[count % CHUNK] = verdict.index();
            count += usize::from(verdict.index() != BY_DEFAULT);
        }
        self.by_default += (verdicts.len() - count) as u64;
        for &rule in &decided[..count.min(CHUNK)] {
            self.count_rule(rule);
        }
    }
}

/// Keys worked on together: enough that their lookups overlap, few enough that intermediate arrays stay in the
/// first-level cache.
pub(super) const CHUNK: usize = 32;
