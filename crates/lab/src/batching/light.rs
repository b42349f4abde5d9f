//! Light load, under which full batches take long to form, and traffic that stops. When traffic stops, a partial batch
//! would wait forever if it waited for more packets.
//!
//! Every run ends with a time without packets, so that the delay of every packet is known. The delays are those of the
//! whole run.

use forebay_units::Nanos;
use serde::Serialize;

use super::Extents;
use super::figures::{Figures, Summary};
use super::open::{OBJECTIVE, PERCENTILE};
use super::scenario::{Change, Pipeline, Rule, Scenario, Span, fold};
use super::testbed::{Run, Testbed};
use crate::{LabError, Progress};

const CONTROLLERS: &[&str] = &["null", "max", "optimal"];
/// The rates of light traffic, in packets per second.
const RATES: &[f64] = &[1e3, 1e4, 1e5];
/// The rate of traffic that stops repeatedly, in packets per second while it flows.
const STOPPING: f64 = 4e5;
/// The distributions of packets over time, as settings of the generator.
const ARRIVALS: &[&str] = &["constant", "poisson"];
/// The number of periods of a run after the controller has settled.
const PERIODS: u32 = 100;
/// The last periods of a run have no packets: the last quarter of the periods, that is, one in `REST`.
const REST: u32 = 4;
/// Traffic that stops repeatedly flows for this number of periods, then pauses for the same number.
const TURN: u32 = 2;
/// The rate of a pause, as a multiple of the configured rate: at most about one packet in an hour. At rate 0 a source
/// would end, and simulated time would stand still until the source restarts.
const PAUSE_RATE: f64 = 1e-9;

/// A run with little traffic, or with traffic that stops.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Light {
    /// The use case with its sizes.
    pub usecase: String,
    /// The distribution of packets over time.
    pub arrivals: String,
    /// The packets per second that were due while traffic flowed.
    pub offered_pps: f64,
    /// Whether the traffic stopped repeatedly.
    pub stops: bool,
    /// The controller.
    pub controller: &'static str,
    /// The packets of the whole run that left.
    pub packets: u64,
    /// The packets whose delay was above their objective.
    pub late: u64,
    /// The packets that still waited at the end.
    pub waiting: u64,
    /// The largest delay of the whole run, in microseconds. `None` if no packet left.
    pub max_us: Option<f64>,
    /// The largest delay as a multiple of the objective.
    pub max_of_slo: Option<f64>,
    /// The summary of the run.
    #[serde(flatten)]
    pub summary: Summary,
}

