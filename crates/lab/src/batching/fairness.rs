//! Whose turn it is where there is not enough time for all: run to completion against weighted-fair (Batchy, Fig. 11).
//!
//! Two functions behind a split are offered half as much again as there is time for. Fair, in the paper's sense, is in proportion to
//! rate at equal cost, and in proportion to cost at equal rate, so that both functions lose the same part of their packets. `fair` has
//! another sense: max-min rates, and before that what was promised.

use forebay_graph::Cost;
use serde::Serialize;

use super::Extents;
use super::costs::BATCH;
use super::figures::Soundness;
use super::place::Place;
use super::scenario::{Rule, Scenario, Span};
use crate::{LabError, Progress};

/// What a packet takes, in nanoseconds.
const PACKET: u64 = 400;
/// What is offered, in parts of what there is time for.
const OVERLOAD: f64 = 1.5;
/// By case: its name, the weights of the split, and how many times the cost.
const CASES: &[(&str, [u64; 2], [u64; 2])] =
    &[("twice the rate for the first", [2, 1], [1, 1]), ("twice the cost for the first", [1, 1], [2, 1])];
/// Schedulers: a name, the controller that goes with it, and whether the first function is promised most of what it is offered.
const SCHEDULERS: &[(&str, &str, bool)] = &[
    ("run to completion", "null", false),
    ("weighted-fair, equal weights", "wfq", false),
    ("weighted-fair, NFVnice's weights", "nfvnice", false),
    ("weighted-fair, max-min rates", "fair", false),
    ("weighted-fair, a rate for the first", "fair", true),
];
/// The part of what it is offered that the first function is promised then.
const PROMISED: f64 = 0.8;
const PERIODS: u32 = 100;

/// Two functions under a scheduler.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fairness {
    /// What is unequal.
    pub case: &'static str,
    /// The scheduler.
    pub scheduler: &'static str,
    /// By function: packets a second that were offered.
    pub offered_pps: [f64; 2],
    /// Packets a second that the first function was promised.
    pub min_rate_pps: Option<f64>,
    /// By function: packets a second that left.
    pub rate_pps: [f64; 2],
    /// By function: the mean delay, in microseconds; `None` where no packet left.
    pub delay_us: [Option<f64>; 2],
    /// How far that can be relied on.
    #[serde(flatten)]
    pub soundness: Soundness,
}

/// Makes all runs.
pub(super) fn measure(
    place: &Place,
    extents: &Extents,
    progress: &mut dyn Progress,
) -> Result<Vec<Fairness>, LabError> {
    let span = Span { periods: PERIODS.min(extents.span.periods), ..extents.span };
    let both = || CASES.iter().flat_map(|case| SCHEDULERS.iter().map(move |scheduler| (case, scheduler)));
    let scenarios: Vec<_> = both()
        .map(|(case, (_, controller, promised))| {
            scenario(case, controller, promise(case, *promised), span, place.hertz())
        })
        .collect();
    let runs = place.all(&scenarios, progress, |run| run)?;
    let told = both().zip(&runs).map(|((case, (scheduler, _, promised)), run)| {
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
    Ok(told.collect())
}

type Case = (&'static str, [u64; 2], [u64; 2]);

/// Packets a second that are offered.
fn offered((_, weights, costs): &Case) -> f64 {
    let shares = weights.iter().zip(costs).map(|(weight, cost)| weight * cost * PACKET).sum::<u64>();
    let packet = shares as f64 / weights.iter().sum::<u64>() as f64;
    OVERLOAD * 1e9 / packet
}

/// Packets a second that the first function is promised, where it is.
fn promise(case: &Case, promised: bool) -> Option<f64> {
    let [first, second] = case.1.map(|weight| weight as f64);
    promised.then(|| PROMISED * offered(case) * first / (first + second))
}

fn scenario(case: &Case, controller: &'static str, promised: Option<f64>, span: Span, hertz: f64) -> Scenario {
    let (name, weights, costs) = case;
    let promised = promised.map_or_else(String::new, |rate| format!(", min_rate: {rate:.0}pps"));
    // Functions spin for ticks, and what is offered is by the second.
    let cycles = (PACKET as f64 * hertz / 1e9).round() as u64;
    let call = cycles / BATCH as u64;
    let bypass = |times: u64| format!("bypass: {{ cycles_per_batch: {call}, cycles_per_packet: {} }}", times * cycles);
    let text = format!(
        "name: fairness\nports:\n  in: {{ generator: {{ rate: {:.0}pps }} }}\n  out: {{ sink: {{}} }}\n\
         modules:\n  split: {{ weighted_split: {{ weights: [{}, {}] }} }}\n  first: {{ {} }}\n  second: {{ {} }}\n\
         pipeline:\n  - in -> split\n  - split[0] -> first -> out\n  - split[1] -> second -> out\n\
         flows:\n  - {{ name: first, path: \"split[0] -> first\"{promised} }}\n  - {{ name: second, path: \"split[1] -> second\" }}\n\
         scheduler: run-to-completion\nshares:\n  first: {{ when_full: drop }}\n  second: {{ when_full: drop }}\n",
        offered(case),
        weights[0],
        weights[1],
        bypass(costs[0]),
        bypass(costs[1])
    );
    // The call is small beside the packets of a batch: shares are what is looked at.
    let cost = |times: u64| Cost { per_batch: PACKET / BATCH as u64, per_packet: times * PACKET };
    let scenario = Scenario::of_text(format!("{name}, {controller}"), text, &Rule::new(controller), &[], span);
    scenario
        .costing("split", Cost { per_batch: 1, per_packet: 1 })
        .costing("first", cost(costs[0]))
        .costing("second", cost(costs[1]))
}
