//! The pool of entries: blocks of 1 to 64 consecutive words, with free lists by size.
//!
//! A row of the table keeps its entries adjacent, so its block changes size when routes are added or removed. Sizes are
//! rounded up to twelve classes, so less than a third of a block is wasted. A freed block serves the next request of
//! its class. Allocating and freeing a block takes constant time, except when the pool grows, and copies no other
//! blocks. The pool never takes more memory than the sum of the largest amount that each class ever needed at one time.

/// The number of words in a block of each class.
const CLASSES: [u8; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];

/// Returns the class of a block of `length` words, 1 to 64.
fn class(length: usize) -> usize {
    CLASSES.iter().position(|&size| usize::from(size) >= length).expect("a row has at most 64 runs")
}

/// Returns the value of an index outside the pool. This function is never called, because rows point into the pool. It
/// is not inlined, so that the check costs a look-up only one instruction.
#[cold]
#[inline(never)]
fn outside() -> u32 {
    0
}

/// A pool of blocks of entries.
#[derive(Clone)]
pub(super) struct Runs {
    /// The entries of all blocks.
    words: Vec<u32>,
    /// The starts of the free blocks of each class.
    free: [Vec<u32>; CLASSES.len()],
}

impl Runs {
    /// Creates a pool with word 0, which is 0 and belongs to every row without routes.
    pub(super) fn new() -> Self {
        Self { words: vec![0], free: Default::default() }
    }

    /// Returns the entry at `index`, or 0 outside the pool.
    #[inline(always)]
    pub(super) fn get(&self, index: u32) -> u32 {
        match self.words.get(index as usize) {
            Some(&entry) => entry,
            None => outside(),
        }
    }

    /// Stores `entries` (1 to 64) and returns the index of the first one. A single 0 is stored at index 0.
    pub(super) fn allocate(&mut self, entries: &[u32]) -> u32 {
        if entries == [0] {
            return 0;
        }
        let class = class(entries.len());
        let start = self.free[class].pop().unwrap_or_else(|| {
            let start = u32::try_from(self.words.len()).expect("2^32 entries would be 16 GiB of routes");
            self.words.resize(self.words.len() + usize::from(CLASSES[class]), 0);
            start
        });
        self.words[start as usize..][..entries.len()].copy_from_slice(entries);
        start
    }

    /// Returns the block of `length` words at `start`; empty outside the pool.
    pub(super) fn block(&self, start: u32, length: usize) -> &[u32] {
        self.words.get(start as usize..).and_then(|words| words.get(..length)).unwrap_or(&[])
    }

    /// Frees the block of `length` words at `start`. The block at index 0 is never freed.
    pub(super) fn free(&mut self, start: u32, length: usize) {
        if start != 0 {
            self.free[class(length)].push(start);
        }
    }

    pub(super) fn shrink_to_fit(&mut self) {
        self.words.shrink_to_fit();
    }

    /// Returns true if every word is on a free list.
    #[cfg(test)]
    pub(super) fn is_blank(&self) -> bool {
        let free = self.free.iter().zip(CLASSES).map(|(blocks, size)| blocks.len() * usize::from(size));
        1 + free.sum::<usize>() == self.words.len()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let free: usize = self.free.iter().map(Vec::capacity).sum();
        (self.words.capacity() + free) * size_of::<u32>()
    }
}
