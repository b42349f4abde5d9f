//! Tests of metering with a scripted meter: it counts only the scripted costs of the chain's parts and of its own
//! readings.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_packet::Pool;
use forebay_protocol::report::{Cpu, FigureSource as Origins, Report, Spent};

use super::*;
use crate::drive::{Ended, simulate_team};
use crate::links::links;
use crate::meter::Meter;
use crate::report::Reading;
use crate::report::RunFacts;
use crate::{Team, drive};

/// Instructions and core cycles.
type Takes = [u64; 2];

/// The cost of a reading of the meter.
const READING: Takes = [41, 97];
/// The cost of a packet on entry, in the module, and on departure.
const COSTS: [Takes; 3] = [[7, 14], [30, 20], [5, 3]];
/// The cost of polling a port that has no packets.
const POLL: Takes = [64, 32];

/// The counts of a thread.
#[derive(Clone, Default)]
struct Counts(Arc<[AtomicU64; 2]>);

impl Counts {
    fn take(&self, takes: Takes, times: usize) {
        self.0.iter().zip(takes).for_each(|(count, more)| _ = count.fetch_add(more * times as u64, Ordering::Relaxed));
    }
}

/// A meter that returns the counts and fails after `remaining` readings.
struct Scripted {
    counts: Counts,
    remaining: u64,
    reads: Arc<AtomicU64>,
}

impl Scripted {
    fn of(counts: &Counts) -> Self {
        Self { counts: counts.clone(), remaining: u64::MAX, reads: Arc::default() }
    }
}

impl Meter for Scripted {
    fn read(&mut self) -> Option<Takes> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.counts.take(READING, 1);
        self.remaining = self.remaining.checked_sub(1)?;
        Some([0, 1].map(|which| self.counts.0[which].load(Ordering::Relaxed)))
    }
}

/// A port whose packets cost instructions and cycles.
struct Counted<P>(P, Counts);

impl<P: Port> Port for Counted<P> {
    fn receive(&mut self, batch: &mut Batch, intake: &Intake<'_>) -> Ready {
        let ready = self.0.receive(batch, intake);
        self.1.take(COSTS[0], batch.len());
        ready
    }

    fn wait_on(&self) -> Waits<'_> {
        self.0.wait_on()
    }

    fn send(&mut self, batch: &mut Batch, now: Ticks) {
        self.1.take(COSTS[2], batch.len());
        self.0.send(batch, now);
    }
}

/// A port that never has packets.
struct Empty(Counts);

impl Port for Empty {
    fn receive(&mut self, _: &mut Batch, _: &Intake<'_>) -> Ready {
        self.0.take(POLL, 1);
        Ready::Now
    }

    fn wait_on(&self) -> Waits<'_> {
        Waits::None
    }

    fn send(&mut self, _: &mut Batch, _: Ticks) {}
}

/// A source whose batches have varying sizes.
struct Uneven(Source);

impl Port for Uneven {
    fn receive(&mut self, batch: &mut Batch, intake: &Intake<'_>) -> Ready {
        self.0.burst = 1 + (self.0.sent as usize * 7) % 31;
        self.0.receive(batch, intake)
    }

    fn wait_on(&self) -> Waits<'_> {
        self.0.wait_on()
    }

    fn send(&mut self, _: &mut Batch, _: Ticks) {}
}

/// A module that costs instructions and cycles for each packet, and more when it is woken.
struct Work(Counts, Takes);

impl Function for Work {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        self.0.take(COSTS[1], batch.len());
        context.wake_at(context.now() + Ticks(100));
    }

    fn wake(&mut self, _: &mut Context<'_>) {
        self.0.take(self.1, 1);
    }
}

const CALLS: u32 = 4_000;

