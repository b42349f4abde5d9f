//! The meaning of a rule list, as plainly as it can be said: every classifier is tested against this.

use super::key::{Decision, Hits, Key, Verdict};
use super::rule::{Address, Rule};

/// The verdict on `key` of `rules` in their order: `count` rules that match are counted and passed, the first other
/// rule that matches decides, and otherwise `default` does.
pub fn classify<A: Address>(rules: &[Rule<A>], default: Decision, key: &Key<A>, hits: &mut Hits) -> Verdict {
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
