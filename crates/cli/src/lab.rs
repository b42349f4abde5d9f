//! `forebay lab`: experiments, with progress on a terminal and elsewhere.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use forebay_lab::{Progress, batching, lean};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::format::counted;
use crate::{Answer, args, printed};

/// Runs the experiment `lean` and writes its report.
pub(crate) fn lean(arguments: &args::LabLean) -> anyhow::Result<Answer> {
    ready(&arguments.out)?;
    let _temporary = crate::temporary::folder()?;
    let counter =
        if arguments.no_count { None } else { Some(std::env::current_exe().context("this program's own file")?) };
    let mut bar = Bar::new()?;
    let results = lean::run(&lean::Settings { short: arguments.short, counter }, &mut bar)?;
    bar.shown.finish_and_clear();
    if let Some(why) = results.not_counted.as_ref().filter(|_| !arguments.no_count) {
        writeln!(printed::err(), "instructions are n/a: {why}")?;
    }
    let files = lean::write(&results, &arguments.out)?;
    tell(&results, &files, arguments.json)?;
    if results.interrupted {
        writeln!(printed::err(), "interrupted: the report has fewer runs, rates and use cases, and says so")?;
    }
    verdict(&results.void(), results.interrupted)
}

/// Runs the experiment `batching` and writes its report.
pub(crate) fn batching(arguments: &args::LabBatching) -> anyhow::Result<Answer> {
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
    let mut bar = Bar::new()?;
    let results = batching::run(&settings, &mut bar)?;
    bar.shown.finish_and_clear();
    let files = batching::write(&results, &arguments.out)?;
    tell(&results, &files, arguments.json)?;
    if let Some(complete) = &results.interrupted {
        writeln!(printed::err(), "interrupted: the report has the parts that are complete: {complete}")?;
    }
    verdict(&results.void(), results.interrupted.is_some())
}

/// No where figures say nothing, because the machine was disturbed, or are missing.
fn verdict(void: &[String], interrupted: bool) -> anyhow::Result<Answer> {
    if !void.is_empty() {
        let runs = counted(void.len() as u64, "run");
        writeln!(printed::err(), "{runs} void, as something else ran on the machine: the report names them")?;
    }
    Ok(if void.is_empty() && !interrupted { Answer::Yes } else { Answer::No })
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

/// The time between two lines where there is no terminal.
const LINES: Duration = Duration::from_secs(10);

/// Shows how far it is: on a terminal as a bar, elsewhere as a line every ten seconds.
struct Bar {
    shown: ProgressBar,
    /// The part that is being made.
    part: String,
    steps: usize,
    done: usize,
    next_line: Instant,
    /// Set by SIGINT and SIGTERM; a second one ends the process.
    stop: Arc<AtomicBool>,
}

impl Bar {
    fn new() -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // In this order: the first signal finds the flag not yet set.
            signal_hook::flag::register_conditional_shutdown(signal, 2, Arc::clone(&stop)).context("signals")?;
            signal_hook::flag::register(signal, Arc::clone(&stop)).context("signals")?;
        }
        let (shown, next_line) = (ProgressBar::hidden(), Instant::now() + LINES);
        Ok(Self { shown, part: String::new(), steps: 0, done: 0, next_line, stop })
    }

    /// Prints a line, above the bar where there is one. Progress that cannot be written ends nothing.
    fn line(&self, text: &str) {
        if io::stderr().is_terminal() {
            self.shown.suspend(|| drop(writeln!(printed::err(), "{text}")));
        } else {
            let _ = writeln!(printed::err(), "{text}");
        }
    }

    fn name(&self) -> String {
        if self.part.is_empty() { String::new() } else { format!("{}: ", self.part) }
    }
}

impl Progress for Bar {
    fn part(&mut self, name: &str) {
        self.part = name.to_owned();
    }

    fn begin(&mut self, steps: usize) {
        let style = ProgressStyle::with_template("{elapsed_precise} [{bar:30}] {pos}/{len} {wide_msg}");
        // An experiment in parts has a bar for each.
        self.shown.finish_and_clear();
        self.shown = ProgressBar::new(steps as u64);
        (self.steps, self.done) = (steps, 0);
        // The template is this program's own: a mistake in it would show in every run.
        self.shown.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        // What was said last stays in motion while a step takes its time.
        self.shown.enable_steady_tick(Duration::from_millis(200));
    }

    fn expect(&mut self, seconds: f64) {
        let steps = counted(self.steps as u64, "step");
        self.line(&format!("{}{steps}, about {}", self.name(), lasting(seconds)));
    }

    fn step(&mut self, what: &str) {
        self.done += 1;
        self.shown.inc(1);
        self.shown.set_message(what.to_owned());
        if !io::stderr().is_terminal() && Instant::now() >= self.next_line {
            self.next_line = Instant::now() + LINES;
            self.line(&format!("{}{} of {}: {what}", self.name(), self.done, self.steps));
        }
    }

    fn stop(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }
}

/// A time in the unit that suits it.
fn lasting(seconds: f64) -> String {
    match seconds {
        ..90.0 => format!("{:.0} s", seconds.max(1.0)),
        ..5400.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}
