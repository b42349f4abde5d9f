//! What is set aside by a number that a configuration says: refused where the system has no memory for it, where the standard
//! library's own containers would end the process, and with it all that runs in it.

use zerocopy::FromZeros;

use crate::{HUGE, Region};

/// The system has no memory for what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system has no {bytes} bytes for it, or would keep less than 16 MiB")]
pub struct NoMemory {
    /// How much it was, in bytes.
    pub bytes: usize,
}

impl NoMemory {
    /// So many values of this kind.
    #[must_use]
    pub const fn of<T>(len: usize) -> Self {
        Self { bytes: len.saturating_mul(size_of::<T>()) }
    }

    /// The same, as part of something that takes so much in all.
    #[must_use]
    pub const fn within(self, all: usize) -> Self {
        Self { bytes: if all > self.bytes { all } else { self.bytes } }
    }
}

/// Refuses a large list that leaves less memory than a [`Region`] leaves: the small allocations that follow end the
/// process where they fail.
fn leaves_enough<T>(len: usize) -> Result<(), NoMemory> {
    leaves(NoMemory::of::<T>(len), || Region::new(HUGE).is_ok())
}

/// The same where `has_more` says whether the system has more memory.
fn leaves(lack: NoMemory, has_more: impl FnOnce() -> bool) -> Result<(), NoMemory> {
    if lack.bytes < HUGE / 2 || has_more() { Ok(()) } else { Err(lack) }
}

/// An empty list with room for so many values, which it takes without asking the system for more.
///
/// # Errors
/// [`NoMemory`].
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
    leaves_enough::<T>(len)?;
    Ok(list)
}

/// So many values, all of them this one.
///
/// # Errors
/// [`NoMemory`].
pub fn filled<T: Clone>(value: T, len: usize) -> Result<Box<[T]>, NoMemory> {
    let mut list = room(len)?;
    list.resize(len, value);
    Ok(list.into_boxed_slice())
}

/// So many values that are zero, in memory that the system gives as it is written to; what is large and used from the start is a
/// [`Zeroed`](crate::Zeroed).
///
/// # Errors
/// [`NoMemory`].
pub fn zeroed<T: FromZeros>(len: usize) -> Result<Box<[T]>, NoMemory> {
    let list = <[T]>::new_box_zeroed_with_elems(len).map_err(|_| NoMemory::of::<T>(len))?;
    leaves_enough::<T>(len)?;
    Ok(list)
}

/// So many values, each of its number.
///
/// # Errors
/// [`NoMemory`].
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
        let asked = std::cell::Cell::new(false);
        let answer = |has| {
            asked.set(true);
            has
        };
        for bytes in [0, 1, HUGE / 2 - 1] {
            assert_eq!((leaves(list(bytes), || answer(false)), asked.take()), (Ok(()), false), "{bytes}");
        }
        for bytes in [HUGE / 2, HUGE, usize::MAX] {
            assert_eq!((leaves(list(bytes), || answer(true)), asked.take()), (Ok(()), true), "{bytes}");
            assert_eq!((leaves(list(bytes), || answer(false)), asked.take()), (Err(list(bytes)), true), "{bytes}");
        }
        assert_eq!(leaves_enough::<u64>(HUGE / 16), Ok(()));
    }

    #[test]
    fn what_no_system_has_is_an_answer() {
        assert_eq!(filled(7_u64, 3).as_deref(), Ok(&[7, 7, 7][..]));
        assert_eq!(numbered(3, |at| at * 2).as_deref(), Ok(&[0, 2, 4][..]));
        assert_eq!(zeroed::<u64>(3).as_deref(), Ok(&[0, 0, 0][..]));
        assert_eq!(room::<u64>(5).map(|list| list.capacity()), Ok(5));
        for len in [usize::MAX, isize::MAX as usize / 8] {
            let lack = NoMemory { bytes: len.saturating_mul(8) };
            assert_eq!(room::<u64>(len), Err(lack));
            assert_eq!(filled(0_u64, len), Err(lack));
            assert_eq!(zeroed::<u64>(len), Err(lack));
            assert_eq!(numbered(len, |_| 0_u64), Err(lack));
        }
        assert_eq!(NoMemory::of::<u64>(2).within(5).bytes, 16);
        assert_eq!(
            NoMemory::of::<u64>(2).within(50).to_string(),
            "the system has no 50 bytes for it, or would keep less than 16 MiB"
        );
    }
}
