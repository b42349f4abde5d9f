//! Random graphs on random workers: no packet is lost, sessions stay in order, and each run gives the same result.

use forebay_packet::Pool;
use forebay_protocol::Census;

use super::graphs::{Graph, graphs};
use super::*;
use crate::drive::{Ended, shut_down_team, simulate_team};
use crate::links::links;
use crate::{Team, placement};

/// The placement of a graph: the cuts between its stages, and the number of workers of each stage.
#[derive(Clone, Debug)]
pub(super) struct Cut {
    /// The modules before which a new stage begins, in percent of all modules.
    pub(super) at: Vec<usize>,
    /// By stage.
    pub(super) workers: Vec<usize>,
    /// The worker that has the source.
    pub(super) source: usize,
    /// The worker that has the drain.
    pub(super) drain: usize,
    /// Whether the source spreads packets itself, because it is open on all workers of the first stage.
    pub(super) spreads: bool,
}

pub(super) fn cuts() -> impl Strategy<Value = Cut> {
    let parts = (proptest::collection::vec(0..100usize, 0..3), proptest::collection::vec(1..4usize, 4));
    (parts, 0..12usize, 0..12usize, any::<bool>()).prop_map(|((mut at, workers), source, drain, spreads)| {
        at.sort_unstable();
        Cut { at, workers, source, drain, spreads }
    })
}

impl Cut {
    pub(super) fn placement(&self, modules: usize) -> Placement {
        let (mut first, mut placed) = (0, Vec::new());
        let mut stages = vec![0];
        stages.extend(self.at.iter().map(|percent| modules * percent / 100));
        stages.push(modules);
        for (stage, ends) in stages.windows(2).enumerate() {
            let workers: Vec<_> = (first..first + self.workers[stage]).collect();
            first += workers.len();
            placed.extend((ends[0]..ends[1]).map(|_| workers.clone()));
        }
        let entry = if self.spreads { placed[0].clone() } else { vec![self.source % first] };
        Placement {
            workers: first,
            modules: placed,
            ports: vec![entry, vec![self.drain % first]],
            keyed: vec![false; modules],
        }
    }
}

/// Returns the worker's own plan.
pub(super) fn part(graph: &Graph, log: &Log, placement: &Arc<Placement>, worker: usize) -> Plan {
    let mut plan = graph.plan(log);
    (plan.worker, plan.placement) = (worker, Arc::clone(placement));
    for (module, workers) in plan.modules.iter_mut().zip(&placement.modules) {
        if !workers.contains(&worker) {
            module.function = None;
        }
    }
    for (port, workers) in plan.ports.iter_mut().zip(&placement.ports) {
        if !workers.contains(&worker) {
            port.open = None;
        }
    }
    if let Some(shares) = Some(&placement.ports[0]).filter(|workers| workers.len() > 1) {
        let spread = placement::Origin::Port(0);
        assert!(placement.leads(shares[0], spread, plan.ports[0].entry.expect("it receives")).is_none());
        let share = shares.iter().position(|of| *of == worker).map(|share| (share, shares.len()));
        plan.ports[0].open = share.map(|share| open(Box::new(Source { share, ..graph.source() }), true));
    }
    plan
}

fn team<S: Scheduler>(graph: &Graph, cut: &Cut, log: &Log) -> Vec<Worker<Simulated, S>> {
    let placement = Arc::new(cut.placement(graph.modules.len()));
    let shape = graph.plan(log);
    let team = Arc::new(Team::new(placement.workers));
    let links = links(&shape, &placement);
    let make = |(worker, links)| {
        let plan = part(graph, log, &placement, worker);
        let pool = Pool::new(plan.pool).expect("memory for a small pool");
        let clock = Simulated::new(Frequency::new(1e9));
        Worker::member(plan, clock, graph.costs(), pool, links, Arc::clone(&team)).expect("a sound plan")
    };
    links.into_iter().enumerate().map(make).collect()
}

