//! The ports of the tested pipelines: one sends mutants, the other counts the outgoing frames and keeps some of them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_graph::{Intake, Port, Ready, Waits};
use forebay_packet::{ArrivalClock, Batch};
use forebay_units::{Random, Ticks};

use crate::frames::{checksum, reversed};

/// State shared by a test and its ports.
#[derive(Default)]
pub struct Exchange {
    /// Packets that all feeds have given so far.
    pub given: u64,
    /// Packets that have left so far.
    pub left: u64,
    /// A ring of some of the outgoing frames.
    pub kept: Vec<Vec<u8>>,
    /// For each feed, frames to give unchanged after the mutants.
    pub queued: Vec<VecDeque<Vec<u8>>>,
    /// All outgoing frames since this was set.
    pub watched: Option<Vec<Vec<u8>>>,
    /// If set, no more frames will be queued. The feeds keep the run alive until this time, so that sessions end by
    /// their time-outs. A run does not wait for time-outs.
    pub over: Option<Ticks>,
    /// The frames that were given last, for the message after a panic.
    pub last: Vec<Vec<u8>>,
}

/// Capacity of the ring of outgoing frames.
const KEPT: usize = 512;

/// The state shared by the ports of one pipeline.
pub type Shared = Arc<Mutex<Exchange>>;

pub fn lock(shared: &Shared) -> MutexGuard<'_, Exchange> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A port that gives mutants of frames, and then the queued frames.
pub struct Feed {
    frames: Arc<Vec<Vec<u8>>>,
    remaining: u64,
    random: Random,
    /// The index of this feed.
    number: usize,
    shared: Shared,
}

impl Feed {
    pub fn new(frames: Arc<Vec<Vec<u8>>>, count: u64, seed: u64, shared: &Shared) -> Self {
        let mut exchange = lock(shared);
        let number = exchange.queued.len();
        exchange.queued.push(VecDeque::new());
        drop(exchange);
        Self { frames, remaining: count, random: Random::new(seed), number, shared: Arc::clone(shared) }
    }

    /// Returns a random number below `below`.
    fn random(&mut self, below: usize) -> usize {
        (self.random.bits() % below.max(1) as u64) as usize
    }

    /// Returns a frame, or a reply to an outgoing frame, with up to a few random changes.
    fn mutant(&mut self, kept: &[Vec<u8>]) -> Vec<u8> {
        let mut frame = if !kept.is_empty() && self.random(4) == 0 {
            let which = self.random(kept.len());
            if self.random(4) == 0 { kept[which].clone() } else { reversed(&kept[which]) }
        } else {
            let which = self.random(self.frames.len());
            self.frames[which].clone()
        };
        for _ in 0..self.random(5) {
            // Mostly changes header bytes.
            let most = if self.random(4) == 0 { frame.len() } else { frame.len().min(74) };
            let (at, value) = (self.random(most), self.random(256));
            if let Some(byte) = frame.get_mut(at) {
                *byte = value as u8;
            }
        }
        match self.random(16) {
            0..=2 => {
                let length = self.random(frame.len() + 1);
                frame.truncate(length);
            }
            3 => {
                let length = self.random(2_048);
                frame.resize(length, 0xa5);
            }
            // The headers of one frame with the payload of another.
            4 => {
                let other = self.random(self.frames.len());
                let at = self.random(frame.len().min(80));
                let rest = self.frames[other].get(at..).unwrap_or_default().to_vec();
                frame.truncate(at);
                frame.extend(rest);
            }
            _ => {}
        }
        // With a correct checksum, a wrong header gets further into the pipeline.
        if self.random(2) == 0 {
            repair(&mut frame);
        }
        frame
    }
}

/// Corrects the checksum of an IPv4 header, if there is one.
fn repair(frame: &mut [u8]) {
    if frame.get(12..14) != Some(&[8, 0]) {
        return;
    }
    let length = usize::from(frame.get(14).copied().unwrap_or(0) & 15) * 4;
    if length < 20 || frame.len() < 14 + length {
        return;
    }
    frame[24..26].fill(0);
    let sum = checksum(&[&frame[14..14 + length]]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

impl Port for Feed {
    fn receive(&mut self, batch: &mut Batch, intake: &Intake<'_>) -> Ready {
        let shared = Arc::clone(&self.shared);
        let mut exchange = lock(&shared);
        if self.remaining == 0 {
            while let Some(frame) = exchange.queued[self.number].front() {
                let Some(mut packet) = (batch.len() < intake.most).then(|| intake.pool.take()).flatten() else {
                    return Ready::Now;
                };
                assert!(packet.write(frame), "a frame of {} bytes", frame.len());
                packet.set_arrival(intake.now, ArrivalClock::Poll);
                batch.push(packet).expect("the batch has room");
                exchange.queued[self.number].pop_front();
                exchange.given += 1;
            }
            return match exchange.over {
                Some(end) if intake.now >= end => Ready::Never,
                Some(end) => Ready::At(end),
                None => Ready::At(Ticks(intake.now.0 + 1_000_000)),
            };
        }
        let wanted = intake.most.min(usize::try_from(self.remaining).unwrap_or(usize::MAX));
        let got = intake.pool.fill_arrived(batch, wanted, 0, intake.now, ArrivalClock::Poll);
        exchange.last.clear();
        for packet in batch.iter_mut() {
            let mut frame = self.mutant(&exchange.kept);
            // A frame put into a tunnel has grown.
            frame.truncate(2_048);
            assert!(packet.write(&frame), "chunks hold 2048 bytes");
            exchange.last.push(frame);
        }
        self.remaining -= got as u64;
        exchange.given += got as u64;
        // Mostly gives the next batch at once. Sometimes time passes, so that time-outs expire.
        match self.random(256) {
            0 => Ready::At(Ticks(intake.now.0 + 20_000_000_000)),
            1..=16 => Ready::At(Ticks(intake.now.0 + 20_000_000)),
            _ => Ready::Now,
        }
    }

    fn wait_on(&self) -> Waits<'_> {
        Waits::None
    }

    fn send(&mut self, _: &mut Batch, _: Ticks) {}
}

/// A port that counts outgoing frames.
pub struct Exit(pub Shared);

impl Port for Exit {
    fn receive(&mut self, _: &mut Batch, _: &Intake<'_>) -> Ready {
        Ready::Never
    }

    fn wait_on(&self) -> Waits<'_> {
        Waits::None
    }

    fn send(&mut self, batch: &mut Batch, _: Ticks) {
        let mut exchange = lock(&self.0);
        for packet in batch.iter() {
            let at = exchange.left as usize;
            exchange.left += 1;
            if let Some(watched) = &mut exchange.watched {
                watched.push(packet.data().to_vec());
            }
            // Every 13th frame, so that the ring has all types of frames independently of their order.
            if exchange.kept.len() < KEPT {
                exchange.kept.push(packet.data().to_vec());
            } else if at.is_multiple_of(13) {
                exchange.kept[at / 13 % KEPT] = packet.data().to_vec();
            }
        }
        batch.clear();
    }
}
