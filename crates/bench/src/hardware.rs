//! Reads the processor's counters for workers in a span: instructions, core cycles, cache misses, stalls.
//!
//! Each worker's thread is counted from outside: the measuring thread opens the counters by thread number before the
//! span, and reads them at both ends. The worker does no additional work and runs at its normal speed. So the counts
//! cover whole spans, idle turns included. The figures of busy turns, modules and ports come from the worker's own
//! meter ([`ticks`](crate::ticks)).

use std::collections::BTreeMap;

use forebay_instance::WorkerThread;
use forebay_measure::events::{Event, Group, PerfGroup, Reading, Unavailable};
use serde::{Deserialize, Serialize};

/// The events that are counted together, because their ratio is needed.
const PAIR: [Event; 2] = [Event::Instructions, Event::CoreCycles];
/// The events that are counted one by one. If the processor has too few counters, the kernel multiplexes them.
const SINGLES: [Event; 5] =
    [Event::L1dMisses, Event::LlcMisses, Event::BranchMisses, Event::StalledFrontend, Event::StalledBackend];

/// Counters of worker threads.
pub struct Watch {
    workers: Vec<Watched>,
    unavailable: BTreeMap<Event, Unavailable>,
}

/// The counters of one worker.
struct Watched {
    worker: usize,
    /// `None` if the events cannot be counted.
    pair: Option<Counting<2>>,
    singles: Vec<Counting<1>>,
}

/// A group of events, and its reading at the beginning of the span.
struct Counting<const N: usize> {
    events: [Event; N],
    group: Box<dyn Group<N>>,
    before: Reading<N>,
    /// The error, if the group could not be read when counting was restarted.
    restarted: std::io::Result<()>,
}

/// The counts of a span.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HardwareCounts {
    /// The counts by worker number. Missing events have no entry.
    pub workers: Vec<(usize, BTreeMap<Event, f64>)>,
    /// The reasons for missing events.
    pub unavailable: BTreeMap<Event, String>,
}

/// Figures of the whole chain. Unknown figures are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hardware {
    /// Instructions per core cycle, idle turns included.
    pub ipc: Option<f64>,
    /// Instructions per core cycle of busy turns. [`HardwareCounts::figures`] leaves it `None`, because its counters
    /// are read from outside, for whole spans. [`Measurement`](crate::measurement::Measurement) fills it in from the
    /// workers' own meters.
    pub eipc: Option<f64>,
    /// Core cycles of busy turns per packet: the core cycles of the span, multiplied by the busy share of the time.
    /// This assumes a constant core frequency.
    pub core_cpp: Option<f64>,
    /// Misses of the first-level data cache per packet.
    pub l1d_misses: Option<f64>,
    /// Misses of the last-level cache per packet.
    pub llc_misses: Option<f64>,
    /// Mispredicted branches per packet.
    pub branch_misses: Option<f64>,
    /// The share of core cycles in which nothing was issued, because there were no instructions.
    pub stalled_frontend: Option<f64>,
    /// The share of core cycles in which nothing retired, because results were missing.
    pub stalled_backend: Option<f64>,
}

impl Watch {
    /// Starts counting the events of these threads.
    #[must_use]
    pub fn begin(threads: &[WorkerThread]) -> Self {
        Self::of(threads, PAIR, &SINGLES)
    }

    /// Like [`begin`](Self::begin), with other events.
    fn of(threads: &[WorkerThread], pair: [Event; 2], singles: &[Event]) -> Self {
        let mut watch = Self { workers: Vec::new(), unavailable: BTreeMap::new() };
        for thread in threads {
            let pair = watch.open(pair, thread.tid);
            let singles = singles.iter().filter_map(|event| watch.open([*event], thread.tid)).collect();
            watch.workers.push(Watched { worker: thread.worker, pair, singles });
        }
        watch
    }