/// Returns a chain of one module, with a second port that gives no packets.
fn chain(counts: &Counts, log: &Log, meter: Option<Scripted>) -> Plan {
    let mut module = module("work", TestFunction::Pass, vec![Target::Port(1)], 0);
    module.function = Some(Box::new(Work(counts.clone(), [0, 0])) as Box<dyn Function>);
    let mut plan = plan(source(32 * CALLS), drain(log), vec![module], 256);
    plan.ports[0].open = Some(open(Box::new(Counted(source(32 * CALLS), counts.clone())), true));
    plan.ports[1].open = Some(open(Box::new(Counted(drain(log), counts.clone())), false));
    plan.ports.push(PortPlan {
        name: "empty".to_owned(),
        kind: "empty",
        open: Some(open(Box::new(Empty(counts.clone())), true)),
        from: None,
        entry: Some(Target::Module(0)),
    });
    plan.placement = Arc::new(Placement::alone(1, 3));
    plan.meter = meter.map(|meter| Box::new(meter) as Box<dyn Meter>);
    plan
}

/// Creates a worker in simulated time. The cost of a call depends on its packets.
fn made<S: Scheduler>(plan: Plan) -> Worker<Simulated, S> {
    worker_of(plan, vec![Cost { per_batch: 50, per_packet: 3 }])
}

/// Runs until all packets have left.
fn run<S: Scheduler>(worker: &mut Worker<Simulated, S>, log: &Log, packets: u32) {
    while log.lock().expect("no test thread has panicked").len() < packets as usize {
        worker.turn();
        worker.clock().spend(Ticks(5));
    }
    // The last busy turn ends where the next turn begins.
    worker.turn();
    assert_eq!(worker.census().missing(), 0);
}

fn report<S: Scheduler>(earlier: &Reading, worker: &Worker<Simulated, S>) -> Report {
    let cpu = Cpu { model: "none".to_owned(), tsc_ghz: 1.0 };
    let origin = RunFacts { kind: Origins::Simulated, cpu, cores: vec![None] };
    Reading::of(&worker.telemetry(), worker.clock().now()).report_since(earlier, &origin)
}

fn nothing() -> Reading {
    Reading::nothing(Frequency::new(1e9), Ticks::ZERO)
}

fn spent([instructions, cycles]: Takes) -> Option<Spent> {
    Some(Spent { instructions: instructions as f64, cycles: cycles as f64 })
}

/// Returns all metered figures of a report.
fn metered(report: &Report) -> Vec<Option<Spent>> {
    let modules = report.modules.iter().map(|part| part.metered);
    let ports = report.ports.iter().flat_map(|part| [part.receiving.metered, part.sending.metered]);
    let workers = report.workers.iter().flat_map(|part| [part.metered, part.metered_residue, part.handover.metered]);
    modules.chain(ports).chain(workers).collect()
}

/// Returns all timed figures: ticks, packets and calls of each part, then those of the worker.
fn timed<S: Scheduler>(worker: &Worker<Simulated, S>) -> Vec<u64> {
    let telemetry = worker.telemetry();
    let modules = telemetry.counters.iter().map(|counters| &counters.timed);
    let ports = telemetry.ports.iter().flat_map(|port| [&port.receiving, &port.sending]);
    let accounts = modules.chain(ports).flat_map(|of| [of.ticks.get(), of.packets.get(), of.calls.get()]);
    accounts.chain([telemetry.worker.residue.ticks.get(), telemetry.worker.timed_turns.get()]).collect()
}

