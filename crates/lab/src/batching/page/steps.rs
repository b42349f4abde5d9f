//! Objectives and loads that change: time series.

use forebay_plot::{Axis, Block, Figure, Layer, PlotError, Section, Table, engineering};

use crate::batching::steps::Series;
use crate::batching::watch::Moment;
use crate::blocks::{columns, figure, text};

/// The section of an experiment: `what` says what is run and what changes.
pub(super) fn section(title: &str, what: &str, all: &[Series]) -> Result<Section, PlotError> {
    let mut blocks = vec![text(what)];
    blocks.push(text(
        "Every whole period counts, those of the beginning, too: only the short ones with which a controller begins do not, at the start and, \
         on this machine's clock, after each change of objectives, which is a reload there; they are waited for in the last column all the same. One run each. Figures of delays and \
         triggers are of branches as they are written: where equal ones run as one there is little to wait for.",
    ));
    let drawn = |series: &&Series| !series.fold && matches!(series.controller.as_str(), "gradient" | "optimal");
    for series in all.iter().filter(drawn) {
        let name = format!("{title}: {}", series.controller);
        blocks.push(figure(&delays(&name, series), "The first flow's 95th percentile, told up to 1/16 too high.")?);
        blocks.push(figure(&triggers(&name, series), "")?);
    }
    for (on, how) in [(false, "packets a second"), (true, "packets a second, folded")] {
        let series: Vec<_> = all.iter().filter(|series| series.fold == on).collect();
        if !series.is_empty() {
            blocks.push(figure(&rates(&format!("{title}, {how}"), &series), "")?);
        }
    }
    blocks.push(Block::Table(table(all)));
    Ok(Section { title: title.to_owned(), blocks })
}

/// Delays over time, with the objective and what was missed.
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
    let y = Axis::new("million packets a second").from_zero();
    let empty = Figure::new(title, Axis::new("time, s").from_zero(), y);
    all.iter().map(line).fold(empty, Figure::with)
}

/// A series's controller, whether branches ran as one, and whether it says nothing.
fn controller(series: &Series) -> String {
    let folded = super::folded(series.fold);
    let void = if series.soundness.is_void() { ", void" } else { "" };
    format!("{}{folded}{void}", series.controller)
}

fn table(all: &[Series]) -> Table {
    let rows = all.iter().flat_map(|series| {
        series.steps.iter().map(|stage| {
            vec![
                controller(series),
                engineering(stage.value),
                stage.periods.to_string(),
                stage.violated.to_string(),
                stage.until_kept.to_string(),
            ]
        })
    });
    let quantity = all.first().map_or("value", |series| series.quantity);
    Table {
        caption: "After each change".to_owned(),
        columns: columns(&["controller", quantity, "periods", "violated", "until the last violated"]),
        rows: rows.collect(),
    }
}
