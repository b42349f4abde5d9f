//! Measures the gain of controlled batches over the controller `null`, which holds no packets back, by the number of
//! branches, the costs and the traffic (Batchy, Fig. 8). The runs are always in simulated time, where modules can have
//! any cost.

use forebay_graph::Cost;
use serde::Serialize;

use super::costs::BATCH;
use super::figures::{Figures, mean_delay_us};
use super::interval::Ratio;
use super::scenario::{Pipeline, Rule, Scenario, Span};
use super::settled::objective;
use super::testbed::{Run, Testbed};
use super::{Extents, basis};
use crate::{LabError, Progress};

/// The time that a single packet takes in each module, in nanoseconds.
const ALONE: f64 = 200.0;
/// The batchiness (see [`ContourGain::batchiness`]) of all points with bursts. Real modules in the paper have 0.2 to
/// 0.3.
const USUAL: f64 = 0.25;
/// The numbers of branches, for both planes: branches by batchiness, and branches by burst.
const BRANCHES: &[usize] = &[1, 2, 4, 8, 16, 32, 64];
/// The values of the batchiness, with bursts of one packet.
const BATCHINESS: &[f64] = &[0.05, 0.1, 0.2, 0.25, 0.3, 0.5, 0.7, 0.9, 1.0];
/// The lengths of bursts, in packets, with the usual batchiness.
const BURSTS: &[usize] = &[1, 2, 4, 8, 16, 32];
/// The number of periods of a run that count.
const PERIODS: u32 = 20;

/// The gain at one point of the parameter plane.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ContourGain {
    /// The number of branches.
    pub branches: usize,
    /// The cost of a packet in a full batch, as a share of its cost alone.
    pub batchiness: f64,
    /// The number of consecutive packets of the same branch.
    pub burst: usize,
    /// The packets per second of `optimal` as a multiple of those of `null`.
    pub optimal: f64,
    /// The packets per second of `gradient` as a multiple of those of `null`.
    pub gradient: f64,
    /// The share of periods in which `optimal` missed an objective.
    pub violated: f64,
    /// The share of periods in which `gradient` missed an objective.
    pub gradient_violated: f64,
    /// The packets of `optimal` relative to those of `null`, compared period by period.
    pub to_null: Option<Ratio>,
    /// The packets of `gradient` relative to those of `null`, compared period by period.
    pub gradient_to_null: Option<Ratio>,
}

/// A controller counts as no worse than `null` if the lower end of the interval of its ratio to `null` is above this
/// value.
pub(super) const NO_WORSE: f64 = 0.97;
/// The smallest gain that the paper claims, even for bursty traffic (Batchy, section 6).
pub(super) const CLAIM: f64 = 1.2;

/// The claims about all points, and the number of points at which they hold. A claim does not hold at a point without
/// an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Claims {
    /// The number of points.
    pub places: usize,
    /// The number of points at which `optimal` is no worse than `null`: the interval of the ratio lies above 0.97.
    pub no_worse: usize,
    /// The smallest lower end of all intervals. `None` if there are no intervals.
    pub least: Option<f64>,
    /// The number of points at which `optimal` carries at least 1.2 times the packets of `null`.
    pub gained: usize,
    /// The number of points with bursts.
    pub bursty: usize,
    /// The points with bursts at which `optimal` carries at least 1.2 times the packets of `null`, as (branches,
    /// packets of a burst).
    pub bursty_gained: Vec<(usize, usize)>,
}

