//! What two cores do together: the hand-over between them, and the router on two workers against one.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_graph::ring::{Head, ring};
use forebay_instance::start;
use forebay_measure::machine::pin_to;
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::{Conditions, Loaded, Source, load};

use crate::measurement::Figure;

/// Items that are handed over at a time.
const BATCH: usize = 32;
/// Items of a run.
const ITEMS: usize = 8_000_000;
/// Slots that a ring of a pipeline has, about.
const ROOM: usize = 1_024;
/// How long a pipeline or a computation runs.
const SPAN: Duration = Duration::from_millis(400);

/// What two cores do, run by run.
#[derive(Default)]
pub struct Cores {
    /// Ticks an item that goes from one core to the other, in messages of 32.
    handover: Vec<f64>,
    /// Ticks a packet of a router on one worker, and on two.
    one: Vec<f64>,
    two: Vec<f64>,
    /// How much faster two threads compute than one.
    arithmetic: Vec<f64>,
}

impl Cores {
    /// One run of everything, on these two cores.
    pub fn run(&mut self, cores: [usize; 2], router: &Source) -> Result<(), String> {
        self.handover.push(hand_over(cores));
        // One and two take turns, so that a noisy stretch meets both.
        let (one, two) = (route(&cores[..1], router)?, route(&cores, router)?);
        self.one.push(one);
        self.two.push(two);
        self.arithmetic.push(compute(&cores) / compute(&cores[..1]));
        Ok(())
    }

    /// The figures.
    pub fn figures(&self) -> Vec<Figure> {
        vec![
            Figure::of("handover", self.handover.clone()),
            Figure::of("router_workers_1", self.one.clone()),
            Figure::of("router_workers_2", self.two.clone()),
        ]
    }

    /// By run: what two workers gain over one, as a part of what two computing threads gain.
    pub fn scaling(&self) -> Figure {
        let gains = self.one.iter().zip(&self.two).zip(&self.arithmetic);
        Figure::of("scaling", gains.map(|((one, two), arithmetic)| one / two / arithmetic).collect())
    }

    /// By run: what two computing threads gain over one.
    pub fn arithmetic(&self) -> Figure {
        Figure::of("arithmetic", self.arithmetic.clone())
    }
}

/// Ticks an item from one core to another.
fn hand_over([from, to]: [usize; 2]) -> f64 {
    let (mut sender, mut receiver) = ring::<usize>(ROOM, BATCH);
    std::thread::scope(|scope| {
        let giver = scope.spawn(move || {
            bind(from);
            let items: [usize; BATCH] = std::array::from_fn(|item| item);
            let mut left = ITEMS / BATCH;
            while left > 0 {
                if sender.send(Head { tag: 1, at: 0 }, &mut items.iter().copied()) {
                    left -= 1;
                } else {
                    std::hint::spin_loop();
                }
            }
        });
        bind(to);
        let (mut got, mut sum, mut start) = (0usize, 0usize, None);
        while got < ITEMS / BATCH * BATCH {
            let before = got;
            receiver.receive(|item| {
                sum = sum.wrapping_add(item);
                got += 1;
            });
            // The other thread has begun.
            if before == 0 && got > 0 {
                start = Some(Tsc.now());
            }
            if before == got {
                std::hint::spin_loop();
            }
        }
        black_box(sum);
        let ticks = Tsc.now().since(start.unwrap_or_default()).0 as f64;
        giver.join().expect("giving does not panic");
        ticks / (got - BATCH) as f64
    })
}

fn bind(core: usize) {
    if let Err(error) = pin_to(core) {
        eprintln!("cannot bind to core {core}: {error}");
    }
}

/// Ticks of the wall a packet of a router on these cores.
fn route(cores: &[usize], router: &Source) -> Result<f64, String> {
    let workers = vec!["{}"; cores.len()].join(", ");
    let source = router.clone().set(format!("workers=[{workers}]"));
    let conditions = Conditions { frequency: Tsc.frequency(), simulated: false };
    let Loaded { plans, made, .. } = load(&source, conditions).map_err(|problems| problems.to_string())?;
    let instance = start(plans, cores, made, Box::new(|_| None)).map_err(|error| error.to_string())?;
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
