//! The active alarms: conditions that need attention, each with its time, its cause and the remedy.

mod advice;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_protocol::Tick;
use forebay_protocol::decision::UnkeptCause;
use forebay_protocol::event::{Event, EventName};
use forebay_protocol::report::UnkeptReport;
use forebay_units::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::events::{EventKind, Events};
use crate::history::now_ms;
use crate::instances::Status;

/// The time for which an alarm of a single event stays active after the last such event.
const HOLD: Duration = Duration::from_secs(60);
/// The time for which an objective must be in reach before its alarm ends.
const SETTLE: Duration = Duration::from_secs(10);
/// The least time between two causes of an alarm that are sent to viewers: many causes have a count that changes each
/// second.
const AGAIN: Duration = Duration::from_secs(10);
/// The time for which the alarm of a killed pipeline stays active, if no pipeline of its name starts.
const KILLED: Duration = Duration::from_secs(3_600);

/// The name of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AlarmName {
    /// The pipeline was killed, or has crashed.
    InstanceKilled,
    /// The pipeline sends nothing.
    InstanceSilent,
    /// A flow misses its objective.
    ObjectiveMissed,
    /// No trigger keeps the objective of a flow.
    ObjectiveOutOfReach,
    /// Packets are lost because the pipeline is overloaded, or because of a defect.
    PacketsLost,
    /// The packet pool is empty at times.
    PoolLow,
    /// The link of a port is down.
    LinkDown,
    /// The interface of a port is gone.
    PortLost,
    /// Lines are missing in a file.
    LogLost,
    /// Frames are too long.
    Oversize,
    /// Another station uses an address of an interface.
    AddressConflict,
    /// An interface has more neighbours than it serves.
    NeighbourFlood,
    /// The server cannot write its store.
    StoreFailed,
}

/// The weight of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Packets are lost, or a pipeline does not run.
    Critical,
    /// An objective is missed, or something will fail.
    Warning,
}

/// An active alarm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Alarm {
    /// Its name.
    pub alarm: AlarmName,
    /// Its weight.
    pub severity: Severity,
    /// The pipeline; `None` if the alarm is about the server itself.
    pub instance: Option<String>,
    /// The part of the pipeline, for example the flow or the port; empty if the alarm is about all of it.
    pub subject: String,
    /// When the alarm began, in milliseconds since 1970.
    pub since_ms: i64,
    /// The cause, in a sentence.
    pub cause: String,
    /// The remedy: the steps of an operator.
    pub advice: String,
}

/// The identity of an alarm: the pipeline, the name and the subject.
type Key = (Option<String>, AlarmName, String);

/// The active alarms.
#[derive(Debug)]
pub struct Alarms {
    active: Mutex<BTreeMap<Key, Active>>,
    events: Arc<Events>,
}

#[derive(Debug)]
struct Active {
    alarm: Alarm,
    /// When the alarm ends without a further cause; `None` if only its opposite ends it.
    until: Option<Instant>,
    /// Whether viewers have its present cause.
    is_sent: bool,
    /// When it was last sent to viewers.
    sent: Instant,
}

