//! The worker's interface to a controller: snapshots, layouts and actions.

use forebay_protocol::Snapshot;

use super::*;
use crate::Sampler;

fn split_of_two(trigger: usize) -> Vec<Module> {
    vec![
        module("split", TestFunction::Split, vec![Target::Module(1), Target::Module(2)], 0),
        module("left", TestFunction::Pass, vec![Target::Port(1)], trigger),
        module("right", TestFunction::Pass, vec![Target::Port(1)], 0),
    ]
}

#[test]
fn no_action_is_applied_if_one_is_invalid() {
    let mut worker = worker(plan(source(1), drain(&Log::default()), split_of_two(4), 64), vec![]);
    let actions = [
        Action::SetTrigger { module: 1, trigger: 8 },
        Action::SetHold { module: 1, hold: Nanos(9) },
        Action::SetTrigger { module: 2, trigger: 33 },
    ];
    assert_eq!(worker.apply(&actions), Err(ActionError::Trigger { trigger: 33, batch: 32 }));
    let telemetry = worker.telemetry();
    let in_force = |module: usize| (telemetry.counters[module].trigger.get(), telemetry.counters[module].hold.get());
    assert_eq!((in_force(1).0, in_force(2).0), (4, 0));
    assert_eq!(worker.apply(&actions[..2]), Ok(()));
    assert_eq!(in_force(1), (8, 9));
}

/// Timers and buffers are looked at once in 16 busy turns. Packets over their hold limit must not wait for that.
#[test]
fn in_busy_turns_no_packet_waits_much_longer_than_the_hold_limit() {
    let log = Log::default();
    let hold = 3_200;
    // One packet in every turn: 32 packets for the left module take far longer than the limit.
    let source = Source { burst: 1, ..source(60_000) };
    let mut plan = plan(source, drain(&log), split_of_two(0), 1_024);
    (plan.modules[1].trigger, plan.modules[1].hold) = (32, Some(Nanos(hold)));
    let mut worker = worker(plan, vec![Cost { per_batch: 100, per_packet: 20 }; 3]);
    let turn = 3 * (100 + 20 * 16) + 64;
    assert_eq!(crate::drive::simulate(&mut worker, Ticks(4_000_000)), crate::drive::Ended::TimeUp);
    let delays = worker.telemetry();
    let longest = delays.flows.iter().filter_map(|flow| flow.delay.read().max()).max().expect("packets left");
    // The buffer is looked at no later than a 32nd of the limit after it is due, at the end of a turn. It runs in the
    // next turn.
    assert!(longest <= hold + hold / 32 + 3 * turn, "{longest} ticks");
}

fn taken(worker: &Worker<Simulated, RunToCompletion>, sampler: &mut Sampler) -> Snapshot {
    sampler.take(worker.clock().now(), &[]).clone()
}

#[test]
fn a_snapshot_has_the_counts_since_the_previous_one() {
    let source = Source { every: 1_000, burst: 8, ..source(80_000) };
    let mut plan = plan(source, drain(&Log::default()), split_of_two(16), 1_024);
    plan.modules[1].hold = Some(Nanos(50_000));
    let mut worker = worker(plan, vec![Cost { per_batch: 50, per_packet: 10 }; 3]);
    let mut sampler = Sampler::new(vec![worker.telemetry()], Ticks::ZERO, Ticks::ZERO);
    let mut sums = [0; 4];
    for period in 1..=5u64 {
        crate::drive::simulate(&mut worker, Ticks(period * 2_000_000));
        let snapshot = taken(&worker, &mut sampler);
        assert!((snapshot.period_s - 2e-3).abs() < 1e-5 && (snapshot.at_s - period as f64 * 2e-3).abs() < 1e-5);
        sums[0] += snapshot.modules[0].packets;
        sums[1] += snapshot.modules[1].calls;
        sums[2] += snapshot.flows.iter().map(|flow| flow.packets).sum::<u64>();
        sums[3] += snapshot.modules[1].came;
        let ingress = [0, 1, 2].map(|module| snapshot.modules[module].ingress().expect("packets came"));
        assert_eq!(ingress[0], 8.0);
        // A scattered order of sessions: whenever packets come, about half of eight go each way.
        assert!((3.0..5.0).contains(&ingress[1]) && (3.0..5.0).contains(&ingress[2]), "{ingress:?}");
        assert!(snapshot.modules[1].batch().expect("calls") > 12.0);
        assert_eq!((snapshot.modules[1].trigger, snapshot.modules[2].trigger), (16, 0));
        assert!((snapshot.modules[1].hold_s - 50e-6).abs() < 1e-9);
        let slowest = snapshot.flows.iter().filter_map(|flow| flow.delay_s).map(|delay| delay.p99).fold(0.0, f64::max);
        assert!((1e-6..60e-6).contains(&slowest), "{slowest}");
        assert!(snapshot.workers[0].busy_s > 0.0 && snapshot.workers[0].port_wait_s.is_some());
    }
    let all = worker.telemetry();
    let left: u64 = all.flows.iter().map(|flow| flow.delay.read().samples()).sum();
    assert_eq!(sums[..3], [all.counters[0].packets.get(), all.counters[1].batches(), left]);
    // The packets that had come at the last look at the queue.
    let queued = worker.census().queued;
    assert!(sums[3].abs_diff(all.counters[1].packets.get() + queued) <= 16, "{sums:?}");
}

