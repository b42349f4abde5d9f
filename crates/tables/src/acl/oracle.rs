//! The reference definition of a rule list, in the simplest form. All classifiers are tested against it.

use super::key::{Decision, HeaderKey, Hits, Verdict};
use super::rule::{Rule, RuleAddress};

/// Returns the verdict of `rules`, in order, on `key`. A matching `count` rule counts the packet. The first other
/// matching rule decides. If there is no such rule, `default` decides.
pub fn classify<A: RuleAddress>(rules: &[Rule<A>], default: Decision, key: &HeaderKey<A>, hits: &mut Hits) -> Verdict {
    let mut verdict = Verdict::by_default(default);
    for (index, rule) in (0u32..).zip(rules) {
        if !rule.matches(key) {
            continue;
        }
        let Some(decision) = rule.action.decision() else {
            hits.count_rule(index);
            continue;
        };
        verdict = Verdict::by_rule(index, decision);
        break;
    }
    hits.count_verdicts(&[verdict]);
    verdict
}
