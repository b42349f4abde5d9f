//! Changes compared one by one with a plain list that is scanned, in both forms, with a reader running beside them.

mod model;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use crate::acl::{Action, Decision, HeaderKey, Hits, Rule4, Rule6, RulePrefix, Verdict};
use crate::acl::{oracle, rule_file, synthetic};

use super::*;

fn table_of(v4: Vec<Rule4>, v6: Vec<Rule6>, quiet: Duration) -> RuleTable {
    let list = List::of(v4, v6, Sets::default(), Decision::Permit, 1).expect("not too many rules");
    RuleTable::compiled_after(quiet, Arc::new(list), [(); 2].map(|()| Counter::new()).into())
}

/// So long that the list is compiled only when the test asks for it.
const NEVER: Duration = Duration::from_secs(3600);

fn table(lines: &[&str]) -> RuleTable {
    let file = rule_file::parse("line", lines.join("\n").as_bytes()).expect("rules");
    table_of(file.v4, file.v6, NEVER)
}

fn verdicts<A: RuleAddress>(classifier: &Form<A>, keys: &[HeaderKey<A>], hits: &mut Hits) -> Vec<Verdict> {
    let mut verdicts = vec![Verdict::default(); keys.len()];
    classifier.classify_batch(keys, &mut verdicts, hits);
    verdicts
}

const SSH: &str = "@10.0.0.0/8 0.0.0.0/0 0 : 65535 22 : 22 0x06/0xff deny";
const ALL: &str = "@0.0.0.0/0 0.0.0.0/0 0 : 65535 0 : 65535 0/0 permit";
const SIX: &str = "@2001:db8::/32 ::/0 0 : 65535 443 : 443 0x06/0xff deny";

/// Returns a line as entries are written: in readable form.
fn entry(number: usize, line: &str) -> String {
    let rules = parse_line(line, &Sets::default()).expect("a rule");
    assert_eq!(rules.len(), 1);
    format!("{number} {}", rules[0])
}

#[test]
fn rules_come_and_go_by_position() {
    let table = table(&[ALL]);
    let mut reader = table.reader();
    let key = HeaderKey::new(0x0a00_0001, 1, 1024, 22, 6);
    let mut denied = || verdicts(&reader.read().v4, &[key], &mut Hits::new(1))[0].denies();
    assert!(!denied());
    assert_eq!(table.apply(&[&format!("add {SSH}"), &format!("add {SIX}")]).refused, []);
    assert!(!denied(), "a rule at the end comes after the rule that permits all packets");
    assert_eq!(table.entries(None, 9).expect("all"), [entry(0, ALL), entry(1, SSH), entry(2, SIX)]);
    assert_eq!(table.apply(&[&format!("add 0 {SSH}")]).made, 1);
    assert!(denied());
    assert_eq!(table.apply(&[&format!("remove {SSH}"), &format!("remove 1 {SSH}")]).made, 2);
    assert!(!denied());
    assert_eq!(table.apply(&[&format!("replace 0 {SSH}"), &format!("remove 1 {SIX}")]).made, 2);
    assert!(denied());
    assert_eq!((table.entries(None, 9).expect("all"), table.len()), (vec![entry(0, SSH)], 1));
}

#[test]
fn pages_follow_each_other() {
    let table = table(&[ALL, SSH, SIX, SSH, SIX]);
    let all = table.entries(None, 9).expect("all");
    assert_eq!(all, [entry(0, ALL), entry(1, SSH), entry(2, SSH), entry(3, SIX), entry(4, SIX)]);
    for (at, line) in all.iter().enumerate() {
        assert_eq!(table.entries(Some(line), 2).expect("an entry"), all[at + 1..(at + 3).min(5)]);
    }
    assert!(table.entries(Some("x"), 2).is_err());
}

