//! Captures: packets from a file, packets into a file.

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
pub use skipped::{Reason, Skip, Skipped};
pub use spool::{WhenFull, WriteError};
pub use writer::{NgWriter, Writer};

use std::fmt::Display;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use forebay_graph::files::{check_writable, open_regular};
use forebay_graph::{DeclarePort, Intake, Port, PortCounters, Ready, Setup, SetupError, register};
use forebay_measure::{Clock, Frequency, Tsc};
use forebay_packet::{ArrivalClock, Batch, Ticks};
use schemars::JsonSchema;
use serde::Deserialize;

use playback::Playback;

/// The name of a capture that comes by the standard input.
const STANDARD_INPUT: &str = "-";

/// Parameters of `pcap`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The capture whose packets enter: pcap (micro- or nanoseconds, either byte order) or pcapng, plain or in gzip,
    /// Zstandard or LZ4. `-` is the standard input, which is read while it comes.
    read: Option<String>,
    /// The file that packets leave to, replaced if it exists. Its name says the format: pcap with nanoseconds, pcapng
    /// where it ends in `.pcapng`, and either in gzip where `.gz` follows.
    write: Option<String>,
    /// How fast the capture is played: `original` (its own timing), a factor such as `2.5` (that many times faster), or
    /// `fast` (as fast as packets are taken).
    #[serde(default)]
    #[schemars(extend("default" = "original"))]
    speed: Speed,
    /// How many times the capture is played, from 1, or `forever`.
    #[serde(default)]
    #[schemars(extend("default" = 1))]
    loops: Loops,
    /// When packets come faster than the disk takes them: `wait` for it, or `refuse` packets, which counts them.
    #[serde(default)]
    when_full: WhenFull,
}

/// How fast a capture is played.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected `original`, `fast`, or a factor above 0 such as 2.5")]
pub enum Speed {
    /// With a name.
    Named(Pace),
    /// So many times faster than it was, or `original` or `fast`.
    Times(#[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1e9))] f64),
}

/// Speeds that have a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Pace {
    /// As it was.
    Original,
    /// As fast as packets are taken.
    Fast,
}

impl Default for Speed {
    fn default() -> Self {
        Self::Named(Pace::Original)
    }
}

/// How many times a capture is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number of times from 1, or `forever`")]
pub enum Loops {
    /// So many times, or `forever`.
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

/// A capture that is played, and one that is written.
pub struct Pcap {
    playback: Option<Playback>,
    writer: Option<Writer>,
    /// Ticks per nanosecond of the capture; `None`: as fast as packets are taken.
    scale: Option<f64>,
    frequency: Frequency,
    /// When the capture's first packet was due.
    started: Option<Ticks>,
    /// An instant and what the written time stamps say of it, in nanoseconds.
    epoch: Option<(Ticks, u64)>,
    counters: Arc<PortCounters>,
    /// What went wrong, for [`Port::close`].
    faults: Vec<String>,
    write_failed: bool,
}

impl Pcap {
    /// Counts what went wrong while reading, and keeps it for the end. Counts packets that were passed over.
    #[cold]
    fn note_news(&mut self) {
        let (errors, skipped) = self.playback.as_mut().map(Playback::take_news).unwrap_or_default();
        self.counters.errors.add(errors.len() as u64);
        self.faults.extend(errors);
        self.counters.dropped.add(skipped.total());
        skipped.iter().for_each(|(skip, count)| self.counters.skipped.add(&skip.to_string(), count));
    }

