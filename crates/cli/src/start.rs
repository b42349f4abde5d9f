//! Which configuration a run with `--state` starts from: its file, or the one that was accepted last.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use forebay_graph::files::remove_left;
use forebay_instance::{Accepted, events::NewEvent, fingerprint};
use forebay_pipeline::{Problems, Source, is_built_in, shown_file, shown_setting};
use forebay_protocol::event::EventName;

use crate::args;
use crate::events::Events;
use crate::source::{origin, source};

/// The configuration to start from, whichever is newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Prefer {
    /// The file
    File,
    /// The configuration that was accepted last
    State,
}

/// Where a run begins.
pub(crate) struct Start {
    /// The configuration.
    pub(crate) source: Source,
    /// The fingerprint of the file, for the next start.
    pub(crate) fingerprint: Option<String>,
    /// The file of the state that is replaced, and is to be kept as `.old`.
    pub(crate) replaced: Option<Replaced>,
    /// The state that it begins with.
    kept: Option<Kept>,
}

/// A state that a run begins with.
struct Kept {
    state: PathBuf,
    /// The pipeline's file, which could be started from instead.
    file: Option<String>,
}

/// A state that is replaced.
pub(crate) struct Replaced {
    /// Its file.
    pub(crate) path: PathBuf,
    /// To be recorded once it is replaced: the configuration that takes its place may yet be refused.
    pub(crate) event: NewEvent,
}

impl Start {
    /// Chooses. The state is not changed: the configuration may yet be refused.
    pub(crate) fn choose(arguments: &args::Run, events: &Events) -> anyhow::Result<Self> {
        let Some(path) = &arguments.state else { return Self::from_file(arguments, None) };
        // The state is this run's alone.
        remove_left(path);
        remove_left(&old(path));
        if arguments.prefer == Some(Prefer::File) {
            let event = || replaced_by(arguments, path, "prefer", "as --prefer says", &[]);
            let replaced = path.exists().then(|| Replaced { path: path.clone(), event: event() });
            return Self::from_file(arguments, replaced);
        }
        let kept = Accepted::read(path).with_context(|| format!("--state {}", path.display()))?;
        let Some(kept) = kept else { return Self::from_file(arguments, None) };
        let known = kept.fingerprint().map(str::to_owned);
        let keep = |why: &str, text: &str, fingerprint: Option<String>| {
            events.record(used(arguments, path, why, text));
            let file = (why != "no_file").then(|| shown_file(&arguments.pipeline));
            let from = Some(Kept { state: path.clone(), file });
            Ok(Self { source: kept.source(), fingerprint, replaced: None, kept: from })
        };
        if arguments.prefer == Some(Prefer::State) {
            // A change of the file that is passed over now is for the next start without the option.
            return keep("prefer", "as --prefer says", known);
        }
        let pipeline = &arguments.pipeline;
        if !is_built_in(pipeline) && pipeline != "-" && !Path::new(pipeline).exists() {
            return keep("no_file", "there is no such file", known);
        }
        let read = read(arguments)?;
        let now = fingerprint(&read);
        match &known {
            None => keep("no_hash", "an older version wrote the state, and did not note what the file was", now),
            Some(_) if known == now => keep("unchanged", "the file has not changed since", now),
            Some(_) => {
                let (why, text) = match (kept.origin(), origin(pipeline)) {
                    (Some(of), Some(here)) if of != here => {
                        ("other_file", format!("as the state is of another pipeline, {}", shown_file(of)))
                    }
                    _ => ("changed", "which has changed since".to_owned()),
                };
                let kept = kept.source();
                let only_kept = kept.given().iter().filter(|set| !read.given().contains(set));
                let only_kept: Vec<_> = only_kept.map(|set| format!("--set {}", shown_setting(set))).collect();
                let event = replaced_by(arguments, path, why, &text, &only_kept);
                let replaced = Some(Replaced { path: path.clone(), event });
                Ok(Self { source: read, fingerprint: now, replaced, kept: None })
            }
        }
    }

    fn from_file(arguments: &args::Run, replaced: Option<Replaced>) -> anyhow::Result<Self> {
        let source = read(arguments)?;
        Ok(Self { fingerprint: fingerprint(&source), source, replaced, kept: None })
    }

    /// The problems of the configuration, with a way out where the state is what was started from, or
    /// would have been before.
    pub(crate) fn refusal(&self, mut problems: Problems) -> anyhow::Error {
        if let Some(Kept { state, file }) = &self.kept {
            // Its text is not what the file of that name has now.
            let (state, of) = (state.display(), shown_file(self.source.file()));
            for problem in &mut problems.all {
                let is_text =
                    problem.shown.strip_prefix(&of).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'));
                if is_text {
                    problem.shown = format!("{state} ({} as it was accepted)", problem.shown);
                }
            }
            let hint = file
                .as_ref()
                .map(|file| format!("\n--prefer file starts from {file}, and keeps {state} as {state}.old"));
            return anyhow::anyhow!("{problems}{}", hint.unwrap_or_default());
        }
        let Some(Replaced { path, .. }) = &self.replaced else { return problems.into() };
        let path = path.display();
        anyhow::anyhow!("{problems}\n{path} is as it was: --prefer state starts from the configuration that it has")
    }
}

/// Where a state is kept that another takes the place of.
fn old(path: &Path) -> PathBuf {
    let mut old = path.as_os_str().to_owned();
    old.push(".old");
    old.into()
}

fn read(arguments: &args::Run) -> anyhow::Result<Source> {
    let sets: Vec<_> = arguments.settings.all().map(|(_, setting)| setting).collect();
    Ok(source(&arguments.pipeline, &sets).map_err(|problems| arguments.settings.as_written(problems))?)
}

fn used(arguments: &args::Run, path: &Path, why: &str, text: &str) -> NewEvent {
    let ignored: Vec<_> = arguments.settings.all().map(|(flag, _)| flag).collect();
    let ignored = ignored.join(", ");
    let (state, file) = (path.display().to_string(), shown_file(&arguments.pipeline));
    let rest = match ignored.as_str() {
        "" => String::new(),
        flags => format!("; not used, as it has settings of its own: {flags}"),
    };
    let message = format!(
        "starting from the configuration that was accepted last, kept in {state}: {text} (--prefer file starts from \
         {file}){rest}"
    );
    let event = NewEvent::new(EventName::StateUsed, message).with("state", state).with("file", file).with("why", why);
    event.with_some("ignored", Some(ignored).filter(|flags| !flags.is_empty()))
}

fn replaced_by(arguments: &args::Run, path: &Path, why: &str, text: &str, only_kept: &[String]) -> NewEvent {
    let (state, file) = (path.display().to_string(), shown_file(&arguments.pipeline));
    let only_kept = only_kept.join(", ");
    let rest = match only_kept.as_str() {
        "" => String::new(),
        sets => format!("; not in force any more: {sets}"),
    };
    let message = format!(
        "started from {file}, {text}; the configuration that was accepted last has gone from {state} to \
         {state}.old{rest}"
    );
    let event = NewEvent::new(EventName::StateReplaced, message).with("state", state).with("file", file);
    event.with("why", why).with_some("dropped", Some(only_kept).filter(|sets| !sets.is_empty()))
}
