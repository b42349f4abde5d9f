//! What calls cost by the size of batches: Batchy's Fig. 1 and 3.

use forebay_plot::{Axis, Block, Figure, Layer, PlotError, Section, Table};

use crate::batching::Calls;
use crate::blocks::{columns, figure, known, text};

/// What Batchy's Fig. 3 has: nanoseconds a call and a packet, as far as the text tells them.
const PAPER: &[(&str, f64, f64)] =
    &[("ip_lookup", 68.5, 27.5), ("acl", 122.0, 30.0), ("static_nat", 43.5, 21.0), ("exact_match", 118.0, 19.0)];

/// The full batch for which rates are stated, in packets: the paper's.
const FULL: f64 = 32.0;

pub(super) fn section(all: &[Calls]) -> Result<Section, PlotError> {
    let drawn = |title: &str, y: &str, value: fn(&crate::batching::CallSize) -> f64| {
        let empty = Figure::new(title, Axis::new("packets a call").log(), Axis::new(y).from_zero());
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
            "Mpps, alone",
            "paper's",
            "Mpps, by 32",
            "paper's",
        ]),
        rows: all.iter().map(row).collect(),
    };
    let what = "Functions by themselves, with the parameters of their examples and as many packets as they take (the \
                paper's Fig. 1 and 3). The engine's cost of a call is part of it. Batchiness is the cost of a packet in \
                full batches divided by its cost alone: the smaller, the more batches save. In simulated time these are \
                the costs that calls are given.";
    let rate = drawn("Packets a second by packets a call", "million packets a second", |size| size.rate_mpps);
    let time = drawn("What a call takes by packets a call", "nanoseconds", |size| size.call_ns);
    let blocks = vec![
        text(what),
        figure(&rate, "The paper's Fig. 1.")?,
        figure(&time, "The paper's Fig. 3.")?,
        Block::Table(table),
    ];
    Ok(Section { title: "What calls cost".to_owned(), blocks })
}
