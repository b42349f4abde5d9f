//! Gains by branches and bursts, and traffic of other kinds.

use forebay_plot::{Axis, Block, Figure, Layer, PlotError, Section, Table, engineering};

use crate::batching::Open;
use crate::batching::contour::Gain;
use crate::batching::figures::Told;
use crate::blocks::{columns, figure, known, text};

/// What is gained by branches, batchiness and bursts.
pub(super) fn contour(gains: &[Gain]) -> Result<Section, PlotError> {
    let mut blocks = vec![text(
        "A router of n branches whose modules all take 200 ns for a packet alone, of which the batchiness says how much full batches \
         save, or with bursts of packets that take the same branch, at a batchiness of 0.25. Objectives are 80 % of the mean delay of max. \
         Simulated. The paper gains 1.5 to 4 times from 4 to 8 branches on while batchiness is below 0.5, hardly anything beyond bursts of \
         10, and is never worse than null. Without branches max waits for nothing, so that its objective is missed whatever is done. Branches run as they are written: folded \
         they were one, and their number would not matter.",
    )];
    let whole: Vec<_> = gains.iter().filter(|gain| gain.burst == 1).collect();
    let usual = |gain: &&Gain| gains.iter().any(|other| other.burst > 1 && other.batchiness == gain.batchiness);
    let bursts: Vec<_> = gains.iter().filter(usual).collect();
    for (title, label, by, all) in [
        ("Gain by branches and batchiness", "batchiness", (|gain| gain.batchiness) as fn(&Gain) -> f64, whole),
        ("Gain by branches and bursts", "packets of a burst", |gain| gain.burst as f64, bursts),
    ] {
        blocks.push(figure(
            &lines(title, label, by, &all),
            "Packets a second under optimal, in parts of those under null, whether objectives were kept or not: see the table.",
        )?);
        blocks.push(Block::Table(plane(title, label, by, &all)));
    }
    Ok(Section { title: "What branches, costs and bursts make of it".to_owned(), blocks })
}

fn distinct(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

fn lines(title: &str, label: &str, by: fn(&Gain) -> f64, gains: &[&Gain]) -> Figure {
    // Each number of branches has its place on the axis, and no other number a mark.
    let branches = distinct(gains.iter().map(|gain| gain.branches as f64));
    let x = Axis::new("branches").named(branches.iter().map(f64::to_string));
    let empty = Figure::new(title, x, Axis::new("times the packets of null").from_zero());
    let place = |gain: &Gain| branches.iter().position(|n| *n == gain.branches as f64);
    let line = |value: f64| Layer::Line {
        name: format!("{label} {value}"),
        points: gains
            .iter()
            .filter(|gain| by(gain) == value)
            .filter_map(|gain| Some((place(gain)? as f64, gain.optimal)))
            .collect(),
    };
    distinct(gains.iter().map(|gain| by(gain))).into_iter().map(line).fold(empty, Figure::with)
}

/// The mark of a run in which an objective was missed.
const MISSED: &str = "*";

fn missed(share: f64) -> &'static str {
    if share > 0.0 { MISSED } else { "" }
}

fn plane(title: &str, label: &str, by: fn(&Gain) -> f64, gains: &[&Gain]) -> Table {
    let branches = distinct(gains.iter().map(|gain| gain.branches as f64));
    let rows = distinct(gains.iter().map(|gain| by(gain))).into_iter().map(|value| {
        let cell = |branches: &f64| {
            let here = gains.iter().find(|gain| by(gain) == value && gain.branches as f64 == *branches);
            here.map_or_else(String::new, |gain| {
                let (optimal, gradient) = (missed(gain.violated), missed(gain.gradient_violated));
                format!("{:.2}{optimal} ({:.2}{gradient})", gain.optimal, gain.gradient)
            })
        };
        std::iter::once(value.to_string()).chain(branches.iter().map(cell)).collect()
    });
    let head = |n: &f64| if *n == 1.0 { "1 branch".to_owned() } else { format!("{n} branches") };
    let heads: Vec<_> = std::iter::once(label.to_owned()).chain(branches.iter().map(head)).collect();
    let heads: Vec<_> = heads.iter().map(String::as_str).collect();
    let caption = format!("{title}: optimal (gradient); {MISSED}: an objective was missed in some period");
    Table { caption, columns: columns(&heads), rows: rows.collect() }
}

const FIGURES: &[&str] = &[
    "packets a second",
    "packets a call",
    "ticks a packet",
    "objective, µs",
    "mean, µs",
    "95 %",
    "99 %",
    "violated",
    "stalled",
];

fn figures(told: &Told) -> Vec<String> {
    vec![
        engineering(told.rate_pps),
        format!("{:.1}", told.batch_mean),
        format!("{:.1}", told.ticks_per_packet),
        known(told.slo_us, 1),
        known(told.delay_us.mean, 1),
        known(told.delay_us.p95, 1),
        known(told.delay_us.p99, 1),
        format!("{:.1} %", told.violations_pct),
        if told.void { format!("{:.1} %, void", told.void_pct) } else { format!("{:.1} %", told.void_pct) },
    ]
}

fn controlled(controller: &str, fold: bool) -> String {
    if fold { format!("{controller}, folded") } else { controller.to_owned() }
}

/// Traffic that keeps to a schedule.
pub(super) fn open(all: &[Open]) -> Section {
    let what = "Packets have instants at which they arrive, whether or not the worker is there, and delays count from these. Loads are parts of \
         what the worker does under max of a source that always has packets; above 100 % packets wait in the source's queue, whose length \
         bounds their delay, and those that find it full are lost. Every flow's objective is 1 ms. One run each; the first ten \
         decisions do not count.";
    let table = runs(all);
    Section { title: "Traffic that keeps to a schedule".to_owned(), blocks: vec![text(what), Block::Table(table)] }
}

/// Recorded traffic.
pub(super) fn captures(all: Option<&[Open]>) -> Section {
    let title = "Recorded traffic".to_owned();
    let Some(all) = all else {
        return Section { title, blocks: vec![text("n/a: no captures were given (--captures DIR).")] };
    };
    let what = "Packets come in the order of sessions, with the lengths and, in proportion, at the distances of each capture, again and again; \
                addresses are the use case's own. The load, objectives and what counts are those of the section before.";
    Section { title, blocks: vec![text(what), Block::Table(runs(all))] }
}

fn runs(all: &[Open]) -> Table {
    let rows = all.iter().map(|open| {
        let controlled = controlled(open.controller, open.fold);
        let mut row = vec![format!("{}, {}, {:.0} %, {controlled}", open.usecase, open.arrivals, open.share * 100.0)];
        row.extend([format!("{:.0} %", open.busy * 100.0), format!("{:.2} %", open.lost * 100.0)]);
        row.extend(figures(&open.told));
        row
    });
    let heads: Vec<_> = ["traffic", "busy", "lost"].into_iter().chain(FIGURES.iter().copied()).collect();
    Table { caption: String::new(), columns: columns(&heads), rows: rows.collect() }
}
