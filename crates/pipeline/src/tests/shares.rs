//! Tests `scheduler:` and `shares:`, and their errors.

use forebay_graph::{Marks, Share, WhenFull};
use forebay_protocol::{RateLimit, SchedulerKind};
use forebay_units::{BitRate, Nanos, PacketRate, Rate};

use super::load;

/// A pipeline of three modules with these lines added.
fn with(lines: &str) -> String {
    let modules = "modules: { a: { test_pass: }, b: { test_pass: }, c: { test_pass: } }";
    format!("ports: {{ in: {{ test_port: }} }}\n{modules}\npipeline: [in -> a -> b -> c -> in]\n{lines}")
}

fn refused(lines: &str) -> String {
    load(&with(lines)).err().expect("refused").to_string()
}

#[test]
fn shares_are_read_and_missing_values_have_their_defaults() {
    let shares = "shares:
  c: { weight: 7, rate: 2Mpps, burst: 10us, queue: 500, high: 90, low: 10, when_full: drop }
  b: { rate: 1Gbps }
";
    let text = with(&format!("scheduler: weighted-fair\n{shares}"));
    let plan = load(&text).unwrap_or_else(|problems| panic!("{problems}")).plans.remove(0);
    assert_eq!(plan.scheduler, SchedulerKind::WeightedFair);
    let marks = Marks { queue: 500, high: 90, low: 10, when_full: WhenFull::Drop };
    let limit = |rate, burst| Some(RateLimit { rate, burst: Nanos(burst) });
    let found: Vec<_> = plan.modules.iter().map(|module| (module.name.as_str(), module.share)).collect();
    let b = Share { limit: limit(Rate::Bits(BitRate(1e9)), 1_000_000), ..Share::default() };
    let c = Share { weight: 7, limit: limit(Rate::Packets(PacketRate(2e6)), 10_000), marks };
    assert_eq!(found, [("a", Share::default()), ("b", b), ("c", c)]);
    // If the configuration names the other scheduler, shares are allowed but unused.
    let plan = load(&with(&format!("scheduler: run-to-completion\n{shares}"))).map(|loaded| loaded.plans[0].scheduler);
    assert_eq!(plan.ok(), Some(SchedulerKind::RunToCompletion));
    let default = load(&with("")).map(|loaded| loaded.plans[0].scheduler);
    assert_eq!(default.ok(), Some(SchedulerKind::RunToCompletion));
}

#[test]
fn shares_that_make_no_sense_are_refused() {
    insta::assert_snapshot!(refused("scheduler: fair\n"), @"test.yaml:4: scheduler: 'fair' does not fit: allowed are \
        run-to-completion, weighted-fair");
    insta::assert_snapshot!(refused("shares: { a: { weight: 2 } \
        }\n"), @"test.yaml:4: shares: the \
        default scheduler, run-to-completion, uses only `when_full`, and only between workers: write `scheduler: \
        weighted-fair` too");
    insta::assert_snapshot!(refused("scheduler: weighted-fair
shares:
  a: { weight: 0, rate: 5, when_full: stop }
  b: { high: 50, low: 50 }
  in: { weight: 2 }
  d: {}
  c: { wieght: 2 }
"), @"
        test.yaml:6: shares.a.weight: '0' is out of range: allowed is a whole number from 1 to 65535
        test.yaml:6: shares.a.rate: '5' does not fit: allowed are a number with a unit (pps, kpps, Mpps, Gpps), a \
            number with a unit (bps, kbps, Mbps, Gbps, Tbps); from 1pps to 1000Gpps or 8bps to 8000Tbps
        test.yaml:6: shares.a.when_full: 'stop' does not fit: allowed are wait, drop
        test.yaml:7: shares.b.low: 50: allowed are 0 to 49
        test.yaml:8: 'in' is a port: shares belong to modules
        test.yaml:9: no module is called 'd': there are a, b, c
        test.yaml:10: shares.c: unknown key 'wieght' (did you mean 'weight'?): allowed are burst, high, low, queue, \
            rate, weight, when_full
        ");
    insta::assert_snapshot!(refused("scheduler: weighted-fair
shares:
  a: { rate: 0pps }
  b: { burst: 1ms }
  c: { rate: 1Mpps, burst: 11s }
"), @r"
        test.yaml:6: shares.a.rate: 0pps: allowed are 1pps to 1000Gpps or 8bps to 8000Tbps
        test.yaml:7: shares.b.burst: `burst` needs a `rate`: write both
        test.yaml:8: shares.c.burst: 11s: allowed are 0us to 10s
        ");
}

#[test]
fn several_workers_may_drop_at_full_rings_whatever_the_scheduler() {
    let workers = "workers: [{ modules: [a] }, { modules: [b, c] }]\nshares: { b: { when_full: drop } }\n";
    let plans = load(&with(workers)).unwrap_or_else(|problems| panic!("{problems}")).plans;
    let when_full =
        |plan: &forebay_graph::Plan| plan.modules.iter().map(|it| it.share.marks.when_full).collect::<Vec<_>>();
    // The plan of the sending worker has the setting, too.
    for plan in &plans {
        assert_eq!(when_full(plan), [WhenFull::Wait, WhenFull::Drop, WhenFull::Wait]);
    }
    assert!(load(&with("control: { batching: optimal, workers: 2 }\nshares: { b: { when_full: wait } }\n")).is_ok());
    assert!(refused("shares: { b: { when_full: drop } }\n").contains("between workers"));
}

#[test]
fn moved_modules_drop_at_full_rings_unless_when_full_is_set() {
    let text = with("shares: { b: { when_full: wait } }\n");
    let root = crate::yaml::parse(&text, &mut Default::default()).expect("YAML");
    let mut shares = vec![Share::default(); 3];
    crate::shares::drop_for_moved(&root, &[vec![0], vec![0], vec![0]], &[vec![0, 1], vec![1], vec![1]], &mut shares);
    let when_full: Vec<_> = shares.iter().map(|share| share.marks.when_full).collect();
    assert_eq!(when_full, [WhenFull::Wait, WhenFull::Wait, WhenFull::Drop]);
}
