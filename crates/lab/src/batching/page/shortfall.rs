//! Where Forebay falls short of what the paper reports, told from the figures.

use forebay_plot::{Block, Section};

use crate::batching::settled::Row;
use crate::batching::{Origin, Results};
use crate::blocks::text;

/// The least part of the batches of `max` that the paper's controller re-forms.
const REFORMED: f64 = 0.7;
/// The least that it gains over `null`.
const GAIN: f64 = 1.5;
/// The share of periods, in percent, in which it misses objectives at most.
const MISSED: f64 = 9.0;
/// The percentile, in percent of the objective, from which on no room is left: the guard is 5 %, and triggers are whole batches.
const USED: f64 = 80.0;
/// A ratio so little below 1 is none.
const SAME: f64 = 0.98;
/// Rates that are no further apart are the same, as far as this tells.
const SAME_RATE: f64 = 0.995;

/// The section's text.
pub(super) fn section(results: &Results) -> Section {
    let mut blocks = vec![text(
        "The paper's controller re-forms 70 to 80 % of the batches of max at four fifths of its delay, carries 1.5 to 2.5 times as many \
         packets as null (7.5 times in robot control), misses objectives in at most 9 % of the periods, and is never worse than \
         null. Below is where gradient, which is that controller, or optimal is not as good here, branches as they are written.",
    )];
    let rows = results.rows.iter().filter(|row| !row.fold && !row.told.void);
    let controlled = rows.clone().filter(|row| matches!(row.controller.as_str(), "gradient" | "optimal"));
    let max = |row: &Row| rows.clone().find(|other| other.controller == "max" && other.usecase == row.usecase);
    let told: Vec<String> = controlled.flat_map(|row| of_row(row, max(row))).collect();
    let others = |row: &Row| {
        rows.clone().filter(|other| other.usecase == row.usecase).flat_map(|other| beaten(row, other)).collect()
    };
    let optimal = rows.clone().filter(|row| row.controller == "optimal");
    let told: Vec<String> = told.into_iter().chain(optimal.flat_map(|row| -> Vec<String> { others(row) })).collect();
    if told.is_empty() {
        blocks.push(text("Nowhere, as far as rows are not void."));
    }
    blocks.extend(told.into_iter().map(Block::Text));
    if results.costs.origin == Origin::Profile || !results.simulated {
        blocks.push(text(
            "What batches save is the cost of a call, and this engine's is a fraction of what the paper measured of its own (19 to 122 \
             ns): less is to be gained here, and ratios to null are smaller for that reason alone.",
        ));
    }
    Section { title: "Where Forebay falls short of the paper".to_owned(), blocks }
}

/// Where a simpler rule that keeps objectives carries more.
fn beaten(row: &Row, other: &Row) -> Option<String> {
    let simpler = matches!(other.controller.as_str(), "static" | "on-off" | "gradient");
    let kept = other.told.violations_pct <= MISSED;
    let less = row.told.rate_pps < SAME_RATE * other.told.rate_pps;
    (simpler && kept && less).then(|| {
        let trigger = other.trigger.map_or_else(String::new, |trigger| format!(" {trigger}"));
        let part = row.told.rate_pps / other.told.rate_pps * 100.0;
        format!(
            "{}, optimal: {part:.1} % of the packets of {}{trigger}, which keeps objectives too.",
            row.usecase, other.controller
        )
    })
}

/// What is short in a row, with why.
fn of_row(row: &Row, max: Option<&Row>) -> Vec<String> {
    let mut all = Vec::new();
    let name = format!("{}, {}", row.usecase, row.controller);
    let gain = row.to_null.map(|ratio| ratio.median);
    if let Some(part) = row.batch_of_max.filter(|part| *part < REFORMED) {
        let tail = row.told.delay_us.p95.zip(row.told.slo_us).map_or(0.0, |(p95, slo)| p95 / slo * 100.0);
        let most = max.and_then(|max| Some(row.told.slo_us? / max.told.delay_us.p95? * 100.0));
        let room = most.map_or_else(String::new, |most| {
            format!(
                "the objective, of a mean, is {most:.0} % of the 95th percentile that max has, and waiting is in proportion to batches; "
            )
        });
        let used = if tail > 100.0 {
            format!("the 95th percentile is at {tail:.0} % of the objective, which is missed as it is")
        } else if tail > USED {
            format!("the 95th percentile is at {tail:.0} % of the objective, larger batches would miss it")
        } else {
            format!("the 95th percentile is at {tail:.0} % of the objective: there is room left that is not used")
        };
        let why = format!("{room}{used}");
        all.push(format!("{name}: {:.0} % of the batches of max. Why: {why}.", part * 100.0));
    }
    if let Some(gain) = gain.filter(|gain| *gain < GAIN) {
        let worse = if gain < SAME { ", worse than null" } else { "" };
        all.push(format!(
            "{name}: {gain:.2} times the packets of null{worse}. Batches had {:.1} packets.",
            row.told.batch_mean
        ));
    }
    if row.told.violations_pct > MISSED {
        all.push(format!(
            "{name}: objectives missed in {:.1} % of {} periods; in the worst by {:.0} %.",
            row.told.violations_pct,
            row.told.periods,
            (row.worst.last().copied().unwrap_or(1.0) - 1.0) * 100.0
        ));
    }
    all
}
