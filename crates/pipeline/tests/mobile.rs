//! Tests the gateway of a mobile network on several workers, in simulated time: tunnelled packets are distributed like
//! plain ones, and a user's session has one worker for both directions and keeps its order.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use forebay_graph::{
    Cost, DeclarePort, Intake, Port, PortCounters, Ready, RunToCompletion, Setup, SetupError, Team, Waits, Worker,
    drive::{Ended, shut_down_team, simulate_team},
    links, register,
};
use forebay_measure::Simulated;
use forebay_packet::{ArrivalClock, Batch, Pool, wire::checksum};
use forebay_pipeline::{Conditions, load, usecase};
use forebay_units::{Frequency, Ticks};
use schemars::JsonSchema;
use serde::Deserialize;

/// The number of sessions.
const SESSIONS: u32 = 256;
/// The number of packets of each session in each direction.
const EACH: u32 = 20;
/// The number of users.
const USERS: u32 = 4;
/// The number of bearers of each user.
const BEARERS: u32 = 4;

/// The worker and number of each output packet, by direction and session.
type Log = HashMap<(bool, u32), Vec<(usize, u32)>>;
static LEFT: Mutex<Option<Log>> = Mutex::new(None);

/// The direction of a port's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Way {
    Up,
    Down,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Params {
    way: Way,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

fn ipv4(source: [u8; 4], destination: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u16 + 20).to_be_bytes();
    let mut packet =
        [&[0x45, 0, length[0], length[1], 0, 0, 0x40, 0, 64, 17, 0, 0][..], &source, &destination, payload].concat();
    let sum = !checksum::sum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_ne_bytes());
    packet
}

fn udp(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u16 + 8).to_be_bytes();
    [&source.to_be_bytes()[..], &destination.to_be_bytes(), &length, &[0, 0], payload].concat()
}

/// Returns the packet of a session with this number. Destination ports from 5000 on identify bearers in both
/// directions.
fn frame(way: Way, session: u32, number: u32) -> Vec<u8> {
    let stamp = [session.to_be_bytes(), number.to_be_bytes()].concat();
    let user = session % USERS;
    let (address, outside) = ([10, 60, 0, user as u8], [198, 19, 0, (session / 64) as u8]);
    let (here, there) = (5_000 + (session / USERS % BEARERS) as u16, 5_000 + (session / 16 % BEARERS) as u16);
    let ip = match way {
        Way::Down => ipv4(outside, address, &udp(there, here, &stamp)),
        Way::Up => {
            let inner = ipv4(address, outside, &udp(here, there, &stamp));
            let teid = 0x1000 + user * BEARERS + u32::from(there - 5_000);
            let length = (inner.len() as u16).to_be_bytes();
            let message = [&[0x30, 0xff, length[0], length[1]][..], &teid.to_be_bytes(), &inner].concat();
            // One pair of addresses, and the same port on both sides.
            ipv4([198, 18, 0, 1], [192, 0, 2, 1], &udp(2_152, 2_152, &message))
        }
    };
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0], &ip[..]].concat()
}

/// Sends the numbered packets of each session, session by session. The port is on one worker, which hands over the
/// packets of other workers.
struct Users {
    way: Way,
    given: u32,
}

impl Port for Users {
    fn receive(&mut self, batch: &mut Batch, intake: &Intake<'_>) -> Ready {
        for _ in 0..intake.most.min(7) {
            if self.given == SESSIONS * EACH {
                return Ready::Never;
            }
            let Some(mut packet) = intake.pool.take() else { break };
            assert!(packet.write(&frame(self.way, self.given % SESSIONS, self.given / SESSIONS)), "there is room");
            packet.set_arrival(intake.now, ArrivalClock::Poll);
            batch.push(packet).expect("the batch has room");
            self.given += 1;
        }
        Ready::At(intake.now + Ticks(5_000))
    }

    fn wait_on(&self) -> Waits<'_> {
        Waits::None
    }

    fn send(&mut self, _: &mut Batch, _: Ticks) {}
}

impl DeclarePort for Users {
    type Params = Params;
    const NAME: &'static str = "users";
    const SUMMARY: &'static str = "numbers each session's packets";
    const HELP: &'static str = "";
    const EXAMPLE: &'static str = "{ way: up }";
    const QUEUES: bool = false;