impl Alarms {
    /// Creates the list of alarms. Changes are sent to viewers through `events`.
    #[must_use]
    pub fn new(events: Arc<Events>) -> Self {
        Self { active: Mutex::default(), events }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Active>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all active alarms: critical ones first, then in the order of their beginning.
    #[must_use]
    pub fn list(&self) -> Vec<Alarm> {
        let mut all: Vec<_> = self.lock().values().map(|active| active.alarm.clone()).collect();
        all.sort_by_key(|alarm| (alarm.severity, alarm.since_ms));
        all
    }

    /// Returns the number of active alarms of a pipeline.
    #[must_use]
    pub fn count(&self, instance: &str) -> usize {
        self.lock().keys().filter(|(of, ..)| of.as_deref() == Some(instance)).count()
    }

    /// Returns the number of flows of a pipeline that miss their objective.
    #[must_use]
    pub fn missed_objectives(&self, instance: &str) -> usize {
        let is_missed = |(of, name, _): &&Key| of.as_deref() == Some(instance) && *name == AlarmName::ObjectiveMissed;
        self.lock().keys().filter(is_missed).count()
    }

    /// Begins an alarm, or continues it with another cause.
    fn raise(&self, instance: Option<&str>, name: AlarmName, subject: &str, cause: String, hold: Option<Duration>) {
        let key = (instance.map(str::to_owned), name, subject.to_owned());
        let until = hold.map(|hold| Instant::now() + hold);
        let mut active = self.lock();
        if let Some(known) = active.get_mut(&key) {
            known.until = until;
            known.is_sent &= known.alarm.cause == cause;
            known.alarm.cause = cause;
            return;
        }
        let alarm = Alarm {
            alarm: name,
            severity: advice::severity(name),
            instance: key.0.clone(),
            subject: subject.to_owned(),
            since_ms: now_ms(),
            cause,
            advice: advice::advice(name).to_owned(),
        };
        self.publish(&alarm, true);
        active.insert(key, Active { alarm, until, is_sent: true, sent: Instant::now() });
    }

    /// Ends all alarms for which `ends` is true.
    fn clear(&self, ends: impl Fn(&Key, &Active) -> bool) {
        self.lock().retain(|key, active| {
            let is_over = ends(key, active);
            if is_over {
                self.publish(&active.alarm, false);
            }
            !is_over
        });
    }

    fn publish(&self, alarm: &Alarm, is_active: bool) {
        let data = json!({ "alarm": alarm, "active": is_active });
        self.events.publish(EventKind::Alarm, alarm.instance.as_deref(), data.to_string());
    }

    fn clear_one(&self, instance: Option<&str>, name: AlarmName, subject: &str) {
        self.clear(|(of, known, about), _| of.as_deref() == instance && *known == name && about == subject);
    }

    /// Ends alarms whose time is over, and sends changed causes.
    pub(crate) fn look(&self, now: Instant) {
        self.clear(|_, active| active.until.is_some_and(|until| until <= now));
        for active in self.lock().values_mut().filter(|active| !active.is_sent && now >= active.sent + AGAIN) {
            self.publish(&active.alarm, true);
            (active.is_sent, active.sent) = (true, now);
        }
    }

    /// Begins or ends the alarm of a pipeline that has sent nothing for `silence`. Returns whether that is a change.
    pub(crate) fn status(&self, instance: &str, pid: u32, status: Status, silence: Duration) -> bool {
        let key = (Some(instance.to_owned()), AlarmName::InstanceSilent, String::new());
        let was_silent = self.lock().contains_key(&key);
        match status {
            Status::Silent if !was_silent => {
                let span = silence.as_secs_f64().ceil();
                let cause = format!("the pipeline (process {pid}) has sent nothing for {span} s");
                self.raise(Some(instance), AlarmName::InstanceSilent, "", cause, None);
                true
            }
            Status::Running if was_silent => {
                self.clear_one(Some(instance), AlarmName::InstanceSilent, "");
                true
            }
            _ => false,
        }
    }

    /// Ends the alarms of a pipeline that has ended. If it was killed, that is an alarm.
    pub(crate) fn end(&self, instance: &str, pid: u32, status: Status) {
        self.clear(|(of, ..), _| of.as_deref() == Some(instance));
        if status == Status::Killed {
            let cause = format!("process {pid} ended without removing its socket: it was killed, or has crashed");
            self.raise(Some(instance), AlarmName::InstanceKilled, "", cause, Some(KILLED));
        }
    }

    /// Ends the alarms of an earlier pipeline of this name.
    pub(crate) fn begin(&self, instance: &str) {
        self.clear(|(of, ..), _| of.as_deref() == Some(instance));
    }

    /// Begins or ends the alarm of the store. `trouble` is the error of its last write.
    pub(crate) fn store(&self, trouble: Option<String>) {
        match trouble {
            Some(trouble) => self.raise(None, AlarmName::StoreFailed, "", trouble, None),
            None => self.clear_one(None, AlarmName::StoreFailed, ""),
        }
    }

    /// Begins and ends alarms according to a tick.
    pub(crate) fn tick(&self, instance: &str, tick: &Tick) {
        let span = in_words(tick.interval_s);
        for (reason, count) in tick.dropped.iter().filter(|(reason, _)| advice::is_overload(reason)) {
            let cause = format!("{count} packets were dropped in {span}: {reason}");
            self.raise(Some(instance), AlarmName::PacketsLost, reason, cause, Some(HOLD));
        }
        if tick.lost > 0 {
            let cause = format!("ports lost {} packets in {span} before they entered", tick.lost);
            self.raise(Some(instance), AlarmName::PacketsLost, "ports", cause, Some(HOLD));
        }
        if let Some(unkept) = &tick.unkept {
            self.unkept(instance, unkept);
        }
    }

    /// Begins and ends the alarms of objectives that no trigger keeps: these are all of them.
    pub(crate) fn unkept(&self, instance: &str, unkept: &[UnkeptReport]) {
        let name = AlarmName::ObjectiveOutOfReach;
        for ((of, known, flow), active) in self.lock().iter_mut() {
            let is_unkept = unkept.iter().any(|unkept| unkept.flow == *flow);
            // The controller decides several times per second, and near the limit its decisions differ.
            if of.as_deref() == Some(instance) && *known == name && !is_unkept && active.until.is_none() {
                active.until = Some(Instant::now() + SETTLE);
            }
        }
        for unkept in unkept {
            self.raise(Some(instance), name, &unkept.flow, cause_of(unkept), None);
        }
    }

    /// Begins and ends alarms according to an event of a pipeline.
    pub(crate) fn event(&self, instance: &str, event: &Event) {
        let text = |key: &str| event.fields.get(key).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
        let raise = |name, key: &str, hold| self.raise(Some(instance), name, &text(key), event.message.clone(), hold);
        let clear = |name, key: &str| self.clear_one(Some(instance), name, &text(key));
        // An old event, from before the server started, no longer holds an alarm.
        let age = event.time.parse::<jiff::Timestamp>().map_or(0, |time| now_ms() - time.as_millisecond());
        let hold = HOLD.checked_sub(Duration::from_millis(age.max(0).unsigned_abs()));
        match event.event {
            EventName::LinkDown => raise(AlarmName::LinkDown, "port", None),
            EventName::LinkUp => clear(AlarmName::LinkDown, "port"),
            EventName::PortLost => raise(AlarmName::PortLost, "port", None),
            EventName::PortRemade => clear(AlarmName::PortLost, "port"),
            EventName::ObjectiveMissed => raise(AlarmName::ObjectiveMissed, "flow", None),
            EventName::ObjectiveKept => clear(AlarmName::ObjectiveMissed, "flow"),
            // Flows, ports and their objectives may be gone. If they still are in trouble, an event says so.
            EventName::ReloadAccepted => self.clear(|(of, name, _), _| {
                of.as_deref() == Some(instance)
                    && matches!(name, AlarmName::ObjectiveMissed | AlarmName::LinkDown | AlarmName::PortLost)
            }),
            _ if hold.is_none() => {}
            EventName::PoolLow => raise(AlarmName::PoolLow, "", hold),
            EventName::LogLost => raise(AlarmName::LogLost, "module", hold),
            EventName::Oversize => raise(AlarmName::Oversize, "port", hold),
            EventName::AddressConflict => raise(AlarmName::AddressConflict, "module", hold),
            EventName::NeighbourFlood => raise(AlarmName::NeighbourFlood, "module", hold),
            _ => {}
        }
    }
}

/// Returns why no trigger keeps an objective, without the delay: the controller's estimate changes with each decision.
fn cause_of(unkept: &UnkeptReport) -> String {
    let objective = Nanos((unkept.slo_us * 1e3).round() as u64);
    let why = match unkept.cause {
        UnkeptCause::Slow => "calls and waits for a turn take longer, even if no packet waits for a batch",
        UnkeptCause::Time => "smaller batches would overload a worker",
        UnkeptCause::Load => "more packets arrive than a worker has time for, even in the largest batches",
        UnkeptCause::Stated => "the configuration or a user has set a trigger for which packets wait too long",
        UnkeptCause::Share => "the flow offers more than its share, and is held back",
    };
    format!("no trigger keeps the objective of {objective}: {why}")
}

/// Returns the time that a tick covers.
fn in_words(interval_s: f64) -> String {
    match format!("{interval_s:.1}").as_str() {
        "1.0" => "the last second".to_owned(),
        seconds => format!("the last {seconds} s"),
    }
}

#[cfg(test)]
mod tests;
