//! Sums of samples: several intervals become one.
//!
//! Counts are added, and means are weighted. High percentiles of the delay cannot be added, so the sum has the largest
//! one. The percentile of all intervals together is never above it.

use super::sample::{FlowPoint, ModulePoint, Sample};

/// A weighted mean of the values that exist.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mean {
    weight: f64,
    sum: f64,
    last: Option<f32>,
}

impl Mean {
    fn add(&mut self, value: Option<f32>, weight: f64) {
        if let Some(value) = value {
            self.weight += weight;
            self.sum += f64::from(value) * weight;
            self.last = Some(value);
        }
    }

    /// Returns the mean. If no value has a weight, returns the last value.
    pub(super) fn value(&self) -> Option<f32> {
        if self.weight > 0.0 { Some((self.sum / self.weight) as f32) } else { self.last }
    }
}

/// Returns the larger one of the values that exist.
fn larger(one: Option<f32>, other: Option<f32>) -> Option<f32> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.max(other)),
        (one, other) => one.or(other),
    }
}

/// The sum of a pipeline's figures, except those of modules and flows.
#[derive(Clone, Debug, Default)]
pub(super) struct TotalSum {
    pub interval_s: f64,
    pub entered: u64,
    pub out: u64,
    pub dropped: u64,
    /// For each worker, the mean share, weighted by the interval.
    pub busy: Vec<Mean>,
}

impl TotalSum {
    /// Adds an interval. `counts` are the packets that entered, left and were dropped.
    pub(super) fn add(&mut self, interval_s: f64, counts: [u64; 3], busy: impl Iterator<Item = f32>) {
        self.interval_s += interval_s;
        self.entered = self.entered.saturating_add(counts[0]);
        self.out = self.out.saturating_add(counts[1]);
        self.dropped = self.dropped.saturating_add(counts[2]);
        for (worker, share) in busy.enumerate() {
            if self.busy.len() == worker {
                self.busy.push(Mean::default());
            }
            self.busy[worker].add(Some(share), interval_s);
        }
    }
}

/// The sum of a module's figures. Ticks are weighted by packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ModuleSum {
    packets: u64,
    dropped: u64,
    batches: u64,
    ticks: Mean,
}

impl ModuleSum {
    pub(super) fn add(&mut self, point: &ModulePoint) {
        self.packets = self.packets.saturating_add(point.packets);
        self.dropped = self.dropped.saturating_add(point.dropped);
        self.batches = self.batches.saturating_add(point.batches);
        self.ticks.add(point.ticks_per_packet, point.packets as f64);
    }

    pub(super) fn point(&self) -> ModulePoint {
        let Self { packets, dropped, batches, ticks } = *self;
        ModulePoint { packets, dropped, batches, ticks_per_packet: ticks.value() }
    }
}

/// The sum of a flow's figures. The median is weighted by packets, and the other delays are the largest.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FlowSum {
    packets: u64,
    violations: u64,
    p50: Mean,
    p99: Option<f32>,
    chosen: Option<f32>,
}

impl FlowSum {
    pub(super) fn add(&mut self, point: &FlowPoint) {
        self.packets = self.packets.saturating_add(point.packets);
        self.violations = self.violations.saturating_add(point.violations);
        self.p50.add(point.p50_us, point.packets as f64);
        self.p99 = larger(self.p99, point.p99_us);
        self.chosen = larger(self.chosen, point.chosen_us);
    }

    pub(super) fn point(&self) -> FlowPoint {
        let Self { packets, violations, p50, p99, chosen } = *self;
        FlowPoint { packets, violations, p50_us: p50.value(), p99_us: p99, chosen_us: chosen }
    }
}

/// The sum of samples of one layout.
///
/// A mean is weighted by the packets of the samples that have it. If a window has rows of several layouts, a query adds
/// them, and then weights each row by all its packets, because a row does not have the number of those with the figure.
#[derive(Clone, Debug, Default)]
pub(super) struct SampleSum {
    total: TotalSum,
    modules: Vec<ModuleSum>,
    flows: Vec<FlowSum>,
}

impl SampleSum {
    pub(super) fn add(&mut self, sample: &Sample) {
        let counts = [sample.entered, sample.out, sample.dropped];
        self.total.add(f64::from(sample.interval_s), counts, sample.busy.iter().copied());
        // Samples of one layout have the same numbers of modules and flows. Only the first one makes the sums longer.
        self.modules.resize(self.modules.len().max(sample.modules.len()), ModuleSum::default());
        self.flows.resize(self.flows.len().max(sample.flows.len()), FlowSum::default());
        self.modules.iter_mut().zip(&sample.modules).for_each(|(sum, point)| sum.add(point));
        self.flows.iter_mut().zip(&sample.flows).for_each(|(sum, point)| sum.add(point));
    }

    /// Returns the sum as one sample.
    pub(super) fn sample(&self) -> Sample {
        let Self { total, modules, flows } = self;
        Sample {
            interval_s: total.interval_s as f32,
            modules: modules.iter().map(ModuleSum::point).collect(),
            flows: flows.iter().map(FlowSum::point).collect(),
            busy: total.busy.iter().filter_map(Mean::value).collect(),
            entered: total.entered,
            out: total.out,
            dropped: total.dropped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_weighted_and_high_delays_are_the_largest() {
        let sample = |packets, delay, interval_s, busy| Sample {
            interval_s,
            modules: vec![ModulePoint { packets, dropped: 1, batches: 2, ticks_per_packet: delay }],
            flows: vec![FlowPoint { packets, violations: 1, p50_us: delay, p99_us: delay, chosen_us: None }],
            busy,
            entered: packets,
            out: 1,
            dropped: 2,
        };
        let mut sum = SampleSum::default();
        sum.add(&sample(30, Some(10.0), 10.0, vec![0.2]));
        sum.add(&sample(10, Some(50.0), 30.0, vec![0.6, 0.5]));
        sum.add(&sample(1000, None, 0.0, vec![]));
        let module = ModulePoint { packets: 1040, dropped: 3, batches: 6, ticks_per_packet: Some(20.0) };
        let flow = FlowPoint { packets: 1040, violations: 3, p50_us: Some(20.0), p99_us: Some(50.0), chosen_us: None };
        let expected = Sample {
            interval_s: 40.0,
            modules: vec![module],
            flows: vec![flow],
            busy: vec![0.5, 0.5],
            entered: 1040,
            out: 3,
            dropped: 6,
        };
        assert_eq!(sum.sample(), expected);
    }

    #[test]
    fn a_single_value_stays_also_without_packets_and_a_missing_one_stays_missing() {
        let mut sum = FlowSum::default();
        assert_eq!(sum.point(), FlowPoint::default());
        let point = FlowPoint { p50_us: Some(3.25), p99_us: Some(7.5), chosen_us: Some(9.0), ..FlowPoint::default() };
        sum.add(&point);
        assert_eq!(sum.point(), point);
        let mut sum = ModuleSum::default();
        sum.add(&ModulePoint { packets: u64::MAX, ..ModulePoint::default() });
        sum.add(&ModulePoint { packets: 2, ..ModulePoint::default() });
        assert_eq!(sum.point(), ModulePoint { packets: u64::MAX, ..ModulePoint::default() });
    }
}
