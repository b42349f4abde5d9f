//! Compares the simulator with the engine in full detail and without random arrivals: periods and decisions must be
//! equal, call by call.

use forebay_protocol::{
    Snapshot,
    snapshot::{DelaySnapshot, FlowSnapshot, ModuleSnapshot, WorkerSnapshot},
};
use forebay_sim::{Detail, Options};

use crate::run::{engine, simulated};

/// Returns everything that a controller sees, with times rounded to a hundredth of a nanosecond. Omits the number of
/// timed calls: the engine times only some calls.
fn seen(snapshot: &Snapshot) -> impl PartialEq + std::fmt::Debug {
    let time = |seconds: f64| (seconds * 1e11).round() as u64;
    let delay = move |it: DelaySnapshot| [it.mean, it.p95, it.p99, it.chosen].map(time);
    let module = |it: &ModuleSnapshot| {
        let counts = (it.packets, it.calls, it.came, it.arrived, it.queued);
        (counts, (it.trigger, it.weight), [it.hold_s, it.oldest_s, it.cost_s.0, it.cost_s.1].map(time))
    };
    let flow = |it: &FlowSnapshot| (it.packets, it.violations, it.delay_s.map(delay));
    let worker = |it: &WorkerSnapshot| (it.busy_turns, time(it.busy_s), it.port_wait_s.map(delay));
    let modules: Vec<_> = snapshot.modules.iter().map(module).collect();
    let flows: Vec<_> = snapshot.flows.iter().map(flow).collect();
    (modules, flows, snapshot.workers.iter().map(worker).collect::<Vec<_>>())
}

#[test]
fn every_period_and_decision_is_the_engines() {
    for (case, until) in [
        "gw n=16 fold=off slo=300us rate=1Mpps control.batching=optimal control.period=5ms",
        "vrf m=4 n=4 fold=off slo=300us rate=1Mpps control.batching=gradient control.period=5ms",
        "mgw m=4 n=2 slo=400us rate=1Mpps control.batching=optimal control.period=5ms",
        "l2l3 n=16 fold=off slo=200us rate=800kpps control.batching=on-off control.period=5ms",
        "gw n=8 fold=off rate=4Mpps control.batching=nfvnice scheduler=weighted-fair control.period=5ms",
        "gw n=4 fold=off rate=max trigger=7 hold=20us control.batching=null control.period=5ms",
        "sfc_a n=4 stages=2 fold=off slo=200us rate=4Mpps control.batching=optimal control.period=5ms",
    ]
    .map(|case| (case, 40))
    .into_iter()
    // A case whose arrival times are not whole nanoseconds, and whose delays fall below all earlier delays.
    .chain([("mgw m=4 n=4 fold=off slo=400us rate=600kpps control.batching=optimal control.period=10ms", 240)])
    {
        let (_, truth) = engine(case, &[(until, 1.0)]);
        let (_, periods, detail) = simulated(case, Options { seed: 1, detail: Detail::All }, &[(until, 1.0)]);
        assert_eq!((detail, periods.len()), (1.0, truth.len()), "{case}");
        assert!(truth.len() >= 9 && truth.iter().any(|period| period.snapshot.flows.iter().any(|it| it.packets > 0)));
        for (period, truth) in periods.iter().zip(&truth) {
            let at = truth.snapshot.at_s;
            assert_eq!(seen(&period.snapshot), seen(&truth.snapshot), "{case} at {at}");
            assert_eq!(period.actions.changes, truth.actions.changes, "{case} at {at}");
        }
    }
}
