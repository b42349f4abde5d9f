//! Tests repeated moves of modules between two workers under load: no packet is lost, no packet overtakes another one
//! of its session, and sessions, changed rules and counters are kept.
//!
//! `FOREBAY_MOVES` is the number of moves (100 by default).

#[path = "census/responses.rs"]
mod responses;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_graph::{DeclarePort, Intake, Port, PortCounters, Ready, Setup, SetupError, Waits, register};
use forebay_instance::{ControlInputs, Instance, MoveOrder, NotMoved, choose, start};
use forebay_measure::{Clock, Tsc, machine::allowed_cores};
use forebay_packet::{ArrivalClock, Batch, wire::checksum};
use forebay_pipeline::{Conditions, Loaded, Source, load};
use forebay_protocol::{Moved, WantedWorkers, report::Report};
use forebay_units::Ticks;
use schemars::JsonSchema;
use serde::Deserialize;

use responses::Responses;

const SESSIONS: usize = 64;
/// The largest number of packets in the pipeline. No queue is shorter.
const WINDOW: u64 = 512;
/// The time limit of a step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The packets that have been sent and have arrived.
///
/// A worker must never wait here for the worker of another test, which may be preempted. So each world has its own
/// locks, and a port takes one only for packets.
struct World {
    sent: AtomicU64,
    arrived: AtomicU64,
    senders: Mutex<Senders>,
    receivers: Mutex<Receivers>,
}

struct Senders {
    over: bool,
    /// For each session, the number of packets that were sent.
    numbers: [u32; SESSIONS],
}

struct Receivers {
    /// For each session, the number of packets that have arrived, and their source.
    sessions: [(u32, Option<[u8; 6]>); SESSIONS],
    wrong: Vec<String>,
}

impl World {
    fn new() -> Self {
        Self {
            sent: AtomicU64::new(0),
            arrived: AtomicU64::new(0),
            senders: Mutex::new(Senders { over: false, numbers: [0; SESSIONS] }),
            receivers: Mutex::new(Receivers { sessions: [(0, None); SESSIONS], wrong: Vec::new() }),
        }
    }
}

static WORLDS: Mutex<BTreeMap<String, Arc<World>>> = Mutex::new(BTreeMap::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn world_of(name: &str) -> Arc<World> {
    locked(&WORLDS).get(name).map(Arc::clone).expect("it was made")
}

/// Returns a UDP packet of a session that contains its number.
fn frame(session: usize, number: u32) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17]);
    frame[26..34].copy_from_slice(&[10, 0, 0, session as u8, 192, 0, 2, 10]);
    frame[34..38].copy_from_slice(&[8, session as u8, 0, 80]);
    frame[38..40].copy_from_slice(&26u16.to_be_bytes());
    frame[42..46].copy_from_slice(&(session as u32).to_be_bytes());
    frame[46..50].copy_from_slice(&number.to_be_bytes());
    let sum = !checksum::sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_ne_bytes());
    frame
}

/// A port that sends numbered packets while fewer than [`WINDOW`] are in the pipeline, or checks packets that arrive.
struct Numbered {
    world: Arc<World>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Params {
    /// The name of the world.
    world: String,
    /// True if packets enter the pipeline here, false if they leave it.
    enter: bool,
}

impl Port for Numbered {
    fn receive(&mut self, batch: &mut Batch, intake: &Intake<'_>) -> Ready {
        let World { sent, arrived, senders, .. } = &*self.world;
        // First the number of arrived packets: it is never above the number that were sent.
        let arrived = arrived.load(Acquire);
        let room = WINDOW.saturating_sub(sent.load(Relaxed) - arrived) as usize;
        if room > 0 {
            let mut senders = locked(senders);
            if senders.over {
                return Ready::Never;
            }
            for _ in 0..room.min(intake.most) {
                let Some(mut packet) = intake.pool.take() else { break };
                let session = sent.fetch_add(1, Relaxed) as usize % SESSIONS;
                let number = &mut senders.numbers[session];
                assert!(packet.write(&frame(session, *number)));
                packet.set_arrival(intake.now, ArrivalClock::Poll);
                batch.push(packet).expect("the batch has room");
                *number += 1;
            }
        }
        Ready::At(intake.now + Ticks(2_000))
    }

    fn wait_on(&self) -> Waits<'_> {
        Waits::None
    }

