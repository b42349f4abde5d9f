//! Finds rules that no packet reaches, because an earlier rule decides about all packets that they match.
//!
//! These rules are called hidden. Rules are compared in pairs, so a rule that only several earlier rules hide together
//! is not found. The work is bounded, so that a long list costs no more than a short one ([`COMPARISONS`], [`NEAR`]).

use super::order::Order;
use super::rule::{Rule, RuleAddress};

/// The largest number of pairs of rules that are compared for a list: all pairs of up to 2 048 rules, which takes
/// milliseconds.
pub const COMPARISONS: usize = 4 << 20;
/// In a long list each rule is compared with at least this many of the rules that match the most packets.
const BROAD: usize = 32;
/// An added rule is compared with up to this many rules before it and as many behind it.
pub const NEAR: usize = 1_024;

/// Returns the positions of the hidden rules of a list, in order, each with the position of the rule that hides it. If
/// several earlier rules hide a rule, the broadest of them is returned.
///
/// In a list of up to 2 048 rules all pairs are compared. In a longer list each rule is compared with the rules that
/// match the most packets, as estimated from prefix lengths, protocol and ports. The number of these rules is
/// [`COMPARISONS`] divided by the list's length (128 for 32 768 rules), and at least 32.
pub fn hidden<A: RuleAddress>(rules: &[Rule<A>]) -> Vec<(usize, usize)> {
    let mut deciding: Vec<_> = (0..rules.len()).filter(|at| rules[*at].action.decision().is_some()).collect();
    // The sort is stable: of equally broad rules, the first one is reported.
    deciding.sort_by_key(|at| narrowness(&rules[*at]));
    deciding.truncate((COMPARISONS / rules.len().max(1)).max(BROAD));
    let hider = |at: usize| deciding.iter().copied().find(|by| *by < at && rules[*by].covers(&rules[at]));
    (0..rules.len()).filter_map(|at| Some((at, hider(at)?))).collect()
}

/// Returns an estimate of how narrow a rule is: the fewer packets the rule matches, the larger the estimate.
fn narrowness<A: RuleAddress>(rule: &Rule<A>) -> u32 {
    let ports = [rule.sport, rule.dport].map(|range| u32::from(u16::MAX - (range.high() - range.low())).count_ones());
    let prefixes = u32::from(rule.src.length()) + u32::from(rule.dst.length());
    prefixes + rule.protocol.mask().count_ones() + ports.iter().sum::<u32>()
}

/// If the rule at position `at` of a changed list is hidden or hides another rule, returns the position of the hidden
/// rule and the position of the rule that hides it. Each comparison takes one from `budget`, and the search ends when
/// nothing of it remains.
pub fn hidden_near<A: RuleAddress>(order: &Order<A>, at: usize, budget: &mut usize) -> Option<(usize, usize)> {
    let rule = order.get(at)?.rule;
    let first = at.saturating_sub(NEAR);
    let mut has_budget = || {
        *budget = budget.saturating_sub(1);
        *budget > 0
    };
    let before = (first..at).zip(order.from(first)).take_while(|_| has_budget());
    let decides = |rule: &Rule<A>| rule.action.decision().is_some();
    if let Some((by, _)) = before.into_iter().find(|(_, it)| decides(&it.rule) && it.rule.covers(&rule)) {
        return Some((at, by));
    }
    if !decides(&rule) {
        return None;
    }
    let behind = (at + 1..=at + NEAR).zip(order.from(at + 1)).take_while(|_| has_budget());
    behind.into_iter().find(|(_, it)| rule.covers(&it.rule)).map(|(hidden, _)| (hidden, at))
}

