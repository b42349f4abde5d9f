//! `forebay lab`: experiments with progress output.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, bail};
use forebay_lab::{Progress, batching, lean, placement};
use serde::Serialize;

use crate::format::counted;
use crate::progress::Bar;
use crate::{Answer, args, printed};

/// Runs the experiment `lean` and writes its report.
pub(crate) fn lean(arguments: &args::LabLean) -> anyhow::Result<Answer> {
    ready(&arguments.out)?;
    let _temporary = crate::temporary::folder()?;
    let counter =
        if arguments.no_count { None } else { Some(std::env::current_exe().context("this program's own file")?) };
    let mut watched = Watched::new()?;
    let results = lean::run(&lean::LeanSettings { short: arguments.short, counter }, &mut watched)?;
    watched.bar.end();
    if let Some(why) = results.not_counted.as_ref().filter(|_| !arguments.no_count) {
        writeln!(printed::err(), "instructions are n/a: {why}")?;
    }
    let files = lean::write(&results, &arguments.out)?;
    print_results(&results, &files, arguments.json)?;
    if results.interrupted {
        writeln!(printed::err(), "interrupted: some runs, rates and use cases are missing in the report")?;
    }
    verdict(&results.void(), results.interrupted)
}

/// Runs the experiment `batching` and writes its report.
pub(crate) fn batching(arguments: &args::LabBatching) -> anyhow::Result<Answer> {
    let (only, part) = (&arguments.only, batching::BatchingPart::Captures);
    match &arguments.captures {
        None if only.contains(&part) => bail!("--only captures: no captures: name their folder with --captures"),
        Some(folder) if !only.is_empty() && !only.contains(&part) && !only.contains(&batching::BatchingPart::Grid) => {
            bail!(
                "--captures {}: only the parts `captures` and `grid` use captures: add one of them to --only",
                folder.display()
            )
        }
        _ => {}
    }
    let has_usecases =
        [batching::BatchingPart::Static, batching::BatchingPart::Grid].iter().any(|part| only.contains(part));
    if let Some(usecase) = arguments.usecase.first().filter(|_| !has_usecases) {
        bail!("--usecase {usecase}: only the parts `static` and `grid` have use cases: add one of them to --only");
    }
    let simulated = [(arguments.short, "--short"), (arguments.simulated, "--virtual")].into_iter().find(|(is, _)| *is);
    if let Some((_, flag)) = simulated.filter(|_| only.contains(&batching::BatchingPart::DataPath)) {
        bail!("--only data-path: this part measures real time, but {flag} simulates time: omit {flag}");
    }
    ready(&arguments.out)?;
    let settings = batching::BatchingSettings {
        simulated: arguments.simulated,
        short: arguments.short,
        only: arguments.only.iter().copied().collect(),
        period: arguments.period,
        duration: arguments.duration,
        runs: arguments.runs,
        captures: arguments.captures.clone(),
        usecases: arguments.usecase.clone(),
    };
    let mut watched = Watched::new()?;
    let results = batching::run(&settings, &mut watched)?;
    watched.bar.end();
    let files = batching::write(&results, &arguments.out)?;
    print_results(&results, &files, arguments.json)?;
    if let Some(complete) = &results.interrupted {
        writeln!(printed::err(), "interrupted: the report has the complete parts: {complete}")?;
    }
    verdict(&results.void(), results.interrupted.is_some())
}

/// Runs the experiment `placement` and writes its report.
pub(crate) fn placement(arguments: &args::LabPlacement) -> anyhow::Result<Answer> {
    ready(&arguments.out)?;
    let only = arguments.only.iter().copied().collect();
    let settings = placement::PlacementSettings { short: arguments.short, only, seed: arguments.seed };
    let earlier = placement::Earlier::read(&arguments.out, &settings);
    if let Some(parts) = earlier.as_ref().map(placement::Earlier::parts).filter(|parts| !parts.is_empty()) {
        let parts = parts.join(", ");
        writeln!(
            printed::err(),
            "--out {}: continuing an interrupted run; complete parts: {parts}",
            arguments.out.display()
        )?;
    }
    let mut watched = Watched::new()?;
    let results = placement::run(&settings, earlier, &mut watched)?;
    watched.bar.end();
    let files = placement::write(&results, &arguments.out)?;
    print_results(&results, &files, arguments.json)?;
    if let Some(complete) = &results.interrupted {
        writeln!(printed::err(), "interrupted: the report has the complete parts: {complete}")?;
    }
    verdict(&[], results.interrupted.is_some())
}

/// Returns the command's answer. It is `No` if the machine disturbed runs, or if the experiment was interrupted.
fn verdict(void: &[String], interrupted: bool) -> anyhow::Result<Answer> {
    if !void.is_empty() {
        let runs = counted(void.len() as u64, "run");
        writeln!(
            printed::err(),
            "{runs} void, because other programs ran on the machine: the report names the void runs"
        )?;
    }
    Ok(if void.is_empty() && !interrupted { Answer::Yes } else { Answer::No })
}

/// Creates the folder, and checks that it is writable before runs of several minutes begin.
fn ready(folder: &Path) -> anyhow::Result<()> {
    let option = || format!("--out {}", folder.display());
    if folder.exists() && !folder.is_dir() {
        bail!("{}: not a folder: name a folder (it is created if it does not exist)", option());
    }
    std::fs::create_dir_all(folder).with_context(option)?;
    tempfile::tempfile_in(folder).with_context(option)?;
    // Every experiment writes these files.
    match ["results.json", "index.html"].map(|name| folder.join(name)).iter().find(|file| file.is_dir()) {
        Some(taken) => {
            bail!(
                "{}: {} is a folder, but results are written to a file of that name: name another folder",
                option(),
                taken.display()
            )
        }
        None => Ok(()),
    }
}

/// Prints the results as JSON, or the names of the result files.
fn print_results(results: &impl Serialize, files: &[PathBuf], json: bool) -> anyhow::Result<()> {
    let mut out = printed::out();
    if json {
        return Ok(writeln!(out, "{}", serde_json::to_string(results)?)?);
    }
    files.iter().try_for_each(|file| writeln!(out, "{}", file.display()))?;
    Ok(())
}

/// Shows the progress of an experiment, and stops it on a signal.
struct Watched {
    bar: Bar,
    /// SIGINT and SIGTERM set this flag. A second signal ends the process.
    stop: Arc<AtomicBool>,
}

impl Watched {
    fn new() -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // The order matters. On the first signal, the shutdown handler finds the flag not set and does nothing;
            // then the flag is set. On the second signal, it finds the flag set and ends the process.
            signal_hook::flag::register_conditional_shutdown(signal, 2, Arc::clone(&stop)).context("signals")?;
            signal_hook::flag::register(signal, Arc::clone(&stop)).context("signals")?;
        }
        Ok(Self { bar: Bar::new(), stop })
    }
}

impl Progress for Watched {
    fn part(&mut self, name: &str) {
        self.bar.part(name);
    }

    fn begin(&mut self, steps: usize) {
        self.bar.begin(steps);
    }

    fn expect(&mut self, seconds: f64) {
        self.bar.expect(&self.bar.steps(), seconds);
    }

    fn step(&mut self, what: &str) {
        self.bar.step(what);
    }

    fn stop(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }
}
