//! What two cores do together: the hand-over between them, and pipelines on two workers against one.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_instance::start;
use forebay_lean::handover::{hand_over, round_trip};
use forebay_measure::machine::pin_to;
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::{Conditions, Loaded, Source, load};
use serde::Serialize;

use crate::measurement::{Figure, Spread};

/// How long a pipeline or a computation runs.
const SPAN: Duration = Duration::from_millis(400);

/// What two cores do, run by run.
#[derive(Default)]
pub struct Cores {
    /// Ticks an item that goes from one core to the other, in messages of 32.
    handover: Vec<f64>,
    /// Ticks that one cache line takes from one core to the other and back, beside the hand-over. On a virtual machine
    /// it says where the host has put the two cores, which may be another place from one second to the next.
    round_trip: Vec<f64>,
    /// By pipeline: ticks a packet on one worker, and on two.
    workers: BTreeMap<&'static str, [Vec<f64>; 2]>,
    /// How much faster two threads compute than one.
    arithmetic: Vec<f64>,
}

impl Cores {
    /// One run of everything, on these two cores.
    pub fn run(&mut self, cores: [usize; 2], pipelines: &[(&'static str, Source)]) -> Result<(), String> {
        let told = |error: std::io::Error| error.to_string();
        let before = round_trip(cores).map_err(told)?;
        let handover = hand_over(cores).map_err(told)?;
        let after = round_trip(cores).map_err(told)?;
        self.handover.push(handover);
        self.round_trip.push(f64::midpoint(before, after));
        for (name, pipeline) in pipelines {
            // One and two take turns, so that a noisy stretch meets both.
            let ticks = [forward(&cores[..1], pipeline)?, forward(&cores, pipeline)?];
            let series = self.workers.entry(name).or_default();
            series.iter_mut().zip(ticks).for_each(|(series, ticks)| series.push(ticks));
        }
        self.arithmetic.push(compute(&cores) / compute(&cores[..1]));
        Ok(())
    }

    /// The figures.
    pub fn figures(&self) -> Vec<Figure> {
        let both = self.workers.iter().flat_map(|(name, [one, two])| {
            [
                Figure::of(&format!("{name}_workers_1"), one.clone()),
                Figure::of(&format!("{name}_workers_2"), two.clone()),
            ]
        });
        [Figure::of("handover", self.handover.clone())].into_iter().chain(both).collect()
    }

    /// What the figures are to be compared with, taken in the same runs.
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

/// Two cores' figures as parts of what the machine does.
#[derive(Serialize)]
pub struct Compared {
    /// By pipeline and run: what two workers gain over one, as a part of what two computing threads gain.
    pub scaling: BTreeMap<&'static str, Spread>,
    /// By run: what two computing threads gain over one.
    pub arithmetic: Spread,
    /// By run: ticks of a cache line from one core to the other and back.
    pub round_trip: Spread,
    /// By run: what an item that is handed over takes, as a part of that.
    pub handover_in_round_trips: Spread,
}

fn bind(core: usize) {
    if let Err(error) = pin_to(core) {
        eprintln!("cannot bind to core {core}: {error}");
    }
}

/// Ticks of the wall a packet of a pipeline on these cores.
fn forward(cores: &[usize], pipeline: &Source) -> Result<f64, String> {
    let workers = vec!["{}"; cores.len()].join(", ");
    let source = pipeline.clone().set(format!("workers=[{workers}]"));
    let conditions = Conditions { frequency: Tsc.frequency(), simulated: false };
    let Loaded { plans, made, .. } = load(&source, conditions).map_err(|problems| problems.to_string())?;
    let instance = start(plans, cores, made, Box::new(|_| None), forebay_instance::ControlInputs::default())
        .map_err(|error| error.to_string())?;
    let board = instance.board();
    // Until everything is warm.
    std::thread::sleep(SPAN / 4);
    let first = board.read(Tsc.now());
    std::thread::sleep(SPAN);
    let last = board.read(Tsc.now());
    let outcome = instance.end();
    let report = board.report(&first, &last);
    let whole = board.report(&board.nothing(), &board.read(outcome.at));
    if whole.packets.missing() != 0 {
        return Err(format!("{} packets are unaccounted for: the figures are worth nothing", whole.packets.missing()));
    }
    let ticks = report.duration_s * Tsc.frequency().hertz();
    Ok(ticks / report.packets.out as f64)
}

/// Steps a second of threads that compute, one a core, and share nothing.
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
