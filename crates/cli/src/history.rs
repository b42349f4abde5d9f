//! `forebay history`: saved measurements over time, with their steps.

use std::io::Write;

use anyhow::Context;
use forebay_bench::history::{self, Choice, Figure, History, MeasurementRef, Series, Step};
use forebay_bench::saved::{MeasurementStore, in_one_line};
use forebay_graph::files::replace;

use crate::format::{Align, counted, known, sparkline};
use crate::{args, format, printed};

/// Maximum width of a sparkline, in columns.
const SPARKS: usize = 24;

/// Prints the history of a store.
pub(crate) fn history(arguments: &args::History) -> anyhow::Result<()> {
    let saved = MeasurementStore::new(&arguments.store).all()?;
    let choice = Choice {
        pipeline: arguments.pipeline.clone(),
        module: arguments.module.clone(),
        figure: arguments.figure.map(Figure::from),
    };
    let saved_history = History::of(&saved, &choice)?;
    if let Some(file) = &arguments.html {
        let page = forebay_lab::history::page(&saved_history)?;
        replace(file, page.as_bytes()).with_context(|| file.display().to_string())?;
    }
    if arguments.json {
        return Ok(writeln!(printed::out(), "{}", serde_json::to_string(&saved_history)?)?);
    }
    // Without a choice of module or figure, show only the chain and modules with steps.
    let all = choice.module.is_some() || choice.figure.is_some();
    let shown = |series: &&Series| all || series.module == history::CHAIN || !series.steps.is_empty();
    let series: Vec<_> = saved_history.series.iter().filter(shown).collect();
    let mut out = printed::out();
    write!(out, "{}", table(&series))?;
    for series in &series {
        for step in &series.steps {
            writeln!(out, "{}", sentence(series, step))?;
        }
    }
    let hidden = saved_history.series.len() - series.len();
    let steps: usize = saved_history.series.iter().map(|series| series.steps.len()).sum();
    writeln!(out, "{}, {}", counted(saved_history.measurements as u64, "measurement"), counted(steps as u64, "step"))?;
    if hidden > 0 {
        writeln!(
            out,
            "not shown: {} of modules without a step (--module NAME shows the figures of a module)",
            figures(hidden)
        )?;
    }
    Ok(())
}

fn figures(number: usize) -> String {
    counted(number as u64, "figure")
}

fn table(series: &[&Series]) -> String {
    let columns = [
        ("pipeline", Align::Left),
        ("module", Align::Left),
        ("figure", Align::Left),
        ("from", Align::Left),
        ("times", Align::Right),
        ("first", Align::Right),
        ("last", Align::Right),
        ("change", Align::Right),
        ("trend", Align::Left),
    ];
    let row = |series: &&Series| {
        let values: Vec<f64> = series.points.iter().map(|point| point.value).collect();
        let decimals = decimals(series.figure);
        vec![
            in_one_line(&series.name),
            in_one_line(&series.module),
            series.figure.name().to_owned(),
            series.source.name().to_owned(),
            values.len().to_string(),
            known(values.first().copied(), decimals),
            known(values.last().copied(), decimals),
            percent(series.change),
            sparkline(&values, SPARKS),
        ]
    };
    format::table(&columns, &series.iter().map(row).collect::<Vec<_>>())
}

fn decimals(figure: Figure) -> usize {
    if figure == Figure::Cur { 3 } else { 1 }
}

/// Formats a change in percent. Small changes get more decimals, so that they do not round to zero.
fn percent(change: Option<f64>) -> String {
    match change.map(|change| change * 100.0) {
        None => "n/a".to_owned(),
        Some(0.0) => "0 %".to_owned(),
        Some(change) if change.abs() < 0.95 => format!("{change:+.2} %"),
        Some(change) if change.abs() < 9.95 => format!("{change:+.1} %"),
        Some(change) => format!("{change:+.0} %"),
    }
}

/// Formats a step of a series as a sentence.
fn sentence(series: &Series, step: &Step) -> String {
    let decimals = decimals(series.figure);
    let point = |point: &MeasurementRef| match &point.commit {
        Some(commit) => format!("{} ({})", point.name, commit.chars().take(12).collect::<String>()),
        None => point.name.clone(),
    };
    // Names and commits come from the store and may contain control characters.
    in_one_line(&format!(
        "{} {}: between {} and {}: {:.decimals$} → {:.decimals$} {} ({}){}",
        series.name,
        series.module,
        point(&step.before),
        point(&step.after),
        step.from,
        step.to,
        series.figure.unit(),
        percent(step.change),
        if step.other_cpu { "; on another CPU" } else { "" }
    ))
}

impl From<args::Figure> for Figure {
    fn from(figure: args::Figure) -> Self {
        match figure {
            args::Figure::Ipp => Self::Ipp,
            args::Figure::CppTicks => Self::CppTicks,
            args::Figure::PacketsPerCall => Self::PacketsPerCall,
            args::Figure::Cur => Self::Cur,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_shown_in_percent() {
        let shown = [None, Some(0.0), Some(0.0012), Some(-0.0345), Some(0.5)].map(percent);
        assert_eq!(shown, ["n/a", "0 %", "+0.12 %", "-3.5 %", "+50 %"]);
    }
}
