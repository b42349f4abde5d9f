//! `forebay measure`: what a packet costs, module by module, in ticks and instructions.

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use forebay_instance::{Cores, choose};
use forebay_lean::cases;
use forebay_lean::counting::{self, CountError, Extent};
use forebay_lean::measurement::Measurement;
use forebay_lean::saved::{Saved, Store, Subject};
use forebay_lean::ticks::{self, Timed};
use forebay_pipeline::{Conditions, Loaded, Source};
use jiff::Timestamp;

use crate::format::{Align, known, short};
use crate::lost_lines::report_lost_lines;
use crate::source::{origin, source};
use crate::{Answer, args, engine, format, printed};
use crate::{hardware, rates};

/// How often a run is made that is void.
const TRIES: usize = 3;

/// Measures a pipeline; the answer is no where the machine was too busy for it.
pub(crate) fn measure(arguments: &args::Measure) -> anyhow::Result<Answer> {
    if !arguments.no_count && origin(&arguments.pipeline).is_none() {
        bail!(
            "{}: it is read twice, once to count: allowed are a file, `usecase:NAME`, or --no-count",
            arguments.pipeline
        );
    }
    let store =
        Store::new(&std::path::absolute(&arguments.store).with_context(|| arguments.store.display().to_string())?);
    crate::temporary::follow_parent()?;
    // Before it can be replaced by another.
    let program = std::env::current_exe().context("this program's own file")?;
    let elsewhere = crate::temporary::folder()?;
    // A function by itself may write files: where the user has set nothing, they are not the user's.
    if arguments.pipeline.starts_with("function:") && arguments.set.is_empty() {
        std::env::set_current_dir(elsewhere.path())?;
    }
    let arguments = &settled(arguments);
    let subject = match &arguments.save {
        Some(name) => {
            store.ready(name)?;
            Some(subject(arguments)?)
        }
        None => None,
    };
    let source = source(&arguments.pipeline, &arguments.set)?;
    let mut tries = 0;
    let (timed, cores) = loop {
        tries += 1;
        let (timed, cores) = timed(&source, arguments)?;
        if tries == TRIES || !Measurement::of(&timed, None).chain.void {
            break (timed, cores);
        }
    };
    // The figures are those of a run whose files lack lines.
    report_lost_lines(&timed.report.pipeline, &timed.report.lost_lines);
    let found = if arguments.search { Some(rates::find(&source, &cores, arguments.search_time)?) } else { None };
    let counts = if arguments.no_count { None } else { count(&program, arguments)? };
    let mut measurement = Measurement::of(&timed, counts.as_ref());
    let void = measurement.chain.void;
    let spoilt = void || found.as_ref().is_some_and(|found| found.void);
    if let Some(found) = found {
        measurement = measurement.with_rates(found);
    }
    if arguments.json {
        writeln!(printed::out(), "{}", serde_json::to_string(&measurement)?)?;
    } else {
        table(&measurement)?;
    }
    if let Some((name, subject)) = arguments.save.clone().zip(subject) {
        let saved = Saved { name, at: Timestamp::now(), commit: commit(), subject, measurement };
        let folder = store.save(&saved, &program)?;
        writeln!(printed::err(), "saved in {}", folder.display())?;
        if void {
            writeln!(
                printed::err(),
                "{TRIES} runs were void: only what was counted is kept for `history`; `compare` runs it anew"
            )?;
        }
    }
    Ok(if spoilt { Answer::No } else { Answer::Yes })
}

/// A function by itself with the settings that it is counted with, where nothing else is said.
fn settled(arguments: &args::Measure) -> args::Measure {
    let mut settled = arguments.clone();
    if settled.set.is_empty()
        && settled.pipeline.starts_with("function:")
        && let [asked] = &cases::built_in(&settled.pipeline)[..]
    {
        settled.set.clone_from(&asked.set);
    }
    settled
}

/// One run, on these cores.
fn timed(source: &Source, arguments: &args::Measure) -> anyhow::Result<(Timed, Cores)> {
    let conditions = Conditions { frequency: engine::frequency(false), simulated: false };
    let Loaded { plans, cores, made, .. } = forebay_pipeline::load(source, conditions)?;
    if arguments.search {
        forebay_lean::rates::check(&plans)?;
    }
    let cores = choose(&cores)?;
    let timed = ticks::measure(plans, &cores, made, Duration::from_nanos(arguments.duration.0))?;
    if !timed.troubles.is_empty() {
        let told: Vec<_> = timed.troubles.iter().map(|(place, trouble)| format!("{place}: {trouble}")).collect();
        bail!(told.join("\n"));
    }
    if timed.ended {
        bail!(
            "{}: its sources ended before the time was up, after {}: allowed are endless ones (no `count`; enough `loops`), or less \
             time (--duration)",
            arguments.pipeline,
            format::counted(timed.whole.entered, "packet")
        );
    }
    Ok((timed, cores))
}

fn subject(arguments: &args::Measure) -> anyhow::Result<Subject> {
    let Some(pipeline) = crate::source::origin(&arguments.pipeline) else {
        bail!("{}: what is saved can be measured again: allowed are a file or `usecase:NAME`", arguments.pipeline);
    };
    Subject::of(pipeline, arguments.set.clone()).with_context(|| arguments.pipeline.clone())
}

