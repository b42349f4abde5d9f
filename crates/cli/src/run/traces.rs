//! Prints the traces of `--trace`.

use std::cell::Cell;
use std::io::{self, Write};
use std::sync::mpsc::Receiver;

use forebay_instance::events::NewEvent;
use forebay_observe::trace::Story;
use forebay_protocol::event::EventName;
use forebay_units::{Frequency, Ticks};

use crate::events::Events;
use crate::{args, printed};

/// Prints the traces of the workers.
pub(super) struct Traces {
    pub(super) received: Receiver<Story>,
    /// True for standard output, false for standard error.
    pub(super) to_stdout: bool,
    pub(super) frequency: Frequency,
    /// The number of printed traces.
    pub(super) count: Cell<u64>,
}

impl Traces {
    /// Records an event if `--trace` was given and no packet was traced.
    pub(super) fn report_none(&self, arguments: &args::Run, events: &Events) {
        if arguments.trace.is_some() && self.count.get() == 0 {
            let why = if arguments.filter.is_some() { "no packet matched --filter" } else { "no packet entered" };
            events.record(NewEvent::new(EventName::NothingTraced, format!("--trace: {why}")));
        }
    }

    /// Prints the traces that have come since the last call. `began` is the start of the run.
    pub(super) fn print(&self, began: Ticks) -> io::Result<()> {
        while let Ok(story) = self.received.try_recv() {
            self.count.set(self.count.get() + 1);
            let text = story.text(began, self.frequency);
            if self.to_stdout {
                writeln!(printed::stream(), "{text}")?;
            } else {
                let _ = writeln!(printed::err(), "{text}");
            }
        }
        Ok(())
    }
}
