//! Functions that remember sessions on two workers: sessions open, talk both ways and close, in real frames that each side makes of what
//! it has got; in simulated time and on threads. A packet that came to a worker without its session would be dropped, and its session
//! would never end.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_graph::{
    Cost, DeclarePort, Intake, Port, PortCounters, Ready, RunToCompletion, Setup, SetupError, drive::wind_up_team,
    register, share,
};
use forebay_instance::{ControlInputs, SimulatedTeam, Simulation, choose, start};
use forebay_measure::{Clock, Tsc};
use forebay_packet::{ArrivalClock, Batch, wire::checksum};
use forebay_pipeline::{Conditions, Loaded, Source, load};
use forebay_protocol::report::Report;
use forebay_units::Ticks;
use schemars::JsonSchema;
use serde::Deserialize;

/// Sessions, a third each of TCP, UDP and ICMP queries; and how often each opens and closes.
const SESSIONS: usize = 120;
const LIVES: usize = 2;
/// How many packets a side sends in a row, and how often it is its turn.
const ROW: usize = 5;
const ROUNDS: usize = 4;
/// Where clients send to: a peer, or a balancer's service.
const THERE: [u8; 4] = [192, 0, 2, 10];
/// What an address is translated to.
const POOL: [u8; 3] = [203, 0, 113];

const SYN: u8 = 2;
const ACK: u8 = 16;
const FIN: u8 = 1;

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Side {
    Client,
    Server,
}

/// A packet of a session: who sends it, TCP's flags; or that it is an error about what was last got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Packet(Side, u8),
    Error,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Tcp = 6,
    Udp = 17,
    Icmp = 1,
}

/// Address and port, or identifier.
type End = ([u8; 4], u16);

/// What a frame shows.
#[derive(Debug)]
struct Shown {
    from: End,
    to: End,
    session: usize,
    number: usize,
    is_error: bool,
}

/// A session as those who talk know it.
struct Talk {
    protocol: Protocol,
    script: Vec<Step>,
    /// How many steps were sent, and how many have arrived.
    sent: usize,
    arrived: usize,
    /// The client as the server sees it, and who answers it: as long as the session lives.
    seen: Option<(End, End)>,
    /// The last frame that the server got.
    last: Vec<u8>,
}

/// All that talk in one pipeline.
#[derive(Default)]
struct World {
    talks: Vec<Talk>,
    /// By side and worker: frames to be sent.
    pending: BTreeMap<(Side, usize), VecDeque<Vec<u8>>>,
    /// Whether translated, and balanced.
    translated: bool,
    balanced: bool,
    /// What is wrong.
    wrong: Vec<String>,
    /// By worker, packets that came to an end by a port that is open there.
    by_worker: BTreeMap<usize, usize>,
    /// How many workers there are.
    workers: usize,
}

static WORLDS: Mutex<BTreeMap<String, World>> = Mutex::new(BTreeMap::new());

fn worlds() -> MutexGuard<'static, BTreeMap<String, World>> {
    WORLDS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn script(protocol: Protocol, errors: bool) -> Vec<Step> {
    let packet = |side, flags| Step::Packet(side, if protocol == Protocol::Tcp { flags } else { 0 });
    let mut all = Vec::new();
    for _ in 0..LIVES {
        if protocol == Protocol::Tcp {
            all.extend([packet(Side::Client, SYN), packet(Side::Server, SYN | ACK), packet(Side::Client, ACK)]);
        }
        for _ in 0..ROUNDS {
            all.extend([packet(Side::Client, ACK); ROW]);
            all.extend([packet(Side::Server, ACK); ROW]);
        }
        if errors {
            all.push(Step::Error);
        }
        if protocol == Protocol::Tcp {
            all.extend([packet(Side::Client, FIN | ACK), packet(Side::Server, FIN | ACK), packet(Side::Client, ACK)]);
        }
    }
    all
}

impl Talk {
    fn side(&self, step: usize) -> Option<Side> {
        self.script.get(step).map(|step| match step {
            Step::Packet(side, _) => *side,
            Step::Error => Side::Server,
        })
    }

    /// Whether the step waits for those before to arrive: its sender speaks after the other side, or an error after all.
    fn waits(&self, step: usize) -> bool {
        step == 0 || self.side(step) != self.side(step - 1) || self.script[step] == Step::Error
    }
}

/// The client's end of a session.
fn client(session: usize) -> End {
    ([10, 0, (session / 40) as u8, (session % 40) as u8], 2_000 + session as u16)
}

