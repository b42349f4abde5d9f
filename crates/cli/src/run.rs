//! `forebay run`: runs a pipeline, shows its state, and prints a summary at the end.

mod http;
mod screen;
mod service;
mod traces;
mod wait_notice;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, anyhow, bail};
use forebay_graph::{Plan, secret::without_keys};
use forebay_instance::{
    Accepted, ControlInputs, CoreError, Cores, Instance, LockError, LockFile, Watcher, choose,
    events::NewEvent,
    socket::{About, Bound, Ending, Patience, Server, Service, warn_of},
};
use forebay_observe::drops::{DropSender, Tally};
use forebay_observe::trace::{Hub, Tracer};
use forebay_pipeline::{Conditions, Loaded, is_built_in, known_names};
use forebay_protocol::{
    event::{EventName, on_one_line},
    locate::{named_socket_path, socket_path},
    report::Report,
    response::Ended,
};
use forebay_server::notify::Notifier;
use forebay_units::{Nanos, wording};

use crate::Answer;
use crate::args;
use crate::engine::{self, Engine, Mode};
use crate::events::{Events, LogFormat};
use crate::format::counted;
use crate::hangup::{Caught, Reload};
use crate::start::{Replaced, Start};
use crate::summary::Extent;
use crate::{control, costs, decisions, doctor, printed, refused, remote, summary};
use http::HttpServer;
use screen::show;
use traces::Traces;

/// Runs a pipeline to its end. Prints the last events and, with `--json`, an error as JSON.
pub(crate) fn run(arguments: &args::Run) -> anyhow::Result<Answer> {
    let (mut events, mut has_report) = (Events::new(arguments.log_format), false);
    let result = run_to_end(arguments, &mut events, &mut has_report);
    let is_json = arguments.json && !has_report;
    match result {
        // With the JSON log format, every line on standard error is JSON, including the error.
        Err(error) if arguments.log_format == LogFormat::Json => {
            events.say(EventName::RunFailed, refused::message(&error));
            events.print_last();
            let _ = remote::or_json_error(is_json, Err::<(), _>(error));
            Ok(Answer::Failed)
        }
        result => {
            events.print_last();
            remote::or_json_error(is_json, result)
        }
    }
}

pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Runs a pipeline to its end. The caller prints the last events. Sets `has_report` if the report was printed as JSON.
fn run_to_end(arguments: &args::Run, events: &mut Events, has_report: &mut bool) -> anyhow::Result<Answer> {
    let simulated = arguments.simulated;
    let signals = Caught::new().context("signals")?;
    let frequency = engine::frequency(simulated);
    // Refuse files and sockets of another run before anything is read or created.
    let _sole = arguments.state.as_deref().map(keep_alone).transpose()?;
    let bound = bound(arguments)?;
    if let Some(listen) = &arguments.http {
        http::check(listen)?;
    }
    let mut start = Start::choose(arguments, events)?;
    let conditions = Conditions { frequency, simulated };
    let Loaded { mut plans, mut cores, core_places, mut made, skipped, input_waits, ports, addresses, .. } =
        forebay_pipeline::load(&start.source, conditions)
            .map_err(|problems| start.refusal(arguments.settings.as_written(problems)))?;
    set_triggers(&mut plans, &arguments.trigger)?;
    let name = plans[0].name.clone();
    events.log().set_pipeline(&name);
    for (module, count) in &skipped {
        let rules = counted(*count as u64, "rule");
        let message = format!("{module}: {rules} skipped ('forebay check --json' lists all)");
        let event = NewEvent::new(EventName::RulesSkipped, message).with("module", module.as_str());
        events.record(event.with("count", *count as u64));
    }
    if let Some(event) = doctor::arp_flux(ports, addresses) {
        events.record(event);
    }
    if let Some(core) = arguments.core {
        if cores.len() > 1 {
            bail!(
                "--core {core}: the pipeline has {} workers: set `core` of each worker in the configuration",
                cores.len()
            );
        }
        cores = vec![Some(core)];
    }
    let (stories, received_stories) = channel();
    let hub = Hub::default();
    if let Some(count) = arguments.trace {
        hub.add(Tracer::new(count, arguments.filter.clone(), stories));
    }
    let mut tally = None;
    // Claim the file even if the run starts from the state file, because a reload reads the configuration's file.
    if let Some(path) = crate::source::origin(&arguments.pipeline).filter(|origin| !is_built_in(origin)) {
        made.claim("the configuration", path.as_ref(), false).map_err(|error| anyhow!("{error}"))?;
    }
    if let Some(path) = &arguments.state {
        made.claim("--state", path, true).map_err(|error| anyhow!("--state: {error}"))?;
    }
    if let Some(path) = &arguments.drops {
        made.claim("--drops", path, true).map_err(|error| anyhow!("--drops: {error}"))?;
        let (now, waits) = (engine::now(simulated), simulated || input_waits);
        let (sender, of_sender) =
            DropSender::create(path, now, frequency, simulated, waits).map_err(|error| anyhow!("--drops: {error}"))?;
        hub.write_drops(sender);
        tally = Some(of_sender);
    }
    let trouble = Arc::new(Mutex::new(None));
    let log = match &arguments.decisions {
        Some(path) => {
            if made.control().is_none() {
                bail!(
                    "--decisions: the pipeline has no controller: name one (--controller, or `control:` in the \
                     configuration)"
                );
            }
            made.claim("--decisions", path, true).map_err(|error| anyhow!("--decisions: {error}"))?;
            Some(decisions::write(path, &trouble)?)
        }
        None => None,
    };
    let mut control_inputs = ControlInputs { log, costs: costs::of_pipeline(&plans[0], &start.source) };
    if !simulated && made.control().is_some() {
        let unknown = costs::unknown(&plans[0], &control_inputs.costs);
        if !unknown.is_empty() {
            // Costs are not measured here: the measurement of one function takes most of a second, and packets would
            // wait for it.
            let names = unknown.into_iter().collect::<Vec<_>>().join(", ");
            let message =
                "the controller learns the cost of calls during the run; `forebay profile` measures it beforehand";
            events.record(NewEvent::new(EventName::CostsLearnt, message).with("functions", names.as_str()));
        }
    }
    let mode = if simulated {
        let costs = costs::given(&plans[0], &arguments.cost)?.into_iter().map(Option::unwrap_or_default).collect();
        Mode::Simulated { costs, made: Box::new(made), log: control_inputs.log.take() }
    } else {
        let chosen = choose(&cores).map_err(|error| match error {
            CoreError::NotAllowed { core, .. } if arguments.core.is_none() => {
                let worker = cores.iter().position(|wanted| *wanted == Some(core)).unwrap_or_default();
                let key = core_places.get(worker).map_or("", String::as_str);
                anyhow!("{key}: workers[{worker}].core: {error}")
            }
            error => error.into(),
        });
        Mode::Real { cores: chosen?, made: Box::new(made), control_inputs }
    };
    let watched = arguments.trace.is_some() || arguments.drops.is_some();
    let watch = if watched { hub.observers() } else { Box::new(|_| None) };
    let started = if let Mode::Real { cores, .. } = &mode { Some(started(cores)) } else { None };
    // From here on, SIGINT and SIGTERM stop the run properly. Until here, while files are opened, they end the process.
    let stop = stop_on_signals()?;
    let duration = arguments.duration.or_else(|| default_duration(&plans, simulated, events));
    let engine = Engine::start(plans, mode, duration, watch, &stop)?;
    let ending: Arc<Ending> = Arc::default();
    let served = match &engine {
        Engine::Real { instance, .. } => {
            let replaced = start.replaced.take();
            let service = Arc::new(service(arguments, start, instance, &hub, &stop, (&*events, &ending)));
            serve(arguments, &name, bound, &service, replaced).map(|server| (Some(service), server))
        }
        Engine::Simulated(_) => Ok((None, None)),
    };
    let notifier = Notifier::from_env();
    let followed = served.and_then(|(service, server)| {
        let reload = reload_of(arguments, service, notifier.clone());
        let signals = signals.follow(events.log(), reload).context("no thread for signals")?;
        Ok((server, signals))
    });
    let (server, signals) = match followed {
        Ok(followed) => followed,
        Err(error) => {
            // The workers run already. Stop them, so that they end before the error is returned.
            engine.end();
            return Err(error);
        }
    };
    started.into_iter().for_each(|event| events.record(event));
    if let Engine::Real { instance, .. } = &engine {
        warn_of(&instance.tables(), events.log());
    }
    if let Some(server) = &server {
        let path = server.path().display().to_string();
        let reached = match &arguments.instance {
            Some(instance) => format!("--instance {instance}"),
            None => path.clone(),
        };
        let message = format!("`forebay top`, `show`, `reload`, `table` and `stop` reach it by {reached}");
        events.record(NewEvent::new(EventName::Listening, message).with("socket", path));
    }
    let http = match (&arguments.http, &server) {
        (Some(listen), Some(server)) => HttpServer::start(listen, server.path(), events.log()).map(Some),
        _ => Ok(None),
    };
    let http = match http {
        Ok(http) => http,
        Err(error) => {
            engine.end();
            return Err(error);
        }
    };
    events.print();
    let traces = Traces { received: received_stories, to_stdout: !arguments.json, frequency, count: Cell::new(0) };
    let board = engine.board();
    let mut watcher = Watcher::new(Arc::clone(&board), Arc::clone(events.log()));
    let mut reported = service::Service::ready(notifier, &board);
    let shown = show(&engine, &board, events, &mut watcher, arguments, &stop, &traces, &signals, &mut reported);
    reported.stopping();
    let outcome = engine.end();
    drop((http, server));
    hub.finish();
    let shown = shown.and_then(|()| traces.print(board.began()).map_err(Into::into));
    traces.report_none(arguments, events);
    let report = board.report(&board.nothing(), &board.read(outcome.at));
    watcher.finish(&report);
    report_unread(&report, events);
    events.print_last();
    *has_report = arguments.json;
    let printed = if arguments.json {
        serde_json::to_string(&report).map_err(io::Error::from).and_then(|text| writeln!(printed::out(), "{text}"))
    } else {
        summary::print(&report, Extent::of_output(arguments.full), &mut printed::out())
    };
    let mut troubles: Vec<_> = outcome.troubles.into_iter().map(|(key, trouble)| format!("{key}: {trouble}")).collect();
    // Workers that share a file report the same error.
    let mut known = BTreeSet::new();
    troubles.retain(|trouble| known.insert(trouble.clone()));
    troubles.extend(trouble.lock().unwrap_or_else(PoisonError::into_inner).take());
    troubles.extend(tally.as_deref().and_then(|tally| report_drops(tally, arguments, events)));
    if report.packets.missing() != 0 {
        let packets = wording::counted(report.packets.missing(), "packet");
        troubles.push(format!("{packets} unaccounted for: this is a defect of Forebay"));
    }
    // A line break in a file's name must not begin another error line.
    troubles.iter_mut().for_each(|trouble| *trouble = on_one_line(trouble));
    let missed = arguments.strict && control::is_missed(&report);
    let lost_drops = tally.is_some_and(|tally| tally.lost.load(Ordering::Relaxed) > 0);
    let answer = if missed || lost_drops || !report.lost_lines.is_empty() { Answer::No } else { Answer::Yes };
    ending.announce(Ended {
        exit: if troubles.is_empty() { answer as u8 } else { 2 },
        duration_s: report.duration_s,
        packets: report.packets.clone(),
        troubles: troubles.clone(),
    });
    if !troubles.is_empty() {
        bail!(troubles.join("\n"));
    }
    // Errors of the run were returned above, before errors of printing. If the terminal is lost, errors of printing are
    // ignored.
    if !signals.is_terminal_lost() {
        // If the reader of the traces has closed the pipe, the run has ended early. The result is that of the run.
        shown.or_else(|error| if is_broken_pipe(&error) { Ok(()) } else { Err(error) })?;
        printed?;
    }
    Ok(answer)
}

