//! Changes one by one against a plain list that is scanned, and a reader beside them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::tables::acl::{Hits, Key, Verdict, classbench, oracle, synthetic};

fn compiled<A: Address>(rules: Vec<Rule<A>>) -> Arc<Classifier<A>> {
    Arc::new(Classifier::build(rules, Decision::Permit).expect("few rules"))
}

fn table(lines: &[&str]) -> RuleTable {
    let file = classbench::parse("line", lines.join("\n").as_bytes()).expect("rules");
    RuleTable::of(Arc::new(List { v4: compiled(file.v4), v6: compiled(file.v6) }))
}

fn verdicts<A: Address>(classifier: &Classifier<A>, keys: &[Key<A>], hits: &mut Hits) -> Vec<Verdict> {
    let mut verdicts = vec![Verdict::default(); keys.len()];
    classifier.classify_batch(keys, &mut verdicts, hits);
    verdicts
}

const SSH: &str = "@10.0.0.0/8 0.0.0.0/0 0 : 65535 22 : 22 0x06/0xff deny";
const ALL: &str = "@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0/0 permit";
const SIX: &str = "@2001:db8::/32 ::/0 0 : 65535 443 : 443 0x06/0xff deny";

/// A line as entries are written, with tabs and figures of a fixed form.
fn entry(position: usize, line: &str) -> String {
    match parse_rule(line).expect("a rule") {
        AnyRule::V4(rule) => format!("{position} {rule}"),
        AnyRule::V6(rule) => format!("{position} {rule}"),
    }
}

#[test]
fn rules_come_and_go_by_position() {
    let table = table(&[ALL]);
    let mut reader = table.reader();
    let key = Key::new(0x0a00_0001, 1, 1024, 22, 6);
    let mut denied = || verdicts(&reader.read().v4, &[key], &mut Hits::new(1))[0].denies();
    assert!(!denied());
    assert_eq!(table.apply(&[&format!("add {SSH}"), &format!("add {SIX}")]).refused, []);
    assert!(!denied(), "a rule at the end comes after the one that permits all");
    assert_eq!(table.entries(None, 9).expect("all"), [entry(0, ALL), entry(1, SSH), entry(0, SIX)]);
    assert_eq!(table.apply(&[&format!("add 0 {SSH}")]).made, 1);
    assert!(denied());
    assert_eq!(table.apply(&[&format!("remove {SSH}"), &format!("remove 1 {SSH}")]).made, 2);
    assert!(!denied());
    assert_eq!(table.apply(&[&format!("replace 0 {SSH}"), &format!("remove 0 {SIX}")]).made, 2);
    assert!(denied());
    assert_eq!((table.entries(None, 9).expect("all"), table.len()), (vec![entry(0, SSH)], 1));
}

#[test]
fn pages_follow_each_other() {
    let table = table(&[ALL, SSH, SIX, SSH, SIX]);
    let all = table.entries(None, 9).expect("all");
    assert_eq!(all, [entry(0, ALL), entry(1, SSH), entry(2, SSH), entry(0, SIX), entry(1, SIX)]);
    for (at, line) in all.iter().enumerate() {
        assert_eq!(table.entries(Some(line), 2).expect("an entry"), all[at + 1..(at + 3).min(5)]);
    }
    assert!(table.entries(Some("x"), 2).is_err());
}

#[test]
fn what_cannot_be_done_is_refused_and_the_rest_is_done() {
    let table = table(&[ALL]);
    let wrong = [
        (format!("add 2 {SSH}"), "there is no position 2: allowed are 0 to 1"),
        (format!("replace 1 {SSH}"), "there is no position 1: allowed are 0 to 0"),
        (format!("replace {SSH}"), "'replace' has no position: write replace POSITION RULE"),
        (format!("remove 0 {SSH}"), "at position 0 is the rule @0.0.0.0/0"),
        (format!("remove {SSH}"), "there is no rule @10.0.0.0/8"),
        (format!("remove 0 {SIX}"), "no rule has a position: this family has no rules"),
        (format!("add -1 {SSH}"), "'-1' is no position: allowed are whole numbers from 0"),
        ("add 0 @10.0.0.0/33 0.0.0.0/0 0 : 1 0 : 1 0/0".to_owned(), "10.0.0.0/33"),
        ("add".to_owned(), "there is no rule: write\nadd [POSITION] RULE"),
        (format!("insert {SSH}"), "'insert' is no change: write\nadd [POSITION] RULE"),
    ];
    let mut lines: Vec<&str> = wrong.iter().map(|(line, _)| line.as_str()).collect();
    let good = format!("add 0 {SSH}");
    lines.push(&good);
    let outcome = table.apply(&lines);
    assert_eq!((outcome.made, outcome.refused.len()), (1, wrong.len()));
    for ((line, told), refused) in wrong.iter().zip(&outcome.refused) {
        assert!(refused.message.contains(told), "{line}: {refused}");
    }
    assert_eq!(table.entries(None, 9).expect("all"), [entry(0, SSH), entry(1, ALL)]);
}

