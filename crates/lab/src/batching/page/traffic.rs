//! Gains by branches and bursts, and traffic of other kinds.

use forebay_plot::{Axis, Block, Figure, Layer, PlotError, Section, Table, engineering};

use crate::batching::contour::{CLAIM, Claims, Gain, NO_WORSE};
use crate::batching::figures::Told;
use crate::batching::{Light, Open, Router};
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
    blocks.push(text(&claims(&Claims::of(gains))));
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

/// What is claimed of all places, told.
fn claims(told: &Claims) -> String {
    let gained = told.bursty_gained.iter().map(|(branches, burst)| format!("{branches} with {burst}"));
    let gained: Vec<_> = gained.collect();
    let which =
        if gained.is_empty() { String::new() } else { format!(" (branches with bursts of: {})", gained.join(", ")) };
    format!(
        "Never worse: in {} of {} places the 95 % interval of optimal against null lies above {NO_WORSE}; the least end is {}. Pairs are \
         periods of the two runs, which are simulated: intervals tell how steady the controllers are, and nothing of a machine's noise. The \
         paper's {CLAIM} times and more, even for bursty traffic: in {} of all places, and in {} of {} with \
         bursts{which}.",
        told.no_worse,
        told.places,
        known(told.least, 3),
        told.gained,
        told.bursty_gained.len(),
        told.bursty
    )
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
                let low = known(gain.to_null.and_then(|ratio| Some(ratio.interval?.0)), 2);
                let high = known(gain.to_null.and_then(|ratio| Some(ratio.interval?.1)), 2);
                format!("{:.2}{optimal} [{low}–{high}] ({:.2}{gradient})", gain.optimal, gain.gradient)
            })
        };
        std::iter::once(value.to_string()).chain(branches.iter().map(cell)).collect()
    });
    let head = |n: &f64| if *n == 1.0 { "1 branch".to_owned() } else { format!("{n} branches") };
    let heads: Vec<_> = std::iter::once(label.to_owned()).chain(branches.iter().map(head)).collect();
    let heads: Vec<_> = heads.iter().map(String::as_str).collect();
    let caption =
        format!("{title}: optimal [95 % interval] (gradient); {MISSED}: an objective was missed in some period");
    Table { caption, columns: columns(&heads), rows: rows.collect() }
}

const FIGURES: &[&str] = &[
    "violated",
    "objective, µs",
    "95 %, µs",
    "99 %, µs",
    "mean, µs",
    "packets a second",
    "packets a call",
    "ticks a packet",
    "stalled",
];

fn figures(told: &Told) -> Vec<String> {
    vec![
        format!("{:.1} %", told.violations_pct),
        known(told.slo_us, 1),
        known(told.delay_us.p95, 1),
        known(told.delay_us.p99, 1),
        known(told.delay_us.mean, 1),
        engineering(told.rate_pps),
        format!("{:.1}", told.batch_mean),
        format!("{:.1}", told.ticks_per_packet),
        if told.void { format!("{:.1} %, void", told.void_pct) } else { format!("{:.1} %", told.void_pct) },
    ]
}

/// How runs of traffic are made and told.
const RULE: &str = "Every flow's objective is 1 ms, for 99 % of its packets. One run each; the first ten decisions do not count. optimal runs \
    with a guard of 0.05 and with the paper's careful one, 0.2, and for more periods than the others where a load can be carried (in simulated time: under Poisson and recorded traffic, branches as \
    they are written): many are needed to tell that few are violated. The worst is the worst \
    flow's percentile in the worst period, in parts of its objective; where that is above 1 it is told up to 1/16 too high.";

/// Traffic that keeps to a schedule.
pub(super) fn open(all: &[Open]) -> Section {
    let what = "Packets have instants at which they arrive, whether or not the worker is there, and delays count from these. Loads are parts of \
         what the worker does under max of a source that always has packets; above 100 % packets wait in the source's queue, whose length \
         bounds their delay, and those that find it full are lost.";
    let blocks = vec![text(what), text(RULE), Block::Table(runs(all))];
    Section { title: "Traffic that keeps to a schedule".to_owned(), blocks }
}

