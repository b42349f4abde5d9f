//! Allocations whose size comes from a configuration. If the system has too little memory, they return an error. The
//! standard library's containers would abort the process instead.

use zerocopy::FromZeros;

use crate::{HUGE, Region};

/// The error for memory that the system cannot provide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system cannot provide {bytes} bytes and keep 16 MiB free")]
pub struct NoMemory {
    /// The requested size in bytes.
    pub bytes: usize,
}

impl NoMemory {
    /// Creates the error for `len` values of type `T`.
    #[must_use]
    pub const fn of<T>(len: usize) -> Self {
        Self { bytes: len.saturating_mul(size_of::<T>()) }
    }

    /// Returns the error for a whole allocation of `all` bytes, if this error is about a part of it. The size in the
    /// error is the larger of the two.
    #[must_use]
    pub const fn within(self, all: usize) -> Self {
        Self { bytes: if all > self.bytes { all } else { self.bytes } }
    }
}

/// Checks, after a list of `len` values was allocated, that the system still has as much free memory as a [`Region`]
/// leaves. Without free memory, a later small allocation would fail and abort the process. Lists of less than half a
/// huge page are not checked.
fn check_free_memory<T>(len: usize) -> Result<(), NoMemory> {
    check_rest(NoMemory::of::<T>(len), || Region::new(HUGE).is_ok())
}

/// Returns `error` if it is about a list of at least half a huge page and `has_more` returns `false`: the system has no
/// more memory.
fn check_rest(error: NoMemory, has_more: impl FnOnce() -> bool) -> Result<(), NoMemory> {
    if error.bytes < HUGE / 2 || has_more() { Ok(()) } else { Err(error) }
}

/// Creates an empty list with room for `len` values. Adding up to `len` values then allocates no memory.
///
/// # Errors
/// Returns [`NoMemory`] if the system has too little memory.
///
/// ```
/// let mut list = forebay_memory::room(2)?;
/// list.push(7_u64);
/// assert!(forebay_memory::room::<u64>(usize::MAX).is_err());
/// # Ok::<(), forebay_memory::NoMemory>(())
/// ```
pub fn room<T>(len: usize) -> Result<Vec<T>, NoMemory> {
    let mut list = Vec::new();
    list.try_reserve_exact(len).map_err(|_| NoMemory::of::<T>(len))?;
    check_free_memory::<T>(len)?;
    Ok(list)
}

/// Creates a slice of `len` copies of `value`.
///
/// # Errors
/// Returns [`NoMemory`] if the system has too little memory.
pub fn filled<T: Clone>(value: T, len: usize) -> Result<Box<[T]>, NoMemory> {
    let mut list = room(len)?;
    list.resize(len, value);
    Ok(list.into_boxed_slice())
}

/// Creates a slice of `len` zero values. The system provides its memory when it is first written. For a large slice
/// that is used from the start, use [`Zeroed`](crate::Zeroed).
///
/// # Errors
/// Returns [`NoMemory`] if the system has too little memory.
pub fn zeroed<T: FromZeros>(len: usize) -> Result<Box<[T]>, NoMemory> {
    let list = <[T]>::new_box_zeroed_with_elems(len).map_err(|_| NoMemory::of::<T>(len))?;
    check_free_memory::<T>(len)?;
    Ok(list)
}

/// Creates a slice of `len` values, each computed from its index. Memory that `value` itself allocates is not checked.
///
/// # Errors
/// Returns [`NoMemory`] if the system has too little memory.
pub fn numbered<T>(len: usize, value: impl FnMut(usize) -> T) -> Result<Box<[T]>, NoMemory> {
    let mut list = room(len)?;
    list.extend((0..len).map(value));
    Ok(list.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_list_must_leave_memory_and_a_small_one_need_not() {
        let list = |bytes| NoMemory::of::<u8>(bytes);
        let called = std::cell::Cell::new(false);
        let system = |has| {
            called.set(true);
            has
        };
        for bytes in [0, 1, HUGE / 2 - 1] {
            assert_eq!((check_rest(list(bytes), || system(false)), called.take()), (Ok(()), false), "{bytes}");
        }
        for bytes in [HUGE / 2, HUGE, usize::MAX] {
            assert_eq!((check_rest(list(bytes), || system(true)), called.take()), (Ok(()), true), "{bytes}");
            assert_eq!((check_rest(list(bytes), || system(false)), called.take()), (Err(list(bytes)), true), "{bytes}");
        }
        assert_eq!(check_free_memory::<u64>(HUGE / 16), Ok(()));
    }

    #[test]
    fn impossible_sizes_give_an_error() {
        assert_eq!(filled(7_u64, 3).as_deref(), Ok(&[7, 7, 7][..]));
        assert_eq!(numbered(3, |at| at * 2).as_deref(), Ok(&[0, 2, 4][..]));
        assert_eq!(zeroed::<u64>(3).as_deref(), Ok(&[0, 0, 0][..]));
        assert_eq!(room::<u64>(5).map(|list| list.capacity()), Ok(5));
        // Miri ends if the machine does not have the memory, and does not return an error.
        let impossible = [usize::MAX, isize::MAX as usize / 8];
        for len in impossible.into_iter().take(if cfg!(miri) { 1 } else { 2 }) {
            let error = NoMemory { bytes: len.saturating_mul(8) };
            assert_eq!(room::<u64>(len), Err(error));
            assert_eq!(filled(0_u64, len), Err(error));
            assert_eq!(zeroed::<u64>(len), Err(error));
            assert_eq!(numbered(len, |_| 0_u64), Err(error));
        }
        assert_eq!(NoMemory::of::<u64>(2).within(5).bytes, 16);
        assert_eq!(
            NoMemory::of::<u64>(2).within(50).to_string(),
            "the system cannot provide 50 bytes and keep 16 MiB free"
        );
    }
}
