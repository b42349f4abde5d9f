//! What the workers of one pipeline know of each other: whether all of them are done.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// A worker as the others see it, in a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Member {
    /// Packets given to other workers.
    handed: AtomicU64,
    /// Packets taken from other workers.
    taken: AtomicU64,
    /// Whether nothing would happen if nothing came from outside or from another worker.
    quiet: AtomicBool,
}

/// The workers of one pipeline.
#[derive(Debug)]
pub struct Team {
    members: Box<[Member]>,
    /// How many workers have come to the meeting.
    arrived: AtomicUsize,
}

impl Team {
    /// A team of `workers`.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self { members: (0..workers).map(|_| Member::default()).collect(), arrived: AtomicUsize::new(0) }
    }

    /// How many workers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether every worker is quiet and no packet is between two of them. Once that is so it stays so until something
    /// comes from outside: a quiet worker begins anew only by taking packets, and there are none to take.
    ///
    /// Two equal looks, one after the other, are what was the case at the moment between them (Mattern 1987, section 6).
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let look = || {
            let mut sums = [0u64; 2];
            for member in &self.members {
                if !member.quiet.load(Ordering::Acquire) {
                    return None;
                }
                sums[0] = sums[0].wrapping_add(member.handed.load(Ordering::Acquire));
                sums[1] = sums[1].wrapping_add(member.taken.load(Ordering::Acquire));
            }
            (sums[0] == sums[1]).then_some(sums)
        };
        let first = look();
        first.is_some() && first == look()
    }

    /// Waits until every worker has come here: a team meets once, when it ends.
    pub fn meet(&self) {
        self.arrived.fetch_add(1, Ordering::AcqRel);
        while self.arrived.load(Ordering::Acquire) < self.len() {
            std::hint::spin_loop();
            std::thread::yield_now();
        }
    }

    pub(crate) fn handed(&self, worker: usize, packets: usize) {
        let handed = &self.members[worker].handed;
        handed.store(handed.load(Ordering::Relaxed).wrapping_add(packets as u64), Ordering::Release);
    }

    pub(crate) fn taken(&self, worker: usize, packets: usize) {
        let member = &self.members[worker];
        // In this order: whoever sees that they were taken sees that the worker is at work.
        member.quiet.store(false, Ordering::Release);
        member.taken.store(member.taken.load(Ordering::Relaxed).wrapping_add(packets as u64), Ordering::Release);
    }

    pub(crate) fn set_quiet(&self, worker: usize, quiet: bool) {
        let known = &self.members[worker].quiet;
        if known.load(Ordering::Relaxed) != quiet {
            known.store(quiet, Ordering::Release);
        }
    }
}