fn ip(protocol: u8, from: [u8; 4], to: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u16 + 20).to_be_bytes();
    let mut packet =
        [&[0x45, 0, length[0], length[1], 0, 0, 0x40, 0, 64, protocol, 0, 0][..], &from, &to, payload].concat();
    let sum = !checksum::sum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_ne_bytes());
    packet
}

fn ethernet(packet: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0], packet].concat()
}

fn icmp(message: [u8; 2], rest: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut whole = [&message[..], &[0, 0], &rest, payload].concat();
    let sum = !checksum::sum(&whole);
    whole[2..4].copy_from_slice(&sum.to_ne_bytes());
    whole
}

/// A packet with a stamp: whose it is, and which.
fn frame(protocol: Protocol, (from, to): (End, End), side: Side, flags: u8, stamp: (usize, usize)) -> Vec<u8> {
    let stamp = [(stamp.0 as u32).to_be_bytes(), (stamp.1 as u32).to_be_bytes()].concat();
    let ports = [from.1.to_be_bytes(), to.1.to_be_bytes()].concat();
    let payload = match protocol {
        Protocol::Udp => [&ports[..], &[0, 16, 0, 0], &stamp].concat(),
        Protocol::Tcp => [&ports[..], &[0; 8], &[0x50, flags, 1, 0, 0, 0, 0, 0], &stamp].concat(),
        Protocol::Icmp => {
            // A query has the client's identifier, and so has its answer.
            let identifier = (if side == Side::Client { from.1 } else { to.1 }).to_be_bytes();
            let kind = if side == Side::Client { 8 } else { 0 };
            icmp([kind, 0], [identifier[0], identifier[1], 0, 1], &stamp)
        }
    };
    ethernet(&ip(protocol as u8, from.0, to.0, &payload))
}

fn shown(frame: &[u8]) -> Shown {
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let address = |at: usize| [frame[at], frame[at + 1], frame[at + 2], frame[at + 3]];
    let stamp = |at: usize| u32::from_be_bytes(address(at)) as usize;
    let end = frame.len();
    let (session, number) = (stamp(end - 8), stamp(end - 4));
    let is_error = frame[23] == 1 && frame[34] == 3;
    // Of an error, what it quotes.
    let ip = if is_error { 42 } else { 14 };
    let (from, to) = match frame[ip + 9] {
        1 => (word(ip + 24), word(ip + 24)),
        _ => (word(ip + 20), word(ip + 22)),
    };
    Shown { from: (address(ip + 12), from), to: (address(ip + 16), to), session, number, is_error }
}

impl World {
    fn new(protocols: &[Protocol], translated: bool, balanced: bool, workers: usize) -> Self {
        let talks = (0..SESSIONS).map(|session| {
            let protocol = protocols[session % protocols.len()];
            let script = script(protocol, protocol != Protocol::Icmp);
            Talk { protocol, script, sent: 0, arrived: 0, seen: None, last: Vec::new() }
        });
        Self { talks: talks.collect(), translated, balanced, workers, ..Self::default() }
    }

    fn is_over(&self) -> bool {
        !self.wrong.is_empty() || self.talks.iter().all(|talk| talk.arrived == talk.script.len())
    }

