//! `forebay lab`: experiments, with progress on a terminal.

use std::io::Write;

use anyhow::Context;
use forebay_lab::Progress;
use forebay_lab::lean::{self, Settings};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{args, printed};

/// Runs the experiment `lean` and writes its report.
pub(crate) fn lean(arguments: &args::LabLean) -> anyhow::Result<()> {
    // Before minutes are spent: a folder that cannot be written to.
    let out = || arguments.out.display().to_string();
    std::fs::create_dir_all(&arguments.out).with_context(out)?;
    tempfile::tempfile_in(&arguments.out).with_context(out)?;
    let _temporary = crate::temporary::folder()?;
    let counter =
        if arguments.no_count { None } else { Some(std::env::current_exe().context("this program's own file")?) };
    let mut bar = Bar(ProgressBar::hidden());
    let results = lean::run(&Settings { short: arguments.short, counter }, &mut bar)?;
    bar.0.finish_and_clear();
    if let Some(why) = results.not_counted.as_ref().filter(|_| !arguments.no_count) {
        writeln!(printed::err(), "instructions are n/a: {why}")?;
    }
    let files = lean::write(&results, &arguments.out)?;
    if arguments.json {
        return Ok(writeln!(printed::out(), "{}", serde_json::to_string(&results)?)?);
    }
    let mut out = printed::out();
    files.iter().try_for_each(|file| writeln!(out, "{}", file.display()))?;
    Ok(())
}

/// Shows on a terminal how far it is; elsewhere nothing.
struct Bar(ProgressBar);

impl Progress for Bar {
    fn begin(&mut self, steps: usize) {
        let style = ProgressStyle::with_template("{elapsed_precise} [{bar:30}] {pos}/{len} {wide_msg}");
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
