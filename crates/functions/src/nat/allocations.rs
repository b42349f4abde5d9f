//! Which inside port had which outside port, and when: lines of a file (RFC 6888 REQ-12; events as RFC 8158 section 3 has them).

use std::net::Ipv4Addr;

use forebay_packet::Ticks;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::journal::{self, Pen, Record};

/// A file of lines.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogParams {
    /// Its name, relative to the configuration; lines come after what is in it.
    pub(super) file: String,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// A worker begins with nothing.
    Start,
    /// A port was given out.
    Allocate,
    /// It was taken back.
    Release,
}

/// What a worker knows of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    nanos: u64,
    event: Event,
    protocol: u8,
    inside: (u32, u16),
    outside: (u32, u16),
    worker: (u16, u16),
}

/// An event as a line.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    state: &'a str,
    worker: u16,
    workers: u16,
    event: &'static str,
    #[serde(flatten)]
    binding: Option<Bound>,
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
    // A burst of new sessions, and a disk that takes its time.
    const RING: usize = 1 << 15;

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
        let line = Line { time: journal::time(self.nanos), state, worker, workers, event, binding };
        serde_json::to_string(&line).ok()
    }
}

/// Where a worker's events go.
pub(super) struct Allocations {
    pen: Option<Pen<Entry>>,
    /// When the present call began.
    now: Ticks,
    worker: (u16, u16),
}

impl Allocations {
    /// Those of the worker with this share of the sessions: nowhere yet.
    pub(super) fn new((worker, workers): (usize, usize)) -> Self {
        Self { pen: None, now: Ticks::ZERO, worker: (worker as u16, workers as u16) }
    }

    /// A call begins.
    #[inline(always)]
    pub(super) fn begin(&mut self, now: Ticks) {
        self.now = now;
    }

    /// Events go there from now on.
    pub(super) fn go_to(&mut self, pen: Pen<Entry>) {
        let first = self.pen.is_none();
        self.pen = Some(pen);
        if first {
            self.write(Event::Start, 0, (0, 0), (0, 0));
        }
    }

    /// A port was given out.
    #[inline(always)]
    pub(super) fn allocate(&mut self, protocol: u8, inside: (u32, u16), outside: (u32, u16)) {
        if self.pen.is_some() {
            self.write(Event::Allocate, protocol, inside, outside);
        }
    }

    /// A port was taken back.
    #[inline(always)]
    pub(super) fn release(&mut self, protocol: u8, inside: (u32, u16), outside: (u32, u16)) {
        if self.pen.is_some() {
            self.write(Event::Release, protocol, inside, outside);
        }
    }

    #[inline(never)]
    fn write(&mut self, event: Event, protocol: u8, inside: (u32, u16), outside: (u32, u16)) {
        let Self { pen: Some(pen), now, worker } = self else { return };
        pen.write(*now, |nanos| Entry { nanos, event, protocol, inside, outside, worker: *worker });
    }
}