impl Claims {
    /// Evaluates the claims for these points.
    pub(super) fn of(gains: &[ContourGain]) -> Self {
        let low = |gain: &ContourGain| gain.to_null.and_then(|ratio| Some(ratio.interval?.0));
        let gained = |gain: &&ContourGain| gain.optimal >= CLAIM;
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

/// Measures both planes: branches by batchiness, and branches by burst.
pub(super) fn measure(
    testbed: &Testbed,
    extents: &Extents,
    progress: &mut dyn Progress,
) -> Result<Vec<ContourGain>, LabError> {
    let simulated = testbed.simulated();
    let points = points(extents);
    let span = Span { periods: PERIODS.min(extents.span.periods), ..extents.span };
    let scenario = |at: &(usize, f64, usize), rule: &'static str, slo: Option<String>| -> Result<Scenario, LabError> {
        let (branches, batchiness, burst) = *at;
        let pipeline = Pipeline::new("l2l3", &[&format!("n={branches}")]).costing(cost(batchiness));
        let mut settings =
            vec!["rate=max".to_owned(), "fold=off".to_owned(), format!("ports.in.generator.burst={burst}")];
        settings.extend(slo);
        pipeline.under(&Rule::new(rule), &settings, span)
    };
    let max: Vec<_> = points.iter().map(|at| scenario(at, "max", None)).collect::<Result<_, _>>()?;
    let means = basis::measure(&simulated, &max, progress, |run| [mean_delay_us(run, false)])?;
    let mut scenarios = Vec::new();
    for (at, [mean]) in points.iter().zip(means) {
        let slo = objective(mean);
        for rule in ["null", "optimal", "gradient"] {
            scenarios.push(scenario(at, rule, Some(format!("slo={}ns", slo.0)))?);
        }
    }
    let figures = simulated.all(&scenarios, progress, |run| (Figures::of(&run, simulated.hertz()), rates(&run)))?;
    let gains = points.iter().zip(figures.chunks(3)).map(|(at, runs)| {
        let [to_null, gradient_to_null] = [1, 2].map(|rule: usize| Ratio::of(&runs[rule].1, &runs[0].1));
        let runs: Vec<_> = runs.iter().map(|(figures, _)| figures).collect();
        let gain = |run: &Figures| run.rate_pps / runs[0].rate_pps.max(f64::MIN_POSITIVE);
        let (branches, batchiness, burst) = *at;
        let [violated, gradient_violated] = [1, 2].map(|rule: usize| runs[rule].tally.violated());
        let [optimal, gradient] = [1, 2].map(|rule: usize| gain(runs[rule]));
        ContourGain {
            branches,
            batchiness,
            burst,
            optimal,
            gradient,
            violated,
            gradient_violated,
            to_null,
            gradient_to_null,
        }
    });
    Ok(gains.collect())
}

/// Returns the packets per second of each period. Simulated runs of the same point are equal, so runs cannot be paired.
/// The periods of a run differ, because the controller decides in each period. So the pairs are made of periods.
fn rates(run: &Run) -> Vec<Option<f64>> {
    run.settled().iter().map(|moment| Some(moment.rate_pps)).collect()
}

/// Returns the points of both planes, each as (branches, batchiness, packets of a burst).
fn points(extents: &Extents) -> Vec<(usize, f64, usize)> {
    let short = extents.short;
    let branches = if short { &[1, 4] } else { BRANCHES };
    let batchiness = if short { &[USUAL, 1.0] } else { BATCHINESS };
    let bursts = if short { &[1, 8] } else { BURSTS };
    let mut points: Vec<_> = branches.iter().flat_map(|n| batchiness.iter().map(|beta| (*n, *beta, 1))).collect();
    points.extend(
        branches.iter().flat_map(|n| bursts.iter().filter(|burst| **burst > 1).map(|burst| (*n, USUAL, *burst))),
    );
    points
}

/// Returns the cost of calls, in nanoseconds, for a batchiness of `(T0 + B·T1) / (B·(T0 + T1))`. `B` is [`BATCH`], and
/// `T0 + T1` is [`ALONE`].
fn cost(batchiness: f64) -> Cost {
    let batch = BATCH as f64;
    let packet = (ALONE * (batchiness * batch - 1.0) / (batch - 1.0)).round().clamp(0.0, ALONE);
    Cost { per_batch: (ALONE - packet) as u64, per_packet: packet as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_have_the_requested_batchiness() {
        for requested in BATCHINESS {
            let Cost { per_batch, per_packet } = cost(*requested);
            let full = per_batch as f64 + BATCH as f64 * per_packet as f64;
            let actual = full / (BATCH as f64 * (per_batch + per_packet) as f64);
            assert!((actual - requested).abs() < 0.005, "{actual} for {requested}");
            assert_eq!(per_batch + per_packet, 200);
        }
    }

    #[test]
    fn both_planes_meet_where_bursts_are_of_one_packet() {
        let span = Span { period: forebay_units::Nanos(1_000_000), periods: 1 };
        let points = points(&Extents {
            short: false,
            span,
            most: None,
            runs: 1,
            stated_runs: None,
            usecases: Vec::new(),
            captures: None,
        });
        assert_eq!(points.len(), BRANCHES.len() * (BATCHINESS.len() + BURSTS.len() - 1));
        assert!(points.contains(&(16, USUAL, 1)) && points.contains(&(16, USUAL, 32)));
    }

    #[test]
    fn a_point_that_is_worse_or_unknown_is_not_counted() {
        let gain = |burst, median, interval| ContourGain {
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
        let claims = Claims::of(&gains);
        assert_eq!((claims.places, claims.no_worse, claims.least), (4, 2, Some(0.96)));
        assert_eq!((claims.gained, claims.bursty, claims.bursty_gained), (2, 3, vec![(8, 8)]));
    }
}