/// Records an event for each source that still had packets when the run ended.
fn report_unread(report: &Report, events: &Events) {
    for port in report.ports.iter().filter(|port| port.unread) {
        let message = format!("port '{}' has more packets: the run ended before these packets came in", port.name);
        events.record(NewEvent::new(EventName::PortUnread, message).with("port", port.name.as_str()));
    }
}

/// A simulated run without `--duration` may never end by itself. Returns the default duration for such a run, and
/// records an event. Returns `None` for all other runs.
fn default_duration(plans: &[Plan], simulated: bool, events: &Events) -> Option<Nanos> {
    if !simulated {
        return None;
    }
    let mut ports = plans.iter().flat_map(|plan| &plan.ports);
    let endless = ports.find(|port| {
        port.entry.is_some() && port.open.as_ref().is_some_and(|open| open.receives && open.port.is_endless())
    })?;
    let (port, end) = (endless.name.as_str(), engine::SIMULATED_DURATION.0 / 1_000_000);
    let message = format!(
        "port '{port}' never runs out of packets: the run ends after {end} ms of simulated time; --duration sets \
         another end"
    );
    events.record(NewEvent::new(EventName::DurationSet, message).with("port", port).with("end_ms", end));
    Some(engine::SIMULATED_DURATION)
}

/// Locks the file of accepted configurations for this run, so that two runs cannot overwrite each other's
/// configuration.
fn keep_alone(path: &Path) -> anyhow::Result<LockFile> {
    let describe = |error| match error {
        LockError::Taken(_) => {
            let why = "that run keeps its configuration there: stop it, or give this run another file";
            anyhow!("--state {}: {error}: {why}", path.display())
        }
        LockError::Lock { .. } => anyhow!("--state {}: cannot lock the file: {error}", path.display()),
    };
    LockFile::of(path).map_err(describe)
}

