//! The counters of one period, for controllers: plain figures in seconds and packets.

use forebay_units::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::layout::FlowLayout;

/// A turn of at least this time is a long turn.
pub const LONG: Nanos = Nanos(50_000);

/// The number of classes in which long turns are counted, by length: 50 to 100 µs, 100 to 200 µs, 200 to 400 µs, and so
/// on.
pub const LONG_CLASSES: usize = 16;

/// A period of a running pipeline. Modules and flows have the indices of the [`Layout`](crate::Layout).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Snapshot {
    /// The instant at which it was taken, in seconds since the run began.
    pub at_s: f64,
    /// The length of the period, in seconds.
    pub period_s: f64,
    /// By module. A module for which another one runs has zeros.
    pub modules: Vec<ModuleSnapshot>,
    /// By flow.
    pub flows: Vec<FlowSnapshot>,
    /// By worker.
    pub workers: Vec<WorkerSnapshot>,
    /// Whether the modules' costs are exact, as they are in simulated time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exact: bool,
}

/// A module in a period, over all workers that run it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModuleSnapshot {
    /// Packets processed.
    pub packets: u64,
    /// Calls.
    pub calls: u64,
    /// Packets that arrived, including refused packets.
    pub came: u64,
    /// With a trigger: the number of packets that arrived, and the number of turns in which at least one arrived.
    pub arrived: (u64, u64),
    /// The number of timed calls, the number of their packets, and their total duration in seconds.
    pub timed: (u64, u64, f64),
    /// The trigger at the end of the period.
    pub trigger: usize,
    /// The hold limit at the end of the period, in seconds; 0 without a trigger.
    pub hold_s: f64,
    /// The weight at the end of the period; 0 if the scheduler has no weights.
    pub weight: u32,
    /// Packets in the input queue at the end of the period. Counted with a trigger or a scheduler that has weights.
    pub queued: u64,
    /// The time for which the first packet of the queue has waited for the trigger, in seconds.
    pub oldest_s: f64,
    /// The estimated cost of a call, in seconds: T0 per call, and T1 per packet. The estimator writes it.
    pub cost_s: (f64, f64),
}

/// A flow in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowSnapshot {
    /// Packets that left.
    pub packets: u64,
    /// The delays from arrival to departure, in seconds; `None` if too few packets left.
    pub delay_s: Option<DelaySnapshot>,
    /// Packets above the objective.
    pub violations: u64,
    /// The delay at the flow's percentile without the time that the machine took from workers. It is at most the
    /// measured delay. If it is not exact, it is usually too low.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undisturbed_s: Option<f64>,
    /// Bytes of the packets that left. Counted if the rate objective of any flow is in bits.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Delays of the packets that left in the period, or in several periods if one has too few.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DelaySnapshot {
    /// The mean.
    pub mean: f64,
    /// The 95th percentile.
    pub p95: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The flow's own percentile, or the mean.
    pub chosen: f64,
}

/// A worker in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerSnapshot {
    /// Seconds of turns that had something to do, minus the estimated part of `away_s` in these turns.
    pub busy_s: f64,
    /// The number of turns that had something to do.
    pub busy_turns: u64,
    /// The time that packets waited at ports before the worker took them, in seconds; `chosen` is the 99th percentile.
    pub port_wait_s: Option<DelaySnapshot>,
    /// Seconds in which the host or another thread had the worker's core, as the system reports them. At most `long_s`.
    /// `None` if the system does not report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away_s: Option<f64>,
    /// Seconds of long turns, with or without something to do.
    #[serde(default)]
    pub long_s: f64,
    /// Long turns with something to do, by class of length. The machine may have had the core in them.
    pub long_turns: [u64; LONG_CLASSES],
}

impl FlowSnapshot {
    /// Returns whether the flow missed its objective: more packets were above it than the percentile allows, or the
    /// mean was above it.
    #[must_use]
    pub fn missed(&self, flow: &FlowLayout) -> bool {
        let mean = self.delay_s.filter(|_| self.packets > 0).map(|delay| delay.mean);
        flow.slo_s.is_some_and(|slo| flow.percentile.is_missed(slo, self.packets, self.violations, mean))
    }
}

