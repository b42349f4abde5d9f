//! A table of 16-bit numbers by row and column. A small table is flat; a larger one stores equal stretches of rows
//! once.
//!
//! Each rule changes a crossed table only in the rows and columns that the rule matches, so most of a row repeats the
//! rows around it. The table of a list with a thousand rules can have millions of entries, but few different stretches.

use std::collections::HashMap;

use super::key::CHUNK;

/// The number of columns of a stretch: half a cache line.
const STRETCH: usize = 16;
/// Tables of up to this many entries are stored flat: in the second-level cache, one read is faster than two.
const FLAT_ENTRIES: usize = 1 << 15;

/// A table of numbers by row and column.
#[derive(Clone, Debug)]
pub struct Grid {
    /// The number of entries of a row in a flat table; otherwise the number of stretches of a row.
    stride: u32,
    /// For each stretch of a row, the index of the equal stored stretch in `numbers`, counted in stretches. Empty in a
    /// flat table.
    stretches: Box<[u16]>,
    /// The entries, row by row, in a flat table; otherwise the different stretches, each once.
    numbers: Box<[u16]>,
}

/// A table that is being filled row by row.
pub struct GridBuilder {
    columns: usize,
    /// True if the finished table is flat.
    flat: bool,
    /// As in [`Grid`].
    stretches: Vec<u16>,
    /// As in [`Grid`].
    numbers: Vec<u16>,
    /// The index of each stored stretch in `numbers`, counted in stretches.
    seen: HashMap<[u16; STRETCH], u16>,
}

impl GridBuilder {
    /// Creates the builder of a table of this shape.
    pub fn new(rows: usize, columns: usize) -> GridBuilder {
        let flat = rows * columns <= FLAT_ENTRIES;
        GridBuilder { columns, flat, stretches: Vec::new(), numbers: Vec::new(), seen: HashMap::new() }
    }

    /// Adds the next row, which has a number for each column. Returns `None` if 65 536 different stretches are already
    /// stored.
    pub fn push_row(&mut self, row: &[u16]) -> Option<()> {
        debug_assert_eq!(row.len(), self.columns);
        if self.flat {
            self.numbers.extend_from_slice(row);
            return Some(());
        }
        for stretch in row.chunks(STRETCH) {
            let mut padded = [0; STRETCH];
            padded[..stretch.len()].copy_from_slice(stretch);
            let next = u16::try_from(self.seen.len());
            let start = match self.seen.get(&padded) {
                Some(&start) => start,
                None => {
                    let start = next.ok()?;
                    self.seen.insert(padded, start);
                    self.numbers.extend_from_slice(&padded);
                    start
                }
            };
            self.stretches.push(start);
        }
        Some(())
    }

    /// Returns the finished table.
    pub fn finish(self) -> Grid {
        let stride = if self.flat { self.columns } else { self.columns.div_ceil(STRETCH) };
        Grid { stride: stride as u32, stretches: self.stretches.into(), numbers: self.numbers.into() }
    }
}

impl Grid {
    /// Reads the number at each of at most [`CHUNK`] pairs of a row and a column.
    #[inline]
    pub fn look_up(&self, rows: &[u32], columns: &[u32], numbers: &mut [u32; CHUNK]) {
        let cells = numbers.iter_mut().zip(rows).zip(columns);
        if self.stretches.is_empty() {
            for ((number, row), column) in cells {
                *number = self.numbers[(row * self.stride + column) as usize].into();
            }
        } else {
            for ((number, row), column) in cells {
                let column = *column as usize;
                let stretch = self.stretches[(row * self.stride) as usize + column / STRETCH];
                *number = self.numbers[usize::from(stretch) * STRETCH + column % STRETCH].into();
            }
        }
    }

    /// Returns the memory taken, in bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.stretches) + size_of_val(&*self.numbers)
    }
}
