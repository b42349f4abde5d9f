//! The static experiment: a table and a figure for each use case.

use forebay_plot::{Axis, Bars, Block, Figure, Group, Layer, PlotError, Section, Table, engineering};

use crate::batching::interval::Ratio;
use crate::batching::settled::Row;
use crate::blocks::{bars, columns, figure, known, text};

/// A section for each use case.
pub(super) fn sections(rows: &[Row]) -> Result<Vec<Section>, PlotError> {
    let mut names: Vec<&str> = Vec::new();
    for row in rows {
        if !names.contains(&row.usecase.as_str()) {
            names.push(&row.usecase);
        }
    }
    names
        .iter()
        .map(|name| section(name, &rows.iter().filter(|row| row.usecase == *name).collect::<Vec<_>>()))
        .collect()
}

fn section(name: &str, rows: &[&Row]) -> Result<Section, PlotError> {
    let of = |fold: bool| rows.iter().copied().filter(|row| row.fold == fold).collect::<Vec<_>>();
    let mut blocks = vec![bars(&drawn(name, &of(false), &of(true)), "")?];
    for (caption, rows) in [("Branches as they are written", of(false)), ("Equal branches run as one", of(true))] {
        blocks.push(Block::Table(table(caption, &rows)));
    }
    let controlled =
        |row: &&&Row| matches!(row.controller.as_str(), "on-off" | "gradient" | "optimal") && !row.worst.is_empty();
    let layers: Vec<_> = of(false).iter().filter(controlled).map(|row| distribution(row)).collect();
    if !layers.is_empty() {
        let (x, y) = (Axis::new("the worst flow's percentile, parts of its objective"), Axis::new("share of periods"));
        let title = format!("How near objectives are: {name}");
        let empty = Figure::new(&title, x, y.between(0.0, 1.0));
        let all =
            layers.into_iter().fold(empty, Figure::with).with(Layer::Event { name: "objective".to_owned(), x: 1.0 });
        blocks
            .push(figure(&all, "Right of the line objectives were missed. Percentiles are told up to 1/16 too high.")?);
    }
    if rows.iter().any(|row| row.controller == "oracle") {
        blocks.push(text("In simulated time optimal knows the true costs: oracle is the same run."));
    }
    Ok(Section { title: format!("Steady traffic: {name}"), blocks })
}

fn drawn(name: &str, apart: &[&Row], folded: &[&Row]) -> Bars {
    let rates = |rows: &[&Row]| rows.iter().map(|row| Some(row.told.rate_pps / 1e6)).collect();
    Bars {
        title: format!("Packets a second: {name}"),
        label: "million packets a second".to_owned(),
        places: apart.iter().map(|row| row.controller.clone()).collect(),
        groups: vec![
            Group { name: "as written".to_owned(), values: rates(apart) },
            Group { name: "folded".to_owned(), values: rates(folded) },
        ],
        stacked: false,
    }
}

fn distribution(row: &Row) -> Layer {
    let last = row.worst.len().saturating_sub(1).max(1) as f64;
    let points = row.worst.iter().enumerate().map(|(place, worst)| (*worst, place as f64 / last)).collect();
    Layer::Line { name: row.controller.clone(), points }
}

/// A ratio with its interval.
pub(super) fn told(ratio: Option<&Ratio>) -> String {
    let Some(ratio) = ratio else { return "n/a".to_owned() };
    let ends = ratio.interval.map(|(low, high)| format!(" ({low:.2}–{high:.2})"));
    format!("{:.2}{}", ratio.median, ends.unwrap_or_default())
}

fn table(caption: &str, rows: &[&Row]) -> Table {
    let cells = |row: &&Row| {
        let name = match row.trigger {
            Some(trigger) => format!("{} {trigger}", row.controller),
            None => row.controller.clone(),
        };
        vec![
            if row.told.void { format!("{name}, void") } else { name },
            engineering(row.told.rate_pps),
            told(row.to_null.as_ref()),
            told(row.to_optimal.as_ref()),
            format!("{:.1}", row.told.batch_mean),
            known(row.batch_of_max.map(|part| part * 100.0), 0),
            format!("{:.1}", row.told.ticks_per_packet),
            known(row.told.slo_us, 1),
            format!("{:.1}", row.told.delay_us.mean),
            format!("{:.1}", row.told.delay_us.p95),
            format!("{:.1}", row.told.delay_us.p99),
            format!("{:.1} %", row.told.violations_pct),
            row.told.periods.to_string(),
            format!("{:.1} %", row.told.void_pct),
        ]
    };
    Table {
        caption: caption.to_owned(),
        columns: columns(&[
            "controller",
            "packets a second",
            "of null",
            "of optimal",
            "packets a call",
            "% of max",
            "ticks a packet",
            "objective, µs",
            "mean, µs",
            "95 %",
            "99 %",
            "violated",
            "periods",
            "stalled",
        ]),
        rows: rows.iter().map(cells).collect(),
    }
}
