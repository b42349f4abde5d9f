//! The request `watch`: a full report, then the changes of each interval.

use std::io;
use std::time::{Duration, Instant};

use forebay_graph::report::Reading;
use forebay_protocol::{Report, Response, Tick};

use super::lines::Lines;
use super::service::{self, Details, Service};

/// The interval at which the server checks whether the client has disconnected.
const LOOK: Duration = Duration::from_millis(50);

/// A stream of counters.
pub(super) struct Watch<'s> {
    service: &'s Service,
    /// The counters at the time of the last message.
    last: Reading,
    /// The report of the interval before the last message; `None` before the first message.
    previous: Option<Report>,
    /// The number of changes of the configuration at the last full report.
    changes: u64,
    /// The time of the next message.
    next: Instant,
}

impl<'s> Watch<'s> {
    /// Starts a stream. Its first message is a full report.
    pub(super) fn start(service: &'s Service) -> Self {
        let last = service.instance.board().nothing();
        Self { service, last, previous: None, changes: service::changes(service), next: Instant::now() }
    }

    /// Sends the next message: the changes of the interval, or a full report if it is the first message or the
    /// configuration has changed.
    pub(super) fn send_next(&mut self, send: &mut dyn FnMut(Response) -> io::Result<()>) -> io::Result<&mut Self> {
        let changes = service::changes(self.service);
        let recent = service::recent_report(self.service, &mut self.last, &Details::default());
        // A tick refers to modules, flows and ports by index. A change of the configuration changes the indices, and
        // may do so before the change is counted.
        let names = |report: &Report| -> Vec<String> {
            let modules = report.modules.iter().map(|module| &module.name);
            let flows = report.flows.iter().map(|flow| &flow.name);
            modules.chain(flows).chain(report.ports.iter().map(|port| &port.name)).cloned().collect()
        };
        let is_same = |previous: &Report| {
            changes == self.changes
                && names(previous) == names(&recent)
                && previous.workers.len() == recent.workers.len()
        };
        let tick =
            self.previous.as_ref().filter(|previous| is_same(previous)).map(|previous| Tick::of(&recent, previous));
        (self.changes, self.previous) = (changes, Some(recent));
        send(match tick {
            Some(tick) => Response::Tick(Box::new(tick)),
            None => {
                // Without a census, which would be later than `last`: the packets between the two would also be in the
                // next tick.
                let whole = service::report_until(self.service, &self.last, &Details::default());
                Response::Report { recent: None, whole: Box::new(whole), census: None }
            }
        })?;
        Ok(self)
    }

    /// Waits until the next message is due. Returns `true` if the client has disconnected meanwhile.
    pub(super) fn is_over(&mut self, lines: &mut Lines<'_>, interval: Duration) -> io::Result<bool> {
        // After a pause of the process, the missed intervals are not sent one after the other.
        self.next = (self.next + interval).max(Instant::now());
        loop {
            if lines.is_over()? {
                return Ok(true);
            }
            let remaining = self.next.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return Ok(false);
            }
            std::thread::sleep(remaining.min(LOOK));
        }
    }
}
