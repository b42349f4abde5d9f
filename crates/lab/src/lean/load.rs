//! How busy a worker is by the rate, from idle to saturation.
//!
//! The paper's equation 6 makes packets a second proportional to the time that is busy, as long as instructions per packet and
//! per cycle stay the same, and observes that at high load they do not. So it is here: batches begin to grow once the worker is
//! hardly ever idle, and from then on a packet costs less the more there are.

use std::time::Duration;

use serde::Serialize;

use crate::trial::{Case, away, is_void, missing};
use crate::{LabError, Progress};

/// A run at one rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The rate asked for, in parts of the capacity.
    pub share: f64,
    /// Packets a second that were due.
    pub offered_pps: f64,
    /// Packets a second that entered.
    pub entered_pps: f64,
    /// The share of those due that found the source's queue full.
    pub lost: f64,
    /// Effective CPU utilisation: the share of the worker's time that it was busy.
    pub cur: f64,
    /// Ticks of busy turns per packet that entered.
    pub cpp_ticks: Option<f64>,
    /// Packets a call of the chain's first module.
    pub batch_mean: Option<f64>,
    /// Packets of the run that are unaccounted for.
    pub missing: i64,
    /// The share of the run in which the machine was elsewhere.
    pub away: f64,
    /// Whether that was too much.
    pub void: bool,
}

/// All of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Load {
    /// What was run, at ever another rate.
    pub case: Case,
    /// Packets a second that it takes of a source that offers more.
    pub capacity_pps: f64,
    /// By rate.
    pub points: Vec<Point>,
}

/// The rates, in parts of the capacity.
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

/// Finds the capacity, then runs at each rate. Two steps more than there are rates.
pub(super) fn measure(short: bool, span: Duration, progress: &mut dyn Progress) -> Result<Load, LabError> {
    let case = Case::new("sfc_b", &["stages=1"]);
    progress.step("capacity, without a schedule");
    let most = case.clone().with("rate=max".to_owned()).run(span)?;
    let rate = most.report.packets.entered as f64 / most.report.duration_s;
    // A source that keeps to a schedule costs more than one that has none: what counts is what is taken of the former.
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

/// A run at a rate.
fn at(case: &Case, rate: f64, share: f64, span: Duration) -> Result<Point, LabError> {
    let timed = case.clone().with(format!("rate={}pps", rate.round())).run(span)?;
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
        // How many come in so short a time is the machine's affair; what is due is what entered and what was lost.
        assert!(
            (point.offered_pps * (1.0 - point.lost) - point.entered_pps).abs() < 1e-6 * point.offered_pps,
            "{point:?}"
        );
    }
}
