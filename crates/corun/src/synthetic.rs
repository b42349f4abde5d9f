//! The synthetic competitor: a thread that uses as much of the shared cache and of the memory bandwidth as its
//! parameters define.
//!
//! It reads lines in an order that prefetchers cannot predict. Each line contains the index of the next line, and all
//! lines form one cycle in random order. Eight such walks run in parallel, because a single walk would wait for each
//! line. In addition, the thread reads and writes, in order, the lines of a memory that is larger than all caches. This
//! uses memory bandwidth.

use std::collections::BTreeMap;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay_bench::handover::circle;
use forebay_measure::{Clock, Tsc};
use serde::{Deserialize, Serialize};

/// The size of a line, in bytes.
pub const LINE: usize = 64;
/// The number of words of a line in a walk.
const WORDS: usize = LINE / size_of::<u32>();
/// The number of words of a line in the stream.
const WIDE: usize = LINE / size_of::<u64>();
/// The number of parallel walks. A core can handle about this many misses of its first-level cache at once.
const WALKS: usize = 8;
/// The number of lines between two reads of the clock.
const SLICE: usize = 512;

/// The demand of a synthetic competitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Demand {
    /// The size of the memory that it walks in random order, in bytes.
    pub bytes: usize,
    /// The percentage of its lines that are read and written in order, in a memory larger than all caches.
    pub streamed: u8,
    /// The percentage of its time in which it works.
    pub pace: u8,
}

/// The memory of one competitor.
#[derive(Debug, Default)]
pub struct Memory {
    /// By size in bytes: the lines of a walk. Each line contains the index of the next line.
    rings: BTreeMap<usize, Vec<u32>>,
    /// The memory that is read and written in order. Empty if no demand needs it.
    stream: Vec<u64>,
}

/// The number of lines used so far. Only the competitor's thread writes the counters.
#[derive(Debug, Default)]
pub struct Lines {
    /// The lines that were read in random order.
    pub walked: AtomicU64,
    /// The lines that were read and written in order.
    pub streamed: AtomicU64,
}

impl Memory {
    /// Allocates the memory for these demands. `beyond` is a size in bytes that exceeds all caches. The memory is on
    /// the node of the calling thread.
    #[must_use]
    pub fn new(demands: &[Demand], beyond: usize) -> Self {
        let mut memory = Self::default();
        for demand in demands {
            let bytes = demand.bytes.max(LINE * WALKS);
            memory.rings.entry(bytes).or_insert_with(|| ring(bytes));
            if demand.streamed > 0 && memory.stream.is_empty() {
                memory.stream = vec![1; beyond.max(LINE) / LINE * WIDE];
            }
        }
        memory
    }

    /// Returns whether the memory was allocated for this demand.
    #[must_use]
    pub fn has(&self, demand: Demand) -> bool {
        self.rings.contains_key(&demand.bytes.max(LINE * WALKS)) && (demand.streamed == 0 || !self.stream.is_empty())
    }

    /// Generates the load of `demand` until `stop` is set. The memory must have been allocated for this demand
    /// ([`has`](Self::has)). Without its walk, the function returns at once; without its stream, there are only walked
    /// lines.
    pub fn compete(&mut self, demand: Demand, stop: &AtomicBool, lines: &Lines) {
        let Some(ring) = self.rings.get(&demand.bytes.max(LINE * WALKS)) else { return };
        let count = ring.len() / WORDS;
        let mut at: [usize; WALKS] = std::array::from_fn(|walk| walk * count / WALKS);
        let streamed = SLICE * usize::from(demand.streamed.min(100)) / 100;
        let walked = SLICE - streamed;
        let (mut next, mut sums) = (0, 0_u64);
        let stream = &mut self.stream;
        while !stop.load(Ordering::Relaxed) {
            let began = Tsc.now();
            for _ in 0..walked / WALKS {
                at.iter_mut().for_each(|at| *at = ring[*at * WORDS] as usize);
            }
            if !stream.is_empty() {
                for _ in 0..streamed {
                    let word = &mut stream[next];
                    sums = sums.wrapping_add(*word);
                    *word = sums;
                    next += WIDE;
                    if next >= stream.len() {
                        next = 0;
                    }
                }
            }
            let add =
                |to: &AtomicU64, more: usize| to.store(to.load(Ordering::Relaxed) + more as u64, Ordering::Relaxed);
            add(&lines.walked, walked / WALKS * WALKS);
            add(&lines.streamed, if stream.is_empty() { 0 } else { streamed });
            let worked = Tsc.now().since(began).0;
            let rest = worked * (100 - u64::from(demand.pace.clamp(1, 100))) / u64::from(demand.pace.clamp(1, 100));
            let slept = Tsc.now();
            while Tsc.now().since(slept).0 < rest && !stop.load(Ordering::Relaxed) {
                spin_loop();
            }
        }
        black_box((at, sums));
    }
}

/// Returns the lines of a memory of this size, in words. The first word of each line is the index of the next line. All
/// lines form one cycle.
fn ring(bytes: usize) -> Vec<u32> {
    let order = circle(bytes / LINE);
    let mut ring = vec![0; order.len() * WORDS];
    for (line, next) in order.into_iter().enumerate() {
        ring[line * WORDS] = next;
    }
    ring
}

/// Returns the demands for co-runs on a machine whose cores have caches of `own` bytes and share a cache of `shared`
/// bytes. The weakest demand hardly affects the shared cache.
#[must_use]
pub fn levels(own: usize, shared: usize) -> Vec<Demand> {
    let demand = |bytes: usize, streamed, pace| Demand { bytes: bytes.max(LINE * WALKS), streamed, pace };
    vec![
        demand(2 * own, 0, 100),
        demand(shared / 2, 0, 50),
        demand(shared / 2, 0, 100),
        demand(shared, 0, 100),
        demand(own, 90, 50),
        demand(own, 90, 100),
        demand(shared, 50, 100),
    ]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn competitors_generate_their_load_until_the_stop() {
        let demands =
            [Demand { bytes: 1 << 16, streamed: 0, pace: 100 }, Demand { bytes: 4096, streamed: 75, pace: 10 }];
        for demand in demands {
            let mut memory = Memory::new(&demands, 1 << 16);
            let (stop, lines) = (Arc::new(AtomicBool::new(false)), Arc::new(Lines::default()));
            let thread = {
                let (stop, lines) = (Arc::clone(&stop), Arc::clone(&lines));
                std::thread::spawn(move || memory.compete(demand, &stop, &lines))
            };
            let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
            while count(&lines.walked) < 1024 {
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
            thread.join().expect("it ends");
            let (walked, streamed) = (count(&lines.walked), count(&lines.streamed));
            assert_eq!(streamed, walked * u64::from(demand.streamed) / (100 - u64::from(demand.streamed)));
        }
    }

    #[test]
    fn levels_include_both_types_and_are_unique() {
        let levels = levels(1 << 20, 32 << 20);
        assert!(levels.iter().any(|demand| demand.streamed > 50) && levels.iter().any(|demand| demand.streamed == 0));
        let mut unique = levels.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), levels.len());
    }
}
