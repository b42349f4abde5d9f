//! Rate objectives in overload: each flow has what it was promised, and of what is left fair rates.

use forebay_pipeline::Source;
use forebay_protocol::{ShortCause, ShortFlow};

use crate::driving::{Run, run};

/// Periods until rates have settled.
const SETTLED: usize = 10;
/// What a packet of the first flow takes; of the second it is four times as much.
const PACKET: u64 = 400;

/// Two flows behind a split, three packets of the first for each of the second; `rate` of both, and what each of them is promised.
fn two(rate: &str, promised: [Option<&str>; 2], controller: &str) -> Source {
    let [first, second] = promised.map(|rate| rate.map_or(String::new(), |rate| format!(", min_rate: {rate}")));
    let text = format!(
        "name: two
scheduler: weighted-fair
ports: {{ in: {{ generator: {{ rate: {rate} }} }}, out: {{ sink: }} }}
modules:
  split: {{ weighted_split: {{ weights: [3, 1] }} }}
  cheap: {{ counter: }}
  after: {{ counter: }}
  dear: {{ counter: }}
pipeline:
  - in -> split
  - split[0] -> cheap -> after -> out
  - split[1] -> dear -> out
flows:
  - {{ name: first, path: 'split[0] -> cheap', slo: 2ms{first} }}
  - {{ name: second, path: 'split[1] -> dear', slo: 2ms{second} }}
shares: {{ cheap: {{ when_full: drop }}, after: {{ when_full: drop }}, dear: {{ when_full: drop }} }}
control: {{ batching: {controller}, period: 10ms }}
"
    );
    Source::new(text, "two.yaml", "")
}

fn cost(module: &str) -> (u64, u64) {
    match module {
        "split" => (50, 5),
        "after" => (50, PACKET / 4),
        "cheap" => (50, PACKET * 3 / 4),
        _ => (200, 4 * PACKET),
    }
}

/// Packets a second of both flows, once they have settled.
fn rates(told: &Run) -> [f64; 2] {
    let periods = &told.periods[SETTLED..];
    let seconds: f64 = periods.iter().map(|period| period.snapshot.period_s).sum();
    [0, 1].map(|flow| periods.iter().map(|period| period.snapshot.flows[flow].packets).sum::<u64>() as f64 / seconds)
}

#[track_caller]
fn near(found: f64, wanted: f64) {
    assert!((found / wanted - 1.0).abs() <= 0.05, "{found} instead of {wanted}");
}

/// With both at one rate there is time for about half a million packets of each.
#[test]
fn without_promises_rates_are_max_min() {
    let told = run(&two("4Mpps", [None, None], "fair"), &cost, 500, &[]);
    let [first, second] = rates(&told);
    near(first, second);
    assert!(first > 430e3, "{first}: there is time for more");
    let short: Vec<_> = told.periods.iter().flat_map(|period| &period.actions.short).collect();
    assert_eq!(short.len(), 0);
}

#[test]
fn what_is_promised_is_had_and_the_rest_is_the_others() {
    for (promised, least, other) in [([Some("1200kpps"), None], 1_200e3, 1), ([None, Some("500kpps")], 500e3, 0)] {
        let told = run(&two("4Mpps", promised, "fair"), &cost, 500, &[]);
        let rates = rates(&told);
        assert!(rates[1 - other] >= 0.99 * least, "{rates:?}");
        // In reserve is as much as the guard says.
        near(rates[1 - other], least / 0.95);
        assert!(rates[other] > 100e3, "{rates:?}");
        let flow = &told.report.flows[1 - other];
        assert_eq!((flow.min_rate_pps, flow.rate_kept), (Some(least), Some(true)), "{}", flow.rate_pps);
        // All the time is used.
        let load = rates[0] * 400e-9 + rates[1] * 1_600e-9;
        assert!(load > 0.9, "{load}");
    }
}

#[test]
fn both_have_what_they_were_promised() {
    let promised = [Some("500kpps"), Some("460kpps")];
    let [first, second] = rates(&run(&two("4Mpps", promised, "fair"), &cost, 500, &[]));
    assert!(first >= 500e3 && second >= 460e3, "{first} {second}");
    // By loads, as NFVnice has it, the second would have too little.
    let told = run(&two("4Mpps", promised, "nfvnice"), &cost, 500, &[]);
    assert!(rates(&told)[1] < 455e3, "{:?}", rates(&told));
    assert_eq!(told.report.flows[1].rate_kept, Some(false));
}