    /// Opens the events of a group for a thread. If this fails, stores the reason for each of them and returns `None`.
    fn open<const N: usize>(&mut self, events: [Event; N], tid: u32) -> Option<Counting<N>> {
        let opened = PerfGroup::open(events, tid).and_then(|mut group| {
            let mut before = Reading::default();
            let unavailable =
                |error: std::io::Error| Unavailable::System { event: events[0], message: error.to_string() };
            group.read(&mut before).map_err(unavailable)?;
            Ok(Counting { events, group: Box::new(group), before, restarted: Ok(()) })
        });
        match opened {
            Ok(counting) => Some(counting),
            Err(reason) => {
                // If one event of a group cannot be counted, none of the group is.
                events.iter().for_each(|event| drop(self.unavailable.insert(*event, reason.clone())));
                None
            }
        }
    }

    /// Starts counting from zero again.
    pub fn restart(&mut self) {
        for watched in &mut self.workers {
            watched.pair.iter_mut().for_each(Counting::restart);
            watched.singles.iter_mut().for_each(Counting::restart);
        }
    }

    /// Returns the counts since the beginning or the last restart.
    #[must_use]
    pub fn end(mut self) -> HardwareCounts {
        self.counted()
    }

    /// Returns the counts since the beginning or the last [`restart`](Self::restart).
    #[must_use]
    pub fn counted(&mut self) -> HardwareCounts {
        let mut missing: BTreeMap<Event, String> =
            self.unavailable.iter().map(|(event, reason)| (*event, reason.to_string())).collect();
        let mut workers = Vec::new();
        for watched in &mut self.workers {
            let mut counts = BTreeMap::new();
            watched.pair.iter_mut().for_each(|pair| pair.end(&mut counts, &mut missing));
            watched.singles.iter_mut().for_each(|single| single.end(&mut counts, &mut missing));
            workers.push((watched.worker, counts));
        }
        HardwareCounts { workers, unavailable: missing }
    }
}

impl<const N: usize> Counting<N> {
    fn restart(&mut self) {
        self.restarted = self.group.read(&mut self.before);
    }

