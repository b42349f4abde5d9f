//! What controlled batches gain over none, by the number of branches and by what costs and traffic are like (Batchy, Fig. 8). Always in
//! simulated time, where modules of any cost can be had.

use forebay_graph::Cost;
use serde::Serialize;

use super::costs::BATCH;
use super::figures::{Figures, mean_delay_us};
use super::interval::Ratio;
use super::place::{Place, Run};
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
    /// Packets of `optimal` against those of `null`, period by period.
    pub to_null: Option<Ratio>,
    /// The same of `gradient`.
    pub gradient_to_null: Option<Ratio>,
}

/// The least of an interval that is no worse than `null`.
pub(super) const NO_WORSE: f64 = 0.97;
/// What is gained at least, even for bursty traffic (Batchy, section 6).
pub(super) const CLAIM: f64 = 1.2;

/// What is said of all places, and of how many it is true. A place without an interval is one of which it is not.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Claims {
    /// Places.
    pub places: usize,
    /// Those where `optimal` is never worse: its interval against `null` is above 0.97.
    pub no_worse: usize,
    /// The least end of all intervals.
    pub least: Option<f64>,
    /// Places where `optimal` carries at least 1.2 times the packets of `null`.
    pub gained: usize,
    /// Places with bursts.
    pub bursty: usize,
    /// Those of them where `optimal` carries at least 1.2 times the packets of `null`: branches and packets of a burst.
    pub bursty_gained: Vec<(usize, usize)>,
}

impl Claims {
    /// Of these places.
    pub(super) fn of(gains: &[Gain]) -> Self {
        let low = |gain: &Gain| gain.to_null.and_then(|ratio| Some(ratio.interval?.0));
        let gained = |gain: &&Gain| gain.optimal >= CLAIM;
        let bursty = || gains.iter().filter(|gain| gain.burst > 1);
        Self {
            places: gains.len(),
            no_worse: gains.iter().filter(|gain| low(gain).is_some_and(|low| low > NO_WORSE)).count(),
            least: gains.iter().filter_map(low).min_by(f64::total_cmp),
            gained: gains.iter().filter(gained).count(),
            bursty: bursty().count(),
            bursty_gained: bursty().filter(gained).map(|gain| (gain.branches, gain.burst)).collect(),
        }
    }
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
    let figures = simulated.all(&scenarios, progress, |run| (Figures::of(&run, simulated.hertz()), rates(&run)))?;
    let gains = places.iter().zip(figures.chunks(3)).map(|(at, runs)| {
        let [to_null, gradient_to_null] = [1, 2].map(|rule: usize| Ratio::of(&runs[rule].1, &runs[0].1));
        let runs: Vec<_> = runs.iter().map(|(figures, _)| figures).collect();
        let gain = |run: &Figures| run.rate_pps / runs[0].rate_pps.max(f64::MIN_POSITIVE);
        let (branches, batchiness, burst) = *at;
        let [violated, gradient_violated] = [1, 2].map(|rule: usize| runs[rule].tally.violated());
        let [optimal, gradient] = [1, 2].map(|rule: usize| gain(runs[rule]));
        Gain { branches, batchiness, burst, optimal, gradient, violated, gradient_violated, to_null, gradient_to_null }
    });
    Ok(gains.collect())
}

/// Packets a second, by period. Simulated runs of one place are the same every time; what there is to vary is what a controller does from
/// period to period, so that pairs are made of these.
fn rates(run: &Run) -> Vec<Option<f64>> {
    run.settled().iter().map(|moment| Some(moment.rate_pps)).collect()
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
        let span = Span { period: forebay_measure::Nanos(1_000_000), periods: 1 };
        let places = places(&Extents {
            short: false,
            span,
            most: None,
            runs: 1,
            stated_runs: None,
            usecases: Vec::new(),
            captures: None,
        });
        assert_eq!(places.len(), BRANCHES.len() * (BATCHINESS.len() + BURSTS.len() - 1));
        assert!(places.contains(&(16, USUAL, 1)) && places.contains(&(16, USUAL, 32)));
    }

    #[test]
    fn a_place_that_is_worse_or_of_which_nothing_is_known_is_not_counted() {
        let gain = |burst, median, interval| Gain {
            branches: 8,
            batchiness: USUAL,
            burst,
            optimal: median,
            gradient: median,
            violated: 0.0,
            gradient_violated: 0.0,
            to_null: Some(Ratio { median, interval, pairs: 20 }),
            gradient_to_null: None,
        };
        let gains = [
            gain(1, 1.5, Some((1.4, 1.6))),
            gain(8, 1.2, Some((0.98, 1.3))),
            gain(16, 1.0, Some((0.96, 1.1))),
            gain(32, 1.1, None),
        ];
        let told = Claims::of(&gains);
        assert_eq!((told.places, told.no_worse, told.least), (4, 2, Some(0.96)));
        assert_eq!((told.gained, told.bursty, told.bursty_gained), (2, 3, vec![(8, 8)]));
    }
}
