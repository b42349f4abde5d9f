//! Which modules run as one.

use super::{load, load_source};
use crate::{Source, usecase};

/// The names of modules that run as one.
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
    // Per VRF its tag is taken off and its routes asked; then the hops of all VRFs.
    let vrf = of_usecase("vrf", &["m=2", "n=3"]);
    assert_eq!(vrf.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 6, 6, 6, 6, 6], "{vrf:?}");
    // Down: the users of each bearer are told by modules that run as one, and behind them all that users and bearers have.
    let mobile = of_usecase("mgw", &["m=2", "n=3"]);
    let down: Vec<_> = mobile.iter().filter(|fold| fold[0].starts_with("down")).map(Vec::len).collect();
    assert_eq!(down, [3, 6, 6, 6, 6, 6], "{mobile:?}");
    let up: Vec<_> = mobile.iter().filter(|fold| fold[0].starts_with("up")).map(Vec::len).collect();
    assert_eq!(up, [3, 6, 6, 6, 6], "{mobile:?}");
    // Branches that cost what they were given are each their own.
    assert!(of_usecase("rc", &["n=4"]).is_empty());
}

#[test]
fn what_is_told_of_one_alone_keeps_modules_apart() {
    assert!(of_usecase("l2l3", &["n=4", "fold=off"]).is_empty());
    assert!(of_usecase("l2l3", &["n=4", "scheduler=weighted-fair"]).is_empty());
    // The others still run as one.
    let told = of_usecase("l2l3", &["n=3", "buffers.sum1.trigger=8"]);
    assert_eq!(told, [["ttl0", "ttl2"], ["mac0", "mac2"], ["sum0", "sum2"]]);
    assert!(of_usecase("l2l3", &["n=2", "buffers.sum1.trigger=8"]).is_empty());
}

/// Three branches, of which the last goes where it likes.
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
fn members_go_on_alike() {
    let of = |text: &str| folds(&load(text).unwrap_or_else(|problems| panic!("{problems}")));
    let alone = |text: String| text.replace("  last: { ttl: }\n", "");
    assert_eq!(of(&alone(branches("out"))), [["a", "b", "c"]]);
    // Nothing would say at `c` which port its packets leave by.
    assert_eq!(of(&alone(branches("other"))), [["a", "b"]]);
    assert_eq!(of(&branches("last -> out")), [["a", "b"]]);
    // Where two branches lead to one module, it has packets of both.
    let shared = alone(branches("out")).replace("split[1] -> b -> out", "split[1] -> a").replace("  b: { ttl: }\n", "");
    assert_eq!(of(&shared), [["a", "c"]]);
    // Packets that come from elsewhere, too, are in no branch.
    let entered = alone(branches("out"))
        .replace("ports: { in: { generator: },", "ports: { in: { generator: }, in2: { generator: },");
    let entered = entered.replace("  - in -> split\n", "  - in -> split\n  - in2 -> c\n");
    assert_eq!(of(&entered), [["a", "b"]]);
}

/// Five branches of two lengths, and one with something between.
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
    let told = folds(&load(&text).unwrap_or_else(|problems| panic!("{problems}")));
    assert_eq!(told, [vec!["t0", "t2", "t5"], vec!["s0", "s2", "s5"], vec!["t1", "t4"]]);
}

#[test]
fn what_runs_as_one_is_kept_as_one() {
    let text = |last: &str, fold: &str| {
        let text =
            branches("out").replace("  last: { ttl: }\n", "").replace("c: { ttl: }", &format!("c: {{ {last} }}"));
        format!("fold: {fold}{text}")
    };
    let made = |text: &str| load(text).unwrap_or_else(|problems| panic!("{problems}")).made;
    let change = |old: &str, new: &str| {
        let told = made(old).change_to(&made(new));
        (told.kept, told.changed)
    };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let all = text("ttl: ", "on");
    assert_eq!(change(&all, &all), (4, vec![]));
    // One goes its own way: the others' function is another.
    assert_eq!(change(&all, &text("ip_checksum: ", "on")), (1, names(&["a", "b", "c"])));
    assert_eq!(change(&all, &text("ttl: ", "off")), (1, names(&["a", "b", "c"])));
    assert_eq!(change(&text("ttl: ", "off"), &all), (1, names(&["a", "b", "c"])));
    assert_eq!(change(&text("ttl: ", "off"), &text("ip_checksum: ", "off")), (3, names(&["c"])));
}

#[test]
fn on_and_off_are_all_there_is() {
    let source = Source::new(format!("fold: maybe{}", branches("out")), "test.yaml", "");
    let told = load_source(&source).err().expect("refused").to_string();
    assert!(told.contains("test.yaml:1: fold: ") && told.contains("on") && told.contains("off"), "{told}");
}