#[test]
fn invalid_changes_are_refused_and_the_others_are_made() {
    let table = table(&[ALL]);
    let wrong = [
        (format!("add 2 {SSH}"), "no rule has number 2: allowed are 0 to 1"),
        (format!("replace 1 {SSH}"), "no rule has number 1: allowed is only 0"),
        (format!("replace {SSH}"), "'replace' needs a number and a rule: write replace NUMBER RULE"),
        ("replace 0".to_owned(), "'replace' needs a number and a rule: write replace NUMBER RULE"),
        (format!("replace 0 {SIX}"), "the table has no rule of this address family that could be replaced"),
        (format!("add 0 {SIX}"), "number 0 belongs to a rule of the other address family: allowed is only 1"),
        ("add 0 deny tcp from any to any".to_owned(), "write ip or ip6 before the protocol"),
        ("add 0".to_owned(), "write add [NUMBER] RULE, such as add 0 permit tcp"),
        (
            format!("remove 0 {SSH}"),
            "rule number 0 is permit ip from any to any, not the given rule: write that rule, or only the number",
        ),
        ("remove 1".to_owned(), "no rule has number 1: allowed is only 0"),
        ("remove 99999999999999999999".to_owned(), "'99999999999999999999' is not a rule number"),
        (format!("remove {SSH}"), "the table has no rule deny tcp from 10.0.0.0/8 to any port 22: the"),
        ("remove permit any from any to any".to_owned(), "the table has no rule permit ip6 from any to any"),
        (format!("add -1 {SSH}"), "'-1' is not a rule number: allowed are whole numbers from 0"),
        ("add set x = 10.0.0.0/8".to_owned(), "a change cannot define a set"),
        ("add permit tcp from office to any".to_owned(), "'office' is not a valid address, prefix or set"),
        ("add 0 @10.0.0.0/33 0.0.0.0/0 0 : 1 0 : 1 0/0".to_owned(), "10.0.0.0/33"),
        ("add".to_owned(), "'add' lacks an entry: write add [NUMBER] RULE"),
        (format!("insert {SSH}"), "'insert' is not a kind of change: allowed are add, remove and replace"),
    ];
    let mut lines: Vec<&str> = wrong.iter().map(|(line, _)| line.as_str()).collect();
    let good = format!("add 0 {SSH}");
    lines.push(&good);
    let outcome = table.apply(&lines);
    assert_eq!((outcome.made, outcome.refused.len()), (1, wrong.len()));
    for ((line, message), refused) in wrong.iter().zip(&outcome.refused) {
        assert!(refused.message.contains(message) && !refused.message.contains('\n'), "{line}: {refused}");
    }
    assert_eq!(table.entries(None, 9).expect("all"), [entry(0, SSH), entry(1, ALL)]);
}

#[test]
fn a_rule_is_removed_by_the_number_that_is_shown() {
    let table = table(&[ALL, SSH, SIX]);
    assert_eq!(table.apply(&["remove 3"]).refused[0].message, "no rule has number 3: allowed are 0 to 2");
    // Each change of a batch sees the numbers that the change before it produced.
    assert_eq!(table.apply(&["remove 0", "remove 1"]).refused, []);
    assert_eq!(table.entries(None, 9).expect("all"), [entry(0, SSH)]);
    // With a rule after the number, no other rule is removed.
    let other = table.apply(&["remove 0 permit ip from any to any"]);
    assert!(other.refused[0].message.contains("rule number 0 is deny tcp from 10.0.0.0/8"), "{other:?}");
    assert_eq!(table.apply(&["remove 0 deny tcp from 10.0.0.0/8 to any port ssh"]).made, 1);
    assert_eq!(table.apply(&["remove 0"]).refused[0].message, "no rule has a number: the table is empty");
}

#[test]
fn a_line_that_means_several_rules_adds_and_removes_them_together() {
    let file = "set office = 10.0.0.0/8, 2001:db8::/32\npermit ip from any to any";
    let file = rule_file::parse("f", file.as_bytes()).expect("rules");
    let list = List::of(file.v4, file.v6, file.sets, Decision::Permit, 1).expect("few rules");
    let table = RuleTable::compiled_after(NEVER, Arc::new(list), [(); 2].map(|()| Counter::new()).into());
    let outcome = table.apply(&["add deny tcp from office to any port 80,443"]);
    assert_eq!((outcome.made, outcome.entries, outcome.refused), (1, 4, Vec::new()));
    let shown = [
        "0 permit ip from any to any",
        "1 deny tcp from 10.0.0.0/8 to any port 80",
        "2 deny tcp from 10.0.0.0/8 to any port 443",
        "3 deny tcp from 2001:db8::/32 to any port 80",
        "4 deny tcp from 2001:db8::/32 to any port 443",
    ];
    assert_eq!(table.entries(None, 9).expect("all"), shown);
    assert_eq!(table.apply(&["replace 0 count udp from any to 10.0.0.1, 10.0.0.2"]).entries, 2);
    assert_eq!(
        table.entries(None, 3).expect("some")[..2],
        ["0 count udp from any to 10.0.0.1", "1 count udp from any to 10.0.0.2"]
    );
    assert_eq!(table.apply(&["remove 2", "remove deny tcp from office to any port 80,443"]).made, 1, "all or none");
    assert_eq!(table.len(), 5);
    assert_eq!(
        table.apply(&["add deny tcp from office to any port 80", "remove deny tcp from office to any port 80"]).made,
        2
    );
}

