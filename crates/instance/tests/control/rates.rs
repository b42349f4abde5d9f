//! Tests rate objectives in overload: each flow gets its objective, and the remaining time is divided fairly.

use forebay_pipeline::Source;
use forebay_protocol::{ShortCause, ShortFlow};

use crate::driving::{Run, run};

/// The number of periods until rates are steady.
const SETTLED: usize = 10;
/// The cost of a packet of the first flow. A packet of the second flow costs four times as much.
const PACKET: u64 = 400;

/// Returns two flows behind a split, with three packets of the first for each packet of the second. `rate` is the total
/// rate, `promised` the rate objective of each flow.
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
  costly: {{ counter: }}
pipeline:
  - in -> split
  - split[0] -> cheap -> after -> out
  - split[1] -> costly -> out
flows:
  - {{ name: first, path: 'split[0] -> cheap', slo: 2ms{first} }}
  - {{ name: second, path: 'split[1] -> costly', slo: 2ms{second} }}
shares: {{ cheap: {{ when_full: drop }}, after: {{ when_full: drop }}, costly: {{ when_full: drop }} }}
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

/// Returns the packets per second of both flows when they are steady.
fn rates(run: &Run) -> [f64; 2] {
    let periods = &run.periods[SETTLED..];
    let seconds: f64 = periods.iter().map(|period| period.snapshot.period_s).sum();
    [0, 1].map(|flow| periods.iter().map(|period| period.snapshot.flows[flow].packets).sum::<u64>() as f64 / seconds)
}

#[track_caller]
fn near(found: f64, wanted: f64) {
    assert!((found / wanted - 1.0).abs() <= 0.05, "{found} instead of {wanted}");
}

/// If both flows have the same rate, there is time for about half a million packets of each.
#[test]
fn without_promises_rates_are_max_min() {
    let result = run(&two("4Mpps", [None, None], "fair"), &cost, 500, &[]);
    let [first, second] = rates(&result);
    near(first, second);
    assert!(first > 430e3, "{first}: there is time for more");
    let short: Vec<_> = result.periods.iter().flat_map(|period| &period.actions.short).collect();
    assert_eq!(short.len(), 0);
}

#[test]
fn a_flow_gets_its_objective_and_the_other_flow_the_rest() {
    for (promised, least, other) in [([Some("1200kpps"), None], 1_200e3, 1), ([None, Some("500kpps")], 500e3, 0)] {
        let result = run(&two("4Mpps", promised, "fair"), &cost, 500, &[]);
        let rates = rates(&result);
        assert!(rates[1 - other] >= 0.99 * least, "{rates:?}");
        // The guard keeps a part in reserve.
        near(rates[1 - other], least / 0.95);
        assert!(rates[other] > 100e3, "{rates:?}");
        let flow = &result.report.flows[1 - other];
        assert_eq!((flow.min_rate_pps, flow.rate_kept), (Some(least), Some(true)), "{}", flow.rate_pps);
        // All the time is used.
        let load = rates[0] * 400e-9 + rates[1] * 1_600e-9;
        assert!(load > 0.9, "{load}");
    }
}

#[test]
fn both_flows_get_their_objectives() {
    let promised = [Some("500kpps"), Some("460kpps")];
    let [first, second] = rates(&run(&two("4Mpps", promised, "fair"), &cost, 500, &[]));
    assert!(first >= 500e3 && second >= 460e3, "{first} {second}");
    // With shares by load, as in NFVnice, the second flow gets too little.
    let result = run(&two("4Mpps", promised, "nfvnice"), &cost, 500, &[]);
    assert!(rates(&result)[1] < 455e3, "{:?}", rates(&result));
    assert_eq!(result.report.flows[1].rate_kept, Some(false));
}

/// A rate objective beyond the offered rate takes no time from other flows.
#[test]
fn a_flow_that_offers_less_than_its_rate_has_all_of_it() {
    let result = run(&two("1200kpps", [None, Some("600kpps")], "fair"), &cost, 500, &[]);
    let [first, second] = rates(&result);
    near(second, 300e3);
    assert!(first > 900e3 * 0.95, "{first}");
    assert_eq!(result.report.flows[1].rate_kept, Some(true));
}