    fn receives(_: &Params) -> bool {
        true
    }

    fn sends(_: &Params) -> bool {
        false
    }

    fn new(params: Params, _: &mut Setup<'_>, _: Arc<PortCounters>) -> Result<Self, SetupError> {
        Ok(Self { way: params.way, given: 0 })
    }
}

/// Records the output packets and their workers.
struct Ledger {
    worker: usize,
}

impl Port for Ledger {
    fn receive(&mut self, _: &mut Batch, _: &Intake<'_>) -> Ready {
        Ready::Never
    }

    fn wait_on(&self) -> Waits<'_> {
        Waits::None
    }

    fn send(&mut self, batch: &mut Batch, _: Ticks) {
        let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
        for packet in batch.iter() {
            let data = packet.data();
            let word =
                |at: usize| u32::from_be_bytes(data[at..at + 4].try_into().expect("both frames end with the stamp"));
            // Packets to users are in a tunnel here.
            let down = data.len() > 60;
            let (session, number) = (word(data.len() - 8), word(data.len() - 4));
            left.get_or_insert_default().entry((down, session)).or_default().push((self.worker, number));
        }
        batch.clear();
    }
}

impl DeclarePort for Ledger {
    type Params = Nothing;
    const NAME: &'static str = "ledger";
    const SUMMARY: &'static str = "writes down what leaves";
    const HELP: &'static str = "";
    const EXAMPLE: &'static str = "{}";
    const QUEUES: bool = true;

    fn receives(_: &Nothing) -> bool {
        false
    }

    fn sends(_: &Nothing) -> bool {
        true
    }

    fn new(_: Nothing, setup: &mut Setup<'_>, _: Arc<PortCounters>) -> Result<Self, SetupError> {
        Ok(Self { worker: setup.share().0 })
    }
}

register!(port Users);
register!(port Ledger);

#[test]
fn sessions_in_tunnels_are_distributed_and_keep_their_worker_and_order() {
    const WORKERS: usize = 3;
    let sets = [
        "m=4",
        "n=4",
        "ports.up={ users: { way: up } }",
        "ports.down={ users: { way: down } }",
        "ports.out={ ledger: {} }",
        "workers=[{}, {}, {}]",
    ];
    let source = usecase("mgw", &sets.map(str::to_owned)).unwrap_or_else(|problems| panic!("{problems}"));
    let conditions = Conditions { frequency: Frequency::new(1e9), simulated: true };
    let loaded = load(&source, conditions).unwrap_or_else(|problems| panic!("{problems}"));
    let team = Arc::new(Team::new(WORKERS));
    let rings = links(&loaded.plans[0], &loaded.plans[0].placement);
    let costs = vec![Cost { per_batch: 200, per_packet: 50 }; loaded.plans[0].modules.len()];
    let mut workers: Vec<Worker<Simulated, RunToCompletion>> = Vec::new();
    for (plan, ring) in loaded.plans.into_iter().zip(rings) {
        let pool = Pool::new(plan.pool).expect("memory");
        let clock = Simulated::new(Frequency::new(1e9));
        workers.push(Worker::member(plan, clock, costs.clone(), pool, ring, Arc::clone(&team)).expect("a plan"));
    }
    assert!(
        simulate_team(&mut workers, Ticks(1_000_000_000)) == Ended::Finished,
        "two directions of some packets each"
    );
    assert_eq!(shut_down_team(&mut workers), []);
    let left = LEFT.lock().unwrap_or_else(PoisonError::into_inner).take().expect("something has left");
    assert_eq!(left.len(), 2 * SESSIONS as usize);
    let mut shares = [[0; WORKERS]; 2];
    for ((down, session), packets) in &left {
        let worker = packets[0].0;
        assert_eq!(left[&(!down, *session)][0].0, worker, "session {session} has one worker for both directions");
        let expected: Vec<_> = (0..EACH).map(|number| (worker, number)).collect();
        assert_eq!(*packets, expected, "session {session}: all, in order, on one worker");
        shares[usize::from(*down)][worker] += 1;
    }
    // Each worker expects a third of 256 sessions. Half of that is six standard deviations below.
    assert!(shares.iter().flatten().all(|sessions| *sessions > SESSIONS as usize / 6), "{shares:?}");
}
