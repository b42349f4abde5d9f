//! Captures: replays packets from a file, and writes packets to a file.

mod classic;
mod format;
mod input;
pub mod link;
mod ng;
mod other;
mod playback;
mod reader;
mod skipped;
mod spool;
mod stream;
mod unpack;
mod writer;

pub use reader::{ReadError, Reader, Record, read_memory};
pub use skipped::{Skip, SkipReason, Skipped};
pub use spool::{WhenFull, WriteError};
pub use writer::{NgWriter, Writer};

use std::fmt::Display;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use forebay_graph::{
    DeclarePort, Intake, Port, PortCounters, Ready, ScheduledSource, Setup, SetupError, Waits,
    files::{check_writable, open_regular},
    register,
};
use forebay_measure::{Clock, Tsc};
use forebay_packet::{ArrivalClock, Batch};
use forebay_units::{Frequency, Ticks};
use schemars::JsonSchema;
use serde::Deserialize;

use playback::Playback;

/// The file name that stands for the standard input.
const STANDARD_INPUT: &str = "-";

/// Parameters of `pcap`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The capture to replay: pcap (micro- or nanoseconds, either byte order) or pcapng, plain or compressed with gzip,
    /// Zstandard or LZ4. `-` is the standard input, which is replayed while it arrives.
    read: Option<String>,
    /// The file to write packets to. An existing file is replaced. A name that ends in `.pcapng` selects pcapng. Any
    /// other name selects pcap with time stamps in nanoseconds. With a further `.gz`, as in `out.pcapng.gz`, the file
    /// is compressed with gzip.
    write: Option<String>,
    /// The replay speed: `original` (the capture's own timing), a factor, for example `2.5` (2.5 times faster), or
    /// `fast` (as fast as the worker takes packets).
    #[serde(default)]
    #[schemars(extend("default" = "original"))]
    speed: Speed,
    /// The number of times that the capture is replayed, from 1, or `forever`.
    #[serde(default)]
    #[schemars(extend("default" = 1))]
    loops: Loops,
    /// The behaviour if packets arrive faster than the disk accepts them: `wait` for the disk, or `refuse` packets and
    /// count them.
    #[serde(default)]
    when_full: WhenFull,
}

/// The replay speed.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected `original`, `fast`, or a factor above 0, for example 2.5")]
pub enum Speed {
    /// A named speed.
    Named(Pace),
    /// A factor relative to the capture's timing, or `original` or `fast`.
    Times(#[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1e9))] f64),
}

/// Named speeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Pace {
    /// The capture's own timing.
    Original,
    /// As fast as packets are taken.
    Fast,
}

impl Default for Speed {
    fn default() -> Self {
        Self::Named(Pace::Original)
    }
}

/// How many times a capture is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number of times from 1, or `forever`")]
pub enum Loops {
    /// This many times, or `forever`.
    Times(#[schemars(range(min = 1))] u64),
    /// Without end.
    Named(Endless),
}

/// Without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Endless {
    /// Until something else ends the run.
    Forever,
}

impl Default for Loops {
    fn default() -> Self {
        Self::Times(1)
    }
}

/// A port that replays a capture, writes a capture, or both.
pub struct Pcap {
    /// The capture to replay. `None` if the port only writes.
    playback: Option<Playback>,
    /// The file to write. `None` if the port only replays.
    writer: Option<Writer>,
    /// The number of ticks per nanosecond of the capture. `None` if packets are replayed as fast as the worker takes
    /// them.
    scale: Option<f64>,
    /// The frequency of the workers' clock.
    frequency: Frequency,
    /// The time, on the workers' clock, at which the capture's first packet was due. `None` before the first packet.
    started: Option<Ticks>,
    /// An instant on the workers' clock, and the time stamp in the written file for this instant, in nanoseconds since
    /// 1970. `None` before the first packet.
    epoch: Option<(Ticks, u64)>,
    counters: Arc<PortCounters>,
    /// Faults to report in [`Port::close`].
    faults: Vec<String>,
    /// True once a failure to write the file has been counted in `errors`. Only the first failure is counted.
    write_failed: bool,
}

impl Pcap {
    /// Counts the read errors and the skipped packets since the last call. Keeps the texts of the errors for `close`.
    #[cold]
    fn collect_events(&mut self) {
        let (errors, skipped) = self.playback.as_mut().map(Playback::take_events).unwrap_or_default();
        self.counters.errors.add(errors.len() as u64);
        self.faults.extend(errors);
        self.counters.dropped.add(skipped.total());
        skipped.iter().for_each(|(skip, count)| self.counters.skipped.add(&skip.to_string(), count));
    }

    /// Returns the time stamp for a packet that is written at `now`, in nanoseconds since 1970. If the port also
    /// replays a capture, stamps continue from the capture's first time stamp. Otherwise, the stamp is the wall-clock
    /// time, or in a simulated run the simulated time, counted from 1970.
    #[inline]
    fn stamp(&mut self, now: Ticks) -> u64 {
        let (instant, nanos) = *self.epoch.get_or_insert_with(|| (now, wall_clock(self.frequency, now)));
        nanos.saturating_add(self.frequency.nanos(now.since(instant)).0)
    }
}

