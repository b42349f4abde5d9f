//! Measures two cores: the hand-over between them, and pipelines on two workers compared with one.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_bench::handover::{hand_over, round_trip};
use forebay_instance::start;
use forebay_measure::machine::pin_to;
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::{Conditions, Loaded, Source, load};
use forebay_units::wording::counted;
use serde::Serialize;

use crate::measurement::{Figure, Spread};

/// Duration of a run of a pipeline or a computation.
const SPAN: Duration = Duration::from_millis(400);

/// Results of two cores, run by run.
#[derive(Default)]
pub struct Cores {
    /// Ticks per item handed from one core to the other, in messages of 32.
    handover: Vec<f64>,
    /// Ticks of a cache line from one core to the other and back, measured with each hand-over. On a virtual machine it
    /// shows where the host has placed the two cores, which can change every second.
    round_trip: Vec<f64>,
    /// For each pipeline, ticks per packet on one worker and on two.
    workers: BTreeMap<&'static str, [Vec<f64>; 2]>,
    /// Speed of two computing threads divided by the speed of one.
    arithmetic: Vec<f64>,
}

impl Cores {
    /// Makes one run of everything on these two cores.
    pub fn run(&mut self, cores: [usize; 2], pipelines: &[(&'static str, Source)]) -> Result<(), String> {
        let message = |error: std::io::Error| error.to_string();
        let before = round_trip(cores).map_err(message)?;
        let handover = hand_over(cores).map_err(message)?;
        let after = round_trip(cores).map_err(message)?;
        self.handover.push(handover);
        self.round_trip.push(f64::midpoint(before, after));
        for (name, pipeline) in pipelines {
            // One and two workers take turns, so that a disturbance affects both.
            let ticks = [forward(&cores[..1], pipeline)?, forward(&cores, pipeline)?];
            let series = self.workers.entry(name).or_default();
            series.iter_mut().zip(ticks).for_each(|(series, ticks)| series.push(ticks));
        }
        self.arithmetic.push(compute(&cores) / compute(&cores[..1]));
        Ok(())
    }

    /// Returns the results.
    pub fn figures(&self) -> Vec<Figure> {
        let both = self.workers.iter().flat_map(|(name, [one, two])| {
            [
                Figure::of(&format!("{name}_workers_1"), one.clone()),
                Figure::of(&format!("{name}_workers_2"), two.clone()),
            ]
        });
        [Figure::of("handover", self.handover.clone())].into_iter().chain(both).collect()
    }

    /// Returns the results relative to the machine's own values in the same runs.
    pub fn compared(&self) -> Compared {
        let gain = |[one, two]: &[Vec<f64>; 2]| {
            let gains = one.iter().zip(two).zip(&self.arithmetic);
            Spread::of(gains.map(|((one, two), arithmetic)| one / two / arithmetic))
        };
        let parts = self.handover.iter().zip(&self.round_trip);
        Compared {
            scaling: self.workers.iter().map(|(name, series)| (*name, gain(series))).collect(),
            arithmetic: Spread::of(self.arithmetic.iter().copied()),
            round_trip: Spread::of(self.round_trip.iter().copied()),
            handover_in_round_trips: Spread::of(parts.map(|(handover, round_trip)| handover / round_trip)),
        }
    }
}

/// Results of two cores relative to the machine's own values.
#[derive(Serialize)]
pub struct Compared {
    /// For each pipeline and run: the gain of two workers, divided by the gain of two computing threads.
    pub scaling: BTreeMap<&'static str, Spread>,
    /// For each run: the gain of two computing threads.
    pub arithmetic: Spread,
    /// For each run: ticks of a cache line from one core to the other and back.
    pub round_trip: Spread,
    /// For each run: the time of an item that is handed over, divided by that round trip.
    pub handover_in_round_trips: Spread,
}

fn bind(core: usize) {
    if let Err(error) = pin_to(core) {
        eprintln!("cannot bind to core {core}: {error}");
    }
}

/// Returns the ticks of elapsed time per packet of a pipeline on these cores.
fn forward(cores: &[usize], pipeline: &Source) -> Result<f64, String> {
    let workers = vec!["{}"; cores.len()].join(", ");
    let source = pipeline.clone().set(format!("workers=[{workers}]"));
    let conditions = Conditions { frequency: Tsc.frequency(), simulated: false };
    let Loaded { plans, made, .. } = load(&source, conditions).map_err(|problems| problems.to_string())?;
    let instance = start(plans, cores, made, Box::new(|_| None), forebay_instance::ControlInputs::default())
        .map_err(|error| error.to_string())?;
    let board = instance.board();
    // Wait until caches and tables are warm.
    std::thread::sleep(SPAN / 4);
    let first = board.read(Tsc.now());
    std::thread::sleep(SPAN);
    let last = board.read(Tsc.now());
    let outcome = instance.end();
    let report = board.report(&first, &last);
    let whole = board.report(&board.nothing(), &board.read(outcome.at));
    if whole.packets.missing() != 0 {
        let packets = counted(whole.packets.missing(), "packet");
        return Err(format!("{packets} unaccounted for: the results are invalid"));
    }
    let ticks = report.duration_s * Tsc.frequency().hertz();
    Ok(ticks / report.packets.out as f64)
}

/// Returns the steps per second of computing threads, one per core, that share nothing.
fn compute(cores: &[usize]) -> f64 {
    let stop = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = cores
        .iter()
        .map(|core| {
            let (core, stop) = (*core, Arc::clone(&stop));
            std::thread::spawn(move || {
                bind(core);
                let (mut x, mut steps, start) = (1u64, 0u64, Tsc.now());
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..10_000 {
                        x ^= x << 13;
                        x ^= x >> 7;
                        x ^= x << 17;
                    }
                    steps += 10_000;
                }
                black_box(x);
                steps as f64 / Tsc.frequency().seconds(Tsc.now().since(start))
            })
        })
        .collect();
    std::thread::sleep(SPAN);
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().map(|thread| thread.join().expect("computing does not panic")).sum()
}
