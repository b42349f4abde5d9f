//! `forebay run`: a pipeline runs and is watched; at the end there is a summary.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use forebay_graph::Plan;
use forebay_graph::report::Report;
use forebay_graph::secret::without_keys;
use forebay_instance::socket::{Bound, Patience, Server, Service, place};
use forebay_instance::{Accepted, Board, Cores, Instance, Sole, SoleError, Steer, choose};
use forebay_measure::{Clock, Frequency, Nanos, Tsc};
use forebay_packet::Ticks;
use forebay_pipeline::{Conditions, Loaded, Source, is_built_in, nearest};

use crate::Answer;
use crate::args;
use crate::drops::{DropSender, Tally};
use crate::engine::{self, Engine, Mode};
use crate::format::counted;
use crate::hangup::{Caught, Followed, Reload, report_reopen_failures};
use crate::live::{Live, Quit, is_in_foreground};
use crate::lost_lines::report_lost_lines;
use crate::oversize::Oversize;
use crate::source::source;
use crate::trace::{Hub, Story, Tracer};
use crate::{control, costs, decisions, plain, printed, summary};

/// How long the stop flag and the keyboard wait to be looked at.
const LOOK: Duration = Duration::from_millis(20);
/// The time between two looks for events.
const EVENTS: Duration = Duration::from_secs(1);

