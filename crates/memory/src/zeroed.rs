//! A slice of values that are zero at first, used as a table's memory.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use zerocopy::FromZeros;

use crate::{NoMemory, Region};

/// A slice whose values are zero until they are written. Its memory comes directly from the system, on huge pages if
/// the slice is large. The system provides the first 256 MiB when the slice is created.
#[derive(Debug)]
pub struct Zeroed<T> {
    /// The address of the first value: the start of the region.
    start: NonNull<T>,
    /// The number of values.
    len: usize,
    /// The memory, which is unmapped when the value is dropped.
    _region: Region,
}

// SAFETY: it owns its values, as a boxed slice does.
unsafe impl<T: Send> Send for Zeroed<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Zeroed<T> {}

impl<T: FromZeros + Copy> Zeroed<T> {
    /// Allocates `len` values of zero.
    ///
    /// # Errors
    /// Returns [`NoMemory`] if the system has too little memory.
    pub fn new(len: usize) -> Result<Self, NoMemory> {
        const { assert!(align_of::<T>() <= 4096, "the alignment of a page is sufficient") }
        let error = NoMemory::of::<T>(len);
        let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok()).ok_or(error)?;
        let region = Region::new(bytes).map_err(|_| error)?;
        region.populate();
        Ok(Self { start: region.at(0).cast(), len, _region: region })
    }
}

impl<T> Deref for Zeroed<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the region has room for `len` values and starts at a page, so they are aligned. All bytes are valid
        // values: zero is one (`new`, the only constructor, requires `FromZeros`), and only values have been written.
        // They are borrowed as `self` is. They are `Copy`, so no value is moved out, and none must be dropped.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Zeroed<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; `self` is borrowed for writing, so no other code accesses the values.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, FromZeros)]
    #[repr(C, align(64))]
    struct Line {
        word: u64,
        rest: [u64; 7],
    }

    #[test]
    fn all_is_zero_and_stays_as_it_is_written() {
        let many = if cfg!(miri) { 700 } else { 70_000 };
        for len in [0, 1, 63, many] {
            let mut lines = Zeroed::<Line>::new(len).expect("memory");
            assert_eq!(lines.len(), len);
            assert_eq!(lines.as_ptr().addr() % 64, 0);
            assert!(lines.iter().all(|line| line.word == 0 && line.rest == [0; 7]));
            for (at, line) in lines.iter_mut().enumerate() {
                line.word = at as u64;
            }
            assert!(lines.iter().enumerate().all(|(at, line)| line.word == at as u64));
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert!(Zeroed::<Line>::new(usize::MAX).is_err());
        // Miri ends if the machine does not have the memory, and does not return an error.
        if !cfg!(miri) {
            assert!(Zeroed::<Line>::new(isize::MAX as usize / size_of::<Line>()).is_err());
        }
    }
}