/// Runs the graph to the end. Returns the packets that left, in order.
fn run<S: Scheduler>(graph: &Graph, cut: &Cut) -> Vec<(u32, u32, u64)> {
    let log = Log::default();
    let mut workers = team::<S>(graph, cut, &log);
    let mut until = Ticks::ZERO;
    loop {
        until = Ticks(until.0 + 10_000);
        let ended = simulate_team(&mut workers, until);
        let mut all = Census::default();
        for worker in &mut workers {
            let census = worker.census();
            assert_eq!(census.missing(), 0, "{census:?}");
            all.add(&census);
        }
        assert!(all.handed >= all.taken, "{all:?}");
        for &(_, module, trigger) in graph.changes.iter().filter(|(when, ..)| *when as u64 == until.0 / 10_000) {
            for worker in &mut workers {
                let _ = worker.apply(&[Action::SetTrigger { module, trigger }]);
            }
        }
        if ended == Ended::Finished {
            break;
        }
        assert!(until.0 < 1_000_000_000, "the run ends");
    }
    assert!(shut_down_team(&mut workers).is_empty());
    let mut all = Census::default();
    workers.iter_mut().for_each(|worker| all.add(&worker.census()));
    assert_eq!((all.missing(), all.queued, all.held, all.handed - all.taken), (0, 0, 0, 0), "{all:?}");
    assert_eq!(all.entered, u64::from(graph.packets));
    assert!(workers[0].team.is_quiet());
    graphs::in_order_by_original(&log);
    drop(workers);
    Arc::try_unwrap(log).expect("the workers are gone").into_inner().expect("no test thread has panicked")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_packet_is_lost_or_reordered_whatever_the_placement(graph in graphs(), cut in cuts()) {
        run::<RunToCompletion>(&graph, &cut);
        run::<crate::WeightedFair>(&graph, &cut);
    }

    #[test]
    fn several_workers_in_simulated_time_are_the_same_every_time(graph in graphs(), cut in cuts()) {
        prop_assert_eq!(run::<RunToCompletion>(&graph, &cut), run::<RunToCompletion>(&graph, &cut));
        prop_assert_eq!(run::<crate::WeightedFair>(&graph, &cut), run::<crate::WeightedFair>(&graph, &cut));
    }
}

/// Returns two modules that pass packets on, each on its own worker.
fn two_stages(share: crate::Share, packets: u32, chunks: usize) -> (Graph, Cut) {
    let graph = Graph {
        modules: vec![(TestFunction::Pass, vec![1], 0), (TestFunction::Pass, vec![1], 0)],
        shares: vec![share; 2],
        packets,
        burst: 32,
        every: 0,
        refuse: 0,
        chunks,
        changes: vec![],
    };
    (graph, Cut { at: vec![50], workers: vec![1, 1], source: 0, drain: 1, spreads: false })
}

/// A worker that cannot hand over its packets takes no new ones, and goes on when there is room.
#[test]
fn a_slow_stage_holds_back_the_previous_one_and_no_packet_is_lost() {
    let (graph, cut) = two_stages(crate::Share::default(), 20_000, 4_096);
    let log = Log::default();
    let mut workers = team::<RunToCompletion>(&graph, &cut, &log);
    workers[1].costs[1] = Cost { per_batch: 0, per_packet: 1_000 };
    assert_eq!(simulate_team(&mut workers, Ticks(5_000_000)), Ended::TimeUp);
    let stalls = workers[0].telemetry().worker.stalls.get();
    let (given, taken) = (workers[0].census(), workers[1].census());
    assert!(stalls > 0 && given.queued < 200 && given.handed - taken.taken <= 2_048, "{stalls}: {given:?}, {taken:?}");
    assert_eq!(simulate_team(&mut workers, Ticks(1_000_000_000)), Ended::Finished);
    assert_eq!(log.lock().expect("no test thread has panicked").len(), 20_000);
}

