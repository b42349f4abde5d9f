//! `forebay replay`: makes decisions on recorded inputs, and compares them with the recorded decisions.

use std::fs::File;
use std::io::{self, BufReader, Write};

use anyhow::{Context, anyhow, bail};
use forebay_control::{
    Settings,
    recording::{Begin, Period, Recorded, read},
    replay::{Replayed, ReplayedDecision, Summary, Total, replay as decide},
};
use forebay_graph::{ControllerDeclaration, controllers, files::skip_mark};
use forebay_pipeline::{Source, nearest, parameters};
use forebay_protocol::Layout;
use forebay_units::Nanos;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::format::Align::{Left, Right};
use crate::format::{counted, known, table};
use crate::{args, printed};

/// The replay of one configuration: the periods until the configuration changed.
#[derive(Serialize)]
struct Part<'a> {
    pipeline: &'a str,
    /// The control period, in seconds.
    period_s: f64,
    /// The recorded controller.
    recorded: ControllerChoice<'a>,
    /// The controller that makes the decisions again.
    replayed: ControllerChoice<'a>,
    /// The names of the modules, for the indices in `periods`.
    modules: Vec<&'a str>,
    /// The names of the flows, for the indices in `periods`.
    flows: Vec<&'a str>,
    summary: Summary,
    periods: Vec<Replayed>,
    #[serde(skip)]
    layout: &'a Layout,
}

/// A controller, its parameters, and its guard: the fraction of each delay objective that it keeps in reserve.
#[derive(Serialize)]
struct ControllerChoice<'a> {
    controller: &'a str,
    params: &'a Value,
    guard: f64,
}

/// Replays a recording.
pub(crate) fn replay(arguments: &args::Replay) -> anyhow::Result<()> {
    let file = arguments.file.display();
    let opened = File::open(&arguments.file).with_context(|| file.to_string())?;
    let mut opened = BufReader::new(opened);
    let Recorded { parts: recorded, cut } = skip_mark(&mut opened)
        .map_err(anyhow::Error::from)
        .and_then(|()| Ok(read(opened)?))
        .with_context(|| file.to_string())?;
    if cut {
        writeln!(printed::err(), "{file}: the last line is incomplete and is ignored")?;
    }
    let settings: Vec<_> =
        recorded.iter().map(|(begin, _)| settings(arguments, begin)).collect::<anyhow::Result<_>>()?;
    let parts = recorded.iter().zip(&settings).map(|(recorded, settings)| Part::of(recorded, settings));
    let parts = parts.collect::<anyhow::Result<Vec<_>>>()?;
    let mut out = printed::out();
    if arguments.json {
        return Ok(writeln!(out, "{}", serde_json::json!({ "parts": parts }))?);
    }
    for (number, part) in parts.iter().enumerate() {
        if number > 0 {
            writeln!(out, "\nthe configuration changed\n")?;
        }
        part.print(arguments.periods, &mut out)?;
    }
    Ok(())
}

/// Returns the settings of the controller that makes the decisions again, for the recording that begins with `begin`.
fn settings(arguments: &args::Replay, begin: &Begin) -> anyhow::Result<Settings> {
    let file = arguments.file.display().to_string();
    let (name, origin) = match &arguments.controller {
        Some(name) => (name, "--controller"),
        None => (&begin.controller, file.as_str()),
    };
    let controller = find(name).map_err(|error| anyhow!("{origin}: {error}"))?;
    if let Some(needed) = controller.scheduler.filter(|needed| *needed != begin.layout.scheduler) {
        let word = |scheduler| serde_json::to_value(scheduler).ok().and_then(|it| it.as_str().map(str::to_owned));
        let (needed, recorded) = (word(needed).unwrap_or_default(), word(begin.layout.scheduler).unwrap_or_default());
        bail!(
            "{origin}: {name} needs `scheduler: {needed}`, but the recording has {recorded}: name another controller \
             (--controller)"
        );
    }
    let recorded = if arguments.controller.is_none() { begin.params.clone() } else { Value::Null };
    let text = if recorded.is_null() { "{}".to_owned() } else { recorded.to_string() };
    let source = arguments.set.iter().fold(Source::new(text, file.as_str(), ""), Source::set);
    let params = parameters(&source, controller.schema).map_err(|problems| {
        let messages = problems.faults.iter().map(|fault| match fault.line {
            // The fault is in a setting.
            None => fault.to_string(),
            Some(_) => format!("{origin}: {name}: {}", fault.text()),
        });
        let messages = messages.collect::<Vec<_>>().join("\n");
        anyhow!("{messages} (`forebay describe {name}` lists its parameters; --set KEY=VALUE)")
    })?;
    let params = if params.as_object().is_some_and(Map::is_empty) { recorded } else { params };
    let period = Nanos((begin.period_s * 1e9) as u64);
    Ok(Settings { controller, params, period, guard: arguments.guard.unwrap_or(begin.guard), workers: 1 })
}

/// Returns the controller with this name. Otherwise returns a message with a suggestion.
fn find(name: &str) -> Result<&'static ControllerDeclaration, String> {
    let all = controllers();
    let names = || all.iter().map(|it| it.name);
    all.iter().find(|it| it.name == name).copied().ok_or_else(|| {
        let near = nearest(name, names());
        format!("there is no controller '{name}'{near}: allowed are {}", names().collect::<Vec<_>>().join(", "))
    })
}

