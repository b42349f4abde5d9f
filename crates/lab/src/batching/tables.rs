//! The results as CSV files, one for each table. A part that was not run has no file. The cells of a row must be in the
//! order of the heads.

use super::interval::Ratio;
use super::watch::Moment;
use super::{
    BatchingResults, Calls, ContourGain, DataPath, DecisionTime, Decomposed, Fairness, Light, Open, Router, Row,
    Series, Summary,
};
use crate::csv::{figure, text};

/// Returns the name and the text of each file. The text is `None` if the part was not run.
pub(super) fn all(results: &BatchingResults) -> Vec<(&'static str, Option<String>)> {
    fn some<T>(all: &[T], table: fn(&[T]) -> String) -> Option<String> {
        (!all.is_empty()).then(|| table(all))
    }
    vec![
        ("static.csv", some(&results.rows, rows)),
        ("grid.csv", some(&results.grid, rows)),
        ("slo-steps.csv", some(&results.slo_steps, moments)),
        ("load-steps.csv", some(&results.load_steps, moments)),
        ("bearer.csv", some(&results.bearer, moments)),
        ("contour.csv", some(&results.contour, contour)),
        ("open.csv", some(&results.open, open)),
        ("captures.csv", results.captures.as_deref().map(open)),
        ("light.csv", some(&results.light, light)),
        ("router.csv", some(&results.router, router)),
        ("controller.csv", some(&results.controller_us, took)),
        ("data-path.csv", some(&results.data_path, data_path)),
        ("profile.csv", some(&results.profile, calls)),
        ("fairness.csv", some(&results.fairness, fairness)),
        ("decomposition.csv", some(&results.decomposition, decomposition)),
    ]
}

fn number(value: f64) -> String {
    figure(Some(value))
}

/// Returns the cells of a ratio: the median and both ends of its interval.
fn ratio(ratio: Option<&Ratio>) -> [String; 3] {
    let interval = ratio.and_then(|ratio| ratio.interval);
    [ratio.map(|ratio| ratio.median), interval.map(|ends| ends.0), interval.map(|ends| ends.1)].map(figure)
}

/// The heads of the cells of [`summary`].
const SUMMARY: [&str; 11] = [
    "rate_pps",
    "batch_mean",
    "ticks_per_packet",
    "slo_us",
    "delay_mean_us",
    "delay_p95_us",
    "delay_p99_us",
    "violations_pct",
    "periods",
    "void_pct",
    "void",
];

fn summary(summary: &Summary) -> Vec<String> {
    let mut cells: Vec<_> = [summary.rate_pps, summary.batch_mean, summary.ticks_per_packet].map(number).to_vec();
    cells.extend([summary.slo_us, summary.delay_us.mean, summary.delay_us.p95, summary.delay_us.p99].map(figure));
    cells.extend([
        number(summary.violations_pct),
        summary.periods.to_string(),
        number(summary.void_pct),
        summary.void.to_string(),
    ]);
    cells
}

/// Returns the heads: the identity of a row, then the summary, then further figures.
fn heads(first: &[&'static str], last: &[&'static str]) -> Vec<&'static str> {
    first.iter().chain(&SUMMARY).chain(last).copied().collect()
}

/// Returns a row for each controller and use case.
fn rows(rows: &[Row]) -> String {
    let more = [
        "runs",
        "void_runs",
        "trigger",
        "nearest",
        "multiple",
        "to_null",
        "to_null_low",
        "to_null_high",
        "to_optimal",
        "to_optimal_low",
        "to_optimal_high",
        "batch_of_max",
        "to_on_off",
        "to_on_off_low",
        "to_on_off_high",
    ];
    let row = |row: &Row| {
        let mut cells = vec![row.usecase.clone(), row.controller.clone(), row.fold.to_string()];
        cells.extend(summary(&row.summary));
        cells.extend([row.runs, row.summary.void_runs].map(|count| count.to_string()));
        cells.extend([row.trigger, row.nearest].map(|at| at.map_or_else(String::new, |trigger| trigger.to_string())));
        cells.push(figure(row.multiple));
        cells.extend(ratio(row.to_null.as_ref()));
        cells.extend(ratio(row.to_optimal.as_ref()));
        cells.push(figure(row.batch_of_max));
        cells.extend(ratio(row.to_on_off.as_ref()));
        cells
    };
    text(&heads(&["usecase", "controller", "fold"], &more), rows.iter().map(row))
}

/// Returns a row for each period.
fn moments(all: &[Series]) -> String {
    let heads = [
        "controller",
        "fold",
        "at_s",
        "slo_us",
        "delay_us",
        "worst",
        "trigger",
        "batch_mean",
        "rate_pps",
        "violated",
        "stalled",
        "brief",
    ];
    let rows = all.iter().flat_map(|series| {
        series.moments.iter().map(|moment| {
            let mut row = vec![series.controller.clone(), series.fold.to_string(), number(moment.at_s)];
            row.extend([moment.slo_us, moment.delay_us, moment.worst].map(figure));
            row.push(moment.trigger.map_or_else(String::new, |trigger| trigger.to_string()));
            row.extend([figure(moment.batch), number(moment.rate_pps)]);
            row.extend([moment.violated, moment.stalled, moment.brief].map(|is| is.to_string()));
            row
        })
    });
    text(&heads, rows)
}