/// Runs a pipeline to its end.
pub(crate) fn run(arguments: &args::Run) -> anyhow::Result<Answer> {
    let simulated = arguments.simulated;
    let signals = Caught::new().context("signals")?;
    let frequency = engine::frequency(simulated);
    // What another run has is refused before anything is read or made.
    let _sole = arguments.state.as_deref().map(keep_alone).transpose()?;
    let bound = arguments.socket.as_deref().map(bind).transpose()?;
    let source = accepted(arguments)?;
    let conditions = Conditions { frequency, simulated };
    let Loaded { mut plans, mut cores, mut made, skipped, input_waits, .. } =
        forebay_pipeline::load(&source, conditions).map_err(|problems| arguments.settings.as_written(problems))?;
    set_triggers(&mut plans, &arguments.trigger)?;
    let name = plans[0].name.clone();
    for (module, count) in &skipped {
        let rules = counted(*count as u64, "rule");
        let _ = writeln!(printed::err(), "{name}: {module}: {rules} skipped ('forebay check --json' lists all)");
    }
    if let Some(core) = arguments.core {
        if cores.len() > 1 {
            bail!(
                "--core {core}: the pipeline has {} workers: bind each by its `core` in the configuration",
                cores.len()
            );
        }
        cores = vec![Some(core)];
    }
    let (stories, told) = channel();
    let hub = Hub::default();
    if let Some(count) = arguments.trace {
        hub.add(Tracer::new(count, arguments.filter.clone(), stories));
    }
    let mut tally = None;
    // Also where it is not what runs, but what was accepted last is: a reload reads it.
    if let Some(path) = crate::source::origin(&arguments.pipeline).filter(|origin| !is_built_in(origin)) {
        made.claim("the configuration", path.as_ref(), false).map_err(|told| anyhow!("{told}"))?;
    }
    if let Some(path) = &arguments.state {
        made.claim("--state", path, true).map_err(|told| anyhow!("--state: {told}"))?;
    }
    if let Some(path) = &arguments.drops {
        made.claim("--drops", path, true).map_err(|told| anyhow!("--drops: {told}"))?;
        let (now, waits) = (engine::now(simulated), simulated || input_waits);
        let (sender, of_sender) = DropSender::create(path, now, frequency, simulated, waits)?;
        hub.write_drops(sender);
        tally = Some(of_sender);
    }
    let trouble = Arc::new(Mutex::new(None));
    let log = match &arguments.decisions {
        Some(path) => {
            if made.control().is_none() {
                bail!(
                    "--decisions: nothing decides: name a controller (--controller, or `control:` in the configuration)"
                );
            }
            made.claim("--decisions", path, true).map_err(|told| anyhow!("--decisions: {told}"))?;
            Some(decisions::write(path, &trouble)?)
        }
        None => None,
    };
    let mut steer = Steer { log, costs: costs::profiled(plans[0].batch) };
    let mode = if simulated {
        let costs = costs::given(&plans[0], &arguments.cost)?.into_iter().map(Option::unwrap_or_default).collect();
        Mode::Simulated { costs, made: Box::new(made), log: steer.log.take() }
    } else {
        Mode::Real { cores: choose(&cores)?, made: Box::new(made), steer }
    };
    let watched = arguments.trace.is_some() || arguments.drops.is_some();
    let watch = if watched { hub.observers() } else { Box::new(|_| None) };
    let places = if let Mode::Real { cores, .. } = &mode { places(cores) } else { String::new() };
    // From here on a signal ends the run in order; until here, while files are opened, it ends the process.
    let stop = stop_on_signals()?;
    let duration = arguments.duration.or_else(|| default_duration(&plans, simulated));
    let engine = Engine::start(plans, mode, duration, watch, &stop)?;
    let served = match &engine {
        Engine::Real { instance, .. } => {
            let service = Arc::new(service(arguments, source, instance, &hub, &stop));
            serve(arguments, &name, bound, &service).map(|server| (Some(service), server))
        }
        Engine::Simulated(_) => Ok((None, None)),
    };
    let followed = served.and_then(|(service, server)| {
        let signals = signals.follow(&name, reload_of(arguments, service)).context("no thread for signals")?;
        Ok((server, signals))
    });
    let (server, signals) = match followed {
        Ok(followed) => followed,
        Err(error) => {
            // What runs already ends well.
            engine.end();
            return Err(error);
        }
    };
    if !places.is_empty() {
        // Who does not read what is said on the way still gets the result.
        let _ = writeln!(printed::err(), "{name}: {places}");
    }
    if let Some(server) = &server {
        let _ = writeln!(
            printed::err(),
            "{name}: `forebay top`, `show`, `reload` and `table` reach it by {}",
            server.path().display()
        );
    }
    let traces = Traces { told, to_stdout: !arguments.json, frequency };
    let board = engine.board();
    let shown = show(&engine, &board, &name, arguments, &stop, &traces, &signals);
    let outcome = engine.end();
    drop(server);
    hub.finish();
    let shown = shown.and_then(|oversize| traces.tell(board.began()).map(|()| oversize).map_err(Into::into));
    let report = board.report(&board.nothing(), &board.read(outcome.at));
    let shown = shown.map(|mut oversize| oversize.print_last(&name, &report));
    let printed = if arguments.json {
        serde_json::to_string(&report).map_err(io::Error::from).and_then(|text| writeln!(printed::out(), "{text}"))
    } else {
        summary::print(&report, &mut printed::out())
    };
    report_lost_lines(&name, &report.lost_lines);
    report_unread(&name, &report);
    let mut troubles: Vec<_> =
        outcome.troubles.into_iter().map(|(place, trouble)| format!("{place}: {trouble}")).collect();
    // Workers that share a file have one fault.
    let mut known = BTreeSet::new();
    troubles.retain(|trouble| known.insert(trouble.clone()));
    troubles.extend(trouble.lock().unwrap_or_else(PoisonError::into_inner).take());
    troubles.extend(tally.as_deref().and_then(|tally| report_drops(tally, arguments)));
    if report.packets.missing() != 0 {
        troubles.push(format!("{} packets are unaccounted for: this is a defect of Forebay", report.packets.missing()));
    }
    if !troubles.is_empty() {
        bail!(troubles.join("\n"));
    }
    // Faults of the run come before faults of printing. A terminal that is gone reads neither.
    if !signals.is_terminal_lost() {
        shown?;
        printed?;
    }
    let missed = arguments.strict && control::is_missed(&report);
    let lost_drops = tally.is_some_and(|tally| tally.lost.load(Ordering::Relaxed) > 0);
    Ok(if missed || lost_drops || !report.lost_lines.is_empty() { Answer::No } else { Answer::Yes })
}

