//! The packet fields that a classifier reads, and its verdicts and counters.

use std::sync::Arc;

use forebay_measure::Counter;

use super::rule::RuleAddress;

/// The five fields of a packet that rules test.
///
/// A key has no ports if the protocol has none or the packet is a fragment other than the first (RFC 791, section 3.2;
/// RFC 8200, section 4.5). A rule that constrains ports does not match a key without ports, because the ports are
/// unknown. An ICMP key has a type and a code in place of ports. In a rule for exactly the family's ICMP, the port
/// fields constrain the type and the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeaderKey<A> {
    src: A,
    dst: A,
    /// The source port or the ICMP type; otherwise 0.
    sport: u16,
    /// The destination port or the ICMP code; otherwise 0.
    dport: u16,
    /// The protocol number, with [`NO_PORTS`] and [`TYPED`].
    protocol: u16,
}

/// Set in a key without ports. The bit is part of the protocol word. So classifiers treat keys without ports as keys of
/// other protocols, and need no branch. Rules that constrain ports do not match these protocols.
pub(super) const NO_PORTS: u16 = 0x100;

/// Set in addition to [`NO_PORTS`]: the port fields hold the type and the code of ICMP.
pub(super) const TYPED: u16 = 0x200;

/// The number of values of [`HeaderKey::protocol_word`].
pub(super) const PROTOCOL_WORDS: usize = 0x400;

/// An IPv4 key.
pub type Key4 = HeaderKey<u32>;
/// An IPv6 key.
pub type Key6 = HeaderKey<u128>;

impl<A: Copy> HeaderKey<A> {
    /// Creates the key of a packet with ports. Addresses are numbers in host byte order (`u32::from(Ipv4Addr)`).
    #[inline]
    pub fn new(src: A, dst: A, sport: u16, dport: u16, protocol: u8) -> HeaderKey<A> {
        HeaderKey { src, dst, sport, dport, protocol: protocol.into() }
    }

    /// Creates the key of a packet whose ports are unknown or do not exist.
    #[inline]
    pub fn without_ports(src: A, dst: A, protocol: u8) -> HeaderKey<A> {
        HeaderKey { src, dst, sport: 0, dport: 0, protocol: u16::from(protocol) | NO_PORTS }
    }

    /// Creates the key of an ICMP packet (ICMPv6 over IPv6) with its type and code.
    #[inline]
    pub fn icmp(src: A, dst: A, kind: u8, code: u8) -> HeaderKey<A>
    where
        A: RuleAddress,
    {
        HeaderKey { src, dst, sport: kind.into(), dport: code.into(), protocol: u16::from(A::ICMP) | NO_PORTS | TYPED }
    }

    /// Returns the source address.
    #[inline]
    pub fn src(&self) -> A {
        self.src
    }

    /// Returns the destination address.
    #[inline]
    pub fn dst(&self) -> A {
        self.dst
    }

    /// Returns the source and the destination port, if the key has ports.
    #[inline]
    pub fn ports(&self) -> Option<(u16, u16)> {
        (self.protocol & NO_PORTS == 0).then_some((self.sport, self.dport))
    }

    /// Returns the type and the code, if the key has them.
    #[inline]
    pub fn icmp_type(&self) -> Option<(u16, u16)> {
        (self.protocol & TYPED != 0).then_some((self.sport, self.dport))
    }

    /// Returns the protocol number.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.protocol as u8
    }

    /// Returns the source port, or 0 if there is none.
    #[inline]
    pub(super) fn sport(&self) -> u16 {
        self.sport
    }

    /// Returns the destination port, or 0 if there is none.
    #[inline]
    pub(super) fn dport(&self) -> u16 {
        self.dport
    }

    /// Returns the protocol number with [`NO_PORTS`] and [`TYPED`].
    #[inline]
    pub(super) fn protocol_word(&self) -> u16 {
        self.protocol
    }
}