/// Opens the socket that the command line names, or the socket for the run's name. Returns `None` if neither is given:
/// then [`serve`] opens the default socket.
fn bound(arguments: &args::Run) -> anyhow::Result<Option<Bound>> {
    match (&arguments.socket, &arguments.instance) {
        (Some(path), _) => bind(path).map(Some),
        (None, Some(name)) => {
            let path = named_socket_path(name).with_context(|| format!("--instance '{}'", without_keys(name)))?;
            bind(&path).map(Some)
        }
        (None, None) => Ok(None),
    }
}

/// Opens the socket at `path`.
fn bind(path: &Path) -> anyhow::Result<Bound> {
    Bound::at(path).with_context(|| format!("the socket '{}'", path.display()))
}

/// Creates the service for the socket and for SIGHUP.
fn service(
    arguments: &args::Run,
    start: Start,
    instance: &Arc<dyn Instance>,
    hub: &Hub,
    stop: &Arc<AtomicBool>,
    (events, ending): (&Events, &Arc<Ending>),
) -> Service {
    let (hub, watched) = (hub.clone(), hub.clone());
    Service {
        instance: Arc::clone(instance),
        source: Mutex::new(start.source),
        origin: crate::source::origin(&arguments.pipeline),
        state: arguments.state.clone(),
        fingerprint: Mutex::new(start.fingerprint),
        events: Arc::clone(events.log()),
        trace: Box::new(move |instance, count, filter| hub.follow(instance, count, filter)),
        drops: Box::new(move |instance, filter| watched.follow_drops(instance, filter)),
        about: About { instance: arguments.instance.clone(), started: jiff::Timestamp::now().to_string() },
        ledger: Mutex::default(),
        ending: Arc::clone(ending),
        patience: Patience::default(),
        stop: Arc::clone(stop),
    }
}

/// Returns the action of SIGHUP. Only a pipeline from a file can be reloaded; for others, the action returns an error.
/// The service manager waits for the end of the reload that it has requested by the signal, also if it fails.
fn reload_of(arguments: &args::Run, service: Option<Arc<Service>>, notifier: Notifier) -> Reload {
    let file = crate::source::origin(&arguments.pipeline).filter(|origin| !is_built_in(origin));
    let pipeline = arguments.pipeline.clone();
    let reload = move || match (&file, &service) {
        (Some(_), Some(service)) => {
            service.reload();
            Ok(())
        }
        (None, Some(_)) if is_built_in(&pipeline) => {
            Err(format!("{pipeline} is built in and cannot have changed: use `forebay reload --set`"))
        }
        (None, Some(_)) => {
            Err("the pipeline came from standard input, which cannot be read again: use `forebay reload FILE`"
                .to_owned())
        }
        (_, None) => Err("a simulated run does not reload: end it and start another".to_owned()),
    };
    Box::new(move || {
        notifier.reloading();
        let reloaded = reload();
        notifier.reloaded();
        reloaded
    })
}

