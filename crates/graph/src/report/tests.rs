//! Reports of a small run in simulated time.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_measure::{Clock, Simulated};
use forebay_packet::{Batch, PoolOptions};
use forebay_protocol::report::{Cpu, FigureSource};
use forebay_units::{Frequency, Nanos, Ticks};

use super::reading::Timed;
use super::*;
use crate::placement::Placement;
use crate::plan::{FlowPlan, Module, Plan, PortPlan, Step, Target};
use crate::port::{Intake, OpenPort, Port, PortCounters, Ready, Waits};
use crate::{Context, Cost, Function, Gate, Reason, RunToCompletion, Worker};

/// A function that drops every fourth packet.
struct Quarter;

impl Function for Quarter {
    fn process(&mut self, batch: &mut [forebay_packet::Packet], context: &mut Context<'_>) {
        (0..batch.len()).step_by(4).for_each(|index| context.put(index, Gate::drop(0)));
    }
}

/// A port that gives `remaining` packets, eight at a time, and takes all packets.
struct Line {
    remaining: usize,
}

impl Port for Line {
    fn receive(&mut self, batch: &mut Batch, intake: &Intake<'_>) -> Ready {
        let given = intake.pool.fill(batch, self.remaining.min(8));
        batch.iter_mut().for_each(|packet| packet.set_arrival(intake.now, forebay_packet::ArrivalClock::Kernel));
        self.remaining -= given;
        if self.remaining == 0 { Ready::Never } else { Ready::Now }
    }

    fn wait_on(&self) -> Waits<'_> {
        Waits::None
    }

    fn send(&mut self, batch: &mut Batch, _: Ticks) {
        batch.clear();
    }
}

fn worker() -> Worker<Simulated, RunToCompletion> {
    const DROPS: &[Reason] = &[Reason { name: "fourth", help: "It was the fourth." }];
    let port = |name: &str, remaining: usize, entry: Option<Target>| PortPlan {
        name: name.to_owned(),
        kind: "line",
        open: Some(OpenPort {
            port: Box::new(Line { remaining }),
            counters: Arc::new(PortCounters::default()),
            receives: entry.is_some(),
            sends: true,
        }),
        from: None,
        entry,
    };
    let module = Module {
        name: "quarter".to_owned(),
        kind: "quarter",
        function: Some(Box::new(Quarter)),
        from: None,
        gates: vec![("0".to_owned(), Target::Port(1))],
        drops: DROPS,
        creates: &[],
        consumes: &[],
        counters: Vec::new(),
        tables: Vec::new(),
        trigger: 0,
        hold: None,
        share: crate::Share::default(),
    };
    let plan = Plan {
        name: "small".to_owned(),
        batch: 32,
        scheduler: forebay_protocol::SchedulerKind::default(),
        pool: PoolOptions { chunks: 64, ..PoolOptions::default() },
        modules: vec![module],
        ports: vec![port("in", 64, Some(Target::Module(0))), port("out", 0, None)],
        folds: Vec::new(),
        flows: vec![FlowPlan {
            name: "all".to_owned(),
            path: vec![Step { module: 0, gate: None }],
            slo: Some(Nanos(50)),
            percentile: forebay_units::Percentile::Of(99.0),
            min_rate: None,
        }],
        worker: 0,
        placement: Arc::new(Placement::alone(1, 2)),
        meter: None,
    };
    let cost = Cost { per_batch: 100, per_packet: 0 };
    Worker::new(plan, Simulated::new(Frequency::new(1e9)), vec![cost]).expect("a sound plan")
}

fn origin() -> RunFacts {
    RunFacts { kind: FigureSource::Simulated, cpu: Cpu { model: "none".to_owned(), tsc_ghz: 1.0 }, cores: vec![None] }
}

#[test]
fn reports_of_a_whole_run_and_its_parts_agree() {
    let mut worker = worker();
    let telemetry = worker.telemetry();
    let nothing = Reading::nothing(telemetry.frequency, worker.clock().now());
    worker.turn();
    worker.turn();
    assert_eq!(worker.census().missing(), 0);
    let early = Reading::of(&telemetry, worker.clock().now());
    while worker.turn() != crate::Next::Never {}
    worker.shut_down().expect("nothing can fail");
    let end = Reading::of(&telemetry, worker.clock().now());

    let whole = end.report_since(&nothing, &origin());
    assert_eq!((whole.packets.entered, whole.packets.out, whole.packets.missing()), (64, 48, 0));
    assert_eq!(whole.packets.dropped, BTreeMap::from([("quarter.fourth".to_owned(), 16)]));
    let module = &whole.modules[0];
    assert_eq!((module.packets, module.batches, module.batch_mean, module.dropped), (64, 8, Some(8.0), 16));
    assert_eq!(module.batch_sizes, [0, 0, 0, 8, 0, 0, 0, 0, 0]);
    // Each call takes 100 ns, which is more than the objective allows.
    let flow = &whole.flows[0];
    assert_eq!((flow.packets, flow.violations, flow.kept), (48, Some(48), Some(false)));
    assert!(flow.delay_us.max.is_some_and(|max| (max - 0.1).abs() < 1e-9), "{:?}", flow.delay_us);
    assert_eq!(whole.arrival_clocks, ["kernel"]);
    assert_eq!((whole.ports[0].received, whole.ports[1].sent), (64, 48));

    let first = early.report_since(&nothing, &origin());
    let rest = end.report_since(&early, &origin());
    assert_eq!((first.packets.entered, rest.packets.entered), (16, 48));
    assert_eq!(first.modules[0].packets + rest.modules[0].packets, 64);
    assert_eq!(first.flows[0].packets + rest.flows[0].packets, 48);
    assert!((first.duration_s + rest.duration_s - whole.duration_s).abs() < 1e-12);
}

