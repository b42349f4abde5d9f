//! Mutated frames through each function alone and through whole gateways: no panic, no leak, every packet accounted
//! for, and sessions work afterwards.
//!
//! `FOREBAY_HOSTILE_FRAMES` is the total number of frames (`make hostile`: 10 million), divided equally among the
//! pipelines. The default is a short run. `FOREBAY_HOSTILE_SEED` is the seed of the random numbers.

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

/// Default number of frames per pipeline.
const SHARE: u64 = 20_000;
/// Number of pipelines besides the functions: use cases, and the pipeline of functions with sessions.
const GATEWAYS: u64 = 5;
/// A time, in nanoseconds, that is longer than any session lasts without packets.
const LONGEST: u64 = 8_000_000_000_000;

/// Returns a number from an environment variable, if it is set.
fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: allowed are numbers")))
}

/// Returns the number of frames per pipeline, and the seed. Prints them once.
fn parameters() -> (u64, u64) {
    static PARAMETERS: OnceLock<(u64, u64)> = OnceLock::new();
    *PARAMETERS.get_or_init(|| {
        let shares = functions().len() as u64 + GATEWAYS;
        let share = from_environment("FOREBAY_HOSTILE_FRAMES").map_or(SHARE, |all| all.div_ceil(shares));
        let seed = from_environment("FOREBAY_HOSTILE_SEED").unwrap_or(1);
        // Not with `println`, whose output the test harness hides.
        let _ = writeln!(
            std::io::stderr(),
            "hostile: {share} frames to each of {shares} pipelines, FOREBAY_HOSTILE_SEED={seed}"
        );
        (share, seed)
    })
}

/// Returns frames that the pipeline's own sources send. Mutants of these get further into the pipeline.
fn own_frames(plan: &mut Plan) -> Vec<Vec<u8>> {
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

/// Returns frames made by hand, the fuzz target's corpus, and the outputs of each function for both: frames in tunnels,
/// encrypted frames, ICMP errors, ARP requests.
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
        let mut outputs = BTreeSet::new();
        for function in functions() {
            let mut run = Run::new(function.name, &of(function.name, folder.path()));
            let whole: Vec<_> = all.iter().filter(|frame| frame.len() <= 2_048).cloned().collect();
            let frames: Vec<_> = run.own_frames.iter().cloned().chain(whole).collect();
            lock(&run.shared).queued[0].extend(frames);
            lock(&run.shared).watched = Some(Vec::new());
            run.until(1_000_000_000);
            let sent = lock(&run.shared).watched.take().expect("it was set");
            // Keeps up to 64 outputs per function, of different lengths and beginnings.
            let mut kinds = BTreeSet::new();
            outputs.extend(sent.into_iter().filter(|frame| {
                let kind = (frame.len(), frame.get(12..40).map(<[u8]>::to_vec));
                kinds.len() < 64 && kinds.insert(kind)
            }));
        }
        all.extend(outputs);
        all.retain(|frame| !frame.is_empty() && frame.len() <= 2_048);
        Arc::new(all)
    }))
}

/// Returns a function's example between a source and a sink. Files that it names are in `folder`.
fn of(name: &str, folder: &std::path::Path) -> Source {
    let text = sample(name, &[]).unwrap_or_else(|problems| panic!("{problems}"));
    Source::new(text.text(), text.file(), folder)
}

/// A pipeline with the ports of this test, in simulated time.
struct Run {
    name: String,
    worker: Worker<Simulated, RunToCompletion>,
    shared: Shared,
    /// Frames that the pipeline's own sources would have sent.
    own_frames: Vec<Vec<u8>>,
    /// Counters of session tables: heading, values and names.
    sessions: Vec<(String, Arc<[Counter]>, Vec<String>)>,
    now: u64,
}

impl Run {
    /// Creates a run without mutants. It sends queued frames.
    fn new(name: &str, source: &Source) -> Self {
        Self::with(name, source, &[], 0, 0)
    }

    /// Creates a run that begins with `count` mutants of `seeds` and of its sources' frames, divided among its sources.
    fn with(name: &str, source: &Source, seeds: &[Vec<u8>], count: u64, seed: u64) -> Self {
        let frequency = Frequency::new(1e9);
        let loaded = load(source, Conditions { frequency, simulated: true });
        let mut plan = loaded.unwrap_or_else(|problems| panic!("{problems}")).plans.remove(0);
        let shared = Shared::default();
        let own_frames = own_frames(&mut plan);
        // Half of the mutants are made from frames of the pipeline's own sources.
        let mut frames: Vec<_> = seeds.to_vec();
        let count_of_seeds = frames.len();
        frames.extend(own_frames.iter().cycle().take(count_of_seeds).cloned());
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
        Self { name: name.to_owned(), worker, shared, own_frames, sessions, now: 0 }
    }

