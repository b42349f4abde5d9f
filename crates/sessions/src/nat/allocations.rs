//! The log of a translation: which inside port had which outside port, and when (RFC 6888 REQ-12; events as in RFC 8158
//! section 3).

use std::collections::{BTreeSet, HashMap};
use std::net::Ipv4Addr;

use forebay_tables::journal::{self, LineWriter, Memory, Record};
use forebay_units::Ticks;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters of the log.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogParams {
    /// File name, relative to the configuration file. New lines are appended to an existing file.
    pub(super) file: String,
}

/// A port in use: worker and number of workers, protocol, inside end and outside end. Addresses are in host byte order.
type Given = ((u16, u16), u8, (u32, u16), (u32, u16));

/// The bindings in use, as the lines so far record them.
#[derive(Default)]
pub(crate) struct Live {
    /// Time of the last line, in nanoseconds after 1970.
    last: u64,
    /// Workers that have written a start event.
    begun: BTreeSet<(u16, u16)>,
    /// For each port in use, the time of its allocation, and the number of its bindings. With several workers the same
    /// binding can exist several times.
    given: HashMap<Given, (u64, u32)>,
}

impl Memory<Entry> for Live {
    fn note(&mut self, entry: &Entry) {
        self.last = entry.nanos;
        let key = (entry.worker, entry.protocol, entry.inside, entry.outside);
        match entry.event {
            Event::Start => {
                // The bindings of this worker, and those of a run with another number of workers, no longer exist.
                let (worker, workers) = entry.worker;
                let others = |(number, of): (u16, u16)| number != worker && of == workers;
                self.begun.retain(|it| others(*it));
                self.given.retain(|(it, ..), _| others(*it));
                self.begun.insert(entry.worker);
            }
            Event::Allocate => self.given.entry(key).or_insert((entry.nanos, 0)).1 += 1,
            Event::Release => {
                if let Some((_, times)) = self.given.get_mut(&key) {
                    *times -= 1;
                    if *times == 0 {
                        self.given.remove(&key);
                    }
                }
            }
        }
    }

    fn restate(&self) -> Vec<Entry> {
        let starts = self.begun.iter().map(|worker| Entry {
            nanos: self.last,
            since: None,
            event: Event::Start,
            protocol: 0,
            inside: (0, 0),
            outside: (0, 0),
            worker: *worker,
        });
        let mut given: Vec<_> = self.given.iter().collect();
        given.sort_unstable_by_key(|(key, (since, _))| (*since, **key));
        let allocations = given.into_iter().flat_map(|((worker, protocol, inside, outside), (since, times))| {
            let entry = Entry {
                nanos: self.last,
                since: Some(*since),
                event: Event::Allocate,
                protocol: *protocol,
                inside: *inside,
                outside: *outside,
                worker: *worker,
            };
            std::iter::repeat_n(entry, *times as usize)
        });
        starts.chain(allocations).collect()
    }
}

/// Type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// A worker starts without bindings.
    Start,
    /// A port was allocated.
    Allocate,
    /// A port was released.
    Release,
}

/// An event, as a worker records it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// Time of the event, in nanoseconds after 1970.
    nanos: u64,
    /// Time of the allocation, in nanoseconds after 1970, for a binding that is repeated from an earlier file. `None`
    /// for a new event.
    since: Option<u64>,
    event: Event,
    /// The protocol number, and the address (in host byte order) and port of both ends. All are 0 for a start event.
    protocol: u8,
    inside: (u32, u16),
    outside: (u32, u16),
    /// The worker's number and the number of workers.
    worker: (u16, u16),
}

/// An event, as a line of the file.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    state: &'a str,
    worker: u16,
    workers: u16,
    event: &'static str,
    #[serde(flatten)]
    binding: Option<Bound>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
}

#[derive(Serialize)]
struct Bound {
    protocol: u8,
    inside: Ipv4Addr,
    inside_port: u16,
    outside: Ipv4Addr,
    outside_port: u16,
}

impl Record for Entry {
    type With = ();
    // Room for a burst of new sessions while the disk is slow.
    const RING: usize = 1 << 15;
    type Memory = Live;

    fn nanos(&self) -> u64 {
        self.nanos
    }