/// Reports sources that had more packets when the run called `name` ended.
fn report_unread(name: &str, report: &Report) {
    for port in report.ports.iter().filter(|port| port.unread) {
        let port = &port.name;
        let _ = writeln!(printed::err(), "{name}: port '{port}' has more packets: the run ended before its input did");
    }
}

/// How long a simulated run takes whose duration is not given, where it would not end by itself.
fn default_duration(plans: &[Plan], simulated: bool) -> Option<Nanos> {
    if !simulated {
        return None;
    }
    let mut ports = plans.iter().flat_map(|plan| &plan.ports);
    let endless = ports.find(|port| {
        port.entry.is_some() && port.open.as_ref().is_some_and(|open| open.receives && open.port.is_endless())
    })?;
    let _ = writeln!(
        printed::err(),
        "{}: port '{}' never runs out of packets: the run ends after {} ms of simulated time, --duration sets another \
         end",
        plans[0].name,
        endless.name,
        engine::SIMULATED_DURATION.0 / 1_000_000
    );
    Some(engine::SIMULATED_DURATION)
}

/// Reports once that a run whose sources are used up waits for packets that are held.
#[derive(Default)]
struct WaitNotice {
    since: Option<Instant>,
    reported: bool,
}

impl WaitNotice {
    /// Shorter waits are not reported.
    const SHORT: Duration = Duration::from_secs(1);
    /// The notice comes too late where less is left, in seconds.
    const LEAST: f64 = 0.1;

    fn look(&mut self, engine: &Engine, board: &Board, name: &str) {
        let Some(until) = engine.waits_until().filter(|_| !self.reported) else {
            self.since = None;
            return;
        };
        let now = Tsc.now();
        let left = Tsc.frequency().seconds(until.since(now));
        let is_short =
            self.since.get_or_insert_with(Instant::now).elapsed() < Self::SHORT && left < Self::SHORT.as_secs_f64();
        if is_short || left < Self::LEAST {
            return;
        }
        self.reported = true;
        let packets = board.report(&board.nothing(), &board.read(now)).packets;
        let _ = writeln!(
            printed::err(),
            "{name}: the sources are used up; modules still hold {} packets, the next for {left:.1} s. Ctrl-C ends the \
             run and drops them as wound_up",
            packets.held + packets.queued
        );
    }
}

/// The configuration to run: the one that was accepted last, where such are kept and there is one.
fn accepted(arguments: &args::Run) -> anyhow::Result<Source> {
    if let Some(path) = &arguments.state {
        let kept = Accepted::read(path).with_context(|| format!("--state {}", path.display()))?;
        if let Some(kept) = kept {
            let ignored: Vec<_> = arguments.settings.all().map(|(flag, _)| flag).collect();
            let ignored = match ignored.join(", ") {
                none if none.is_empty() => none,
                flags => format!("; not used, as it has settings of its own: {flags}"),
            };
            let _ = writeln!(
                printed::err(),
                "starting from the configuration that was accepted last, kept in {} (remove it to start from {}){ignored}",
                path.display(),
                arguments.pipeline
            );
            return Ok(kept.source());
        }
    }
    let sets: Vec<_> = arguments.settings.all().map(|(_, setting)| setting).collect();
    Ok(source(&arguments.pipeline, &sets).map_err(|problems| arguments.settings.as_written(problems))?)
}

/// Has the file of accepted configurations for this run alone: another one's would be lost in it.
fn keep_alone(path: &Path) -> anyhow::Result<Sole> {
    let told = |error| match error {
        SoleError::Taken(_) => {
            let why = "it runs, and keeps its configuration there: end it, or give this run a file of its own";
            anyhow!("--state {}: {error}: {why}", path.display())
        }
        SoleError::Lock { .. } => anyhow!("--state {}: it cannot be had alone: {error}", path.display()),
    };
    Sole::of(path).map_err(told)
}

/// Makes the socket at `path`.
fn bind(path: &Path) -> anyhow::Result<Bound> {
    Bound::at(path).with_context(|| format!("the socket {}", path.display()))
}