    fn send(&mut self, batch: &mut Batch, _: Ticks) {
        let mut receivers = locked(&self.world.receivers);
        let Receivers { sessions, wrong } = &mut *receivers;
        for packet in batch.iter_mut() {
            let data = packet.data();
            let word = |at: usize| u32::from_be_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]);
            let source = [data[26], data[27], data[28], data[29], data[34], data[35]];
            let (session, number) = (word(42) as usize, word(46));
            let (next, seen) = &mut sessions[session];
            if number != *next {
                wrong.push(format!("session {session}: packet {number} came instead of {next}"));
            }
            if *seen.get_or_insert(source) != source {
                wrong
                    .push(format!("session {session}: packet {number} comes from {source:?}, the first from {seen:?}"));
            }
            *next = number + 1;
            self.world.arrived.fetch_add(1, Release);
        }
        batch.clear();
    }
}

impl DeclarePort for Numbered {
    type Params = Params;
    const NAME: &'static str = "numbered";
    const SUMMARY: &'static str = "numbered packets of sessions";
    const HELP: &'static str = "";
    const EXAMPLE: &'static str = "{ world: w, enter: true }";

    fn receives(params: &Params) -> bool {
        params.enter
    }

    fn sends(params: &Params) -> bool {
        !params.enter
    }

    fn new(params: Params, _: &mut Setup<'_>, _: Arc<PortCounters>) -> Result<Self, SetupError> {
        Ok(Self { world: world_of(&params.world) })
    }
}

register!(port Numbered);

/// The modules, in the order in which packets pass them.
const MODULES: [&str; 6] = ["fw", "rules", "nat", "wait", "slow", "ttl"];

const STATELESS: [&str; 3] = ["rules", "wait", "ttl"];

/// Returns a configuration with sessions, a table that is changed, packets that wait for a batch, and packets that are
/// held.
fn text(world: &str, more: &str) -> String {
    format!(
        "ports:
  in: {{ numbered: {{ world: {world}, enter: true }} }}
  out: {{ numbered: {{ world: {world}, enter: false }} }}
state:
  known: {{ connections: {{ sessions: 1024 }} }}
  shared: {{ nat: {{ pool: 203.0.113.0/28, sessions: 1024 }} }}
modules:
  fw: {{ firewall: {{ state: known, default: permit }} }}
  rules: {{ acl: {{ rules: ['count udp from 10.0.0.0/8 to any'], default: permit }} }}
  nat: {{ nat_out: {{ state: shared }} }}
  wait: {{ counter: }}
  slow: {{ shaper: {{ rate: 100Mbps, burst: 2KiB, queue: 2048 }} }}
  ttl: {{ ttl: }}
pipeline:
  - in -> fw -> rules -> nat -> wait -> slow -> ttl -> out
buffers:
  wait: {{ trigger: 24, hold: 2ms }}
{more}"
    )
}

fn begin(world: &str, more: &str) -> Option<Arc<dyn Instance>> {
    if allowed_cores().len() < 2 {
        let _ = writeln!(std::io::stderr(), "skipped: {world}: one core");
        return None;
    }
    locked(&WORLDS).insert(world.to_owned(), Arc::new(World::new()));
    let source = Source::new(text(world, more), "moves.yaml", Path::new("."));
    let conditions = Conditions { frequency: Tsc.frequency(), simulated: false };
    let Loaded { plans, cores, made, .. } = load(&source, conditions).unwrap_or_else(|problems| panic!("{problems}"));
    let cores = choose(&cores).expect("two cores");
    Some(start(plans, &cores, made, Box::new(|_| None), ControlInputs::default()).expect("it starts"))
}

fn wanted(modules: &[(&str, &[usize])]) -> Vec<WantedWorkers> {
    modules.iter().map(|(module, to)| WantedWorkers { module: (*module).to_owned(), to: to.to_vec() }).collect()
}

fn move_to(instance: &dyn Instance, modules: &[(&str, &[usize])], most: Option<usize>) -> Result<Moved, NotMoved> {
    let wanted = wanted(modules);
    instance
        .move_modules(MoveOrder { wanted: &wanted, most, lose_sessions: false }, &mut |_| Ok(()))
        .map(|(moved, _)| moved)
}