/// Returns the time of the system clock, in nanoseconds since 1970, if `frequency` is that of the time-stamp counter.
/// Otherwise, the clock is simulated: then returns the nanoseconds from the clock's origin to `now`, so that simulated
/// runs are reproducible.
#[cold]
fn wall_clock(frequency: Frequency, now: Ticks) -> u64 {
    if frequency == Tsc.frequency() {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
    } else {
        frequency.nanos(now).0
    }
}

impl Port for Pcap {
    fn receive(&mut self, batch: &mut Batch, intake: &Intake<'_>) -> Ready {
        let Some(playback) = &mut self.playback else { return Ready::Never };
        // The time of the replay starts when the first packet is available. In a stream, it may not have arrived yet.
        if self.started.is_none() && !playback.ready() && playback.is_open() {
            return Ready::Input(intake.now);
        }
        let (now, limit) = (intake.now, intake.pool.frame_limit());
        let started = *self.started.get_or_insert(now);
        self.epoch.get_or_insert((now, playback.first()));
        let due_at = |after: u64| match self.scale {
            // If a tick is a nanosecond, `after` is already in ticks. A product of floating-point numbers would not be
            // exact to a nanosecond any more after 104 days.
            Some(1.0) => (Ticks(started.0.saturating_add(after)), ArrivalClock::Intended),
            Some(scale) => (Ticks(started.0.saturating_add((after as f64 * scale) as u64)), ArrivalClock::Intended),
            None => (now, ArrivalClock::Poll),
        };
        let most = batch.len() + intake.most.min(batch.room());
        let mut oversize = 0;
        let ready = loop {
            if !playback.ready() {
                break if playback.is_open() { Ready::Input(now) } else { Ready::Never };
            }
            // `run` is the number of next packets that are due, fit into a packet of the pool, and are in memory.
            let wanted = most - batch.len();
            let due =
                (0..wanted).map_while(|ahead| playback.peek(ahead)).take_while(|next| due_at(next.after).0 <= now);
            let run = due.take_while(|next| next.bytes.len() <= limit).count();
            let start = batch.len();
            let got = intake.pool.fill(batch, run);
            for packet in &mut batch[start..] {
                let Some(next) = playback.peek(0) else { break };
                packet.write(next.bytes);
                let (at, clock) = due_at(next.after);
                packet.set_arrival(at, clock);
                if next.missing > 0 {
                    packet.set_missing(next.missing);
                }
                playback.advance();
            }
            if got < run || batch.len() == most {
                break Ready::Now;
            }
            match playback.peek(0) {
                Some(next) if due_at(next.after).0 > now => break Ready::At(due_at(next.after).0),
                Some(next) if next.bytes.len() > limit => {
                    self.counters.drop_oversize(next.bytes.len());
                    playback.advance();
                    // Without this limit, a capture that has only packets that are too long would occupy the worker if
                    // it is replayed forever.
                    oversize += 1;
                    if oversize == intake.most {
                        break Ready::Now;
                    }
                }
                _ => {}
            }
        };
        if playback.has_events() {
            self.collect_events();
        }
        ready
    }

    fn schedule(&mut self) -> Option<&mut dyn ScheduledSource> {
        Some(self)
    }

    fn is_endless(&self) -> bool {
        self.playback.as_ref().is_some_and(Playback::is_endless)
    }

    fn wait_on(&self) -> Waits<'_> {
        Waits::None
    }

    fn send(&mut self, batch: &mut Batch, now: Ticks) {
        let nanos = self.stamp(now);
        let Some(writer) = &mut self.writer else { return };
        let written =
            batch.iter().take_while(|packet| writer.write(nanos, packet.original_len(), packet.data())).count();
        if written == batch.len() {
            batch.clear();
            return;
        }
        // Packets that could not be written remain in the batch. The engine counts them.
        batch.rotate_left(written);
        (0..written).for_each(|_| drop(batch.pop()));
        if writer.failed() && !self.write_failed {
            self.write_failed = true;
            self.counters.errors.add(1);
        }
    }

    fn close(&mut self) -> Result<(), String> {
        self.collect_events();
        if let Some(Err(error)) = self.writer.as_mut().map(Writer::finish) {
            self.counters.errors.add(u64::from(!self.write_failed));
            self.write_failed = true;
            self.faults.push(error.to_string());
        }
        let faults = std::mem::take(&mut self.faults);
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
    }
}

impl ScheduledSource for Pcap {
    /// Changes the replay speed: from now on, the port replays the capture as fast as the worker takes packets.
    fn saturate(&mut self) {
        self.scale = None;
    }
}

