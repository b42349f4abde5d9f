//! Carries out the requests of the socket.

use std::any::Any;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay_graph::Telemetry;
use forebay_graph::files::{check_in_folders, reopen_logs};
use forebay_graph::report::Reading;
use forebay_graph::secret::without_keys;
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::{
    Problems, Source, built_in, is_built_in, known_names, shown_file, shown_setting, shown_settings, shown_text,
    with_settings,
};
use forebay_protocol::check::{Checked, Fault};
use forebay_protocol::event::EventName;
use forebay_protocol::response::{Configuration, DroppedPacket, Hello};
use forebay_protocol::{Action, Census, Report, Response, VERSION};
use forebay_units::wording::counted;

use super::ending::Ending;
use super::ledger::Ledger;
use super::lines::Patience;
use super::tables::warn_of;
use crate::accepted::{Accepted, fingerprint};
use crate::events::{EventLog, NewEvent};
use crate::instance::Instance;
use crate::reload::ReloadError;

/// Starts a trace of the next packets that match a filter. Arguments: the instance, the number of packets, and the
/// filter. Returns an error if the filter is invalid or no trace can be started.
pub type TraceOf = Box<dyn Fn(&dyn Instance, u64, Option<&str>) -> Result<Stories, String> + Send + Sync>;

/// Traced packets.
pub struct Stories {
    /// The path of each packet, in words.
    pub packets: Receiver<String>,
    /// The trace ends when this value is dropped.
    pub watching: Box<dyn Any + Send>,
}

/// Starts a stream of the dropped packets that match a filter. Arguments: the instance and the filter. Returns an error
/// if the filter is invalid.
pub type DropsOf = Box<dyn Fn(&dyn Instance, Option<&str>) -> Result<Drops, String> + Send + Sync>;

/// Dropped packets.
pub struct Drops {
    /// The packets.
    pub packets: Receiver<DroppedPacket>,
    /// The number of packets that were lost because the queue was full.
    pub lost: Arc<AtomicU64>,
    /// The stream ends when this value is dropped.
    pub watching: Box<dyn Any + Send>,
}

/// Facts about the run that `hello` reports.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The name of the run, if it has one.
    pub instance: Option<String>,
    /// The time at which the run started (RFC 3339).
    pub started: String,
}

/// Everything that the requests need. A thread that needs several of its locks takes `source` first.
pub struct Service {
    /// The running pipeline.
    pub instance: Arc<dyn Instance>,
    /// The configuration in force. It is locked during a reload or a move, so that they happen one after the other.
    pub source: Mutex<Source>,
    /// The file or `usecase:NAME` that the run was started from; `None` if it cannot be read again.
    pub origin: Option<String>,
    /// The file in which accepted configurations are kept for the next start; `None` if they are not kept.
    pub state: Option<PathBuf>,
    /// The [fingerprint](fingerprint) of the start file when the file `state` was last written; `None` if it is
    /// unknown.
    pub fingerprint: Mutex<Option<String>>,
    /// The events of the run.
    pub events: Arc<EventLog>,
    /// Starts traces.
    pub trace: TraceOf,
    /// Starts streams of dropped packets.
    pub drops: DropsOf,
    /// Facts about the run that `hello` reports.
    pub about: About,
    /// The number of accepted changes since the start.
    pub ledger: Mutex<Ledger>,
    /// Clients that wait for the end of the run.
    pub ending: Arc<Ending>,
    /// The time limits of clients.
    pub patience: Patience,
    /// Ends the run when set.
    pub stop: Arc<AtomicBool>,
}

impl Service {
    /// Reads the start file again, with the settings in force, and changes to this configuration. The process does so
    /// after SIGHUP. An event reports the result.
    pub fn reload(&self) {
        reload_by(self, "SIGHUP", Wanted::default());
    }
}

/// Returns the response to `hello`. `requests` are the names of all requests.
pub(super) fn hello(service: &Service, requests: &[&str]) -> Response {
    Response::Hello(Hello {
        protocol: VERSION,
        forebay: env!("CARGO_PKG_VERSION").to_owned(),
        pipeline: service.instance.graph().pipeline,
        instance: service.about.instance.clone(),
        pid: std::process::id(),
        started: service.about.started.clone(),
        workers: service.instance.workers(),
        capabilities: requests.iter().map(|request| (*request).to_owned()).collect(),
    })
}