/// Once a full ring stopped the reading of every port, so that other flows waited for the slow one.
#[test]
fn packets_that_find_a_ring_full_are_dropped_if_configured_and_others_go_on() {
    let graph = Graph {
        modules: vec![
            (TestFunction::Split, vec![1, 2], 0),
            (TestFunction::Pass, vec![2], 0),
            (TestFunction::Pass, vec![2], 0),
        ],
        shares: vec![crate::Share::default(); 3],
        packets: 40_000,
        burst: 32,
        every: 0,
        refuse: 0,
        chunks: 8_192,
        changes: vec![],
    };
    for when_full in [crate::WhenFull::Wait, crate::WhenFull::Drop] {
        let log = Log::default();
        let placement = Placement {
            workers: 2,
            modules: vec![vec![0], vec![0], vec![1]],
            ports: vec![vec![0], vec![0]],
            keyed: vec![false; 3],
        };
        let placement = Arc::new(placement);
        let (team, ends) = (Arc::new(Team::new(2)), links(&graph.plan(&log), &placement));
        let make = |(worker, links)| {
            let mut plan = part(&graph, &log, &placement, worker);
            plan.modules[2].share.marks.when_full = when_full;
            let pool = Pool::new(plan.pool).expect("memory for a small pool");
            let clock = Simulated::new(Frequency::new(1e9));
            let worker = Worker::<_, RunToCompletion>::member(plan, clock, Vec::new(), pool, links, Arc::clone(&team));
            worker.expect("a sound plan")
        };
        let mut workers: Vec<_> = ends.into_iter().enumerate().map(make).collect();
        workers[1].costs[2] = Cost { per_batch: 0, per_packet: 10_000 };
        assert_eq!(simulate_team(&mut workers, Ticks(10_000_000_000)), Ended::Finished);
        assert!(shut_down_team(&mut workers).is_empty());
        let telemetry = workers[0].telemetry();
        let dropped = telemetry.modules[2].turned_away.get();
        let mut all = Census::default();
        workers.iter_mut().for_each(|worker| all.add(&worker.census()));
        assert_eq!((all.missing(), all.entered, all.dropped), (0, 40_000, dropped), "{all:?}");
        assert_eq!(log.lock().expect("no test thread has panicked").len() as u64, 40_000 - dropped);
        let until = workers[0].clock().now().0;
        match when_full {
            crate::WhenFull::Wait => assert_eq!((dropped, until > 100_000_000), (0, true), "{until}"),
            crate::WhenFull::Drop => assert!(dropped > 10_000 && telemetry.worker.stalls.get() == 0, "{dropped}"),
        }
        graphs::in_order_by_original(&log);
    }
}

/// Regression: packets that found a ring full counted as handed over in timed turns. So a hand-over seemed to take
/// fewer ticks per packet than it took.
#[test]
fn packets_that_find_a_ring_full_are_not_timed_as_handed_over() {
    for when_full in [crate::WhenFull::Wait, crate::WhenFull::Drop] {
        let mut share = crate::Share::default();
        share.marks.when_full = when_full;
        let (graph, cut) = two_stages(share, 0, 4_096);
        let mut workers = team::<RunToCompletion>(&graph, &cut, &Log::default());
        let sender = &mut workers[0];
        // The first node after the bin leads to the other worker, which takes no packets.
        let (node, pool, telemetry) = (sender.modules + sender.gateways.len() + 1, sender.pool(), sender.telemetry());
        let mut batch = Batch::with_capacity(32);
        let refused = || telemetry.worker.stalls.get() + telemetry.modules[1].turned_away.get();
        while refused() == 0 {
            assert_eq!(pool.fill(&mut batch, 32), 32);
            sender.depart::<{ Mode::Timed as u8 }>(node, &mut batch);
            assert!(batch.is_empty());
        }
        let (timed, handed) = (&telemetry.worker.handover, telemetry.worker.handed.get());
        assert_eq!((timed.packets.get(), timed.calls.get()), (handed, handed / 32), "{when_full:?}");
        assert!(handed > 0);
    }
}

/// Regression: packets that a worker turned away because the ring to the module's worker was full were missing. So a
/// controller took the load that is offered to the module for smaller than it was.
#[test]
fn a_snapshot_counts_packets_that_another_worker_turned_away() {
    fn came<S: Scheduler>() -> u64 {
        let (graph, cut) = two_stages(crate::Share::default(), 0, 64);
        let telemetries: Vec<_> = team::<S>(&graph, &cut, &Log::default()).iter().map(Worker::telemetry).collect();
        let mut sampler = crate::Sampler::new(telemetries.clone(), Ticks::ZERO, Ticks::ZERO);
        telemetries[0].modules[1].turned_away.add(5);
        telemetries[1].modules[1].turned_away.add(7);
        // Only the worker that runs the module counts its packets.
        telemetries[0].counters[1].packets.add(100);
        sampler.take(Ticks(1_000), &[]).modules[1].came
    }
    assert_eq!(came::<crate::WeightedFair>(), 12);
    assert_eq!(came::<RunToCompletion>(), 0, "without shared time, only rings turn packets away");
}
