//! Random graphs under random changes: the packet invariant holds after every turn, and sessions stay in order.

use forebay_protocol::RateLimit;
use forebay_units::{BitRate, PacketRate, Rate};

use super::*;
use crate::{Marks, WhenFull};

#[derive(Clone, Debug)]
pub(super) struct Graph {
    /// By module: its function, how far ahead each gate leads (past the last module: to the port), and its trigger.
    pub(super) modules: Vec<(TestFunction, Vec<usize>, usize)>,
    /// By module.
    pub(super) shares: Vec<Share>,
    pub(super) packets: u32,
    pub(super) burst: usize,
    pub(super) every: u64,
    pub(super) refuse: u32,
    pub(super) chunks: usize,
    /// Changes of triggers: the turn, the module, and the trigger.
    pub(super) changes: Vec<(usize, usize, usize)>,
}

fn kinds() -> impl Strategy<Value = TestFunction> {
    prop_oneof![
        3 => Just(TestFunction::Pass),
        3 => Just(TestFunction::Split),
        2 => Just(TestFunction::End),
        // One delay for all modules, so that packets of a session stay in order.
        1 => Just(TestFunction::Delay(1_000)),
        1 => Just(TestFunction::Hesitate(1_000)),
        1 => Just(TestFunction::Create),
        1 => Just(TestFunction::Stray),
    ]
}

/// Weights, limits that let a run end within its turns, and queues that overflow.
fn shares() -> impl Strategy<Value = Share> {
    let rate = prop_oneof![
        (1_000_000.0..50_000_000.0f64).prop_map(|rate| Rate::Packets(PacketRate(rate))),
        (1e9..20e9f64).prop_map(|rate| Rate::Bits(BitRate(rate))),
    ];
    let limit = (rate, 0..100_000u64).prop_map(|(rate, burst)| RateLimit { rate, burst: Nanos(burst) });
    let when_full = prop_oneof![3 => Just(WhenFull::Wait), 1 => Just(WhenFull::Drop)];
    let marks = (1..400u32, 1..=100u32, 0..100u32, when_full).prop_map(|(queue, high, low, when_full)| Marks {
        queue,
        high,
        low: low * (high - 1) / 100,
        when_full,
    });
    (1..100u32, proptest::option::weighted(0.3, limit), marks).prop_map(|(weight, limit, marks)| Share {
        weight,
        limit,
        marks,
    })
}

pub(super) fn graphs() -> impl Strategy<Value = Graph> {
    let trigger = prop_oneof![3 => Just(0usize), 1 => 1..=32usize];
    let module = (kinds(), proptest::collection::vec(1..4usize, 1..5), trigger);
    let traffic = (1..2_000u32, 1..=32usize, prop_oneof![Just(0u64), 1..3_000u64], 0..5u32);
    let changes = proptest::collection::vec((0..80usize, 0..12usize, 0..=32usize), 0..12);
    let shares = proptest::collection::vec(shares(), 12);
    (proptest::collection::vec(module, 1..12), shares, traffic, 40..600usize, changes).prop_map(
        |(modules, shares, (packets, burst, every, refuse), chunks, changes)| Graph {
            modules,
            shares,
            packets,
            burst,
            every,
            refuse,
            chunks,
            changes,
        },
    )
}

impl Graph {
    pub(super) fn plan(&self, log: &Log) -> Plan {
        let target = |at: usize, ahead: usize| match at + ahead {
            next if next < self.modules.len() => Target::Module(next),
            next if next == self.modules.len() + 2 => Target::Drop,
            _ => Target::Port(1),
        };
        let modules = self.modules.iter().enumerate().map(|(at, (kind, ahead, trigger))| {
            // Only splits have several gates.
            let gates = if matches!(kind, TestFunction::Split) { &ahead[..] } else { &ahead[..1] };
            module(&format!("m{at}"), *kind, gates.iter().map(|ahead| target(at, *ahead)).collect(), *trigger)
        });
        let drain = Drain { refuse: self.refuse, ..drain(log) };
        let mut plan = plan(self.source(), drain, modules.collect(), self.chunks);
        for (module, share) in plan.modules.iter_mut().zip(&self.shares) {
            (module.hold, module.share) = (Some(Nanos(20_000)), *share);
        }
        plan
    }

    pub(super) fn source(&self) -> Source {
        Source { every: self.every, burst: self.burst, ..source(self.packets) }
    }

    pub(super) fn costs(&self) -> Vec<Cost> {
        (0..self.modules.len() as u64).map(|at| Cost { per_batch: 100 * (at % 3), per_packet: at % 7 }).collect()
    }

