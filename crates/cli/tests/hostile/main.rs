//! Mutated frames through every function by itself and through whole gateways: nothing breaks, nothing leaks, nothing is
//! unaccounted for, and sessions work afterwards.
//!
//! `FOREBAY_HOSTILE_FRAMES` says how many in all (`make hostile`: 10 million), each pipeline having an equal share; by default it
//! is a short form. `FOREBAY_HOSTILE_SEED` is where chance starts from.

mod frames;
mod ports;
mod stateful;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::{Arc, OnceLock};

use forebay_graph::{OpenPort, OwnCounters, Plan, PortCounters, RunToCompletion, Worker, drive, functions};
use forebay_measure::{Counter, Simulated};
use forebay_packet::{Batch, Pool, PoolOptions};
use forebay_pipeline::{Conditions, Source, load, sample, usecase};
use forebay_units::{Frequency, Ticks};

use ports::{Exit, Feed, Shared, lock};

/// What each pipeline gets where nothing else is said.
const SHARE: u64 = 20_000;
/// Use cases that get a share, and the pipeline of functions with sessions.
const GATEWAYS: u64 = 5;
/// Longer than any session lasts without packets.
const LONGEST: u64 = 8_000_000_000_000;

/// A number that the environment may set.
fn told(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: allowed are numbers")))
}

/// How many frames each pipeline gets, and where chance starts from; said once.
fn terms() -> (u64, u64) {
    static TERMS: OnceLock<(u64, u64)> = OnceLock::new();
    *TERMS.get_or_init(|| {
        let shares = functions().len() as u64 + GATEWAYS;
        let share = told("FOREBAY_HOSTILE_FRAMES").map_or(SHARE, |all| all.div_ceil(shares));
        let seed = told("FOREBAY_HOSTILE_SEED").unwrap_or(1);
        // Not `println`, which the test harness keeps to itself.
        let _ = writeln!(
            std::io::stderr(),
            "hostile: {share} frames to each of {shares} pipelines, FOREBAY_HOSTILE_SEED={seed}"
        );
        (share, seed)
    })
}

/// Frames that a source sends by itself: changing one of these gets further into its pipeline.
fn sound(plan: &mut Plan) -> Vec<Vec<u8>> {
    let pool = Pool::new(PoolOptions { chunks: 64, ..PoolOptions::default() }).expect("memory");
    let mut batch = Batch::with_capacity(32);
    let mut all = Vec::new();
    for port in plan.ports.iter_mut().filter(|port| port.entry.is_some()) {
        let source = &mut port.open.as_mut().expect("it is this worker's").port;
        for now in [0, 1_000_000_000] {
            source.receive(&mut batch, &forebay_graph::Intake { now: Ticks(now), pool: &pool, most: 32 });
            all.extend(batch.iter().map(|packet| packet.data().to_vec()));
            batch.clear();
        }
    }
    all
}

/// Frames made by hand, those that were worth keeping for the fuzz target, and what every function makes of both: frames in tunnels,
/// encrypted ones, errors, requests of neighbours.
fn seeds() -> Arc<Vec<Vec<u8>>> {
    static SEEDS: OnceLock<Arc<Vec<Vec<u8>>>> = OnceLock::new();
    Arc::clone(SEEDS.get_or_init(|| {
        let mut all = frames::all();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/frames");
        let mut files: Vec<_> =
            std::fs::read_dir(folder).expect("the corpus").map(|file| file.expect("a file").path()).collect();
        files.sort();
        all.extend(files.iter().map(|file| std::fs::read(file).expect("a file")[1..].to_vec()));
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let mut made = BTreeSet::new();
        for function in functions() {
            let mut run = Run::new(function.name, &of(function.name, folder.path()));
            let whole: Vec<_> = all.iter().filter(|frame| frame.len() <= 2_048).cloned().collect();
            let frames: Vec<_> = run.sound.iter().cloned().chain(whole).collect();
            lock(&run.shared).queued[0].extend(frames);
            lock(&run.shared).watched = Some(Vec::new());
            run.until(1_000_000_000);
            let left = lock(&run.shared).watched.take().expect("it was set");
            // Some of each, of different lengths and beginnings.
            let mut kinds = BTreeSet::new();
            made.extend(left.into_iter().filter(|frame| {
                let kind = (frame.len(), frame.get(12..40).map(<[u8]>::to_vec));
                kinds.len() < 64 && kinds.insert(kind)
            }));
        }
        all.extend(made);
        all.retain(|frame| !frame.is_empty() && frame.len() <= 2_048);
        Arc::new(all)
    }))
}

