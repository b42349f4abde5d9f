//! Random changes of graph and workers while packets run. No packet is lost, order is kept, and state is kept or its
//! packets are counted as dropped.

use std::collections::BTreeMap;

use forebay_packet::Pool;
use forebay_protocol::Census;

use super::graphs::{Graph, graphs};
use super::teams::{Cut, cuts, part};
use super::*;
use crate::drive::{Ended, shut_down_team, simulate_team};
use crate::links::links;
use crate::report::Reading;
use crate::report::RunFacts;
use crate::{Exchange, Former, Team};

type Sim = Worker<Simulated, RunToCompletion>;

/// A graph, its placement, and the number of time slices for which it runs.
#[derive(Clone, Debug)]
struct Stage {
    graph: Graph,
    cut: Cut,
    slices: u64,
}

/// The workers that run now, and the counts of the previous graphs.
struct Pipeline {
    workers: Vec<Sim>,
    past: Census,
    kinds: BTreeMap<String, (TestFunction, usize)>,
    placement: Arc<Placement>,
    log: Log,
}

fn kinds(graph: &Graph) -> BTreeMap<String, (TestFunction, usize)> {
    let modules = graph.modules.iter().enumerate();
    modules.map(|(at, (kind, gates, _))| (format!("m{at}"), (*kind, gates.len()))).collect()
}

impl Pipeline {
    fn start(stage: &Stage) -> Self {
        let log = Log::default();
        let placement = Arc::new(stage.cut.placement(stage.graph.modules.len()));
        let workers = make(&stage.graph, &log, &placement, |_, _| None, &[]);
        Self { workers, past: Census::default(), kinds: kinds(&stage.graph), placement, log }
    }

    fn run(&mut self, slices: u64) -> Ended {
        let mut ended = Ended::TimeUp;
        for _ in 0..slices {
            let until = self.workers.iter().map(|worker| worker.clock().now()).max().unwrap_or_default() + Ticks(5_000);
            ended = simulate_team(&mut self.workers, until);
            self.check();
        }
        ended
    }

    fn check(&mut self) -> Census {
        let mut all = self.past;
        self.workers.iter_mut().for_each(|worker| all.add(&worker.census()));
        assert_eq!(all.missing(), 0, "{all:?}");
        all
    }

    /// Changes to another graph and other workers. A module with the same name and function is taken over if it is on
    /// one worker, before and after. Returns how many packets were dropped with removed functions.
    fn change(&mut self, stage: &Stage) -> u64 {
        let placement = Arc::new(stage.cut.placement(stage.graph.modules.len()));
        let (old, new) = (self.kinds.clone(), kinds(&stage.graph));
        let before = Arc::clone(&self.placement);
        let after = Arc::clone(&placement);
        let from = move |name: &str, worker: usize| {
            let at: usize = name[1..].parse().ok()?;
            let same =
                old.get(name).zip(new.get(name)).is_some_and(|(old, new)| format!("{old:?}") == format!("{new:?}"));
            let sole = (before.modules.get(at)?, &after.modules[at]);
            match sole {
                _ if !same => None,
                (before, after) if before.len() == 1 && after.len() == 1 => Some(before[0]),
                (before, after) => (before == after).then_some(worker),
            }
        };
        let ports = [self.placement.ports[0][0], self.placement.ports[1][0]];
        let mut next = make(&stage.graph, &self.log, &placement, from, &ports);
        let running: Vec<_> = self.workers.iter().map(Worker::telemetry).collect();
        let exchange = Exchange::between(&running, &mut next);
        drop(running);
        let latest = |workers: &[Sim]| workers.iter().map(|worker| worker.clock().now()).max().unwrap_or_default();
        let mut turns = 0;
        let now = latest(&self.workers);
        self.workers.iter().for_each(|worker| worker.clock().advance_to(now));
        while !self.workers.iter_mut().fold(true, |done, worker| {
            let done_here = worker.hand_over(&exchange);
            worker.clock().spend(Ticks(64));
            done && done_here
        }) {
            turns += 1;
            assert!(turns < 100_000, "waiting packets pass");
        }
        let now = latest(&self.workers);
        let mut dropped = 0;
        for worker in std::mem::replace(&mut self.workers, next) {
            let before = worker.telemetry().worker.held_at_close.get();
            let mut former = Former::of(worker);
            former.close().expect("closing succeeds");
            dropped += former.telemetry().worker.held_at_close.get() - before;
            let mut reading: Reading = former.reading(now);
            former.retire(&mut reading);
            self.past.add(&reading.census());
        }
        for worker in &mut self.workers {
            worker.clock().advance_to(now);
            worker.take_over_from(&exchange);
        }
        (self.kinds, self.placement) = (kinds(&stage.graph), placement);
        self.check();
        dropped
    }

