//! Computes the report of a flow from its counters.

use forebay_measure::Distribution;
use forebay_protocol::report::{DelayCounts, FlowReport, Report};
use forebay_units::{Frequency, Nanos, Percentile, Rate};

use super::difference::{delay, pairs};
use super::reading::Reading;

/// A rate keeps its objective if it is below the objective by at most this fraction of the objective.
const NEAR: f64 = 0.01;

/// The counters of a flow in a span, and its objectives.
#[derive(Clone, Copy, Debug)]
pub struct FlowFigures<'f> {
    /// Its name.
    pub name: &'f str,
    /// The length of the span, in seconds.
    pub seconds: f64,
    /// The delays of the packets that left, from arrival to departure, in ticks.
    pub delays: &'f Distribution,
    /// Packets whose delay was above the objective.
    pub violations: u64,
    /// The delay objective.
    pub slo: Option<Nanos>,
    /// The percentile of the delays, or their mean, that must keep the delay objective.
    pub percentile: Percentile,
    /// Bytes of the packets that left. Used only if the rate objective is in bits.
    pub bytes: u64,
    /// The rate objective.
    pub min_rate: Option<Rate>,
    /// Packets that were dropped on its path because of overload, or lost by its ports. If there are none, the flow got
    /// all that it offered, and keeps its rate objective.
    pub turned_away: u64,
}

impl FlowFigures<'_> {
    /// Returns the report, for a clock of this frequency.
    #[must_use]
    pub fn report(&self, frequency: Frequency) -> FlowReport {
        let Self { delays, violations, percentile, turned_away, .. } = *self;
        let packets = delays.samples();
        let mean_us = delays.mean().map(|ticks| frequency.micros(ticks));
        let kept = |slo: Nanos| !percentile.is_missed(slo.0 as f64 / 1e3, packets, violations, mean_us);
        let rate_pps = if self.seconds > 0.0 { packets as f64 / self.seconds } else { 0.0 };
        let rate_bps = if self.seconds > 0.0 { self.bytes as f64 * 8.0 / self.seconds } else { 0.0 };
        // A flow that offers less than the rate of its objective, and gets all that it offers, has kept the objective.
        let rate_kept = |least: Rate| {
            let (has, least) = match least {
                Rate::Packets(least) => (rate_pps, least.0),
                Rate::Bits(least) => (rate_bps, least.0),
            };
            has >= (1.0 - NEAR) * least || turned_away == 0
        };
        FlowReport {
            name: self.name.to_owned(),
            packets,
            rate_pps,
            delay_us: delay(delays, |ticks| frequency.micros(ticks)),
            delay_counts: None,
            slo_us: self.slo.map(|slo| slo.0 as f64 / 1e3),
            percentile: self.slo.map(|_| percentile),
            at_percentile_us: self.slo.and_then(|_| match percentile.share() {
                Some(share) => delays.quantile(share).map(|ticks| frequency.micros(ticks as f64)),
                None => mean_us,
            }),
            violations: self.slo.map(|_| violations),
            kept: self.slo.filter(|_| packets > 0).map(kept),
            min_rate_pps: self.min_rate.and_then(Rate::packets),
            min_rate_bps: self.min_rate.and_then(Rate::bits),
            rate_bps: self.min_rate.and_then(Rate::bits).map(|_| rate_bps),
            turned_away: self.min_rate.map(|_| turned_away),
            rate_kept: self.min_rate.filter(|_| packets + turned_away > 0).map(rate_kept),
            missed_by_machine: false,
        }
    }
}

impl Reading {
    /// Adds the distributions of delays to the flows of `report`, which must be the report of the span since `earlier`.
    /// Other reports have none, because a distribution takes more space than the rest of a flow's report. Removed flows
    /// get none.
    pub fn add_delay_counts_since(&self, earlier: &Self, report: &mut Report) {
        let flows = pairs(&earlier.flows, &self.flows, |flow| flow.name.as_str());
        for (flow, (before, now)) in report.flows.iter_mut().zip(flows) {
            flow.delay_counts = Some(delay_counts(&now.delays.since(&before.delays), self.frequency));
        }
    }
}

/// Returns a distribution of delays in ticks, for a clock of this frequency.
fn delay_counts(delays: &Distribution, frequency: Frequency) -> DelayCounts {
    DelayCounts {
        buckets: delays.buckets().map(|(bound, count)| (frequency.micros(bound as f64), count)).collect(),
        sum_us: frequency.micros(delays.sum() as f64),
    }
}
