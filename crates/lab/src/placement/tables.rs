//! The results as CSV files, one for each table. A part that was not run has no file. The cells of a row must be in the
//! order of the heads.

use super::basis::{Errors, Models};
use super::{Drops, Gain, Metric, Order, PlacementResults, Predicted, Searched, Validity};
use crate::csv::{figure, text};

/// Returns the name and the text of each file. The text is `None` if the part was not run.
pub(super) fn all(results: &PlacementResults) -> Vec<(&'static str, Option<String>)> {
    fn some<T>(all: &[T], table: fn(&[T]) -> String) -> Option<String> {
        (!all.is_empty()).then(|| table(all))
    }
    vec![
        ("candidates.csv", results.models.as_ref().map(candidates)),
        ("errors.csv", results.models.as_ref().map(errors)),
        ("order.csv", some(&results.order, order)),
        ("metric.csv", some(&results.metric, metric)),
        ("drops.csv", some(&results.drops, drops)),
        ("prediction.csv", some(&results.prediction, prediction)),
        ("gain.csv", some(&results.gain, gain)),
        ("search.csv", some(&results.search, search)),
        ("validity.csv", some(&results.validity, validity)),
    ]
}

fn number(value: f64) -> String {
    figure(Some(value))
}

/// Returns the cells of errors of predictions. Unknown errors are empty cells.
fn judged(errors: Option<&Errors>) -> [String; 6] {
    [
        errors.map(|errors| errors.relative),
        errors.map(|errors| errors.of_constant),
        errors.map(|errors| errors.absolute),
        errors.map(|errors| errors.rate),
        errors.map(|errors| errors.inside_interval),
        errors.map(|errors| errors.mean_drop),
    ]
    .map(figure)
}

/// The heads of the cells of [`judged`].
const JUDGED: [&str; 6] =
    ["error", "error_of_constant", "absolute_error", "rate_error", "inside_interval", "mean_drop"];

