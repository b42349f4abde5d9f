//! What many next hops cost a router, apart and folded: workers' time a packet against that with one.
//!
//! Its objective is 1 ms, under which batches can be full however many branches there are.

use serde::Serialize;

use super::Extents;
use super::figures::{Figures, Told};
use super::interval::Ratio;
use super::open::{OBJECTIVE, PERCENTILE};
use super::place::Place;
use super::scenario::{Pipeline, Rule, Scenario, Span, fold};
use crate::{LabError, Progress};

/// Routers, by next hops, and whether they are folded: the first is what the others are measured by.
const ROUTERS: &[(&str, bool)] = &[("n=1", false), ("n=64", false), ("n=64", true)];
const SMALL: &[(&str, bool)] = &[("n=1", false), ("n=8", false), ("n=8", true)];

/// A router under `optimal`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Router {
    /// The use case with its sizes.
    pub usecase: String,
    /// Whether equal branches ran as one.
    pub fold: bool,
    /// Figures.
    #[serde(flatten)]
    pub told: Told,
    /// Ticks a packet against those with one next hop.
    pub to_one: Option<Ratio>,
}

/// Makes runs, in turn.
pub(super) fn measure(place: &Place, extents: &Extents, progress: &mut dyn Progress) -> Result<Vec<Router>, LabError> {
    let routers = if extents.short { SMALL } else { ROUTERS };
    // Nothing is drawn at random: simulated runs would be copies.
    let turns = if place.simulated { 1 } else { extents.runs };
    let turn = routers.iter().map(|router| scenario(router, extents.span)).collect::<Result<Vec<_>, _>>()?;
    let scenarios: Vec<_> = std::iter::repeat_n(turn, turns).flatten().collect();
    let runs = place.all(&scenarios, progress, |run| Figures::of(&run, place.hertz()))?;
    let of = |at: usize| runs.chunks(routers.len()).map(|turn| turn[at].clone()).collect::<Vec<_>>();
    let ticks = |runs: &[Figures]| runs.iter().map(|run| run.sound(|run| run.ticks_per_packet)).collect::<Vec<_>>();
    let one = ticks(&of(0));
    let row = |(at, (hops, fold)): (usize, &(&str, bool))| Router {
        usecase: Pipeline::new("l2l3", &[hops]).name,
        fold: *fold,
        told: Figures::together(&of(at)).told(),
        to_one: Ratio::of(&ticks(&of(at)), &one),
    };
    Ok(routers.iter().enumerate().map(row).collect())
}

fn scenario((hops, on): &(&'static str, bool), span: Span) -> Result<Scenario, LabError> {
    let settings = [OBJECTIVE.to_owned(), "rate=max".to_owned(), fold(*on)];
    Pipeline::new("l2l3", &[hops]).keeping(PERCENTILE).under(&Rule::new("optimal"), &settings, span)
}