/// Returns the response to `config`: the configuration in force, without its secrets.
pub(super) fn config(service: &Service) -> Response {
    let source = service.source.lock().unwrap_or_else(PoisonError::into_inner);
    let ledger = service.ledger.lock().unwrap_or_else(PoisonError::into_inner);
    Response::Config(Box::new(Configuration {
        text: shown_text(&source),
        settings: shown_settings(source.sets()),
        version: ledger.version(&source),
        changes: ledger.changes,
        file: without_keys(source.file()),
        tables: ledger.tables.clone(),
    }))
}

/// The parts of a report that are left out unless a client requests them, because they may be long.
#[derive(Default)]
pub(super) struct Details {
    /// The modules whose counters per rule or table entry are wanted. `*` stands for all modules.
    pub(super) rules: Vec<String>,
    /// Whether the flows have the distributions of their delays.
    pub(super) histograms: bool,
}

/// Returns the report of the time since the reading `last`, and replaces `last` by the present reading.
pub(super) fn recent_report(service: &Service, last: &mut Reading, details: &Details) -> Report {
    let now = service.instance.board().read(Tsc.now());
    let mut recent = unfinished(service, last, &now, details);
    *last = now;
    finish(service, &mut recent, details);
    recent
}

/// Returns the report of the time from the start of the run to the reading `now`.
pub(super) fn report_until(service: &Service, now: &Reading, details: &Details) -> Report {
    let mut whole = unfinished(service, &service.instance.board().nothing(), now, details);
    finish(service, &mut whole, details);
    whole
}

/// Returns the report of the time from the start of the run to the reading `now`, and an exact census of its packets.
/// The packet totals of the report are corrected by the census. The census is `None` if a worker does not respond.
pub(super) fn whole_report(service: &Service, now: &Reading, details: &Details) -> (Report, Option<Census>) {
    let mut whole = unfinished(service, &service.instance.board().nothing(), now, details);
    let census = service.instance.census();
    if let Some(census) = &census {
        whole.packets.correct(census);
    }
    finish(service, &mut whole, details);
    (whole, census)
}

/// Returns the report of the time between two readings, which [`finish`] must complete.
fn unfinished(service: &Service, earlier: &Reading, later: &Reading, details: &Details) -> Report {
    let mut report = service.instance.board().report(earlier, later);
    if details.histograms {
        later.add_delay_counts_since(earlier, &mut report);
    }
    report
}

/// Rounds a report. Removes the counters per rule or table entry that are not wanted.
fn finish(service: &Service, report: &mut Report, details: &Details) {
    remove_rule_counters(report, &service.instance.board().telemetries(), &details.rules);
    report.round();
}

/// Removes the counters per rule or table entry, except those of the modules in `wanted` (`*`: of all modules).
fn remove_rule_counters(report: &mut Report, telemetries: &[Arc<Telemetry>], wanted: &[String]) {
    let Some(first) = telemetries.first().filter(|_| !wanted.iter().any(|name| name == "*")) else { return };
    for module in report.modules.iter_mut().filter(|module| !wanted.contains(&module.name)) {
        let known = first.modules.iter().find(|known| known.name == module.name);
        let headings = known.into_iter().flat_map(|known| &known.own).filter(|counters| counters.per_entry);
        headings.for_each(|counters| {
            module.counters.remove(&counters.heading);
        });
    }
}

/// Returns the number of accepted changes of the configuration.
pub(super) fn changes(service: &Service) -> u64 {
    service.ledger.lock().unwrap_or_else(PoisonError::into_inner).changes
}

/// Returns the interval of a stream.
///
/// # Errors
/// Returns an error if `milliseconds` is out of range.
pub(super) fn interval(milliseconds: u64) -> Result<Duration, String> {
    if (100..=60_000).contains(&milliseconds) {
        return Ok(Duration::from_millis(milliseconds));
    }
    Err(format!("interval_ms: {milliseconds}: allowed are 100 to 60000"))
}

/// Checks a text as a possible replacement of the configuration in force. Changes nothing.
pub(super) fn check(service: &Service, text: &str, config_paths: Option<Vec<String>>) -> Response {
    let running = service.source.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let checked = changed_to(&running, text, config_paths).and_then(|source| forebay_pipeline::check(&source));
    let named = |things: Vec<(String, &str)>| things.into_iter().map(|(name, of)| (name, of.to_owned())).collect();
    Response::Checked(Box::new(match checked {
        Ok(checked) => Checked {
            faults: Vec::new(),
            pipeline: checked.name,
            modules: named(checked.modules),
            ports: named(checked.ports),
            flows: checked.flows,
            warnings: checked.warnings,
        },
        Err(problems) => Checked { faults: problems.faults, ..Checked::default() },
    }))
}