#[test]
fn a_distribution_of_delays_is_added_on_request_and_has_every_delay() {
    let mut worker = worker();
    let telemetry = worker.telemetry();
    let nothing = Reading::nothing(telemetry.frequency, worker.clock().now());
    worker.turn();
    worker.turn();
    let early = Reading::of(&telemetry, worker.clock().now());
    while worker.turn() != crate::Next::Never {}
    worker.shut_down().expect("nothing can fail");
    let end = Reading::of(&telemetry, worker.clock().now());
    let mut samples = Vec::new();
    for (from, to) in [(&nothing, &early), (&early, &end), (&nothing, &end)] {
        let mut report = to.report_since(from, &origin());
        assert_eq!(report.flows[0].delay_counts, None);
        to.add_delay_counts_since(from, &mut report);
        let flow = &report.flows[0];
        let counts = flow.delay_counts.as_ref().expect("it was added");
        assert_eq!(counts.samples(), flow.delay_us.samples);
        samples.push(counts.samples());
        if let (Some(max), Some(mean)) = (flow.delay_us.max, flow.delay_us.mean) {
            let (last, _) = counts.buckets.last().expect("delays");
            assert!((max..=max * 17.0 / 16.0).contains(last), "{counts:?}");
            assert!((counts.sum_us - mean * counts.samples() as f64).abs() < 1e-9, "{counts:?}");
        }
    }
    assert_eq!((samples[0] + samples[1], samples[2]), (48, 48));
}

/// Once, packets that came before a trigger was set counted as coming after it, so a controller took single packets for
/// whole batches.
#[test]
fn packets_that_come_together_are_known_whenever_the_trigger_is_set() {
    let mut worker = worker();
    let telemetry = worker.telemetry();
    let nothing = Reading::nothing(telemetry.frequency, worker.clock().now());
    worker.turn();
    worker.turn();
    worker.apply(&[forebay_protocol::Action::SetTrigger { module: 0, trigger: 16 }]).expect("it can be");
    assert_eq!(worker.census().missing(), 0);
    let early = Reading::of(&telemetry, worker.clock().now());
    while worker.turn() != crate::Next::Never {}
    worker.shut_down().expect("nothing can fail");
    assert_eq!(worker.census().missing(), 0);
    let end = Reading::of(&telemetry, worker.clock().now());
    // The first of each two turns calls no function, and takes no simulated time. So the packets of both turns come
    // together.
    for (from, batch) in [(&nothing, 64.0 / 5.0), (&early, 16.0)] {
        let report = end.report_since(from, &origin());
        assert_eq!((report.modules[0].batch_mean, report.modules[0].ingress_mean), (Some(batch), Some(16.0)));
    }
    let without = early.report_since(&nothing, &origin());
    assert_eq!((without.modules[0].batch_mean, without.modules[0].ingress_mean), (Some(8.0), Some(8.0)));
}

#[test]
fn figures_without_packets_are_missing() {
    let worker = worker();
    let telemetry = worker.telemetry();
    let nothing = Reading::nothing(telemetry.frequency, worker.clock().now());
    let still = Reading::of(&telemetry, worker.clock().now());
    let report = still.report_since(&nothing, &origin());
    assert_eq!(report.modules.len(), 1);
    let json = serde_json::to_value(&report).expect("it can be written");
    let module = &json["modules"][0];
    assert!(
        ["batch_mean", "ingress_mean", "ticks_per_packet", "ticks_per_batch", "hold_us"]
            .iter()
            .all(|name| module[name].is_null()),
        "{module}"
    );
    assert!(json["flows"][0]["kept"].is_null() && json["flows"][0]["delay_us"]["p99"].is_null());
    assert_eq!((&json["packets"]["in"], &json["packets"]["dropped"]), (&0.into(), &serde_json::json!({})));
}

/// The cost of a reading of the clock is subtracted from each span. The sum of a few spans may decrease, or be
/// negative. Once, a port with few packets made `forebay measure` panic.
#[test]
fn spans_shorter_than_a_reading_of_the_clock_count_as_zero() {
    let timed = |ticks: i64, packets, calls| Timed { ticks: ticks.cast_unsigned(), packets, calls, ..Timed::default() };
    for (before, now) in
        [(timed(40, 2, 1), timed(33, 4, 2)), (timed(3, 2, 1), timed(-5, 4, 2)), (timed(-5, 2, 1), timed(-9, 4, 2))]
    {
        let timing = now.since(&before);
        assert_eq!((timing.ticks_per_packet, timing.batch_mean), (Some(0.0), Some(2.0)));
    }
    assert_eq!(timed(15, 12, 2).since(&timed(-5, 2, 1)).ticks_per_packet, Some(2.0));
    let mut sum = timed(-5, 2, 1);
    sum.add(&timed(25, 8, 1));
    assert_eq!(sum.since(&Timed::default()).ticks_per_packet, Some(2.0));
}
