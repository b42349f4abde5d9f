//! What has happened in a period, for whoever decides on batches: plain figures, in seconds and packets.

mod sampler;

use serde::{Deserialize, Serialize};

pub use sampler::Sampler;

use crate::layout::FlowLayout;
use crate::telemetry::{LONG, LONG_CLASSES};

/// A period of a running pipeline. Modules and flows stand at their places in the [`Layout`](crate::Layout).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// When it was taken, in seconds since the run began.
    pub at_s: f64,
    /// How long the period was, in seconds.
    pub period_s: f64,
    /// By module. Those that others run for have nothing.
    pub modules: Vec<ModuleSnapshot>,
    /// By flow.
    pub flows: Vec<FlowSnapshot>,
    /// By worker.
    pub workers: Vec<WorkerSnapshot>,
    /// Whether modules' costs are what calls take, neither more nor less, as they are where time is simulated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exact: bool,
}

/// A module in a period, over all workers that run it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModuleSnapshot {
    /// Packets processed.
    pub packets: u64,
    /// Calls.
    pub calls: u64,
    /// Packets that came, those that were turned away included.
    pub came: u64,
    /// With a trigger: packets that came, and turns in which any did, between the last times that this was looked at.
    pub arrived: (u64, u64),
    /// Of the calls that were timed: calls, packets, seconds.
    pub timed: (u64, u64, f64),
    /// The trigger in force at its end.
    pub trigger: usize,
    /// The hold limit in force at its end, in seconds; 0 without a trigger.
    pub hold_s: f64,
    /// The weight in force at its end; 0 where time is not shared out.
    pub weight: u32,
    /// Packets that waited at its end, where there is a trigger or time is shared out.
    pub queued: u64,
    /// How long the first of them had waited for the trigger, in seconds.
    pub oldest_s: f64,
    /// What a call costs at last account, in seconds: T0, and T1 for each packet. Whoever keeps accounts writes it here.
    pub cost_s: (f64, f64),
}

/// A flow in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowSnapshot {
    /// Packets that left.
    pub packets: u64,
    /// From arrival to departure, in seconds; `None` where too few left to tell.
    pub delay_s: Option<DelaySnapshot>,
    /// Packets above the objective.
    pub violations: u64,
    /// The delay at the flow's percentile without what the machine had a part in, where it took time from workers;
    /// never more than what packets took, and rather too little.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undisturbed_s: Option<f64>,
    /// Bytes of the packets that left, where any flow's rate objective is in bits.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Delays of the packets that left: in the period, or where those are few in several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerSnapshot {
    /// Seconds of turns in which there was something to do, without what the machine took.
    pub busy_s: f64,
    /// How many of those.
    pub busy_turns: u64,
    /// How long packets waited at ports before they were taken, in seconds; the chosen percentile is the 99th.
    pub port_wait_s: Option<DelaySnapshot>,
    /// Seconds that the machine took in long turns, as the system tells: it had the worker's core, or another thread
    /// had. `None` where the system does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away_s: Option<f64>,
    /// Seconds of turns that took 50 µs and more, whether or not there was something to do.
    #[serde(default)]
    pub long_s: f64,
    /// Those of them that took 50 µs and more, by length: to 100 µs, to 200 µs, and so on. The machine may have been elsewhere.
    pub long_turns: [u64; LONG_CLASSES],
}

impl FlowSnapshot {
    /// Whether more packets were above the objective of `flow`, which this is told of, than its percentile allows, or
    /// their mean was.
    #[must_use]
    pub fn missed(&self, flow: &FlowLayout) -> bool {
        let mean = self.delay_s.filter(|_| self.packets > 0).map(|delay| delay.mean);
        flow.slo_s.is_some_and(|slo| flow.percentile.is_missed(slo, self.packets, self.violations, mean))
    }
}

impl WorkerSnapshot {
    /// Seconds of a period in which the machine left it its core: at least a hundredth of it.
    #[must_use]
    pub fn there_s(&self, period_s: f64) -> f64 {
        (period_s - self.away_s.unwrap_or(0.0)).max(period_s / 100.0)
    }

    /// Whether most of the time of long turns is known to be the machine's.
    #[must_use]
    pub fn knows_away(&self) -> bool {
        self.away_s.is_some_and(|away| away > 0.0 && away >= 0.5 * self.long_s)
    }

    /// Whether a turn with something to do took at least so many seconds; 50 µs is the least that is told.
    #[must_use]
    pub fn had_turn_of(&self, seconds: f64) -> bool {
        let shortest = |class: usize| LONG.0 as f64 / 1e9 * f64::from(1_u32 << class);
        self.long_turns.iter().enumerate().any(|(class, turns)| *turns > 0 && shortest(class) >= seconds)
    }
}

impl ModuleSnapshot {
    /// Packets that come together, as a mean: in a turn where there is a trigger, else in a call. `None` without packets.
    #[must_use]
    pub fn ingress(&self) -> Option<f64> {
        let (packets, times) = if self.trigger > 0 { self.arrived } else { (self.packets, self.calls) };
        (packets > 0 && times > 0).then(|| packets as f64 / times as f64)
    }

    /// Packets a call; `None` without any.
    #[must_use]
    pub fn batch(&self) -> Option<f64> {
        (self.calls > 0).then(|| self.packets as f64 / self.calls as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_units::Percentile;

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
        let told = |violations, packets| FlowSnapshot { violations, packets, ..FlowSnapshot::default() };
        assert!(!told(5, 100).missed(&flow(95.0)) && told(6, 100).missed(&flow(95.0)));
        assert!(!told(0, 0).missed(&flow(95.0)) && told(1, 1).missed(&flow(95.0)));
        assert!(told(1, 1_000).missed(&flow(100.0)));
        let mean = FlowLayout { percentile: Percentile::Mean, ..flow(95.0) };
        let took =
            |mean| FlowSnapshot { delay_s: Some(DelaySnapshot { mean, ..DelaySnapshot::default() }), ..told(99, 100) };
        assert!(!took(1e-3).missed(&mean) && took(1.1e-3).missed(&mean));
        assert!(!FlowSnapshot { packets: 0, ..took(1.1e-3) }.missed(&mean), "none left in this period");
        assert!(!told(9, 9).missed(&FlowLayout { slo_s: None, ..flow(95.0) }));
    }

    #[test]
    fn turns_are_told_from_the_shortest_of_their_class_on() {
        let worker = |classes: &[u64]| {
            let mut worker = WorkerSnapshot::default();
            worker.long_turns[..classes.len()].copy_from_slice(classes);
            worker
        };
        let told = worker(&[9, 9]);
        assert!(told.had_turn_of(50e-6) && told.had_turn_of(100e-6) && !told.had_turn_of(100.001e-6));
        assert!(worker(&[0, 0, 0, 1]).had_turn_of(400e-6));
    }
}