/// Returns the configuration with another text. If `config_paths` is given, the text may name files in these folders
/// only.
fn changed_to(running: &Source, text: &str, config_paths: Option<Vec<String>>) -> Result<Source, Problems> {
    let source = running.changed_to(text)?;
    Ok(match config_paths {
        Some(paths) => source.within(paths.into_iter().map(PathBuf::from).collect()),
        None => source,
    })
}

/// The configuration that a reload requests.
#[derive(Default)]
pub(super) struct Wanted {
    /// The file, or `usecase:NAME`. If `file` and `text` are both `None`, the source that the run was started from is
    /// read again.
    pub(super) file: Option<String>,
    /// The text, in place of a file.
    pub(super) text: Option<String>,
    /// The folders in which the file that is read must be, and in which the configuration may name files. A built-in
    /// use case is allowed in any case. `None` if there is no restriction.
    pub(super) config_paths: Option<Vec<String>>,
    /// Additional settings.
    pub(super) sets: Vec<String>,
    /// Whether earlier settings are removed.
    pub(super) forget: bool,
    /// The version of the configuration that must be in force. `None` if any may be in force.
    pub(super) if_version: Option<String>,
}

/// Carries out the request `reload`.
pub(super) fn reload(service: &Service, wanted: Wanted) -> Response {
    reload_by(service, "socket", wanted)
}

/// Reloads, and records an event with the result. `by` names the source of the request.
fn reload_by(service: &Service, by: &str, wanted: Wanted) -> Response {
    let shown = match &wanted.text {
        Some(_) => Some(without_keys(service.source.lock().unwrap_or_else(PoisonError::into_inner).file())),
        None => wanted.file.as_ref().or(service.origin.as_ref()).map(|file| shown_file(file)),
    };
    let response = try_reload(service, wanted);
    let event = match &response {
        Response::Reloaded(reloaded) => {
            let (file, took) = (shown.as_deref().unwrap_or_default(), reloaded.took_ms);
            let missing = match reloaded.missing {
                0 => String::new(),
                missing => format!("; {} unaccounted for: this is a defect of Forebay", counted(missing, "packet")),
            };
            let event = NewEvent::new(EventName::ReloadAccepted, format!("changed to {file} in {took:.1} ms{missing}"));
            event.with("took_ms", (took * 10.0).round() / 10.0).with("missing", reloaded.missing)
        }
        Response::Error(reason) => NewEvent::new(
            EventName::ReloadRefused,
            format!("the running configuration stays: {}", without_keys(reason)),
        ),
        _ => return response,
    };
    service.events.record(event.with("by", by).with_some("file", shown));
    if matches!(response, Response::Reloaded(_)) {
        warn_of(&service.instance.tables(), &service.events);
    }
    response
}

