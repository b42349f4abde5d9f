//! Modules that share a compiled list.

use forebay_graph::SetupEnvironment;
use forebay_units::Frequency;
use serde_json::json;

use super::*;

#[test]
fn modules_with_equal_rules_share_the_table_and_not_the_counts() {
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    let rules: Rules = serde_json::from_value(json!({ "synthetic": 10 })).expect("parameters");
    let [first, second] = ["a", "b"].map(|name| {
        let mut setup = Setup::new(name, &mut environment);
        RuleList::new(&rules, Decision::Permit, "rules", &mut setup).expect("it compiles")
    });
    let (first, second) = (first.rules.live().look(), second.rules.live().look());
    let [first, second] = [&first, &second].map(|list| list.v4.rules().expect("the list is unchanged"));
    assert!(std::ptr::eq(first, second));
}