#[test]
fn rules_keep_their_counts_wherever_they_move() {
    for filler in [0, 6_000] {
        // Few rules and many are compiled in different ways.
        let count = "@10.0.0.0/8 0.0.0.0/0 0 : 65535 0 : 65535 0/0 count";
        let mut lines = vec![count, SSH];
        let fillers: Vec<String> = (0..filler)
            .map(|n| format!("@20.{}.{}.0/24 0.0.0.0/0 0 : 65535 {n} : {n} 0x06/0xff deny", n / 256, n % 256))
            .collect();
        lines.extend(fillers.iter().map(String::as_str));
        let table = table(&lines);
        let mut reader = table.reader();
        let mut hits = Hits::new(lines.len());
        let key = Key::new(0x0a00_0001, 1, 1024, 22, 6);
        verdicts(&reader.read().v4, &[key], &mut hits);
        assert_eq!((&hits.rules()[..2], hits.added()), ([1, 1].as_slice(), 0));
        let outcome =
            table.apply(&[&format!("add 0 {}", SSH.replace("22 : 22", "80 : 80")), &format!("add 0 {count}")]);
        assert_eq!(outcome.refused, []);
        verdicts(&reader.read().v4, &[key, Key::new(0x0a00_0001, 1, 1024, 80, 6)], &mut hits);
        assert_eq!((&hits.rules()[..2], hits.added()), ([2, 2].as_slice(), 3), "{filler}");
    }
}

/// While one of two rules that deny is always there, no packet passes.
#[test]
fn a_reader_sees_the_old_list_or_the_new() {
    let table = table(&[SSH, ALL]);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (mut reader, done) = (table.reader(), &done);
        let reader = scope.spawn(move || {
            let key = Key::new(0x0a00_0001, 1, 1024, 22, 6);
            loop {
                assert!(verdicts(&reader.read().v4, &[key], &mut Hits::new(2))[0].denies());
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for round in 0..200 {
            let other = if round % 2 == 0 { SSH.replace("10.0.0.0/8", "10.0.0.0/16") } else { SSH.to_owned() };
            assert_eq!(table.apply(&[&format!("replace 0 {other}")]).made, 1);
        }
        done.store(true, Ordering::Relaxed);
        reader.join().expect("it saw nothing wrong");
    });
}

/// Changes in any batches: positions that may not exist, rules of a small set so that they meet.
fn changes() -> impl Strategy<Value = Vec<Vec<(u8, Option<usize>, usize)>>> {
    let change = (0u8..3, prop::option::of(0usize..12), 0usize..20);
    prop::collection::vec(prop::collection::vec(change, 0..8), 1..8)
}

fn lists_agree<A: Address>(
    seed: u64,
    batches: Vec<Vec<(u8, Option<usize>, usize)>>,
    table: impl Fn(Vec<Rule<A>>) -> RuleTable,
    of: impl Fn(&List) -> &Classifier<A>,
) {
    let pool = synthetic::rules::<A>(20, seed);
    let keys = synthetic::keys(&pool, 64, 0.9, seed);
    let mut model = pool[..8].to_vec();
    let table = table(model.clone());
    let mut reader = table.reader();
    for batch in batches {
        let (mut lines, mut refused) = (Vec::new(), Vec::new());
        for (at, (verb, position, which)) in batch.into_iter().enumerate() {
            let rule = pool[which];
            let place = position.map_or(String::new(), |position| format!("{position} "));
            let word = ["add", "remove", "replace"][usize::from(verb)];
            lines.push(format!("{word} {place}{rule}"));
            let found = position.or_else(|| model.iter().position(|it| *it == rule));
            match verb {
                0 if position.unwrap_or(model.len()) <= model.len() => {
                    model.insert(position.unwrap_or(model.len()), rule)
                }
                1 if found.is_some_and(|found| model.get(found) == Some(&rule)) => _ = model.remove(found.unwrap_or(0)),
                2 if position.is_some_and(|position| position < model.len()) => model[position.unwrap_or(0)] = rule,
                _ => refused.push(at),
            }
        }
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        let outcome = table.apply(&lines);
        assert_eq!(outcome.refused.iter().map(|refused| refused.change).collect::<Vec<_>>(), refused);
        let list = reader.read();
        assert_eq!(of(&list).rules(), model);
        let answers = verdicts(of(&list), &keys, &mut Hits::new(0));
        for (key, answer) in keys.iter().zip(answers) {
            let scan = oracle::classify(&model, Decision::Permit, key, &mut Hits::new(0));
            assert_eq!(answer.decision(), scan.decision());
        }
        let entries: Vec<_> = model.iter().enumerate().map(|(position, rule)| format!("{position} {rule}")).collect();
        assert_eq!(table.entries(None, 99).expect("all"), entries);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn lists_are_what_a_scan_says(seed: u64, batches in changes()) {
        let none4 = || compiled::<u32>(Vec::new());
        let none6 = || compiled::<u128>(Vec::new());
        lists_agree::<u32>(seed, batches.clone(), |rules| RuleTable::of(Arc::new(List { v4: compiled(rules), v6: none6() })), |list| &list.v4);
        lists_agree::<u128>(seed, batches, |rules| RuleTable::of(Arc::new(List { v4: none4(), v6: compiled(rules) })), |list| &list.v6);
    }
}
