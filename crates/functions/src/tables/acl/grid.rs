//! A table of 16-bit numbers by row and column, flat while small and otherwise with equal stretches of rows stored once.
//!
//! A rule changes a crossed table only where its own fields lie, so most of a row repeats the rows around it: a list of
//! 1 000 rules crosses into millions of entries, of which few stretches differ.

use std::collections::HashMap;

use super::key::CHUNK;

/// Columns of a stretch: half a cache line.
const STRETCH: usize = 16;
/// Up to so many entries a table is stored flat: within the second-level cache one read is better than two.
const FLAT_ENTRIES: usize = 1 << 15;

/// The table.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Entries, or stretches, from one row to the next.
    stride: u32,
    /// Where each stretch begins in `numbers`, in stretches; empty in a flat table.
    stretches: Box<[u16]>,
    numbers: Box<[u16]>,
}

/// A table being filled row by row.
pub struct GridBuilder {
    columns: usize,
    flat: bool,
    stretches: Vec<u16>,
    numbers: Vec<u16>,
    seen: HashMap<[u16; STRETCH], u16>,
}

impl GridBuilder {
    /// A table of this shape.
    pub fn new(rows: usize, columns: usize) -> GridBuilder {
        let flat = rows * columns <= FLAT_ENTRIES;
        GridBuilder { columns, flat, stretches: Vec::new(), numbers: Vec::new(), seen: HashMap::new() }
    }

    /// Adds the next row, of as many numbers as there are columns; none when 65 536 different stretches are stored.
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

    /// The finished table.
    pub fn finish(self) -> Grid {
        let stride = if self.flat { self.columns } else { self.columns.div_ceil(STRETCH) };
        Grid { stride: stride as u32, stretches: self.stretches.into(), numbers: self.numbers.into() }
    }
}

impl Grid {
    /// The numbers at as many rows and columns, at most [`CHUNK`].
    #[inline]
    pub fn look_up(&self, rows: &[u32], columns: &[u32], numbers: &mut [u32; CHUNK]) {
        let places = numbers.iter_mut().zip(rows).zip(columns);
        if self.stretches.is_empty() {
            for ((number, row), column) in places {
                *number = self.numbers[(row * self.stride + column) as usize].into();
            }
        } else {
            for ((number, row), column) in places {
                let column = *column as usize;
                let stretch = self.stretches[(row * self.stride) as usize + column / STRETCH];
                *number = self.numbers[usize::from(stretch) * STRETCH + column % STRETCH].into();
            }
        }
    }

    /// Bytes taken.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.stretches) + size_of_val(&*self.numbers)
    }
}
