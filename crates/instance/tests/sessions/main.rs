//! Tests functions with sessions on two workers, in simulated time and on threads: sessions open, exchange packets in
//! both directions and close. Each side creates its frames from the received ones. A packet at a worker without its
//! session would be dropped, and its session would never end.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_graph::{
    Cost, DeclarePort, Intake, Port, PortCounters, Ready, RunToCompletion, Setup, SetupError, Waits,
    drive::shut_down_team, register, share,
};
use forebay_instance::{ControlInputs, SimulatedTeam, Simulation, choose, start};
use forebay_measure::{Clock, Tsc};
use forebay_packet::{ArrivalClock, Batch};
use forebay_pipeline::{Conditions, Loaded, Source, load};
use forebay_protocol::report::Report;
use forebay_units::Ticks;
use schemars::JsonSchema;
use serde::Deserialize;

mod world;

use world::{Protocol, Side, World, worlds};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Params {
    /// The side of the port.
    side: Side,
    /// The name of the world.
    world: String,
}

/// A port with one side of the sessions. With queues each worker receives its own sessions, as from a device with a
/// symmetric hash. Without queues one worker receives all sessions.
struct Wire<const QUEUES: bool> {
    side: Side,
    world: String,
    share: (usize, usize),
    worker: usize,
}

impl<const QUEUES: bool> Port for Wire<QUEUES> {
    fn receive(&mut self, batch: &mut Batch, intake: &Intake<'_>) -> Ready {
        let mut worlds = worlds();
        let world = worlds.get_mut(&self.world).expect("it was made");
        for data in world.frames_to_send(self.side) {
            let mut packet = intake.pool.take().expect("the pool has room for all packets");
            assert!(packet.write(&data));
            let to = if QUEUES { share(packet.session_hash(), self.share.1) } else { 0 };
            world.pending.entry((self.side, to)).or_default().push_back(data);
        }
        let mine = if QUEUES { self.share.0 } else { 0 };
        let pending = world.pending.entry((self.side, mine)).or_default();
        for _ in 0..intake.most.min(pending.len()) {
            let Some(mut packet) = intake.pool.take() else { break };
            let data = pending.pop_front().expect("pending frames");
            assert!(packet.write(&data));
            packet.set_arrival(intake.now, ArrivalClock::Poll);
            batch.push(packet).expect("the batch has room");
        }
        if world.is_over() { Ready::Never } else { Ready::At(intake.now + Ticks(2_000)) }
    }

    fn wait_on(&self) -> Waits<'_> {
        Waits::None
    }

    fn send(&mut self, batch: &mut Batch, _: Ticks) {
        let mut worlds = worlds();
        let world = worlds.get_mut(&self.world).expect("it was made");
        for packet in batch.iter_mut() {
            *world.by_worker.entry(self.worker).or_default() += 1;
            // Replies to translated packets come back to the same worker.
            if QUEUES && world.translated && self.side == Side::Server {
                let back = share(packet.session_hash(), world.workers);
                if back != self.worker {
                    world.wrong.push(format!("replies to packets of worker {} come to worker {back}", self.worker));
                }
            }
            let data = packet.data().to_vec();
            world.receive_frame(self.side, &data);
        }
        batch.clear();
    }
}

impl<const QUEUED: bool> DeclarePort for Wire<QUEUED> {
    type Params = Params;
    const NAME: &'static str = if QUEUED { "queued_wire" } else { "wire" };
    const SUMMARY: &'static str = "one side of sessions";
    const HELP: &'static str = "";
    const EXAMPLE: &'static str = "{ side: client, world: w }";
    const QUEUES: bool = QUEUED;

    fn receives(_: &Params) -> bool {
        true
    }

    fn sends(_: &Params) -> bool {
        true
    }

    fn new(params: Params, setup: &mut Setup<'_>, _: Arc<PortCounters>) -> Result<Self, SetupError> {
        Ok(Self { side: params.side, world: params.world, share: setup.share(), worker: setup.share().0 })
    }
}

type OneWire = Wire<false>;
type QueuedWire = Wire<true>;
register!(port OneWire);
register!(port QueuedWire);

/// A function with both of its directions, and its effects on sessions.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// The configuration of the state and of the modules `out` and `back`.
    parts: &'static str,
    protocols: &'static [Protocol],
    translated: bool,
    balanced: bool,
}

const NAT: Case = Case {
    name: "nat",
    parts: "state: { s: { nat: { pool: 203.0.113.0/28, sessions: 2000 } } }\n\
            modules: { out: { nat_out: { state: s } }, back: { nat_in: { state: s } } }\n",
    protocols: &[Protocol::Tcp, Protocol::Udp, Protocol::Icmp],
    translated: true,
    balanced: false,
};
const FIREWALL: Case = Case {
    name: "firewall",
    parts: "state: { s: { connections: { sessions: 2000 } } }\n\
            modules: { out: { firewall: { state: s, default: permit } }, back: { firewall: { state: s } } }\n",
    translated: false,
    ..NAT
};
const SERVICES: &str = "services: [{ address: 192.0.2.10, protocol: tcp, port: 80, \
     backends: [{ address: 10.9.0.1, port: 8080 }, { address: 10.9.0.2 }, { address: 10.9.0.3, weight: 2 }] }, \
     { address: 192.0.2.10, protocol: udp, port: 80, \
     backends: [{ address: 10.9.0.1, port: 8080 }, { address: 10.9.0.4 }] }]";
