//! Sharing of time by weights, on whole workers in simulated time: the ticks of modules with unequal costs in a second.

use forebay_protocol::RateLimit;
use forebay_units::{BitRate, PacketRate, Rate};
use proptest::prelude::*;

use super::*;
use crate::{Marks, WhenFull};

/// A second of simulated time.
const SECOND: Ticks = Ticks(1_000_000_000);

/// A module with a port of its own: its weight and its cost.
#[derive(Clone, Copy, Debug)]
struct Lane {
    weight: u32,
    cost: Cost,
    /// Ticks between two batches of its source.
    every: u64,
}

/// Returns a plan of parallel lanes, each with its own source, and one drain.
fn lanes(lanes: &[Lane], log: &Log) -> Plan {
    let port = lanes.len();
    let modules =
        (0..port).map(|lane| module(&format!("m{lane}"), TestFunction::Pass, vec![Target::Port(port)], 0)).collect();
    let mut plan = plan(source(0), drain(log), modules, 64 * 1_024);
    plan.ports.clear();
    for (number, lane) in lanes.iter().enumerate() {
        plan.modules[number].share.weight = lane.weight;
        let source = Box::new(Source { every: lane.every, ..source(u32::MAX) });
        let (name, entry) = (format!("in{number}"), Some(Target::Module(number)));
        plan.ports.push(PortPlan { name, kind: "source", open: Some(open(source, true)), from: None, entry });
    }
    let out = open(Box::new(drain(log)), false);
    plan.ports.push(PortPlan { name: "out".to_owned(), kind: "drain", open: Some(out), from: None, entry: None });
    plan.placement = Arc::new(Placement::alone(port, port + 1));
    plan
}

fn fair(plan: Plan, costs: Vec<Cost>) -> Worker<Simulated, WeightedFair> {
    worker_of(plan, costs)
}

fn of_lanes(all_lanes: &[Lane]) -> Worker<Simulated, WeightedFair> {
    fair(lanes(all_lanes, &Log::default()), all_lanes.iter().map(|lane| lane.cost).collect())
}

/// Runs until `until`. Returns the ticks that each module got meanwhile.
fn ticks_until(worker: &mut Worker<Simulated, WeightedFair>, costs: &[Cost], until: Ticks) -> Vec<f64> {
    let telemetry = worker.telemetry();
    let read = || {
        let counted = telemetry.counters.iter().zip(costs);
        let spent = counted
            .map(|(counters, cost)| counters.batches() * cost.per_batch + counters.packets.get() * cost.per_packet);
        spent.collect::<Vec<_>>()
    };
    let before = read();
    crate::drive::simulate(worker, until);
    read().iter().zip(before).map(|(now, before)| (now - before) as f64).collect()
}

