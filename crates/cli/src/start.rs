//! Chooses the configuration that a run with `--state` starts from: the pipeline's file, or the last accepted
//! configuration.

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

/// The configuration to start from, even if the other configuration is newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Prefer {
    /// The pipeline's file
    File,
    /// The last accepted configuration, from the --state file
    State,
}

/// The configuration that a run starts from.
pub(crate) struct Start {
    /// The configuration.
    pub(crate) source: Source,
    /// The fingerprint of the pipeline's file, for the next start.
    pub(crate) fingerprint: Option<String>,
    /// The state that is replaced when the run has started. It is kept in a file `.old`. `None` if no state is
    /// replaced.
    pub(crate) replaced: Option<Replaced>,
    /// The state that the configuration comes from; `None` if it comes from the pipeline's file.
    kept: Option<Kept>,
}

/// A state that a run starts from.
struct Kept {
    /// The state file.
    state: PathBuf,
    /// The pipeline's file, the alternative to the state. `None` if the file does not exist.
    file: Option<String>,
}

/// A state that is replaced.
pub(crate) struct Replaced {
    /// The state file.
    pub(crate) path: PathBuf,
    /// The event. It is recorded after the replacement, because the new configuration may still be refused.
    pub(crate) event: NewEvent,
}

impl Start {
    /// Chooses the configuration. Without `--prefer`, the pipeline's file is chosen if it has changed since the state
    /// was written, or if there is no state. Otherwise the state is chosen. Does not change the state file, because the
    /// configuration may still be refused.
    pub(crate) fn choose(arguments: &args::Run, events: &Events) -> anyhow::Result<Self> {
        let Some(path) = &arguments.state else { return Self::from_file(arguments, None) };
        // Remove temporary files of this state file. No other run uses the state file, because this run has locked it.
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
            // A change of the pipeline's file is ignored in this run. Keep the earlier fingerprint, so that the next
            // start without the option detects the change.
            return keep("prefer", "as --prefer says", known);
        }
        let pipeline = &arguments.pipeline;
        if !is_built_in(pipeline) && pipeline != "-" && !Path::new(pipeline).exists() {
            return keep("no_file", "the file does not exist", known);
        }
        let read = read(arguments)?;
        let now = fingerprint(&read);
        match &known {
            None => keep("no_hash", "an older version wrote the state, without the file's fingerprint", now),
            Some(_) if known == now => keep("unchanged", "the file has not changed since", now),
            Some(_) => {
                let (why, text) = match (kept.origin(), origin(pipeline)) {
                    (Some(of), Some(here)) if of != here => {
                        ("other_file", format!("because the state is from another pipeline, {}", shown_file(of)))
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

    /// Chooses the pipeline's file. `replaced` is the state that the file replaces.
    fn from_file(arguments: &args::Run, replaced: Option<Replaced>) -> anyhow::Result<Self> {
        let source = read(arguments)?;
        Ok(Self { fingerprint: fingerprint(&source), source, replaced, kept: None })
    }

    /// Returns the problems of the configuration as an error. If a state was used or would be replaced, the error names
    /// the option for the other choice.
    pub(crate) fn refusal(&self, mut problems: Problems) -> anyhow::Error {
        if let Some(Kept { state, file }) = &self.kept {
            // The text in the state may differ from the present text of the pipeline's file.
            let (state, of) = (state.display(), shown_file(self.source.file()));
            for fault in &mut problems.faults {
                let is_text =
                    fault.place.strip_prefix(&of).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'));
                if is_text {
                    fault.place = format!("{state} ({} as it was accepted)", fault.place);
                }
            }
            let hint = file
                .as_ref()
                .map(|file| format!("\n  to start from {file}, use --prefer file: {state} is kept as {state}.old"));
            return anyhow::anyhow!("{problems}{}", hint.unwrap_or_default());
        }
        let Some(Replaced { path, .. }) = &self.replaced else { return problems.into() };
        let path = path.display();
        anyhow::anyhow!("{problems}\n  {path} is unchanged: to start from its configuration, use --prefer state")
    }
}

/// Returns the path of the file in which a replaced state is kept. [`Accepted::keep_old`] writes this file, and appends
/// the same `.old`. Messages and `docs/live.md` name the file, too.
fn old(path: &Path) -> PathBuf {
    let mut old = path.as_os_str().to_owned();
    old.push(".old");
    old.into()
}

fn read(arguments: &args::Run) -> anyhow::Result<Source> {
    let sets: Vec<_> = arguments.settings.all().map(|(_, setting)| setting).collect();
    Ok(source(&arguments.pipeline, &sets).map_err(|problems| arguments.settings.as_written(problems))?)
}

/// Returns the event which reports that the run starts from the state.
fn used(arguments: &args::Run, path: &Path, why: &str, text: &str) -> NewEvent {
    let ignored: Vec<_> = arguments.settings.all().map(|(flag, _)| flag).collect();
    let ignored = ignored.join(", ");
    let (state, file) = (path.display().to_string(), shown_file(&arguments.pipeline));
    let rest = match ignored.as_str() {
        "" => String::new(),
        flags => format!("; ignored, because the accepted configuration has its own settings: {flags}"),
    };
    let message = format!(
        "starting from the last accepted configuration in {state}: {text} (--prefer file starts from \
         {file}){rest}"
    );
    let event = NewEvent::new(EventName::StateUsed, message).with("state", state).with("file", file).with("why", why);
    event.with_some("ignored", Some(ignored).filter(|flags| !flags.is_empty()))
}

/// Returns the event which reports that the pipeline's file replaces the state. `only_kept` are the settings of the
/// state that are no longer in force.
fn replaced_by(arguments: &args::Run, path: &Path, why: &str, text: &str, only_kept: &[String]) -> NewEvent {
    let (state, file) = (path.display().to_string(), shown_file(&arguments.pipeline));
    let only_kept = only_kept.join(", ");
    let rest = match only_kept.as_str() {
        "" => String::new(),
        sets => format!("; no longer in force: {sets}"),
    };
    let message = format!(
        "started from {file}, {text}; the last accepted configuration was moved from {state} to \
         {state}.old{rest}"
    );
    let event = NewEvent::new(EventName::StateReplaced, message).with("state", state).with("file", file);
    event.with("why", why).with_some("dropped", Some(only_kept).filter(|sets| !sets.is_empty()))
}
