//! Scheduling under overload: run to completion against weighted-fair (Batchy, Fig. 11).
//!
//! Two functions behind a split are offered one and a half times the packets that they have time for. In the paper's
//! sense, a fair schedule gives time in proportion to rate if costs are equal, and in proportion to cost if rates are
//! equal. Then both functions lose the same share of their packets. The controller `fair` is fair in another sense:
//! max-min rates, after the guaranteed rates.
//!
//! A case or a scheduler is one line of [`CASES`] or [`SCHEDULERS`]. A run with another controller that shares time by
//! weights also needs [`Rule::is_weighted`], which selects the scheduler of the pipeline.

use forebay_graph::Cost;
use serde::Serialize;

use super::Extents;
use super::costs::BATCH;
use super::figures::Soundness;
use super::scenario::{Rule, Scenario, Span};
use super::testbed::Testbed;
use crate::{LabError, Progress};

/// The time that a packet takes, in nanoseconds.
const PACKET: u64 = 400;
/// The offered load, as a multiple of the capacity.
const OVERLOAD: f64 = 1.5;
/// The cases: the name, the weights of the split, and the cost of each function as a multiple of [`PACKET`].
const CASES: &[(&str, [u64; 2], [u64; 2])] =
    &[("twice the rate for the first", [2, 1], [1, 1]), ("twice the cost for the first", [1, 1], [2, 1])];
/// The schedulers: a name, its controller, and whether the first function has a guaranteed rate. [`Rule::is_weighted`]
/// must be true for all controllers after the first one; a test checks this.
const SCHEDULERS: &[(&str, &str, bool)] = &[
    ("run to completion", "null", false),
    ("weighted-fair, equal weights", "wfq", false),
    ("weighted-fair, NFVnice's weights", "nfvnice", false),
    ("weighted-fair, max-min rates", "fair", false),
    ("weighted-fair, a rate for the first", "fair", true),
];
/// The guaranteed rate, as a share of the rate that the first function is offered.
const PROMISED: f64 = 0.8;
/// The number of periods of a run that count.
const PERIODS: u32 = 100;

/// The results of two functions under a scheduler.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fairness {
    /// The property in which the functions differ.
    pub case: &'static str,
    /// The scheduler.
    pub scheduler: &'static str,
    /// The packets per second that each function is offered.
    pub offered_pps: [f64; 2],
    /// The rate that the first function is guaranteed, in packets per second.
    pub min_rate_pps: Option<f64>,
    /// The packets per second of each function that left.
    pub rate_pps: [f64; 2],
    /// The mean delay of each function, in microseconds. `None` if no packet left.
    pub delay_us: [Option<f64>; 2],
    /// How reliable the figures are.
    #[serde(flatten)]
    pub soundness: Soundness,
}

/// Performs all runs.
pub(super) fn measure(
    testbed: &Testbed,
    extents: &Extents,
    progress: &mut dyn Progress,
) -> Result<Vec<Fairness>, LabError> {
    let span = Span { periods: PERIODS.min(extents.span.periods), ..extents.span };
    let both = || CASES.iter().flat_map(|case| SCHEDULERS.iter().map(move |scheduler| (case, scheduler)));
    let scenarios: Vec<_> = both()
        .map(|(case, (_, controller, promised))| {
            scenario(case, controller, promise(case, *promised), span, testbed.hertz())
        })
        .collect();
    let runs = testbed.all(&scenarios, progress, |run| run)?;
    let rows = both().zip(&runs).map(|((case, (scheduler, _, promised)), run)| {
        let (rate, weights) = (offered(case), case.1.map(|weight| weight as f64));
        Fairness {
            case: case.0,
            scheduler,
            offered_pps: weights.map(|weight| rate * weight / weights.iter().sum::<f64>()),
            min_rate_pps: promise(case, *promised),
            rate_pps: [0, 1].map(|flow: usize| run.report.flows[flow].rate_pps),
            delay_us: [0, 1].map(|flow: usize| run.report.flows[flow].delay_us.mean),
            soundness: Soundness::of(run),
        }
    });
    Ok(rows.collect())
}

/// A case: its name, the weights of the split, and the costs of the functions.
type Case = (&'static str, [u64; 2], [u64; 2]);

/// Returns the packets per second that both functions together are offered.
fn offered((_, weights, costs): &Case) -> f64 {
    let shares = weights.iter().zip(costs).map(|(weight, cost)| weight * cost * PACKET).sum::<u64>();
    let packet = shares as f64 / weights.iter().sum::<u64>() as f64;
    OVERLOAD * 1e9 / packet
}

/// Returns the guaranteed packets per second of the first function, if it has a guarantee.
fn promise(case: &Case, promised: bool) -> Option<f64> {
    let [first, second] = case.1.map(|weight| weight as f64);
    promised.then(|| PROMISED * offered(case) * first / (first + second))
}

/// Returns the run of a case. `promised` is the guaranteed rate of the first function; `hertz` is the number of ticks
/// per second of the testbed.
fn scenario(case: &Case, controller: &'static str, promised: Option<f64>, span: Span, hertz: f64) -> Scenario {
    let (name, weights, costs) = case;
    let promised = promised.map_or_else(String::new, |rate| format!(", min_rate: {rate:.0}pps"));
    // Functions work for a number of ticks, but the offered rate is per second.
    let cycles = (PACKET as f64 * hertz / 1e9).round() as u64;
    let call = cycles / BATCH as u64;
    let bypass = |times: u64| format!("bypass: {{ cycles_per_batch: {call}, cycles_per_packet: {} }}", times * cycles);
    let text = format!(
        "name: fairness\nports:\n  in: {{ generator: {{ rate: {:.0}pps }} }}\n  out: {{ sink: {{}} }}\nmodules:\n  \
         split: {{ weighted_split: {{ weights: [{}, {}] }} }}\n  first: {{ {} }}\n  second: {{ {} }}\npipeline:\n  - \
         in -> split\n  - split[0] -> first -> out\n  - split[1] -> second -> out\nflows:\n  - {{ name: first, path: \
         \"split[0] -> first\"{promised} }}\n  - {{ name: second, path: \"split[1] -> second\" }}\nscheduler: \
         run-to-completion\nshares:\n  first: {{ when_full: drop }}\n  second: {{ when_full: drop }}\n",
        offered(case),
        weights[0],
        weights[1],
        bypass(costs[0]),
        bypass(costs[1])
    );
    // The cost of the call is small compared to the packets of a batch, because the experiment is about shares.
    let cost = |times: u64| Cost { per_batch: PACKET / BATCH as u64, per_packet: times * PACKET };
    let scenario = Scenario::of_text(format!("{name}, {controller}"), text, &Rule::new(controller), &[], span);
    scenario
        .costing("split", Cost { per_batch: 1, per_packet: 1 })
        .costing("first", cost(costs[0]))
        .costing("second", cost(costs[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheduler_but_run_to_completion_shares_time_by_weights() {
        for (at, (name, controller, _)) in SCHEDULERS.iter().enumerate() {
            assert_eq!(Rule::new(controller).is_weighted(), at > 0, "{name}");
        }
    }
}