#[test]
fn each_part_has_its_instructions_and_cycles_without_the_readings() {
    let (counts, log) = (Counts::default(), Log::default());
    let mut worker = made::<RunToCompletion>(chain(&counts, &log, Some(Scripted::of(&counts))));
    run(&mut worker, &log, 32 * CALLS);
    let report = report(&nothing(), &worker);
    assert_eq!(report.ports[0].receiving.metered, spent(COSTS[0]));
    assert_eq!(report.modules[0].metered, spent(COSTS[1]));
    assert_eq!(report.ports[1].sending.metered, spent(COSTS[2]));
    assert_eq!(report.workers[0].metered_residue, spent(POLL));
    let turn = [0, 1].map(|which| 32 * COSTS.iter().map(|cost| cost[which]).sum::<u64>() + POLL[which]);
    assert_eq!(report.workers[0].metered, spent(turn));
    // There is no figure for ports without packets, and for missing rings.
    assert_eq!(metered(&report).iter().filter(|spent| spent.is_none()).count(), 5);
    assert_eq!(spent([30, 20]).and_then(|spent| spent.ipc()), Some(1.5));
    assert_eq!(spent([30, 0]).and_then(|spent| spent.ipc()), None);
    // 24 turns in 1031 are metered. They are not the timed turns.
    let telemetry = worker.telemetry();
    let turns = telemetry.metered.as_ref().expect("there is a meter").turns.get();
    assert!(turns.abs_diff(u64::from(CALLS) * 24 / 1031) <= 8, "{turns} turns of {CALLS}");
}

#[test]
fn the_work_of_a_wake_up_is_accounted_to_the_module() {
    const WAKE: Takes = [1_000_003, 2_000_003];
    let (counts, log) = (Counts::default(), Log::default());
    let mut plan = chain(&counts, &log, Some(Scripted::of(&counts)));
    plan.modules[0].function = Some(Box::new(Work(counts.clone(), WAKE)));
    let mut worker = made::<RunToCompletion>(plan);
    run(&mut worker, &log, 32 * CALLS);
    let telemetry = worker.telemetry();
    let metered = telemetry.metered.as_ref().expect("there is a meter");
    let more = |count: u64, cost: u64| count - cost * metered.modules[0].packets.get();
    let wakes = more(metered.modules[0].instructions.get(), COSTS[1][0]) / WAKE[0];
    assert!(wakes > 0, "some metered turn has one");
    assert_eq!(more(metered.modules[0].instructions.get(), COSTS[1][0]), wakes * WAKE[0]);
    assert_eq!(more(metered.modules[0].cycles.get(), COSTS[1][1]), wakes * WAKE[1]);
    let parts = [&metered.modules[0], &metered.ports[0][0], &metered.ports[1][1], &metered.residue];
    assert_eq!(metered.all.cycles.get(), parts.iter().map(|part| part.cycles.get()).sum::<u64>());
}

#[test]
fn times_are_the_same_with_and_without_a_meter() {
    let run = |with: bool, remaining: u64| {
        let (counts, log) = (Counts::default(), Log::default());
        let meter = Scripted { remaining, ..Scripted::of(&counts) };
        let mut plan = chain(&counts, &log, with.then_some(meter));
        plan.ports[0].open = Some(open(Box::new(Uneven(source(32 * CALLS))), true));
        let mut worker = made::<RunToCompletion>(plan);
        run(&mut worker, &log, 32 * CALLS);
        let times: Vec<_> = log.lock().expect("no test thread has panicked").iter().map(|(.., at)| *at).collect();
        (timed(&worker), times)
    };
    let without = run(false, 0);
    assert!(without.0[0] > 0 && without.0[2] > 70, "{:?}", without.0);
    // The meter fails at once, while its cost is learnt, within a stretch, within another one, or never.
    for remaining in [0, 1, 700, 1_025, 1_100, 1_300, u64::MAX] {
        assert_eq!(run(true, remaining), without, "{remaining}");
    }
}

#[test]
fn a_meter_that_fails_during_a_run_reports_nothing_and_packets_run_on() {
    let (counts, log) = (Counts::default(), Log::default());
    let meter = Scripted { remaining: 1_500, ..Scripted::of(&counts) };
    let reads = Arc::clone(&meter.reads);
    let mut worker = made::<RunToCompletion>(chain(&counts, &log, Some(meter)));
    run(&mut worker, &log, 32 * 600);
    let early = report(&nothing(), &worker);
    assert_eq!(early.modules[0].metered, spent(COSTS[1]));
    let earlier = Reading::of(&worker.telemetry(), worker.clock().now());
    run(&mut worker, &log, 32 * CALLS);
    for report in [report(&nothing(), &worker), report(&earlier, &worker)] {
        assert!(metered(&report).iter().all(Option::is_none), "{report:?}");
        assert!(report.modules[0].ticks_per_packet.is_some());
    }
    assert_eq!(reads.load(Ordering::Relaxed), 1_501, "it is not read again");
    // A meter that fails from the start counts as no meter.
    for remaining in [0, 1, 900] {
        let (counts, log) = (Counts::default(), Log::default());
        let meter = Scripted { remaining, ..Scripted::of(&counts) };
        let mut worker = made::<RunToCompletion>(chain(&counts, &log, Some(meter)));
        run(&mut worker, &log, 32 * CALLS);
        assert!(metered(&report(&nothing(), &worker)).iter().all(Option::is_none), "{remaining}");
    }
}