/// What is offered and not stated is no reason to take time from others.
#[test]
fn a_flow_that_offers_less_than_its_rate_has_all_of_it() {
    let told = run(&two("1200kpps", [None, Some("600kpps")], "fair"), &cost, 500, &[]);
    let [first, second] = rates(&told);
    near(second, 300e3);
    assert!(first > 900e3 * 0.95, "{first}");
    assert_eq!(told.report.flows[1].rate_kept, Some(true));
}

#[test]
fn promises_for_which_there_is_no_time_are_told_and_kept_in_the_same_part() {
    let told = run(&two("8Mpps", [Some("2Mpps"), Some("500kpps")], "fair"), &cost, 500, &[]);
    let [first, second] = rates(&told);
    near(first / 2e6, second / 500e3);
    let last = told.periods.last().expect("periods");
    let short: Vec<_> = last.actions.short.iter().map(|short| (short.flow, short.cause)).collect();
    assert_eq!(short.len(), 2, "{short:?}");
    assert!(short.iter().all(|(_, cause)| matches!(cause, ShortCause::Time { worker: 0, load } if *load > 1.5)));
    assert_eq!(told.report.flows.iter().map(|flow| flow.rate_kept).collect::<Vec<_>>(), [Some(false); 2]);
}

/// Within capacity it does what `optimal` does: full batches as far as objectives allow, and nothing is lost.
#[test]
fn within_capacity_all_have_what_they_offer_in_time_and_at_the_least_load() {
    let told = run(&two("800kpps", [None, Some("150kpps")], "fair"), &cost, 500, &[]);
    let [first, second] = rates(&told);
    near(first, 600e3);
    near(second, 200e3);
    assert_eq!(told.report.packets.all_dropped(), 0);
    let late = told.worst().into_iter().skip(SETTLED).filter(|worst| *worst > 1.0).count();
    assert_eq!(late, 0);
    assert!(told.figures(SETTLED).0 > 16.0, "{:?}", told.figures(SETTLED));
}

/// A flow that is inside what it was promised keeps its delay objective, whatever the other sends.
#[test]
fn delay_objectives_of_flows_that_have_all_they_offer_are_kept_in_overload() {
    let source = two("1200kpps", [None, Some("600kpps")], "fair").set("flows.1.slo=3ms");
    let told = run(&source.set("modules.split.weighted_split.weights=[9, 1]"), &cost, 500, &[]);
    let late = |period: &forebay_control::recording::Period| {
        let flow = &period.snapshot.flows[1];
        flow.violations as f64 > 0.01 * flow.packets as f64
    };
    near(rates(&told)[1], 120e3);
    assert_eq!(told.periods[SETTLED..].iter().filter(|period| late(period)).count(), 0);
}

/// Two flows that pass one module, the first with a rate, and a third with one of its own. Packets of the first end after a tenth of
/// a second.
const SHARED: &str = "
scheduler: weighted-fair
ports:
  a: { generator: { rate: 500kpps, count: 50000, vlans: [1] } }
  b: { generator: { rate: 6Mpps, vlans: [2] } }
  c: { generator: { rate: 3Mpps, vlans: [3] } }
  out: { sink: }
modules: { split: { vlan_split: { ids: [1, 2, 3] } }, shared: { counter: }, own: { counter: } }
pipeline: [a -> split, b -> split, c -> split, 'split[1] -> shared -> out', 'split[2] -> shared', 'split[3] -> own -> out', 'split[other] -> drop']
flows:
  - { name: first, path: 'split[1] -> shared', min_rate: 200kpps }
  - { name: flood, path: 'split[2] -> shared' }
  - { name: third, path: 'split[3] -> own' }
shares: { shared: { when_full: drop }, own: { when_full: drop } }
control: { batching: fair, period: 10ms }
";

/// Runs it for a second.
fn shared(sets: &[&str]) -> Run {
    let source = sets.iter().fold(Source::new(SHARED, "shared.yaml", ""), |source, set| source.set(*set));
    run(&source, &|module| if module == "split" { (50, 5) } else { (50, 800) }, 1_000, &[])
}

