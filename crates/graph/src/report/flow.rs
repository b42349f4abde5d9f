//! What a flow has come to, from what was counted of it.

use forebay_measure::Distribution;
use forebay_units::{Frequency, Nanos, Percentile, Rate};

use super::{Delay, FlowReport};

/// A rate that is less than its objective by no more than this part is that.
const NEAR: f64 = 0.01;

/// What was counted of a flow in a time, and its objectives.
#[derive(Clone, Copy, Debug)]
pub struct FlowFigures<'f> {
    /// Its name.
    pub name: &'f str,
    /// How long that time was, in seconds.
    pub seconds: f64,
    /// Of the packets that left, from arrival to departure, in ticks.
    pub delays: &'f Distribution,
    /// Packets above the objective.
    pub violations: u64,
    /// The delay objective.
    pub slo: Option<Nanos>,
    /// Which of its delays must keep it.
    pub percentile: Percentile,
    /// Bytes of the packets that left, where the rate objective is in bits.
    pub bytes: u64,
    /// The rate objective.
    pub min_rate: Option<Rate>,
    /// Packets that were turned away on its way.
    pub turned_away: u64,
}

impl FlowFigures<'_> {
    /// What that comes to, with a clock of this frequency.
    #[must_use]
    pub fn report(&self, frequency: Frequency) -> FlowReport {
        let Self { delays, violations, percentile, turned_away, .. } = *self;
        let packets = delays.samples();
        let mean_us = delays.mean().map(|ticks| frequency.micros(ticks));
        let kept = |slo: Nanos| !percentile.is_missed(slo.0 as f64 / 1e3, packets, violations, mean_us);
        let rate_pps = if self.seconds > 0.0 { packets as f64 / self.seconds } else { 0.0 };
        // One that offers less than its rate, and gets it all, has not missed it.
        let rate_bps = if self.seconds > 0.0 { self.bytes as f64 * 8.0 / self.seconds } else { 0.0 };
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
            delay_us: Delay::of(delays, |ticks| frequency.micros(ticks)),
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
