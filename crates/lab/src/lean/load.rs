//! Measures the busy share of a worker by the rate, from idle to saturation.
//!
//! By the paper's equation 6, packets per second are proportional to the busy share, as long as the instructions per
//! packet and per cycle do not change. The paper observes that they change at high load. The same holds here: when the
//! worker is hardly ever idle, batches begin to grow. From there on, a packet becomes cheaper as the rate rises.

use std::time::Duration;

use serde::Serialize;

use crate::trial::{Case, away, is_void, missing};
use crate::{LabError, Progress};

/// A run at one rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The requested rate, as a share of the capacity.
    pub share: f64,
    /// The packets per second that were due.
    pub offered_pps: f64,
    /// The packets per second that entered.
    pub entered_pps: f64,
    /// The share of due packets that found the source's queue full.
    pub lost: f64,
    /// The effective CPU utilisation: the busy share of the worker's time.
    pub cur: f64,
    /// The ticks of busy turns per packet that entered.
    pub cpp_ticks: Option<f64>,
    /// The mean number of packets per call of the chain's first module.
    pub batch_mean: Option<f64>,
    /// The number of packets of the run that are unaccounted for.
    pub missing: i64,
    /// The share of the run in which the machine was busy elsewhere.
    pub away: f64,
    /// Whether the run is void, because the machine was busy elsewhere for too long.
    pub void: bool,
}

/// The runs at all rates.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Load {
    /// The use case that was run, without its rate.
    pub case: Case,
    /// The capacity: the packets per second that the worker accepts from a source that offers more.
    pub capacity_pps: f64,
    /// The runs, sorted by rate.
    pub points: Vec<Point>,
}

/// Returns the rates, as shares of the capacity.
pub(super) fn shares(short: bool) -> &'static [f64] {
    if short {
        &[0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.2]
    } else {
        &[
            0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9,
            0.95, 1.0, 1.05, 1.1, 1.2,
        ]
    }
}

/// Finds the capacity, then runs at each rate. Makes two progress steps more than there are rates.
pub(super) fn measure(short: bool, span: Duration, progress: &mut dyn Progress) -> Result<Load, LabError> {
    let case = Case::new("sfc_b", &["stages=1"]);
    progress.step("capacity, without a schedule");
    let most = case.clone().with("rate=max".to_owned()).run(span)?;
    let rate = most.report.packets.entered as f64 / most.report.duration_s;
    // A source with a schedule costs more than a source without one. Therefore, the capacity is measured with a
    // schedule.
    progress.step("capacity");
    let capacity_pps = at(&case, rate * 1.5, 1.5, span)?.entered_pps;
    let mut points = Vec::new();
    for share in shares(short) {
        progress.step(&format!("{} % of the capacity", share * 100.0));
        points.push(at(&case, capacity_pps * share, *share, span)?);
        if progress.is_stopped() {
            break;
        }
    }
    Ok(Load { case, capacity_pps, points })
}

/// Runs the case at `rate` packets per second, at least 1. `share` is copied into the result.
fn at(case: &Case, rate: f64, share: f64, span: Duration) -> Result<Point, LabError> {
    let timed = case.clone().with(format!("rate={}pps", rate.round().max(1.0))).run(span)?;
    let report = &timed.report;
    let (received, dropped) = report
        .ports
        .iter()
        .fold((0, 0), |(received, dropped), port| (received + port.received, dropped + port.dropped));
    let due = received + dropped;
    Ok(Point {
        share,
        offered_pps: due as f64 / report.duration_s,
        entered_pps: received as f64 / report.duration_s,
        lost: if due > 0 { dropped as f64 / due as f64 } else { 0.0 },
        cur: timed.cur(),
        cpp_ticks: timed.cpp(),
        batch_mean: report.modules.first().and_then(|module| module.batch_mean),
        missing: missing(&timed),
        away: away(&timed),
        void: is_void(&timed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_rise_from_idle_to_beyond_saturation() {
        for short in [false, true] {
            let shares = shares(short);
            assert!(shares.windows(2).all(|pair| pair[0] < pair[1]) && shares[shares.len() - 1] > 1.0);
        }
    }

    #[test]
    fn a_run_at_a_rate_accounts_for_its_packets() {
        let point = at(&Case::new("sfc_b", &["stages=1"]), 2_000.0, 0.01, Duration::from_millis(100)).expect("it runs");
        assert!(point.missing == 0 && point.cur > 0.0 && point.cur <= 1.0, "{point:?}");
        // The number of packets that enter in such a short time depends on the machine. The due packets are always
        // those that entered plus those that were lost.
        assert!(
            (point.offered_pps * (1.0 - point.lost) - point.entered_pps).abs() < 1e-6 * point.offered_pps,
            "{point:?}"
        );
    }
}
