//! The shared state of the workers of one pipeline: whether all of them are quiet, and how they wake each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use forebay_units::Ticks;

use crate::drive::IdlePolicy;
use crate::wake::Wake;

/// The state of a worker for the others, in a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Member {
    /// Packets handed over to other workers.
    handed: AtomicU64,
    /// Packets taken from other workers.
    taken: AtomicU64,
    /// Whether the worker has nothing to do until packets come from outside or from another worker.
    quiet: AtomicBool,
    /// The earliest instant at which a packet that the worker holds may go on, in ticks. 0 if it holds none. `u64::MAX`
    /// if packets may still come from outside.
    waits: AtomicU64,
}

/// The workers of one pipeline.
#[derive(Debug)]
pub struct Team {
    members: Box<[Member]>,
    /// The workers' handles. Empty if workers do not park while packets can come: then a hand-over wakes no worker. A
    /// handle is not a field of `Member`: a worker that wakes another one would have to fetch a cache line that the
    /// other worker writes all the time.
    wakes: Box<[Arc<Wake>]>,
    /// The number of workers that have called [`meet`](Team::meet).
    arrived: AtomicUsize,
}

impl Team {
    /// Creates a team of `workers` workers that do not park while packets can come.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self {
            members: (0..workers).map(|_| Member { waits: AtomicU64::new(u64::MAX), ..Member::default() }).collect(),
            wakes: Box::default(),
            arrived: AtomicUsize::new(0),
        }
    }

    /// Creates a team of workers that wait by the policy `idle`. `wakes` are the handles of all workers, by number.
    #[must_use]
    pub fn with_policy(idle: &impl IdlePolicy, wakes: Vec<Arc<Wake>>) -> Self {
        let team = Self::new(wakes.len());
        if idle.parks_on_input() { Self { wakes: wakes.into(), ..team } } else { team }
    }

    /// Returns the number of workers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns whether there are no workers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns whether every worker is quiet and no packet is between two of them. This remains so until packets come
    /// from outside, because a quiet worker starts again only when it takes packets, and there are none to take.
    ///
    /// Looks at all workers twice. If both looks find the same numbers, no packet was between two workers at the moment
    /// between the looks (Mattern 1987, section 6).
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

    /// Returns the earliest instant at which a held packet may go on. `None` if none is held, or if packets may still
    /// come from outside.
    #[must_use]
    pub fn waits_until(&self) -> Option<Ticks> {
        let waits = self.members.iter().map(|member| member.waits.load(Ordering::Relaxed));
        let waits = waits.filter(|ticks| *ticks > 0).collect::<Vec<_>>();
        let may_come = waits.contains(&u64::MAX);
        waits.into_iter().min().filter(|_| !may_come).map(Ticks)
    }

    /// Waits until every worker has called this. Each worker may call it only once, because the count of calls is never
    /// reset.
    pub fn meet(&self) {
        self.arrived.fetch_add(1, Ordering::AcqRel);
        while self.arrived.load(Ordering::Acquire) < self.len() {
            std::hint::spin_loop();
            std::thread::yield_now();
        }
    }

    /// Wakes a worker to which packets have been handed over, if it parks while packets can come.
    #[inline]
    pub(crate) fn wake(&self, worker: usize) {
        if let Some(wake) = self.wakes.get(worker) {
            wake.wake();
        }
    }

    /// Counts packets that `worker` has handed over to other workers. Only this worker may call it.
    pub(crate) fn handed(&self, worker: usize, packets: usize) {
        let handed = &self.members[worker].handed;
        handed.store(handed.load(Ordering::Relaxed).wrapping_add(packets as u64), Ordering::Release);
    }

    /// Counts packets that `worker` has taken from other workers. The worker is then not quiet. Only this worker may
    /// call it.
    pub(crate) fn taken(&self, worker: usize, packets: usize) {
        let member = &self.members[worker];
        // The order matters: a thread that sees that packets were taken must also see that the worker is not quiet.
        member.quiet.store(false, Ordering::Release);
        member.taken.store(member.taken.load(Ordering::Relaxed).wrapping_add(packets as u64), Ordering::Release);
    }

    /// Sets the earliest instant at which a packet that `worker` holds may go on. 0 if it holds none. [`Ticks::NEVER`]
    /// if packets may still come to it from outside.
    pub(crate) fn set_waits(&self, worker: usize, until: Ticks) {
        // Usually the value does not change. Then the cache line need not be written.
        let known = &self.members[worker].waits;
        if known.load(Ordering::Relaxed) != until.0 {
            known.store(until.0, Ordering::Relaxed);
        }
    }

    /// Sets whether `worker` has nothing to do until packets come from outside or from another worker.
    pub(crate) fn set_quiet(&self, worker: usize, quiet: bool) {
        let known = &self.members[worker].quiet;
        if known.load(Ordering::Relaxed) != quiet {
            known.store(quiet, Ordering::Release);
        }
    }
}
