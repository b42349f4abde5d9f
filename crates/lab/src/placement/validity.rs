//! Compares the simulator with real co-runs of two threads that read memory at random, on two of this machine's cores.

use std::time::Duration;

use forebay_bench::disturbance::Witness;
use forebay_contention::{Chain, Domain, Function, Pace, Server, Table, TableMemory, catalogue, solve};
use forebay_corun::machine::{Caches, caches, seats};
use forebay_corun::statistics::student;
use forebay_host::Tree;
use serde::{Deserialize, Serialize};

use super::basis::Basis;
use super::probe::Reader;
use super::{PlacementSettings, step};
use crate::{LabError, Progress};

/// Co-runs on this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Validity {
    /// The reason why there are no co-runs. `None` if there are.
    pub not_run: Option<String>,
    /// The cores.
    pub cores: Vec<usize>,
    /// The sizes of a core's own cache and of the shared cache, in bytes, as the system reports them.
    pub caches: [u64; 2],
    /// The measured size of the shared cache that is usable by one thread, in bytes. Other virtual machines may use the
    /// rest, and lines whose addresses fall on the same sets displace each other before the cache is full.
    #[serde(default)]
    pub usable: u64,
    /// Three latencies, in nanoseconds: a read that hits the core's own cache, the additional time of a hit in the
    /// shared cache, and the further additional time of a miss.
    pub ns: [f64; 3],
    /// The results of each pair of footprints.
    pub rows: Vec<Pair>,
}

/// The result of a thread beside another thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// The footprint of the thread, in bytes.
    pub bytes: u64,
    /// The footprint of the other thread, in bytes.
    pub competitor_bytes: u64,
    /// The mean drop λ (the fraction of its rate that the thread loses beside the other thread), measured. `None` if no
    /// round counts.
    pub measured: Option<f64>,
    /// The ends of the 95 % interval of the measured λ. `None` if fewer than two rounds count.
    pub interval: Option<[f64; 2]>,
    /// The standard deviation of λ between two spans of the thread alone. `None` if fewer than two rounds count.
    pub noise: Option<f64>,
    /// λ, simulated.
    pub simulated: f64,
    /// The number of rounds that count, and the number of void rounds, in which another program ran on a core.
    pub rounds: [usize; 2],
}

impl Pair {
    /// Returns whether the effect is above twice the noise. If not, the pair has no meaning.
    pub(super) fn is_significant(&self) -> bool {
        self.measured.zip(self.noise).is_some_and(|(measured, noise)| measured > 2.0 * noise)
    }

    /// Returns whether the simulated λ lies within the measured interval, or within a fifth of the measured λ.
    pub(super) fn agrees(&self) -> bool {
        let within = self.interval.is_some_and(|[low, high]| (low..=high).contains(&self.simulated));
        within || self.measured.is_some_and(|measured| (self.simulated - measured).abs() <= measured / 5.0)
    }
}

/// The largest share of a span for which another program may have had a core.
const ALLOWED: f64 = 0.01;
/// The time that a thread reads before a span begins, so that caches fill.
const SETTLE: Duration = Duration::from_millis(20);
/// The length of a span.
const SPAN: Duration = Duration::from_millis(40);
/// The assumed memory bandwidth, in bytes per second. The machine does not report it, and two threads do not saturate
/// it.
const BANDWIDTH: f64 = 40e9;

/// Runs pairs of threads.
pub(super) fn measure(
    _: &Basis,
    settings: &PlacementSettings,
    progress: &mut dyn Progress,
) -> Result<Vec<Validity>, LabError> {
    let (rounds, parts): (usize, &[(f64, f64)]) = if settings.short {
        (3, &[(0.5, 1.0)])
    } else {
        (20, &[(0.25, 0.5), (0.25, 1.0), (0.25, 2.0), (0.5, 0.5), (0.5, 1.0), (0.5, 2.0), (0.75, 1.0), (0.75, 2.0)])
    };
    progress.begin(4 + parts.len());
    progress.expect(0.5 + (rounds * parts.len()) as f64 * 0.2);
    let tree = Tree::default();
    let none = |why: String| {
        let (cores, caches, ns) = (Vec::new(), [0; 2], [0.0; 3]);
        Ok(vec![Validity { not_run: Some(why), cores, caches, usable: 0, ns, rows: Vec::new() }])
    };
    let cores = match seats(&tree) {
        Ok(seats) if !seats.siblings => [seats.subject, seats.competitors[0]],
        Ok(_) => return none("two threads of one physical core share more than the last-level cache".to_owned()),
        Err(error) => return none(error.to_string()),
    };
    let sizes = caches(&tree, cores[0]);
    let alone = |bytes: f64, progress: &mut dyn Progress| -> Result<f64, LabError> {
        step(progress, "latencies")?;
        let reader = Reader::start(cores[0], bytes as usize).map_err(LabError::Thread)?;
        reader.set_active(true);
        std::thread::sleep(SETTLE * 5);
        // The rate of the least disturbed span.
        Ok(1e9 / (0..rounds).map(|_| reader.rate(SPAN)).fold(0.0, f64::max))
    };
    let (own, shared) = (sizes.own as f64, sizes.shared as f64);
    let in_own = alone(own / 4.0, progress)?;
    let in_shared = alone(shared / 4.0, progress)?;
    let beyond = alone(shared * 4.0, progress)?;
    let all = alone(shared, progress)?;
    let misses_own = |bytes: f64| (1.0 - own / bytes).max(0.0);
    let shared_ns = ((in_shared - in_own) / misses_own(shared / 4.0)).max(0.0);
    // If a memory is m times the shared cache, of which the share c is usable, a read misses with the probability 1 −
    // c/m. So `over` is M·(1 − c/4) and `at` is M·(1 − c), where M is the additional time of a miss. `usable` is c.
    let [over, at] = [(beyond, shared * 4.0), (all, shared)]
        .map(|(time, bytes)| (time - in_own - shared_ns * misses_own(bytes)).max(0.0));
    let usable = ((over - at) / (over - at / 4.0)).clamp(0.25, 1.0);
    let usable = if usable.is_finite() { usable } else { 1.0 };
    let ns = [in_own, shared_ns, over / (1.0 - usable / 4.0)];
    let sizes = Caches { shared: (shared * usable) as u64, ..sizes };
    let mut rows = Vec::new();
    for (part, competitor) in parts {
        let bytes = [part * shared, competitor * shared];
        step(progress, &format!("{:.0} MB beside {:.0} MB", bytes[0] / 1e6, bytes[1] / 1e6))?;
        let simulated = simulate(sizes, ns, bytes)?;
        rows.push(pair(cores, bytes, simulated, rounds, progress)?);
    }
    let caches = [sizes.own, shared as u64];
    Ok(vec![Validity { not_run: None, cores: cores.to_vec(), caches, usable: sizes.shared, ns, rows }])
}

