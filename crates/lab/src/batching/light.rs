//! Light load, under which a full batch is long in coming, and traffic that stops, after which none comes at all.
//!
//! In the end of every run nothing more comes, so that there is no packet whose delay is not known; and delays are of the whole run.

use forebay_measure::Nanos;
use serde::Serialize;

use super::Extents;
use super::figures::{Figures, Told};
use super::open::{OBJECTIVE, PERCENTILE};
use super::place::{Place, Run};
use super::scenario::{Pipeline, Rule, Scenario, Span, Step, fold};
use crate::{LabError, Progress};

const CONTROLLERS: &[&str] = &["null", "max", "optimal"];
/// Packets a second, and those of traffic that stops again and again.
const RATES: &[f64] = &[1e3, 1e4, 1e5];
const STOPPING: f64 = 4e5;
const ARRIVALS: &[&str] = &["constant", "poisson"];
const PERIODS: u32 = 100;
/// Periods of which the last one is without packets in the end, and those that traffic which stops comes and stays away.
const REST: u32 = 4;
const TURN: u32 = 2;
/// Next to nothing, a packet in an hour or so: a source of nothing at all is at its end, and simulated time would stand still until it
/// comes again.
const NOTHING: f64 = 1e-9;

/// A run with little traffic, or with traffic that stops.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Light {
    /// The use case with its sizes.
    pub usecase: String,
    /// How packets are spread over time.
    pub arrivals: String,
    /// Packets a second that were due while they came.
    pub offered_pps: f64,
    /// Whether they stopped again and again.
    pub stops: bool,
    /// The controller.
    pub controller: &'static str,
    /// Packets of the whole run that left.
    pub packets: u64,
    /// Those of them that were above their objective.
    pub late: u64,
    /// Packets that still waited in the end.
    pub waiting: u64,
    /// The largest delay of the whole run, in microseconds; `None` where nothing left.
    pub max_us: Option<f64>,
    /// That in parts of the objective.
    pub max_of_slo: Option<f64>,
    /// Figures.
    #[serde(flatten)]
    pub told: Told,
}

/// Traffic: how it is spread, its rate, and whether it stops again and again.
type Traffic = (&'static str, f64, bool);

/// Makes all runs.
pub(super) fn measure(place: &Place, extents: &Extents, progress: &mut dyn Progress) -> Result<Vec<Light>, LabError> {
    let pipeline = Pipeline::new("gw", &[if extents.short { "n=4" } else { "n=16" }]).keeping(PERCENTILE);
    let span = extents.lasting(PERIODS);
    let (mut wanted, mut scenarios) = (Vec::new(), Vec::new());
    for traffic in traffic() {
        for controller in CONTROLLERS {
            scenarios.push(scenario(&pipeline, controller, traffic, span)?);
            wanted.push((traffic, *controller));
        }
    }
    let runs = place.all(&scenarios, progress, |run| run)?;
    let name = &pipeline.name;
    Ok(wanted.into_iter().zip(&runs).map(|(wanted, run)| Light::of(run, place, name, wanted)).collect())
}

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
    // Folded there is nothing to wait for.
    let settings = [OBJECTIVE.to_owned(), fold(false), format!("rate={rate:.0}pps"), spread];
    let mut scenario = pipeline.under(&Rule::new(controller), &settings, span)?;
    scenario.steps = steps(span, stops);
    Ok(scenario)
}

/// When packets stop and come again.
fn steps(span: Span, stops: bool) -> Vec<(Nanos, Step)> {
    let at = |period: u32| Nanos(span.settled().0 + span.period.0 * u64::from(period));
    let rest = span.periods - span.periods.div_ceil(REST);
    let turns = (0..rest).step_by(TURN as usize).filter(|_| stops).enumerate();
    let mut steps: Vec<_> =
        turns.map(|(turn, period)| (at(period), Step::Offer(if turn % 2 == 0 { NOTHING } else { 1.0 }))).collect();
    steps.push((at(rest), Step::Offer(NOTHING)));
    steps
}

impl Light {
    fn of(run: &Run, place: &Place, usecase: &str, (traffic, controller): (Traffic, &'static str)) -> Self {
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
            told: Figures::of(run, place.hertz()).told(),
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
        let place = Place::new(true, Costs::published(), Default::default());
        let run = place.run(&scenario(&pipeline, controller, traffic, span).expect("a use case")).expect("it runs");
        Light::of(&run, &place, &pipeline.name, (traffic, controller))
    }

    #[test]
    fn what_stops_comes_again_and_stops_in_the_end() {
        let span = Span { period: Nanos(10_000_000), periods: 8 };
        let offers = |stops| -> Vec<f64> {
            let offer = |(_, step)| if let Step::Offer(factor) = step { factor } else { f64::NAN };
            steps(span, stops).into_iter().map(offer).collect()
        };
        assert_eq!((offers(false), offers(true)), (vec![NOTHING], vec![NOTHING, 1.0, NOTHING, NOTHING]));
        assert!(steps(span, true).iter().all(|(at, _)| *at < span.end()));
    }

    #[test]
    fn full_batches_are_long_in_coming_and_optimal_does_not_wait_for_them() {
        for traffic in [("poisson", 1e4, false), ("constant", 4e5, true)] {
            let (max, optimal) = (run("max", traffic), run("optimal", traffic));
            assert!(optimal.late == 0 && optimal.max_of_slo <= Some(1.0) && optimal.waiting == 0, "{optimal:?}");
            // What stops was once not away for any time: more packets came than under max, which has some of them wait.
            assert!(optimal.packets.abs_diff(max.packets + max.waiting) <= 500, "{optimal:?} {max:?}");
            assert!(optimal.packets > 0 && max.max_of_slo > optimal.max_of_slo, "{max:?}");
        }
        let max = run("max", ("constant", 1e4, false));
        assert!(max.max_of_slo > Some(2.0) && max.late > 0, "there is something to break: {max:?}");
    }
}