/// The service behind the socket and behind SIGHUP.
fn service(
    arguments: &args::Run,
    source: Source,
    instance: &Arc<dyn Instance>,
    hub: &Hub,
    stop: &Arc<AtomicBool>,
) -> Service {
    let hub = hub.clone();
    Service {
        instance: Arc::clone(instance),
        source: Mutex::new(source),
        origin: crate::source::origin(&arguments.pipeline),
        state: arguments.state.clone(),
        trace: Box::new(move |instance, count, filter| hub.follow(instance, count, filter)),
        patience: Patience::default(),
        stop: Arc::clone(stop),
    }
}

/// How SIGHUP reloads: only a file can be another one than it was.
fn reload_of(arguments: &args::Run, service: Option<Arc<Service>>) -> Reload {
    let file = crate::source::origin(&arguments.pipeline).filter(|origin| !is_built_in(origin));
    let pipeline = arguments.pipeline.clone();
    Box::new(move || match (&file, &service) {
        (Some(file), Some(service)) => service.reload().map(|reloaded| match reloaded.missing {
            0 => format!("changed to {file} in {:.1} ms", reloaded.took_ms),
            missing => format!("changed to {file}; {missing} packets are unaccounted for: this is a defect of Forebay"),
        }),
        (None, Some(_)) if is_built_in(&pipeline) => Err(format!("{pipeline} is no file that could have changed")),
        (None, Some(_)) => Err("it came by standard input, which cannot be read again".to_owned()),
        (_, None) => Err("a simulated run does not reload".to_owned()),
    })
}

/// Answers by the socket by which a running pipeline is reached; one that has not been made yet is.
fn serve(
    arguments: &args::Run,
    name: &str,
    bound: Option<Bound>,
    service: &Arc<Service>,
) -> anyhow::Result<Option<Server>> {
    if let Some(path) = &arguments.state {
        let source = service.source.lock().unwrap_or_else(PoisonError::into_inner);
        Accepted::of(&source).keep(path).with_context(|| format!("--state {}", path.display()))?;
    }
    if arguments.no_socket {
        return Ok(None);
    }
    let bound = match bound {
        Some(bound) => bound,
        None => bind(&place(name).context("no place for the socket (--socket names one, --no-socket goes without)")?)?,
    };
    Ok(Some(Server::start(bound, Arc::clone(service)).context("no thread for the socket")?))
}

/// Where the workers run.
fn places(cores: &Cores) -> String {
    let place = |core: usize| {
        let shared = if cores.is_shared(core) { ", which another pipeline has, too" } else { "" };
        format!("on core {core}{shared}")
    };
    if let [core] = cores[..] {
        return format!("the worker runs {}", place(core));
    }
    let places = cores.iter().enumerate().map(|(worker, core)| format!("worker {worker} {}", place(*core)));
    places.collect::<Vec<_>>().join(", ")
}

/// A flag that SIGINT and SIGTERM set; a second one ends the process at once.
fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // In this order: the first signal finds the flag not yet set.
        signal_hook::flag::register_conditional_shutdown(signal, 2, Arc::clone(&stop))?;
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

fn set_triggers(plans: &mut [Plan], triggers: &[(String, usize)]) -> anyhow::Result<()> {
    for (name, trigger) in triggers {
        for plan in &mut *plans {
            let names = plan.modules.iter().map(|module| module.name.as_str());
            let near = nearest(name, names);
            let Some(module) = plan.modules.iter_mut().find(|module| module.name == *name) else {
                let name = without_keys(name);
                bail!("--trigger {name}={trigger}: no module is called '{name}'{near}");
            };
            if *trigger > plan.batch {
                bail!("--trigger {name}={trigger}: allowed are 0 to {}, the largest batch", plan.batch);
            }
            module.trigger = *trigger;
        }
    }
    Ok(())
}