    /// Runs the graph to the end. Returns the packets that left, in order.
    fn run<S: Scheduler>(&self) -> Vec<(u32, u32, u64)> {
        let log = Log::default();
        let mut worker: Worker<_, S> = worker_of(self.plan(&log), self.costs());
        let mut turns = 0;
        loop {
            let next = worker.turn();
            let census = worker.census();
            assert_eq!(census.missing(), 0, "after turn {turns}: {census:?}");
            match next {
                Next::Now => worker.clock().spend(Ticks(64)),
                Next::At(instant) | Next::OnInput(_, Some(instant)) => worker.clock().advance_to(instant),
                Next::OnInput(_, None) | Next::Never => break,
            }
            for &(_, module, trigger) in self.changes.iter().filter(|(when, ..)| *when == turns) {
                let _ = worker.apply(&[Action::SetTrigger { module, trigger }]);
                // The same number as a weight. A scheduler without weights refuses it.
                let _ = worker.apply(&[Action::SetWeight { module, weight: trigger as u32 }]);
                let _ = worker.apply(&[Action::SetRate { module, limit: self.shares[trigger % 12].limit }]);
                assert_eq!(worker.census().missing(), 0, "setting a trigger loses nothing");
            }
            turns += 1;
            assert!(turns < 200_000, "the run ends");
        }
        worker.shut_down().expect("closing succeeds");
        let census = worker.census();
        assert_eq!((census.missing(), census.queued, census.held), (0, 0, 0), "{census:?}");
        assert_eq!(census.entered, u64::from(self.packets));
        in_order_by_original(&log);
        drop(worker);
        Arc::try_unwrap(log).expect("the worker is gone").into_inner().expect("no test thread has panicked")
    }
}

/// Asserts that packets are in order within their session. Created packets have no stamp (session and number are 0) and
/// are skipped.
pub(super) fn in_order_by_original(log: &Log) {
    let only: Vec<_> = log
        .lock()
        .expect("no test thread has panicked")
        .iter()
        .copied()
        .filter(|(session, number, _)| (*session, *number) != (0, 0))
        .collect();
    in_order(&Arc::new(Mutex::new(only)));
}

/// Runs the graph with more sources, each with an entry, a burst and an interval. Checks that all ports are read to the
/// end.
fn every_port_is_read_on(graph: Graph, more: &[(usize, usize, u64)], per_packet: u64) -> Result<(), TestCaseError> {
    let graph = Graph { packets: u32::MAX, chunks: graph.chunks + 8_192, ..graph };
    let (mut plan, modules) = (graph.plan(&Log::default()), graph.modules.len());
    for (at, (entry, burst, every)) in more.iter().enumerate() {
        let source = Box::new(Source { every: *every, burst: *burst, ..source(u32::MAX) });
        let (name, entry) = (format!("in{at}"), Some(Target::Module(entry % modules)));
        plan.ports.push(PortPlan { name, kind: "source", open: Some(open(source, true)), from: None, entry });
    }
    plan.placement = Arc::new(Placement::alone(modules, plan.ports.len()));
    let mut worker: Worker<_, WeightedFair> = worker_of(plan, vec![Cost { per_batch: 100, per_packet }; modules]);
    let telemetry = worker.telemetry();
    let read = || telemetry.ports.iter().map(|port| port.counters.received.get()).collect::<Vec<_>>();
    crate::drive::simulate(&mut worker, Ticks(20_000_000));
    let before = read();
    crate::drive::simulate(&mut worker, Ticks(40_000_000));
    for (at, (before, after)) in before.iter().zip(read()).enumerate() {
        // Port 1 is the drain.
        prop_assert!(at == 1 || after > *before, "port {at}: {before}, {after}");
    }
    worker.shut_down().expect("closing succeeds");
    let census = worker.census();
    prop_assert_eq!((census.missing(), census.queued, census.held), (0, 0, 0), "{:?}", census);
    Ok(())
}

/// Once, a rotation of the port that is read first starved a port. With n ports, the queue had room exactly once in n
/// turns, so the same port filled it each time.
#[test]
fn all_ports_feed_a_queue_that_has_room_once_a_rotation() {
    let marks = Marks { queue: 1, high: 1, low: 0, when_full: WhenFull::Wait };
    let graph = Graph {
        modules: vec![(TestFunction::Pass, vec![1], 2)],
        shares: vec![Share { weight: 1, limit: None, marks }; 12],
        packets: 1,
        burst: 28,
        every: 0,
        refuse: 0,
        chunks: 40,
        changes: Vec::new(),
    };
    every_port_is_read_on(graph, &[(0, 31, 0), (1, 9, 0), (8, 21, 1_542)], 46).expect("all are read");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_packet_is_lost_or_reordered_with_run_to_completion(graph in graphs()) {
        graph.run::<RunToCompletion>();
    }

    /// In addition, limited and blocked packets go on in the end.
    #[test]
    fn no_packet_is_lost_or_reordered_with_weighted_fair(graph in graphs()) {
        graph.run::<WeightedFair>();
    }

    /// Whatever the number of ports and their entries, no port blocks the others and none is starved.
    #[test]
    fn every_port_is_read_with_weighted_fair(
        graph in graphs(),
        more in proptest::collection::vec((0..12usize, 1..=32usize, prop_oneof![Just(0u64), 1..3_000u64]), 1..4),
        per_packet in 1..400u64,
    ) {
        every_port_is_read_on(graph, &more, per_packet)?;
    }

    #[test]
    fn simulated_time_is_the_same_every_time(graph in graphs()) {
        prop_assert_eq!(graph.run::<RunToCompletion>(), graph.run::<RunToCompletion>());
        prop_assert_eq!(graph.run::<WeightedFair>(), graph.run::<WeightedFair>());
    }
}
