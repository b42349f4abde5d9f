//! The history of measurements as a page: a plot of each series, with its steps.

use forebay_bench::history::{Figure as Followed, History, MeasurementRef, Series, Step};
use forebay_plot::{Align, Axis, Block, Figure, Layer, Page, PlotError, Section, Table, engineering};

/// Returns the HTML text of the page. Series with steps come first.
///
/// # Errors
/// Returns [`PlotError`] if a figure cannot be drawn.
pub fn page(history: &History) -> Result<String, PlotError> {
    let (changed, same): (Vec<&Series>, Vec<&Series>) =
        history.series.iter().partition(|series| !series.steps.is_empty());
    let mut sections = vec![overview(history)];
    for series in changed.into_iter().chain(same) {
        sections.push(of_series(series)?);
    }
    Ok(Page { title: "History of measurements".to_owned(), head: vec![lead(history)], sections }.html())
}

fn lead(history: &History) -> Block {
    let steps: usize = history.series.iter().map(|series| series.steps.len()).sum();
    Block::Text(format!(
        "{} saved measurements, {} figures over time, {steps} steps. Steps are found by minimum description length: \
         the steps are those that shorten the description of a series. Counted (emulated) figures are the same in \
         every run, so every change of them is a step.",
        history.measurements,
        history.series.len()
    ))
}

fn name(series: &Series) -> String {
    format!("{} {}: {}", series.name, series.module, series.figure.unit())
}

fn value(series: &Series, value: f64) -> String {
    if series.figure == Followed::Cur { format!("{value:.3}") } else { format!("{value:.1}") }
}

fn percent(change: Option<f64>) -> String {
    change.map_or_else(|| "n/a".to_owned(), |change| format!("{:+.2} %", change * 100.0))
}

fn overview(history: &History) -> Section {
    let row = |series: &Series| {
        let ends = [series.points.first(), series.points.last()];
        let mut row = vec![series.name.clone(), series.module.clone(), series.figure.name().to_owned()];
        row.push(series.source.name().to_owned());
        row.push(series.points.len().to_string());
        row.extend(ends.map(|point| point.map_or_else(String::new, |point| value(series, point.value))));
        row.push(percent(series.change));
        row.push(series.steps.len().to_string());
        row
    };
    let (left, right) = (Align::Left, Align::Right);
    let heads = [
        ("pipeline", left),
        ("module", left),
        ("figure", left),
        ("from", left),
        ("times", right),
        ("first", right),
        ("last", right),
        ("change", right),
        ("steps", right),
    ];
    let columns = heads.map(|(head, align)| (head.to_owned(), align)).to_vec();
    let table = Table { caption: String::new(), columns, rows: history.series.iter().map(row).collect() };
    Section { title: "All figures".to_owned(), blocks: vec![Block::Table(table)] }
}

/// Returns the section of a series: its plot, and a sentence for each step.
fn of_series(series: &Series) -> Result<Section, PlotError> {
    let title = name(series);
    let names = series.points.iter().map(|point| point.name.clone());
    let points = series.points.iter().enumerate().map(|(at, point)| (at as f64, point.value)).collect();
    let mut figure =
        Figure::new(&title, Axis::new("measurement, by time").named(names), Axis::new(series.figure.unit()));
    figure = if series.steps.is_empty() {
        figure.with(Layer::Line { name: "measurements".to_owned(), points })
    } else {
        // The points are drawn over the line, so that a point on the line stays visible.
        let level = Layer::Steps { name: "level".to_owned(), points: levels(series) };
        figure.with(level).with(Layer::Points { name: "measurements".to_owned(), points })
    };
    for step in &series.steps {
        // The step is drawn between the two measurements that it separates.
        let change = step.change.map_or_else(|| engineering(step.to), |change| format!("{:+.1} %", change * 100.0));
        figure = figure.with(Layer::Event { name: change, x: step.at as f64 - 0.5 });
    }
    let caption = if series.steps.is_empty() { "No step." } else { "" };
    let mut blocks = vec![Block::Figure { title: title.clone(), svg: figure.svg()?, caption: caption.to_owned() }];
    blocks.extend(series.steps.iter().map(|step| Block::Text(sentence(series, step))));
    Ok(Section { title, blocks })
}

/// Returns the levels of a series with steps. Each level starts at its step; the last one extends to the end of the
/// series.
fn levels(series: &Series) -> Vec<(f64, f64)> {
    let first = series.steps.first().map(|step| (0.0, step.from));
    let mut levels: Vec<_> = first.into_iter().collect();
    levels.extend(series.steps.iter().map(|step| (step.at as f64 - 0.5, step.to)));
    let end = series.points.len() as f64 - 1.0;
    levels.extend(levels.last().map(|(_, level)| (end, *level)));
    levels
}

fn sentence(series: &Series, step: &Step) -> String {
    let label = |place: &MeasurementRef| match &place.commit {
        Some(commit) => format!("{} ({})", place.name, commit.chars().take(12).collect::<String>()),
        None => place.name.clone(),
    };
    format!(
        "Between {} and {}: {} → {} {} ({}){}.",
        label(&step.before),
        label(&step.after),
        value(series, step.from),
        value(series, step.to),
        series.figure.unit(),
        percent(step.change),
        if step.other_cpu { ", on another CPU" } else { "" }
    )
}
