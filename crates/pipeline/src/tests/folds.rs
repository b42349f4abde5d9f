//! Tests which modules run as one.

use super::{load, load_source};
use crate::{Source, usecase};

/// Returns the names of modules that run as one.
fn folds(loaded: &crate::Loaded) -> Vec<Vec<String>> {
    let plan = &loaded.plans[0];
    let name = |member: &usize| plan.modules[*member].name.clone();
    plan.folds.iter().map(|members| members.iter().map(name).collect()).collect()
}

fn of_usecase(name: &str, settings: &[&str]) -> Vec<Vec<String>> {
    let settings: Vec<_> = settings.iter().map(|setting| (*setting).to_owned()).collect();
    let source = usecase(name, &settings).expect("a use case");
    folds(&load_source(&source).unwrap_or_else(|problems| panic!("{problems}")))
}

#[test]
fn branches_of_routers_and_gateways_run_as_one() {
    assert_eq!(of_usecase("l2l3", &["n=2"]), [["ttl0", "ttl1"], ["mac0", "mac1"], ["sum0", "sum1"]]);
    let gateway = of_usecase("gw", &["n=3"]);
    assert_eq!((gateway.len(), gateway[0].len()), (5, 3), "{gateway:?}");
    // For each VRF, its VLAN pop and its lookup; then the hops of all VRFs.
    let vrf = of_usecase("vrf", &["m=2", "n=3"]);
    assert_eq!(vrf.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 6, 6, 6, 6, 6], "{vrf:?}");
    // Down: the modules that separate the users of each bearer run as one, and then all modules of users and bearers.
    let mobile = of_usecase("mgw", &["m=2", "n=3"]);
    let down: Vec<_> = mobile.iter().filter(|fold| fold[0].starts_with("down")).map(Vec::len).collect();
    assert_eq!(down, [3, 6, 6, 6, 6, 6], "{mobile:?}");
    let up: Vec<_> = mobile.iter().filter(|fold| fold[0].starts_with("up")).map(Vec::len).collect();
    assert_eq!(up, [3, 6, 6, 6, 6], "{mobile:?}");
    // Functions with a given cost do not run as one.
    assert!(of_usecase("rc", &["n=4"]).is_empty());
}

#[test]
fn modules_with_settings_of_their_own_run_alone() {
    assert!(of_usecase("l2l3", &["n=4", "fold=off"]).is_empty());
    assert!(of_usecase("l2l3", &["n=4", "scheduler=weighted-fair"]).is_empty());
    // The others still run as one.
    let others = of_usecase("l2l3", &["n=3", "buffers.sum1.trigger=8"]);
    assert_eq!(others, [["ttl0", "ttl2"], ["mac0", "mac2"], ["sum0", "sum2"]]);
    assert!(of_usecase("l2l3", &["n=2", "buffers.sum1.trigger=8"]).is_empty());
}

/// Returns a configuration with three branches, of which the last leads to `last`.
fn branches(last: &str) -> String {
    format!(
        "
ports: {{ in: {{ generator: }}, out: {{ sink: }}{} }}
modules:
  split: {{ hash_split: {{ gates: 3 }} }}
  a: {{ ttl: }}
  b: {{ ttl: }}
  c: {{ ttl: }}
  last: {{ ttl: }}
pipeline:
  - in -> split
  - split[0] -> a -> out
  - split[1] -> b -> out
  - split[2] -> c -> {last}
",
        if last == "other" { ", other: { sink: }" } else { "" }
    )
}

#[test]
fn members_lead_to_the_same_target() {
    let of = |text: &str| folds(&load(text).unwrap_or_else(|problems| panic!("{problems}")));
    let alone = |text: String| text.replace("  last: { ttl: }\n", "");
    assert_eq!(of(&alone(branches("out"))), [["a", "b", "c"]]);
    // At `c` the output port of a packet would not be known.
    assert_eq!(of(&alone(branches("other"))), [["a", "b"]]);
    assert_eq!(of(&branches("last -> out")), [["a", "b"]]);
    // A module behind two branches has packets of both.
    let shared = alone(branches("out")).replace("split[1] -> b -> out", "split[1] -> a").replace("  b: { ttl: }\n", "");
    assert_eq!(of(&shared), [["a", "c"]]);
    // Packets from another port are in no branch.
    let entered = alone(branches("out"))
        .replace("ports: { in: { generator: },", "ports: { in: { generator: }, in2: { generator: },");
    let entered = entered.replace("  - in -> split\n", "  - in -> split\n  - in2 -> c\n");
    assert_eq!(of(&entered), [["a", "b"]]);
}

/// Five branches of two lengths, and one with another module in between.
#[test]
fn branches_that_are_alike_run_as_one_without_the_others() {
    let mut text = "
ports: { in: { generator: }, out: { sink: } }
modules:
  split: { hash_split: { gates: 6 } }
  odd: { bypass: {} }
"
    .to_owned();
    for branch in 0..6 {
        text.push_str(&format!("  t{branch}: {{ ttl: }}\n  s{branch}: {{ ip_checksum: }}\n"));
    }
    text = text.replace("  s1: { ip_checksum: }\n", "").replace("  s4: { ip_checksum: }\n", "");
    text.push_str("pipeline:\n  - in -> split\n");
    for (branch, rest) in ["s0", "out", "s2", "odd -> s3", "out", "s5"].into_iter().enumerate() {
        let end = if rest == "out" { "" } else { " -> out" };
        text.push_str(&format!("  - split[{branch}] -> t{branch} -> {rest}{end}\n"));
    }
    let folds = folds(&load(&text).unwrap_or_else(|problems| panic!("{problems}")));
    assert_eq!(folds, [vec!["t0", "t2", "t5"], vec!["s0", "s2", "s5"], vec!["t1", "t4"]]);
}

#[test]
fn modules_that_run_as_one_are_taken_over_together() {
    let text = |last: &str, fold: &str| {
        let text =
            branches("out").replace("  last: { ttl: }\n", "").replace("c: { ttl: }", &format!("c: {{ {last} }}"));
        format!("fold: {fold}{text}")
    };
    let made = |text: &str| load(text).unwrap_or_else(|problems| panic!("{problems}")).made;
    let change = |old: &str, new: &str| {
        let change = made(old).change_to(&made(new));
        (change.kept, change.changed)
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let all = text("ttl: ", "on");
    assert_eq!(change(&all, &all), (4, vec![]));
    // The function of `c` changes, so that `c` no longer runs as one with the others.
    assert_eq!(change(&all, &text("ip_checksum: ", "on")), (1, names(&["a", "b", "c"])));
    assert_eq!(change(&all, &text("ttl: ", "off")), (1, names(&["a", "b", "c"])));
    assert_eq!(change(&text("ttl: ", "off"), &all), (1, names(&["a", "b", "c"])));
    assert_eq!(change(&text("ttl: ", "off"), &text("ip_checksum: ", "off")), (3, names(&["c"])));
}

#[test]
fn only_on_and_off_are_allowed() {
    let source = Source::new(format!("fold: maybe{}", branches("out")), "test.yaml", "");
    let error = load_source(&source).err().expect("refused").to_string();
    assert!(error.contains("test.yaml:1: fold: ") && error.contains("on") && error.contains("off"), "{error}");
}
