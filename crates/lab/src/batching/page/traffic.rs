//! The sections on gains by branches and bursts, and on other traffic.

use forebay_plot::{Axis, Block, Figure, Layer, PlotError, Section, Table, engineering};

use crate::batching::contour::{CLAIM, Claims, ContourGain, NO_WORSE};
use crate::batching::figures::Summary;
use crate::batching::{Light, Open, Router};
use crate::blocks::{columns, figure, known, text};

/// Returns the section on gains by branches, batchiness and bursts.
pub(super) fn contour(gains: &[ContourGain]) -> Result<Section, PlotError> {
    let mut blocks = vec![text(
        "A router of n branches. All modules take 200 ns for a single packet; the batchiness is the cost of a packet \
         in a full batch relative to that. A second plane varies the length of bursts of packets that take the same \
         branch, at a batchiness of 0.25. Objectives are 80 % of the mean delay of max. Time is simulated. In the \
         paper, the gain is 1.5 to 4 if there are at least 4 to 8 branches and batchiness is below 0.5. The gain is \
         close to 1 for bursts above 10, and never below 1. Without branches max waits for nothing, so its objective \
         is missed in any case. Branches are not folded: folded branches would be one branch, and their number would \
         have no effect.",
    )];
    blocks.push(text(&claims_text(&Claims::of(gains))));
    let whole: Vec<_> = gains.iter().filter(|gain| gain.burst == 1).collect();
    let usual = |gain: &&ContourGain| gains.iter().any(|other| other.burst > 1 && other.batchiness == gain.batchiness);
    let bursts: Vec<_> = gains.iter().filter(usual).collect();
    for (title, label, by, all) in [
        ("Gain by branches and batchiness", "batchiness", (|gain| gain.batchiness) as fn(&ContourGain) -> f64, whole),
        ("Gain by branches and bursts", "packets of a burst", |gain| gain.burst as f64, bursts),
    ] {
        blocks.push(figure(
            &lines(title, label, by, &all),
            "Packets per second under optimal, as a multiple of those under null, regardless of whether objectives \
             were kept. The table shows both.",
        )?);
        blocks.push(Block::Table(plane(title, label, by, &all)));
    }
    Ok(Section { title: "Gain by branches, costs and bursts".to_owned(), blocks })
}

/// Returns the text on the claims about all points.
fn claims_text(claims: &Claims) -> String {
    let gained = claims.bursty_gained.iter().map(|(branches, burst)| format!("{branches} with {burst}"));
    let gained: Vec<_> = gained.collect();
    let which =
        if gained.is_empty() { String::new() } else { format!(" (branches with bursts of: {})", gained.join(", ")) };
    format!(
        "Never worse: at {} of {} points the 95 % interval of optimal against null lies above {NO_WORSE}; the smallest \
         lower end is {}. Pairs are periods of the two simulated runs, so intervals show how steady the controllers \
         are and contain no noise of a machine. The paper claims a gain of at least {CLAIM}, even for bursty traffic: \
         this is reached at {} of all points, and at {} of {} points with bursts{which}.",
        claims.no_worse,
        claims.places,
        known(claims.least, 3),
        claims.gained,
        claims.bursty_gained.len(),
        claims.bursty
    )
}

/// Returns the values in ascending order, each once.
fn distinct(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    values
}

/// Draws the gain of `optimal` by branches, with a line for each value of `by`.
fn lines(title: &str, label: &str, by: fn(&ContourGain) -> f64, gains: &[&ContourGain]) -> Figure {
    // Each number of branches has a position of its own on the axis. The axis has no marks for other numbers.
    let branches = distinct(gains.iter().map(|gain| gain.branches as f64));
    let x = Axis::new("branches").named(branches.iter().map(f64::to_string));
    let empty = Figure::new(title, x, Axis::new("times the packets of null").from_zero());
    let position = |gain: &ContourGain| branches.iter().position(|n| *n == gain.branches as f64);
    let line = |value: f64| Layer::Line {
        name: format!("{label} {value}"),
        points: gains
            .iter()
            .filter(|gain| by(gain) == value)
            .filter_map(|gain| Some((position(gain)? as f64, gain.optimal)))
            .collect(),
    };
    distinct(gains.iter().map(|gain| by(gain))).into_iter().map(line).fold(empty, Figure::with)
}

/// The mark of a run in which an objective was missed.
const MISSED: &str = "*";

/// Returns the mark if `share`, the share of periods in which an objective was missed, is above 0.
fn missed(share: f64) -> &'static str {
    if share > 0.0 { MISSED } else { "" }
}