const BALANCER: Case = Case {
    name: "balancer",
    parts: "modules: { out: { balance: { state: s, others: drop } }, \
            back: { balance_back: { state: s, others: drop } } }\n",
    protocols: &[Protocol::Tcp, Protocol::Udp],
    translated: false,
    balanced: true,
};

fn source(case: Case, world: &str, wire: &str, replies: &str, workers: &str) -> Source {
    let state = match case.name {
        "balancer" => format!("state: {{ s: {{ balancer: {{ replies: {replies}, {SERVICES} }} }} }}\n"),
        _ => String::new(),
    };
    let yaml = format!(
        "pool: {{ chunks: 4096 }}\nports:\n  clients: {{ {wire}: {{ side: client, world: {world} }} }}\n  \
         servers: {{ {wire}: {{ side: server, world: {world} }} }}\n{state}{}\
         pipeline:\n  - clients -> out -> servers\n  - servers -> back -> clients\nworkers: {workers}\n",
        case.parts
    );
    Source::new(yaml, "sessions.yaml", Path::new("."))
}

/// Checks the result of a run.
fn check(case: Case, world: &str, report: &Report) {
    let sessions = worlds().remove(world).expect("it was made");
    let drops: Vec<_> = report.packets.dropped.iter().filter(|(_, packets)| **packets > 0).collect();
    assert_eq!(sessions.wrong, [] as [String; 0], "{}", case.name);
    assert!(drops.is_empty(), "{} {world}: {drops:?}", case.name);
    let behind = sessions.talks.iter().enumerate().find(|(_, talk)| talk.arrived < talk.script.len());
    let behind = behind.map(|(session, talk)| (session, talk.protocol, talk.arrived, talk.sent));
    assert_eq!(behind, None, "{} {world}: a session is stuck", case.name);
    assert_eq!((report.packets.missing(), report.packets.queued), (0, 0));
    let steps: usize = sessions.talks.iter().map(|talk| talk.script.len()).sum();
    assert_eq!(report.packets.out, steps as u64, "{}", case.name);
    // Each worker processes its part of the packets, from its port or from another worker. Half of the expected part is
    // many standard deviations below.
    let least = steps / sessions.workers / 2;
    let handed: usize = report.workers.iter().map(|worker| worker.handed as usize).sum();
    let spread =
        (0..sessions.workers).all(|worker| sessions.by_worker.get(&worker).is_some_and(|packets| *packets > least));
    assert!(spread || handed > least, "{} {world}: {handed} handed, {:?}", case.name, sessions.by_worker);
}

fn in_simulated_time(case: Case, wire: &str, replies: &str, workers: &str, count: usize) {
    let world =
        format!("virtual {} {wire} {replies} {workers}", case.name).replace([',', '{', '}', '[', ']', ':'], "-");
    worlds().insert(world.clone(), World::new(case.protocols, case.translated, case.balanced, count));
    let source = source(case, &world, wire, replies, workers);
    let loaded = load(&source, Conditions { frequency: Simulation::frequency(), simulated: true });
    let loaded = loaded.unwrap_or_else(|problems| panic!("{problems}"));
    // Unequal costs, so that the directions overtake each other.
    let costs = vec![Cost { per_batch: 300, per_packet: 90 }, Cost { per_batch: 1_500, per_packet: 10 }];
    let mut team = SimulatedTeam::<RunToCompletion>::new(loaded.plans, &costs, None).expect("a plan");
    // Functions with sessions wait for the end of sessions. The run is over when both sides have finished.
    for slice in 1..=2_000 {
        team.run(Ticks(slice * 1_000_000));
        if worlds()[&world].is_over() {
            break;
        }
    }
    let at = team.workers[0].clock().now();
    let _ = shut_down_team(&mut team.workers);
    let board = &team.board;
    let report = board.report(&board.nothing(), &board.read(at));
    check(case, &world, &report);
}

fn on_threads(case: Case, wire: &str, replies: &str, workers: &str, count: usize) {
    let world = format!("threads {} {wire} {replies}", case.name).replace(' ', "-");
    worlds().insert(world.clone(), World::new(case.protocols, case.translated, case.balanced, count));
    let source = source(case, &world, wire, replies, workers);
    let loaded = load(&source, Conditions { frequency: Tsc.frequency(), simulated: false });
    let Loaded { plans, cores, made, .. } = loaded.unwrap_or_else(|problems| panic!("{problems}"));
    let cores = match choose(&cores) {
        Ok(cores) => cores,
        Err(error) => {
            drop(std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("skipped: {error}\n")));
            return;
        }
    };
    let instance = start(plans, &cores, made, Box::new(|_| None), ControlInputs::default()).expect("it starts");
    let began = Instant::now();
    // Much longer than necessary. The check reports a stuck session.
    while !worlds()[&world].is_over() && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let board = instance.board();
    let outcome = instance.end();
    assert!(outcome.troubles.is_empty(), "{:?}", outcome.troubles);
    let report = board.report(&board.nothing(), &board.read(outcome.at));
    check(case, &world, &report);
}