/// The decision about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// The packet passes.
    Permit,
    /// The packet is dropped.
    Deny,
}

/// The result of a classification in one word: the decision and the rule that made it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Verdict(u32);

/// The bit of a verdict that denies. The other bits are the number of the rule.
const DENY: u32 = 1 << 31;
/// Stands in place of a rule's number if the default decided. All rule numbers are below this value.
const BY_DEFAULT: u32 = DENY - 1;

impl Verdict {
    /// Creates the verdict of a rule.
    pub(super) fn by_rule(rule: u32, decision: Decision) -> Verdict {
        debug_assert!(rule < BY_DEFAULT);
        Verdict(rule | if decision == Decision::Deny { DENY } else { 0 })
    }

    /// Creates the verdict of the default.
    pub fn by_default(decision: Decision) -> Verdict {
        Verdict(BY_DEFAULT | if decision == Decision::Deny { DENY } else { 0 })
    }

    /// Returns the decision.
    #[inline]
    pub fn decision(self) -> Decision {
        if self.denies() { Decision::Deny } else { Decision::Permit }
    }

    /// Returns true if the packet is to be dropped.
    #[inline]
    pub fn denies(self) -> bool {
        self.0 & DENY != 0
    }

    /// Returns the number of the rule that decided, or `None` if the default did.
    #[inline]
    pub fn rule(self) -> Option<u32> {
        (self.index() != BY_DEFAULT).then_some(self.index())
    }

    #[inline]
    fn index(self) -> u32 {
        self.0 & BY_DEFAULT
    }
}

/// Permits by default.
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

/// Counts the packets that each rule matched. One thread classifies and writes the counters; any thread may read them.
#[derive(Debug)]
pub struct Hits {
    /// The counter of each rule, by the rule's number.
    rules: Arc<[Counter]>,
    /// One counter that all rules without an entry in `rules` share. These rules were added later.
    added: Arc<[Counter]>,
    /// The number of packets that no rule decided about.
    by_default: u64,
}

impl Hits {
    /// Creates counters for `rules` rules, all zero.
    pub fn new(rules: usize) -> Hits {
        Hits::over((0..rules).map(|_| Counter::new()).collect(), [Counter::new()].into())
    }

    /// Uses the given counters. `rules` has one counter for each rule number from 0. The first counter of `added`
    /// counts all rules whose numbers are beyond `rules`. If `added` is empty, these rules are not counted.
    pub fn over(rules: Arc<[Counter]>, added: Arc<[Counter]>) -> Hits {
        Hits { rules, added, by_default: 0 }
    }

    /// Returns the number of packets that each rule matched, in order. A packet counts for the rule that decided and
    /// for each `count` rule that matched before it.
    pub fn rules(&self) -> Vec<u64> {
        self.rules.iter().map(Counter::get).collect()
    }

    /// Returns the sum of the hits of all rules that have no counter of their own, because they were added later.
    pub fn added(&self) -> u64 {
        self.added.iter().map(Counter::get).sum()
    }

    /// Returns the number of packets that no rule decided about.
    pub fn by_default(&self) -> u64 {
        self.by_default
    }

    /// Counts a packet for the rule with this number. Rules that were added later share one counter.
    #[inline]
    pub(super) fn count_rule(&mut self, rule: u32) {
        if let Some(hits) = self.rules.get(rule as usize).or_else(|| self.added.first()) {
            hits.add(1);
        }
    }

    /// Counts each of at most [`CHUNK`] verdicts for the rule that decided, or for the default.
    ///
    /// Often most packets get the default. If each of them incremented the default's counter, each increment would wait
    /// for the previous one. So the verdicts by rules are first gathered without a branch, and the others are counted
    /// as the difference.
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

/// The number of keys that are classified together: enough for their look-ups to overlap, few enough for the
/// intermediate arrays to stay in the first-level cache.
pub(super) const CHUNK: usize = 32;
