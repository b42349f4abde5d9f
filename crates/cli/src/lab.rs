//! `forebay lab`: experiments, with progress on a terminal.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use forebay_lab::{Progress, batching, lean};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::{args, printed};

/// Runs the experiment `lean` and writes its report.
pub(crate) fn lean(arguments: &args::LabLean) -> anyhow::Result<()> {
    ready(&arguments.out)?;
    let _temporary = crate::temporary::folder()?;
    let counter =
        if arguments.no_count { None } else { Some(std::env::current_exe().context("this program's own file")?) };
    let mut bar = Bar(ProgressBar::hidden());
    let results = lean::run(&lean::Settings { short: arguments.short, counter }, &mut bar)?;
    bar.0.finish_and_clear();
    if let Some(why) = results.not_counted.as_ref().filter(|_| !arguments.no_count) {
        writeln!(printed::err(), "instructions are n/a: {why}")?;
    }
    let files = lean::write(&results, &arguments.out)?;
    tell(&results, &files, arguments.json)
}

/// Runs the experiment `batching` and writes its report.
pub(crate) fn batching(arguments: &args::LabBatching) -> anyhow::Result<()> {
    let (only, part) = (&arguments.only, batching::Part::Captures);
    match &arguments.captures {
        None if only.contains(&part) => bail!("--only captures: no captures are given: --captures names their folder"),
        Some(folder) if !only.is_empty() && !only.contains(&part) && !only.contains(&batching::Part::Grid) => {
            bail!(
                "--captures {}: the parts `captures` and `grid`, which they are for, are not among those of --only",
                folder.display()
            )
        }
        _ => {}
    }
    let has_usecases = [batching::Part::Static, batching::Part::Grid].iter().any(|part| only.contains(part));
    if let Some(usecase) = arguments.usecase.first().filter(|_| !has_usecases) {
        bail!("--usecase {usecase}: the parts `static` and `grid` are made of use cases: name one of them with --only");
    }
    let simulated = [(arguments.short, "--short"), (arguments.simulated, "--virtual")].into_iter().find(|(is, _)| *is);
    if let Some((_, flag)) = simulated.filter(|_| only.contains(&batching::Part::DataPath)) {
        bail!("--only data-path: with {flag} time is simulated; it measures real time: leave {flag} out");
    }
    ready(&arguments.out)?;
    let settings = batching::Settings {
        simulated: arguments.simulated,
        short: arguments.short,
        only: arguments.only.iter().copied().collect(),
        period: arguments.period,
        duration: arguments.duration,
        runs: arguments.runs,
        captures: arguments.captures.clone(),
        usecases: arguments.usecase.clone(),
    };
    let mut bar = Bar(ProgressBar::hidden());
    let results = batching::run(&settings, &mut bar)?;
    bar.0.finish_and_clear();
    let files = batching::write(&results, &arguments.out)?;
    tell(&results, &files, arguments.json)
}

/// Before minutes are spent: whether the folder can be written to.
fn ready(folder: &Path) -> anyhow::Result<()> {
    let told = || format!("--out {}", folder.display());
    if folder.exists() && !folder.is_dir() {
        bail!("{}: it is no folder: allowed is one, which is made where it is not there", told());
    }
    std::fs::create_dir_all(folder).with_context(told)?;
    tempfile::tempfile_in(folder).with_context(told)?;
    // What every experiment writes.
    match ["results.json", "index.html"].map(|name| folder.join(name)).iter().find(|file| file.is_dir()) {
        Some(taken) => bail!("{}: {} is a folder: results are written to a file of that name", told(), taken.display()),
        None => Ok(()),
    }
}

/// The results as JSON, or the files that have them.
fn tell(results: &impl Serialize, files: &[PathBuf], json: bool) -> anyhow::Result<()> {
    let mut out = printed::out();
    if json {
        return Ok(writeln!(out, "{}", serde_json::to_string(results)?)?);
    }
    files.iter().try_for_each(|file| writeln!(out, "{}", file.display()))?;
    Ok(())
}

/// Shows on a terminal how far it is; elsewhere nothing.
struct Bar(ProgressBar);

impl Progress for Bar {
    fn begin(&mut self, steps: usize) {
        let style = ProgressStyle::with_template("{elapsed_precise} [{bar:30}] {pos}/{len} {wide_msg}");
        // An experiment in parts has a bar for each.
        self.0.finish_and_clear();
        self.0 = ProgressBar::new(steps as u64);
        // The template is this program's own: a mistake in it would show in every run.
        self.0.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        // What was said last stays in motion while a step takes its time.
        self.0.enable_steady_tick(std::time::Duration::from_millis(200));
    }

    fn step(&mut self, what: &str) {
        self.0.inc(1);
        self.0.set_message(what.to_owned());
    }
}
