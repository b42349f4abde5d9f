//! Page-aligned zeroed memory from the system.

#[cfg(miri)]
pub use allocated::Region;
#[cfg(not(miri))]
pub use mapped::Region;

#[cfg(not(miri))]
mod mapped {
    use std::ptr::NonNull;

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use crate::HUGE;

    /// The most memory that is asked for before it is needed, in bytes: what is beyond may never be.
    const POPULATED: usize = 1 << 28;

    /// The memory that a large region must leave, in bytes: a small allocation that fails afterwards ends the process.
    /// It is a multiple of a huge page, one of which aligns the region.
    const SPARE: usize = 8 * HUGE;

    /// Memory that is zero at first, begins at a page and goes back to the system with this value. It may be given to another
    /// thread; who reads and writes where is its owner's affair.
    #[derive(Debug)]
    pub struct Region(NonNull<u8>, usize);

    // SAFETY: the region is plain memory, which the owner alone hands out.
    unsafe impl Send for Region {}
    // SAFETY: as above: by a shared reference one gets a pointer, which takes `unsafe` to be used.
    unsafe impl Sync for Region {}

    impl Region {
        /// So many bytes, by transparent huge pages where that is half of one or more and the system has them.
        ///
        /// # Errors
        /// The system has no such memory.
        pub fn new(bytes: usize) -> std::io::Result<Self> {
            Self::map(bytes, MapFlags::empty())
        }

        /// The same, by huge pages that the system was told to keep for such use, as long as there are enough.
        ///
        /// # Errors
        /// The system has no such memory.
        pub fn reserved(bytes: usize) -> std::io::Result<Self> {
            // The kernel sets such pages aside at once, so a mapping that succeeds cannot fault later. They are no part
            // of the memory that small allocations come from: such a region need not leave any.
            Self::map(bytes.max(HUGE), MapFlags::HUGETLB).or_else(|_| Self::new(bytes))
        }

        fn map(bytes: usize, kind: MapFlags) -> std::io::Result<Self> {
            let huge = bytes >= HUGE / 2;
            let bytes = bytes.max(1).checked_next_multiple_of(if huge { HUGE } else { 1 });
            let bytes = bytes.ok_or(std::io::ErrorKind::OutOfMemory)?;
            let (read_write, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | kind);
            // Kernels before 6.7 let such a region begin at any small page, and it would have no huge ones at its ends.
            let more = if huge && kind.is_empty() { SPARE } else { 0 };
            let all = bytes.checked_add(more).ok_or(std::io::ErrorKind::OutOfMemory)?;
            // SAFETY: a new mapping at an address that the kernel chooses touches nothing that exists.
            let mut mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), all, read_write, flags)? };
            if more > 0 {
                let lead = mapped.addr().wrapping_neg() % HUGE;
                // SAFETY: both parts are of the mapping made above, which nobody else knows, and before and behind what is kept.
                unsafe {
                    let start = mapped.cast::<u8>().add(lead);
                    if lead > 0 {
                        let _ = munmap(mapped, lead);
                    }
                    let _ = munmap(start.add(bytes).cast(), more - lead);
                    mapped = start.cast();
                }
            }
            if huge {
                // Advice only: without transparent huge pages everything works, a little slower.
                // SAFETY: exactly the region mapped above; this advice does not change its content.
                let _ = unsafe { madvise(mapped, bytes, Advice::LinuxHugepage) };
            }
            let start = NonNull::new(mapped.cast()).ok_or(std::io::ErrorKind::OutOfMemory)?;
            Ok(Self(start, bytes))
        }

        /// Has the system give the first 256 MiB of it now: else whoever is the first to touch a page waits until the system has
        /// found and cleared it, up to half a millisecond for a huge one.
        pub fn populate(&self) {
            // Where the system cannot, its pages are waited for as they always would be.
            // SAFETY: inside the mapping; this advice does not change its content.
            let _ = unsafe { madvise(self.0.as_ptr().cast(), self.1.min(POPULATED), Advice::LinuxPopulateWrite) };
        }

        /// The address of a byte.
        ///
        /// # Panics
        /// An offset outside the region.
        #[must_use]
        pub fn at(&self, offset: usize) -> NonNull<u8> {
            assert!(offset < self.1, "an offset inside the region");
            // SAFETY: inside the mapping, by the assertion.
            unsafe { self.0.add(offset) }
        }
    }

    impl Drop for Region {
        fn drop(&mut self) {
            // SAFETY: exactly what was mapped; nobody has what the owner has given up.
            let _ = unsafe { munmap(self.0.as_ptr().cast(), self.1) };
        }
    }
}

/// The same from the Rust allocator, because the interpreter that checks the unsafe code knows no huge pages.
#[cfg(miri)]
mod allocated {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;

    /// Memory that is zero at first.
    #[derive(Debug)]
    pub struct Region(NonNull<u8>, Layout);

    // SAFETY: plain memory, which the owner alone hands out.
    unsafe impl Send for Region {}
    // SAFETY: as above.
    unsafe impl Sync for Region {}

    impl Region {
        /// So many bytes.
        pub fn new(bytes: usize) -> std::io::Result<Self> {
            let layout = Layout::from_size_align(bytes.max(1), 4096).map_err(|_| std::io::ErrorKind::OutOfMemory)?;
            // SAFETY: the size is not zero.
            let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(std::io::ErrorKind::OutOfMemory)?;
            Ok(Self(start, layout))
        }

        /// The same.
        pub fn reserved(bytes: usize) -> std::io::Result<Self> {
            Self::new(bytes)
        }

        /// Nothing: it is there.
        pub fn populate(&self) {}

        /// The address of a byte.
        pub fn at(&self, offset: usize) -> NonNull<u8> {
            assert!(offset < self.1.size(), "an offset inside the region");
            // SAFETY: inside the allocation, by the assertion.
            unsafe { self.0.add(offset) }
        }
    }

    impl Drop for Region {
        fn drop(&mut self) {
            // SAFETY: exactly what was allocated.
            unsafe { dealloc(self.0.as_ptr(), self.1) }
        }
    }
}
