//! The samples of flows.

use forebay_protocol::report::{DelayCounts, FlowReport};

use super::groups::Groups;
use super::model::{Histogram, sum};
use super::modules::common;
use super::samples::Samples;
use super::table::FamilyId;

/// The bounds of the classic histogram of delays, in seconds: 1, 2, 5 and so on, from 1 µs to 10 s.
pub(super) const DELAY_BOUNDS: [f64; 22] = [
    1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5, 1.0, 2.0,
    5.0, 10.0,
];

/// Adds the samples of all flows. If `all` is true, there are no aggregates.
pub(super) fn add(samples: &mut Samples<'_>, flows: &[FlowReport], all: bool) {
    for group in &Groups::of_flows(flows, all).groups {
        let members = || group.members.iter().map(|at| &flows[*at]);
        let label = [("flow", group.label.as_str())];
        if group.is_aggregate {
            samples.number(FamilyId::FlowMembers, &label, group.members.len() as f64);
        }
        samples.count(FamilyId::FlowPackets, &label, sum(members().map(|flow| flow.packets)));
        let violations = members().filter_map(|flow| flow.violations).reduce(u64::saturating_add);
        if let Some(violations) = violations {
            samples.count(FamilyId::FlowViolations, &label, violations);
        }
        let delays = members().filter_map(|flow| flow.delay_counts.as_ref()).map(delays_of);
        if let Some(delays) = delays.reduce(merged) {
            samples.distribution(FamilyId::FlowDelay, &label, delays);
        }
        let objective = common(members().map(|flow| flow.slo_us));
        samples.some(FamilyId::FlowObjective, &label, objective.map(|micros| micros / 1e6));
        let share = common(members().map(|flow| flow.percentile?.share()));
        // 99.9 / 100 is not the number nearest to 0.999.
        samples.some(FamilyId::FlowPercentile, &label, share.map(|share| (share * 1e9).round() / 1e9));
        let longest = members().filter_map(|flow| flow.at_percentile_us).reduce(f64::max);
        samples.some(FamilyId::FlowDelayAtObjective, &label, longest.map(|micros| micros / 1e6));
        samples.flag(FamilyId::FlowKept, &label, all_kept(members().map(|flow| flow.kept)));
        samples.some(FamilyId::FlowMinRate, &label, common(members().map(|flow| flow.min_rate_pps)));
        let bits = common(members().map(|flow| flow.min_rate_bps));
        samples.some(FamilyId::FlowMinBytes, &label, bits.map(|bits| bits / 8.0));
        samples.flag(FamilyId::FlowRateKept, &label, all_kept(members().map(|flow| flow.rate_kept)));
        let turned_away = members().filter_map(|flow| flow.turned_away).reduce(u64::saturating_add);
        if let Some(turned_away) = turned_away {
            samples.count(FamilyId::FlowTurnedAway, &label, turned_away);
        }
    }
}

/// Returns the delays in seconds.
fn delays_of(delays: &DelayCounts) -> Histogram {
    let seconds = |(micros, count): &(f64, u64)| (micros / 1e6, *count);
    let mut fine: Vec<_> = delays.buckets.iter().map(seconds).filter(|(upper, _)| upper.is_finite()).collect();
    fine.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    let sum = if delays.sum_us.is_finite() { delays.sum_us / 1e6 } else { 0.0 };
    Histogram { bounds: &DELAY_BOUNDS, fine, sum, is_native: true }
}

fn merged(mut one: Histogram, other: Histogram) -> Histogram {
    one.add(&other);
    one
}

/// Returns whether all flows with an objective and with packets kept the objective.
fn all_kept(kept: impl Iterator<Item = Option<bool>>) -> Option<bool> {
    kept.flatten().reduce(|all, kept| all && kept)
}
