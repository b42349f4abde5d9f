//! What it takes to hand packets, and cache lines, from one core to another; and what a core's own memory takes beside it.
//!
//! A pipeline over several cores pays for each packet that crosses (NALM, NALB: the cost of the hand-over decides between
//! run to completion and a pipeline). Packets go as they do in a pipeline, 32 at a time through the engine's own ring.
//! Lines are read one after the other, each address depending on what was read before, so that a figure is the time until
//! a line is there, not how many can be under way: that is what the published figures are.

mod memory;
mod pairs;
mod rows;

use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;

use forebay_graph::ring::{Head, ring};
use forebay_host::{Core, Tree};
use forebay_measure::machine::{Cpu, allowed_cores, pin_to};
use forebay_measure::{Clock, Tsc};
use serde::Serialize;

pub use memory::{Level, Step, circle};
pub use pairs::{Relation, pairs};
pub use rows::Row;

/// Packets that are handed over at a time: a batch.
const BATCH: usize = 32;
/// Packets of a run.
const ITEMS: usize = 4_000_000;
/// Slots that a ring of a pipeline has, about.
const ROOM: usize = 1_024;
/// Times that a cache line goes there and back.
const ROUND_TRIPS: u64 = 50_000;
/// Cache lines that are handed over in turn: more than a core keeps until their next turn.
const LINES: usize = 1 << 18;
/// Lines of a run.
const LINES_MOVED: usize = 1 << 19;

/// A cache line.
#[repr(align(64))]
#[derive(Default)]
struct Line(AtomicU64);

/// Lines that are handed over, and in which order: without a pattern, so that none is fetched ahead.
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

/// What the giving core does to a line, and the taking one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    /// Read here, read there.
    Clean,
    /// Written here, read and written there.
    Dirty,
}

/// Figures of several runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle one.
    pub median: f64,
    /// The quartiles.
    pub quartiles: [f64; 2],
    /// How many runs.
    pub runs: usize,
}

impl Spread {
    /// Whether its runs differ by more than half of what they say: something else used the cores, or the host of a virtual
    /// machine moved them.
    #[must_use]
    pub fn is_unsteady(&self) -> bool {
        self.quartiles[1] > self.quartiles[0] * 1.5
    }

    /// Of some figures; nothing where there are none.
    #[must_use]
    pub fn of(mut figures: Vec<f64>) -> Option<Self> {
        figures.sort_by(f64::total_cmp);
        let last = figures.len().checked_sub(1)?;
        // Between neighbours in proportion (Hyndman and Fan, type 7).
        let at = |share: f64| {
            let place = share * last as f64;
            let (low, high) = (figures[place.floor() as usize], figures[place.ceil() as usize]);
            low + (high - low) * place.fract()
        };
        Some(Self { median: at(0.5), quartiles: [at(0.25), at(0.75)], runs: figures.len() })
    }
}

/// Two cores, and what goes from the first to the second, in ticks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// From, to.
    pub cores: [usize; 2],
    /// Their NUMA nodes, where the host says.
    pub nodes: [Option<usize>; 2],
    /// What they are to each other.
    pub relation: Relation,
    /// A packet, of batches of 32 through a ring.
    pub packet: Option<Spread>,
    /// A line that the first has read, read by the second.
    pub clean_line: Option<Spread>,
    /// A line that the first has written, read and written by the second.
    pub dirty_line: Option<Spread>,
    /// One line there and back.
    pub round_trip: Option<Spread>,
    /// A line of the first core's own memory, read by the second, where they are of different nodes.
    pub remote_memory: Option<Spread>,
}

/// All that was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Handover {
    /// The machine and its clock.
    pub cpu: Cpu,
    /// Where the figures come from.
    pub source: crate::measurement::Origin,
    /// Pairs of cores; none where this process may use one only.
    pub pairs: Vec<Pair>,
    /// The first core's own memory, level by level.
    pub local: Vec<Step>,
}

/// Measures these pairs, `repeats` times in turn. `done` is told how many of how many steps are done.
///
/// # Errors
/// A core that a thread cannot be bound to.
pub fn measure(
    cores: &[([usize; 2], Relation)],
    repeats: usize,
    done: &mut dyn FnMut(usize, usize),
) -> io::Result<Handover> {
    let home = cores.first().map(|([from, _], _)| *from).or_else(|| allowed_cores().first().copied());
    let home = home.ok_or_else(|| io::Error::other("this process may run on no core"))?;
    let mut memory = memory::Local::new(home)?;
    let lines = Lines::new();
    let mut figures: Vec<[Vec<f64>; 5]> = vec![Default::default(); cores.len()];
    let steps = repeats * (cores.len() + 1);
    // Everything takes turns, so that a noisy stretch meets all of it.
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
        cpu: Cpu::this(),
        source: crate::measurement::Origin::Measured,
        pairs: pairs.collect(),
        local: memory.steps(),
    })
}

/// Does something on a core: a thread bound to it.
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

/// Checks that threads can be bound to both, before one waits for the other.
fn check(cores: [usize; 2]) -> io::Result<()> {
    std::thread::scope(|scope| cores.map(|core| on(scope, core, || ())).into_iter().try_for_each(joined))
}