#[test]
fn impossible_objectives_are_reported_and_kept_in_equal_parts() {
    let result = run(&two("8Mpps", [Some("2Mpps"), Some("500kpps")], "fair"), &cost, 500, &[]);
    let [first, second] = rates(&result);
    near(first / 2e6, second / 500e3);
    let last = result.periods.last().expect("periods");
    let short: Vec<_> = last.actions.short.iter().map(|short| (short.flow, short.cause)).collect();
    assert_eq!(short.len(), 2, "{short:?}");
    assert!(short.iter().all(|(_, cause)| matches!(cause, ShortCause::Time { worker: 0, load } if *load > 1.5)));
    assert_eq!(result.report.flows.iter().map(|flow| flow.rate_kept).collect::<Vec<_>>(), [Some(false); 2]);
}

/// Within capacity the controller does the same as `optimal`: the largest batches that objectives allow, and no loss.
#[test]
fn within_capacity_all_packets_pass_in_time_and_with_large_batches() {
    let result = run(&two("800kpps", [None, Some("150kpps")], "fair"), &cost, 500, &[]);
    let [first, second] = rates(&result);
    near(first, 600e3);
    near(second, 200e3);
    assert_eq!(result.report.packets.all_dropped(), 0);
    let late = result.worst().into_iter().skip(SETTLED).filter(|worst| *worst > 1.0).count();
    assert_eq!(late, 0);
    assert!(result.figures(SETTLED).0 > 16.0, "{:?}", result.figures(SETTLED));
}

/// A flow within its rate objective keeps its delay objective, whatever the other flow sends.
#[test]
fn delay_objectives_of_flows_within_their_rate_are_kept_in_overload() {
    let source = two("1200kpps", [None, Some("600kpps")], "fair").set("flows.1.slo=3ms");
    let result = run(&source.set("modules.split.weighted_split.weights=[9, 1]"), &cost, 500, &[]);
    let late = |period: &forebay_control::recording::Period| {
        let flow = &period.snapshot.flows[1];
        flow.violations as f64 > 0.01 * flow.packets as f64
    };
    near(rates(&result)[1], 120e3);
    assert_eq!(result.periods[SETTLED..].iter().filter(|period| late(period)).count(), 0);
}

/// Two flows through one module, the first with a rate objective, and a third flow with its own module. The first flow
/// ends after a tenth of a second.
const SHARED: &str = "
scheduler: weighted-fair
ports:
  a: { generator: { rate: 500kpps, count: 50000, vlans: [1] } }
  b: { generator: { rate: 6Mpps, vlans: [2] } }
  c: { generator: { rate: 3Mpps, vlans: [3] } }
  out: { sink: }
modules: { split: { vlan_split: { ids: [1, 2, 3] } }, shared: { counter: }, own: { counter: } }
pipeline:
  - a -> split
  - b -> split
  - c -> split
  - split[1] -> shared -> out
  - split[2] -> shared
  - split[3] -> own -> out
  - split[other] -> drop
flows:
  - { name: first, path: 'split[1] -> shared', min_rate: 200kpps }
  - { name: flood, path: 'split[2] -> shared' }
  - { name: third, path: 'split[3] -> own' }
shares: { shared: { when_full: drop }, own: { when_full: drop } }
control: { batching: fair, period: 10ms }
";

/// Runs this configuration for a second.
fn shared(sets: &[&str]) -> Run {
    let source = sets.iter().fold(Source::new(SHARED, "shared.yaml", ""), |source, set| source.set(*set));
    run(&source, &|module| if module == "split" { (50, 5) } else { (50, 800) }, 1_000, &[])
}

/// A flow cannot be preferred to other flows of the same modules. When it sends no packets, its objective does not
/// apply to the others.
#[test]
fn an_objective_ends_with_its_flow() {
    let run = shared(&[]);
    let sent = |flow: usize, from: usize| {
        let periods = run.periods[from..].iter().take(5);
        periods.map(|period| period.snapshot.flows[flow].packets).sum::<u64>() as f64
    };
    let causes = |period: usize| run.periods[period].actions.short.iter().map(|short| short.cause).collect::<Vec<_>>();
    assert!(sent(0, 5) > 0.0);
    assert_eq!(causes(5), [ShortCause::Together { with: 1, module: 1 }], "there is time for the objective");
    // One of the two flows of the module has ended. The module still has two shares.
    let last = run.periods.len() - 5;
    assert!(sent(0, last) == 0.0);
    near(sent(2, last), sent(1, last) / 2.0);
    assert_eq!(causes(last), [], "a flow without packets is not short");
}

