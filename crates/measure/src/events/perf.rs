//! Counters of the Linux kernel's perf events, for any thread of this process by its number.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Hardware, Software};
use perf_event::{Builder, Counter, ReadFormat};
use rustix::io::Errno;

use super::{Event, Group, MOST, Reading, Unavailable};

/// A group that the kernel counts, from the moment of creation.
#[derive(Debug)]
pub struct PerfGroup<const N: usize> {
    /// The first event's counter. A read from it returns the counts of all events of the group.
    leader: File,
    /// The other counters, which count as long as they are open.
    _others: Vec<Counter>,
}

impl<const N: usize> PerfGroup<N> {
    /// Creates a group that counts `events` (at least one) for the thread `tid` (0: the calling thread), on any core.
    ///
    /// # Errors
    /// Returns [`Unavailable`] for the first event that cannot be counted, or cannot be in one group with the earlier
    /// ones.
    pub fn open(events: [Event; N], tid: u32) -> Result<Self, Unavailable> {
        let (leader, others) = counters(events, tid, false)?;
        // SAFETY: the counter releases its descriptor, which is open and has no other owner.
        let leader = unsafe { OwnedFd::from_raw_fd(leader.into_raw_fd()) };
        Ok(Self { leader: File::from(leader), _others: others })
    }
}

impl<const N: usize> Group<N> for PerfGroup<N> {
    fn read(&mut self, reading: &mut Reading<N>) -> io::Result<()> {
        // Number of events, time enabled, time running; then the count and the identifier of each event.
        let mut words = [[0; 8]; 3 + 2 * MOST];
        let (words, _) = words.split_at_mut(3 + 2 * N);
        let read = self.leader.read(words.as_flattened_mut())?;
        let mut numbers = words.iter().map(|word| u64::from_ne_bytes(*word));
        let number = numbers.next();
        if read != (3 + 2 * N) * 8 || number != Some(N as u64) {
            return Err(io::Error::other("the kernel returned another number of events"));
        }
        reading.enabled = numbers.next().unwrap_or(0);
        reading.running = numbers.next().unwrap_or(0);
        reading.counts.iter_mut().zip(numbers.step_by(2)).for_each(|(count, number)| *count = number);
        Ok(())
    }
}

/// Opens counters of `events` for the thread `tid` (0: the calling thread) that count together. Returns the counter of
/// the first event, which is the group's leader, and the others in the order of `events`. With `pinned`, the group does
/// not take turns with other events.
pub(super) fn counters<const N: usize>(
    events: [Event; N],
    tid: u32,
    pinned: bool,
) -> Result<(Counter, Vec<Counter>), Unavailable> {
    const { assert!(N >= 1 && N <= MOST) };
    let map_error = |event| move |error| unavailable(event, tid, &error);
    let mut leader = builder(events[0], tid).pinned(pinned).build().map_err(map_error(events[0]))?;
    let mut others = Vec::new();
    for event in &events[1..] {
        others.push(builder(*event, tid).build_with_group(&mut leader).map_err(map_error(*event))?);
    }
    leader.enable_group().map_err(map_error(events[0]))?;
    Ok((leader, others))
}

/// Returns the options of a counter of this event. All counters of a group need the same read format.
fn builder(event: Event, tid: u32) -> Builder<'static> {
    let misses = |which| Cache { which, operation: CacheOp::READ, result: CacheResult::MISS };
    let mut builder = match event {
        Event::Instructions => Builder::new(Hardware::INSTRUCTIONS),
        Event::CoreCycles => Builder::new(Hardware::CPU_CYCLES),
        Event::L1dMisses => Builder::new(misses(CacheId::L1D)),
        Event::LlcMisses => Builder::new(Hardware::CACHE_MISSES),
        Event::BranchMisses => Builder::new(Hardware::BRANCH_MISSES),
        Event::StalledFrontend => Builder::new(Hardware::STALLED_CYCLES_FRONTEND),
        Event::StalledBackend => Builder::new(Hardware::STALLED_CYCLES_BACKEND),
        Event::TaskClock => Builder::new(Software::TASK_CLOCK),
        Event::ContextSwitches => Builder::new(Software::CONTEXT_SWITCHES),
        Event::PageFaults => Builder::new(Software::PAGE_FAULTS),
    };
    builder
        .read_format(ReadFormat::GROUP | ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING)
        .observe_pid(tid.cast_signed())
        // Events of the kernel occur in kernel mode. Events of the processor are counted only in user mode.
        .exclude_kernel(!event.is_software())
        .exclude_hv(true);
    builder
}

/// Converts an error of perf_event_open(2).
fn unavailable(event: Event, tid: u32, error: &io::Error) -> Unavailable {
    match Errno::from_io_error(error) {
        // A processor without the event, a machine without a counting unit, or an event that this unit does not
        // support.
        Some(Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP) => Unavailable::None(event),
        Some(Errno::ACCESS | Errno::PERM) => {
            let level = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
            Unavailable::Forbidden { event, paranoid: level.ok().and_then(|level| level.trim().parse().ok()) }
        }
        Some(Errno::SRCH) => Unavailable::NoThread(tid),
        _ => Unavailable::System { event, message: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_errors_become_reasons() {
        let reason = |errno: Errno| unavailable(Event::CoreCycles, 7, &errno.into());
        for errno in [Errno::NOENT, Errno::NODEV, Errno::OPNOTSUPP] {
            assert_eq!(reason(errno), Unavailable::None(Event::CoreCycles));
        }
        assert_eq!(reason(Errno::SRCH).to_string(), "there is no thread 7");
        let map_error = reason(Errno::ACCESS).to_string();
        assert!(
            map_error.starts_with("counting core_cycles is not allowed") && map_error.contains("perf_event_paranoid=2"),
            "{map_error}"
        );
        assert!(reason(Errno::MFILE).to_string().starts_with("core_cycles cannot be counted: "));
    }
}
