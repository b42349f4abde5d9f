//! Objectives that were missed only because the machine ran something else on a worker's core.
//!
//! The pipeline does not cause these misses, so the reader of a report should look at the machine first.

use forebay_protocol::report::{FlowReport, Report, WorkerReport};
use forebay_units::Percentile;

/// If a worker was without its core for less than this fraction of the time, the missing time explains no miss.
const LEAST: f64 = 0.005;
/// A worker that needs more than this share of a core is overloaded with or without the machine.
const OVERLOADED: f64 = 0.95;

/// Marks each flow whose misses are explained by the time without a core.
pub(super) fn mark_machine_misses(report: &mut Report) {
    let explained = explained(&report.workers);
    for flow in &mut report.flows {
        flow.missed_by_machine = explained > 0.0 && flow.is_missed() && missing(flow) <= explained;
    }
}

/// Returns the largest share of late packets that the machine explains.
///
/// A report does not contain the workers of a flow. So the machine explains a miss only if each worker alone would
/// explain it.
fn explained(workers: &[WorkerReport]) -> f64 {
    workers.iter().map(late_without_core).reduce(f64::min).unwrap_or(0.0)
}

/// Returns the largest share of packets that can be late because the worker is without its core for a part of the time.
///
/// Three groups of packets are late: the packets that arrive in that time, about the same number of packets that waited
/// when it began, and the packets that arrive while the worker processes the backlog. A busier worker needs longer for
/// the backlog.
fn late_without_core(worker: &WorkerReport) -> f64 {
    let (away, work) = (worker.without_core(), worker.busy - worker.machine_stalls.busy_share);
    if away < LEAST || work > OVERLOADED {
        return 0.0;
    }
    (2.0 * away / (1.0 - work.max(0.0))).min(1.0)
}

/// Returns the share of packets by which a flow misses its objectives: the larger of its shares for the delay and the
/// rate.
fn missing(flow: &FlowReport) -> f64 {
    let late = match (flow.kept, flow.violations, flow.percentile) {
        (Some(false), Some(late), Some(percentile)) if flow.packets > 0 => {
            // If the objective is for the mean, all late packets count.
            let allowed = if let Percentile::Of(percentile) = percentile { 1.0 - percentile / 100.0 } else { 0.0 };
            late as f64 / flow.packets as f64 - allowed
        }
        _ => 0.0,
    };
    let in_bits = || flow.rate_bps.zip(flow.min_rate_bps);
    let slow = match (flow.rate_kept, flow.min_rate_pps.map(|least| (flow.rate_pps, least)).or_else(in_bits)) {
        (Some(false), Some((has, least))) if least > 0.0 => 1.0 - has / least,
        _ => 0.0,
    };
    late.max(slow)
}

#[cfg(test)]
mod tests {
    use forebay_protocol::report::{Delay, Stalls};

    use super::*;

    fn worker(away: f64, busy: f64) -> WorkerReport {
        let machine_stalls = Stalls { turns: 9, share: away, busy_share: 0.0 };
        WorkerReport { busy, machine_stalls, ..WorkerReport::default() }
    }

    fn flow(late: u64) -> FlowReport {
        FlowReport {
            name: "video".to_owned(),
            packets: 1_000,
            rate_pps: 1_000.0,
            delay_us: Delay::default(),
            delay_counts: None,
            slo_us: Some(1_000.0),
            percentile: Some(Percentile::Of(95.0)),
            at_percentile_us: None,
            violations: Some(late),
            kept: Some(late <= 50),
            min_rate_pps: None,
            min_rate_bps: None,
            rate_bps: None,
            turned_away: None,
            rate_kept: None,
            missed_by_machine: false,
        }
    }

    #[test]
    fn time_without_a_core_explains_as_many_late_packets_as_it_can() {
        assert_eq!(late_without_core(&worker(0.0, 0.5)), 0.0);
        assert_eq!(late_without_core(&worker(0.1, 0.5)), 0.4);
        assert_eq!(late_without_core(&worker(0.5, 0.5)), 1.0);
        // The pipeline is too much for a whole core.
        assert_eq!(late_without_core(&worker(0.1, 0.97)), 0.0);
    }

    #[test]
    fn unexplained_misses_are_those_of_the_pipeline() {
        assert!(missing(&flow(250)) <= 0.2 && missing(&flow(40)) == 0.0);
        let slow = FlowReport { min_rate_pps: Some(2_000.0), rate_kept: Some(false), ..flow(0) };
        assert_eq!(missing(&slow), 0.5);
        let in_bits = FlowReport { min_rate_bps: Some(4e6), rate_bps: Some(3e6), min_rate_pps: None, ..slow };
        assert_eq!(missing(&in_bits), 0.25);
    }

    /// Once, a disturbed worker excused misses of flows on another worker.
    #[test]
    fn a_worker_that_keeps_its_core_explains_no_miss() {
        assert!(explained(&[worker(0.2, 0.5), worker(0.2, 0.5)]) > 0.0);
        assert_eq!(explained(&[worker(0.2, 0.5), worker(0.0, 0.5)]), 0.0);
        assert_eq!(explained(&[]), 0.0);
    }
}
