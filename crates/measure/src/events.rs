//! Events that the processor and the kernel count for a thread: instructions, cycles, misses. Each may be unavailable,
//! with a reason.
//!
//! Most virtual machines and many hosts provide no hardware counters. The result is then [`Unavailable`], which callers
//! report without failing. The counters of one [`Group`] are read together and cover the same spans. If there are more
//! events than counters in the processor, the kernel lets groups take turns, and [`Reading::since`] corrects for that.

mod own;
mod page;
mod perf;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use own::OwnGroup;
pub use page::Unread;
pub use perf::PerfGroup;

/// The most events in a group.
pub const MOST: usize = 8;

/// An event. The processor's events are counted only in user space, where workers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Instructions retired.
    Instructions,
    /// Cycles of the core's own clock.
    CoreCycles,
    /// Loads that missed the first data cache.
    L1dMisses,
    /// Accesses that missed the last cache.
    LlcMisses,
    /// Mispredicted branches.
    BranchMisses,
    /// Cycles in which nothing was issued because instructions were missing.
    StalledFrontend,
    /// Cycles in which nothing retired because results were missing.
    StalledBackend,
    /// Nanoseconds for which the thread had a core. The kernel counts them, so the event needs no counter of the
    /// processor.
    TaskClock,
    /// The number of times that the thread gave up or lost its core. The kernel counts them.
    ContextSwitches,
    /// The number of page faults, including those on present pages, for example for copy on write. The kernel counts
    /// them.
    PageFaults,
}

impl Event {
    /// Returns the event's name, as in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Instructions => "instructions",
            Self::CoreCycles => "core_cycles",
            Self::L1dMisses => "l1d_misses",
            Self::LlcMisses => "llc_misses",
            Self::BranchMisses => "branch_misses",
            Self::StalledFrontend => "stalled_frontend",
            Self::StalledBackend => "stalled_backend",
            Self::TaskClock => "task_clock",
            Self::ContextSwitches => "context_switches",
            Self::PageFaults => "page_faults",
        }
    }

    /// Returns true if the kernel counts the event, and false if the processor does.
    #[must_use]
    pub fn is_software(self) -> bool {
        matches!(self, Self::TaskClock | Self::ContextSwitches | Self::PageFaults)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The reasons why an event cannot be counted or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The machine has no such counter: a virtual machine without counters, or a processor without this one.
    #[error("this machine has no counter for {0} (many virtual machines have none)")]
    None(Event),
    /// The system does not allow it.
    #[error(
        "counting {event} is not allowed{}: run as root, give the program CAP_PERFMON, or run \
         `sysctl kernel.perf_event_paranoid=2`",
        paranoid.map_or_else(String::new, |level| format!(" (kernel.perf_event_paranoid is {level})"))
    )]
    Forbidden {
        /// The event.
        event: Event,
        /// `kernel.perf_event_paranoid`, if it can be read.
        paranoid: Option<i32>,
    },
    /// The thread has ended, or never existed.
    #[error("there is no thread {0}")]
    NoThread(u32),
    /// The event is counted, but programs cannot read it without a system call.
    #[error("{event} cannot be read in user space: {why}")]
    Unread {
        /// The event.
        event: Event,
        /// The reason.
        why: Unread,
    },
    /// Any other error.
    #[error("{event} cannot be counted: {message}")]
    System {
        /// The event.
        event: Event,
        /// The system's error message.
        message: String,
    },
}

/// Events of one thread that are counted together. Reading allocates no memory and does not stop the counters.
pub trait Group<const N: usize>: Send {
    /// Reads all counters at once into `reading`.
    ///
    /// # Errors
    /// Returns the system's error. Then `reading` may be incomplete.
    fn read(&mut self, reading: &mut Reading<N>) -> std::io::Result<()>;
}

/// The values of a group's counters at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading<const N: usize> {
    /// Nanoseconds for which the group was enabled.
    pub enabled: u64,
    /// Nanoseconds for which the group was counting. This is less than `enabled` if the group took turns with other
    /// groups.
    pub running: u64,
    /// The counts, in the group's order.
    pub counts: [u64; N],
}

impl<const N: usize> Default for Reading<N> {
    fn default() -> Self {
        Self { enabled: 0, running: 0, counts: [0; N] }
    }
}

impl<const N: usize> Reading<N> {
    /// Returns the counts in the span since `earlier`, a reading of the same group. If groups took turns and this group
    /// counted only part of the span, the counts are scaled up to the whole span (perf_event_open(2), `time_running`).
    /// Returns `None` if this group did not count at all.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Option<[f64; N]> {
        let (enabled, running) =
            (self.enabled.wrapping_sub(earlier.enabled), self.running.wrapping_sub(earlier.running));
        if running == 0 {
            return None;
        }
        let scale = if enabled > running { enabled as f64 / running as f64 } else { 1.0 };
        let mut counts = [0.0; N];
        for (count, (now, before)) in counts.iter_mut().zip(self.counts.iter().zip(earlier.counts)) {
            *count = now.wrapping_sub(before) as f64 * scale;
        }
        Some(counts)
    }

    /// Returns the fraction of the span since `earlier` in which the group counted, or 0 if it was not enabled.
    #[must_use]
    pub fn share(&self, earlier: &Self) -> f64 {
        let (enabled, running) =
            (self.enabled.wrapping_sub(earlier.enabled), self.running.wrapping_sub(earlier.running));
        if enabled == 0 { 0.0 } else { (running as f64 / enabled as f64).min(1.0) }
    }
}

#[cfg(test)]
mod tests;
