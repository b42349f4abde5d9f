//! Where arrivals leave nothing to chance, every turn in detail is the engine's own: periods and decisions are the same, call by
//! call.

use forebay_graph::Snapshot;
use forebay_sim::{Detail, Options};

use crate::run::{engine, simulated};

/// What is counted: calls that are timed are chosen by the engine, and sums of delays are rounded otherwise.
fn counts(snapshot: &Snapshot) -> impl PartialEq + std::fmt::Debug {
    let module = |it: &forebay_graph::snapshot::ModuleSnapshot| {
        (it.packets, it.calls, it.came, it.arrived, it.trigger, it.queued, (it.hold_s * 1e9).round() as u64)
    };
    let flow = |it: &forebay_graph::snapshot::FlowSnapshot| {
        (it.packets, it.violations, it.delay_s.map(|delay| (delay.p99 * 1e9).round() as u64))
    };
    let worker = |it: &forebay_graph::snapshot::WorkerSnapshot| (it.busy_turns, (it.busy_s * 1e9).round() as u64);
    let modules: Vec<_> = snapshot.modules.iter().map(module).collect();
    let flows: Vec<_> = snapshot.flows.iter().map(flow).collect();
    (modules, flows, snapshot.workers.iter().map(worker).collect::<Vec<_>>())
}

#[test]
fn every_period_and_decision_is_the_engines() {
    for case in [
        "gw n=16 fold=off slo=300us rate=1Mpps control.batching=optimal control.period=5ms",
        "vrf m=4 n=4 fold=off slo=300us rate=1Mpps control.batching=gradient control.period=5ms",
        "mgw m=4 n=2 slo=400us rate=1Mpps control.batching=optimal control.period=5ms",
        "l2l3 n=16 fold=off slo=200us rate=800kpps control.batching=on-off control.period=5ms",
        "gw n=8 fold=off rate=4Mpps control.batching=nfvnice scheduler=weighted-fair control.period=5ms",
        "gw n=4 fold=off rate=max trigger=7 hold=20us control.batching=null control.period=5ms",
        "sfc_a n=4 stages=2 fold=off slo=200us rate=4Mpps control.batching=optimal control.period=5ms",
    ] {
        let (_, truth) = engine(case, &[(40, 1.0)]);
        let (_, told, detail) = simulated(case, Options { seed: 1, detail: Detail::All }, &[(40, 1.0)]);
        assert_eq!((detail, told.len()), (1.0, truth.len()), "{case}");
        assert!(truth.len() >= 9 && truth.iter().any(|period| period.snapshot.flows.iter().any(|it| it.packets > 0)));
        for (told, truth) in told.iter().zip(&truth) {
            let at = truth.snapshot.at_s;
            assert_eq!(counts(&told.snapshot), counts(&truth.snapshot), "{case} at {at}");
            assert_eq!(told.actions.changes, truth.actions.changes, "{case} at {at}");
        }
    }
}
