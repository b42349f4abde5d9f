//! One running pipeline, as far as the server knows it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_protocol::report::ChangeReport;
use forebay_protocol::response::Hello;
use forebay_protocol::{ClientError, Report, Request, Response, Tick};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::connection::Connection;
use super::discovery::Sockets;
use super::reports::Reports;

/// The shortest time after which a pipeline that has sent nothing counts as silent.
const SILENCE: Duration = Duration::from_millis(1_900);
/// The time by which a report may be late.
const LATE: Duration = Duration::from_millis(900);
/// The largest number of requests to one pipeline at a time. A pipeline accepts 64 connections, of all its clients.
const REQUESTS: usize = 8;

/// The largest number of changes of triggers that are kept.
const CHANGES: usize = 200;

/// The state of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It runs and sends its counters.
    Running,
    /// Its process exists, but has sent nothing for two seconds, or its report is almost a second late: it is
    /// suspended, or the machine is overloaded.
    Silent,
    /// It has ended by itself or was stopped.
    Ended,
    /// Its process is gone, and has not removed its socket: it was killed, or has crashed.
    Killed,
}

impl Status {
    /// Returns whether the pipeline's process exists.
    #[must_use]
    pub fn is_running(self) -> bool {
        matches!(self, Self::Running | Self::Silent)
    }
}

/// What the last messages of a pipeline contained.
#[derive(Clone, Debug, Default)]
pub struct Live {
    /// The report of the whole run: the last full report and all ticks since. Figures that ticks do not carry, for
    /// example the percentiles of delays, are those of the full report.
    pub whole: Option<Arc<Report>>,
    /// The last tick.
    pub tick: Option<Arc<Tick>>,
    /// When the last message came.
    pub at: Option<Instant>,
    /// The version of the configuration in force, and the number of its accepted changes.
    pub configuration: Option<(String, u64)>,
    /// The number, in the server's stream, of the last event with counters of this pipeline
    /// ([`ServerEvent::id`](crate::events::ServerEvent::id)).
    pub event: u64,
}

/// A pipeline that runs on this host, or has ended recently.
#[derive(Debug)]
pub struct Instance {
    name: String,
    socket: PathBuf,
    hello: Hello,
    /// The user of its process, if this user is not trusted.
    foreign: Option<u32>,
    /// The time between two reports.
    interval: Duration,
    since: Instant,
    live: Mutex<Live>,
    /// The last changes of triggers by the controller, oldest first: at most [`CHANGES`].
    changes: Mutex<Vec<ChangeReport>>,
    /// The number of the last event of the pipeline that the server has read.
    known_event: AtomicU64,
    /// Admits one trace at a time: each takes a connection and makes the pipeline slower.
    pub(crate) traces: Semaphore,
    /// How and when the pipeline ended; `None` while it runs.
    ended: Mutex<Option<(Status, Instant)>>,
    /// Admits one write at a time.
    pub(crate) writes: Arc<tokio::sync::Mutex<()>>,
    requests: Semaphore,
    /// Full reports for metrics.
    pub(crate) reports: Reports,
}

impl Instance {
    pub(super) fn new(name: String, socket: PathBuf, hello: Hello, foreign: Option<u32>, interval: Duration) -> Self {
        Self {
            name,
            socket,
            hello,
            foreign,
            interval,
            since: Instant::now(),
            live: Mutex::default(),
            changes: Mutex::default(),
            known_event: AtomicU64::new(0),
            traces: Semaphore::new(1),
            ended: Mutex::default(),
            writes: Arc::default(),
            requests: Semaphore::new(REQUESTS),
            reports: Reports::default(),
        }
    }

    /// Returns the name, which identifies the pipeline in URLs and in metrics.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path of its socket.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the user of its process, if this user is not trusted.
    pub(super) fn foreign(&self) -> Option<u32> {
        self.foreign
    }