/// Traffic: its distribution over time, its rate, and whether it stops repeatedly.
type Traffic = (&'static str, f64, bool);

/// Performs all runs.
pub(super) fn measure(
    testbed: &Testbed,
    extents: &Extents,
    progress: &mut dyn Progress,
) -> Result<Vec<Light>, LabError> {
    let pipeline = Pipeline::new("gw", &[if extents.short { "n=4" } else { "n=16" }]).keeping(PERCENTILE);
    let span = extents.lasting(PERIODS);
    let (mut wanted, mut scenarios) = (Vec::new(), Vec::new());
    for traffic in traffic() {
        for controller in CONTROLLERS {
            scenarios.push(scenario(&pipeline, controller, traffic, span)?);
            wanted.push((traffic, *controller));
        }
    }
    let runs = testbed.all(&scenarios, progress, |run| run)?;
    let name = &pipeline.name;
    Ok(wanted.into_iter().zip(&runs).map(|(wanted, run)| Light::of(run, testbed, name, wanted)).collect())
}

/// Returns the traffic of all runs.
fn traffic() -> Vec<Traffic> {
    let light = RATES.iter().flat_map(|rate| ARRIVALS.iter().map(|arrivals| (*arrivals, *rate, false)));
    light.chain(ARRIVALS.iter().map(|arrivals| (*arrivals, STOPPING, true))).collect()
}

fn scenario(
    pipeline: &Pipeline,
    controller: &'static str,
    (arrivals, rate, stops): Traffic,
    span: Span,
) -> Result<Scenario, LabError> {
    let spread = format!("ports.in.generator.arrivals={arrivals}");
    // Branches are not folded, because folding keeps batches whole. Behind the split, packets would hardly wait for
    // further packets.
    let settings = [OBJECTIVE.to_owned(), fold(false), format!("rate={rate:.0}pps"), spread];
    let mut scenario = pipeline.under(&Rule::new(controller), &settings, span)?;
    scenario.changes = steps(span, stops);
    Ok(scenario)
}

/// Returns the times at which traffic stops and restarts.
fn steps(span: Span, stops: bool) -> Vec<(Nanos, Change)> {
    let at = |period: u32| Nanos(span.settled().0 + span.period.0 * u64::from(period));
    let rest = span.periods - span.periods.div_ceil(REST);
    let turns = (0..rest).step_by(TURN as usize).filter(|_| stops).enumerate();
    let mut steps: Vec<_> =
        turns.map(|(turn, period)| (at(period), Change::Offer(if turn % 2 == 0 { PAUSE_RATE } else { 1.0 }))).collect();
    steps.push((at(rest), Change::Offer(PAUSE_RATE)));
    steps
}

impl Light {
    /// Evaluates a run. The packets and delays are those of the whole run; the summary covers the settled time.
    fn of(run: &Run, testbed: &Testbed, usecase: &str, (traffic, controller): (Traffic, &'static str)) -> Self {
        let (arrivals, offered_pps, stops) = traffic;
        let (flows, packets) = (&run.whole.flows, &run.report.packets);
        let slowest = flows.iter().filter_map(|flow| Some((flow.delay_us.max?, flow.slo_us)));
        let slowest = slowest.max_by(|one, other| one.0.total_cmp(&other.0));
        Self {
            usecase: usecase.to_owned(),
            arrivals: arrivals.to_owned(),
            offered_pps,
            stops,
            controller,
            packets: flows.iter().map(|flow| flow.packets).sum(),
            late: flows.iter().filter_map(|flow| flow.violations).sum(),
            waiting: packets.queued + packets.held,
            max_us: slowest.map(|(max, _)| max),
            max_of_slo: slowest.and_then(|(max, slo)| Some(max / slo?)),
            summary: Figures::of(run, testbed.hertz()).summary(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batching::costs::Costs;

    fn run(controller: &'static str, traffic: Traffic) -> Light {
        let pipeline = Pipeline::new("gw", &["n=4"]).keeping(PERCENTILE);
        let span = Span { period: Nanos(2_000_000), periods: 40 };
        let testbed = Testbed::new(true, Costs::published(), Default::default());
        let run = testbed.run(&scenario(&pipeline, controller, traffic, span).expect("a use case")).expect("it runs");
        Light::of(&run, &testbed, &pipeline.name, (traffic, controller))
    }

    #[test]
    fn traffic_restarts_and_stops_at_the_end() {
        let span = Span { period: Nanos(10_000_000), periods: 8 };
        let offers = |stops| -> Vec<f64> {
            let offer = |(_, step)| if let Change::Offer(factor) = step { factor } else { f64::NAN };
            steps(span, stops).into_iter().map(offer).collect()
        };
        assert_eq!((offers(false), offers(true)), (vec![PAUSE_RATE], vec![PAUSE_RATE, 1.0, PAUSE_RATE, PAUSE_RATE]));
        assert!(steps(span, true).iter().all(|(at, _)| *at < span.end()));
    }

    #[test]
    fn optimal_does_not_wait_for_full_batches() {
        for traffic in [("poisson", 1e4, false), ("constant", 4e5, true)] {
            let (max, optimal) = (run("max", traffic), run("optimal", traffic));
            assert!(optimal.late == 0 && optimal.max_of_slo <= Some(1.0) && optimal.waiting == 0, "{optimal:?}");
            // Regression: stopping traffic did not pause for any time. It had more packets than under `max`, where some
            // still wait.
            assert!(optimal.packets.abs_diff(max.packets + max.waiting) <= 500, "{optimal:?} {max:?}");
            assert!(optimal.packets > 0 && max.max_of_slo > optimal.max_of_slo, "{max:?}");
        }
        let max = run("max", ("constant", 1e4, false));
        assert!(max.max_of_slo > Some(2.0) && max.late > 0, "max misses the objective: {max:?}");
    }
}