/// Nobody can let a flow pass the others of its modules; but where it sends nothing, these others are promised nothing.
#[test]
fn a_promised_flow_that_stops_leaves_no_promise_to_those_that_share_its_modules() {
    let told = shared(&[]);
    let left = |flow: usize, from: usize| {
        let periods = told.periods[from..].iter().take(5);
        periods.map(|period| period.snapshot.flows[flow].packets).sum::<u64>() as f64
    };
    let causes = |at: usize| told.periods[at].actions.short.iter().map(|short| short.cause).collect::<Vec<_>>();
    assert!(left(0, 5) > 0.0);
    assert_eq!(causes(5), [ShortCause::Together { with: 1, module: 1 }], "there is time for what is stated");
    // One of a gate's two flows has gone: its gate still has two shares.
    let last = told.periods.len() - 5;
    assert!(left(0, last) == 0.0);
    near(left(2, last), left(1, last) / 2.0);
    assert_eq!(causes(last), [], "who sends nothing lacks nothing");
}

#[test]
fn promises_of_flows_that_share_a_module_take_too_much_time_rather_than_being_together() {
    let told = shared(&["ports.a.generator.count=10000000", "flows.0.min_rate=450kpps", "flows.1.min_rate=1Mpps"]);
    let short = &told.periods.last().expect("periods").actions.short;
    let [ShortFlow { flow: 0, cause: ShortCause::Time { worker: 0, load }, .. }] = short[..] else {
        panic!("{short:?}")
    };
    assert!(load > 1.1 && load < 1.4, "{load}");
}

/// Its delay is that of a full queue, and no call's.
#[test]
fn a_flow_that_is_held_back_is_told_what_its_calls_take_and_not_what_it_waited() {
    let told = run(&two("4Mpps", [Some("1200kpps"), None], "fair"), &cost, 500, &[]);
    let unkept = &told.periods.last().expect("periods").actions.unkept;
    assert!(!unkept.is_empty());
    let is_of_calls = |least_s: f64| least_s > 0.0 && least_s < 256.0 * 2e-6;
    assert!(unkept.iter().all(|unkept| is_of_calls(unkept.least_s) && unkept.slo_s > unkept.least_s), "{unkept:?}");
}

/// Ports of their own need no queue that drops: what there is no time for stays outside.
#[test]
fn flows_with_ports_of_their_own_have_their_rates_too() {
    let text = "
scheduler: weighted-fair
ports: { a: { generator: { rate: 3Mpps } }, b: { generator: { rate: 1Mpps } }, out: { sink: } }
modules: { cheap: { counter: }, dear: { counter: } }
pipeline: [a -> cheap -> out, b -> dear -> out]
flows:
  - { name: first, path: cheap }
  - { name: second, path: dear, min_rate: 500kpps }
control: { batching: fair, period: 10ms }
";
    let told = run(&Source::new(text, "ports.yaml", ""), &cost, 500, &[]);
    let [first, second] = rates(&told);
    near(second, 500e3 / 0.95);
    assert!(first > 300e3, "{first}");
    let told = run(&Source::new(text, "ports.yaml", "").set("flows.1.min_rate=1pps"), &cost, 500, &[]);
    let [first, second] = rates(&told);
    near(first, second);
}

/// Where queues do not drop, packets of both wait at one port, and nobody can let one pass the other.
#[test]
fn a_flow_that_waits_for_another_at_a_port_is_told() {
    let source = two("8Mpps", [Some("1Mpps"), None], "fair");
    let waits = ["cheap", "after", "dear"].into_iter();
    let source = waits.fold(source, |source, module| source.set(format!("shares.{module}.when_full=wait")));
    let source = source.set("modules.split.weighted_split.weights=[1, 1]");
    let told = run(&source, &cost, 500, &[]);
    let last = told.periods.last().expect("periods");
    let short: Vec<_> = last.actions.short.iter().map(|short| (short.flow, short.cause)).collect();
    assert_eq!(short, [(0, ShortCause::Held { module: 0 })]);
}

/// What is before the split had time for all that came, and next to nothing was left for what was paid for.
#[test]
fn where_modules_before_a_split_take_most_of_the_time_packets_stay_outside() {
    let even = |_: &str| (30, 400);
    for promised in [[None, None], [Some("1Mpps"), None]] {
        let all = |controller: &str| {
            let promised = if controller == "fair" { promised } else { [None, None] };
            rates(&run(&two("4Mpps", promised, controller), &even, 1_000, &[])).iter().sum::<f64>()
        };
        let (fair, wfq) = (all("fair"), all("wfq"));
        // Equal rates of flows that come three to one take more of the split than they leave it.
        assert!(fair > 0.6 * wfq, "{promised:?}: {fair} of {wfq}");
    }
}
