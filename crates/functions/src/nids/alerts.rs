//! Alerts on their way to a file: put into a ring by workers, made into lines and written by a thread of its own.
//!
//! A worker makes no system call and never waits. What finds the ring full is lost, and counted. The thread looks into the rings
//! every so often, so that nobody need wake it.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};
use serde::Serialize;

use super::groups::Ruleset;
use super::rule::Action;
use super::view::View;

/// Alerts that wait for the thread at most, of one worker.
const RING: usize = 8_192;
/// How often the thread looks for more.
const PERIOD: Duration = Duration::from_millis(20);

/// What a worker knows of an alert.
#[derive(Clone, Copy, Debug)]
pub struct Alert {
    /// Nanoseconds after 1970.
    pub nanos: u64,
    /// The rule's place.
    pub rule: u32,
    /// What became of the packet.
    pub action: Action,
    /// The packet.
    pub view: View,
}

/// An alert as a line.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    module: &'a str,
    action: &'static str,
    sid: u32,
    rev: u32,
    msg: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<&'a str>,
    priority: u8,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    references: &'a [String],
    protocol: u8,
    source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_port: Option<u16>,
    destination: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    destination_port: Option<u16>,
    payload: u16,
}

/// The line of an alert by a rule of these.
fn line(alert: &Alert, module: &str, rules: &Ruleset) -> Option<String> {
    let rule = rules.rules.get(alert.rule as usize)?;
    let view = &alert.view;
    let address = |number: u128| match view.v6 {
        true => Ipv6Addr::from_bits(number).to_string(),
        false => Ipv4Addr::from_bits(number as u32).to_string(),
    };
    let time = jiff::Timestamp::from_nanosecond(alert.nanos.into()).unwrap_or(jiff::Timestamp::MAX);
    let line = Line {
        time: format!("{time:.9}"),
        module,
        action: alert.action.name(),
        sid: rule.sid,
        rev: rule.revision,
        msg: &rule.message,
        class: rule.class.as_deref(),
        priority: rule.priority,
        references: &rule.references,
        protocol: view.protocol,
        source: address(view.source),
        source_port: view.ports.map(|(from, _)| from),
        destination: address(view.destination),
        destination_port: view.ports.map(|(_, to)| to),
        payload: view.payload.1 - view.payload.0,
    };
    serde_json::to_string(&line).ok()
}

/// A file's place: whoever comes after a module of the same name, in a configuration that has changed, goes on with its log.
#[derive(Default)]
pub struct Slot(Mutex<Weak<Log>>);

impl Slot {
    /// The log of the file, open already or not.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn take(&self, path: &Path, module: &str) -> Result<Arc<Log>, String> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(log) = slot.upgrade() {
            return Ok(log);
        }
        let log = Arc::new(Log::open(path, module)?);
        *slot = Arc::downgrade(&log);
        Ok(log)
    }
}

/// A file of alerts, for all workers of a module.
pub struct Log {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    state: Mutex<State>,
    /// Told when somebody waits for all to be written, or there will be no more; and when all is.
    told: Condvar,
    path: PathBuf,
    module: String,
}

/// A worker's alerts, and the rules that they are by.
struct Ring {
    alerts: Consumer<Alert>,
    rules: Arc<Ruleset>,
}

#[derive(Default)]
struct State {
    rings: Vec<Ring>,
    /// How often somebody asked for all to be written, and how often it was.
    asked: u64,
    done: u64,
    ended: bool,
    /// What went wrong.
    fault: Option<String>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    /// Opens a file: lines come after those that are in it.
    ///
    /// # Errors
    /// It cannot be written.
    fn open(path: &Path, module: &str) -> Result<Self, String> {
        let wrong = |error: &dyn std::fmt::Display| format!("cannot write {}: {error}", path.display());
        // A pipe would wait for its reader.
        if path.metadata().is_ok_and(|told| !told.is_file()) {
            return Err(wrong(&"allowed are regular files"));
        }
        let file = File::options().append(true).create(true).open(path).map_err(|error| wrong(&error))?;
        let (state, told) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { state, told, path: path.to_owned(), module: module.to_owned() });
        let thread = std::thread::Builder::new().name("nids-write".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || write_all(&shared, file)
        });
        Ok(Self { shared, thread: Mutex::new(Some(thread.map_err(|error| wrong(&error))?)) })
    }

    /// A worker's way to the file.
    pub fn ring(&self, rules: Arc<Ruleset>) -> Producer<Alert> {
        let (sender, alerts) = RingBuffer::new(RING);
        let mut state = self.shared.lock();
        // Those of workers that are gone have nothing more to say once they are empty.
        state.rings.retain(|Ring { alerts, .. }| !alerts.is_abandoned() || !alerts.is_empty());
        state.rings.push(Ring { alerts, rules });
        sender
    }

    /// Waits until all that was put into the rings is written.
    ///
    /// # Errors
    /// It could not be.
    pub fn flush(&self) -> Result<(), String> {
        let mut state = self.shared.lock();
        state.asked += 1;
        let asked = state.asked;
        self.shared.told.notify_all();
        while state.done < asked {
            let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
            if thread.as_ref().is_none_or(JoinHandle::is_finished) {
                return Err(format!("{} is not complete: the writing thread has ended", self.shared.path.display()));
            }
            drop(thread);
            state = self.shared.told.wait_timeout(state, PERIOD).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.fault.clone().map_or(Ok(()), Err)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.told.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // What went wrong in it was told by `flush`.
            let _ = thread.join();
        }
    }
}

fn write_all(shared: &Shared, file: File) {
    let mut out = BufWriter::new(file);
    let mut alerts: Vec<(Alert, Arc<Ruleset>)> = Vec::with_capacity(RING);
    loop {
        let mut state = shared.lock();
        let (asked, ended) = (state.asked, state.ended);
        alerts.clear();
        for ring in &mut state.rings {
            while alerts.len() < RING {
                match ring.alerts.pop() {
                    Ok(alert) => alerts.push((alert, Arc::clone(&ring.rules))),
                    Err(_) => break,
                }
            }
        }
        let more = alerts.len() == RING;
        drop(state);
        // Workers' alerts in the order of their times, as far as they came together.
        alerts.sort_by_key(|(alert, _)| alert.nanos);
        let result = write(&mut out, &alerts, shared);
        let mut state = shared.lock();
        if let Err(error) = result {
            // What comes is taken all the same, so that nobody waits for it.
            state.fault.get_or_insert_with(|| {
                format!("cannot write {}, which is not complete: {error}", shared.path.display())
            });
        }
        if more {
            continue;
        }
        if state.done < asked {
            state.done = asked;
            shared.told.notify_all();
        }
        if ended {
            return;
        }
        if state.asked == asked && !state.ended {
            let _ = shared.told.wait_timeout(state, PERIOD);
        }
    }
}

fn write(out: &mut BufWriter<File>, alerts: &[(Alert, Arc<Ruleset>)], shared: &Shared) -> io::Result<()> {
    for line in alerts.iter().filter_map(|(alert, rules)| line(alert, &shared.module, rules)) {
        out.write_all(line.as_bytes())?;
        out.write_all(b"\n")?;
    }
    out.flush()
}