/// Returns the heads of a table that ends with errors: `first`, then [`JUDGED`].
fn heads(first: &[&'static str]) -> Vec<&'static str> {
    first.iter().chain(&JUDGED).copied().collect()
}

/// Returns a row for each candidate for the metric.
fn candidates(models: &Models) -> String {
    let row = |of: &super::Candidate| {
        let mut row = vec![of.name.to_owned(), figure(of.variance), number(of.correlation), of.qualifies.to_string()];
        row.push(figure(of.left_out));
        row.extend(judged(of.errors.as_ref()));
        row
    };
    let first = ["metric", "variance", "correlation", "qualifies", "left_out_error"];
    text(&heads(&first), models.candidates.iter().map(row))
}

/// Returns a row for each set of runs, or variant of the models, whose errors were computed.
fn errors(models: &Models) -> String {
    let all = [("case", &models.cases), ("load", &models.loads), ("variant", &models.variants)];
    let rows = all.into_iter().flat_map(|(category, all)| {
        all.iter().map(move |of| {
            let mut row = vec![category.to_owned(), of.name.clone()];
            row.extend(judged(Some(&of.errors)));
            row
        })
    });
    text(&heads(&["of", "name"]), rows)
}

/// Returns a row for each placement.
fn order(all: &[Order]) -> String {
    let heads = ["placement", "simulated_pps", "predicted_pps", "below_best", "router_pps", "nids_pps"];
    let row = |row: &Order| {
        let mut cells = vec![row.name.clone()];
        cells.extend([row.simulated_pps, row.predicted_pps, row.below_best].map(number));
        cells.extend(row.functions_pps.map(number));
        cells
    };
    text(&heads, all.iter().map(row))
}

/// Returns a row for each metric, function and number of competitors. If the metric does not exist in a co-run, there
/// is one row for the function, without a number of competitors.
fn metric(all: &[Metric]) -> String {
    let heads = ["metric", "function", "alone_pps", "alone", "competitors", "in_parts_of_largest"];
    let rows = all.iter().flat_map(|row| {
        let by: Vec<_> = if row.by_competitors.is_empty() {
            vec![(String::new(), String::new())]
        } else {
            row.by_competitors.iter().enumerate().map(|(count, value)| (count.to_string(), number(*value))).collect()
        };
        by.into_iter().map(move |(count, value)| {
            vec![row.metric.clone(), row.function.clone(), number(row.alone_pps), number(row.alone), count, value]
        })
    });
    text(&heads, rows)
}

/// Returns a row for each function, competitor and number of competitors.
fn drops(all: &[Drops]) -> String {
    let heads = ["function", "local", "competitor", "metric", "competitors", "simulated", "predicted"];
    let rows = all.iter().flat_map(|row| {
        row.simulated.iter().zip(&row.predicted).enumerate().map(move |(count, (simulated, predicted))| {
            let first = [row.function.clone(), row.local.to_string(), row.competitor.clone(), number(row.metric)];
            let last = [count.to_string(), number(*simulated), number(*predicted)];
            first.into_iter().chain(last).collect()
        })
    });
    text(&heads, rows)
}

fn prediction(all: &[Predicted]) -> String {
    let heads = [
        "figure",
        "name",
        "count",
        "error",
        "absolute_error",
        "rate_error",
        "mean_drop",
        "held_error",
        "runs",
        "counted",
    ];
    let row = |row: &Predicted| {
        let mut cells = vec![row.figure.clone(), row.name.clone(), row.count.to_string(), figure(row.error)];
        cells.extend([row.absolute, row.rate_error, row.mean_drop].map(number));
        cells.push(figure(row.held_error));
        cells.extend(row.runs.map(|count| count.to_string()));
        cells
    };
    text(&heads, all.iter().map(row))
}

/// Returns a row for each set of chains and method.
fn gain(all: &[Gain]) -> String {
    let rows = all.iter().flat_map(|set| {
        set.methods.iter().map(|method| {
            let chains =
                method.domains.iter().map(|chain| chain.iter().map(usize::to_string).collect::<Vec<_>>().join(" "));
            vec![
                set.set.to_string(),
                set.chains.join("; "),
                method.method.clone(),
                number(method.predicted_pps),
                number(method.simulated_pps),
                number(method.held_pps),
                chains.collect::<Vec<_>>().join("; "),
            ]
        })
    });
    text(&["set", "chains", "method", "predicted_pps", "simulated_pps", "held_pps", "domains"], rows)
}

/// Returns a row for each size of placement problems.
fn search(all: &[Searched]) -> String {
    let heads = [
        "domains",
        "chains",
        "instances",
        "exact_median_ms",
        "exact_max_ms",
        "nodes_median",
        "nodes_max",
        "gap_max",
        "octans_median_ms",
        "octans_max_ms",
        "octans_instances",
        "octans_optimal",
        "octans_below",
        "enumeration_median_ms",
        "enumerated",
        "enumerated_same",
    ];
    let row = |row: &Searched| {
        let mut cells: Vec<_> = [row.domains, row.chains, row.instances].map(|count| count.to_string()).to_vec();
        cells.extend(row.exact_ms.into_iter().chain(row.nodes).chain([row.gap]).chain(row.octans_ms).map(number));
        cells.push(row.octans_instances.to_string());
        cells.extend([Some(row.octans_optimal), row.octans_gap, row.brute_force_ms.map(|ms| ms[0])].map(figure));
        cells.extend(row.enumerated.map(|count| count.to_string()));
        cells
    };
    text(&heads, all.iter().map(row))
}

/// Returns a row for each pair of footprints.
fn validity(all: &[Validity]) -> String {
    let heads = ["bytes", "competitor_bytes", "measured", "low", "high", "noise", "simulated", "rounds", "void"];
    let rows = all.iter().flat_map(|of| &of.rows).map(|pair| {
        let mut cells = vec![pair.bytes.to_string(), pair.competitor_bytes.to_string(), figure(pair.measured)];
        cells.extend([pair.interval.map(|ends| ends[0]), pair.interval.map(|ends| ends[1]), pair.noise].map(figure));
        cells.push(number(pair.simulated));
        cells.extend(pair.rounds.map(|count| count.to_string()));
        cells
    });
    text(&heads, rows)
}