    /// Frames that a side may send now.
    fn speak(&mut self, side: Side) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        for (session, talk) in self.talks.iter_mut().enumerate() {
            while talk.side(talk.sent) == Some(side) && (!talk.waits(talk.sent) || talk.arrived == talk.sent) {
                let number = talk.sent;
                let own = (client(session), (THERE, 80));
                all.push(match (talk.script[number], side, talk.seen) {
                    (Step::Packet(_, flags), Side::Client, _) => {
                        frame(talk.protocol, own, side, flags, (session, number))
                    }
                    (Step::Packet(_, flags), Side::Server, Some((client, server))) => {
                        frame(talk.protocol, (server, client), side, flags, (session, number))
                    }
                    (Step::Error, _, Some((client, _))) => {
                        // Port unreachable, from a router on the way (RFC 792).
                        let message = icmp([3, 3], [0; 4], &talk.last[14..]);
                        ethernet(&ip(1, [198, 51, 100, 1], client.0, &message))
                    }
                    _ => unreachable!("a server answers what it has got"),
                });
                talk.sent += 1;
                // Once at a time, so that sessions take turns.
                if all.len() % 3 == 0 {
                    break;
                }
            }
        }
        all
    }

    /// A side gets a frame.
    fn hear(&mut self, side: Side, data: &[u8]) {
        let Shown { from, to, session, number, is_error } = shown(data);
        let Some(talk) = self.talks.get_mut(session) else { return self.wrong.push(format!("session {session}")) };
        let expected = if is_error {
            // It is about the client's own packet, as it sent it.
            let (own, there) = (client(session), (THERE, 80));
            let right = talk.script.get(talk.arrived) == Some(&Step::Error) && side == Side::Client;
            right && from == own && (to == there || talk.protocol == Protocol::Icmp)
        } else if side == Side::Client {
            let there = if talk.protocol == Protocol::Icmp { (THERE, client(session).1) } else { (THERE, 80) };
            number == talk.arrived && to == client(session) && from == there
        } else {
            talk.last = data.to_vec();
            let inside = self.translated || from == client(session);
            let outside = !self.translated || from.0.starts_with(&POOL);
            let server = self.balanced || to.0 == THERE;
            // One end for all of the session's packets.
            let life = talk.script.len() / LIVES;
            let same = number % life == 0 || talk.seen == Some((from, to));
            talk.seen = Some((from, to));
            number == talk.arrived && inside && outside && server && same
        };
        if !expected {
            let told = format!("{:?} {side:?} got {:?} as packet {}", talk.protocol, shown(data), talk.arrived);
            self.wrong.push(told);
        }
        talk.arrived += 1;
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Params {
    /// Whose.
    side: Side,
    /// The name of the world.
    world: String,
}

/// Where a side is. With queues each worker's part brings its own sessions, as a device does that spreads by a symmetric hash; without
/// them one worker has all.
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
        for data in world.speak(self.side) {
            let mut packet = intake.pool.take().expect("there is room for all that is under way");
            assert!(packet.write(&data));
            let to = if QUEUES { share(packet.session_hash(), self.share.1) } else { 0 };
            world.pending.entry((self.side, to)).or_default().push_back(data);
        }
        let mine = if QUEUES { self.share.0 } else { 0 };
        let pending = world.pending.entry((self.side, mine)).or_default();
        for _ in 0..intake.most.min(pending.len()) {
            let Some(mut packet) = intake.pool.take() else { break };
            let data = pending.pop_front().expect("there are some");
            assert!(packet.write(&data));
            packet.set_arrival(intake.now, ArrivalClock::Poll);
            batch.push(packet).expect("no more than there is room for");
        }
        if world.is_over() { Ready::Never } else { Ready::At(intake.now + Ticks(2_000)) }
    }

    fn send(&mut self, batch: &mut Batch, _: Ticks) {
        let mut worlds = worlds();
        let world = worlds.get_mut(&self.world).expect("it was made");
        for packet in batch.iter_mut() {
            *world.by_worker.entry(self.worker).or_default() += 1;
            // What has been translated comes back to where it was.
            if QUEUES && world.translated && self.side == Side::Server {
                let back = share(packet.session_hash(), world.workers);
                if back != self.worker {
                    world.wrong.push(format!("what worker {} sends comes back to worker {back}", self.worker));
                }
            }
            let data = packet.data().to_vec();
            world.hear(self.side, &data);
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

/// A function with both of its ways, and what it does to sessions.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// State, then the modules `out` and `back`.
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
const SERVICES: &str = "services: [{ address: 192.0.2.10, protocol: tcp, port: 80, backends: [{ address: 10.9.0.1, port: 8080 }, \
     { address: 10.9.0.2 }, { address: 10.9.0.3, weight: 2 }] }, { address: 192.0.2.10, protocol: udp, port: 80, backends: \
     [{ address: 10.9.0.1, port: 8080 }, { address: 10.9.0.4 }] }]";
const BALANCER: Case = Case {
    name: "balancer",
    parts: "modules: { out: { balance: { state: s, others: drop } }, back: { balance_back: { state: s, others: drop } } }\n",
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

/// What must hold once all is over.
fn check(case: Case, world: &str, report: &Report) {
    let told = worlds().remove(world).expect("it was made");
    let drops: Vec<_> = report.packets.dropped.iter().filter(|(_, packets)| **packets > 0).collect();
    assert_eq!(told.wrong, [] as [String; 0], "{}", case.name);
    assert!(drops.is_empty(), "{} {world}: {drops:?}", case.name);
    let behind = told.talks.iter().enumerate().find(|(_, talk)| talk.arrived < talk.script.len());
    let behind = behind.map(|(session, talk)| (session, talk.protocol, talk.arrived, talk.sent));
    assert_eq!(behind, None, "{} {world}: a session does not go on", case.name);
    assert_eq!((report.packets.missing(), report.packets.queued), (0, 0));
    let steps: usize = told.talks.iter().map(|talk| talk.script.len()).sum();
    assert_eq!(report.packets.out, steps as u64, "{}", case.name);
    // Each worker has its part of them, whether it takes them from the wire or is handed them: half of it is many standard deviations off.
    let least = steps / told.workers / 2;
    let handed: usize = report.workers.iter().map(|worker| worker.handed as usize).sum();
    let spread = (0..told.workers).all(|worker| told.by_worker.get(&worker).is_some_and(|packets| *packets > least));
    assert!(spread || handed > least, "{} {world}: {handed} handed, {:?}", case.name, told.by_worker);
}

fn virtually(case: Case, wire: &str, replies: &str, workers: &str, count: usize) {
    let world =
        format!("virtual {} {wire} {replies} {workers}", case.name).replace([',', '{', '}', '[', ']', ':'], "-");
    worlds().insert(world.clone(), World::new(case.protocols, case.translated, case.balanced, count));
    let source = source(case, &world, wire, replies, workers);
    let loaded = load(&source, Conditions { frequency: Simulation::frequency(), simulated: true });
    let loaded = loaded.unwrap_or_else(|problems| panic!("{problems}"));
    // Unequal costs: directions overtake each other wherever they can.
    let costs = vec![Cost { per_batch: 300, per_packet: 90 }, Cost { per_batch: 1_500, per_packet: 10 }];
    let mut team = SimulatedTeam::<RunToCompletion>::new(loaded.plans, &costs, None).expect("a plan");
    // Functions that remember sessions wait for their ends: it is over when those who talk have done so.
    for slice in 1..=2_000 {
        team.run(Ticks(slice * 1_000_000));
        if worlds()[&world].is_over() {
            break;
        }
    }
    let at = team.workers[0].clock().now();
    let _ = wind_up_team(&mut team.workers);
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
    // Far beyond what it takes; a session that does not go on is told by the check.
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
/// Each direction's module on both workers, or both on one of two.
const TOGETHER: &str = "[{ modules: [out, back] }]";

#[test]
fn sessions_are_followed_in_simulated_time() {
    for wire in ["wire", "queued_wire"] {
        for case in [NAT, FIREWALL] {
            virtually(case, wire, "", ANY, 2);
            virtually(case, wire, "", "[{}, {}, {}]", 3);
            virtually(case, wire, "", TOGETHER, 1);
        }
        virtually(BALANCER, wire, "endpoint", ANY, 2);
        virtually(BALANCER, wire, "session", TOGETHER, 1);
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

/// What would lose sessions is refused before a packet moves.
#[test]
fn what_cannot_be_on_several_workers_is_refused() {
    let told = |yaml: &str, workers: &str| {
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
    for (yaml, why) in [
        (nat(forwards, ""), "sessions that are opened from outside"),
        (nat(", filtering: endpoint_independent", ""), "sessions that are opened from outside"),
        (balancer("session"), "a backend's replies may come to another worker"),
    ] {
        assert!(told(&yaml, ANY).contains(why), "{yaml}: {}", told(&yaml, ANY));
        assert_eq!(told(&yaml, TOGETHER), "accepted", "{yaml}");
    }
    let apart = "[{ modules: [out] }, { modules: [back] }]";
    for yaml in [nat("", ""), FIREWALL.parts.to_owned(), balancer("endpoint"), balancer("session")] {
        assert!(
            told(&yaml, apart).contains("'s' is shared with 'out', which is on worker 0"),
            "{yaml}: {}",
            told(&yaml, apart)
        );
    }
    // Who talks to whom by outside addresses has sessions of both, which may have different workers.
    let hairpin = "state: { s: { nat: { pool: 203.0.113.0/28 } } }\n\
                   modules: { out: { nat_out: { state: s, hairpin: true } }, back: { nat_in: { state: s } }, turn: { counter: } }\n";
    let hairpin = |workers: &str| {
        let yaml = format!(
            "ports: {{ a: {{ generator: }}, b: {{ generator: }}, c: {{ sink: }} }}\n{hairpin}\
             pipeline:\n  - a -> out\n  - out[0] -> c\n  - out[hairpin] -> turn -> back\n  - b -> back -> c\nworkers: {workers}\n"
        );
        let source = Source::new(yaml, "sessions.yaml", Path::new("."));
        let loaded = load(&source, Conditions { frequency: Simulation::frequency(), simulated: true });
        loaded.err().map_or_else(|| "accepted".to_owned(), |problems| problems.to_string())
    };
    assert!(hairpin(ANY).contains("hairpin: from inside to inside"), "{}", hairpin(ANY));
    assert_eq!(hairpin("[{}]"), "accepted");
}
