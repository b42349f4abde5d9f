//! Measures the latency of a core's own memory: a chain of lines in random order that fits a cache, or exceeds all
//! caches.
//!
//! The order is one cycle through all lines (Sattolo's algorithm), so that no line can be prefetched. Page sizes are
//! the host's default. In the largest sets, page table walks are part of the figure, as they are for lookup tables.

use std::hint::black_box;
use std::io;

use forebay_host::Tree;
use forebay_host::position::data_cache;
use forebay_measure::{Clock, Tsc};
use serde::Serialize;

use super::{Spread, joined, on};

/// Bytes per line.
const LINE: usize = 64;
/// The number of reads of a run.
const READS: usize = 1 << 19;
/// The least and the largest size of the set for main memory, in bytes.
const MEMORY: [usize; 2] = [64 << 20, 256 << 20];

/// A level of the memory hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Level {
    /// The first-level data cache of a core.
    L1,
    /// The second-level cache.
    L2,
    /// The last-level cache, which cores share.
    L3,
    /// Main memory.
    #[serde(rename = "DRAM")]
    Dram,
}

/// The latency of a level.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LevelLatency {
    /// The level.
    pub level: Level,
    /// The core.
    pub core: usize,
    /// The size of the set, in bytes. `None` if the host does not report the sizes of the caches, or if no size is
    /// suitable for this level.
    pub bytes: Option<usize>,
    /// Ticks per line.
    pub ticks: Option<Spread>,
}

/// The measurement of a core's own memory.
pub(super) struct Local {
    core: usize,
    levels: Vec<Set>,
}

/// The set of lines for one level.
struct Set {
    level: Level,
    bytes: Option<usize>,
    /// The lines. The first word of each line is the number of the next line.
    ring: Vec<u32>,
    /// Ticks per line of each run.
    figures: Vec<f64>,
}

impl Local {
    /// Creates the sets of all levels. Fails if a thread cannot be bound to the core.
    pub(super) fn new(core: usize) -> io::Result<Self> {
        let sets = sets([1, 2, 3].map(|level| cache(core, level)));
        let levels = sets.map(|(level, bytes)| {
            // Created by the core itself, so that the pages are on its node.
            let ring = std::thread::scope(|scope| joined(on(scope, core, || ring(bytes.unwrap_or(0)))))?;
            Ok(Set { level, bytes, ring, figures: Vec::new() })
        });
        Ok(Self { core, levels: levels.into_iter().collect::<io::Result<_>>()? })
    }

    /// Measures each level once.
    pub(super) fn run(&mut self) -> io::Result<()> {
        for set in self.levels.iter_mut().filter(|set| set.bytes.is_some()) {
            let ring = &set.ring;
            set.figures.push(std::thread::scope(|scope| joined(on(scope, self.core, || chase(ring))))?);
        }
        Ok(())
    }

    /// Returns the results of all runs, by level.
    pub(super) fn steps(self) -> Vec<LevelLatency> {
        let step = |set: Set| {
            let Set { level, bytes, figures, .. } = set;
            LevelLatency { level, core: self.core, bytes, ticks: Spread::of(figures) }
        };
        self.levels.into_iter().map(step).collect()
    }
}

/// Measures the ticks per line of main memory that the first core has filled and the second reads. `None` if the size
/// of the caches is unknown, or if the caches are too large for a set that exceeds them.
pub(super) fn remote([owner, reader]: [usize; 2]) -> io::Result<Option<f64>> {
    let [.., (_, bytes)] = sets([1, 2, 3].map(|level| cache(owner, level)));
    let Some(bytes) = bytes else { return Ok(None) };
    let ring = std::thread::scope(|scope| joined(on(scope, owner, || ring(bytes))))?;
    std::thread::scope(|scope| joined(on(scope, reader, || chase(&ring)))).map(Some)
}

/// Returns the size of the set for each level, in bytes, from the sizes of the three caches. The set of a cache is half
/// of the cache. The set is missing if it is smaller than twice the next smaller cache, because that cache would serve
/// many reads. The set of the last-level cache is at most four times the second-level cache, because other cores use it
/// too. The set of main memory is four times the last-level cache, within the limits [`MEMORY`]. It is missing if it is
/// then smaller than twice the last-level cache.
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

/// Returns the size of a data cache, in bytes.
fn cache(core: usize, level: u8) -> Option<usize> {
    data_cache(&Tree::default(), core, level).and_then(|bytes| usize::try_from(bytes).ok())
}

/// Words per line.
const WORDS: usize = LINE / size_of::<u32>();

/// Returns a permutation of the numbers below `count` with a single cycle: going from each index to the number in it
/// visits all of them (Sattolo 1986).
#[must_use]
pub fn circle(count: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count as u32).collect();
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for at in (1..count).rev() {
        // Xorshift (Marsaglia 2003): any order without a pattern is suitable.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        order.swap(at, (random % at as u64) as usize);
    }
    order
}

/// Returns the lines of a memory of `bytes` bytes, as words. The first word of each line is the number of the next
/// line. All lines form one cycle.
fn ring(bytes: usize) -> Vec<u32> {
    let order = circle((bytes / LINE).max(1));
    let mut ring = vec![0u32; order.len() * WORDS];
    for (line, next) in order.into_iter().enumerate() {
        ring[line * WORDS] = next;
    }
    ring
}

/// Measures the ticks per line along the cycle.
fn chase(ring: &[u32]) -> f64 {
    let lines = ring.len() / WORDS;
    // Small sets are read once before, so that they are in the cache.
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
    fn a_level_of_unknown_size_is_not_measured() {
        let kib_of = |sizes: [usize; 3]| {
            sets(sizes.map(|kib| (kib > 0).then_some(kib << 10))).map(|(_, set)| set.map(|set| set >> 10))
        };
        assert_eq!(kib_of([32, 1_024, 32_768]), [Some(16), Some(512), Some(4_096), Some(131_072)]);
        assert_eq!(kib_of([0, 0, 0]), [None; 4]);
        assert_eq!(kib_of([32, 1_024, 0]), [Some(16), Some(512), None, Some(65_536)]);
        // If a cache is so large that no set exceeds it, main memory is not measured.
        assert_eq!(kib_of([48, 2_048, 1 << 20])[3], None);
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
