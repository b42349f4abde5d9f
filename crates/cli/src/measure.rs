//! `forebay measure`: what a packet costs, module by module, in ticks and instructions.

use std::io::Write;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use forebay_instance::{Cores, choose};
use forebay_lean::counting::{self, Extent};
use forebay_lean::measurement::Measurement;
use forebay_lean::saved::{Saved, Store, Subject};
use forebay_lean::ticks::{self, Timed};
use forebay_pipeline::{Conditions, Loaded, Source};
use jiff::Timestamp;

use crate::format::{Align, known, short};
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
    let store = Store::new(&arguments.store);
    let subject = match &arguments.save {
        Some(name) => {
            store.place(name)?;
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
    let found = if arguments.search { Some(rates::find(&source, &cores, arguments.search_time)?) } else { None };
    let counts = if arguments.no_count { None } else { Some(count(arguments)?) };
    let mut measurement = Measurement::of(&timed, counts.as_ref());
    let void = measurement.chain.void;
    if let Some(found) = found {
        measurement = measurement.with_rates(found);
    }
    if arguments.json {
        writeln!(printed::out(), "{}", serde_json::to_string(&measurement)?)?;
    } else {
        table(&measurement)?;
    }
    if let Some((name, subject)) = arguments.save.clone().zip(subject) {
        if void {
            bail!("'{name}' is not saved: {TRIES} runs were void; repeat it when the machine is quiet");
        }
        let saved = Saved { name, at: Timestamp::now(), commit: commit(), subject, measurement };
        let folder = store.save(&saved, &std::env::current_exe().context("this program's own file")?)?;
        writeln!(printed::err(), "saved in {}", folder.display())?;
    }
    Ok(if void { Answer::No } else { Answer::Yes })
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
    Ok((timed, cores))
}

fn subject(arguments: &args::Measure) -> anyhow::Result<Subject> {
    let Some(pipeline) = crate::source::origin(&arguments.pipeline) else {
        bail!("{}: what is saved can be measured again: allowed are a file or `usecase:NAME`", arguments.pipeline);
    };
    Subject::of(pipeline, arguments.set.clone()).with_context(|| arguments.pipeline.clone())
}

/// The commit of the repository that this program was built in, where it lies in one.
fn commit() -> Option<String> {
    let program = std::env::current_exe().ok()?;
    let describe = ["describe", "--always", "--dirty", "--abbrev=12"];
    let told = Command::new("git").arg("-C").arg(program.parent()?).args(describe).output().ok()?;
    let text = String::from_utf8(told.stdout).ok().filter(|_| told.status.success())?;
    Some(text.trim().to_owned()).filter(|commit| !commit.is_empty())
}

fn count(arguments: &args::Measure) -> anyhow::Result<counting::Counts> {
    let program = std::env::current_exe().context("this program's own file")?;
    let pipeline = origin(&arguments.pipeline).unwrap_or_else(|| arguments.pipeline.clone());
    Ok(counting::count(&program, &pipeline, &arguments.set, Extent::default())?)
}

/// Does what [`count`] counts, in a process under valgrind.
pub(crate) fn serve(arguments: &args::Count) -> anyhow::Result<()> {
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