/// Waits until `more` further packets have arrived.
fn wait_for_packets(world: &str, more: u64) {
    let world = world_of(world);
    let arrived = || world.arrived.load(Acquire);
    let (begin, before) = (Instant::now(), arrived());
    while arrived() < before + more {
        assert!(begin.elapsed() < PATIENCE, "packets go on");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Ends the run. Asserts that all packets have arrived, once and in order.
fn end(instance: &dyn Instance, world: &str) -> Report {
    let world = world_of(world);
    locked(&world.senders).over = true;
    let sent = world.sent.load(Relaxed);
    let begin = Instant::now();
    while world.arrived.load(Acquire) < sent {
        assert!(begin.elapsed() < PATIENCE, "all packets arrive");
        std::thread::sleep(Duration::from_millis(1));
    }
    let outcome = instance.end();
    assert!(outcome.troubles.is_empty(), "{:?}", outcome.troubles);
    let board = instance.board();
    let report = board.report(&board.nothing(), &board.read(outcome.at));
    let arrived = world.arrived.load(Acquire);
    assert_eq!(locked(&world.receivers).wrong, [] as [String; 0]);
    assert_eq!((report.packets.all_dropped(), report.packets.missing(), report.packets.queued), (0, 0, 0));
    assert_eq!((report.packets.entered, arrived), (sent, sent));
    report
}

/// Returns a number of a sequence that is the same in every run (Marsaglia's xorshift).
fn random(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state as usize
}

#[test]
fn modules_move_under_load_and_nothing_is_lost_overtaken_or_forgotten() {
    let moves: NonZeroUsize = std::env::var("FOREBAY_MOVES")
        .map_or(NonZeroUsize::new(100).expect("above 0"), |text| text.parse().expect("1 or more"));
    move_under_load("moves", "", moves.get());
}

#[test]
fn modules_move_under_weighted_fair_scheduling() {
    move_under_load("weighted", "scheduler: weighted-fair\n", 20);
}

fn move_under_load(world: &str, more: &str, moves: usize) {
    let Some(instance) = begin(world, &format!("workers: [{{}}, {{ modules: [] }}]\n{more}")) else { return };
    wait_for_packets(world, 1_000);
    let rules = instance.tables().into_iter().find(|table| &*table.module == "rules").expect("a table").table;
    assert_eq!(rules.apply(&["add count udp from any to 192.0.2.0/24"]).made, 1);
    let (mut seed, mut pauses, mut moved, mut held) = (1, Vec::new(), 0, false);
    let mut responses = Responses::with_late(10);
    while pauses.len() < moves {
        // Packets pass one worker, then the other worker. In any other placement of a chain, packets would go in a
        // circle. If all modules are on one worker, the other worker is idle.
        let (cut, first) = (random(&mut seed) % (MODULES.len() + 1), random(&mut seed) % 2);
        let (on, both) = ([[first], [1 - first]], random(&mut seed));
        let to = |module: usize| {
            let one = &on[usize::from(module >= cut)][..];
            // Behind the cut, modules without state may be on both workers.
            let is_on_both = module >= cut && STATELESS.contains(&MODULES[module]) && both >> module & 1 == 1;
            if is_on_both { &[0, 1] } else { one }
        };
        let all: Vec<_> = (0..MODULES.len()).map(|module| (MODULES[module], to(module))).collect();
        let result = move_to(&*instance, &all, None).unwrap_or_else(|error| panic!("{error}"));
        if result.moves.is_empty() {
            continue;
        }
        let change = &result.reloaded.change;
        assert_eq!(
            (result.reloaded.missing, result.reloaded.dropped, change.kept),
            (0, 0, MODULES.len()),
            "{result:?}"
        );
        assert!(change.changed.is_empty() && change.forgotten.is_empty(), "{result:?}");
        assert!(change.ports_opened.is_empty() && change.ports_closed.is_empty(), "{result:?}");
        let mut names: Vec<_> = result.moves.iter().map(|moved| moved.module.clone()).collect();
        names.sort();
        assert_eq!(change.moved, names);
        moved += names.len();
        pauses.push(result.reloaded.pause_us);
        let census = responses.census(&*instance);
        assert_eq!((census.missing(), census.dropped), (0, 0), "{census:?}");
        held |= census.held > 0;
        wait_for_packets(world, 100);
    }
    assert!(held, "packets were held while modules moved");
    assert_eq!(rules.len(), 2);
    let rules = instance.tables().into_iter().find(|table| &*table.module == "rules").expect("a table").table;
    assert_eq!(rules.len(), 2, "the added rule is kept");
    let report = end(&*instance, world);
    let mut has_opened = false;
    for module in &report.modules {
        assert!(module.packets == report.packets.entered, "{} has counted on: {}", module.name, module.packets);
        for (table, counters) in &module.counters {
            let opened = counters.get("opened").filter(|opened| **opened > 0);
            assert!(opened.is_none_or(|opened| *opened == SESSIONS as u64), "{} {table}: {counters:?}", module.name);
            has_opened |= module.name == "nat" && opened.is_some();
        }
    }
    assert!(has_opened, "nat counts its sessions");
    pauses.sort_by(f64::total_cmp);
    let _ = writeln!(
        std::io::stderr(),
        "{moves} moves of {moved} modules, {} packets, pause median {:.0} us, most {:.0} us",
        report.packets.out,
        pauses[moves / 2],
        pauses[moves - 1]
    );
}
