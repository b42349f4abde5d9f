//! The sections on changing objectives and loads: time series.

use forebay_plot::{Axis, Block, Figure, Layer, PlotError, Section, Table, engineering};

use crate::batching::steps::{Series, Stage};
use crate::batching::watch::Moment;
use crate::blocks::{columns, figure, text};

/// Returns the section of an experiment. `description` describes the runs and the change.
pub(super) fn section(title: &str, description: &str, all: &[Series]) -> Result<Section, PlotError> {
    let mut blocks = vec![text(description)];
    blocks.push(text(
        "Every whole period counts, including those at the start. The short periods with which a controller starts do \
         not count. They occur at the start of a run and, on this machine's clock, after each change of objectives, \
         which is a reload. The numbers in brackets in the table include them. There is one run each. The figures of \
         delays and triggers show unfolded branches, because packets hardly wait in folded branches: folding keeps \
         batches whole.",
    ));
    let drawn = |series: &&Series| !series.fold && matches!(series.controller.as_str(), "gradient" | "optimal");
    for series in all.iter().filter(drawn) {
        let name = format!("{title}: {}", series.controller);
        blocks.push(figure(&delays(&name, series), "The first flow's 95th percentile, reported up to 1/16 too high.")?);
        blocks.push(figure(&triggers(&name, series), "")?);
    }
    for (on, how) in [(false, "packets per second"), (true, "packets per second, folded")] {
        let series: Vec<_> = all.iter().filter(|series| series.fold == on).collect();
        if !series.is_empty() {
            blocks.push(figure(&rates(&format!("{title}, {how}"), &series), "")?);
        }
    }
    blocks.push(Block::Table(table(all)));
    Ok(Section { title: title.to_owned(), blocks })
}

/// Draws delays over time, with the objective and the missed periods.
fn delays(name: &str, series: &Series) -> Figure {
    let points = |moments: &mut dyn Iterator<Item = &Moment>| -> Vec<(f64, f64)> {
        moments.filter_map(|moment| Some((moment.at_s, moment.delay_us?))).collect()
    };
    let objective = series.moments.iter().filter_map(|moment| Some((moment.at_s, moment.slo_us?))).collect();
    let missed = points(&mut series.moments.iter().filter(|moment| moment.missed()));
    let y = Axis::new("delay, µs").log();
    let drawn = Figure::new(&format!("{name}, delay"), Axis::new("time, s").from_zero(), y)
        .with(Layer::Steps { name: "objective".to_owned(), points: objective })
        .with(Layer::Line { name: "delay".to_owned(), points: points(&mut series.moments.iter()) });
    if missed.is_empty() {
        return drawn;
    }
    drawn.with(Layer::Points { name: "a period in which some flow missed its objective".to_owned(), points: missed })
}

fn triggers(name: &str, series: &Series) -> Figure {
    let points = series.moments.iter().filter_map(|moment| Some((moment.at_s, moment.trigger? as f64))).collect();
    let y = Axis::new("trigger of the first branch's first module").from_zero();
    Figure::new(&format!("{name}, trigger"), Axis::new("time, s").from_zero(), y)
        .with(Layer::Steps { name: "trigger".to_owned(), points })
}

fn rates(title: &str, all: &[&Series]) -> Figure {
    let line = |series: &&Series| Layer::Steps {
        name: series.controller.clone(),
        points: series.moments.iter().map(|moment| (moment.at_s, moment.rate_pps / 1e6)).collect(),
    };
    let y = Axis::new("million packets per second").from_zero();
    let empty = Figure::new(title, Axis::new("time, s").from_zero(), y);
    all.iter().map(line).fold(empty, Figure::with)
}

/// Returns the name of the controller, whether branches were folded, and whether the run is void.
fn controller(series: &Series) -> String {
    let folded = super::folded(series.fold);
    let void = if series.soundness.is_void() { ", void" } else { "" };
    format!("{}{folded}{void}", series.controller)
}

/// Returns a table with a row for each run and a column for each value. A cell contains the periods missed after the
/// change to the value.
fn table(all: &[Series]) -> Table {
    let cell = |stage: &Stage| {
        let last = if stage.until_kept > 0 { format!(" ({})", stage.until_kept) } else { String::new() };
        format!("{} of {}{last}", stage.violated, stage.periods)
    };
    let row = |series: &Series| {
        let (violated, periods) =
            series.steps.iter().fold((0, 0), |sum, stage| (sum.0 + stage.violated, sum.1 + stage.periods));
        let all = format!("{violated} of {periods}");
        [controller(series), all].into_iter().chain(series.steps.iter().map(cell)).collect()
    };
    let rates = |series: &Series| {
        let rates = series.steps.iter().enumerate().map(|(at, stage)| {
            let end = series.steps.get(at + 1).map_or(f64::INFINITY, |next| next.at_s);
            let within = |moment: &&Moment| moment.counts() && moment.at_s > stage.at_s && moment.at_s <= end;
            let rates: Vec<f64> = series.moments.iter().filter(within).map(|moment| moment.rate_pps).collect();
            if rates.is_empty() {
                "n/a".to_owned()
            } else {
                engineering(rates.iter().sum::<f64>() / rates.len() as f64)
            }
        });
        let rates: Vec<String> = rates.collect();
        [vec![String::new(), "packets per second".to_owned()], rates].concat()
    };
    let (quantity, values) = all.first().map_or(("value", Vec::new()), |series| {
        (series.quantity, series.steps.iter().map(|stage| stage.value.to_string()).collect())
    });
    let heads = [vec!["controller".to_owned(), "all".to_owned()], values].concat();
    Table {
        caption: format!(
            "Columns: {quantity}. A cell has the number of periods that missed an objective, and the number of periods \
             that count. In brackets: the number of periods up to the last miss. The row below has the packets per \
             second"
        ),
        columns: columns(&heads.iter().map(String::as_str).collect::<Vec<_>>()),
        rows: all.iter().flat_map(|series| [row(series), rates(series)]).collect(),
    }
}