#[test]
fn rules_keep_their_counts_wherever_they_move() {
    for filler in [0, 6_000] {
        // Short and long lists are compiled in different ways.
        let count = "@10.0.0.0/8 0.0.0.0/0 0 : 65535 0 : 65535 0/0 count";
        let mut lines = vec![count, SSH];
        let fillers: Vec<String> = (0..filler)
            .map(|n| format!("@20.{}.{}.0/24 0.0.0.0/0 0 : 65535 {n} : {n} 0x06/0xff deny", n / 256, n % 256))
            .collect();
        lines.extend(fillers.iter().map(String::as_str));
        let table = table(&lines);
        let mut reader = table.reader();
        let mut hits = Hits::new(lines.len());
        let key = HeaderKey::new(0x0a00_0001, 1, 1024, 22, 6);
        verdicts(&reader.read().v4, &[key], &mut hits);
        assert_eq!((&hits.rules()[..2], hits.added()), ([1, 1].as_slice(), 0));
        let outcome =
            table.apply(&[&format!("add 0 {}", SSH.replace("22 : 22", "80 : 80")), &format!("add 0 {count}")]);
        assert_eq!(outcome.refused, []);
        verdicts(&reader.read().v4, &[key, HeaderKey::new(0x0a00_0001, 1, 1024, 80, 6)], &mut hits);
        assert_eq!((&hits.rules()[..2], hits.added()), ([2, 2].as_slice(), 3), "{filler}");
        assert!(table.shared.compile().is_ok());
        verdicts(&reader.read().v4, &[key, HeaderKey::new(0x0a00_0001, 1, 1024, 80, 6)], &mut hits);
        assert_eq!((&hits.rules()[..2], hits.added()), ([3, 3].as_slice(), 6), "{filler}");
    }
}

/// One of two rules that deny is present at all times, so no packet passes.
#[test]
fn a_reader_sees_the_old_list_or_the_new() {
    let table = table(&[SSH, ALL]);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (mut reader, done) = (table.reader(), &done);
        let reader = scope.spawn(move || {
            let key = HeaderKey::new(0x0a00_0001, 1, 1024, 22, 6);
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
        reader.join().expect("the reader's assertions hold");
    });
}

/// A rule that is replaced again and again is present in one version or the other, whatever form the list has. Packets
/// that it matches never reach the rule below; the packets of one call all meet the same version; the rule above stays
/// as it is.
#[test]
fn a_reader_sees_one_version_or_the_other() {
    let (permit, above) = (SSH.replace("deny", "permit"), ALL.replace("0/0 permit", "0x11/0xff deny"));
    let table = table(&[&above, SSH, ALL]);
    let (done, both) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let (mut reader, done, both) = (table.reader(), &done, &both);
        let reader = scope.spawn(move || {
            let ssh = |host: u32| HeaderKey::new(0x0a00_0000 + host, 1, 1024, 22, 6);
            let keys = [ssh(1), HeaderKey::new(1, 1, 1, 1, 17), ssh(2), HeaderKey::new(1, 1, 1, 1, 6), ssh(3)];
            let (mut seen, mut calls) = ([false; 2], 0u64);
            while !done.load(Ordering::Relaxed) {
                let verdicts_now = verdicts(&reader.read().v4, &keys, &mut Hits::new(4));
                assert_eq!((verdicts_now[1].rule(), verdicts_now[1].denies()), (Some(0), true), "the rule above");
                assert_eq!((verdicts_now[3].rule(), verdicts_now[3].denies()), (Some(2), false), "the rule below");
                // The version of the start has number 1, later versions have 3.
                assert!(matches!(verdicts_now[0].rule(), Some(1 | 3)), "{:?} after {calls} calls", verdicts_now[0]);
                assert!(
                    verdicts_now[0] == verdicts_now[2] && verdicts_now[0] == verdicts_now[4],
                    "{verdicts_now:?} in one call"
                );
                seen[usize::from(verdicts_now[0].denies())] = true;
                calls += 1;
                both.store(seen == [true; 2], Ordering::Relaxed);
            }
        });
        let mut round = 0;
        // Until the reader has met both versions or has ended because an assertion failed.
        while round < 600 || !both.load(Ordering::Relaxed) && !reader.is_finished() {
            let version = if round % 2 == 0 { permit.as_str() } else { SSH };
            assert_eq!(table.apply(&[&format!("replace 1 {version}")]).made, 1);
            if round % 40 == 0 {
                assert!(table.shared.compile().is_ok());
            }
            round += 1;
        }
        done.store(true, Ordering::Relaxed);
        reader.join().expect("the reader's assertions hold");
    });
}

