//! `forebay history`: saved measurements over time, and where they took a step.

use std::io::Write;

use anyhow::Context;
use forebay_graph::files::replace;
use forebay_lean::history::{self, Choice, Figure, History, MeasurementRef, Series, Step};
use forebay_lean::saved::{Store, in_one_line};

use crate::format::{Align, counted, known, sparkline};
use crate::{args, format, printed};

/// Columns that a sparkline takes at most.
const SPARKS: usize = 24;

/// Tells the history of a store.
pub(crate) fn history(arguments: &args::History) -> anyhow::Result<()> {
    let saved = Store::new(&arguments.store).all()?;
    let choice = Choice {
        pipeline: arguments.pipeline.clone(),
        module: arguments.module.clone(),
        figure: arguments.figure.map(Figure::from),
    };
    let told = History::of(&saved, &choice)?;
    if let Some(file) = &arguments.html {
        let page = forebay_lab::history::page(&told)?;
        replace(file, page.as_bytes()).with_context(|| file.display().to_string())?;
    }
    if arguments.json {
        return Ok(writeln!(printed::out(), "{}", serde_json::to_string(&told)?)?);
    }
    // What was not asked for by name is shown where it has something to tell.
    let all = choice.module.is_some() || choice.figure.is_some();
    let shown = |series: &&Series| all || series.module == history::CHAIN || !series.steps.is_empty();
    let series: Vec<_> = told.series.iter().filter(shown).collect();
    let mut out = printed::out();
    write!(out, "{}", table(&series))?;
    for series in &series {
        for step in &series.steps {
            writeln!(out, "{}", sentence(series, step))?;
        }
    }
    let left = told.series.len() - series.len();
    let steps: usize = told.series.iter().map(|series| series.steps.len()).sum();
    writeln!(out, "{}, {}", counted(told.measurements as u64, "measurement"), counted(steps as u64, "step"))?;
    if left > 0 {
        writeln!(out, "not shown: {} of modules without a step (--module NAME shows one)", figures(left))?;
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

/// A change in percent; a small one with more figures, so that it is not shown as none.
fn percent(change: Option<f64>) -> String {
    match change.map(|change| change * 100.0) {
        None => "n/a".to_owned(),
        Some(0.0) => "0 %".to_owned(),
        Some(change) if change.abs() < 0.95 => format!("{change:+.2} %"),
        Some(change) if change.abs() < 9.95 => format!("{change:+.1} %"),
        Some(change) => format!("{change:+.0} %"),
    }
}

fn sentence(series: &Series, step: &Step) -> String {
    let decimals = decimals(series.figure);
    let place = |place: &MeasurementRef| match &place.commit {
        Some(commit) => format!("{} ({})", place.name, commit.chars().take(12).collect::<String>()),
        None => place.name.clone(),
    };
    // Names and commits are what stands in the store.
    in_one_line(&format!(
        "{} {}: between {} and {}: {:.decimals$} → {:.decimals$} {} ({}){}",
        series.name,
        series.module,
        place(&step.before),
        place(&step.after),
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
    fn changes_are_told_in_percent() {
        let told = [None, Some(0.0), Some(0.0012), Some(-0.0345), Some(0.5)].map(percent);
        assert_eq!(told, ["n/a", "0 %", "+0.12 %", "-3.5 %", "+50 %"]);
    }
}
