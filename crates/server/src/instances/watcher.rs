//! Watches one pipeline: its counters, its events, and its reports for the history.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_protocol::event::Event;
use forebay_protocol::{ClientError, Report, Request, Response, Tick};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::connection::Connection;
use super::instance::{Instance, Status};
use crate::events::{EventKind, content};
use crate::history;
use crate::shared::Shared;

/// The time in which a process that ends removes its socket.
const REMOVAL: Duration = Duration::from_millis(300);
/// The time between two attempts to continue with a pipeline that has closed a connection but still runs.
const AGAIN: Duration = Duration::from_secs(1);
/// The time between two attempts at a pipeline that is ignored because its user runs too many.
const IGNORED: Duration = Duration::from_secs(60);

/// How watching a socket has ended.
pub(super) struct Watched {
    /// The path of the socket.
    pub(super) path: PathBuf,
    /// The time after which the socket is tried again, although its file has not changed.
    pub(super) again: Option<Duration>,
    /// Whether a pipeline responded and was watched.
    pub(super) is_found: bool,
}

/// Watches the pipeline at `path` until it ends. `is_first` is false if the last attempt at this socket failed: an
/// error is then no news.
pub(super) async fn watch(shared: Arc<Shared>, path: PathBuf, is_first: bool) -> Watched {
    let (connection, hello, owner) = match shared.sockets.open(&path).await {
        Ok(opened) => opened,
        // Killed processes leave sockets behind: that is no error.
        Err(error) if is_over(&error) => return Watched { path, again: None, is_found: false },
        Err(error) => {
            if is_first {
                shared.log.warn("instance_unreachable", &error.to_string());
            }
            let again = is_transient(&error).then_some(Duration::ZERO);
            return Watched { path, again, is_found: false };
        }
    };
    let foreign = (!shared.sockets.is_trusted(&path, owner)).then_some(owner);
    let Some(instance) = shared.instances.add(hello, path.clone(), foreign) else {
        if is_first {
            let why =
                "too many pipelines of its user run: end one; or add its folder to `sockets`, if you trust the user";
            shared.log.warn("instance_ignored", &format!("{}: {why}", path.display()));
        }
        return Watched { path, again: Some(IGNORED), is_found: false };
    };
    shared.alarms.begin(instance.name());
    shared.log.info("instance_found", &format!("{} at {}", instance.name(), path.display()));
    shared.publish_instance(&instance);
    let mut connection = Some(connection);
    // The streams end together with the one of the counters.
    while !run_once(&shared, &instance, connection.take()).await {
        sleep(AGAIN).await;
    }
    let status = status_of_ended(&shared, &path).await;
    instance.end(status);
    instance.reports.clear().await;
    shared.log.info("instance_gone", &format!("{}: {status:?}", instance.name()));
    // If another pipeline has the name already, it is not affected.
    if shared.instances.get(instance.name()).is_some_and(|now| Arc::ptr_eq(&now, &instance)) {
        shared.alarms.end(instance.name(), instance.hello().pid, status);
        shared.publish_instance(&instance);
    }
    Watched { path, again: None, is_found: true }
}

/// Returns whether an error means that no process listens at the socket any more.
fn is_over(error: &ClientError) -> bool {
    match error {
        ClientError::Ended { .. } => true,
        ClientError::Connect { error, .. } => {
            matches!(error.kind(), std::io::ErrorKind::ConnectionRefused | std::io::ErrorKind::NotFound)
        }
        _ => false,
    }
}

/// Returns whether the same request may succeed later: the process is suspended, or has too many clients.
fn is_transient(error: &ClientError) -> bool {
    match error {
        ClientError::Silent | ClientError::Refused(_) | ClientError::Broken(_) => true,
        ClientError::Connect { error, .. } => error.kind() == std::io::ErrorKind::WouldBlock,
        _ => false,
    }
}

/// Returns how the pipeline at `path` ended: a process that was killed leaves its socket behind.
async fn status_of_ended(shared: &Shared, path: &Path) -> Status {
    sleep(REMOVAL).await;
    let is_there = match path.symlink_metadata() {
        Ok(_) => true,
        // Only the root helper sees the folder.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            shared.sockets.list().await.is_none_or(|sockets| sockets.contains(path))
        }
        Err(_) => false,
    };
    if is_there { Status::Killed } else { Status::Ended }
}