/// Reads the requested configuration, and changes the pipeline to this configuration. Returns [`Response::Reloaded`] or
/// [`Response::Error`].
fn try_reload(service: &Service, wanted: Wanted) -> Response {
    // Renamed logs are opened again under their own names, even if the reload is refused.
    reopen_logs();
    // The lock makes reloads and moves happen one after the other.
    let mut source = service.source.lock().unwrap_or_else(PoisonError::into_inner);
    let Wanted { file, text, config_paths, sets: set, forget, if_version } = wanted;
    if let Err(error) = check_version(service, &source, if_version.as_deref()) {
        return Response::Error(error);
    }
    if text.is_some() && file.is_some() {
        return Response::Error("give either `file` or `text`, not both".to_owned());
    }
    // A text already contains the settings in force, so they are not applied to it again.
    let before = if forget || text.is_some() { &[] } else { source.given() };
    let sets = with_settings(before, &set);
    let is_origin = text.is_none() && (file.is_none() || file == service.origin);
    let read = match text {
        Some(text) => changed_to(&source, &text, config_paths).map(|read| sets.iter().fold(read, Source::set)),
        None => {
            let Some(origin) = file.or_else(|| service.origin.clone()) else {
                let error = "the pipeline was started from standard input, which cannot be read again: name a file";
                return Response::Error(error.to_owned());
            };
            let paths = config_paths.map(|paths| paths.into_iter().map(PathBuf::from).collect::<Vec<_>>());
            if let Some(folders) = &paths
                && !is_built_in(&origin)
                && let Err(error) = check_in_folders(Path::new(&origin), &shown_file(&origin), folders)
            {
                return Response::Error(format!("file: {error}"));
            }
            let file = || Source::read(Path::new(&origin)).map(|read| sets.iter().fold(read, Source::set));
            let read = built_in(&origin, &sets).unwrap_or_else(file);
            match paths {
                Some(folders) => read.map(|read| read.within(folders)),
                None => read,
            }
        }
    };
    let next = match read {
        Ok(next) => next,
        Err(problems) => return Response::Error(refusal(&problems, before, &set)),
    };
    let mut accept = || {
        // The start file may have changed without a reload. This configuration is newer than the changed file, so the
        // next start must not prefer the file because of its change. The fingerprint of the changed file is therefore
        // written.
        let now = || if is_origin { fingerprint(&next) } else { service.origin.as_deref().and_then(fingerprint_at) };
        keep(service, &next, service.state.as_ref().and_then(|_| now()))
    };
    match service.instance.reload(&next, &mut accept) {
        Ok(reloaded) => {
            *source = next;
            service.ledger.lock().unwrap_or_else(PoisonError::into_inner).note_reload(&reloaded.change);
            Response::Reloaded(reloaded)
        }
        Err(ReloadError::Problems(problems)) => Response::Error(refusal(&problems, source.given(), &set)),
        Err(error) => Response::Error(without_keys(&error.to_string())),
    }
}

/// Returns an error if `source`, the configuration in force, does not have the version `wanted`. The caller must hold
/// the lock of `source` until its change is made. Otherwise another change could come between.
fn check_version(service: &Service, source: &Source, wanted: Option<&str>) -> Result<(), String> {
    let Some(wanted) = wanted else { return Ok(()) };
    let version = service.ledger.lock().unwrap_or_else(PoisonError::into_inner).version(source);
    if version == wanted {
        return Ok(());
    }
    Err(format!(
        "the configuration has changed: its version is {version}, not {}: read it again (request 'config'), and repeat \
         the change",
        without_keys(wanted)
    ))
}

/// Writes a configuration to the file for the next start, if accepted configurations are kept. `now` is the present
/// fingerprint of the start file; with `None`, the last known one is written.
pub(super) fn keep(service: &Service, next: &Source, now: Option<String>) -> io::Result<()> {
    let Some(path) = &service.state else { return Ok(()) };
    let mut known = service.fingerprint.lock().unwrap_or_else(PoisonError::into_inner);
    *known = now.or_else(|| known.take());
    let accepted = Accepted::of(next).started_from(known.clone(), service.origin.clone());
    accepted.keep(path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// Returns the present fingerprint of the configuration file at `origin`.
fn fingerprint_at(origin: &str) -> Option<String> {
    let read = built_in(origin, &[]).unwrap_or_else(|| Source::read(Path::new(origin)));
    read.ok().as_ref().and_then(fingerprint)
}

/// Lists the faults, each on a line. If an earlier setting has a fault, an indented line names the option that removes
/// earlier settings.
/// `before` are the earlier settings, and `set` are those of this request.
pub(super) fn refusal(problems: &Problems, before: &[String], set: &[String]) -> String {
    let is_old = |fault: &Fault| {
        let setting = fault.place.strip_prefix("--set ").map(str::to_owned);
        let has = |sets: &[String], setting: &String| sets.iter().any(|set| shown_setting(set) == *setting);
        setting.is_some_and(|setting| has(before, &setting) && !has(set, &setting))
    };
    if problems.faults.iter().any(is_old) {
        return format!(
            "{problems}\n  the settings (--set) of the start and of earlier reloads stay in force: use --forget to \
             remove them"
        );
    }
    problems.to_string()
}

/// Carries out the request `act`.
pub(super) fn act(service: &Service, module: &str, action: Action) -> Response {
    let telemetries = service.instance.board().telemetries();
    let Some(number) = telemetries[0].modules.iter().position(|known| known.name == module) else {
        let names = telemetries[0].modules.iter().map(|known| known.name.as_str());
        return Response::Error(format!("no module is called '{module}'{}", known_names(module, names)));
    };
    match service.instance.act(&[action.of(number)]) {
        Ok(()) => Response::Done,
        Err(message) => Response::Error(message),
    }
}
