//! The section of the report on the busy share by rate.

use forebay_plot::{Axis, Block, Figure, Layer, PlotError, Section, Table, engineering};

use super::{columns, figure, known, text};
use crate::lean::{Load, Point};

/// If more than this share of the packets is lost at a rate below the capacity, the report has a note.
const LOST: f64 = 0.01;

/// Returns the text, the plots and the table of the section.
pub(super) fn section(load: &Load) -> Result<Section, PlotError> {
    let points = |void: bool| -> Vec<_> {
        load.points.iter().filter(|point| point.void == void).map(|point| (point.entered_pps, point.cur)).collect()
    };
    let mut full = Figure::new(
        "Busy share by rate",
        Axis::new("packets per second that entered").from_zero(),
        Axis::new("effective CPU utilisation").between(0.0, 1.0),
    )
    .with(Layer::Line { name: "measured".to_owned(), points: points(false) });
    if load.points.iter().any(|point| point.void) {
        full =
            full.with(Layer::Points { name: "void: the machine was busy elsewhere".to_owned(), points: points(true) });
    }
    if load.capacity_pps > 0.0 {
        let to = (load.capacity_pps, 1.0);
        full = full.with(Layer::Reference { name: "in proportion to the rate".to_owned(), from: (0.0, 0.0), to });
    }
    let cost = |figure: fn(&Point) -> Option<f64>| -> Vec<(f64, f64)> {
        let sound = load.points.iter().filter(|point| !point.void);
        sound.filter_map(|point| Some((point.share * 100.0, figure(point)?))).collect()
    };
    let mut blocks = vec![
        text(&format!(
            "{}, on one core, with its source at rates from {} % to {} % of the capacity of {} packets per second. The \
             straight line is a worker that needs as much time per packet at every rate as it needs when it is \
             saturated.",
            load.case.arguments(),
            engineering(load.points.first().map_or(0.0, |point| point.share * 100.0)),
            engineering(load.points.last().map_or(0.0, |point| point.share * 100.0)),
            engineering(load.capacity_pps)
        )),
        figure(
            &full,
            "How to read it: as long as the rate determines the size of batches, each packet costs the same. The line \
             is straight, but steeper than the dashed line. When the worker is hardly ever idle, packets wait while it \
             works, batches grow and a packet becomes cheaper. The line then bends, up to the capacity.",
        )?,
    ];
    let short = load.points.iter().filter(|point| !point.void && point.share <= 0.95 && point.lost > LOST);
    let short: Vec<_> = short.map(|point| format!("{} %", engineering(point.share * 100.0))).collect();
    if !short.is_empty() {
        blocks.push(Block::Note(format!(
            "Packets were lost at {} of the capacity: the worker got less computing time than when the capacity was \
             measured.",
            short.join(", ")
        )));
    }
    for (title, label, caption, figures) in [
        (
            "Ticks per packet by rate",
            "ticks per packet",
            "The ticks of busy turns per packet that entered.",
            cost(|point| point.cpp_ticks),
        ),
        (
            "Packets per call by rate",
            "packets per call of the first module",
            "When batches are full, a packet cannot become cheaper.",
            cost(|point| point.batch_mean),
        ),
    ] {
        if !figures.is_empty() {
            let axes = (Axis::new("rate, percent of the capacity").log(), Axis::new(label).from_zero());
            let drawn =
                Figure::new(title, axes.0, axes.1).with(Layer::Line { name: label.to_owned(), points: figures });
            blocks.push(figure(&drawn, caption)?);
        }
    }
    let rows = load.points.iter().map(|point| {
        vec![
            format!("{} %", engineering(point.share * 100.0)),
            engineering(point.offered_pps),
            engineering(point.entered_pps),
            format!("{:.2} %", point.lost * 100.0),
            format!("{:.1} %", point.cur * 100.0),
            known(point.cpp_ticks, 1),
            known(point.batch_mean, 1),
            format!("{:.1} %{}", point.away * 100.0, if point.void { ", void" } else { "" }),
        ]
    });
    blocks.push(Block::Table(Table {
        caption: "By rate".to_owned(),
        columns: columns(&[
            "rate",
            "offered per second",
            "entered",
            "lost",
            "busy",
            "ticks",
            "packets per call",
            "elsewhere",
        ]),
        rows: rows.collect(),
    }));
    Ok(Section { title: "Busy share from idle to saturation".to_owned(), blocks })
}
