//! The section on the points at which Forebay falls short of the paper, derived from the figures.

use forebay_plot::{Block, Section};

use crate::batching::settled::Row;
use crate::batching::{BatchingResults, CostOrigin};
use crate::blocks::text;

/// The paper's controller re-forms batches to at least this share of the batches of `max`.
const REFORMED: f64 = 0.7;
/// The smallest gain of the paper's controller over `null`.
const GAIN: f64 = 1.5;
/// The largest share of periods, in percent, in which the paper's controller misses objectives.
const MISSED: f64 = 9.0;
/// If the 95th percentile of the delay is above this value, in percent of the objective, but not above 100 %, the page
/// says that larger batches would miss the objective. A controller cannot use 100 %: it keeps 5 % in reserve (the
/// guard), and a trigger is a whole number of packets.
const USED: f64 = 80.0;
/// A ratio to the rate of `null` counts as 1 if it is between this value and 1.
const SAME: f64 = 0.98;
/// Rates whose ratio is between this value and 1 count as equal.
const SAME_RATE: f64 = 0.995;

/// Returns the section.
pub(super) fn section(results: &BatchingResults) -> Section {
    let mut blocks = vec![text(
        "The paper's controller re-forms 70 to 80 % of the batches of max at four fifths of its delay. It carries 1.5 \
         to 2.5 times as many packets as null (7.5 times in robot control), misses objectives in at most 9 % of the \
         periods, and is never worse than null. This section lists the use cases in which gradient, which is the \
         paper's controller, or optimal is not as good here, with unfolded branches.",
    )];
    let rows = results.rows.iter().filter(|row| !row.fold && !row.summary.void);
    let controlled = rows.clone().filter(|row| matches!(row.controller.as_str(), "gradient" | "optimal"));
    let max = |row: &Row| rows.clone().find(|other| other.controller == "max" && other.usecase == row.usecase);
    let shortfalls: Vec<String> = controlled.flat_map(|row| of_row(row, max(row))).collect();
    let others = |row: &Row| {
        rows.clone().filter(|other| other.usecase == row.usecase).flat_map(|other| beaten(row, other)).collect()
    };
    let optimal = rows.clone().filter(|row| row.controller == "optimal");
    let shortfalls: Vec<String> =
        shortfalls.into_iter().chain(optimal.flat_map(|row| -> Vec<String> { others(row) })).collect();
    if shortfalls.is_empty() {
        blocks.push(text("No row that is not void falls short."));
    }
    blocks.extend(shortfalls.into_iter().map(Block::Text));
    if results.costs.origin == CostOrigin::Profile || !results.simulated {
        blocks.push(text(
            "Batches save the cost of calls. The cost of a call of this engine is a fraction of the cost that the \
             paper measured for its own engine (19 to 122 ns). The possible gain is therefore smaller here, and so are \
             the ratios to null.",
        ));
    }
    Section { title: "Where Forebay falls short of the paper".to_owned(), blocks }
}

/// Returns a text if a simpler controller keeps objectives and carries more packets.
fn beaten(row: &Row, other: &Row) -> Option<String> {
    let simpler = matches!(other.controller.as_str(), "static" | "on-off" | "gradient");
    let kept = other.summary.violations_pct <= MISSED;
    let less = row.summary.rate_pps < SAME_RATE * other.summary.rate_pps;
    (simpler && kept && less).then(|| {
        let trigger = other.trigger.map_or_else(String::new, |trigger| format!(" {trigger}"));
        let part = row.summary.rate_pps / other.summary.rate_pps * 100.0;
        format!(
            "{}, optimal: {part:.1} % of the packets of {}{trigger}. This other controller keeps objectives, too.",
            row.usecase, other.controller
        )
    })
}

/// Returns the shortfalls of a row, with their reasons.
fn of_row(row: &Row, max: Option<&Row>) -> Vec<String> {
    let mut all = Vec::new();
    let name = format!("{}, {}", row.usecase, row.controller);
    let gain = row.to_null.map(|ratio| ratio.median);
    if let Some(part) = row.batch_of_max.filter(|part| *part < REFORMED) {
        let tail = row.summary.delay_us.p95.zip(row.summary.slo_us).map_or(0.0, |(p95, slo)| p95 / slo * 100.0);
        let most = max.and_then(|max| Some(row.summary.slo_us? / max.summary.delay_us.p95? * 100.0));
        let room = most.map_or_else(String::new, |most| {
            format!(
                "the objective is derived from a mean delay and is {most:.0} % of the 95th percentile under max, and \
                 the waiting time is proportional to the batch size; "
            )
        });
        let used = if tail > 100.0 {
            format!("the 95th percentile is at {tail:.0} % of the objective, which is already missed")
        } else if tail > USED {
            format!("the 95th percentile is at {tail:.0} % of the objective, and larger batches would miss it")
        } else {
            format!("the 95th percentile is at {tail:.0} % of the objective, so some room is not used")
        };
        let reason = format!("{room}{used}");
        all.push(format!("{name}: {:.0} % of the batch size of max. Reason: {reason}.", part * 100.0));
    }
    if let Some(gain) = gain.filter(|gain| *gain < GAIN) {
        let worse = if gain < SAME { ", worse than null" } else { "" };
        all.push(format!(
            "{name}: {gain:.2} times the packets of null{worse}. Batches had {:.1} packets.",
            row.summary.batch_mean
        ));
    }
    if row.summary.violations_pct > MISSED {
        all.push(format!(
            "{name}: objectives were missed in {:.1} % of {} periods, in the worst one by {:.0} %.",
            row.summary.violations_pct,
            row.summary.periods,
            (row.worst.last().copied().unwrap_or(1.0) - 1.0) * 100.0
        ));
    }
    all
}