/// Formats the warning about a hidden rule. Both rules are given by the number that the table shows, and by their text.
pub fn warning(hidden: (usize, &str), by: (usize, &str)) -> String {
    format!(
        "rule {} ({}) matches no packet: rule {} ({}) comes first and decides about all of its packets",
        hidden.0, hidden.1, by.0, by.1
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::key::HeaderKey;
    use super::super::rule::{Action, PortRange, ProtocolMatch, Rule4, RulePrefix};
    use super::super::rule_file::parse;
    use super::*;

    fn rules(text: &str) -> Vec<Rule4> {
        parse("test", text.as_bytes()).expect("rules").v4
    }

    #[test]
    fn a_rule_behind_one_that_decides_about_all_of_its_packets_is_hidden() {
        let list = rules(
            "count ip from any to any\n\
             permit tcp from 10.0.0.0/8 to any port 80\n\
             permit tcp from 10.1.0.0/16 to 192.0.2.1 port 80\n\
             permit tcp from 10.0.0.0/8 to any port 81\n\
             deny icmp from any to any\n\
             permit icmp type echo-request from 10.0.0.1 to any\n\
             deny ip from any to any\n\
             permit udp from any to any port 53\n\
             count ip from any to any",
        );
        assert_eq!(hidden(&list), [(2, 1), (5, 4), (7, 6), (8, 6)]);
        assert_eq!(hidden::<u32>(&[]), []);
        let order = Order::of(&list);
        let near = |at| hidden_near(&order, at, &mut 1_000);
        assert_eq!((near(2), near(3), near(6), near(7)), (Some((2, 1)), None, Some((7, 6)), Some((7, 6))));
        assert_eq!(hidden_near(&order, 7, &mut 3), None, "the budget is used up");
    }

    #[test]
    fn ports_and_types_of_icmp_are_not_the_same() {
        let list = rules(
            "deny ip from 10.0.0.0/8 to any\npermit icmp type 8 from any to any\n\
             @0.0.0.0/0\t0.0.0.0/0\t0 : 65535\t0 : 100\t0x00/0x00\tdeny\npermit icmp type 8 from any to any\n\
             permit tcp from any to any\npermit tcp from any to any port 80",
        );
        assert_eq!(hidden(&list), [(3, 1), (5, 4)]);
    }

    #[test]
    fn a_long_list_is_compared_with_its_broadest_rules() {
        let one = |at: u32| Rule { src: RulePrefix::new(at, 32), ..Rule4::any(Action::Permit) };
        let mut list: Vec<_> = (0..100_000).map(one).collect();
        list.insert(50_000, Rule::any(Action::Deny));
        let found = hidden(&list);
        assert_eq!((found.len(), found[0]), (50_000, (50_001, 50_000)));
    }

    proptest! {
        /// A packet that matches a covered rule also matches the rule that covers it.
        #[test]
        fn packets_of_a_covered_rule_match_the_covering_rule(
            rules in prop::collection::vec((0u8..4, 0u8..4, 0u8..3, (0u16..3, 0u16..3), any::<bool>()), 2),
            keys in prop::collection::vec((0u32..4, 0u32..4, 0usize..3, 0u16..3, 0u16..3), 30),
        ) {
            let protocols = [ProtocolMatch::ANY, ProtocolMatch::exactly(1), ProtocolMatch::exactly(6)];
            let rule = |(src, dst, protocol, (low, high), has_ports): (u8, u8, u8, (u16, u16), bool)| Rule4 {
                src: RulePrefix::new(u32::from(src) << 30, src.min(2)),
                dst: RulePrefix::new(u32::from(dst) << 30, dst.min(2)),
                sport: PortRange::ANY,
                dport: if has_ports { PortRange::new(low, high) } else { PortRange::ANY },
                protocol: protocols[usize::from(protocol)],
                action: Action::Deny,
            };
            let (one, other) = (rule(rules[0]), rule(rules[1]));
            prop_assert!(one.covers(&one));
            if one.covers(&other) {
                for (src, dst, protocol, sport, dport) in keys {
                    let protocol = [1, 6, 17][protocol];
                    let (src, dst) = (src << 30, dst << 30);
                    let with_ports = HeaderKey::new(src, dst, sport, dport, protocol);
                    for key in [with_ports, HeaderKey::without_ports(src, dst, protocol)] {
                        prop_assert!(!other.matches(&key) || one.matches(&key), "{} {}", one, other);
                    }
                }
            }
        }
    }
}
