//! Charging rules, the same for all users. The rules determine the number under which a packet is counted.
//!
//! `7 tcp net=198.51.100.0/24 port=443`: a packet is counted under the number of the first rule that it matches.
//! Several rules may have the same number, as several services may have the same price.

use forebay_graph::short;
use forebay_packet::{Hidden, Packet};
use forebay_tables::acl::{
    Action, BuildError, Classifier, Decision, HeaderKey, Hits, ProtocolMatch, Rule, RuleAddress, RulePrefix, Step,
    Tuples, Verdict, labels,
};

use super::condition::{Condition, Net, Seen, whole};
use super::line::without_comment;

/// The largest number of packets that are processed together.
pub(crate) const GROUP: usize = 32;

/// The rules of one family.
enum Compiled<A: RuleAddress> {
    /// There are no rules.
    None,
    /// The compiled rules, which are fast.
    Classifier(Classifier<A>),
    /// The rules as a tuple space (grouped by their pairs of prefix lengths), if they cannot be compiled.
    Tuples(Box<Tuples<A>>),
}

impl<A: RuleAddress> Compiled<A> {
    /// Compiles the rules. `numbers[i]` is the index of `rules[i]` in the list of the rules of both families. Fails if
    /// there are too many rules.
    fn of(rules: Vec<Rule<A>>, numbers: &[u32], seed: u64) -> Result<Self, BuildError> {
        if rules.is_empty() {
            return Ok(Self::None);
        }
        match Classifier::build(rules.clone(), Decision::Permit) {
            Ok(classifier) => Ok(Self::Classifier(classifier.numbered(numbers))),
            Err(error @ BuildError::TooManyRules { .. }) => Err(error),
            Err(_) => {
                let mut tuples = Tuples::new(rules.len(), Decision::Permit, seed);
                for ((rule, number), label) in rules.iter().zip(numbers).zip(labels(rules.len())) {
                    tuples.apply(&Step::Insert { rule: *rule, label, number: *number });
                }
                Ok(Self::Tuples(Box::new(tuples)))
            }
        }
    }

    /// Writes the verdict of each key into `verdicts`, and counts hits of rules in `hits`. `keys` and `verdicts` must
    /// have the same length.
    #[inline]
    fn classify(&self, keys: &[HeaderKey<A>], verdicts: &mut [Verdict], hits: &mut Hits) {
        match self {
            Self::None => verdicts.fill(Verdict::by_default(Decision::Permit)),
            Self::Classifier(classifier) => classifier.classify_batch(keys, verdicts, hits),
            Self::Tuples(tuples) => tuples.classify_batch(keys, verdicts, hits),
        }
    }
}

/// The rules.
pub(super) struct Rules {
    /// The number under which each rule's packets are counted, in the order of the list.
    names: Vec<u32>,
    ipv4: Compiled<u32>,
    ipv6: Compiled<u128>,
    /// True if any rule needs a protocol.
    protocols: bool,
    /// True if any rule needs ports.
    ports: bool,
}

/// A worker's buffers for classification.
pub(super) struct Scratch {
    hits: Hits,
    ipv4: [HeaderKey<u32>; GROUP],
    ipv6: [HeaderKey<u128>; GROUP],
    verdicts: [Verdict; GROUP],
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            hits: Hits::new(0),
            ipv4: [HeaderKey::without_ports(0, 0, 0); GROUP],
            ipv6: [HeaderKey::without_ports(0, 0, 0); GROUP],
            verdicts: [Verdict::default(); GROUP],
        }
    }
}

impl Rules {
    /// Compiles the rules, which are checked in the order of the list. The number before a condition is the number
    /// under which packets are counted. Fails if there are too many rules.
    pub(super) fn of(list: &[(u32, Condition)], seed: u64) -> Result<Self, String> {
        let (mut rules4, mut rules6) = (Vec::new(), Vec::new());
        let (mut numbers4, mut numbers6) = (Vec::new(), Vec::new());
        for ((_, condition), number) in list.iter().zip(0..) {
            // A condition without a network applies to both families.
            let (four, six) = match condition.net {
                None => (Some(RulePrefix::ANY), Some(RulePrefix::ANY)),
                Some(Net::V4(net)) => (Some(net), None),
                Some(Net::V6(net)) => (None, Some(net)),
            };
            rules4.extend(four.map(|net| rule(condition, net)));
            numbers4.extend(four.map(|_| number));
            rules6.extend(six.map(|net| rule(condition, net)));
            numbers6.extend(six.map(|_| number));
        }
        let protocols = list.iter().any(|(_, condition)| condition.protocol.is_some());
        let ports = list.iter().any(|(_, condition)| !(condition.port.is_any() && condition.ue_port.is_any()));
        let ipv4 = Compiled::of(rules4, &numbers4, seed).map_err(|error| error.to_string())?;
        let ipv6 = Compiled::of(rules6, &numbers6, seed).map_err(|error| error.to_string())?;
        Ok(Self { names: list.iter().map(|(name, _)| *name).collect(), ipv4, ipv6, protocols, ports })
    }