/// The terminal that the live table is drawn on.
enum Screen {
    /// There is none, or it cannot be drawn on: lines are printed instead.
    None,
    /// The table is drawn on it whenever the process is in its foreground.
    Free,
    /// It has the table.
    Drawn(Box<Live>),
}

impl Screen {
    /// Draws the table once the process is in the terminal's foreground.
    fn take_in_foreground(&mut self) {
        if matches!(self, Self::Free) && is_in_foreground() {
            *self = Live::start(Quit::EndRun).map_or(Self::None, |live| Self::Drawn(Box::new(live)));
        }
    }

    fn is_drawn(&self) -> bool {
        matches!(self, Self::Drawn(_))
    }

    /// Lets go of the terminal. The table comes back if only the foreground was lost.
    fn lose(&mut self) {
        let next = if is_in_foreground() { Self::None } else { Self::Free };
        if let Self::Drawn(live) = std::mem::replace(self, next) {
            live.abandon();
        }
    }
}

/// Shows what goes on until the run is over.
fn show(
    engine: &Engine,
    board: &Board,
    name: &str,
    arguments: &args::Run,
    stop: &AtomicBool,
    traces: &Traces,
    signals: &Followed,
) -> anyhow::Result<Oversize> {
    let quiet = arguments.no_live || arguments.simulated;
    // Traces scroll by; a table that stays would be written over.
    let table = !quiet && !arguments.json && arguments.trace.is_none() && io::stdout().is_terminal();
    let mut screen = if table { Screen::Free } else { Screen::None };
    let interval = Duration::from_nanos(arguments.interval.0);
    let mut next = Instant::now() + interval;
    let (mut oversize, mut next_look) = (Oversize::default(), Instant::now());
    let first = board.nothing();
    let mut last = first.clone();
    let mut wait_notice = WaitNotice::default();
    while !engine.is_over(stop) {
        screen.take_in_foreground();
        if !screen.is_drawn() {
            wait_notice.look(engine, board, name);
        }
        match traces.tell(board.began()) {
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
        // A table that stays would be written over: the run's end prints the event then.
        if !screen.is_drawn() && !arguments.simulated && Instant::now() >= next_look {
            next_look = Instant::now() + EVENTS;
            oversize.print(name, &board.report(&first, &board.read(Tsc.now())));
            report_reopen_failures(name);
        }
        if quiet || Instant::now() < next {
            continue;
        }
        next += interval;
        let now = board.read(Tsc.now());
        let (recent, whole) = (board.report(&last, &now), board.report(&first, &now));
        match &mut screen {
            Screen::Drawn(live) => {
                if live.show(recent, whole).is_err() {
                    screen.lose();
                }
            }
            // A shell that has the terminal meanwhile is not written over.
            Screen::Free => {}
            // A line that cannot be written does not end the run.
            Screen::None => drop(plain::line(&recent, &whole, &mut printed::err())),
        }
        last = now;
    }
    Ok(oversize)
}

/// Traces that come from the workers, told as they come.
struct Traces {
    told: Receiver<Story>,
    /// Else to standard error.
    to_stdout: bool,
    frequency: Frequency,
}

impl Traces {
    fn tell(&self, began: Ticks) -> io::Result<()> {
        while let Ok(story) = self.told.try_recv() {
            let text = story.tell(began, self.frequency);
            if self.to_stdout {
                writeln!(printed::out(), "{text}")?;
            } else {
                let _ = writeln!(printed::err(), "{text}");
            }
        }
        Ok(())
    }
}

/// Reports how many of the dropped packets are in their file. Returns what went wrong.
fn report_drops(tally: &Tally, arguments: &args::Run) -> Option<String> {
    let (written, lost) = (tally.written.load(Ordering::Relaxed), tally.lost.load(Ordering::Relaxed));
    let path = arguments.drops.as_deref().unwrap_or(Path::new("")).display();
    let missed = if lost > 0 { format!("; {lost} more are not in it") } else { String::new() };
    let _ = writeln!(printed::err(), "{written} dropped packets written to {path}{missed}");
    tally.trouble.lock().unwrap_or_else(PoisonError::into_inner).take()
}