/// Follows all streams of the pipeline until the stream of its counters breaks. Returns whether the pipeline has ended.
async fn run_once(shared: &Arc<Shared>, instance: &Arc<Instance>, connection: Option<Connection>) -> bool {
    let connection = match connection {
        Some(connection) => connection,
        None => match instance.connect(&shared.sockets).await {
            Ok(connection) => connection,
            Err(error) => return !is_transient(&error),
        },
    };
    tokio::select! {
        _ = follow_counters(shared, instance, connection) => {}
        // These two never return: they connect again if a connection breaks.
        () = follow_events(shared, instance) => {}
        () = history::record(shared, instance) => {}
    }
    // The instance may have closed the connection for another reason, for example too many clients.
    instance.connect(&shared.sockets).await.is_err_and(|error| !is_transient(&error))
}

/// Reads the counters until the connection breaks.
async fn follow_counters(shared: &Shared, instance: &Instance, mut connection: Connection) -> Result<(), ClientError> {
    // The settings allow no interval beyond 10 s.
    let interval_ms = u64::try_from(instance.interval().as_millis()).unwrap_or(u64::MAX);
    let mut response = connection.request(&Request::Watch { interval_ms }).await?;
    loop {
        match response {
            Response::Report { whole, .. } => {
                // A full report comes at the beginning and after each change of the configuration.
                begin(shared, instance, whole);
                shared.keep_off_workers();
                if let Ok(Response::Config(config)) = instance.request(&shared.sockets, &Request::Config {}).await {
                    instance.lock().configuration = Some((config.version, config.changes));
                }
            }
            Response::Tick(mut tick) => {
                let decisions = std::mem::take(&mut tick.decisions);
                if !decisions.is_empty() {
                    instance.keep_changes(&decisions);
                    let data = content(instance.name(), "decisions", &decisions);
                    shared.events.publish(EventKind::Decisions, Some(instance.name()), data);
                }
                shared.alarms.tick(instance.name(), &tick);
                if !add(shared, instance, tick) {
                    return Ok(());
                }
            }
            _ => {}
        }
        response = connection.next().await?;
    }
}

/// Begins the counters with a full report, and publishes it.
fn begin(shared: &Shared, instance: &Instance, mut whole: Box<Report>) {
    // Every viewer receives this report, and not every one may read decisions.
    let control = whole.control.take();
    instance.keep_changes(control.as_ref().map_or(&[], |control| control.changes.as_slice()));
    shared.alarms.unkept(instance.name(), control.as_ref().map_or(&[], |control| control.unkept.as_slice()));
    let data = content(instance.name(), "report", &*whole);
    // The counters and the number of their event change together, so that a viewer that reads both misses no tick and
    // sees none twice.
    let mut live = instance.lock();
    (live.whole, live.tick, live.at) = (Some(Arc::from(whole)), None, Some(Instant::now()));
    live.event = shared.events.publish(EventKind::Report, Some(instance.name()), data);
}

/// Adds a tick to the counters, and publishes it. Returns false if it belongs to another configuration.
fn add(shared: &Shared, instance: &Instance, tick: Box<Tick>) -> bool {
    let data = content(instance.name(), "tick", &*tick);
    let mut live = instance.lock();
    let is_added = live.whole.as_mut().is_some_and(|whole| tick.add_to(Arc::make_mut(whole)));
    if is_added {
        (live.tick, live.at) = (Some(Arc::from(tick)), Some(Instant::now()));
        live.event = shared.events.publish(EventKind::Tick, Some(instance.name()), data);
    }
    is_added
}

/// Reads the pipeline's events, and waits if there are none. Tries again if the connection breaks.
async fn follow_events(shared: &Shared, instance: &Instance) {
    let mut again = interval(AGAIN);
    again.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        again.tick().await;
        let Ok(mut connection) = instance.connect(&shared.sockets).await else { continue };
        let mut response = connection.request(&Request::Events { after: instance.known_event(), follow: true }).await;
        // The first response has old events. They say which alarms are active, but are no news.
        let mut is_news = instance.known_event() > 0;
        while let Ok(Response::Events(events)) = response {
            for event in &events {
                instance.know_event(event.id);
                shared.alarms.event(instance.name(), event);
                if is_news {
                    publish(shared, instance, event);
                }
            }
            is_news = true;
            response = connection.next().await;
        }
    }
}

fn publish(shared: &Shared, instance: &Instance, event: &Event) {
    let data = content(instance.name(), "event", event);
    shared.events.publish(EventKind::Event, Some(instance.name()), data);
}