const ANY: &str = "[{}, {}]";
/// The modules of both directions on one worker.
const TOGETHER: &str = "[{ modules: [out, back] }]";

#[test]
fn sessions_are_followed_in_simulated_time() {
    for wire in ["wire", "queued_wire"] {
        for case in [NAT, FIREWALL] {
            in_simulated_time(case, wire, "", ANY, 2);
            in_simulated_time(case, wire, "", "[{}, {}, {}]", 3);
            in_simulated_time(case, wire, "", TOGETHER, 1);
        }
        in_simulated_time(BALANCER, wire, "endpoint", ANY, 2);
        in_simulated_time(BALANCER, wire, "session", TOGETHER, 1);
    }
}

#[test]
fn sessions_are_followed_on_threads() {
    for wire in ["wire", "queued_wire"] {
        for case in [NAT, FIREWALL] {
            on_threads(case, wire, "", ANY, 2);
        }
        on_threads(BALANCER, wire, "endpoint", ANY, 2);
    }
}

/// Configurations that would lose sessions are refused.
#[test]
fn modules_that_cannot_be_on_several_workers_are_refused() {
    let errors = |yaml: &str, workers: &str| {
        let yaml = format!(
            "ports: {{ a: {{ generator: }}, b: {{ generator: }}, c: {{ sink: }} }}\n{yaml}\
             pipeline:\n  - a -> out -> c\n  - b -> back -> c\nworkers: {workers}\n"
        );
        let source = Source::new(yaml, "sessions.yaml", Path::new("."));
        let loaded = load(&source, Conditions { frequency: Simulation::frequency(), simulated: true });
        loaded.err().map_or_else(|| "accepted".to_owned(), |problems| problems.to_string())
    };
    let nat = |params: &str, out: &str| {
        format!(
            "state: {{ s: {{ nat: {{ pool: 203.0.113.0/28{params} }} }} }}\n\
             modules: {{ out: {{ nat_out: {{ state: s{out} }} }}, back: {{ nat_in: {{ state: s }} }} }}\n"
        )
    };
    let balancer = |replies: &str| {
        format!("state: {{ s: {{ balancer: {{ replies: {replies}, {SERVICES} }} }} }}\n{}", BALANCER.parts)
    };
    let forwards = ", forwards: [{ protocol: tcp, outside: '203.0.113.1:80', inside: '10.0.0.5:8080' }]";
    let one_worker = "'forwards' and 'filtering: endpoint_independent' work on one worker only";
    for (yaml, why) in [
        (nat(forwards, ""), one_worker),
        (nat(", filtering: endpoint_independent", ""), one_worker),
        (balancer("session"), "`replies: session` needs both directions of a session on one worker"),
    ] {
        assert!(errors(&yaml, ANY).contains(why), "{yaml}: {}", errors(&yaml, ANY));
        assert_eq!(errors(&yaml, TOGETHER), "accepted", "{yaml}");
    }
    let apart = "[{ modules: [out] }, { modules: [back] }]";
    for yaml in [nat("", ""), FIREWALL.parts.to_owned(), balancer("endpoint"), balancer("session")] {
        assert!(
            errors(&yaml, apart).contains("'s' is shared with 'out', which is on worker 0"),
            "{yaml}: {}",
            errors(&yaml, apart)
        );
    }
    // A connection between two inside hosts by outside addresses has two sessions, which may be on different workers.
    let hairpin = "state: { s: { nat: { pool: 203.0.113.0/28 } } }\n\
                   modules: { out: { nat_out: { state: s, hairpin: true } }, back: { nat_in: { state: s } }, \
                   turn: { counter: } }\n";
    let hairpin = |workers: &str| {
        let yaml = format!(
            "ports: {{ a: {{ generator: }}, b: {{ generator: }}, c: {{ sink: }} }}\n{hairpin}\
             pipeline:\n  - a -> out\n  - out[0] -> c\n  - out[hairpin] -> turn -> back\n  - b -> back -> c\n\
             workers: {workers}\n"
        );
        let source = Source::new(yaml, "sessions.yaml", Path::new("."));
        let loaded = load(&source, Conditions { frequency: Simulation::frequency(), simulated: true });
        loaded.err().map_or_else(|| "accepted".to_owned(), |problems| problems.to_string())
    };
    assert!(
        hairpin(ANY).contains("hairpin: a packet from inside to inside belongs to two sessions"),
        "{}",
        hairpin(ANY)
    );
    assert_eq!(hairpin("[{}]"), "accepted");
}
