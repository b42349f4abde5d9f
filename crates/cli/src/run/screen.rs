//! Shows a run until it ends: as a live table on the terminal, or as one line per interval.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay_graph::files::take_reopen_failures;
use forebay_instance::{PipelineCounters, Watcher, events::NewEvent};
use forebay_measure::{Clock, Tsc};
use forebay_protocol::event::EventName;

use super::service::Service;
use super::traces::Traces;
use super::wait_notice::WaitNotice;
use crate::engine::Engine;
use crate::events::Events;
use crate::hangup::Followed;
use crate::live::{EVENTS, Live, Quit, is_in_foreground};
use crate::{args, plain, printed};

/// The interval at which the stop flag and the keyboard are read.
const LOOK: Duration = Duration::from_millis(20);
/// The default interval of the live table or of lines.
const INTERVAL: Duration = Duration::from_secs(1);
/// Shows the state of the run until it ends. Also prints events and traces, lets `watcher` record events, and lets
/// `service` report to the service manager. Sets `stop` if the user quits the live table.
#[expect(clippy::too_many_arguments, reason = "each argument is another part of the run")]
pub(super) fn show(
    engine: &Engine,
    board: &PipelineCounters,
    events: &mut Events,
    watcher: &mut Watcher,
    arguments: &args::Run,
    stop: &AtomicBool,
    traces: &Traces,
    signals: &Followed,
    service: &mut Service,
) -> anyhow::Result<()> {
    let quiet = arguments.no_live || arguments.simulated;
    // Traces scroll and would overwrite the table.
    let table = !quiet && !arguments.json && arguments.trace.is_none() && io::stdout().is_terminal();
    // A service without a terminal writes only events.
    let lines = !quiet && (arguments.interval.is_some() || io::stderr().is_terminal());
    // On a terminal, events wait while the table is drawn. A file receives each event at once, so that it has the
    // events before a crash.
    let events_wait = io::stderr().is_terminal();
    let mut screen = if table { Screen::Free } else { Screen::None };
    let interval = arguments.interval.map_or(INTERVAL, |interval| Duration::from_nanos(interval.0));
    let mut next = Instant::now() + interval;
    let first = board.nothing();
    let mut last = first.clone();
    let mut wait_notice = WaitNotice::default();
    while !engine.is_over(stop) {
        screen.take_in_foreground();
        wait_notice.look(engine, board, events);
        service.look(board);
        match traces.print(board.began()) {
            Err(_) if signals.is_terminal_lost() => {}
            printed => printed?,
        }
        if signals.is_terminal_lost() {
            screen.lose();
        }
        match &mut screen {
            Screen::Drawn(live) => match live.handle_keys(engine.patience(LOOK)) {
                Ok(quit) => stop.store(quit || stop.load(Ordering::Relaxed), Ordering::Relaxed),
                Err(_) => screen.lose(),
            },
            _ if quiet => std::thread::sleep(engine.patience(LOOK)),
            _ => std::thread::sleep(engine.patience(LOOK.min(next.saturating_duration_since(Instant::now())))),
        }
        if !arguments.simulated {
            watcher.look(Tsc.now());
            report_reopen_failures(events);
        }
        // Events would overwrite the table, so they are printed when the table is gone.
        if !(screen.is_drawn() && events_wait) {
            events.print();
        }
        if quiet || Instant::now() < next {
            continue;
        }
        next += interval;
        let now = board.read(Tsc.now());
        let (recent, whole) = (board.report(&last, &now), board.report(&first, &now));
        match &mut screen {
            Screen::Drawn(live) => {
                if live.show(recent, whole, events.log().recent(EVENTS)).is_err() {
                    screen.lose();
                }
            }
            // A line that cannot be written does not end the run.
            Screen::None if lines && printed::err_takes(Instant::now()) => {
                drop(plain::line(&recent, &whole, &mut printed::err()));
            }
            // Nothing is printed while a shell has the terminal, and the run does not wait for a pipe without a reader.
            Screen::Free | Screen::None => {}
        }
        last = now;
    }
    Ok(())
}

/// The terminal of the live table.
enum Screen {
    /// There is no terminal, or drawing failed. Lines are printed instead of the table.
    None,
    /// The process is not in the foreground. The table is drawn when the process is in the foreground again.
    Free,
    /// The table is on the terminal.
    Drawn(Box<Live>),
}

impl Screen {
    /// Draws the table when the process is in the terminal's foreground.
    fn take_in_foreground(&mut self) {
        if matches!(self, Self::Free) && is_in_foreground() {
            *self = Live::start(Quit::EndRun).map_or(Self::None, |live| Self::Drawn(Box::new(live)));
        }
    }

    fn is_drawn(&self) -> bool {
        matches!(self, Self::Drawn(_))
    }

    /// Releases the terminal after an error. If the cause is that the process is no longer in the foreground, the table
    /// returns later.
    fn lose(&mut self) {
        let next = if is_in_foreground() { Self::None } else { Self::Free };
        if let Self::Drawn(live) = std::mem::replace(self, next) {
            live.abandon();
        }
    }
}

/// Records an event for each log that could not be reopened since the last call.
fn report_reopen_failures(events: &Events) {
    for (path, why) in take_reopen_failures() {
        let path = path.display().to_string();
        let message = format!("{path} was not reopened: {why}; lines go to the open file, and the run tries again");
        events.record(NewEvent::new(EventName::LogNotReopened, message).with("file", path).with("why", why));
    }
}
