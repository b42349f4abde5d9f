//! Counters of the Linux kernel's perf events, of any thread of this process by its number.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};

use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Hardware, Software};
use perf_event::{Builder, Counter, ReadFormat};
use rustix::io::Errno;

use super::{Event, Group, MOST, Reading, Unavailable};

/// A group that the kernel counts. It counts from the moment it is made.
#[derive(Debug)]
pub struct PerfGroup<const N: usize> {
    /// The first event's counter, by which all are read.
    leader: File,
    /// The others, which count as long as they are open.
    _others: Vec<Counter>,
}

impl<const N: usize> PerfGroup<N> {
    /// Counts `events`, at least one, of the thread `tid`, on whichever core it runs.
    ///
    /// # Errors
    /// [`Unavailable`]: of the first event that cannot be counted, or cannot be in one group with those before.
    pub fn open(events: [Event; N], tid: u32) -> Result<Self, Unavailable> {
        let (leader, others) = counters(events, tid, false)?;
        // SAFETY: the counter gives up its descriptor, which is open and nobody else's.
        let leader = unsafe { OwnedFd::from_raw_fd(leader.into_raw_fd()) };
        Ok(Self { leader: File::from(leader), _others: others })
    }
}

impl<const N: usize> Group<N> for PerfGroup<N> {
    fn read(&mut self, reading: &mut Reading<N>) -> io::Result<()> {
        // How many, time enabled, time running; then of each event its count and its identifier.
        let mut words = [[0; 8]; 3 + 2 * MOST];
        let (words, _) = words.split_at_mut(3 + 2 * N);
        let read = self.leader.read(words.as_flattened_mut())?;
        let mut numbers = words.iter().map(|word| u64::from_ne_bytes(*word));
        let number = numbers.next();
        if read != (3 + 2 * N) * 8 || number != Some(N as u64) {
            return Err(io::Error::other("the kernel tells of another number of events"));
        }
        reading.enabled = numbers.next().unwrap_or(0);
        reading.running = numbers.next().unwrap_or(0);
        reading.counts.iter_mut().zip(numbers.step_by(2)).for_each(|(count, number)| *count = number);
        Ok(())
    }
}

/// Counters of `events` of the thread `tid` (0: the calling one) that count together, the leader and the others; `pinned`: the
/// kernel lets no others take turns with them.
pub(super) fn counters<const N: usize>(
    events: [Event; N],
    tid: u32,
    pinned: bool,
) -> Result<(Counter, Vec<Counter>), Unavailable> {
    const { assert!(N >= 1 && N <= MOST) };
    let told = |event| move |error| unavailable(event, tid, &error);
    let mut leader = builder(events[0], tid).pinned(pinned).build().map_err(told(events[0]))?;
    let mut others = Vec::new();
    for event in &events[1..] {
        others.push(builder(*event, tid).build_with_group(&mut leader).map_err(told(*event))?);
    }
    leader.enable_group().map_err(told(events[0]))?;
    Ok((leader, others))
}

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
        // The kernel's own events happen in the kernel.
        .exclude_kernel(!event.is_software())
        .exclude_hv(true);
    builder
}

/// What an error of perf_event_open(2) means.
fn unavailable(event: Event, tid: u32, error: &io::Error) -> Unavailable {
    match Errno::from_io_error(error) {
        // A processor without the event; a machine without a unit that counts; an event that this unit cannot be asked for.
        Some(Errno::NOENT | Errno::NODEV | Errno::OPNOTSUPP) => Unavailable::None(event),
        Some(Errno::ACCESS | Errno::PERM) => {
            let level = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid");
            Unavailable::Forbidden { event, paranoid: level.ok().and_then(|level| level.trim().parse().ok()) }
        }
        Some(Errno::SRCH) => Unavailable::NoThread(tid),
        _ => Unavailable::System { event, told: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_becomes_a_reason() {
        let reason = |errno: Errno| unavailable(Event::CoreCycles, 7, &errno.into());
        for errno in [Errno::NOENT, Errno::NODEV, Errno::OPNOTSUPP] {
            assert_eq!(reason(errno), Unavailable::None(Event::CoreCycles));
        }
        assert_eq!(reason(Errno::SRCH).to_string(), "there is no thread 7");
        let told = reason(Errno::ACCESS).to_string();
        assert!(
            told.starts_with("counting core_cycles is not allowed") && told.contains("perf_event_paranoid=2"),
            "{told}"
        );
        assert!(reason(Errno::MFILE).to_string().starts_with("core_cycles cannot be counted: "));
    }
}