#[test]
fn flows_of_one_module_with_objectives_are_short_of_time() {
    let run = shared(&["ports.a.generator.count=10000000", "flows.0.min_rate=450kpps", "flows.1.min_rate=1Mpps"]);
    let short = &run.periods.last().expect("periods").actions.short;
    let [ShortFlow { flow: 0, cause: ShortCause::Time { worker: 0, load }, .. }] = short[..] else {
        panic!("{short:?}")
    };
    assert!(load > 1.1 && load < 1.4, "{load}");
}

/// The delay of a flow in overload is that of a full queue. The report has the delay of its calls.
#[test]
fn the_reported_delay_of_a_flow_in_overload_is_that_of_its_calls() {
    let result = run(&two("4Mpps", [Some("1200kpps"), None], "fair"), &cost, 500, &[]);
    let unkept = &result.periods.last().expect("periods").actions.unkept;
    assert!(!unkept.is_empty());
    let is_of_calls = |least_s: f64| least_s > 0.0 && least_s < 256.0 * 2e-6;
    assert!(unkept.iter().all(|unkept| is_of_calls(unkept.least_s) && unkept.slo_s > unkept.least_s), "{unkept:?}");
}

/// Flows with their own ports need no queue that drops: packets beyond the capacity stay outside.
#[test]
fn flows_with_their_own_ports_get_their_rates() {
    let text = "
scheduler: weighted-fair
ports: { a: { generator: { rate: 3Mpps } }, b: { generator: { rate: 1Mpps } }, out: { sink: } }
modules: { cheap: { counter: }, costly: { counter: } }
pipeline: [a -> cheap -> out, b -> costly -> out]
flows:
  - { name: first, path: cheap }
  - { name: second, path: costly, min_rate: 500kpps }
control: { batching: fair, period: 10ms }
";
    let result = run(&Source::new(text, "ports.yaml", ""), &cost, 500, &[]);
    let [first, second] = rates(&result);
    near(second, 500e3 / 0.95);
    assert!(first > 300e3, "{first}");
    let result = run(&Source::new(text, "ports.yaml", "").set("flows.1.min_rate=1pps"), &cost, 500, &[]);
    let [first, second] = rates(&result);
    near(first, second);
}

/// If queues do not drop, packets of both flows wait at one port, and no flow can be preferred.
#[test]
fn a_flow_that_waits_for_another_at_a_port_is_reported() {
    let source = two("8Mpps", [Some("1Mpps"), None], "fair");
    let waits = ["cheap", "after", "costly"].into_iter();
    let source = waits.fold(source, |source, module| source.set(format!("shares.{module}.when_full=wait")));
    let source = source.set("modules.split.weighted_split.weights=[1, 1]");
    let result = run(&source, &cost, 500, &[]);
    let last = result.periods.last().expect("periods");
    let short: Vec<_> = last.actions.short.iter().map(|short| (short.flow, short.cause)).collect();
    assert_eq!(short, [(0, ShortCause::Held { module: 0 })]);
}

/// Regression: the modules before the split got time for all packets, and almost none remained for the modules behind
/// it.
#[test]
fn packets_stay_outside_if_modules_before_a_split_take_most_of_the_time() {
    let even = |_: &str| (30, 400);
    for promised in [[None, None], [Some("1Mpps"), None]] {
        let all = |controller: &str| {
            let promised = if controller == "fair" { promised } else { [None, None] };
            rates(&run(&two("4Mpps", promised, controller), &even, 1_000, &[])).iter().sum::<f64>()
        };
        let (fair, wfq) = (all("fair"), all("wfq"));
        // With three packets of the first flow for each of the second, equal rates need more time of the split module.
        assert!(fair > 0.6 * wfq, "{promised:?}: {fair} of {wfq}");
    }
}