    /// Adds the counts since the last restart to `counts`, or the reason for their absence to `missing`.
    fn end(&mut self, counts: &mut BTreeMap<Event, f64>, missing: &mut BTreeMap<Event, String>) {
        let mut now = Reading::default();
        let restarted = std::mem::replace(&mut self.restarted, Ok(()));
        let counts_or_reason = match restarted.and_then(|()| self.group.read(&mut now)) {
            Ok(()) => now.since(&self.before).ok_or_else(|| "other events used the counters all the time".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        match counts_or_reason {
            Ok(counted) => counts.extend(self.events.into_iter().zip(counted)),
            Err(reason) => {
                self.events
                    .iter()
                    .for_each(|event| drop(missing.insert(*event, format!("{event} was not counted: {reason}"))));
            }
        }
    }
}

impl HardwareCounts {
    /// Returns the figures of a span in which `packets` entered and workers were busy for the share `busy` of the time.
    #[must_use]
    pub fn figures(&self, packets: u64, busy: f64) -> Hardware {
        // `None` if a worker does not have the event.
        let sum = |event: Event| {
            let counts = self.workers.iter().map(|(_, counts)| counts.get(&event).copied());
            counts.sum::<Option<f64>>().filter(|_| !self.workers.is_empty())
        };
        let ratio = |over: f64, under: f64| (under > 0.0).then(|| over / under);
        let per_packet = |event: Event| ratio(sum(event)?, packets as f64);
        let of_cycles = |event: Event| ratio(sum(event)?, sum(Event::CoreCycles)?);
        Hardware {
            ipc: of_cycles(Event::Instructions),
            // The counters include idle turns, but the eIPC is a figure of busy turns.
            eipc: None,
            core_cpp: per_packet(Event::CoreCycles).map(|cycles| cycles * busy),
            l1d_misses: per_packet(Event::L1dMisses),
            llc_misses: per_packet(Event::LlcMisses),
            branch_misses: per_packet(Event::BranchMisses),
            stalled_frontend: of_cycles(Event::StalledFrontend),
            stalled_backend: of_cycles(Event::StalledBackend),
        }
    }

    /// Returns a worker's instructions per core cycle, idle turns included.
    #[must_use]
    pub fn ipc(&self, worker: usize) -> Option<f64> {
        let (_, counts) = self.workers.iter().find(|(number, _)| *number == worker)?;
        let (instructions, cycles) = (counts.get(&Event::Instructions)?, counts.get(&Event::CoreCycles)?);
        (*cycles > 0.0).then(|| instructions / cycles)
    }

    /// Returns a worker's core cycles per second in a span of `seconds`: the core's frequency, reduced by the time
    /// without the core.
    #[must_use]
    pub fn core_hertz(&self, worker: usize, seconds: f64) -> Option<f64> {
        let (_, counts) = self.workers.iter().find(|(number, _)| *number == worker)?;
        let cycles = counts.get(&Event::CoreCycles)?;
        (seconds > 0.0).then(|| cycles / seconds)
    }

    /// Returns a text for the user: the first reason why figures are missing, and the number of the other missing
    /// events. `None` if no event is missing.
    #[must_use]
    pub fn why_not(&self) -> Option<String> {
        let reason = self.unavailable.values().next()?;
        Some(match self.unavailable.len() {
            1 => reason.clone(),
            all => format!("{reason}; and {} more", all - 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    /// The processor's events are not available everywhere. The kernel's software events take the same path.
    #[test]
    fn a_thread_is_counted_between_two_ends() {
        let (sender, numbers) = channel();
        let (go, may_go) = channel::<()>();
        let thread = std::thread::spawn(move || {
            let _ = sender.send(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
            let _ = may_go.recv();
            for sleeps in [30, 3] {
                (0..sleeps).for_each(|_| std::thread::sleep(Duration::from_micros(100)));
                let _ = sender.send(0);
                let _ = may_go.recv();
            }
        });
        let known = WorkerThread { worker: 4, core: 0, tid: numbers.recv().expect("it runs") };
        let mut watch = Watch::of(&[known], [Event::TaskClock, Event::ContextSwitches], &[Event::PageFaults]);
        go.send(()).expect("it waits");
        numbers.recv().expect("the thread sends a message");
        let counted = watch.counted();
        watch.restart();
        go.send(()).expect("it waits");
        numbers.recv().expect("the thread sends a message");
        let after = watch.end();
        go.send(()).expect("it waits");
        thread.join().expect("it ends well");
        if let Some(reason) = counted.why_not() {
            drop(std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("skipped: {reason}\n")));
            return;
        }
        let (worker, counts) = &counted.workers[0];
        assert_eq!((*worker, counts.len()), (4, 3), "{counted:?}");
        assert!(counts[&Event::ContextSwitches] >= 30.0 && counts[&Event::TaskClock] > 0.0, "{counted:?}");
        let switches = after.workers[0].1[&Event::ContextSwitches];
        assert!((3.0..30.0).contains(&switches), "{after:?}");
    }

    #[test]
    fn an_event_that_is_not_counted_has_a_reason_and_no_figure() {
        let gone = std::thread::spawn(|| rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs());
        let gone = WorkerThread { worker: 0, core: 0, tid: gone.join().expect("it ends well") };
        let counted = Watch::begin(&[gone]).end();
        assert_eq!(counted.unavailable.len(), 7, "{counted:?}");
        assert_eq!(counted.figures(1000, 1.0), Hardware::default());
        assert!(counted.why_not().is_some_and(|reason| reason.ends_with("; and 6 more")));
        assert_eq!(counted.ipc(0), None);
    }

    #[test]
    fn figures_are_of_all_workers_or_none() {
        let of = |worker: usize, scale: f64| {
            let counts = [
                (Event::Instructions, 300.0),
                (Event::CoreCycles, 200.0),
                (Event::LlcMisses, 4.0),
                (Event::StalledBackend, 50.0),
            ];
            (worker, counts.map(|(event, count)| (event, count * scale)).into())
        };
        let mut counted = HardwareCounts { workers: vec![of(0, 1.0), of(1, 3.0)], ..HardwareCounts::default() };
        let figures = counted.figures(8, 0.5);
        assert_eq!((figures.ipc, figures.core_cpp, figures.llc_misses), (Some(1.5), Some(50.0), Some(2.0)));
        assert_eq!((figures.stalled_backend, figures.stalled_frontend, figures.eipc), (Some(0.25), None, None));
        assert_eq!((counted.figures(0, 0.5).llc_misses, counted.ipc(1)), (None, Some(1.5)));
        counted.workers[1].1.remove(&Event::LlcMisses);
        assert_eq!(counted.figures(8, 0.5).llc_misses, None);
    }
}
