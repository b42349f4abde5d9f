//! Records an event when all sources of a run are exhausted and the run waits for packets that modules hold.
//!
//! A `shaper` or `reassemble` may hold packets for many seconds. Without the event, such a run seems to hang.

use std::time::{Duration, Instant};

use forebay_instance::{PipelineCounters, events::NewEvent};
use forebay_measure::{Clock, Tsc};
use forebay_protocol::event::EventName;

use crate::engine::Engine;
use crate::events::Events;

/// Records once that all sources of the run are exhausted and the run waits for held packets.
#[derive(Default)]
pub(super) struct WaitNotice {
    /// The time since which the run waits; `None` if it does not wait.
    since: Option<Instant>,
    reported: bool,
}

impl WaitNotice {
    /// A wait is reported if it has lasted at least this long, or if it will last at least this much longer.
    const SHORT: Duration = Duration::from_secs(1);
    /// A wait is reported only if it will last at least this much longer, in seconds.
    const LEAST: f64 = 0.1;

    /// Checks whether the run waits. Must be called again and again during the run.
    pub(super) fn look(&mut self, engine: &Engine, board: &PipelineCounters, events: &Events) {
        let Some(until) = engine.waits_until().filter(|_| !self.reported) else {
            self.since = None;
            return;
        };
        let now = Tsc.now();
        let remaining = Tsc.frequency().seconds(until.since(now));
        let is_short = self.since.get_or_insert_with(Instant::now).elapsed() < Self::SHORT
            && remaining < Self::SHORT.as_secs_f64();
        if is_short || remaining < Self::LEAST {
            return;
        }
        self.reported = true;
        let packets = board.report(&board.nothing(), &board.read(now)).packets;
        let held = packets.held + packets.queued;
        let message = format!(
            "the sources are exhausted; modules still hold {held} packets; the next one leaves in {remaining:.1} s. \
             Ctrl-C ends the run and drops the held packets (held_at_close)"
        );
        events.record(
            NewEvent::new(EventName::Waiting, message).with("held", held).with("next_s", remaining.round() as u64),
        );
    }
}