    fn end(mut self, packets: u32) -> Vec<(u32, u32, u64)> {
        let mut turns = 0;
        while self.run(1) != Ended::Finished {
            turns += 1;
            assert!(turns < 100_000, "the run ends");
        }
        assert!(shut_down_team(&mut self.workers).is_empty());
        let all = self.check();
        assert_eq!((all.queued, all.held, all.handed - all.taken), (0, 0, 0), "{all:?}");
        assert_eq!(all.entered, u64::from(packets));
        drop(self.workers);
        Arc::try_unwrap(self.log).expect("the workers are gone").into_inner().expect("no test thread has panicked")
    }
}

/// Creates the workers of a graph. With an empty `ports` they open their own ports. Otherwise they take over the ports
/// of the running workers in `ports`.
fn make(
    graph: &Graph,
    log: &Log,
    placement: &Arc<Placement>,
    from: impl Fn(&str, usize) -> Option<usize>,
    ports: &[usize],
) -> Vec<Sim> {
    let team = Arc::new(Team::new(placement.workers));
    let shape = graph.plan(log);
    let make = |(worker, links)| {
        let mut plan = part(graph, log, placement, worker);
        for module in plan.modules.iter_mut().filter(|module| module.function.is_some()) {
            module.from = from(&module.name, worker);
            if module.from.is_some() {
                module.function = None;
            }
        }
        for (port, owner) in plan.ports.iter_mut().zip(ports) {
            if port.open.take().is_some() {
                port.from = Some(*owner);
            }
        }
        let pool = Pool::new(plan.pool).expect("memory for a small pool");
        let clock = Simulated::new(Frequency::new(1e9));
        Worker::member(plan, clock, graph.costs(), pool, links, Arc::clone(&team)).expect("a sound plan")
    };
    links(&shape, placement).into_iter().enumerate().map(make).collect()
}