/// A function's own example between a source and a sink; files that it names are in a folder of this run's.
fn of(name: &str, folder: &std::path::Path) -> Source {
    let text = sample(name, &[]).unwrap_or_else(|problems| panic!("{problems}"));
    Source::new(text.text(), text.file(), folder)
}

/// A pipeline whose ports are this test's, in simulated time.
struct Run {
    name: String,
    worker: Worker<Simulated, RunToCompletion>,
    shared: Shared,
    /// What the sources would have sent.
    sound: Vec<Vec<u8>>,
    /// Those of tables of sessions: what they are called, and where they are.
    sessions: Vec<(String, Arc<[Counter]>, Vec<String>)>,
    now: u64,
}

impl Run {
    /// One without mutants, which sends what is queued.
    fn new(name: &str, source: &Source) -> Self {
        Self::with(name, source, &[], 0, 0)
    }

    /// One that begins with so many mutants of `seeds` and of what its sources send, shared out over these.
    fn with(name: &str, source: &Source, seeds: &[Vec<u8>], count: u64, seed: u64) -> Self {
        let frequency = Frequency::new(1e9);
        let loaded = load(source, Conditions { frequency, simulated: true });
        let mut plan = loaded.unwrap_or_else(|problems| panic!("{problems}")).plans.remove(0);
        let shared = Shared::default();
        let sound = sound(&mut plan);
        // Half of the mutants are of frames that are meant for it.
        let mut frames: Vec<_> = seeds.to_vec();
        let wanted = frames.len();
        frames.extend(sound.iter().cycle().take(wanted).cloned());
        let frames = Arc::new(frames);
        let entering = plan.ports.iter().filter(|port| port.entry.is_some()).count() as u64;
        let mut number = 0;
        for port in &mut plan.ports {
            let sends = port.open.as_ref().is_some_and(|open| open.sends);
            let open: Box<dyn forebay_graph::Port> = if port.entry.is_some() {
                number += 1;
                let share = count / entering + u64::from(number <= count % entering);
                Box::new(Feed::new(Arc::clone(&frames), share, seed.wrapping_mul(1_000).wrapping_add(number), &shared))
            } else {
                Box::new(Exit(Arc::clone(&shared)))
            };
            let receives = port.entry.is_some();
            port.open = Some(OpenPort { port: open, counters: Arc::new(PortCounters::default()), receives, sends });
        }
        let counters = plan.modules.iter().flat_map(|module| {
            module.counters.iter().map(|OwnCounters { heading, counters, names, .. }| {
                (format!("{}: {heading}", module.name), Arc::clone(counters), names.clone())
            })
        });
        let sessions = counters.filter(|(_, _, names)| names.iter().any(|name| name == "opened")).collect();
        let worker = Worker::new(plan, Simulated::new(frequency), vec![]).expect("a sound plan");
        Self { name: name.to_owned(), worker, shared, sound, sessions, now: 0 }
    }

    /// Goes on for so many nanoseconds; whether it has ended.
    fn until(&mut self, nanos: u64) -> bool {
        const STEP: u64 = 20_000_000;
        let end = self.now + nanos;
        while self.now < end {
            self.now = (self.now + STEP).min(end);
            if drive::simulate(&mut self.worker, Ticks(self.now)) == drive::Ended::Finished {
                return true;
            }
            self.check();
        }
        false
    }

