//! The stream of events (server-sent events).

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{Stream, unfold};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::time::timeout;

use super::Server;
use super::extract::Parameters;
use crate::access::{Access, Role, Tokens};
use crate::events::{EventKind, ServerEvent, Since, content};
use crate::overview::InstanceOverview;
use crate::problem::Problem;
use crate::shared::Shared;

/// The time after which a viewer without events receives a comment, so that both sides notice a broken connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The time after which the rights of a viewer without events are judged again.
const JUDGE: Duration = Duration::from_secs(5);

/// The query of the stream.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamQuery {
    #[serde(default)]
    instance: String,
}

/// Sends events as they happen. Each has a number (`id`), a type (`event`) and a JSON object (`data`).
///
/// The first event is `state`. Then come `instance`, `alarm`, `event`, and for the pipelines in the query also `report`
/// and `tick`, and, for clients that may read them, `decisions`. After a break, a client sends the header
/// Last-Event-ID, and receives the events since then. If events are missing, the client receives `state` again.
#[utoipa::path(get, path = "/api/v1/events", tag = "events",
    params(("instance" = Option<String>, Query,
            description = "The pipelines whose counters are wanted, separated by commas; `*` for all."),
        ("Last-Event-ID" = Option<String>, Header,
            description = "The number of the last event that the client knows.")),
    responses((status = 200, description = "The events.", body = String, content_type = "text/event-stream")))]
pub(super) async fn events(
    State(shared): Server,
    axum::Extension(access): axum::Extension<Access>,
    Parameters(query): Parameters<StreamQuery>,
    headers: HeaderMap,
) -> Result<([(&'static str, String); 1], Sse<impl Stream<Item = Result<Event, Infallible>>>), Problem> {
    let seat = Seat::take(&shared)?;
    let watched = query.instance.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let known = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let viewer = Viewer::new(seat, watched, &access, known);
    let stream = unfold(viewer, |mut viewer| async move {
        let event = viewer.next().await?;
        Some((Ok(event), viewer))
    });
    // The page disables the controls that this role does not allow.
    let role = [Role::Admin, Role::Operator, Role::Viewer].into_iter().find(|role| access.is(*role));
    let role = role.map_or("none".to_owned(), |role| format!("{role:?}").to_lowercase());
    Ok(([("forebay-role", role)], Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE).text(""))))
}

/// Counts a viewer until it is dropped. There are at most `limits.viewers`.
struct Seat(Arc<Shared>);

impl Seat {
    fn take(shared: &Arc<Shared>) -> Result<Self, Problem> {
        let most = shared.settings().limits.viewers;
        if shared.counts.viewers.fetch_add(1, Ordering::Relaxed) < most {
            return Ok(Self(Arc::clone(shared)));
        }
        shared.counts.viewers.fetch_sub(1, Ordering::Relaxed);
        let detail = format!("there are {most} viewers already: try again later, or raise `limits.viewers`");
        Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).with_header(header::RETRY_AFTER, "10"))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.counts.viewers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A client that receives events.
struct Viewer {
    seat: Seat,
    queue: Receiver<Arc<ServerEvent>>,
    /// The pipelines whose counters it receives.
    watched: Vec<String>,
    /// Whether it may read decisions.
    is_trusted: bool,
    /// The tokens with which its rights were judged. When they are replaced, the client must connect again.
    tokens: Arc<Tokens>,
    /// When its token ends.
    expires: Option<Timestamp>,
    /// Events to send before those in the queue.
    first: VecDeque<Event>,
    /// For each pipeline, the number of the last event whose counters the viewer has.
    counted: BTreeMap<String, u64>,
}

impl Viewer {
    fn new(seat: Seat, watched: Vec<String>, access: &Access, known: Option<&str>) -> Self {
        let (queue, last) = seat.0.events.subscribe();
        let mut viewer = Self {
            queue,
            watched,
            is_trusted: access.is(Role::Viewer),
            tokens: seat.0.tokens(),
            expires: match access {
                Access::Token { expires, .. } => *expires,
                _ => None,
            },
            first: VecDeque::new(),
            counted: BTreeMap::new(),
            seat,
        };
        let since = known.map_or(Since::Missing, |tag| viewer.seat.0.events.since(tag, last));
        match since {
            Since::Events(events) => {
                let events = events.iter().filter(|event| viewer.wants(event)).map(|event| viewer.written(event));
                viewer.first = events.collect();
            }
            Since::Missing => viewer.first.push_back(viewer.state(last)),
        }
        viewer.add_counters(last);
        viewer
    }

    fn shared(&self) -> &Shared {
        &self.seat.0
    }

    fn is_watched(&self, instance: &str) -> bool {
        self.watched.iter().any(|watched| watched == "*" || watched == instance)
    }

    /// Returns whether the viewer receives the event.
    fn wants(&self, event: &ServerEvent) -> bool {
        let instance = event.instance.as_deref().unwrap_or_default();
        match event.kind {
            EventKind::Instance | EventKind::Alarm | EventKind::Event => true,
            EventKind::Decisions => self.is_trusted && self.is_watched(instance),
            EventKind::Report | EventKind::Tick => {
                self.is_watched(instance) && self.counted.get(instance).is_none_or(|last| *last < event.id)
            }
        }
    }

    fn written(&self, event: &ServerEvent) -> Event {
        let id = self.shared().events.tag(event.id);
        Event::default().id(id).event(event.kind.name()).data(&event.data)
    }

    /// Returns the event with the state of everything, as it is after the event `last`.
    fn state(&self, last: u64) -> Event {
        let shared = self.shared();
        let all = shared.instances.list();
        let instances: Vec<_> = all.iter().map(|instance| InstanceOverview::of(shared, instance)).collect();
        let data = json!({ "instances": instances, "alarms": shared.alarms.list(), "forebay": shared.version });
        Event::default().id(shared.events.tag(last)).event("state").data(data.to_string())
    }

    /// Adds the reports of all watched pipelines. Each has the number of the last event before the reports, not a
    /// number of its own. Otherwise a viewer that connects again would miss events, or receive some twice.
    fn add_counters(&mut self, last: u64) {
        for instance in self.shared().instances.list() {
            let live = instance.live();
            if let Some(whole) = live.whole.filter(|_| self.is_watched(instance.name())) {
                let data = content(instance.name(), "report", &*whole);
                let id = self.shared().events.tag(last);
                self.first.push_back(Event::default().id(id).event(EventKind::Report.name()).data(data));
                self.counted.insert(instance.name().to_owned(), live.event);
            }
        }
    }

    /// Returns whether the rights of the client still hold. This is checked at each event, and after
    /// [`JUDGE`] without one, so a token that has ended is noticed soon.
    fn is_admitted(&self) -> bool {
        let is_current = self.expires.is_none_or(|expires| expires > Timestamp::now());
        is_current && Arc::ptr_eq(&self.tokens, &self.shared().tokens())
    }

    /// Waits for the next event. `None` if the server ends, or if the rights of the client have ended.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if !self.is_admitted() {
                return None;
            }
            if let Some(event) = self.first.pop_front() {
                return Some(event);
            }
            // Without events, the rights are judged again after a while.
            let Ok(received) = timeout(JUDGE, self.queue.recv()).await else { continue };
            match received {
                Ok(event) if self.wants(&event) => return Some(self.written(&event)),
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => {
                    let (queue, last) = self.shared().events.subscribe();
                    self.queue = queue;
                    self.first.push_back(self.state(last));
                    self.add_counters(last);
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }
}