    /// What a time stamp says of the instant `now`. Played packets keep the capture's date: its first packet is due at
    /// its own time stamp. Otherwise the wall clock says what it is; a simulated clock starts in 1970.
    #[inline]
    fn stamp(&mut self, now: Ticks) -> u64 {
        let (instant, nanos) = *self.epoch.get_or_insert_with(|| (now, wall_clock(self.frequency, now)));
        nanos.saturating_add(self.frequency.nanos(now.since(instant)).0)
    }
}

/// Nanoseconds since 1970 by the system's clock where ticks are the time-stamp counter's; since the clock's origin
/// where it is a simulated one, so that such runs are the same every time.
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
        // Time starts with the first packet, which a stream may not have yet.
        if self.started.is_none() && !playback.ready() && playback.is_open() {
            return Ready::Input;
        }
        let (now, limit) = (intake.now, intake.pool.frame_limit());
        let started = *self.started.get_or_insert(now);
        self.epoch.get_or_insert((now, playback.first()));
        let due_at = |after: u64| match self.scale {
            // A product of floating-point numbers has no single nanoseconds after 104 days.
            Some(1.0) => (Ticks(started.0.saturating_add(after)), ArrivalClock::Intended),
            Some(scale) => (Ticks(started.0.saturating_add((after as f64 * scale) as u64)), ArrivalClock::Intended),
            None => (now, ArrivalClock::Poll),
        };
        let most = batch.len() + intake.most.min(batch.room());
        let mut oversize = 0;
        let ready = loop {
            if !playback.ready() {
                break if playback.is_open() { Ready::Input } else { Ready::Never };
            }
            // Those that are due, fit and are at hand.
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
                    // A capture may have nothing else, and be played for ever.
                    oversize += 1;
                    if oversize == intake.most {
                        break Ready::Now;
                    }
                }
                _ => {}
            }
        };
        if playback.has_news() {
            self.note_news();
        }
        ready
    }

    fn saturate(&mut self) {
        self.scale = None;
    }

    fn is_endless(&self) -> bool {
        self.playback.as_ref().is_some_and(Playback::is_endless)
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
        // What could not be written stays, and is the engine's to count.
        batch.rotate_left(written);
        (0..written).for_each(|_| drop(batch.pop()));
        if writer.failed() && !self.write_failed {
            self.write_failed = true;
            self.counters.errors.add(1);
        }
    }

    fn close(&mut self) -> Result<(), String> {
        self.note_news();
        if let Some(Err(error)) = self.writer.as_mut().map(Writer::finish) {
            self.counters.errors.add(u64::from(!self.write_failed));
            self.write_failed = true;
            self.faults.push(error.to_string());
        }
        let faults = std::mem::take(&mut self.faults);
        if faults.is_empty() { Ok(()) } else { Err(faults.join("; ")) }
    }
}

impl DeclarePort for Pcap {
    type Params = Params;
    const NAME: &'static str = "pcap";
    const SUMMARY: &'static str = "plays a capture, and writes what leaves into one";
    const HELP: &'static str = "\
Captures of Ethernet, NULL, LOOP, RAW, IPv4, IPv6, SLL, SLL2 and PPP are read; packets without an Ethernet header get \
one. Packets of other link types in a pcapng file are passed over and counted. Packets that the capture cut short are \
played as they are; those longer than a packet can be are dropped and counted. A capture of up to 64 MiB is read \
before the start; of a larger one a thread reads on while the first 64 MiB are played. Played with its own timing (or \
a multiple), packets carry the instant at which they were due; none is left out when the worker is late. Repeated, a \
capture begins again a mean gap after its last packet. A capture that breaks off is played as far as it goes; that \
counts as an error, and is said at the end.

Written time stamps are those of departure. Where a capture is played its first packet's own time stamp is that of the \
start, so that the two files can be laid side by side; otherwise the wall clock's, and in virtual time they count from \
1970. Packets are handed to the disk 256 KiB at a time by a thread; when the disk cannot be written any more, packets \
are refused, which counts them, and the end says why.";
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
            return Err(SetupError::new("neither `read` nor `write`: a pcap port needs at least one of them"));
        }
        if let Speed::Times(times) = params.speed
            && !(times > 0.0 && times <= 1e9)
        {
            return Err(SetupError::at("speed", format!("{times}: allowed are factors above 0 up to 1e9")));
        }
        if let Loops::Times(0) = params.loops {
            return Err(SetupError::at("loops", "0: allowed are 1 and more, or `forever`"));
        }
        match params.read.as_deref() {
            Some(STANDARD_INPUT) if params.loops != Loops::Times(1) => {
                return Err(SetupError::at(
                    "loops",
                    "the standard input (`read: -`) can be played once only: allowed is 1",
                ));
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
        let told = check_writable(&path).map_err(|source| WriteError::Create { path, source });
        told.map_err(|error| SetupError::at("write", error.to_string()))
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
        let in_words = |name: &dyn Display, error: ReadError| SetupError::at("read", format!("{name}: {error}"));
        let playback = match params.read {
            None => None,
            Some(name) if name == STANDARD_INPUT => {
                let stdin = std::io::stdin();
                if stdin.is_terminal() {
                    let what = "the standard input is a terminal: allowed are a pipe and a file";
                    return Err(SetupError::at("read", what));
                }
                // In simulated time a packet that has not come yet would come too late.
                let opened = Playback::stream(stdin, !setup.simulated());
                Some(opened.map_err(|error| in_words(&"the standard input", error))?)
            }
            Some(name) => {
                let path = setup.base().join(name);
                let opened = Playback::open(&path, rounds);
                Some(opened.map_err(|error| in_words(&path.display(), error))?)
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
        port.note_news();
        Ok(port)
    }
}

register!(port Pcap);

#[cfg(test)]
mod tests;