fn joined<T>(thread: ScopedJoinHandle<'_, io::Result<T>>) -> io::Result<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Ticks of one cache line from one core to another and back. On a virtual machine it says where the host has put the two
/// cores, which may be another place from one second to the next.
///
/// # Errors
/// A core that a thread cannot be bound to.
pub fn round_trip(cores: [usize; 2]) -> io::Result<f64> {
    check(cores)?;
    let line = Line::default();
    let wait_for = |value: u64| {
        // Without a pause, which would be part of the figure.
        #[expect(clippy::missing_spin_loop, reason = "the processor would rest in the middle of what is measured")]
        while line.0.load(Ordering::Acquire) != value {}
    };
    std::thread::scope(|scope| {
        let there = on(scope, cores[1], || {
            for turn in 0..ROUND_TRIPS {
                wait_for(2 * turn + 1);
                line.0.store(2 * turn + 2, Ordering::Release);
            }
        });
        let here = on(scope, cores[0], || {
            // The other thread has begun, once it answers.
            line.0.store(1, Ordering::Release);
            wait_for(2);
            let start = Tsc.now();
            for turn in 1..ROUND_TRIPS {
                line.0.store(2 * turn + 1, Ordering::Release);
                wait_for(2 * turn + 2);
            }
            Tsc.now().since(start).0 as f64 / (ROUND_TRIPS - 1) as f64
        });
        joined(there)?;
        joined(here)
    })
}

/// Ticks a packet from one core to another, in batches through a ring.
///
/// # Errors
/// A core that a thread cannot be bound to.
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
            // The other thread has begun.
            start.get_or_insert_with(|| Tsc.now());
            sum = batch.iter().fold(sum, |sum, item| sum.wrapping_add(*item));
            last = Tsc.now().0;
        },
    )?;
    black_box(sum);
    Ok((last - start.unwrap_or_default().0) as f64 / (ITEMS - BATCH) as f64)
}

/// Ticks until a line is there that the other core has read or written.
///
/// # Errors
/// A core that a thread cannot be bound to.
fn move_lines(cores: [usize; 2], Lines { lines, order }: &Lines, touch: Touch) -> io::Result<f64> {
    let (mut ticks, mut at) = (0, 0);
    let give = |first: usize| {
        std::array::from_fn(|item| {
            let place = order[(first + item) % LINES] as usize;
            match touch {
                Touch::Clean => drop(black_box(lines[place].0.load(Ordering::Relaxed))),
                Touch::Dirty => lines[place].0.store(0, Ordering::Relaxed),
            }
            place
        })
    };
    stream(cores, LINES_MOVED, give, |batch| {
        let start = Tsc.now();
        for item in batch {
            // What is read is 0, which nobody knows before it is there.
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

/// Batches of `give`, each named by its first item's number, through a ring to `take`, `items` in all.
fn stream(
    cores: [usize; 2],
    items: usize,
    give: impl Fn(usize) -> [usize; BATCH] + Send,
    mut take: impl FnMut(&[usize]) + Send,
) -> io::Result<()> {
    check(cores)?;
    let (mut sender, mut receiver) = ring::<usize>(ROOM, BATCH);
    std::thread::scope(|scope| {
        let giver = on(scope, cores[0], move || {
            for first in (0..items).step_by(BATCH) {
                let batch = give(first);
                while !sender.send(Head { tag: 1, at: 0 }, &mut batch.iter().copied()) {
                    std::hint::spin_loop();
                }
            }
        });
        let taker = on(scope, cores[1], move || {
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
        joined(giver)?;
        joined(taker)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Two cores, or the one there is twice: threads on one core wait for each other's turn.
    fn two() -> Option<[usize; 2]> {
        let cores = allowed_cores();
        let pair = Some([*cores.first()?, *cores.get(1)?]);
        if pair.is_none() {
            drop(std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("skipped: there is one core\n")));
        }
        pair
    }

    #[test]
    fn everything_that_is_handed_over_arrives_in_order() {
        let Some(cores) = two() else { return };
        let mut seen: Vec<usize> = Vec::new();
        stream(cores, 64 * BATCH, |first| std::array::from_fn(|item| first + item), |batch| seen.extend(batch))
            .expect("cores");
        assert_eq!(seen, (0..64 * BATCH).collect::<Vec<_>>());
    }

    #[test]
    fn a_core_that_is_not_there_is_named() {
        let first = allowed_cores()[0];
        for cores in [[first, 100_000], [100_000, first]] {
            let told = round_trip(cores).expect_err("there is no such core").to_string();
            assert!(told.starts_with("core 100000: "), "{told}");
            assert!(hand_over(cores).is_err());
        }
    }

    proptest! {
        #[test]
        fn quartiles_are_in_order_and_of_the_figures(figures in prop::collection::vec(0.0..1e6f64, 1..20)) {
            let (low, high) = figures.iter().fold((f64::MAX, 0.0f64), |(low, high), x| (low.min(*x), high.max(*x)));
            let spread = Spread::of(figures.clone()).expect("there are some");
            let [first, third] = spread.quartiles;
            prop_assert!(low <= first && first <= spread.median && spread.median <= third && third <= high);
            prop_assert_eq!(spread.runs, figures.len());
            // Half of the figures are on either side.
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