    /// Runs for `nanos` nanoseconds. Returns true if the run has ended.
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

    /// Checks that every packet is accounted for by the worker and by the test's ports, and every session by its table.
    fn check(&mut self) {
        let census = self.worker.census();
        let (name, now) = (&self.name, self.now);
        assert_eq!(census.missing(), 0, "{name} at {now}: {census:?}");
        let (taken, sent) = {
            let exchange = lock(&self.shared);
            (exchange.given, exchange.left)
        };
        assert_eq!((census.entered, census.out), (taken, sent), "{name} at {now}: {census:?}");
        for (heading, counters, names) in &self.sessions {
            let count = |name: &str| {
                let at =
                    names.iter().position(|counter| counter == name).unwrap_or_else(|| panic!("{heading}: {name}"));
                counters[at].get()
            };
            let (open, opened, ended, evicted) = (count("open"), count("opened"), count("ended"), count("evicted"));
            assert_eq!(opened, open + ended + evicted, "{name}, {heading}, at {now}: sessions unaccounted for");
        }
    }

    /// Runs until all mutants have entered.
    fn all_mutants(&mut self, count: u64) {
        // On average 80 ms pass per batch. If a feed stops giving packets, this is a defect.
        for _ in 0..1_000_000 {
            if lock(&self.shared).given >= count {
                return;
            }
            self.until(1_000_000_000);
        }
        panic!("{}: {} of {count} frames were taken", self.name, lock(&self.shared).given);
    }

    /// Ends the run. Checks that all sessions have ended, nothing is queued or held, and every chunk is back in the
    /// pool.
    fn end(mut self) -> forebay_protocol::Census {
        lock(&self.shared).over = Some(Ticks(self.now + LONGEST - 1_000_000_000));
        let finished = self.until(LONGEST);
        if !finished {
            self.check();
        }
        for (heading, counters, names) in &self.sessions {
            let open = names.iter().position(|name| name == "open").expect("a table of sessions has it");
            assert_eq!(counters[open].get(), 0, "{}, {heading}: sessions that never end", self.name);
        }
        let worker = &mut self.worker;
        worker.shut_down().unwrap_or_else(|troubles| panic!("{}: {troubles:?}", self.name));
        self.check();
        let census = self.worker.census();
        assert_eq!((census.queued, census.held, census.in_flight), (0, 0, 0), "{}: {census:?}", self.name);
        assert_eq!(self.worker.telemetry().worker.exhausted.get(), 0, "{}: packets leak", self.name);
        census
    }
}

/// After a panic, prints the frames that were sent last.
impl Drop for Run {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = writeln!(
                std::io::stderr(),
                "hostile: {} broke with FOREBAY_HOSTILE_SEED={}",
                self.name,
                parameters().1
            );
            for frame in &lock(&self.shared).last {
                let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
                let _ = writeln!(std::io::stderr(), "  {hex}");
            }
        }
    }
}

#[test]
fn every_function_survives_mutated_frames() {
    let (share, seed) = parameters();
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let (mut given, mut left) = (0, 0);
    for (number, function) in functions().iter().enumerate() {
        let source = of(function.name, folder.path());
        let mut run = Run::with(function.name, &source, &seeds(), share, seed.wrapping_add(number as u64));
        run.all_mutants(share);
        let census = run.end();
        assert_eq!(census.entered, share, "{}: {census:?}", function.name);
        (given, left) = (given + census.entered, left + census.out);
    }
    let _ = writeln!(
        std::io::stderr(),
        "hostile: {given} mutants of {} frames through {} functions, {left} left",
        seeds().len(),
        functions().len()
    );
    assert!(left > given / 5, "valid frames are forwarded: {left} of {given}");
}

fn survive(name: &str, sets: &[&str], number: u64) {
    let (share, seed) = parameters();
    let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
    let source = usecase(name, &sets).expect("a use case");
    let mut run = Run::with(name, &source, &seeds(), share, seed.wrapping_add(1_000 * number));
    run.all_mutants(share);
    let census = run.end();
    assert_eq!(census.entered, share, "{name}: {census:?}");
    assert!(census.dropped > share / 10, "hostile frames are dropped with a reason: {census:?}");
    assert!(census.out > 0, "valid frames are forwarded: {census:?}");
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