impl<'a> Part<'a> {
    /// Makes the decisions for the recorded periods again, with the controller in `settings`.
    fn of((begin, periods): &'a (Begin, Vec<Period>), settings: &'a Settings) -> anyhow::Result<Self> {
        let name = settings.controller.name;
        let periods = decide(begin, periods, settings).map_err(|error| {
            anyhow!("{name}: {error} (`forebay describe {name}` lists its parameters; --set KEY=VALUE)")
        })?;
        let layout = &begin.layout;
        Ok(Self {
            pipeline: &layout.pipeline,
            period_s: begin.period_s,
            recorded: ControllerChoice { controller: &begin.controller, params: &begin.params, guard: begin.guard },
            replayed: ControllerChoice { controller: name, params: &settings.params, guard: settings.guard },
            modules: layout.modules.iter().map(|module| module.name.as_str()).collect(),
            flows: layout.flows.iter().map(|flow| flow.name.as_str()).collect(),
            summary: Summary::of(&periods),
            periods,
            layout,
        })
    }

    /// Prints the comparison, and the last `most` periods.
    fn print(&self, most: usize, out: &mut impl Write) -> io::Result<()> {
        let Summary { periods, different, measured, recorded, replayed, .. } = self.summary;
        let differ = match different {
            0 => "same decisions".to_owned(),
            some => format!("different decisions in {some}"),
        };
        writeln!(out, "{}: {}, {differ}\n", self.pipeline, counted(periods as u64, "period"))?;
        let columns = [
            ("", Left),
            ("controller", Left),
            ("guard", Right),
            ("load", Right),
            ("missed", Right),
            ("changes", Right),
        ];
        let row = |what: &str, choice: &ControllerChoice<'_>, load: String, missed: usize, changes: String| {
            let guard = format!("{:.0} %", choice.guard * 100.0);
            let figures = [guard, load, missed.to_string(), changes];
            [what.to_owned(), choice.controller.to_owned()].into_iter().chain(figures).collect()
        };
        let total_row = |what: &str, choice: &ControllerChoice<'_>, Total { load, missed, changes }: Total| {
            row(what, choice, load.map_or_else(|| percent(None), |load| self.load(load)), missed, changes.to_string())
        };
        let busy = row("measured", &self.recorded, percent(measured.busy), measured.missed, String::new());
        let rows =
            [busy, total_row("recorded", &self.recorded, recorded), total_row("replayed", &self.replayed, replayed)];
        write!(out, "{}", table(&columns, &rows))?;
        let shown = &self.periods[self.periods.len() - most.min(self.periods.len())..];
        self.explain(shown, out)?;
        if shown.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nthe last {}:", counted(shown.len() as u64, "period"))?;
        let columns = [
            ("time", Right),
            ("load", Right),
            ("replayed", Right),
            ("busy", Right),
            ("missed", Left),
            ("slowest of its objective", Left),
            ("replayed", Left),
            ("triggers", Left),
            ("replayed", Left),
        ];
        let row = |period: &Replayed| {
            let Replayed { at_s, measured, recorded, replayed, .. } = period;
            vec![
                format!("{at_s:.3} s"),
                self.load(recorded.load),
                self.load(replayed.load),
                percent(Some(measured.busy)),
                if measured.missed { "yes" } else { "-" }.to_owned(),
                self.worst(recorded),
                self.worst(replayed),
                self.changes(recorded),
                self.changes(replayed),
            ]
        };
        write!(out, "{}", table(&columns, &shown.iter().map(row).collect::<Vec<_>>()))
    }

    /// Explains figures that a reader could misunderstand.
    fn explain(&self, shown: &[Replayed], out: &mut impl Write) -> io::Result<()> {
        let Summary { periods, first, .. } = self.summary;
        writeln!(
            out,
            "measured: the busy share of workers and the missed periods of the recorded run; recorded, replayed: the \
             model's prediction for the decisions"
        )?;
        if (1..periods).contains(&first) {
            writeln!(out, "loads are means without the first {}", counted(first as u64, "period"))?;
        }
        let is_over = |decided: &ReplayedDecision| decided.load > self.layout.workers as f64;
        let over = |period: &Replayed| is_over(&period.recorded) || is_over(&period.replayed);
        if self.periods.iter().filter(|period| period.settled).chain(shown).any(over) {
            writeln!(
                out,
                "{}: more than the available time. Packets would wait (`missed` does not include this), and batches \
                 would grow until their calls take less time",
                self.most()
            )?;
        }
        Ok(())
    }

    /// Formats a load (1 is the whole time of one worker). A load above the available time is not predicted exactly, so
    /// only the limit is shown for it.
    fn load(&self, load: f64) -> String {
        if load > self.layout.workers as f64 { self.most() } else { percent(Some(load)) }
    }

    /// Formats the limit of loads.
    fn most(&self) -> String {
        format!("> {} %", self.layout.workers * 100)
    }

    /// Formats the flow that uses the largest part of its objective.
    fn worst(&self, decided: &ReplayedDecision) -> String {
        let name = |flow: usize| self.layout.flows[flow].name.as_str();
        decided.worst.map_or("-".to_owned(), |worst| format!("{} {}", percent(Some(worst.part)), name(worst.flow)))
    }

    /// Formats the first change of a decision, and the number of its other changes.
    fn changes(&self, decided: &ReplayedDecision) -> String {
        let Some(first) = decided.changes.first() else { return "-".to_owned() };
        let more = decided.changes.len() - 1;
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{} {} -> {}{more}", self.layout.modules[first.module].name, first.from, first.to)
    }
}

/// Formats a part, from 0 to 1 or more, in percent; `n/a` if it is unknown.
fn percent(part: Option<f64>) -> String {
    match part {
        None => known(None, 0),
        Some(part) => format!("{:.1} %", part * 100.0),
    }
}
