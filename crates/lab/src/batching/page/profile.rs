//! The section on the cost of calls by the size of batches: Batchy's Fig. 1 and 3.

use forebay_plot::{Axis, Block, Figure, Layer, PlotError, Section, Table};

use crate::batching::Calls;
use crate::blocks::{columns, figure, known, text};

/// The values of Batchy's Fig. 3 that its text states: nanoseconds per call and per packet.
const PAPER: &[(&str, f64, f64)] =
    &[("ip_lookup", 68.5, 27.5), ("acl", 122.0, 30.0), ("static_nat", 43.5, 21.0), ("exact_match", 118.0, 19.0)];

/// The size of a full batch for which rates are stated, in packets. It is the paper's.
const FULL: f64 = 32.0;

pub(super) fn section(all: &[Calls]) -> Result<Section, PlotError> {
    let drawn = |title: &str, y: &str, value: fn(&crate::batching::CallSize) -> f64| {
        let empty = Figure::new(title, Axis::new("packets per call").log(), Axis::new(y).from_zero());
        all.iter().fold(empty, |figure, calls| {
            let points = calls.sizes.iter().map(|size| (size.packets, value(size))).collect();
            figure.with(Layer::Line { name: calls.function.clone(), points })
        })
    };
    let row = |calls: &Calls| {
        let paper = PAPER.iter().find(|(name, ..)| *name == calls.function);
        let mut cells = vec![calls.function.clone(), format!("{:.1}", calls.t0_ns), format!("{:.1}", calls.t1_ns)];
        cells.extend([known(calls.r2, 3), format!("{:.2}", calls.batchiness)]);
        cells.extend([known(paper.map(|paper| paper.1), 1), known(paper.map(|paper| paper.2), 1)]);
        for packets in [1.0, FULL] {
            let rate = |t0: f64, t1: f64| packets * 1e3 / (t0 + t1 * packets);
            cells.push(format!("{:.1}", rate(calls.t0_ns, calls.t1_ns)));
            cells.push(known(paper.map(|(_, t0, t1)| rate(*t0, *t1)), 1));
        }
        cells
    };
    let table = Table {
        caption: "A call on b packets takes T0 + T1 b".to_owned(),
        columns: columns(&[
            "function",
            "T0, ns",
            "T1, ns",
            "R²",
            "batchiness",
            "paper's T0",
            "paper's T1",
            "Mpps, single",
            "paper's",
            "Mpps, batches of 32",
            "paper's",
        ]),
        rows: all.iter().map(row).collect(),
    };
    let description = "Functions are measured separately, with the parameters of their examples and as many packets as \
                       they accept (the paper's Fig. 1 and 3). The cost includes the engine's cost of a call. \
                       Batchiness is the cost of a packet in full batches divided by its cost alone: the smaller it \
                       is, the more batches save. In simulated time the costs are the simulated costs of calls.";
    let rate = drawn("Packets per second by packets per call", "million packets per second", |size| size.rate_mpps);
    let time = drawn("Time of a call by packets per call", "nanoseconds", |size| size.call_ns);
    let blocks = vec![
        text(description),
        figure(&rate, "The paper's Fig. 1.")?,
        figure(&time, "The paper's Fig. 3.")?,
        Block::Table(table),
    ];
    Ok(Section { title: "Cost of calls".to_owned(), blocks })
}