/// Recorded traffic.
pub(super) fn captures(all: Option<&[Open]>) -> Section {
    let title = "Recorded traffic".to_owned();
    let Some(all) = all else {
        return Section { title, blocks: vec![text("n/a: no captures were given (--captures DIR).")] };
    };
    let what = "Packets come in the order of sessions, with the lengths and, in proportion, at the distances of each capture, again and again; \
                addresses are the use case's own. The load is 60 % of what the worker does under max of a source that always has such packets.";
    Section { title, blocks: vec![text(what), text(RULE), Block::Table(runs(all))] }
}

/// A run's traffic and controller.
pub(super) fn of_run(open: &Open) -> String {
    let guard = if open.controller == "optimal" { format!(" (guard {})", open.guard) } else { String::new() };
    let controller = format!("{}{guard}{}", open.controller, super::folded(open.fold));
    format!("{}, {}, {:.0} %, {controller}", open.usecase, open.arrivals, open.share * 100.0)
}

fn runs(all: &[Open]) -> Table {
    let rows = all.iter().map(|open| {
        let mut row = vec![of_run(open), known(open.worst, 3)];
        row.extend(figures(&open.told));
        row.extend([format!("{:.0} %", open.busy * 100.0), format!("{:.2} %", open.lost * 100.0)]);
        row.push(open.told.periods.to_string());
        row
    });
    let heads = ["traffic", "worst"].into_iter().chain(FIGURES.iter().copied()).chain(["busy", "lost", "periods"]);
    Table { caption: String::new(), columns: columns(&heads.collect::<Vec<_>>()), rows: rows.collect() }
}

/// Light load, and traffic that stops.
pub(super) fn light(all: &[Light]) -> Section {
    let what = "Few packets come, or many that stop again and again; in the last quarter of each run none come. Every flow's objective is 1 ms, \
         for 99 % of its packets; branches run as they are written, as folded there is nothing to wait for. Packets are those of the whole \
         run, as is the largest delay. max waits for full batches whatever comes. Rates and violations are of all settled periods, those in which nothing comes among \
         them. One run each.";
    let row = |light: &Light| {
        let stops = if light.stops { ", stops" } else { "" };
        let traffic = format!("{} pps, {}{stops}", engineering(light.offered_pps), light.arrivals);
        let mut row = vec![format!("{}, {traffic}, {}", light.usecase, light.controller)];
        row.extend([light.packets, light.late, light.waiting].map(|count| count.to_string()));
        row.extend([known(light.max_us, 1), known(light.max_of_slo, 2)]);
        row.extend(figures(&light.told));
        row
    };
    let first = ["traffic", "packets", "late", "left waiting", "largest delay, µs", "times the objective"];
    let heads: Vec<_> = first.into_iter().chain(FIGURES.iter().copied()).collect();
    let table = Table { caption: String::new(), columns: columns(&heads), rows: all.iter().map(row).collect() };
    Section { title: "Light load, and traffic that stops".to_owned(), blocks: vec![text(what), Block::Table(table)] }
}

/// What many next hops cost.
pub(super) fn router(all: &[Router]) -> Section {
    let what = "Routers under optimal with an objective of 1 ms for 99 % of a flow's packets, and as many packets as are taken: workers' time a \
         packet against that of a router with one next hop, branches as they are written and folded.";
    let row = |router: &Router| {
        let mut row = vec![format!("{}{}", router.usecase, super::folded(router.fold))];
        row.push(super::settled::told(router.to_one.as_ref()));
        row.extend(figures(&router.told));
        row
    };
    let heads: Vec<_> = ["router", "times one next hop's ticks"].into_iter().chain(FIGURES.iter().copied()).collect();
    let table = Table { caption: String::new(), columns: columns(&heads), rows: all.iter().map(row).collect() };
    Section { title: "What many next hops cost".to_owned(), blocks: vec![text(what), Block::Table(table)] }
}
