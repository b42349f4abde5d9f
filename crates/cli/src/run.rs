//! `forebay run`: a pipeline runs and is watched; at the end there is a summary.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use forebay_graph::report::{Reading, Report};
use forebay_graph::{Cost, Observer, Plan};
use forebay_pipeline::{Conditions, Loaded, nearest};

use crate::Answer;
use crate::args;
use crate::drops::{DropSender, Tally};
use crate::engine::{Engine, Mode, choose_core};
use crate::live::Live;
use crate::source::source;
use crate::story::Names;
use crate::trace::{Story, Tracer, Watch};
use crate::{plain, summary};

/// How long the stop flag and the keyboard wait to be looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Runs a pipeline to its end.
pub(crate) fn run(arguments: &args::Run) -> anyhow::Result<Answer> {
    let simulated = arguments.simulated;
    let frequency = Mode::frequency(simulated);
    let mut sets = arguments.set.clone();
    sets.extend(arguments.scheduler.iter().map(|scheduler| format!("scheduler={scheduler}")));
    sets.extend(arguments.seed.map(|seed| format!("seed={seed}")));
    let Loaded { mut plan, core, mut files, .. } =
        forebay_pipeline::load(&source(&arguments.pipeline, &sets)?, Conditions { frequency, simulated })?;
    set_triggers(&mut plan, &arguments.trigger)?;
    let mode = if simulated {
        Mode::Simulated { costs: costs(&plan, &arguments.cost)? }
    } else {
        Mode::Real { core: choose_core(arguments.core.or(core))? }
    };
    let names = Arc::new(Names::of(&plan));
    let (stories, told) = channel();
    let tracer = arguments.trace.map(|count| Tracer::new(count, arguments.filter.clone(), stories));
    let (mut drops, mut tally) = (None, None);
    if let Some(path) = &arguments.drops {
        files.claim("--drops", path, true).map_err(|told| anyhow!("--drops: {told}"))?;
        let (sender, of_sender) = DropSender::create(path, Arc::clone(&names), Mode::now(simulated), frequency)?;
        (drops, tally) = (Some(sender), Some(of_sender));
    }
    let watched = tracer.is_some() || drops.is_some();
    let observer = watched.then(|| Box::new(Watch { tracer, drops }) as Box<dyn Observer>);
    if let Mode::Real { core } = mode {
        // Who does not read what is said on the way still gets the result.
        let _ = writeln!(io::stderr(), "{}: the worker runs on core {core}", plan.name);
    }
    // From here on a signal ends the run in order; until here, while files are opened, it ends the process.
    let stop = stop_on_signals()?;
    let engine = Engine::start(plan, mode, arguments.duration, observer, Arc::clone(&stop))?;
    let mut traces = Traces { names, told, to_stdout: !arguments.json };

    let shown = show(&engine, arguments, &stop, &mut traces);
    // Whatever went wrong with showing, the worker ends well.
    if shown.is_err() {
        stop.store(true, Ordering::Relaxed);
    }
    let (telemetry, origin, began) = (Arc::clone(&engine.telemetry), engine.origin.clone(), engine.began);
    let outcome = engine.join()?;
    let shown = shown.and_then(|()| Ok(traces.tell(&telemetry, began)?));
    let (first, last) = (Reading::nothing(&telemetry, began), Reading::of(&telemetry, outcome.at));
    let report = Report::between(&telemetry, &first, &last, &origin);
    let printed = if arguments.json {
        serde_json::to_string(&report).map_err(io::Error::from).and_then(|text| writeln!(io::stdout(), "{text}"))
    } else {
        summary::print(&report, &mut io::stdout().lock())
    };
    let mut troubles: Vec<_> =
        outcome.troubles.into_iter().map(|(place, trouble)| format!("{place}: {trouble}")).collect();
    troubles.extend(tally.as_deref().and_then(|tally| tell_drops(tally, arguments)));
    if report.packets.missing() != 0 {
        troubles.push(format!("{} packets are unaccounted for: this is a defect of Forebay", report.packets.missing()));
    }
    if !troubles.is_empty() {
        bail!(troubles.join("\n"));
    }
    // What went wrong with the run is said before what went wrong with saying so.
    shown?;
    printed?;
    let missed = report.flows.iter().any(|flow| flow.kept == Some(false));
    Ok(if arguments.strict && missed { Answer::No } else { Answer::Yes })
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

fn set_triggers(plan: &mut Plan, triggers: &[(String, usize)]) -> anyhow::Result<()> {
    for (name, trigger) in triggers {
        let names = plan.modules.iter().map(|module| module.name.as_str());
        let near = nearest(name, names);
        let Some(module) = plan.modules.iter_mut().find(|module| module.name == *name) else {
            bail!("--trigger {name}={trigger}: no module is called '{name}'{near}");
        };
        if *trigger > plan.batch {
            bail!("--trigger {name}={trigger}: allowed are 0 to {}, the largest batch", plan.batch);
        }
        module.trigger = *trigger;
    }
    Ok(())
}

/// Each module's cost: the last that names it, its function or everything.
fn costs(plan: &Plan, given: &[(String, Cost)]) -> anyhow::Result<Vec<Cost>> {
    let mut costs = vec![Cost::default(); plan.modules.len()];
    for (name, cost) in given {
        let mut named = false;
        for (module, slot) in plan.modules.iter().zip(&mut costs) {
            if name == "*" || *name == module.name || name == module.kind {
                (*slot, named) = (*cost, true);
            }
        }
        if !named {
            let names = plan.modules.iter().flat_map(|module| [module.name.as_str(), module.kind]);
            return Err(anyhow!("--cost {name}: no module or function is called '{name}'{}", nearest(name, names)));
        }
    }
    Ok(costs)
}

/// Shows what goes on until the run is over.
fn show(engine: &Engine, arguments: &args::Run, stop: &AtomicBool, traces: &mut Traces) -> anyhow::Result<()> {
    let quiet = arguments.no_live || arguments.simulated;
    // Traces scroll by; a table that stays would be written over.
    let table = !quiet && !arguments.json && arguments.trace.is_none() && io::stdout().is_terminal();
    // A terminal that cannot be had, or drawn on, gets lines.
    let mut live = if table { Live::start().ok() } else { None };
    let interval = Duration::from_nanos(arguments.interval.0);
    let mut next = Instant::now() + interval;
    let clock = forebay_measure::Tsc;
    let read = || Reading::of(&engine.telemetry, forebay_measure::Clock::now(&clock));
    let mut last = Reading::nothing(&engine.telemetry, engine.began);
    let first = last.clone();
    while !engine.is_over() {
        traces.tell(&engine.telemetry, engine.began)?;
        match &mut live {
            Some(watching) => match watching.handle_keys(LOOK) {
                Ok(quit) => stop.store(quit || stop.load(Ordering::Relaxed), Ordering::Relaxed),
                // The terminal is gone: the run goes on without a table.
                Err(_) => live.take().into_iter().for_each(Live::abandon),
            },
            None => std::thread::sleep(LOOK.min(next.saturating_duration_since(Instant::now()))),
        }
        if Instant::now() < next || quiet {
            continue;
        }
        next += interval;
        let now = read();
        let recent = Report::between(&engine.telemetry, &last, &now, &engine.origin);
        let whole = Report::between(&engine.telemetry, &first, &now, &engine.origin);
        match &mut live {
            Some(watching) => {
                if watching.show(recent, whole).is_err() {
                    live.take().into_iter().for_each(Live::abandon);
                }
            }
            // A line that cannot be written is not worth the run.
            None => drop(plain::line(&recent, &whole, &mut io::stderr().lock())),
        }
        last = now;
    }
    Ok(())
}

/// Traces that come from the worker, told as they come.
struct Traces {
    names: Arc<Names>,
    told: Receiver<Story>,
    /// Else to standard error.
    to_stdout: bool,
}

impl Traces {
    fn tell(&mut self, telemetry: &forebay_graph::Telemetry, began: forebay_packet::Ticks) -> io::Result<()> {
        let mut flows = Vec::new();
        while let Ok(story) = self.told.try_recv() {
            if flows.is_empty() {
                flows = telemetry.flows.iter().map(|flow| flow.plan.name.clone()).collect();
            }
            let text = self.names.tell(&story, began, telemetry.frequency, &flows);
            if self.to_stdout {
                writeln!(io::stdout(), "{text}")?;
            } else {
                let _ = writeln!(io::stderr(), "{text}");
            }
        }
        Ok(())
    }
}

/// Says what became of the dropped packets; what went wrong, if anything.
fn tell_drops(tally: &Tally, arguments: &args::Run) -> Option<String> {
    let (written, lost) = (tally.written.load(Ordering::Relaxed), tally.lost.load(Ordering::Relaxed));
    let path = arguments.drops.as_deref().unwrap_or(std::path::Path::new("")).display();
    let missed = if lost > 0 { format!("; {lost} more came faster than they could be written") } else { String::new() };
    let _ = writeln!(io::stderr(), "{written} dropped packets written to {path}{missed}");
    tally.trouble.lock().unwrap_or_else(PoisonError::into_inner).take()
}