/// The commit of the repository that this program was built in, where it lies in one and is no older than it.
fn commit() -> Option<String> {
    let program = std::env::current_exe().ok()?;
    let git = |arguments: &[&str]| {
        let told = Command::new("git").arg("-C").arg(program.parent()?).args(arguments).output().ok()?;
        let text = String::from_utf8(told.stdout).ok().filter(|_| told.status.success())?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let built = program.metadata().ok()?.modified().ok()?;
    let committed = git(&["log", "-1", "--format=%ct"])?.parse().ok()?;
    if built < SystemTime::UNIX_EPOCH + Duration::from_secs(committed) {
        return None;
    }
    git(&["describe", "--always", "--dirty", "--abbrev=12"])
}

/// The instructions; nothing where this machine has no counter, which is told.
fn count(program: &Path, arguments: &args::Measure) -> anyhow::Result<Option<counting::Counts>> {
    let pipeline = origin(&arguments.pipeline).unwrap_or_else(|| arguments.pipeline.clone());
    match counting::count(program, &pipeline, &arguments.set, Extent::default()) {
        Err(error @ CountError::NoValgrind) => {
            writeln!(printed::err(), "instructions are n/a: {error}")?;
            Ok(None)
        }
        counted => Ok(Some(counted?)),
    }
}

/// Does what [`count`] counts, in a process under valgrind.
pub(crate) fn serve(arguments: &args::Count) -> anyhow::Result<()> {
    crate::temporary::follow_parent()?;
    let extent = Extent { before: arguments.before, packets: arguments.packets };
    let load = || -> anyhow::Result<_> {
        let source = source(&arguments.pipeline, &arguments.set)?;
        let conditions = Conditions { frequency: engine::frequency(true), simulated: true };
        Ok(forebay_pipeline::load(&source, conditions)?.plans)
    };
    let served = counting::serve(load, arguments.first, extent)?;
    writeln!(printed::out(), "{}", serde_json::to_string(&served)?)?;
    Ok(())
}

fn table(measurement: &Measurement) -> std::io::Result<()> {
    let Measurement { modules, chain, .. } = measurement;
    // Mostly it cannot be told; the line below the table says why.
    let has_ipc = modules.iter().any(|told| told.ipc.is_some());
    let row = |name: &str, figures: [Option<f64>; 4], ipc: Option<f64>| {
        let mut row = vec![name.to_owned()];
        row.extend(figures.map(|figure| known(figure, 1)));
        row.extend(has_ipc.then(|| known(ipc, 2)));
        row
    };
    let mut rows: Vec<_> = modules
        .iter()
        .map(|told| {
            let figures = [told.cpp_ticks, told.ipp, told.instructions_per_tick, told.packets_per_call];
            row(&told.name, figures, told.ipc)
        })
        .collect();
    rows.push(row("(residue)", [chain.residue_ticks, chain.residue_ipp, None, None], None));
    rows.push(row("(all)", [chain.cpp_ticks, chain.ipp, None, None], chain.hardware.eipc));
    let mut columns = vec![
        ("module", Align::Left),
        ("ticks", Align::Right),
        ("instructions", Align::Right),
        ("per tick", Align::Right),
        ("packets a call", Align::Right),
    ];
    columns.extend(has_ipc.then_some(("IPC", Align::Right)));
    let mut out = printed::out();
    write!(out, "{}", format::table(&columns, &rows))?;
    if chain.cpp_ticks.is_none() {
        writeln!(out, "No packets entered while it was measured.")?;
    }
    if measurement
        .modules
        .iter()
        .any(|told| told.ipp.is_some() && told.instructions_per_tick.is_none() && told.cpp_ticks.is_some())
    {
        writeln!(out, "\"per tick\" is n/a where this run's batches are not the full ones that were counted.")?;
    }
    if let Some((sum, all)) = chain.sum_ticks.zip(chain.cpp_ticks) {
        writeln!(out, "The parts' ticks, measured one by one, are {:.1} % of (all).", sum / all * 100.0)?;
    }
    let stalls: u64 = measurement.workers.iter().map(|worker| worker.stalls.turns).sum();
    if stalls > 0 {
        let share = measurement.workers.iter().map(|worker| worker.stalls.share).fold(0.0, f64::max);
        writeln!(out, "The machine was elsewhere in {stalls} turns, for {:.2} % of the time.", share * 100.0)?;
    }
    if chain.void {
        writeln!(out, "VOID: that is too much for these figures to be believed. Repeat it when the machine is quiet.")?;
    }
    writeln!(
        out,
        "{} packets a second entered, at {} % of the workers' time: they can take {}",
        short(chain.entered_pps),
        known(Some(chain.cur * 100.0), 1),
        chain.pps.map_or_else(|| "n/a".to_owned(), short)
    )?;
    hardware::print(measurement, &mut out)?;
    measurement.search.as_ref().map_or(Ok(()), |found| rates::print(found, &mut out))
}
