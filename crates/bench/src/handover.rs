//! Measures the cost of handing packets and cache lines from one core to another, and the latency of a core's own
//! memory.
//!
//! A pipeline on several cores pays for each packet that changes cores (NALM, NALB: this cost decides between run to
//! completion and a pipeline). Packets are handed over as in a pipeline, 32 at a time, through the same type of ring as
//! in the engine. Lines are read one after the other, and each address depends on the previous read. So a figure is the
//! latency of a line, as in the published figures, not the throughput.

mod memory;
mod pairs;
mod rows;

use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;

use forebay_graph::ring::{Head, ring};
use forebay_host::{Core, Tree};
use forebay_measure::{
    Clock, Tsc,
    machine::{allowed_cores, pin_to},
};
use forebay_protocol::report::Cpu;
use serde::Serialize;

pub use memory::{Level, LevelLatency, circle};
pub use pairs::{Relation, pairs};
pub use rows::Row;

/// The number of packets in a hand-over: a batch.
const BATCH: usize = 32;
/// The number of packets of a run.
const ITEMS: usize = 4_000_000;
/// The number of ring slots, about as in a pipeline.
const ROOM: usize = 1_024;
/// The number of round trips of a cache line in a run.
const ROUND_TRIPS: u64 = 50_000;
/// The number of cache lines that are handed over one after the other. There are so many that a core's cache no longer
/// contains a line when this line is handed over again.
const LINES: usize = 1 << 18;
/// The number of hand-overs of lines in a run. Each of the [`LINES`] lines is handed over twice.
const LINES_MOVED: usize = 1 << 19;

/// A cache line.
#[repr(align(64))]
#[derive(Default)]
struct Line(AtomicU64);

/// The lines that are handed over, and their order. The order has no pattern, so that no line is prefetched.
struct Lines {
    lines: Vec<Line>,
    order: Vec<u32>,
}

impl Lines {
    fn new() -> Self {
        let lines = std::iter::repeat_with(Line::default).take(LINES).collect();
        Self { lines, order: memory::circle(LINES) }
    }
}

/// The access to a line by the two cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// The first core reads the line, the second reads it.
    Clean,
    /// The first core writes the line, the second reads and writes it.
    Dirty,
}

/// The distribution of the figures of several runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The first and the third quartile.
    pub quartiles: [f64; 2],
    /// The number of runs.
    pub runs: usize,
}

impl Spread {
    /// True if the third quartile is more than 1.5 times the first. Then another program used the cores, or this is a
    /// virtual machine and its host moved the virtual cores to other physical cores.
    #[must_use]
    pub fn is_unsteady(&self) -> bool {
        self.quartiles[1] > self.quartiles[0] * 1.5
    }

    /// Returns the distribution of these figures, or `None` if there are none.
    #[must_use]
    pub fn of(mut figures: Vec<f64>) -> Option<Self> {
        figures.sort_by(f64::total_cmp);
        let last = figures.len().checked_sub(1)?;
        // Linear interpolation between neighbours (Hyndman and Fan, type 7).
        let at = |share: f64| {
            let position = share * last as f64;
            let (low, high) = (figures[position.floor() as usize], figures[position.ceil() as usize]);
            low + (high - low) * position.fract()
        };
        Some(Self { median: at(0.5), quartiles: [at(0.25), at(0.75)], runs: figures.len() })
    }
}

/// The costs of a hand-over from the first core to the second, in ticks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// The sending core and the receiving core.
    pub cores: [usize; 2],
    /// The NUMA nodes of the two cores, if the host reports them.
    pub nodes: [Option<usize>; 2],
    /// The relation of the two cores.
    pub relation: Relation,
    /// One packet, in batches of 32 through a ring.
    pub packet: Option<Spread>,
    /// One line that the first core has read and the second reads.
    pub clean_line: Option<Spread>,
    /// One line that the first core has written and the second reads and writes.
    pub dirty_line: Option<Spread>,
    /// The round trip of one line.
    pub round_trip: Option<Spread>,
    /// One line of the first core's main memory, read by the second, if their nodes differ.
    pub remote_memory: Option<Spread>,
}

/// All results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Handover {
    /// The machine and its clock.
    pub cpu: Cpu,
    /// The origin of the figures.
    pub source: crate::measurement::Origin,
    /// Pairs of cores; empty if this process may use only one core.
    pub pairs: Vec<Pair>,
    /// The first core's own memory, by level.
    pub local: Vec<LevelLatency>,
}