    /// Returns the instance's own description.
    #[must_use]
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Returns what the last messages contained.
    #[must_use]
    pub fn live(&self) -> Live {
        self.lock().clone()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the last changes of triggers by the controller, oldest first: at most 200.
    #[must_use]
    pub fn changes(&self) -> Vec<ChangeReport> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps changes of triggers. Those that are known already are left out.
    pub(super) fn keep_changes(&self, changes: &[ChangeReport]) {
        append(&mut self.changes.lock().unwrap_or_else(PoisonError::into_inner), changes);
    }

    /// Returns the time between two reports.
    pub(super) fn interval(&self) -> Duration {
        self.interval
    }

    /// Returns the time after which the pipeline counts as silent if it has sent nothing.
    pub(crate) fn silence(&self) -> Duration {
        SILENCE.max(self.interval + LATE)
    }

    /// Returns the state.
    #[must_use]
    pub fn status(&self) -> Status {
        if let Some((status, _)) = self.ended() {
            return status;
        }
        let heard = self.lock().at.unwrap_or(self.since);
        if heard.elapsed() > self.silence() { Status::Silent } else { Status::Running }
    }

    /// Returns how and when the pipeline ended; `None` while it runs.
    pub(crate) fn ended(&self) -> Option<(Status, Instant)> {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of the last event that the server has read.
    pub(super) fn known_event(&self) -> u64 {
        self.known_event.load(Ordering::Relaxed)
    }

    /// Records that the server has read an event.
    pub(super) fn know_event(&self, id: u64) {
        self.known_event.fetch_max(id, Ordering::Relaxed);
    }

    /// Records that the pipeline has ended.
    pub(crate) fn end(&self, status: Status) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert((status, Instant::now()));
    }

    /// Returns the cores of its workers, as far as they are known.
    #[must_use]
    pub fn cores(&self) -> Vec<usize> {
        if !self.status().is_running() {
            return Vec::new();
        }
        self.lock().whole.iter().flat_map(|whole| whole.workers.iter().filter_map(|worker| worker.core)).collect()
    }

    /// Opens a connection to the pipeline.
    ///
    /// # Errors
    /// [`ClientError`]; [`ClientError::Ended`] if another process listens at the socket now.
    pub(crate) async fn connect(&self, sockets: &Sockets) -> Result<Connection, ClientError> {
        if self.ended().is_some() {
            return Err(ClientError::Ended { path: self.socket.clone(), is_change: false });
        }
        let (connection, hello, _) = sockets.open(&self.socket).await?;
        if (hello.pid, &hello.started) != (self.hello.pid, &self.hello.started) {
            return Err(ClientError::Ended { path: self.socket.clone(), is_change: false });
        }
        Ok(connection)
    }

    /// Sends a request over a connection of its own, and returns the response.
    ///
    /// # Errors
    /// [`ClientError`], also if the response is an error.
    pub async fn request(&self, sockets: &Sockets, request: &Request) -> Result<Response, ClientError> {
        self.request_with(sockets, request, &[]).await
    }

    /// As [`request`](Self::request), with lines that follow the request.
    ///
    /// # Errors
    /// As [`request`](Self::request).
    pub async fn request_with(
        &self,
        sockets: &Sockets,
        request: &Request,
        lines: &[&str],
    ) -> Result<Response, ClientError> {
        // The semaphore is never closed.
        let _one = self.requests.acquire().await;
        let mut connection = self.connect(sockets).await.map_err(|error| match error {
            // The request was not sent.
            ClientError::Broken(error) => ClientError::Connect { path: self.socket.clone(), error },
            ClientError::Malformed(error) => ClientError::Connect { path: self.socket.clone(), error: error.into() },
            error => error,
        })?;
        connection.request_with(request, lines).await
    }
}

/// Appends the changes that came after the last known one, and keeps the last [`CHANGES`]. All changes of one decision
/// have the same time, and come together.
fn append(kept: &mut Vec<ChangeReport>, changes: &[ChangeReport]) {
    let last = kept.last().map_or(f64::MIN, |change| change.at_s);
    let known = kept.len();
    kept.extend(changes.iter().filter(|change| change.at_s > last).cloned());
    // A report has the last change of each module, in the order of the modules.
    kept[known..].sort_by(|one, other| one.at_s.total_cmp(&other.at_s));
    let surplus = kept.len().saturating_sub(CHANGES);
    kept.drain(..surplus);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_changes_are_kept_once() {
        let change = |at: usize, module: &str| {
            let text = format!(r#"{{"at_s":{at},"module":"{module}","from":0,"to":{at},"why":"rule"}}"#);
            serde_json::from_str::<ChangeReport>(&text).expect("a change")
        };
        let mut kept = Vec::new();
        append(&mut kept, &[change(1, "a"), change(1, "b"), change(0, "c")]);
        // A full report repeats changes that are known.
        append(&mut kept, &[change(2, "a"), change(1, "b")]);
        assert_eq!(kept, [change(0, "c"), change(1, "a"), change(1, "b"), change(2, "a")]);

        for at in 3..=CHANGES + 2 {
            append(&mut kept, &[change(at, "a")]);
        }
        assert_eq!((kept.len(), kept[0].at_s, kept[CHANGES - 1].at_s), (CHANGES, 3.0, CHANGES as f64 + 2.0));
    }
}