/// Waits until a condition holds. Returns false after 120 s.
fn becomes_true(condition: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > Duration::from_secs(120) {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

#[test]
fn a_list_that_is_left_alone_is_compiled_again() {
    let file = rule_file::parse("line", [ALL, SIX].join("\n").as_bytes()).expect("rules");
    let table = table_of(file.v4, file.v6, Duration::from_millis(2));
    let compiled = || {
        let list = table.shared.live.look();
        (list.v4.is_compiled(), list.v6.is_compiled())
    };
    for round in 0..3 {
        assert_eq!(table.apply(&[&format!("add 0 {SSH}"), &format!("add {SSH}")]).made, 2);
        assert!(compiled().1, "the rules of the other family have not changed");
        assert!(becomes_true(|| compiled().0), "round {round}");
        assert_eq!(table.len(), 4 + 2 * round);
    }
    assert_eq!(table.apply(&[&format!("remove {SIX}")]).made, 1);
    assert!(becomes_true(|| compiled() == (true, true)));
    assert_eq!(table.len(), 7);
}

#[test]
fn a_long_list_is_judged_by_tuples_before_and_after_changes() {
    let rules: Vec<Rule4> = synthetic::rules(10_300, 1);
    let table = table_of(rules.clone(), Vec::new(), NEVER);
    let slow = |list: &List| !list.v4.is_compiled();
    let keys = synthetic::keys(&rules, 200, 0.8, 2);
    let oracle = |key| oracle::classify(&rules, Decision::Permit, key, &mut Hits::new(rules.len())).rule();
    let expected: Vec<_> = keys.iter().map(oracle).collect();
    let rules_hit = |list: &List| {
        let all = verdicts(&list.v4, &keys, &mut Hits::new(rules.len()));
        all.iter().map(|verdict| verdict.rule()).collect::<Vec<_>>()
    };
    let list = table.shared.live.look();
    assert!(slow(&list));
    assert_eq!(rules_hit(&list), expected);
    drop(list);
    assert_eq!(table.apply(&[&format!("add 0 {SSH}"), &format!("remove 0 {SSH}")]).made, 2);
    assert!(table.shared.compile().is_ok());
    let list = table.shared.live.look();
    assert!(slow(&list) && list.v4.changing().is_some(), "a slower form is not installed");
    assert_eq!(rules_hit(&list), expected);
}

#[test]
fn a_list_that_takes_too_much_to_compile_is_judged_by_tuples_and_counted() {
    let rules: Vec<Rule4> = synthetic::costly(10_000);
    let table = table_of(rules.clone(), Vec::new(), NEVER);
    let given_up = || table.shared.lock().given_up.iter().map(Counter::get).collect::<Vec<_>>();
    let keys = synthetic::hitting_keys(&rules, 200, 2);
    let oracle = |key| oracle::classify(&rules, Decision::Permit, key, &mut Hits::new(rules.len()));
    let expected: Vec<_> = keys.iter().map(oracle).collect();
    let verdicts_now = || verdicts(&table.shared.live.look().v4, &keys, &mut Hits::new(rules.len()));
    assert_eq!((verdicts_now(), given_up()), (expected.clone(), vec![1, 0]));
    assert_eq!(
        (table.len(), table.entries(None, 1).expect("the first")),
        (10_000, vec![format!("0 {}", Readable(&rules[0]))])
    );
    assert_eq!(table.apply(&[&format!("add 0 {SSH}"), &format!("remove {SSH}")]).made, 2);
    assert!(table.shared.compile().is_ok());
    assert!(table.shared.live.look().v4.changing().is_some());
    assert_eq!((verdicts_now(), given_up()), (expected, vec![2, 0]));
}

#[test]
fn the_compiling_thread_ends_with_the_table() {
    let table = table(&[ALL]);
    assert_eq!(table.apply(&[&format!("add {SSH}")]).made, 1);
    let shared = Arc::downgrade(&table.shared);
    assert!(shared.strong_count() == 2, "the table and the waiting thread");
    drop(table);
    assert!(becomes_true(|| shared.strong_count() == 0));
}

#[test]
fn a_list_that_has_changed_meanwhile_is_not_replaced_by_its_old_form() {
    let table = table(&[ALL]);
    assert_eq!(table.apply(&[&format!("add 0 {SSH}")]).made, 1);
    let denied = || {
        let key = HeaderKey::new(0x0a00_0001, 1, 1024, 22, 6);
        verdicts(&table.shared.live.look().v4, &[key], &mut Hits::new(1))[0].denies()
    };
    let stale = table.shared.snapshot().compile();
    assert!(denied());
    assert_eq!(table.apply(&[&format!("remove 0 {SSH}")]).made, 1);
    assert!(!table.shared.put(stale), "the compiled form is older than the change");
    assert!(!denied());
    assert!(!table.shared.live.look().v4.is_compiled());
    // As many rules as before, so that their number cannot reveal the change.
    let stale = table.shared.snapshot().compile();
    assert_eq!(table.apply(&[&format!("replace 0 {SSH}")]).made, 1);
    assert!(!table.shared.put(stale));
    assert!(denied());
    assert!(table.shared.compile().is_ok());
    assert!(denied() && table.shared.live.look().v4.is_compiled());
}
