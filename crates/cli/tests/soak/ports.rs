//! Ports that number the packets of each session, and check that they leave in order.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use forebay_graph::{DeclarePort, Intake, Port, PortCounters, Ready, Setup, SetupError, Waits, register, share};
use forebay_packet::{ArrivalClock, Batch, Packet, Pool, PoolOptions, wire::checksum};
use forebay_units::Ticks;
use schemars::JsonSchema;
use serde::Deserialize;

/// Concurrent sessions.
const SESSIONS: usize = 512;
/// Packets of a session. After them another session begins with the same index.
const LENGTH: u32 = 5_000;

/// For each session index, the number of packets given by all port objects.
static GIVEN: [AtomicU32; SESSIONS] = [const { AtomicU32::new(0) }; SESSIONS];
static OVERTAKINGS: AtomicU64 = AtomicU64::new(0);
/// For each session index, the last number that has left.
static LEFT: Mutex<Option<HashMap<u32, u32>>> = Mutex::new(None);

/// Returns the number of packets given.
pub fn given() -> u64 {
    GIVEN.iter().map(|given| u64::from(given.load(Ordering::Relaxed))).sum()
}

/// Returns the number of packets that left after a later one of their session, or twice.
pub fn overtakings() -> u64 {
    OVERTAKINGS.load(Ordering::Relaxed)
}

/// The parameters of both ports.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// Has no meaning. Another number makes another port.
    #[allow(dead_code, reason = "only its difference matters")]
    version: u64,
}

/// Returns a frame: an Ethernet, IPv4 and UDP header, then session index and packet number.
fn frame(session: u32, number: u32) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17]);
    frame[26..30].copy_from_slice(&[192, 0, 2, session as u8]);
    frame[30..34].copy_from_slice(&[10, (session % 3) as u8, (session >> 8) as u8, session as u8]);
    // The next session with this index has another source port.
    frame[34..36].copy_from_slice(&(1_024 + (number / LENGTH % 60_000) as u16).to_be_bytes());
    frame[36..38].copy_from_slice(&5_000u16.to_be_bytes());
    frame[38..40].copy_from_slice(&26u16.to_be_bytes());
    frame[42..46].copy_from_slice(&session.to_be_bytes());
    frame[46..50].copy_from_slice(&number.to_be_bytes());
    let sum = !checksum::sum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_ne_bytes());
    frame
}

/// A source of numbered packets of its share of the sessions. It gives some every few microseconds.
struct SoakSource {
    share: (usize, usize),
    next: usize,
    every: Ticks,
    scratch: Pool,
}

impl SoakSource {
    fn is_in_share(&self, session: u32, number: u32) -> bool {
        let mut packet: Packet = self.scratch.take().expect("the chunk is back in the pool");
        assert!(packet.write(&frame(session, number)), "there is room");
        share(packet.session_hash(), self.share.1) == self.share.0
    }
}

impl Port for SoakSource {
    fn receive(&mut self, batch: &mut Batch, intake: &Intake<'_>) -> Ready {
        for _ in 0..intake.most.min(8) {
            let session = self.next;
            self.next = (self.next + 1) % SESSIONS;
            let number = GIVEN[session].load(Ordering::Relaxed);
            if !self.is_in_share(session as u32, number) {
                continue;
            }
            let Some(mut packet) = intake.pool.take() else { break };
            assert!(packet.write(&frame(session as u32, number)), "there is room");
            packet.set_arrival(intake.now, ArrivalClock::Poll);
            if batch.push(packet).is_err() {
                break;
            }
            GIVEN[session].store(number + 1, Ordering::Relaxed);
        }
        Ready::At(intake.now + self.every)
    }

    fn wait_on(&self) -> Waits<'_> {
        Waits::None
    }

    fn send(&mut self, _: &mut Batch, _: Ticks) {}
}

impl DeclarePort for SoakSource {
    type Params = Params;
    const NAME: &'static str = "soak_source";
    const SUMMARY: &'static str = "numbers each session's packets";
    const HELP: &'static str = "";
    const EXAMPLE: &'static str = "{ version: 1 }";
    const QUEUES: bool = true;

    fn receives(_: &Params) -> bool {
        true
    }

    fn sends(_: &Params) -> bool {
        false
    }

    fn new(_: Params, setup: &mut Setup<'_>, _: Arc<PortCounters>) -> Result<Self, SetupError> {
        let scratch = Pool::new(PoolOptions { chunks: 1, ..PoolOptions::default() });
        let scratch = scratch.map_err(|error| SetupError::new(error.to_string()))?;
        let every = setup.frequency().ticks(forebay_units::Nanos(20_000));
        Ok(Self { share: setup.share(), next: 0, every, scratch })
    }
}

/// A sink that checks the order of each session's packets.
struct SoakSink;

impl Port for SoakSink {
    fn receive(&mut self, _: &mut Batch, _: &Intake<'_>) -> Ready {
        Ready::Never
    }

    fn wait_on(&self) -> Waits<'_> {
        Waits::None
    }

    fn send(&mut self, batch: &mut Batch, _: Ticks) {
        let mut last_numbers = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
        let last_numbers = last_numbers.get_or_insert_default();
        for packet in batch.iter() {
            let word = |at: usize| {
                let bytes = packet.data().get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
                u32::from_be_bytes(bytes.expect("a frame of this test"))
            };
            let (session, number) = (word(42), word(46));
            // The first packet of the next session may leave before the last packet of its predecessor.
            if let Some(before) = last_numbers
                .insert(session, number)
                .filter(|before| *before >= number && before / LENGTH == number / LENGTH)
            {
                OVERTAKINGS.fetch_add(1, Ordering::Relaxed);
                last_numbers.insert(session, before);
            }
        }
        batch.clear();
    }
}

impl DeclarePort for SoakSink {
    type Params = Params;
    const NAME: &'static str = "soak_sink";
    const SUMMARY: &'static str = "checks the order of packets";
    const HELP: &'static str = "";
    const EXAMPLE: &'static str = "{ version: 1 }";
    const QUEUES: bool = true;

    fn receives(_: &Params) -> bool {
        false
    }

    fn sends(_: &Params) -> bool {
        true
    }

    fn new(_: Params, _: &mut Setup<'_>, _: Arc<PortCounters>) -> Result<Self, SetupError> {
        Ok(Self)
    }
}

register!(port SoakSource);
register!(port SoakSink);