/// Returns the simulated λ of a thread beside another thread. `ns` are the latencies of [`Validity::ns`]; `bytes` are
/// the footprints of the thread and of its competitor.
fn simulate(sizes: Caches, ns: [f64; 3], bytes: [f64; 2]) -> Result<f64, LabError> {
    let server = Server {
        domains: vec![Domain {
            cores: 2,
            cache_bytes: sizes.shared as f64,
            ways: 16.0,
            io_ways: 0.0,
            memory_bandwidth: BANDWIDTH,
            memory_ns: ns[2],
        }],
        // A tick is a nanosecond.
        clock_hz: 1e9,
        cache_ns: ns[1],
        link_bandwidth: BANDWIDTH,
        link_ns: 0.0,
        burst: 4.0,
        tables: TableMemory::Own,
    };
    let reader = |bytes: f64| Function {
        name: "reader".to_owned(),
        ticks: ns[0].max(0.01),
        instructions: 0.0,
        tables: vec![Table { bytes, accesses: (1.0 - sizes.own as f64 / bytes).max(0.0), writes: 0.0, skew: 0.0 }],
        parallel: 1.0,
        has_packets: false,
        reads_payload: false,
    };
    let functions = bytes.map(reader);
    let chain = |function| Chain { functions: vec![function], domains: vec![0], home: 0 };
    let rate = |chains: &[Chain<'_>]| {
        solve(&server, &catalogue::traffic(), chains, Pace::Own).map(|found| found.seats[0][0].rate)
    };
    let alone = rate(&[chain(&functions[0])])?;
    Ok(1.0 - rate(&[chain(&functions[0]), chain(&functions[1])])? / alone)
}

/// Measures rounds: in each, a thread runs alone, beside the other thread, and alone again. Returns the mean λ with its
/// interval and noise. `simulated` is copied into the result.
fn pair(
    cores: [usize; 2],
    bytes: [f64; 2],
    simulated: f64,
    rounds: usize,
    progress: &mut dyn Progress,
) -> Result<Pair, LabError> {
    let [subject, competitor] = [0, 1].map(|at| Reader::start(cores[at], bytes[at] as usize));
    let (subject, competitor) = (subject.map_err(LabError::Thread)?, competitor.map_err(LabError::Thread)?);
    let threads = [subject.worker(), competitor.worker()];
    // Returns the reads per second in a span, and whether no other program had the cores for too long.
    let span = |is_beside: bool| {
        competitor.set_active(is_beside);
        std::thread::sleep(SETTLE);
        let before = Witness::look(&threads);
        let rate = subject.rate(SPAN);
        // A paused competitor needs no core, so then only the core of the subject counts.
        let seen = Witness::look(&threads).since(&before);
        let counted = seen.iter().filter(|seen| is_beside || seen.worker == threads[0].worker);
        (rate, counted.map(forebay_bench::disturbance::Disturbance::away).fold(0.0, f64::max) <= ALLOWED)
    };
    subject.set_active(true);
    std::thread::sleep(SETTLE * 2);
    let (mut drops, mut noises, mut void) = (Vec::new(), Vec::new(), 0);
    for _ in 0..rounds {
        if progress.is_stopped() {
            return Err(LabError::Interrupted);
        }
        let spans = [span(false), span(true), span(false)];
        if spans.iter().all(|(rate, is_sound)| *is_sound && *rate > 0.0) {
            let alone = f64::midpoint(spans[0].0, spans[2].0);
            drops.push(1.0 - spans[1].0 / alone);
            noises.push(1.0 - spans[2].0 / spans[0].0);
        } else {
            void += 1;
        }
    }
    let count = drops.len();
    let mean = drops.iter().sum::<f64>() / count.max(1) as f64;
    let deviation = |values: &[f64], mean: f64| {
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        (squares / (values.len().max(2) - 1) as f64).sqrt()
    };
    let half = student(count.saturating_sub(1)) * deviation(&drops, mean) / (count.max(1) as f64).sqrt();
    Ok(Pair {
        bytes: bytes[0] as u64,
        competitor_bytes: bytes[1] as u64,
        measured: (count > 0).then_some(mean),
        interval: (count > 1).then_some([mean - half, mean + half]),
        noise: (count > 1).then(|| deviation(&noises, 0.0)),
        simulated,
        rounds: [count, void],
    })
}