fn stages() -> impl Strategy<Value = Vec<Stage>> {
    // Only one worker opens the source, so it goes on where it was.
    let stage = (graphs(), cuts(), 1..30u64).prop_map(|(graph, cut, slices)| Stage {
        graph,
        cut: Cut { spreads: false, ..cut },
        slices,
    });
    proptest::collection::vec(stage, 2..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_graph_loses_no_packet_and_counts_its_drops(stages in stages()) {
        let mut pipeline = Pipeline::start(&stages[0]);
        pipeline.run(stages[0].slices);
        for stage in &stages[1..] {
            let held = pipeline.check().held;
            let dropped = pipeline.change(stage);
            prop_assert!(dropped <= held + 600, "only packets held before or during the drain are dropped");
            pipeline.run(stage.slices);
        }
        pipeline.end(stages[0].graph.packets);
    }

    #[test]
    fn other_workers_keep_order_and_held_packets(stages in stages()) {
        let graph = Graph { modules: stages[0].graph.modules.clone(), ..stages[0].graph.clone() };
        // Each module is on one worker before and after, so it keeps its held packets.
        let alone = |cut: &Cut| Cut { workers: vec![1; 4], ..cut.clone() };
        let alone_on = |stage: &Stage| Stage { graph: graph.clone(), cut: alone(&stage.cut), ..stage.clone() };
        let stages: Vec<_> = stages.iter().map(alone_on).collect();
        let mut pipeline = Pipeline::start(&stages[0]);
        pipeline.run(stages[0].slices);
        for stage in &stages[1..] {
            prop_assert_eq!(pipeline.change(stage), 0);
            pipeline.run(stage.slices);
        }
        let log = pipeline.end(graph.packets);
        graphs::in_order_by_original(&Arc::new(Mutex::new(log)));
    }

    #[test]
    fn sessions_that_change_workers_stay_in_order(stages in stages()) {
        // No function holds packets. A packet held on one worker could be overtaken on another.
        let modules = stages[0].graph.modules.iter().map(|(kind, gates, trigger)| {
            let holds = matches!(kind, TestFunction::Delay(_) | TestFunction::Hesitate(_));
            let kind = if holds { TestFunction::Pass } else { *kind };
            (kind, gates.clone(), *trigger)
        });
        let graph = Graph { modules: modules.collect(), ..stages[0].graph.clone() };
        let stages: Vec<_> = stages.iter().map(|stage| Stage { graph: graph.clone(), ..stage.clone() }).collect();
        let mut pipeline = Pipeline::start(&stages[0]);
        pipeline.run(stages[0].slices);
        for stage in &stages[1..] {
            prop_assert_eq!(pipeline.change(stage), 0);
            pipeline.run(stage.slices);
        }
        let log = pipeline.end(graph.packets);
        graphs::in_order_by_original(&Arc::new(Mutex::new(log)));
    }
}

/// A packet that is held while a change removes its path belongs to no flow. If its flow word must determine a branch,
/// it gets the word of another path to the same module. Otherwise all such packets would run in the first branch of a
/// fold.
#[test]
fn packets_whose_path_is_removed_go_on_in_the_branches_that_they_are_sent_to() {
    let log = Log::default();
    // Two paths to a delay, then a split whose branches run folded.
    let plan = |first: &str, packets: u32, from: Option<usize>| {
        let modules = vec![
            module(first, TestFunction::Split, vec![Target::Module(1), Target::Module(2)], 0),
            module("left", TestFunction::Pass, vec![Target::Module(3)], 0),
            module("right", TestFunction::Pass, vec![Target::Module(3)], 0),
            Module { from, ..module("delay", TestFunction::Delay(10_000), vec![Target::Module(4)], 0) },
            module("split", TestFunction::Split, vec![Target::Module(5), Target::Module(6)], 0),
            module("a", TestFunction::Pass, vec![Target::Port(1)], 0),
            module("b", TestFunction::Pass, vec![Target::Port(1)], 0),
        ];
        Plan { folds: vec![vec![5, 6]], ..plan(source(packets), drain(&log), modules, 256) }
    };
    let mut old = worker(plan("before", 64, None), vec![]);
    while old.census().held < 64 {
        old.turn();
    }
    let mut next = vec![worker(plan("after", 0, Some(0)), vec![])];
    let exchange = Exchange::between(&[old.telemetry()], &mut next);
    while !old.hand_over(&exchange) {}
    let mut new = next.remove(0);
    new.clock().advance_to(old.clock().now());
    new.take_over_from(&exchange);
    Former::of(old).close().expect("closing succeeds");
    assert_eq!(new.census().held, 64);
    while new.turn() != Next::Never {
        new.clock().spend(Ticks(1_000));
    }
    let sessions: Vec<u32> =
        log.lock().expect("no test thread has panicked").iter().map(|(session, ..)| *session).collect();
    let right = sessions.iter().filter(|session| (session.wrapping_mul(0x85eb_ca6b) >> 16) % 2 == 1).count() as u64;
    assert_eq!((sessions.len(), new.telemetry().folds.packets(|_| 0)), (64, vec![vec![64 - right, right]]));
    assert!(right > 0 && right < 64, "{right}");
}

/// A port that is taken over goes on counting in the next graph. Its losses are reported once, there.
#[test]
fn losses_of_a_port_are_reported_once_across_a_change() {
    let planned = |open: bool| {
        let modules = vec![module("m", TestFunction::Pass, vec![Target::Port(1)], 0)];
        let mut plan = plan(source(0), drain(&Log::default()), modules, 64);
        let path = vec![Step { module: 0, gate: None }];
        let min_rate = Some(forebay_units::Rate::Packets(forebay_units::PacketRate(1e6)));
        plan.flows = vec![FlowPlan {
            name: "video".to_owned(),
            path,
            slo: None,
            percentile: forebay_units::Percentile::Of(99.0),
            min_rate,
        }];
        if !open {
            plan.ports.iter_mut().for_each(|port| (port.open, port.from) = (None, Some(0)));
        }
        plan
    };
    let costs = || vec![Cost { per_batch: 1, per_packet: 1 }];
    let (mut running, mut next) = (worker(planned(true), costs()), [worker(planned(false), costs())]);
    let exchange = Exchange::between(&[running.telemetry()], &mut next);
    running.telemetry().ports[0].counters.dropped.add(7);
    running.telemetry().modules[0].turned_away.add(3);
    assert!(running.hand_over(&exchange));
    let former = Former::of(running);
    let mut reading = former.reading(Ticks(1));
    former.retire(&mut reading);
    let [next] = &mut next;
    next.take_over_from(&exchange);
    let telemetry = next.telemetry();
    telemetry.ports[0].counters.dropped.add(2);
    telemetry.modules[0].turned_away.add(1);
    reading.merge(&Reading::of(&telemetry, Ticks(2)));
    let nothing = Reading::nothing(Frequency::new(1e9), Ticks::ZERO);
    let cpu = forebay_protocol::report::Cpu { model: "none".to_owned(), tsc_ghz: 1.0 };
    let origin = RunFacts { kind: forebay_protocol::report::FigureSource::Simulated, cpu, cores: vec![None] };
    let report = reading.report_since(&nothing, &origin);
    assert_eq!((report.ports[0].dropped, report.flows[0].turned_away), (9, Some(7 + 2 + 3 + 1)));
}