/// Returns a row for each point.
fn contour(all: &[ContourGain]) -> String {
    let row = |gain: &ContourGain| {
        let mut row = vec![gain.branches.to_string(), number(gain.batchiness), gain.burst.to_string()];
        row.extend([gain.optimal, gain.gradient, gain.violated, gain.gradient_violated].map(number));
        row.extend(ratio(gain.to_null.as_ref()));
        row.extend(ratio(gain.gradient_to_null.as_ref()));
        row
    };
    let heads = [
        "branches",
        "batchiness",
        "burst",
        "optimal",
        "gradient",
        "optimal_violated",
        "gradient_violated",
        "to_null",
        "to_null_low",
        "to_null_high",
        "gradient_to_null",
        "gradient_to_null_low",
        "gradient_to_null_high",
    ];
    text(&heads, all.iter().map(row))
}

/// Returns a row for each run.
fn open(all: &[Open]) -> String {
    let row = |open: &Open| {
        let mut row = vec![open.usecase.clone(), open.arrivals.clone(), number(open.share), number(open.offered_pps)];
        row.extend([open.controller.to_owned(), open.fold.to_string()]);
        row.extend(summary(&open.summary));
        row.extend([open.lost, open.busy, open.guard].map(number));
        row.push(figure(open.worst));
        row
    };
    let first = ["usecase", "arrivals", "share", "offered_pps", "controller", "fold"];
    text(&heads(&first, &["lost", "busy", "guard", "worst"]), all.iter().map(row))
}

/// Returns a row for each run.
fn light(all: &[Light]) -> String {
    let row = |light: &Light| {
        let mut row = vec![light.usecase.clone(), light.arrivals.clone(), number(light.offered_pps)];
        row.extend([light.stops.to_string(), light.controller.to_owned()]);
        row.extend(summary(&light.summary));
        row.extend([light.packets, light.late, light.waiting].map(|count| count.to_string()));
        row.extend([light.max_us, light.max_of_slo].map(figure));
        row
    };
    let first = ["usecase", "arrivals", "offered_pps", "stops", "controller"];
    text(&heads(&first, &["packets", "late", "waiting", "max_us", "max_of_slo"]), all.iter().map(row))
}

/// Returns a row for each router.
fn router(all: &[Router]) -> String {
    let row = |router: &Router| {
        let mut row = vec![router.usecase.clone(), router.fold.to_string()];
        row.extend(summary(&router.summary));
        row.extend(ratio(router.to_one.as_ref()));
        row
    };
    text(&heads(&["usecase", "fold"], &["to_one", "to_one_low", "to_one_high"]), all.iter().map(row))
}

/// Returns a row for each pipeline and controller.
fn took(all: &[DecisionTime]) -> String {
    let row = |took: &DecisionTime| {
        let mut row = vec![took.usecase.clone(), took.controller.to_owned()];
        row.extend([took.flows.to_string(), took.modules.to_string(), number(took.median), number(took.max)]);
        row
    };
    text(&["usecase", "controller", "flows", "modules", "median_us", "max_us"], all.iter().map(row))
}

/// Returns a row for each pipeline and period.
fn data_path(all: &[DataPath]) -> String {
    let row = |path: &DataPath| {
        let mut row = vec![path.usecase.clone(), number(path.period_ms), figure(path.ticks_per_packet)];
        row.extend(ratio(path.to_none.as_ref()));
        row
    };
    let heads = ["usecase", "period_ms", "ticks_per_packet_without", "to_none", "to_none_low", "to_none_high"];
    text(&heads, all.iter().map(row))
}

/// Returns a row for each function and size.
fn calls(all: &[Calls]) -> String {
    let rows = all.iter().flat_map(|calls| {
        calls.sizes.iter().map(|size| {
            let mut row = vec![calls.function.clone()];
            row.extend(
                [calls.t0_ns, calls.t1_ns, calls.batchiness, size.packets, size.call_ns, size.rate_mpps].map(number),
            );
            row
        })
    });
    text(&["function", "t0_ns", "t1_ns", "batchiness", "packets", "call_ns", "rate_mpps"], rows)
}

/// Returns a row for each case and scheduler.
fn fairness(all: &[Fairness]) -> String {
    let heads = [
        "case",
        "scheduler",
        "offered_first_pps",
        "offered_second_pps",
        "min_rate_first_pps",
        "rate_first_pps",
        "rate_second_pps",
        "delay_first_us",
        "delay_second_us",
        "void_pct",
    ];
    let row = |fairness: &Fairness| {
        let mut row = vec![fairness.case.to_owned(), fairness.scheduler.to_owned()];
        row.extend(fairness.offered_pps.map(number));
        row.push(figure(fairness.min_rate_pps));
        row.extend(fairness.rate_pps.map(number));
        row.extend(fairness.delay_us.map(figure));
        row.push(number(fairness.soundness.void_pct));
        row
    };
    text(&heads, all.iter().map(row))
}

/// Returns a row for each period.
fn decomposition(all: &[Decomposed]) -> String {
    let row = |(decomposed, moment): (&Decomposed, &Moment)| {
        let mut row = vec![decomposed.workers.to_string()];
        row.extend([Some(moment.at_s), Some(moment.rate_pps), moment.delay_us].map(figure));
        row.extend([moment.violated, moment.stalled, moment.brief].map(|is| is.to_string()));
        row.push(number(moment.bulk_pps));
        row
    };
    let periods = all.iter().flat_map(|decomposed| decomposed.moments.iter().map(move |moment| (decomposed, moment)));
    text(&["workers", "at_s", "rate_pps", "delay_us", "violated", "stalled", "brief", "bulk_pps"], periods.map(row))
}
