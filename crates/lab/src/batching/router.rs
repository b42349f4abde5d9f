//! Measures the cost of many next hops for a router, written out and folded: the workers' time per packet relative to a
//! router with one next hop.
//!
//! The objective is 1 ms, so that batches can be full regardless of the number of branches.

use serde::Serialize;

use super::Extents;
use super::figures::{Figures, Summary};
use super::interval::Ratio;
use super::open::{OBJECTIVE, PERCENTILE};
use super::scenario::{Pipeline, Rule, Scenario, Span, fold};
use super::testbed::Testbed;
use crate::{LabError, Progress};

/// The routers: the number of next hops, and whether they are folded. The first one is the reference for the others.
const ROUTERS: &[(&str, bool)] = &[("n=1", false), ("n=64", false), ("n=64", true)];
/// The routers of a short run.
const SMALL: &[(&str, bool)] = &[("n=1", false), ("n=8", false), ("n=8", true)];

/// A router under `optimal`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Router {
    /// The use case with its sizes.
    pub usecase: String,
    /// Whether equal branches ran as one.
    pub fold: bool,
    /// The summary of the runs.
    #[serde(flatten)]
    pub summary: Summary,
    /// The ticks per packet relative to the router with one next hop.
    pub to_one: Option<Ratio>,
}

/// Performs the runs, in turn.
pub(super) fn measure(
    testbed: &Testbed,
    extents: &Extents,
    progress: &mut dyn Progress,
) -> Result<Vec<Router>, LabError> {
    let routers = if extents.short { SMALL } else { ROUTERS };
    // The pipeline has no randomness, so further simulated runs would be copies.
    let turns = if testbed.simulated { 1 } else { extents.runs };
    let turn = routers.iter().map(|router| scenario(router, extents.span)).collect::<Result<Vec<_>, _>>()?;
    let scenarios: Vec<_> = std::iter::repeat_n(turn, turns).flatten().collect();
    let runs = testbed.all(&scenarios, progress, |run| Figures::of(&run, testbed.hertz()))?;
    let of = |at: usize| runs.chunks(routers.len()).map(|turn| turn[at].clone()).collect::<Vec<_>>();
    let ticks = |runs: &[Figures]| runs.iter().map(|run| run.sound(|run| run.ticks_per_packet)).collect::<Vec<_>>();
    let one = ticks(&of(0));
    let row = |(at, (hops, fold)): (usize, &(&str, bool))| Router {
        usecase: Pipeline::new("l2l3", &[hops]).name,
        fold: *fold,
        summary: Figures::together(&of(at)).summary(),
        to_one: Ratio::of(&ticks(&of(at)), &one),
    };
    Ok(routers.iter().enumerate().map(row).collect())
}

fn scenario((hops, on): &(&'static str, bool), span: Span) -> Result<Scenario, LabError> {
    let settings = [OBJECTIVE.to_owned(), "rate=max".to_owned(), fold(*on)];
    Pipeline::new("l2l3", &[hops]).keeping(PERCENTILE).under(&Rule::new("optimal"), &settings, span)
}
