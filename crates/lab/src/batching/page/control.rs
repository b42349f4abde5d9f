//! What deciding takes, and whose turn it is.

use forebay_plot::{Block, Section, Table, engineering};

use crate::batching::{DataPath, Fairness, Ratio, Took};
use crate::blocks::{columns, known, text};

/// What deciding takes.
pub(super) fn overhead(all: &[Took]) -> Section {
    let row = |took: &Took| {
        let name = format!("{}, {}", took.usecase, took.controller);
        vec![
            name,
            took.flows.to_string(),
            took.modules.to_string(),
            format!("{:.1}", took.median),
            format!("{:.1}", took.max),
        ]
    };
    let table = Table {
        caption: "Of a decision, µs".to_owned(),
        columns: columns(&["pipeline", "flows", "modules", "median", "most"]),
        rows: all.iter().map(row).collect(),
    };
    let what = "From the first counter read to the last action written, on this machine's clock whatever time pipelines run in. The paper's \
                controller takes 2 to 90 ms. Where something else had the core meanwhile, that is in the longest. Branches run as they are \
                written: it is by the number of modules that this is told, and folded there are few of them.";
    Section { title: "What deciding takes".to_owned(), blocks: vec![text(what), Block::Table(table)] }
}

/// What being watched takes.
pub(super) fn data_path(all: &[DataPath]) -> Section {
    let row = |told: &DataPath| {
        let ticks = known(told.ticks_per_packet, 1);
        // A percent is what this is about.
        let times = |ratio: &Ratio| {
            let ends = ratio.interval.map(|(low, high)| format!(" ({low:.3}–{high:.3})"));
            format!("{:.3}{}", ratio.median, ends.unwrap_or_default())
        };
        let times = told.to_none.as_ref().map_or_else(|| "n/a".to_owned(), times);
        vec![format!("{}, every {} ms", told.usecase, told.period_ms), ticks, times]
    };
    let table = Table {
        caption: "Workers' time a packet".to_owned(),
        columns: columns(&["pipeline, period", "ticks without a controller", "times that with one"]),
        rows: all.iter().map(row).collect(),
    };
    let what = "As many packets as a worker can take, without a controller, and with one that reads all counters every period and changes \
                nothing. Runs in turn: the median of the pairs and its 95 % interval; pairs with a void run are left out. Branches run as they are \
                written, so that there is as much to read as can be.";
    Section { title: "What being watched takes".to_owned(), blocks: vec![text(what), Block::Table(table)] }
}

/// Run to completion against weighted-fair.
pub(super) fn fairness(all: &[Fairness]) -> Section {
    let row = |told: &Fairness| {
        let void = if told.soundness.is_void() { ", void" } else { "" };
        let mut row = vec![format!("{}, {}{void}", told.case, told.scheduler)];
        row.extend(told.offered_pps.iter().map(|rate| engineering(*rate)));
        row.push(told.min_rate_pps.map_or_else(|| "-".to_owned(), engineering));
        row.extend(told.rate_pps.iter().map(|rate| engineering(*rate)));
        let kept = [0, 1].map(|at| told.rate_pps[at] / told.offered_pps[at]);
        row.extend(kept.map(|kept| format!("{:.0} %", kept * 100.0)));
        row.extend(told.delay_us.map(|delay| known(delay, 0)));
        row
    };
    let table = Table {
        caption: String::new(),
        columns: columns(&[
            "case, scheduler",
            "offered to the first",
            "to the second",
            "stated for the first",
            "left by the first",
            "by the second",
            "of the first's",
            "of the second's",
            "first's mean delay, µs",
            "second's",
        ]),
        rows: all.iter().map(row).collect(),
    };
    let what = "Two functions behind a split, offered half as much again as there is time for. Fair is where both keep the same part of what \
                is offered to them: time in proportion to rate and to cost. Run to completion does so by itself (the paper's Fig. 11); equal \
                weights do not; NFVnice's weights, arrival rate times cost, are made to. The controller fair gives both the same rate, and with a \
                rate stated for the first four fifths of what is offered to it. Weighted-fair drops what has no room before its function. \
                Nothing is folded: the two functions differ, and weighted-fair gives each module its own share of time. There are no \
                objectives, and rates and delays are of the run once its controller has settled.";
    Section { title: "Fairness".to_owned(), blocks: vec![text(what), Block::Table(table)] }
}