/// Measures all pairs, then the memory of the first sending core (without pairs, of the first allowed core), and does
/// all this `repeats` times. Calls `done` with the number of completed steps and of all steps.
///
/// # Errors
/// A thread cannot be bound to a core.
pub fn measure(
    cores: &[([usize; 2], Relation)],
    repeats: usize,
    done: &mut dyn FnMut(usize, usize),
) -> io::Result<Handover> {
    let home = cores.first().map(|([from, _], _)| *from).or_else(|| allowed_cores().first().copied());
    let home = home.ok_or_else(|| io::Error::other("this process may not use any core"))?;
    let mut memory = memory::Local::new(home)?;
    let lines = Lines::new();
    let mut figures: Vec<[Vec<f64>; 5]> = vec![Default::default(); cores.len()];
    let steps = repeats * (cores.len() + 1);
    // Each repeat measures all pairs, so that a disturbance affects all of them.
    for repeat in 0..repeats {
        for (at, (pair, relation)) in cores.iter().enumerate() {
            let [packet, clean, dirty, trip, remote] = &mut figures[at];
            packet.push(hand_over(*pair)?);
            clean.push(move_lines(*pair, &lines, Touch::Clean)?);
            dirty.push(move_lines(*pair, &lines, Touch::Dirty)?);
            trip.push(round_trip(*pair)?);
            if *relation == Relation::OtherNode {
                remote.extend(memory::remote(*pair)?);
            }
            done(repeat * (cores.len() + 1) + at + 1, steps);
        }
        memory.run()?;
        done((repeat + 1) * (cores.len() + 1), steps);
    }
    let tree = Tree::default();
    let pairs = cores.iter().zip(figures).map(|((cores, relation), figures)| {
        let [packet, clean_line, dirty_line, round_trip, remote_memory] = figures.map(Spread::of);
        let nodes = cores.map(|core| Core::read(&tree, core).node);
        Pair { cores: *cores, nodes, relation: *relation, packet, clean_line, dirty_line, round_trip, remote_memory }
    });
    Ok(Handover {
        cpu: forebay_measure::machine::cpu(),
        source: crate::measurement::Origin::Measured,
        pairs: pairs.collect(),
        local: memory.steps(),
    })
}

/// Runs `work` on a thread that is bound to a core.
fn on<'scope, T: Send + 'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    core: usize,
    work: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, io::Result<T>> {
    scope.spawn(move || {
        pin_to(core).map_err(|error| io::Error::new(error.kind(), format!("core {core}: {error}")))?;
        Ok(work())
    })
}

/// Checks that threads can be bound to both cores. Otherwise one thread would later wait forever for the other one.
fn check(cores: [usize; 2]) -> io::Result<()> {
    std::thread::scope(|scope| cores.map(|core| on(scope, core, || ())).into_iter().try_for_each(joined))
}

