//! What a processor and the kernel count of a thread: instructions, cycles, misses; each may be unavailable, with the reason.
//!
//! Most virtual machines and many hosts give no hardware counters. That is no error: whoever asks gets [`Unavailable`] and
//! says so. Counters of one [`Group`] are read together and count over the same spans; where there are more events than the
//! processor has counters, the kernel lets groups take turns, and [`Reading::since`] puts that right.

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

/// What is counted. Of the processor's events only what happens in user space is: what workers do.
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
    /// Branches foretold wrongly.
    BranchMisses,
    /// Cycles in which nothing was issued for want of instructions.
    StalledFrontend,
    /// Cycles in which nothing retired for want of results.
    StalledBackend,
    /// Nanoseconds that the thread had a core; the kernel's, so that there are always some.
    TaskClock,
    /// How often the thread gave its core up, or lost it; the kernel's.
    ContextSwitches,
    /// Pages that were touched and not there; the kernel's.
    PageFaults,
}

impl Event {
    /// Its name, as in JSON.
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

    /// Whether the kernel counts it, not the processor.
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

/// Why an event cannot be counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The machine has no such counter: a virtual machine without any, a processor without this one.
    #[error("this machine has no counter of {0} (a virtual machine often has none)")]
    None(Event),
    /// The system does not allow it.
    #[error("counting {event} is not allowed{}: run as root, give CAP_PERFMON, or `sysctl kernel.perf_event_paranoid=2`",
        paranoid.map_or_else(String::new, |level| format!(" (kernel.perf_event_paranoid is {level})")))]
    Forbidden {
        /// The event.
        event: Event,
        /// `kernel.perf_event_paranoid`, where it can be read.
        paranoid: Option<i32>,
    },
    /// The thread has gone.
    #[error("there is no thread {0}")]
    NoThread(u32),
    /// It is counted, but programs cannot read it by themselves.
    #[error("{event} cannot be read in user space: {why}")]
    Unread {
        /// The event.
        event: Event,
        /// Why not.
        why: Unread,
    },
    /// Anything else.
    #[error("{event} cannot be counted: {told}")]
    System {
        /// The event.
        event: Event,
        /// What the system said.
        told: String,
    },
}

/// Events that are counted together, of one thread. Reading neither allocates nor stops what is counted.
pub trait Group<const N: usize>: Send {
    /// Reads all of them at once into `reading`.
    ///
    /// # Errors
    /// What the system says.
    fn read(&mut self, reading: &mut Reading<N>) -> std::io::Result<()>;
}

/// What a group's counters say at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading<const N: usize> {
    /// Nanoseconds that the group was to count.
    pub enabled: u64,
    /// Nanoseconds that it did.
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
    /// The counts of the span since `earlier`, of the same group. Where it counted for a part of the span only, because groups
    /// took turns, they are scaled up (perf_event_open(2), `time_running`); `None` where it did not count at all.
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

    /// Which share of the span since `earlier` the group counted.
    #[must_use]
    pub fn share(&self, earlier: &Self) -> f64 {
        let (enabled, running) =
            (self.enabled.wrapping_sub(earlier.enabled), self.running.wrapping_sub(earlier.running));
        if enabled == 0 { 0.0 } else { (running as f64 / enabled as f64).min(1.0) }
    }
}

#[cfg(test)]
mod tests;