/// Packets that wait in a buffer count as late in the snapshot.
#[test]
fn a_flow_that_has_stopped_is_as_late_as_its_oldest_packet() {
    let mut plan = plan(source(5), drain(&Log::default()), split_of_two(0), 64);
    (plan.modules[1].trigger, plan.modules[1].hold) = (32, Some(Nanos(1_000_000_000)));
    let mut worker = worker(plan, vec![]);
    let mut sampler = Sampler::new(vec![worker.telemetry()], Ticks::ZERO, Ticks::ZERO);
    crate::drive::simulate(&mut worker, Ticks(1_000));
    worker.clock().advance_to(Ticks(3_000_000));
    worker.turn();
    let snapshot = taken(&worker, &mut sampler);
    assert!(snapshot.modules[1].queued > 0);
    assert!((snapshot.modules[1].oldest_s - 3e-3).abs() < 1e-4, "{}", snapshot.modules[1].oldest_s);
}

#[test]
fn a_layout_has_leaders_and_the_paths_of_flows() {
    let modules = vec![
        module("split", TestFunction::Split, vec![Target::Module(1), Target::Module(2), Target::Module(3)], 0),
        module("a", TestFunction::Pass, vec![Target::Module(4)], 0),
        module("b", TestFunction::Pass, vec![Target::Module(4)], 0),
        module("c", TestFunction::Pass, vec![Target::Module(4)], 7),
        module("join", TestFunction::Pass, vec![Target::Port(1)], 0),
    ];
    let mut plan = plan(source(1), drain(&Log::default()), modules, 64);
    let flow = |name: &str, module: usize, slo: Option<Nanos>| FlowPlan {
        name: name.to_owned(),
        path: vec![Step { module, gate: None }],
        slo,
        percentile: forebay_units::Percentile::Of(95.0),
        min_rate: None,
    };
    plan.flows = vec![flow("b", 2, Some(Nanos(1_000_000))), flow("c", 3, None)];
    plan.folds = vec![vec![1, 2]];
    let layout = plan.layout().expect("flows");
    let module_facts = |at: usize| {
        let module = &layout.modules[at];
        (module.name.as_str(), module.leader, module.before.clone(), module.entry, module.fixed)
    };
    assert_eq!(module_facts(0), ("split", 0, vec![], true, false));
    assert_eq!(module_facts(2), ("b", 1, vec![], false, false));
    assert_eq!(module_facts(1), ("a", 1, vec![0], false, false));
    assert_eq!(module_facts(3), ("c", 3, vec![0], false, true));
    assert_eq!(module_facts(4), ("join", 4, vec![1, 3], false, false));
    assert_eq!(layout.running().map(|(at, _)| at).collect::<Vec<_>>(), [0, 1, 3, 4]);
    let flows: Vec<_> = layout.flows.iter().map(|flow| (flow.name.as_str(), &flow.path[..], flow.slo_s)).collect();
    assert_eq!(flows[..2], [("b", &[0, 1, 4][..], Some(1e-3)), ("c", &[], None)]);
}
