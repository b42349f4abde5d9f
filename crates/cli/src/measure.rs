//! `forebay measure`: measures the cost of a packet, module by module, in ticks and instructions.

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use forebay_bench::cases;
use forebay_bench::counting::{self, CountError, Extent};
use forebay_bench::measurement::Measurement;
use forebay_bench::saved::{MeasurementStore, Saved, Subject};
use forebay_bench::ticks::{self, Timed};
use forebay_instance::{Cores, choose};
use forebay_pipeline::{Conditions, Loaded, Source};
use forebay_protocol::event::on_one_line;
use jiff::Timestamp;

use crate::format::{Align, known, short};
use crate::lost_lines::report_lost_lines;
use crate::source::{origin, source};
use crate::{Answer, args, engine, format, printed};
use crate::{hardware, rates};

/// Maximum number of runs. A run is repeated if it is void.
const TRIES: usize = 3;

/// Measures a pipeline. Returns `No` if the machine was too busy.
pub(crate) fn measure(arguments: &args::Measure) -> anyhow::Result<Answer> {
    if !arguments.no_count && origin(&arguments.pipeline).is_none() {
        bail!(
            "{}: the pipeline is read twice, once to count instructions: name a file or `usecase:NAME`, or use \
             --no-count",
            arguments.pipeline
        );
    }
    let store = MeasurementStore::new(
        &std::path::absolute(&arguments.store).with_context(|| arguments.store.display().to_string())?,
    );
    crate::temporary::follow_parent()?;
    // Look up the program before its file can be replaced.
    let program = std::env::current_exe().context("this program's own file")?;
    let elsewhere = crate::temporary::folder()?;
    // A function's example may write files. Without settings of the user, they must not land in the user's folder.
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
    // Modules may have failed to write lines of their logs in the run that gave the figures below. Report this before
    // the figures.
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
                "{TRIES} runs were void: only the counts are stored for `history`; `compare` runs the pipeline again"
            )?;
        }
    }
    Ok(if spoilt { Answer::No } else { Answer::Yes })
}

/// Adds the settings with which a function's example is counted. If the user gave settings, adds none.
fn settled(arguments: &args::Measure) -> args::Measure {
    let mut settled = arguments.clone();
    if settled.set.is_empty()
        && settled.pipeline.starts_with("function:")
        && let [case] = &cases::built_in(&settled.pipeline)[..]
    {
        settled.set.clone_from(&case.set);
    }
    settled
}

/// Makes one run. Returns its times, and the cores that it was made on.
fn timed(source: &Source, arguments: &args::Measure) -> anyhow::Result<(Timed, Cores)> {
    let conditions = Conditions { frequency: engine::frequency(false), simulated: false };
    let Loaded { mut plans, cores, made, .. } = forebay_pipeline::load(source, conditions)?;
    if arguments.search {
        forebay_bench::rates::check(&mut plans)?;
    }
    let cores = choose(&cores)?;
    let timed = ticks::measure(plans, &cores, made, Duration::from_nanos(arguments.duration.0))?;
    if !timed.troubles.is_empty() {
        let troubles: Vec<_> =
            timed.troubles.iter().map(|(key, trouble)| on_one_line(&format!("{key}: {trouble}"))).collect();
        bail!(troubles.join("\n"));
    }
    if timed.ended {
        bail!(
            "{}: the sources ended after {}, before the time was up: use endless sources (omit `count`, or set more \
             `loops`), or a shorter --duration",
            arguments.pipeline,
            format::counted(timed.whole.entered, "packet")
        );
    }
    Ok((timed, cores))
}

/// Returns the pipeline and settings of a measurement that is saved. Returns an error if they cannot be measured again.
fn subject(arguments: &args::Measure) -> anyhow::Result<Subject> {
    let Some(pipeline) = crate::source::origin(&arguments.pipeline) else {
        bail!("{}: a saved measurement must be repeatable: name a file or `usecase:NAME`", arguments.pipeline);
    };
    Subject::of(pipeline, arguments.set.clone()).with_context(|| arguments.pipeline.clone())
}

/// Returns the commit of the repository that contains this program. Returns `None` without a repository, or if the
/// commit is newer than the program: then the program was built from an earlier commit.
fn commit() -> Option<String> {
    let program = std::env::current_exe().ok()?;
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(program.parent()?).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let built = program.metadata().ok()?.modified().ok()?;
    let committed = git(&["log", "-1", "--format=%ct"])?.parse().ok()?;
    if built < SystemTime::UNIX_EPOCH + Duration::from_secs(committed) {
        return None;
    }
    git(&["describe", "--always", "--dirty", "--abbrev=12"])
}

/// Counts the instructions under valgrind. If valgrind is not installed, prints a message and returns `None`.
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

/// Runs the workload of [`count`] in a process under valgrind.
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
    // The IPC of modules is unknown on most machines. The line below the table states the reason.
    let has_ipc = modules.iter().any(|module| module.ipc.is_some());
    let row = |name: &str, figures: [Option<f64>; 4], ipc: Option<f64>| {
        let mut row = vec![name.to_owned()];
        row.extend(figures.map(|figure| known(figure, 1)));
        row.extend(has_ipc.then(|| known(ipc, 2)));
        row
    };
    let mut rows: Vec<_> = modules
        .iter()
        .map(|module| {
            let figures = [module.cpp_ticks, module.ipp, module.instructions_per_tick, module.packets_per_call];
            row(&module.name, figures, module.ipc)
        })
        .collect();
    rows.push(row("(residue)", [chain.residue_ticks, chain.residue_ipp, None, None], None));
    rows.push(row("(all)", [chain.cpp_ticks, chain.ipp, None, None], chain.hardware.eipc));
    let mut columns = vec![
        ("module", Align::Left),
        ("ticks", Align::Right),
        ("instructions", Align::Right),
        ("per tick", Align::Right),
        ("packets/call", Align::Right),
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
        .any(|module| module.ipp.is_some() && module.instructions_per_tick.is_none() && module.cpp_ticks.is_some())
    {
        writeln!(out, "\"per tick\" is n/a if this run's batches are smaller than the full ones that were counted.")?;
    }
    if let Some((sum, all)) = chain.sum_ticks.zip(chain.cpp_ticks) {
        writeln!(
            out,
            "The ticks of all parts, measured separately, add up to {:.1} % of the ticks of (all).",
            sum / all * 100.0
        )?;
    }
    let stalls: u64 = measurement.workers.iter().map(|worker| worker.stalls.turns).sum();
    if stalls > 0 {
        let share = measurement.workers.iter().map(|worker| worker.stalls.share).fold(0.0, f64::max);
        writeln!(out, "The machine ran something else in {stalls} turns, for {:.2} % of the time.", share * 100.0)?;
    }
    if chain.void {
        writeln!(out, "VOID: these figures are not reliable. Repeat the measurement when the machine is quiet.")?;
    }
    writeln!(
        out,
        "{} packets/s entered, at {} % of the workers' time: the maximum is {}",
        short(chain.entered_pps),
        known(Some(chain.cur * 100.0), 1),
        chain.pps.map_or_else(|| "n/a".to_owned(), short)
    )?;
    hardware::print(measurement, &mut out)?;
    measurement.search.as_ref().map_or(Ok(()), |found| rates::print(found, &mut out))
}