    /// Where every packet is by the engine's account and by that of this test's ports, and every session by the tables'.
    fn check(&mut self) {
        let census = self.worker.census();
        let (name, now) = (&self.name, self.now);
        assert_eq!(census.missing(), 0, "{name} at {now}: {census:?}");
        let (given, left) = {
            let exchange = lock(&self.shared);
            (exchange.given, exchange.left)
        };
        assert_eq!((census.entered, census.left), (given, left), "{name} at {now}: {census:?}");
        for (heading, counters, names) in &self.sessions {
            let of = |name: &str| {
                let at = names.iter().position(|known| known == name).unwrap_or_else(|| panic!("{heading}: {name}"));
                counters[at].get()
            };
            let (open, opened, ended, evicted) = (of("open"), of("opened"), of("ended"), of("evicted"));
            assert_eq!(opened, open + ended + evicted, "{name}, {heading}, at {now}: sessions unaccounted for");
        }
    }

    /// Until all mutants have been given.
    fn all_mutants(&mut self, count: u64) {
        // Time passes by 80 ms a batch on average; a feed that gave nothing any more would be a defect.
        for _ in 0..1_000_000 {
            if lock(&self.shared).given >= count {
                return;
            }
            self.until(1_000_000_000);
        }
        panic!("{}: {} of {count} frames were taken", self.name, lock(&self.shared).given);
    }

    /// Ends it: sessions have ended by then, nothing is queued or held, and every chunk is back in the pool.
    fn end(mut self) -> forebay_protocol::Census {
        lock(&self.shared).over = Some(Ticks(self.now + LONGEST - 1_000_000_000));
        let finished = self.until(LONGEST);
        if !finished {
            self.check();
        }
        for (heading, counters, names) in &self.sessions {
            let open = names.iter().position(|name| name == "open").expect("it was there above");
            assert_eq!(counters[open].get(), 0, "{}, {heading}: sessions that never end", self.name);
        }
        let worker = &mut self.worker;
        worker.wind_up().unwrap_or_else(|troubles| panic!("{}: {troubles:?}", self.name));
        self.check();
        let census = self.worker.census();
        assert_eq!((census.queued, census.held, census.in_flight), (0, 0, 0), "{}: {census:?}", self.name);
        assert_eq!(self.worker.telemetry().worker.exhausted.get(), 0, "{}: packets leak", self.name);
        census
    }
}

/// Where something breaks: what was being sent.
impl Drop for Run {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "hostile: {} broke with FOREBAY_HOSTILE_SEED={}", self.name, terms().1);
            for frame in &lock(&self.shared).last {
                let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
                let _ = writeln!(std::io::stderr(), "  {hex}");
            }
        }
    }
}

#[test]
fn every_function_survives_mutated_frames() {
    let (share, seed) = terms();
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let (mut given, mut left) = (0, 0);
    for (number, function) in functions().iter().enumerate() {
        let source = of(function.name, folder.path());
        let mut run = Run::with(function.name, &source, &seeds(), share, seed.wrapping_add(number as u64));
        run.all_mutants(share);
        let census = run.end();
        assert_eq!(census.entered, share, "{}: {census:?}", function.name);
        (given, left) = (given + census.entered, left + census.left);
    }
    let _ = writeln!(
        std::io::stderr(),
        "hostile: {given} mutants of {} frames through {} functions, {left} left",
        seeds().len(),
        functions().len()
    );
    assert!(left > given / 5, "what is sound goes through: {left} of {given}");
}

fn survive(name: &str, sets: &[&str], number: u64) {
    let (share, seed) = terms();
    let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
    let source = usecase(name, &sets).expect("a use case");
    let mut run = Run::with(name, &source, &seeds(), share, seed.wrapping_add(1_000 * number));
    run.all_mutants(share);
    let census = run.end();
    assert_eq!(census.entered, share, "{name}: {census:?}");
    assert!(census.dropped > share / 10, "hostile frames are dropped for their reasons: {census:?}");
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
