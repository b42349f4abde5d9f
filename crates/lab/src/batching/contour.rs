//! What controlled batches gain over none, by the number of branches and by what costs and traffic are like (Batchy, Fig. 8). Always in
//! simulated time, where modules of any cost can be had.

use forebay_graph::Cost;
use serde::Serialize;

use super::costs::BATCH;
use super::figures::{Figures, mean_delay_us};
use super::place::Place;
use super::scenario::{Pipeline, Rule, Scenario, Span};
use super::settled::objective;
use super::{Extents, basis};
use crate::{LabError, Progress};

/// What a packet takes alone in each module, in nanoseconds.
const ALONE: f64 = 200.0;
/// The batchiness that bursts are tried at: that of real modules in the paper is 0.2 to 0.3.
const USUAL: f64 = 0.25;
const BRANCHES: &[usize] = &[1, 2, 4, 8, 16, 32, 64];
const BATCHINESS: &[f64] = &[0.05, 0.1, 0.2, 0.25, 0.3, 0.5, 0.7, 0.9, 1.0];
const BURSTS: &[usize] = &[1, 2, 4, 8, 16, 32];
/// Periods of a run that count.
const PERIODS: u32 = 20;

/// What is gained at a place.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gain {
    /// Branches.
    pub branches: usize,
    /// What packets cost in full batches, in parts of what they cost alone.
    pub batchiness: f64,
    /// Packets of a branch that follow each other.
    pub burst: usize,
    /// Packets a second of `optimal` against those of `null`.
    pub optimal: f64,
    /// The same of `gradient`.
    pub gradient: f64,
    /// The share of periods in which `optimal` missed an objective.
    pub violated: f64,
    /// The same of `gradient`.
    pub gradient_violated: f64,
}

/// Both planes: branches by batchiness, and branches by burst.
pub(super) fn measure(place: &Place, extents: &Extents, progress: &mut dyn Progress) -> Result<Vec<Gain>, LabError> {
    let simulated = place.simulated();
    let places = places(extents);
    let span = Span { periods: PERIODS.min(extents.span.periods), ..extents.span };
    let scenario = |at: &(usize, f64, usize), rule: &'static str, slo: Option<String>| -> Result<Scenario, LabError> {
        let (branches, batchiness, burst) = *at;
        let pipeline = Pipeline::new("l2l3", &[&format!("n={branches}")]).costing(cost(batchiness));
        let mut settings =
            vec!["rate=max".to_owned(), "fold=off".to_owned(), format!("ports.in.generator.burst={burst}")];
        settings.extend(slo);
        pipeline.under(&Rule::new(rule), &settings, span)
    };
    let max: Vec<_> = places.iter().map(|at| scenario(at, "max", None)).collect::<Result<_, _>>()?;
    let means = basis::measure(&simulated, &max, progress, |run| [mean_delay_us(run, false)])?;
    let mut scenarios = Vec::new();
    for (at, [mean]) in places.iter().zip(means) {
        let slo = objective(mean);
        for rule in ["null", "optimal", "gradient"] {
            scenarios.push(scenario(at, rule, Some(format!("slo={}ns", slo.0)))?);
        }
    }
    let figures = simulated.all(&scenarios, progress, |run| Figures::of(&run, simulated.hertz()))?;
    let gains = places.iter().zip(figures.chunks(3)).map(|(at, runs)| {
        let gain = |run: &Figures| run.rate_pps / runs[0].rate_pps.max(f64::MIN_POSITIVE);
        let (branches, batchiness, burst) = *at;
        let [violated, gradient_violated] = [1, 2].map(|rule: usize| runs[rule].tally.violated());
        let [optimal, gradient] = [1, 2].map(|rule: usize| gain(&runs[rule]));
        Gain { branches, batchiness, burst, optimal, gradient, violated, gradient_violated }
    });
    Ok(gains.collect())
}

fn places(extents: &Extents) -> Vec<(usize, f64, usize)> {
    let short = extents.short;
    let branches = if short { &[1, 4] } else { BRANCHES };
    let batchiness = if short { &[USUAL, 1.0] } else { BATCHINESS };
    let bursts = if short { &[1, 8] } else { BURSTS };
    let mut places: Vec<_> = branches.iter().flat_map(|n| batchiness.iter().map(|beta| (*n, *beta, 1))).collect();
    places.extend(
        branches.iter().flat_map(|n| bursts.iter().filter(|burst| **burst > 1).map(|burst| (*n, USUAL, *burst))),
    );
    places
}

/// What calls cost at a batchiness: `(T0 + B·T1) / (B·(T0 + T1))`.
fn cost(batchiness: f64) -> Cost {
    let batch = BATCH as f64;
    let packet = (ALONE * (batchiness * batch - 1.0) / (batch - 1.0)).round().clamp(0.0, ALONE);
    Cost { per_batch: (ALONE - packet) as u64, per_packet: packet as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_have_the_batchiness_that_is_asked_for() {
        for asked in BATCHINESS {
            let Cost { per_batch, per_packet } = cost(*asked);
            let full = per_batch as f64 + BATCH as f64 * per_packet as f64;
            let told = full / (BATCH as f64 * (per_batch + per_packet) as f64);
            assert!((told - asked).abs() < 0.005, "{told} for {asked}");
            assert_eq!(per_batch + per_packet, 200);
        }
    }

    #[test]
    fn both_planes_meet_where_bursts_are_of_one_packet() {
        let extents =
            |short| Extents { short, span: Span { period: forebay_measure::Nanos(1_000_000), periods: 1 }, runs: 1 };
        let places = places(&extents(false));
        assert_eq!(places.len(), BRANCHES.len() * (BATCHINESS.len() + BURSTS.len() - 1));
        assert!(places.contains(&(16, USUAL, 1)) && places.contains(&(16, USUAL, 32)));
    }
}