/// Writes the state file, and starts the server on the socket. Opens the default socket if `bound` is `None`. Returns
/// `None` with `--no-socket`.
fn serve(
    arguments: &args::Run,
    name: &str,
    bound: Option<Bound>,
    service: &Arc<Service>,
    replaced: Option<Replaced>,
) -> anyhow::Result<Option<Server>> {
    if let Some(Replaced { path, .. }) = &replaced {
        // Keep the old state before the new one is written. Then, after a crash at any time, one of the two files
        // contains the old state.
        Accepted::keep_old(path).with_context(|| format!("--state {}.old", path.display()))?;
    }
    if let Some(path) = &arguments.state {
        let source = service.source.lock().unwrap_or_else(PoisonError::into_inner);
        let fingerprint = service.fingerprint.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let accepted = Accepted::of(&source).started_from(fingerprint, service.origin.clone());
        accepted.keep(path).with_context(|| format!("--state {}", path.display()))?;
    }
    if let Some(Replaced { event, .. }) = replaced {
        service.events.record(event);
    }
    if arguments.no_socket {
        return Ok(None);
    }
    let bound = match bound {
        Some(bound) => bound,
        None => {
            bind(&socket_path(name).context("no path for the socket (set one with --socket, or use --no-socket)")?)?
        }
    };
    Ok(Some(Server::start(bound, Arc::clone(service)).context("no thread for the socket")?))
}

/// Returns the event [`Started`](EventName::Started) with the cores of the workers.
fn started(cores: &Cores) -> NewEvent {
    let list: Vec<_> = cores.iter().map(ToString::to_string).collect();
    let event = NewEvent::new(EventName::Started, locations(cores)).with("workers", cores.len() as u64);
    event.with("cores", list.join(","))
}

/// Lists the cores of the workers.
fn locations(cores: &Cores) -> String {
    let location = |core: usize| {
        let shared = if cores.is_shared(core) { ", which another pipeline also uses" } else { "" };
        format!("on core {core}{shared}")
    };
    if let [core] = cores[..] {
        return format!("the worker runs {}", location(core));
    }
    let locations = cores.iter().enumerate().map(|(worker, core)| format!("worker {worker} {}", location(*core)));
    locations.collect::<Vec<_>>().join(", ")
}

/// Returns a flag that SIGINT and SIGTERM set. A second signal ends the process at once.
pub(crate) fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // The order matters. On the first signal, the shutdown handler finds the flag not set and does nothing; then
        // the flag is set. On the second signal, it finds the flag set and ends the process.
        signal_hook::flag::register_conditional_shutdown(signal, 2, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// Sets the triggers of `--trigger` in all plans.
fn set_triggers(plans: &mut [Plan], triggers: &[(String, usize)]) -> anyhow::Result<()> {
    for (name, trigger) in triggers {
        for plan in &mut *plans {
            let Some(module) = plan.modules.iter().position(|module| module.name == *name) else {
                let known = known_names(name, plan.modules.iter().map(|module| module.name.as_str()));
                let name = without_keys(name);
                bail!("--trigger {name}={trigger}: no module is called '{name}'{known}");
            };
            if *trigger > plan.batch {
                bail!("--trigger {name}={trigger}: allowed are 0 to {}, the largest batch", plan.batch);
            }
            plan.modules[module].trigger = *trigger;
        }
    }
    Ok(())
}

/// Records an event with the number of dropped packets in the file of `--drops`. Returns the error of the file, if
/// there was one.
fn report_drops(tally: &Tally, arguments: &args::Run, events: &Events) -> Option<String> {
    let (written, lost) = (tally.written.load(Ordering::Relaxed), tally.lost.load(Ordering::Relaxed));
    let path = arguments.drops.as_deref().unwrap_or(Path::new("")).display().to_string();
    let missed = if lost > 0 { format!("; {lost} more are missing") } else { String::new() };
    let message = format!("{written} dropped packets written to {path}{missed}");
    let event = NewEvent::new(EventName::DropsWritten, message).with("file", path).with("written", written);
    events.record(event.with("lost", lost));
    tally.trouble.lock().unwrap_or_else(PoisonError::into_inner).take()
}