/// Asserts that modules got ticks in proportion to their weights, within one percent.
fn by_weights(ticks: &[f64], weights: &[f64]) {
    let (all, total): (f64, f64) = (ticks.iter().sum(), weights.iter().sum());
    for (module, (got, weight)) in ticks.iter().zip(weights).enumerate() {
        let due = all * weight / total;
        assert!((got / due - 1.0).abs() <= 0.01, "module {module} got {got} where {due} were due: {ticks:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// 2 to 64 modules of unequal cost, for one second, within one percent.
    #[test]
    fn backlogged_modules_share_a_second_by_their_weights(
        all_lanes in proptest::collection::vec((1u32..10, 500u64..10_000, 0u64..100), 2..=64),
    ) {
        let all_lanes: Vec<_> = all_lanes.into_iter().map(|(weight, per_batch, per_packet)| {
            Lane { weight, cost: Cost { per_batch, per_packet }, every: 0 }
        }).collect();
        let costs: Vec<_> = all_lanes.iter().map(|lane| lane.cost).collect();
        let mut plan = lanes(&all_lanes, &Log::default());
        // Short calls. With long calls there are too few in a second for one percent.
        plan.batch = 4;
        let mut worker = fair(plan, costs.clone());
        let ticks = ticks_until(&mut worker, &costs, SECOND);
        by_weights(&ticks, &all_lanes.iter().map(|lane| f64::from(lane.weight)).collect::<Vec<_>>());
        prop_assert_eq!(worker.census().missing(), 0);
    }
}

const EVEN: Lane = Lane { weight: 1, cost: Cost { per_batch: 10_000, per_packet: 200 }, every: 0 };

#[test]
fn weights_change_while_it_runs() {
    let all_lanes = [EVEN, Lane { weight: 3, cost: Cost { per_batch: 1_000, per_packet: 900 }, every: 0 }];
    let costs = all_lanes.map(|lane| lane.cost);
    let mut worker = of_lanes(&all_lanes);
    by_weights(&ticks_until(&mut worker, &costs, SECOND), &[1.0, 3.0]);
    worker.apply(&[Action::SetWeight { module: 0, weight: 12 }]).expect("a module");
    assert_eq!(worker.telemetry().counters[0].weight.get(), 12);
    by_weights(&ticks_until(&mut worker, &costs, Ticks(2 * SECOND.0)), &[12.0, 3.0]);
}

#[test]
fn the_others_share_the_time_of_an_idle_module_and_it_saves_none() {
    // The third module gets 32 packets every millisecond, which take 16 400 ticks. The others always have work.
    let all_lanes = [EVEN, Lane { weight: 2, ..EVEN }, Lane { weight: 100, every: 1_000_000, ..EVEN }];
    let costs = all_lanes.map(|lane| lane.cost);
    let mut worker = of_lanes(&all_lanes);
    let ticks = ticks_until(&mut worker, &costs, SECOND);
    by_weights(&ticks[..2], &[1.0, 2.0]);
    let came = worker.telemetry().ports[2].counters.received.get();
    assert!(
        came > 900 * 32 && ticks[2] >= (came / 32 - 1) as f64 * 16_400.0,
        "all its packets were processed: {ticks:?}"
    );
    // When a module wakes after a second, the busy module still gets its share by weight.
    let late = [EVEN, Lane { every: SECOND.0, ..EVEN }];
    let mut worker = of_lanes(&late);
    ticks_until(&mut worker, &costs, Ticks(SECOND.0 - 1));
    let meanwhile = ticks_until(&mut worker, &costs, Ticks(SECOND.0 + 1_000_000));
    assert!(meanwhile[0] > 900_000.0, "{meanwhile:?}");
}

#[test]
fn a_module_keeps_its_rate_limit_and_the_clock_moves_to_its_next_run() {
    let (log, lane) = (Log::default(), Lane { cost: Cost { per_batch: 100, per_packet: 1 }, ..EVEN });
    for (rate, pps) in [(Rate::Packets(PacketRate(1e6)), 1e6), (Rate::Bits(BitRate(60.0 * 8.0 * 250_000.0)), 250_000.0)]
    {
        let mut plan = lanes(&[lane], &log);
        plan.modules[0].share.limit = Some(RateLimit { rate, burst: Nanos(100_000) });
        let mut worker = fair(plan, vec![lane.cost]);
        crate::drive::simulate(&mut worker, Ticks(SECOND.0 / 10));
        let telemetry = worker.telemetry();
        let packets = telemetry.counters[0].packets.get() as f64;
        // The rate, the burst, and one batch.
        let most = pps / 10.0 + pps * 1e-4 + 32.0;
        assert!(packets <= most && packets >= pps / 10.0 - 32.0, "{packets} at {rate:?}");
        let turns = telemetry.worker.turns.get();
        assert!(turns < 4 * (packets as u64 / 32) + 2_000, "the worker waits instead of spinning: {turns} turns");
        worker.apply(&[Action::SetRate { module: 0, limit: None }]).expect("a module");
        let more = ticks_until(&mut worker, &[lane.cost], Ticks(SECOND.0 / 5))[0] / 132.0 * 32.0;
        assert!(more > 10.0 * pps / 10.0, "{more} packets without the limit");
    }
}

#[test]
fn an_overloaded_module_stops_the_port_that_feeds_it_between_its_marks() {
    let (quick, slow) = (Cost { per_batch: 0, per_packet: 10 }, Cost { per_batch: 0, per_packet: 5_000 });
    let mut plan = lanes(&[EVEN, EVEN], &Log::default());
    plan.modules.push(module("slow", TestFunction::Pass, vec![Target::Port(2)], 0));
    plan.modules[0].gates = vec![("0".to_owned(), Target::Module(2))];
    plan.modules[2].share.marks = Marks { queue: 1_000, high: 80, low: 60, when_full: WhenFull::Wait };
    plan.placement = Arc::new(Placement::alone(3, 3));
    let mut worker = fair(plan, vec![quick, EVEN.cost, slow]);
    let (mut most, mut seen_full, mut least_after) = (0, false, usize::MAX);
    while worker.clock().now() < Ticks(SECOND.0 / 10) {
        worker.turn();
        worker.clock().spend(Ticks(64));
        let waiting = worker.nodes[2].input.len();
        most = most.max(waiting);
        seen_full |= waiting >= 800;
        if seen_full {
            least_after = least_after.min(waiting);
        }
    }
    assert!((800..832).contains(&most), "the high mark, and less than a batch more: {most}");
    assert!((568..=600).contains(&least_after), "the low mark, and less than a batch less: {least_after}");
    let received = |port: usize| worker.telemetry().ports[port].counters.received.get();
    assert!(received(1) > 8 * received(0), "the other port is still read: {} {}", received(0), received(1));
    assert_eq!(worker.census().missing(), 0);
}

/// Once, ports were read even if their modules had not processed the earlier packets. Queues grew to their marks, no
/// longer fitted into the cache, and the run took 1.5 times as long.
#[test]
fn packets_for_a_backlogged_module_wait_in_its_port() {
    for (when_full, allowed) in [(WhenFull::Wait, 0..=32), (WhenFull::Drop, 512..=1_024)] {
        let mut plan = lanes(&[EVEN; 4], &Log::default());
        plan.modules.iter_mut().for_each(|module| module.share.marks.when_full = when_full);
        plan.modules[0].share.weight = 9;
        let mut worker = fair(plan, vec![EVEN.cost; 4]);
        let mut most = 0;
        for _ in 0..1_000 {
            worker.turn();
            worker.clock().spend(Ticks(64));
            most = most.max(worker.nodes[1..4].iter().map(|node| node.input.len()).max().unwrap_or(0));
        }
        assert!(allowed.contains(&most), "{when_full:?}: {most} packets waited");
        assert_eq!(worker.census().missing(), 0);
    }
}

/// Once, if a port and another module fed a module, the module always had packets, so the port was never read.
#[test]
fn a_port_has_its_share_of_a_module_that_another_module_feeds() {
    let (quick, slow) = (Cost { per_batch: 100, per_packet: 1 }, Cost { per_batch: 0, per_packet: 1_000 });
    let mut plan = lanes(&[EVEN, EVEN], &Log::default());
    plan.modules[0].gates = vec![("0".to_owned(), Target::Module(1))];
    let mut worker = fair(plan, vec![quick, slow]);
    crate::drive::simulate(&mut worker, SECOND);
    let received = |port: usize| worker.telemetry().ports[port].counters.received.get();
    let (through, own) = (received(0), received(1));
    assert!(own > through / 4 && through > own / 4, "{through} by the other module, {own} by the port");
    assert_eq!(worker.census().missing(), 0);
}

#[test]
fn a_module_is_fed_otherwise_by_gates_and_by_other_workers_ports() {
    let fed = |entry: usize, first: usize, worker: usize| {
        let mut plan = lanes(&[EVEN; 3], &Log::default());
        plan.modules[0].gates = vec![("0".to_owned(), Target::Module(1))];
        plan.ports[1].entry = Some(Target::Module(entry));
        let ports = vec![vec![first], vec![0], vec![1], vec![0]];
        let modules = vec![vec![0], vec![0], vec![1]];
        plan.placement = Arc::new(Placement { workers: 2, modules, ports, keyed: vec![false; 3] });
        plan.worker = worker;
        crate::scheduler::Topology::of(&plan, Frequency::new(1e9)).fed_otherwise
    };
    assert_eq!(fed(1, 0, 0), [false, true, false]);
    assert_eq!(fed(1, 1, 0), [true, true, false], "by the other worker's port");
    assert_eq!((fed(2, 0, 0), fed(2, 0, 1)), (vec![false, true, false], vec![false, true, true]));
}

/// Once only the first port that made a module ready in a turn was read.
#[test]
fn several_ports_of_a_module_are_read_equally() {
    // Without other modules, and with a module that always has work.
    for lanes_beside in [&[EVEN, EVEN][..], &[EVEN; 3]] {
        let mut plan = lanes(lanes_beside, &Log::default());
        plan.ports[1].entry = Some(Target::Module(0));
        let mut worker = fair(plan, vec![EVEN.cost; 3]);
        crate::drive::simulate(&mut worker, Ticks(SECOND.0 / 10));
        let received = |port: usize| worker.telemetry().ports[port].counters.received.get();
        assert!(received(0).abs_diff(received(1)) <= 64 && received(0) > 1_000, "{} {}", received(0), received(1));
        assert_eq!(worker.census().missing(), 0);
    }
}

/// Once ports were read in the same order in every turn. If some filled the module's queue, the ports after them were
/// never read.
#[test]
fn ports_take_turns_at_being_read_first() {
    let mut plan = lanes(&[EVEN; 5], &Log::default());
    plan.modules[0].share.marks = Marks { queue: 1, high: 1, low: 0, when_full: WhenFull::Wait };
    plan.ports[..5].iter_mut().for_each(|port| port.entry = Some(Target::Module(0)));
    let mut worker = fair(plan, vec![EVEN.cost; 5]);
    crate::drive::simulate(&mut worker, Ticks(SECOND.0 / 10));
    let received: Vec<_> = worker.telemetry().ports[..5].iter().map(|port| port.counters.received.get()).collect();
    let (least, most) = (received.iter().min().expect("five"), received.iter().max().expect("five"));
    assert!(*least > 1_000 && most < &(least * 2), "{received:?}");
}

/// One source and two branches, one of which is a chain of two modules. If the chain may drop packets, the other branch
/// gets its share.
#[test]
fn an_overloaded_chain_drops_at_its_start_and_the_others_go_on() {
    let log = Log::default();
    let modules = vec![
        module("split", TestFunction::Split, vec![Target::Module(1), Target::Module(3)], 0),
        module("first", TestFunction::Pass, vec![Target::Module(2)], 0),
        module("slow", TestFunction::Pass, vec![Target::Port(1)], 0),
        module("other", TestFunction::Pass, vec![Target::Port(1)], 0),
    ];
    let costs = [(100, 1), (10, 1), (0, 30_000), (0, 3_000)];
    let costs = costs.map(|(per_batch, per_packet)| Cost { per_batch, per_packet }).to_vec();
    let mut plan = plan(source(u32::MAX), drain(&log), modules, 16 * 1_024);
    for module in &mut plan.modules[1..] {
        module.share.marks.when_full = WhenFull::Drop;
    }
    let mut worker = fair(plan, costs.clone());
    // Less than a second, because most of its packets would be turned away.
    let ticks = ticks_until(&mut worker, &costs, Ticks(SECOND.0 / 5));
    by_weights(&ticks[2..], &[1.0, 1.0]);
    let telemetry = worker.telemetry();
    let turned_away: Vec<_> = telemetry.modules.iter().map(|module| module.turned_away.get()).collect();
    assert!(turned_away[1] > 0 && turned_away[3] > 0, "{turned_away:?}");
    assert_eq!((turned_away[0], turned_away[2]), (0, 0), "no processed packet is dropped");
    let census = worker.census();
    assert_eq!((census.missing(), census.dropped), (0, turned_away[1] + turned_away[3]), "{census:?}");
    in_order(&log);
}

#[test]
fn winding_up_ignores_rate_limits() {
    let log = Log::default();
    let mut plan = lanes(&[Lane { every: 1_000, ..EVEN }], &log);
    plan.modules[0].share.limit = Some(RateLimit { rate: Rate::Packets(PacketRate(10.0)), burst: Nanos(0) });
    let mut worker = fair(plan, vec![EVEN.cost]);
    crate::drive::simulate(&mut worker, Ticks(100_000));
    assert!(worker.census().queued > 0);
    worker.shut_down().expect("closing succeeds");
    let census = worker.census();
    assert_eq!((census.queued, census.dropped, census.missing()), (0, 0, 0), "{census:?}");
}

#[test]
fn weights_are_refused_without_shares_and_if_invalid() {
    let modules = || vec![module("a", TestFunction::Pass, vec![Target::Port(1)], 0)];
    let set = |weight| Action::SetWeight { module: 0, weight };
    let mut alone = worker(plan(source(1), drain(&Log::default()), modules(), 64), vec![]);
    let error = alone.apply(&[set(2)]).expect_err("it has no weights").to_string();
    assert!(error.contains("run-to-completion"), "{error}");
    let mut worker = fair(plan(source(1), drain(&Log::default()), modules(), 64), vec![]);
    assert_eq!(worker.apply(&[set(0)]).expect_err("no weight").to_string(), "weight: 0: allowed are 1 to 65535");
    let limit = Some(RateLimit { rate: Rate::Packets(PacketRate(0.0)), burst: Nanos(0) });
    let error = worker.apply(&[Action::SetRate { module: 0, limit }]).expect_err("no rate").to_string();
    assert!(error.starts_with("rate: 0pps: allowed are"), "{error}");
    assert_eq!(worker.telemetry().counters[0].weight.get(), 1);
    let mut wrong = modules();
    wrong[0].share.weight = 0;
    let made = Worker::<_, WeightedFair>::new(
        plan(source(1), drain(&Log::default()), wrong, 64),
        Simulated::new(Frequency::new(1e9)),
        vec![],
    );
    assert!(made.err().expect("refused").to_string().contains("module 'a': weight: 0"));
}