    /// Returns whether there are no rules.
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Writes into `found`, for each packet from a user (`up`) or to a user, the number under which the packet is
    /// counted: the number of the first rule that it matches, or 0 if it matches none. In the result, bit i is set if a
    /// rule needs a field that cannot be read in packet i: element i of `found` then has no meaning. The batch may have
    /// up to [`GROUP`] packets.
    #[inline]
    #[must_use]
    pub(super) fn classify(
        &self,
        batch: &mut [Packet],
        up: bool,
        scratch: &mut Scratch,
        found: &mut [u32; GROUP],
    ) -> u32 {
        found.fill(0);
        if self.is_empty() {
            return 0;
        }
        let mut undecidable = 0;
        let (mut at4, mut at6) = ([0u8; GROUP], [0u8; GROUP]);
        let (mut len4, mut len6) = (0, 0);
        for (index, packet) in batch.iter_mut().take(GROUP).enumerate() {
            let Some(seen) = Seen::of(packet, up) else { continue };
            if let Some(hidden) = seen.hidden {
                undecidable |= u32::from(self.needs(hidden)) << index;
            }
            if seen.six {
                scratch.ipv6[len6] = key(&seen, seen.user, seen.remote);
                at6[len6] = index as u8;
                len6 += 1;
            } else {
                scratch.ipv4[len4] = key(&seen, seen.user as u32, seen.remote as u32);
                at4[len4] = index as u8;
                len4 += 1;
            }
        }
        let Scratch { hits, ipv4, ipv6, verdicts } = scratch;
        let mut names = |verdicts: &[Verdict], indexes: &[u8]| {
            for (verdict, index) in verdicts.iter().zip(indexes) {
                let name = verdict.rule().and_then(|rule| self.names.get(rule as usize));
                found[usize::from(*index)] = name.copied().unwrap_or(0);
            }
        };
        self.ipv4.classify(&ipv4[..len4], &mut verdicts[..len4], hits);
        names(&verdicts[..len4], &at4);
        self.ipv6.classify(&ipv6[..len6], &mut verdicts[..len6], hits);
        names(&verdicts[..len6], &at6);
        undecidable
    }

    /// Returns true if a rule needs a field of the layer that cannot be read in a packet.
    #[cold]
    fn needs(&self, hidden: Hidden) -> bool {
        match hidden {
            Hidden::Network => true,
            Hidden::Protocol => self.protocols || self.ports,
            Hidden::Ports { .. } => self.ports,
        }
    }
}

/// Converts a condition into a rule for the classifier. In the rule, the user is the source and the remote side is the
/// destination, for packets of both directions (see [`key`]).
fn rule<A: RuleAddress>(condition: &Condition, net: RulePrefix<A>) -> Rule<A> {
    let protocol = condition.protocol.map_or(ProtocolMatch::ANY, ProtocolMatch::exactly);
    let (sport, dport) = (condition.ue_port, condition.port);
    Rule { src: RulePrefix::ANY, dst: net, sport, dport, protocol, action: Action::Permit }
}

/// Returns the key of a packet for the classifier: the user is the source, and the remote side is the destination.
#[inline(always)]
fn key<A: RuleAddress>(seen: &Seen, user: A, remote: A) -> HeaderKey<A> {
    match seen.ports {
        Some((port, ue_port)) => HeaderKey::new(user, remote, ue_port, port, seen.protocol),
        None => HeaderKey::without_ports(user, remote, seen.protocol),
    }
}

/// Parses a line, which must not be empty: a number from 1, and conditions.
pub(super) fn parse(line: &str) -> Result<(u32, Condition), String> {
    let mut words = without_comment(line).split_ascii_whitespace();
    let first = words.next().unwrap_or_default();
    let shown = short(first);
    let name = whole(first, u32::MAX).filter(|name| *name > 0);
    let name = name.ok_or_else(|| format!("'{shown}' is not a rule number: allowed are 1 to 4294967295"))?;
    let mut condition = Condition::default();
    for word in words {
        condition.add(word)?;
    }
    if condition.dscp.is_some() {
        return Err("dscp: allowed in filters only, because senders can choose any value".to_owned());
    }
    Ok((name, condition))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read() {
        let (name, condition) = parse(" 7 tcp net=198.51.100.0/24 port=443 # web").expect("well-formed");
        assert_eq!((name, condition.protocol), (7, Some(6)));
        assert_eq!(parse("0x10").expect("everything"), (16, Condition::default()));
        for (line, part) in [
            ("", "'' is not a rule number"),
            ("0 tcp", "'0' is not a rule number"),
            ("web tcp", "'web' is not a rule number"),
            ("1 dscp=4", "allowed in filters"),
            ("1 speed=4", "'speed=4': allowed are"),
        ] {
            let error = parse(line).expect_err(line);
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