impl DeclarePort for Pcap {
    type Params = Params;
    const NAME: &'static str = "pcap";
    const SUMMARY: &'static str = "replays a capture, and writes packets to a capture";
    const HELP: &'static str = "\
Reads captures of Ethernet, NULL, LOOP, RAW, IPv4, IPv6, SLL, SLL2 and PPP. Packets without an Ethernet header get \
one. Packets of other link types in a pcapng file are skipped and counted. Packets that the capture truncated are \
replayed as they are. Packets longer than the pool's packets are dropped and counted. A capture of up to 64 MiB is \
read before the start. Of a larger one, the first 64 MiB are read before the start, and a thread reads the rest while \
packets are replayed. With the capture's own timing (or a multiple), packets carry the time at which they were due. If \
the worker is late, no packet is omitted. A repeated capture starts again one mean gap after its last packet. If a \
capture is incomplete, the packets up to the fault are replayed; the fault is counted as an error and reported at the \
end.

Written time stamps are the times of departure. If the port also replays a capture, the run starts at the time stamp \
of that capture's first packet, so that the two files can be compared. Otherwise time stamps are wall-clock times, or, \
in simulated time, start in 1970. A thread writes packets to disk in blocks of 256 KiB. If the file cannot be written \
any more, packets are refused and counted, and the error is reported at the end.";
    const EXAMPLE: &'static str = "{ read: in.pcap.gz, write: out.pcap, speed: fast, loops: 3 }";

    fn receives(params: &Params) -> bool {
        params.read.is_some()
    }

    fn sends(params: &Params) -> bool {
        params.write.is_some()
    }

    fn waits(params: &Params) -> bool {
        params.read.is_some() && params.speed == Speed::Named(Pace::Fast)
    }

    fn check(params: &Params, setup: &mut Setup<'_>) -> Result<(), SetupError> {
        if params.read.is_none() && params.write.is_none() {
            return Err(SetupError::new("`read` and `write` are missing: a pcap port needs at least one of them"));
        }
        if let Speed::Times(times) = params.speed
            && !(times > 0.0 && times <= 1e9)
        {
            return Err(SetupError::not_allowed("speed", times, "factors above 0 up to 1e9"));
        }
        if let Loops::Times(0) = params.loops {
            return Err(SetupError::not_allowed("loops", "0", "1 or more, or `forever`"));
        }
        match params.read.as_deref() {
            Some(STANDARD_INPUT) if params.loops != Loops::Times(1) => {
                let value = match params.loops {
                    Loops::Named(Endless::Forever) => "forever".to_owned(),
                    Loops::Times(times) => times.to_string(),
                };
                let wrong = "the standard input (`read: -`) can be replayed only once";
                return Err(SetupError::wrong_single("loops", value, wrong, "1"));
            }
            Some(STANDARD_INPUT) => setup.claim_input("read")?,
            Some(name) => {
                let path = setup.claim("read", name, false)?;
                if setup.looks_at_files() {
                    let opened = open_regular(&path).map_err(ReadError::Open);
                    opened.map_err(|error| SetupError::at("read", format!("{}: {error}", path.display())))?;
                }
            }
            None => {}
        }
        let Some(path) = params.write.as_ref().map(|name| setup.claim("write", name, true)).transpose()? else {
            return Ok(());
        };
        Writer::check(&path).map_err(|error| SetupError::at("write", error.to_string()))?;
        if !setup.looks_at_files() {
            return Ok(());
        }
        let writable = check_writable(&path).map_err(|source| WriteError::Create { path, source });
        writable.map_err(|error| SetupError::at("write", error.to_string()))
    }

    fn new(params: Params, setup: &mut Setup<'_>, counters: Arc<PortCounters>) -> Result<Self, SetupError> {
        let frequency = setup.frequency();
        let per_nanosecond = frequency.hertz() / 1e9;
        let scale = match params.speed {
            Speed::Named(Pace::Original) => Some(per_nanosecond),
            Speed::Named(Pace::Fast) => None,
            Speed::Times(times) => Some(per_nanosecond / times),
        };
        let rounds = match params.loops {
            Loops::Named(Endless::Forever) => u64::MAX,
            Loops::Times(times) => times,
        };
        let write = params.write.map(|name| setup.base().join(name));
        let setup_error = |name: &dyn Display, error: ReadError| SetupError::at("read", format!("{name}: {error}"));
        let playback = match params.read {
            None => None,
            Some(name) if name == STANDARD_INPUT => {
                let stdin = std::io::stdin();
                if stdin.is_terminal() {
                    let wrong = "the standard input is a terminal";
                    return Err(SetupError::with_hint("read", wrong, "use a pipe or a file"));
                }
                // In simulated time, the port waits until the next packet of the stream has arrived, and simulated time
                // stands still. If the port polled, simulated time would continue, and the packet would be late.
                let opened = Playback::stream(stdin, !setup.simulated());
                Some(opened.map_err(|error| setup_error(&"the standard input", error))?)
            }
            Some(name) => {
                let path = setup.base().join(name);
                let opened = Playback::open(&path, rounds);
                Some(opened.map_err(|error| setup_error(&path.display(), error))?)
            }
        };
        let writer = write.map(|path| Writer::create(&path, params.when_full)).transpose();
        let writer = writer.map_err(|error| SetupError::at("write", error.to_string()))?;
        let mut port = Self {
            playback,
            writer,
            scale,
            frequency,
            started: None,
            epoch: None,
            counters,
            faults: Vec::new(),
            write_failed: false,
        };
        port.collect_events();
        Ok(port)
    }
}

register!(port Pcap);

#[cfg(test)]
mod tests;
