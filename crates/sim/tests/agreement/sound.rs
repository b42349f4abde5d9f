//! Invariants of every simulation: no packet is lost or created, and a seed determines the result.

use forebay_sim::{Detail, Options, Report};

use crate::run::simulator;

const CASES: [&str; 7] = [
    "gw n=16 fold=off slo=300us rate=1Mpps control.batching=optimal control.period=10ms \
     ports.in.generator.arrivals=poisson",
    "gw n=16 fold=off rate=5Mpps trigger=9 hold=70us",
    "gw n=8 fold=off rate=4Mpps control.batching=nfvnice scheduler=weighted-fair control.period=10ms",
    "rc n=16 rate=max",
    "mgw m=4 n=4 rate=1Mpps fold=off trigger=32 hold=100us",
    "sfc_a n=4 stages=2 rate=5Mpps ports.in.generator.arrivals=poisson",
    "gw n=8 fold=off rate=2Mpps workers=[{},{}]",
];

fn report(case: &str, options: Options, seconds: f64) -> Report {
    let (mut simulator, _) = simulator(case, options);
    simulator.run(seconds);
    simulator.report()
}

#[test]
fn packets_that_enter_are_sent_dropped_or_queued() {
    for case in CASES {
        let report = report(case, Options { seed: 3, detail: Detail::All }, 0.03);
        let Report { entered, left, gone, turned_away, queued, .. } = report;
        assert!(left > 1_000, "{case}: {left}");
        assert_eq!(entered, left + gone + turned_away + queued, "{case}");
        assert_eq!(report.detail_s, report.seconds, "{case}");
        assert_eq!(report.flows.iter().map(|flow| flow.packets).sum::<u64>(), left, "{case}");
    }
}

#[test]
fn extrapolated_input_equals_extrapolated_output() {
    for case in CASES {
        let report = report(case, Options::default(), 3.0);
        let out = report.left + report.gone + report.turned_away + report.queued;
        let off = out as f64 / report.entered as f64 - 1.0;
        assert!(off.abs() < 0.02, "{case}: {out} of {}", report.entered);
        assert!(report.detail_s < 0.5 * report.seconds, "{case}: {} s in detail", report.detail_s);
    }
}

#[test]
fn a_seed_determines_the_result() {
    for case in CASES {
        let run = |seed| report(case, Options { seed, ..Options::default() }, 0.2);
        let (one, again) = (run(1), run(1));
        assert_eq!(one, again, "{case}");
        if case.contains("poisson") {
            assert_ne!(one, run(2), "{case}");
        }
    }
}