/// Returns the table of a plane, with a row for each value of `by` and a column for each number of branches.
fn plane(title: &str, label: &str, by: fn(&ContourGain) -> f64, gains: &[&ContourGain]) -> Table {
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

/// The heads of the cells of [`figures`].
const FIGURES: &[&str] = &[
    "violated",
    "objective, µs",
    "95 %, µs",
    "99 %, µs",
    "mean, µs",
    "packets per second",
    "packets per call",
    "ticks per packet",
    "stalled",
];

fn figures(summary: &Summary) -> Vec<String> {
    vec![
        format!("{:.1} %", summary.violations_pct),
        known(summary.slo_us, 1),
        known(summary.delay_us.p95, 1),
        known(summary.delay_us.p99, 1),
        known(summary.delay_us.mean, 1),
        engineering(summary.rate_pps),
        format!("{:.1}", summary.batch_mean),
        format!("{:.1}", summary.ticks_per_packet),
        if summary.void { format!("{:.1} %, void", summary.void_pct) } else { format!("{:.1} %", summary.void_pct) },
    ]
}

/// The procedure and the reporting of runs with open-loop traffic.
const RULE: &str = "Every flow's objective is 1 ms, for 99 % of its packets. There is one run each; the first ten \
                    decisions do not count. optimal runs with a guard of 0.05 and with the paper's more careful guard, \
                    0.2. Under a load that can be carried, optimal runs for more periods than the other controllers \
                    (in simulated time: under Poisson and recorded traffic, with unfolded branches), because many \
                    periods are needed to show that few are violated. The column worst is the percentile of the worst \
                    flow in the worst period, relative to its objective. Values above 1 are reported up to 1/16 too \
                    high.";

/// Returns the section on open-loop traffic.
pub(super) fn open(all: &[Open]) -> Section {
    let description = "Packets arrive at scheduled times, regardless of the worker, and delays count from these times. \
                       Loads are shares of the rate that the worker reaches under max from a source that always has \
                       packets. Above 100 % packets wait in the source's queue, whose length bounds their delay. \
                       Packets that find the queue full are lost.";
    let blocks = vec![text(description), text(RULE), Block::Table(runs(all))];
    Section { title: "Open-loop traffic, which keeps to a schedule".to_owned(), blocks }
}

/// Returns the section on recorded traffic.
pub(super) fn captures(all: Option<&[Open]>) -> Section {
    let title = "Recorded traffic".to_owned();
    let Some(all) = all else {
        return Section { title, blocks: vec![text("n/a: no captures were given (--captures DIR).")] };
    };
    let description = "Packets have the order of sessions, the lengths and, in proportion, the distances of each \
                       capture, which is repeated. The addresses are those of the use case. The load is 60 % of the \
                       rate that the worker reaches under max from a source that always has such packets.";
    Section { title, blocks: vec![text(description), text(RULE), Block::Table(runs(all))] }
}

/// Returns the name of a run: its traffic and its controller.
pub(super) fn of_run(open: &Open) -> String {
    let guard = if open.controller == "optimal" { format!(" (guard {})", open.guard) } else { String::new() };
    let controller = format!("{}{guard}{}", open.controller, super::folded(open.fold));
    format!("{}, {}, {:.0} %, {controller}", open.usecase, open.arrivals, open.share * 100.0)
}

fn runs(all: &[Open]) -> Table {
    let rows = all.iter().map(|open| {
        let mut row = vec![of_run(open), known(open.worst, 3)];
        row.extend(figures(&open.summary));
        row.extend([format!("{:.0} %", open.busy * 100.0), format!("{:.2} %", open.lost * 100.0)]);
        row.push(open.summary.periods.to_string());
        row
    });
    let heads = ["traffic", "worst"].into_iter().chain(FIGURES.iter().copied()).chain(["busy", "lost", "periods"]);
    Table { caption: String::new(), columns: columns(&heads.collect::<Vec<_>>()), rows: rows.collect() }
}

/// Returns the section on light load and on traffic that stops.
pub(super) fn light(all: &[Light]) -> Section {
    let description = "Traffic is light, or heavy and stops repeatedly. In the last quarter of each run there are no \
                       packets. Every flow's objective is 1 ms, for 99 % of its packets. Branches are not folded, \
                       because folding keeps batches whole: behind the split, packets would hardly wait for further \
                       packets. The number of packets and the largest delay are those of the whole run. max waits for \
                       full batches under any traffic. Rates and violations are those of all settled periods, \
                       including periods without packets. There is one run each.";
    let row = |light: &Light| {
        let stops = if light.stops { ", stops" } else { "" };
        let traffic = format!("{} pps, {}{stops}", engineering(light.offered_pps), light.arrivals);
        let mut row = vec![format!("{}, {traffic}, {}", light.usecase, light.controller)];
        row.extend([light.packets, light.late, light.waiting].map(|count| count.to_string()));
        row.extend([known(light.max_us, 1), known(light.max_of_slo, 2)]);
        row.extend(figures(&light.summary));
        row
    };
    let first = ["traffic", "packets", "late", "still waiting", "largest delay, µs", "times the objective"];
    let heads: Vec<_> = first.into_iter().chain(FIGURES.iter().copied()).collect();
    let table = Table { caption: String::new(), columns: columns(&heads), rows: all.iter().map(row).collect() };
    Section {
        title: "Light load, and traffic that stops".to_owned(),
        blocks: vec![text(description), Block::Table(table)],
    }
}

/// Returns the section on the cost of many next hops.
pub(super) fn router(all: &[Router]) -> Section {
    let description = "Routers under optimal with an objective of 1 ms for 99 % of a flow's packets, and as many \
                       packets as they accept. The table compares the workers' time per packet with that of a router \
                       with one next hop, for unfolded and folded branches.";
    let row = |router: &Router| {
        let mut row = vec![format!("{}{}", router.usecase, super::folded(router.fold))];
        row.push(super::settled::ratio_text(router.to_one.as_ref()));
        row.extend(figures(&router.summary));
        row
    };
    let heads: Vec<_> =
        ["router", "ticks, relative to one next hop"].into_iter().chain(FIGURES.iter().copied()).collect();
    let table = Table { caption: String::new(), columns: columns(&heads), rows: all.iter().map(row).collect() };
    Section { title: "Cost of many next hops".to_owned(), blocks: vec![text(description), Block::Table(table)] }
}
