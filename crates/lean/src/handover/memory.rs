//! What a core's own memory takes: a chain of lines in random order, as long as a cache holds, or longer than any.
//!
//! The order is one circle through all lines (Sattolo's algorithm), so that nothing can be fetched ahead. Pages are those
//! that the host gives: in the largest sets the processor's search for a page is part of the figure, as it is of a table's.

use std::hint::black_box;
use std::io;

use forebay_host::Tree;
use forebay_host::position::data_cache;
use forebay_measure::{Clock, Tsc};
use serde::Serialize;

use super::{Spread, joined, on};

/// Bytes of a line.
const LINE: usize = 64;
/// Reads of a run.
const READS: usize = 1 << 19;
/// How much is taken for main memory, at least and at most.
const MEMORY: [usize; 2] = [64 << 20, 256 << 20];

/// A level of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Level {
    /// The first cache, of a core.
    L1,
    /// The second.
    L2,
    /// The last, which cores share.
    L3,
    /// Main memory.
    #[serde(rename = "DRAM")]
    Dram,
}

/// What a level takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Which.
    pub level: Level,
    /// The core.
    pub core: usize,
    /// Bytes that were read in turn; nothing where the host does not say how large the caches are.
    pub bytes: Option<usize>,
    /// Ticks a line.
    pub ticks: Option<Spread>,
}

/// Measures a core's own memory.
pub(super) struct Local {
    core: usize,
    levels: Vec<Set>,
}

/// What is read in turn for one level.
struct Set {
    level: Level,
    bytes: Option<usize>,
    ring: Vec<u32>,
    /// By run: ticks a line.
    figures: Vec<f64>,
}

impl Local {
    pub(super) fn new(core: usize) -> io::Result<Self> {
        let sets = sets([1, 2, 3].map(|level| cache(core, level)));
        let levels = sets.map(|(level, bytes)| {
            // Made by the core itself, so that the pages are of its node.
            let ring = std::thread::scope(|scope| joined(on(scope, core, || ring(bytes.unwrap_or(0)))))?;
            Ok(Set { level, bytes, ring, figures: Vec::new() })
        });
        Ok(Self { core, levels: levels.into_iter().collect::<io::Result<_>>()? })
    }

    pub(super) fn run(&mut self) -> io::Result<()> {
        for set in self.levels.iter_mut().filter(|set| set.bytes.is_some()) {
            let ring = &set.ring;
            set.figures.push(std::thread::scope(|scope| joined(on(scope, self.core, || chase(ring))))?);
        }
        Ok(())
    }

    pub(super) fn steps(self) -> Vec<Step> {
        let step = |set: Set| {
            let Set { level, bytes, figures, .. } = set;
            Step { level, core: self.core, bytes, ticks: Spread::of(figures) }
        };
        self.levels.into_iter().map(step).collect()
    }
}

/// Ticks a line of main memory that the first core has filled, read by the second.
pub(super) fn remote([there, here]: [usize; 2]) -> io::Result<Option<f64>> {
    let [.., (_, bytes)] = sets([1, 2, 3].map(|level| cache(there, level)));
    let Some(bytes) = bytes else { return Ok(None) };
    let ring = std::thread::scope(|scope| joined(on(scope, there, || ring(bytes))))?;
    std::thread::scope(|scope| joined(on(scope, here, || chase(&ring)))).map(Some)
}

/// How much is read in turn for each level, by the sizes of the caches. A set is half of its own cache, where that is twice
/// the one before at least, and of a large one no more than four times the one before: other cores use it, too. Main memory is
/// four times the last cache.
fn sets([first, second, third]: [Option<usize>; 3]) -> [(Level, Option<usize>); 4] {
    let half = |cache: Option<usize>| cache.map(|bytes| bytes / 2);
    let beyond = |set: Option<usize>, before: Option<usize>| {
        set.zip(before).and_then(|(set, before)| (set >= 2 * before).then_some(set))
    };
    let [least, most] = MEMORY;
    let last = beyond(half(third), second).map(|set| set.min(second.map_or(set, |second| 4 * second)));
    let memory = third
        .or(second)
        .map(|cache| (4 * cache).clamp(least, most))
        .filter(|set| third.or(second).is_some_and(|cache| *set >= 2 * cache));
    [(Level::L1, half(first)), (Level::L2, beyond(half(second), first)), (Level::L3, last), (Level::Dram, memory)]
}

/// The size of a cache for data, in bytes.
fn cache(core: usize, level: u8) -> Option<usize> {
    data_cache(&Tree::default(), core, level).and_then(|bytes| usize::try_from(bytes).ok())
}

/// Words of a line.
const WORDS: usize = LINE / size_of::<u32>();

/// Numbers up to `count`, each once, so that going from a place to the number there passes all of them (Sattolo 1986).
#[must_use]
pub fn circle(count: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count as u32).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for at in (1..count).rev() {
        // Xorshift (Marsaglia 2003): any order without a pattern will do.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        order.swap(at, (random % at as u64) as usize);
    }
    order
}

/// Lines in so many bytes, each with the number of the next, in one circle.
fn ring(bytes: usize) -> Vec<u32> {
    let order = circle((bytes / LINE).max(1));
    let mut ring = vec![0u32; order.len() * WORDS];
    for (line, next) in order.into_iter().enumerate() {
        ring[line * WORDS] = next;
    }
    ring
}

/// Ticks a line around the circle.
fn chase(ring: &[u32]) -> f64 {
    let lines = ring.len() / WORDS;
    // Small sets once before, so that they are where they belong.
    let warm = lines.min(READS);
    let (mut at, mut start) = (0usize, Tsc.now());
    for read in 0..warm + READS {
        if read == warm {
            start = Tsc.now();
        }
        at = ring[at * WORDS] as usize;
    }
    black_box(at);
    Tsc.now().since(start).0 as f64 / READS as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_the_host_does_not_say_is_not_measured() {
        let told = |sizes: [usize; 3]| {
            sets(sizes.map(|kib| (kib > 0).then_some(kib << 10))).map(|(_, set)| set.map(|set| set >> 10))
        };
        assert_eq!(told([32, 1_024, 32_768]), [Some(16), Some(512), Some(4_096), Some(131_072)]);
        assert_eq!(told([0, 0, 0]), [None; 4]);
        assert_eq!(told([32, 1_024, 0]), [Some(16), Some(512), None, Some(65_536)]);
        // Of a cache that leaves no room beyond it nothing is said.
        assert_eq!(told([48, 2_048, 1 << 20])[3], None);
    }

    proptest! {
        #[test]
        fn every_line_is_on_the_circle(lines in 1usize..2_000) {
            let ring = ring(lines * LINE);
            let (mut at, mut steps) = (0, 0);
            loop {
                at = ring[at * WORDS] as usize;
                steps += 1;
                if at == 0 || steps > lines { break; }
            }
            prop_assert_eq!(steps, lines);
        }
    }
}