#[test]
fn no_turn_is_metered_if_the_scheduler_needs_all_ticks_or_timing_is_off() {
    let (counts, log) = (Counts::default(), Log::default());
    let meter = Scripted::of(&counts);
    let reads = Arc::clone(&meter.reads);
    let mut worker = made::<WeightedFair>(chain(&counts, &log, Some(meter)));
    run(&mut worker, &log, 32 * CALLS);
    assert_eq!(reads.load(Ordering::Relaxed), 0);
    assert!(metered(&report(&nothing(), &worker)).iter().all(Option::is_none));

    let (counts, log) = (Counts::default(), Log::default());
    let meter = Scripted::of(&counts);
    let reads = Arc::clone(&meter.reads);
    let mut worker = made::<RunToCompletion>(chain(&counts, &log, Some(meter)));
    let learnt = reads.load(Ordering::Relaxed);
    worker.set_timing(false);
    run(&mut worker, &log, 32 * CALLS);
    assert_eq!(reads.load(Ordering::Relaxed), learnt);
}

/// Rings cost nothing here. A meter whose readings become more expensive shows where it is read.
struct Expensive(Scripted, Arc<AtomicU64>);

impl Meter for Expensive {
    fn read(&mut self) -> Option<Takes> {
        self.0.counts.take([1, 2], self.1.load(Ordering::Relaxed) as usize);
        self.0.read()
    }
}

#[test]
fn handing_packets_over_has_an_account() {
    let placement = Placement { workers: 2, modules: vec![vec![1]], ports: vec![vec![0], vec![1]], keyed: vec![false] };
    let placement = Arc::new(placement);
    let (log, cost) = (Log::default(), Arc::new(AtomicU64::new(0)));
    let part = |number: usize| {
        let mut plan = plan(
            source(32 * CALLS),
            drain(&log),
            vec![module("pass", TestFunction::Pass, vec![Target::Port(1)], 0)],
            256,
        );
        (plan.worker, plan.placement) = (number, Arc::clone(&placement));
        if number == 0 {
            (plan.modules[0].function, plan.ports[1].open) = (None, None);
        } else {
            plan.ports[0].open = None;
        }
        plan.meter = Some(Box::new(Expensive(Scripted::of(&Counts::default()), Arc::clone(&cost))));
        plan
    };
    let team = Arc::new(Team::new(2));
    let links = links(&part(0), &placement);
    let make = |(number, links)| {
        let plan = part(number);
        let pool = Pool::new(plan.pool).expect("memory for a small pool");
        Worker::member(
            plan,
            Simulated::new(Frequency::new(1e9)),
            vec![Cost { per_batch: 50, per_packet: 0 }],
            pool,
            links,
            Arc::clone(&team),
        )
        .expect("a sound plan")
    };
    let mut workers: Vec<Worker<Simulated, RunToCompletion>> = links.into_iter().enumerate().map(make).collect();
    cost.store(64, Ordering::Relaxed);
    assert_eq!(simulate_team(&mut workers, Ticks(1_000_000_000)), Ended::Finished);
    assert!(drive::shut_down_team(&mut workers).is_empty());
    for worker in &workers {
        let report = report(&nothing(), worker);
        assert_eq!(report.workers[0].handover.metered, spent([2, 4]), "{report:?}");
    }
}