/// Waits for a thread and returns its result. A panic of the thread continues in the caller.
fn joined<T>(thread: ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Measures the ticks of a round trip of one cache line between two cores. On a virtual machine, the figure shows where
/// the host runs the two virtual cores, which may change from one second to the next.
///
/// # Errors
/// A thread cannot be bound to a core.
pub fn round_trip(cores: [usize; 2]) -> io::Result<f64> {
    check(cores)?;
    let line = Line::default();
    let wait_for = |value: u64| {
        // No pause instruction: its time would be part of the figure.
        #[expect(clippy::missing_spin_loop, reason = "a pause would be part of the measured time")]
        while line.0.load(Ordering::Acquire) != value {}
    };
    std::thread::scope(|scope| {
        let partner = on(scope, cores[1], || {
            for turn in 0..ROUND_TRIPS {
                wait_for(2 * turn + 1);
                line.0.store(2 * turn + 2, Ordering::Release);
            }
        });
        let measuring = on(scope, cores[0], || {
            // The first response shows that the other thread has begun.
            line.0.store(1, Ordering::Release);
            wait_for(2);
            let start = Tsc.now();
            for turn in 1..ROUND_TRIPS {
                line.0.store(2 * turn + 1, Ordering::Release);
                wait_for(2 * turn + 2);
            }
            Tsc.now().since(start).0 as f64 / (ROUND_TRIPS - 1) as f64
        });
        joined(partner)?;
        joined(measuring)
    })
}

/// Measures the ticks per packet from one core to another, in batches through a ring.
///
/// # Errors
/// A thread cannot be bound to a core.
pub fn hand_over(cores: [usize; 2]) -> io::Result<f64> {
    let items: [usize; BATCH] = std::array::from_fn(|item| item);
    let mut sum = 0usize;
    let mut start = None;
    let mut last = 0;
    stream(
        cores,
        ITEMS,
        |_| items,
        |batch| {
            // The first batch shows that the other thread has begun.
            start.get_or_insert_with(|| Tsc.now());
            sum = batch.iter().fold(sum, |sum, item| sum.wrapping_add(*item));
            last = Tsc.now().0;
        },
    )?;
    black_box(sum);
    Ok((last - start.unwrap_or_default().0) as f64 / (ITEMS - BATCH) as f64)
}

/// Measures the ticks until the second core gets a line that the first core has read or written: the mean over all
/// lines.
///
/// # Errors
/// A thread cannot be bound to a core.
fn move_lines(cores: [usize; 2], Lines { lines, order }: &Lines, touch: Touch) -> io::Result<f64> {
    let (mut ticks, mut at) = (0, 0);
    let prepare = |first: usize| {
        std::array::from_fn(|item| {
            let line = order[(first + item) % LINES] as usize;
            match touch {
                Touch::Clean => drop(black_box(lines[line].0.load(Ordering::Relaxed))),
                Touch::Dirty => lines[line].0.store(0, Ordering::Relaxed),
            }
            line
        })
    };
    stream(cores, LINES_MOVED, prepare, |batch| {
        let start = Tsc.now();
        for item in batch {
            // The value is always 0, but the processor does not know that before the line arrives.
            let line = &lines[(item + at) % LINES].0;
            at = line.load(Ordering::Relaxed) as usize;
            if touch == Touch::Dirty {
                line.store(at as u64, Ordering::Relaxed);
            }
        }
        black_box(at);
        ticks += Tsc.now().since(start).0;
    })?;
    Ok(ticks as f64 / LINES_MOVED as f64)
}

/// Sends `items` items from the first core to the second, in batches through a ring. `give` runs on the first core and
/// returns the batch that begins with the item of this number. `take` runs on the second core and gets one or more
/// items per call.
fn stream(
    cores: [usize; 2],
    items: usize,
    give: impl Fn(usize) -> [usize; BATCH] + Send,
    mut take: impl FnMut(&[usize]) + Send,
) -> io::Result<()> {
    check(cores)?;
    let (mut sender, mut receiver) = ring::<usize>(ROOM, BATCH);
    std::thread::scope(|scope| {
        let sending = on(scope, cores[0], move || {
            for first in (0..items).step_by(BATCH) {
                let batch = give(first);
                while !sender.send(Head { tag: 1, at: 0 }, &mut batch.iter().copied()) {
                    std::hint::spin_loop();
                }
            }
        });
        let receiving = on(scope, cores[1], move || {
            let (mut got, mut batch) = (0, Vec::with_capacity(BATCH));
            while got < items {
                receiver.receive(|item| batch.push(item));
                if batch.is_empty() {
                    std::hint::spin_loop();
                } else {
                    take(&batch);
                    got += batch.len();
                    batch.clear();
                }
            }
        });
        joined(sending)?;
        joined(receiving)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Two cores. With only one core the test is skipped: the threads would wait for each other's time slice.
    fn two() -> Option<[usize; 2]> {
        let cores = allowed_cores();
        let pair = Some([*cores.first()?, *cores.get(1)?]);
        if pair.is_none() {
            drop(std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("skipped: there is only one core\n")));
        }
        pair
    }

    #[test]
    fn all_items_arrive_in_order() {
        let Some(cores) = two() else { return };
        let mut seen: Vec<usize> = Vec::new();
        stream(cores, 64 * BATCH, |first| std::array::from_fn(|item| first + item), |batch| seen.extend(batch))
            .expect("cores");
        assert_eq!(seen, (0..64 * BATCH).collect::<Vec<_>>());
    }

    #[test]
    fn a_missing_core_is_named() {
        let first = allowed_cores()[0];
        for cores in [[first, 100_000], [100_000, first]] {
            let error = round_trip(cores).expect_err("there is no such core").to_string();
            assert!(error.starts_with("core 100000: "), "{error}");
            assert!(hand_over(cores).is_err());
        }
    }

    proptest! {
        #[test]
        fn quartiles_are_in_order_and_within_the_figures(figures in prop::collection::vec(0.0..1e6f64, 1..20)) {
            let (low, high) = figures.iter().fold((f64::MAX, 0.0f64), |(low, high), x| (low.min(*x), high.max(*x)));
            let spread = Spread::of(figures.clone()).expect("there are some");
            let [first, third] = spread.quartiles;
            prop_assert!(low <= first && first <= spread.median && spread.median <= third && third <= high);
            prop_assert_eq!(spread.runs, figures.len());
            // At most half of the figures are below the median.
            let below = figures.iter().filter(|x| **x < spread.median).count();
            prop_assert!(below * 2 <= figures.len());
        }
    }

    #[test]
    fn quartiles_of_few() {
        let of = |figures: &[f64]| {
            Spread::of(figures.to_vec()).map(|spread| (spread.quartiles[0], spread.median, spread.quartiles[1]))
        };
        assert_eq!(
            [of(&[]), of(&[3.0]), of(&[3.0, 1.0, 2.0, 5.0, 4.0])],
            [None, Some((3.0, 3.0, 3.0)), Some((2.0, 3.0, 4.0))]
        );
    }
}
