//! The sections on the time of decisions, the cost of observation, and fairness.

use forebay_plot::{Block, Section, Table, engineering};

use crate::batching::{DataPath, DecisionTime, Fairness, Ratio};
use crate::blocks::{columns, known, text};

/// Returns the section on the time of decisions.
pub(super) fn overhead(all: &[DecisionTime]) -> Section {
    let row = |took: &DecisionTime| {
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
        caption: "Time of a decision, µs".to_owned(),
        columns: columns(&["pipeline", "flows", "modules", "median", "maximum"]),
        rows: all.iter().map(row).collect(),
    };
    let description = "The time from the first counter read to the last action written, on this machine's clock even \
                       if pipelines run in simulated time. The paper's controller takes 2 to 90 ms. The maximum \
                       includes time in which another program had the core. Branches are not folded, because the time \
                       depends on the number of modules and a folded pipeline has few.";
    Section { title: "Time of decisions".to_owned(), blocks: vec![text(description), Block::Table(table)] }
}

/// Returns the section on the cost of observation.
pub(super) fn data_path(all: &[DataPath]) -> Section {
    let row = |path: &DataPath| {
        let ticks = known(path.ticks_per_packet, 1);
        // Three decimals, because the effect is about a percent.
        let times = |ratio: &Ratio| {
            let ends = ratio.interval.map(|(low, high)| format!(" ({low:.3}–{high:.3})"));
            format!("{:.3}{}", ratio.median, ends.unwrap_or_default())
        };
        let times = path.to_none.as_ref().map_or_else(|| "n/a".to_owned(), times);
        vec![format!("{}, every {} ms", path.usecase, path.period_ms), ticks, times]
    };
    let table = Table {
        caption: "Workers' time per packet".to_owned(),
        columns: columns(&["pipeline, period", "ticks without a controller", "with one, as a multiple"]),
        rows: all.iter().map(row).collect(),
    };
    let description = "Each worker receives as many packets as it accepts. It runs without a controller, and with one \
                       that reads all counters every period and changes nothing. The runs alternate. The table shows \
                       the median of the pairs and its 95 % interval; pairs with a void run are left out. Branches are \
                       not folded, so that the number of counters is as large as possible.";
    Section { title: "Cost of observation".to_owned(), blocks: vec![text(description), Block::Table(table)] }
}

/// Returns the section that compares run to completion with weighted-fair.
pub(super) fn fairness(all: &[Fairness]) -> Section {
    let row = |fairness: &Fairness| {
        let void = if fairness.soundness.is_void() { ", void" } else { "" };
        let mut row = vec![format!("{}, {}{void}", fairness.case, fairness.scheduler)];
        row.extend(fairness.offered_pps.iter().map(|rate| engineering(*rate)));
        row.push(fairness.min_rate_pps.map_or_else(|| "-".to_owned(), engineering));
        row.extend(fairness.rate_pps.iter().map(|rate| engineering(*rate)));
        let kept = [0, 1].map(|at| fairness.rate_pps[at] / fairness.offered_pps[at]);
        row.extend(kept.map(|kept| format!("{:.0} %", kept * 100.0)));
        row.extend(fairness.delay_us.map(|delay| known(delay, 0)));
        row
    };
    let table = Table {
        caption: String::new(),
        columns: columns(&[
            "case, scheduler",
            "offered to the first",
            "to the second",
            "guaranteed for the first",
            "left by the first",
            "by the second",
            "kept by the first",
            "kept by the second",
            "first's mean delay, µs",
            "second's",
        ]),
        rows: all.iter().map(row).collect(),
    };
    let description = "Two functions behind a split are offered one and a half times the packets that they have time \
                       for. A schedule is fair if both keep the same share of the packets that they are offered. For \
                       this, a function needs time in proportion to its rate and its cost. Run to completion is fair \
                       by itself (the paper's Fig. 11). Equal weights are not fair. NFVnice's weights, arrival rate \
                       times cost, are designed to be fair. The controller fair gives both functions the same rate; \
                       with a guarantee, it gives the first function four fifths of its offered rate. Weighted-fair \
                       drops packets for which there is no room before their function. Nothing is folded: the two \
                       functions differ, and weighted-fair gives each module its own share of time. There are no \
                       objectives. Rates and delays are those after the controller has settled.";
    Section { title: "Fairness".to_owned(), blocks: vec![text(description), Block::Table(table)] }
}
