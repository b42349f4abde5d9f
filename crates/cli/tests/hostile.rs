//! Mutated frames through whole gateways: nothing breaks, nothing leaks, nothing is unaccounted for.
//!
//! `FOREBAY_HOSTILE_FRAMES` says how many (`make hostile`: 10 million); by default a short form.

use std::sync::Arc;

use forebay_graph::{Intake, OpenPort, Port, PortCounters, Ready, RunToCompletion, Worker, drive};
use forebay_measure::{Frequency, Simulated};
use forebay_packet::{ArrivalClock, Batch, Pool, PoolOptions, Ticks};
use forebay_pipeline::{Conditions, load, usecase};

/// Sends frames of the fuzzing corpus, each changed in a few random places.
struct Mutator {
    frames: Vec<Vec<u8>>,
    left: u64,
    state: u64,
}

impl Mutator {
    fn new(mut frames: Vec<Vec<u8>>, count: u64, seed: u64) -> Self {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/frames");
        let mut files: Vec<_> =
            std::fs::read_dir(folder).expect("the corpus").map(|file| file.expect("a file").path()).collect();
        files.sort();
        frames.extend(files.iter().map(|file| std::fs::read(file).expect("a file")[1..].to_vec()));
        Self { frames, left: count, state: seed }
    }

    /// SplitMix64 (Steele, Lea, Flood 2014).
    fn random(&mut self, below: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.state;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) % below.max(1) as u64) as usize
    }
}

impl Port for Mutator {
    fn receive(&mut self, batch: &mut Batch, intake: &Intake<'_>) -> Ready {
        let wanted = intake.most.min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let got = intake.pool.fill_arrived(batch, wanted, 0, intake.now, ArrivalClock::Poll);
        for packet in batch.iter_mut() {
            let which = self.random(self.frames.len());
            let mut frame = self.frames[which].clone();
            for _ in 0..self.random(5) {
                let (at, value) = (self.random(frame.len().min(60)), self.random(256));
                frame[at] = value as u8;
            }
            if self.random(4) == 0 {
                frame.truncate(self.random(frame.len() + 1));
            }
            if self.random(16) == 0 {
                frame.resize(self.random(2_048), 0xa5);
            }
            assert!(packet.write(&frame), "chunks hold 2048 bytes");
        }
        self.left -= got as u64;
        if self.left == 0 { Ready::Never } else { Ready::Now }
    }

    fn send(&mut self, _: &mut Batch, _: Ticks) {}
}

/// Frames that the use case's own source sends: changing one of these gets further into the pipeline.
fn sound(source: &mut dyn Port) -> Vec<Vec<u8>> {
    let pool = Pool::new(PoolOptions { chunks: 64, ..PoolOptions::default() }).expect("memory");
    let mut batch = Batch::with_capacity(32);
    source.receive(&mut batch, &Intake { now: Ticks::ZERO, pool: &pool, most: 32 });
    batch.clear();
    source.receive(&mut batch, &Intake { now: Ticks(1_000_000_000), pool: &pool, most: 32 });
    batch.iter().map(|packet| packet.data().to_vec()).collect()
}

fn survive(name: &str, sets: &[&str], seed: u64) {
    let frames = std::env::var("FOREBAY_HOSTILE_FRAMES").ok().and_then(|count| count.parse().ok()).unwrap_or(60_000);
    let frequency = Frequency::new(1e9);
    let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
    let source = usecase(name, &sets).expect("a use case");
    let mut plan = load(&source, Conditions { frequency, simulated: true }).expect("it loads").plans.remove(0);
    let entering = plan.ports.iter().filter(|port| port.entry.is_some()).count() as u64;
    let mut offered = 0;
    for port in plan.ports.iter_mut().filter(|port| port.entry.is_some()) {
        offered += frames / entering;
        let mutator = Box::new(Mutator::new(
            sound(port.open.as_mut().expect("it is this worker's").port.as_mut()),
            frames / entering,
            seed + offered,
        ));
        port.open =
            Some(OpenPort { port: mutator, counters: Arc::new(PortCounters::default()), receives: true, sends: false });
    }
    let mut worker: Worker<_, RunToCompletion> =
        Worker::new(plan, Simulated::new(frequency), vec![]).expect("a sound plan");
    let mut until = 0;
    loop {
        until += 1_000_000;
        let ended = drive::simulate(&mut worker, Ticks(until));
        let census = worker.census();
        assert_eq!(census.missing(), 0, "{name} at {until}: {census:?}");
        if ended == drive::Ended::Finished {
            break;
        }
    }
    worker.wind_up().expect("no port has troubles");
    let census = worker.census();
    assert_eq!((census.entered, census.missing(), census.queued, census.held), (offered, 0, 0, 0), "{census:?}");
    assert!(census.dropped > offered / 10, "hostile frames are dropped for their reasons: {census:?}");
    assert!(census.left > 0, "and what is sound goes through: {census:?}");
}

#[test]
fn a_gateway_survives_mutated_frames() {
    survive("gw", &["n=16", "trigger=8"], 1);
}

#[test]
fn a_virtual_router_survives_mutated_frames() {
    survive("vrf", &["m=4", "n=4", "trigger=8"], 2);
}

#[test]
fn a_mobile_gateway_survives_mutated_frames() {
    survive("mgw", &["m=4", "n=4", "trigger=8"], 3);
    survive("mgw", &["m=2", "n=2", "tunnel=vxlan"], 4);
}