impl WorkerSnapshot {
    /// Returns the seconds of a period in which the worker had its core. The result is at least a hundredth of the
    /// period, so that callers can divide by it.
    #[must_use]
    pub fn there_s(&self, period_s: f64) -> f64 {
        (period_s - self.away_s.unwrap_or(0.0)).max(period_s / 100.0)
    }

    /// Returns whether the system's count of time without the core explains at least half of the time of long turns.
    /// Then callers can rely on that count.
    #[must_use]
    pub fn knows_away(&self) -> bool {
        self.away_s.is_some_and(|away| away > 0.0 && away >= 0.5 * self.long_s)
    }

    /// Returns whether a turn with something to do took at least `seconds`. Only turns of 50 µs and more are known, and
    /// only by class of length. So a turn that took less than twice `seconds` may be missed.
    #[must_use]
    pub fn had_turn_of(&self, seconds: f64) -> bool {
        let shortest = |class: usize| LONG.0 as f64 / 1e9 * f64::from(1_u32 << class);
        self.long_turns.iter().enumerate().any(|(class, turns)| *turns > 0 && shortest(class) >= seconds)
    }
}

impl ModuleSnapshot {
    /// Returns the mean number of packets that arrive together: per turn with a trigger, else per call. `None` without
    /// packets.
    #[must_use]
    pub fn ingress(&self) -> Option<f64> {
        let (packets, times) = if self.trigger > 0 { self.arrived } else { (self.packets, self.calls) };
        (packets > 0 && times > 0).then(|| packets as f64 / times as f64)
    }

    /// Returns the packets per call; `None` without calls.
    #[must_use]
    pub fn batch(&self) -> Option<f64> {
        (self.calls > 0).then(|| self.packets as f64 / self.calls as f64)
    }
}

#[cfg(test)]
mod tests {
    use forebay_units::Percentile;

    use super::*;

    #[test]
    fn as_many_packets_as_the_percentile_leaves_may_be_above() {
        let flow = |percentile| FlowLayout {
            name: "f".to_owned(),
            path: vec![0],
            slo_s: Some(1e-3),
            percentile: Percentile::Of(percentile),
            min_rate: None,
            min_rate_bits: None,
        };
        let counted = |violations, packets| FlowSnapshot { violations, packets, ..FlowSnapshot::default() };
        assert!(!counted(5, 100).missed(&flow(95.0)) && counted(6, 100).missed(&flow(95.0)));
        assert!(!counted(0, 0).missed(&flow(95.0)) && counted(1, 1).missed(&flow(95.0)));
        assert!(counted(1, 1_000).missed(&flow(100.0)));
        let mean = FlowLayout { percentile: Percentile::Mean, ..flow(95.0) };
        let took = |mean| FlowSnapshot {
            delay_s: Some(DelaySnapshot { mean, ..DelaySnapshot::default() }),
            ..counted(99, 100)
        };
        assert!(!took(1e-3).missed(&mean) && took(1.1e-3).missed(&mean));
        assert!(!FlowSnapshot { packets: 0, ..took(1.1e-3) }.missed(&mean), "none left in this period");
        assert!(!counted(9, 9).missed(&FlowLayout { slo_s: None, ..flow(95.0) }));
    }

    #[test]
    fn a_long_turn_has_at_least_the_shortest_time_of_its_class() {
        let worker = |classes: &[u64]| {
            let mut worker = WorkerSnapshot::default();
            worker.long_turns[..classes.len()].copy_from_slice(classes);
            worker
        };
        let two_classes = worker(&[9, 9]);
        assert!(
            two_classes.had_turn_of(50e-6) && two_classes.had_turn_of(100e-6) && !two_classes.had_turn_of(100.001e-6)
        );
        assert!(worker(&[0, 0, 0, 1]).had_turn_of(400e-6));
    }
}