    fn line(&self, state: &str, (): &()) -> Option<String> {
        let event = match self.event {
            Event::Start => "start",
            Event::Allocate => "allocate",
            Event::Release => "release",
        };
        let binding = (self.event != Event::Start).then(|| Bound {
            protocol: self.protocol,
            inside: Ipv4Addr::from(self.inside.0),
            inside_port: self.inside.1,
            outside: Ipv4Addr::from(self.outside.0),
            outside_port: self.outside.1,
        });
        let (worker, workers) = self.worker;
        let (time, since) = (journal::time(self.nanos), self.since.map(journal::time));
        let line = Line { time, state, worker, workers, event, binding, since };
        serde_json::to_string(&line).ok()
    }
}

/// The log of one worker's translator.
pub(super) struct Allocations {
    /// `None` until the module with the log is called for the first time.
    writer: Option<LineWriter<Entry>>,
    /// Start of the present call.
    now: Ticks,
    /// The worker's number and the number of workers.
    worker: (u16, u16),
}

impl Allocations {
    /// Creates the log of a worker, given by its number and the number of workers. The log has no file yet, and events
    /// are not recorded until [`go_to`](Self::go_to).
    pub(super) fn new((worker, workers): (usize, usize)) -> Self {
        Self { writer: None, now: Ticks::ZERO, worker: (worker as u16, workers as u16) }
    }

    /// Records the start of a call.
    #[inline(always)]
    pub(super) fn begin(&mut self, now: Ticks) {
        self.now = now;
    }

    /// Sets the file that receives events from now on. The first time, writes a start event: it records that this
    /// worker has no bindings yet.
    pub(super) fn go_to(&mut self, writer: LineWriter<Entry>) {
        let first = self.writer.is_none();
        self.writer = Some(writer);
        if first {
            self.write(Event::Start, 0, (0, 0), (0, 0));
        }
    }

    /// Logs that a port was allocated.
    #[inline(always)]
    pub(super) fn allocate(&mut self, protocol: u8, inside: (u32, u16), outside: (u32, u16)) {
        if self.writer.is_some() {
            self.write(Event::Allocate, protocol, inside, outside);
        }
    }

    /// Logs that a port was released.
    #[inline(always)]
    pub(super) fn release(&mut self, protocol: u8, inside: (u32, u16), outside: (u32, u16)) {
        if self.writer.is_some() {
            self.write(Event::Release, protocol, inside, outside);
        }
    }

    /// Writes an event, if there is a file.
    #[inline(never)]
    fn write(&mut self, event: Event, protocol: u8, inside: (u32, u16), outside: (u32, u16)) {
        let Self { writer: Some(writer), now, worker } = self else { return };
        writer.write(*now, |nanos| Entry { nanos, since: None, event, protocol, inside, outside, worker: *worker });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Reads a file as the documentation describes: each worker from its last start on.
    fn read(lines: &[Entry]) -> BTreeMap<Given, i64> {
        let mut bindings = BTreeMap::new();
        for entry in lines {
            let key = (entry.worker, entry.protocol, entry.inside, entry.outside);
            match entry.event {
                Event::Start => {
                    bindings.retain(|(worker, ..): &Given, _| worker.0 != entry.worker.0 && worker.1 == entry.worker.1)
                }
                Event::Allocate => *bindings.entry(key).or_insert(0) += 1,
                Event::Release => *bindings.entry(key).or_insert(0) -= 1,
            }
            bindings.retain(|_, times| *times != 0);
        }
        bindings
    }

    proptest! {
        /// After each rotation the new file alone is enough to know which bindings exist.
        #[test]
        fn a_new_file_alone_lists_all_bindings(
            steps in prop::collection::vec((0u8..12, 0u16..2, 0u16..4), 1..200),
        ) {
            let (mut live, mut whole, mut file, mut workers) = (Live::default(), Vec::new(), Vec::new(), 2);
            for (number, (step, worker, port)) in steps.into_iter().enumerate() {
                let worker = (worker % workers, workers);
                let entry = |event| Entry {
                    nanos: number as u64, since: None, event, protocol: 17,
                    inside: (1, port), outside: (2, port), worker,
                };
                let key = (worker, 17, (1, port), (2, port));
                let entry = match step {
                    0 => {
                        workers = 3 - workers;
                        entry(Event::Start)
                    }
                    1 => {
                        file = live.restate();
                        let times: Vec<_> = file.iter().map(|entry| entry.nanos).collect();
                        prop_assert!(times.iter().all(|time| *time <= number as u64));
                        continue;
                    }
                    2..8 => entry(Event::Allocate),
                    _ if read(&whole).contains_key(&key) => entry(Event::Release),
                    _ => continue,
                };
                live.note(&entry);
                whole.push(entry);
                file.push(entry);
                prop_assert_eq!(read(&whole), read(&file));
            }
        }
    }
}
