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

    /// The largest part of a region that the system is made to provide in advance, in bytes. A larger region may never
    /// be used completely, so its rest is provided when it is first used.
    const POPULATED: usize = 1 << 28;

    /// The amount of free memory that a large region must leave, in bytes. Without it, a later small allocation would
    /// fail and abort the process. It is a multiple of a huge page, and up to one huge page of it is used to align the
    /// region.
    const SPARE: usize = 8 * HUGE;

    /// Zeroed memory that starts at a page and is unmapped when the value is dropped. It can be sent to another thread.
    /// The owner decides which code reads and writes it.
    #[derive(Debug)]
    pub struct Region(NonNull<u8>, usize);

    // SAFETY: the region is plain memory, and only the owner hands out pointers to it.
    unsafe impl Send for Region {}
    // SAFETY: as above; a shared reference only gives a pointer, whose use needs `unsafe`.
    unsafe impl Sync for Region {}

    impl Region {
        /// Allocates `bytes` bytes. If this is at least half a huge page, the region uses transparent huge pages if the
        /// system has them, and its size is rounded up to whole huge pages.
        ///
        /// # Errors
        /// Returns an error if the system has too little memory.
        pub fn new(bytes: usize) -> std::io::Result<Self> {
            Self::map(bytes, MapFlags::empty())
        }

        /// Allocates a region of at least one huge page, on huge pages that the system has reserved for this use. If
        /// there are too few of them, allocates `bytes` bytes as [`new`](Self::new) does.
        ///
        /// # Errors
        /// Returns an error if the system has too little memory.
        pub fn reserved(bytes: usize) -> std::io::Result<Self> {
            // The kernel reserves these pages at once, so no access can fail later. Small allocations do not use such
            // pages, so the region does not have to leave free memory.
            Self::map(bytes.max(HUGE), MapFlags::HUGETLB).or_else(|_| Self::new(bytes))
        }

        /// Maps a region. `kind` is empty, or `HUGETLB` for reserved huge pages.
        fn map(bytes: usize, kind: MapFlags) -> std::io::Result<Self> {
            let huge = bytes >= HUGE / 2;
            let bytes = bytes.max(1).checked_next_multiple_of(if huge { HUGE } else { 1 });
            let bytes = bytes.ok_or(std::io::ErrorKind::OutOfMemory)?;
            let (read_write, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | kind);
            // Kernels before 6.7 may start such a region at any small page. Its ends would then not be on huge pages.
            // Therefore, `more` bytes are mapped in addition, and the ends are cut off.
            let more = if huge && kind.is_empty() { SPARE } else { 0 };
            let all = bytes.checked_add(more).ok_or(std::io::ErrorKind::OutOfMemory)?;
            // SAFETY: a new mapping at an address that the kernel chooses affects no existing mapping.
            let mut mapped = unsafe { mmap_anonymous(std::ptr::null_mut(), all, read_write, flags)? };
            if more > 0 {
                let lead = mapped.addr().wrapping_neg() % HUGE;
                // SAFETY: both parts belong to the new mapping, which no other code knows, and lie before and after the
                // kept part.
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
                // This is only advice: without transparent huge pages, accesses are slightly slower. SAFETY: the range
                // is exactly the region mapped above; this advice does not change its content.
                let _ = unsafe { madvise(mapped, bytes, Advice::LinuxHugepage) };
            }
            let start = NonNull::new(mapped.cast()).ok_or(std::io::ErrorKind::OutOfMemory)?;
            Ok(Self(start, bytes))
        }

        /// Makes the system provide the first 256 MiB of the memory now. Without this, the first access to a page waits
        /// until the system has found and cleared the page, which takes up to half a millisecond for a huge page.
        pub fn populate(&self) {
            // If the system does not support this, the first accesses wait as usual.
            // SAFETY: the range is inside the mapping; this advice does not change its content.
            let _ = unsafe { madvise(self.0.as_ptr().cast(), self.1.min(POPULATED), Advice::LinuxPopulateWrite) };
        }

        /// Returns the address of the byte at `offset`.
        ///
        /// # Panics
        /// Panics if the offset is outside the region.
        #[must_use]
        pub fn at(&self, offset: usize) -> NonNull<u8> {
            assert!(offset < self.1, "an offset inside the region");
            // SAFETY: the address is inside the mapping, by the assertion.
            unsafe { self.0.add(offset) }
        }
    }

    impl Drop for Region {
        fn drop(&mut self) {
            // SAFETY: this is exactly the mapped range, and the owner has given it up.
            let _ = unsafe { munmap(self.0.as_ptr().cast(), self.1) };
        }
    }
}

/// The same type with the Rust allocator, because Miri does not support huge pages.
#[cfg(miri)]
mod allocated {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;

    /// Zeroed memory.
    #[derive(Debug)]
    pub struct Region(NonNull<u8>, Layout);

    // SAFETY: plain memory; only the owner hands out pointers to it.
    unsafe impl Send for Region {}
    // SAFETY: as above.
    unsafe impl Sync for Region {}

    impl Region {
        /// Allocates `bytes` bytes.
        pub fn new(bytes: usize) -> std::io::Result<Self> {
            let layout = Layout::from_size_align(bytes.max(1), 4096).map_err(|_| std::io::ErrorKind::OutOfMemory)?;
            // SAFETY: the size is not zero.
            let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(std::io::ErrorKind::OutOfMemory)?;
            Ok(Self(start, layout))
        }

        /// Does the same as [`new`](Self::new).
        pub fn reserved(bytes: usize) -> std::io::Result<Self> {
            Self::new(bytes)
        }

        /// Does nothing: the memory is already present.
        pub fn populate(&self) {}

        /// Returns the address of the byte at `offset`.
        pub fn at(&self, offset: usize) -> NonNull<u8> {
            assert!(offset < self.1.size(), "an offset inside the region");
            // SAFETY: the address is inside the allocation, by the assertion.
            unsafe { self.0.add(offset) }
        }
    }

    impl Drop for Region {
        fn drop(&mut self) {
            // SAFETY: the memory was allocated with exactly this layout.
            unsafe { dealloc(self.0.as_ptr(), self.1) }
        }
    }
}
