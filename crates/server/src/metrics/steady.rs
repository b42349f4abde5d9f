//! Keeps counters from decreasing by a little.
//!
//! Prometheus takes any decrease of a counter for a restart, and adds the whole new value to the increase: a decrease
//! by one packet in a billion looks like a billion packets. Some counters of an instance decrease by a little. Times
//! are computed from rounded shares. Counters that a worker writes while they are read may disagree. Packets that a
//! port refuses are subtracted from those that left. The calls of modules that run as one are rounded.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::InstanceMetrics;
use super::model::{Family, Histogram, Label, MetricType, Value};
use super::table::FamilyId;

/// A value that was not written in this number of passes is forgotten: its module or flow no longer exists.
const PASSES: u64 = 16;

/// The last values of counters.
#[derive(Debug, Default)]
pub struct SteadyCounters {
    /// The number of the present pass.
    pass: u64,
    /// The start time of each instance.
    started: HashMap<String, f64>,
    held: HashMap<(FamilyId, Vec<Label>), Held>,
}

/// The last value of a counter.
#[derive(Debug)]
struct Held {
    /// The pass in which it was written last.
    pass: u64,
    value: Value,
}

impl SteadyCounters {
    /// If a count of an instance has decreased by at most half, keeps its previous value. A larger decrease is a
    /// restart of this counter: a reload removed its module, and another reload added the module again.
    /// Times never decrease. If the instance has another start time, its counters start again.
    pub fn hold(&mut self, families: &mut [Family], instances: &[InstanceMetrics<'_>]) {
        self.pass += 1;
        for instance in instances {
            let Some(started_s) = instance.started_s else { continue };
            let before = self.started.insert(instance.name.to_owned(), started_s);
            if before.is_some_and(|before| before != started_s) {
                self.held.retain(|(_, labels), _| instance_of(labels) != Some(instance.name));
            }
        }
        self.started.retain(|name, _| instances.iter().any(|instance| instance.name == name));
        let counters =
            families.iter_mut().filter(|family| matches!(family.kind, MetricType::Counter | MetricType::Histogram));
        for family in counters {
            for sample in family.samples.iter_mut().filter(|sample| instance_of(&sample.labels).is_some()) {
                match self.held.entry((family.id, sample.labels.clone())) {
                    Entry::Vacant(entry) => {
                        entry.insert(Held { pass: self.pass, value: sample.value.clone() });
                    }
                    Entry::Occupied(mut entry) => {
                        let held = entry.get_mut();
                        hold_value(&mut sample.value, &held.value);
                        *held = Held { pass: self.pass, value: sample.value.clone() };
                    }
                }
            }
        }
        let pass = self.pass;
        self.held.retain(|_, held| held.pass + PASSES > pass);
    }
}

/// Returns the instance of a sample: its first label.
fn instance_of(labels: &[Label]) -> Option<&str> {
    labels.first().filter(|(name, _)| *name == "instance").map(|(_, value)| value.as_str())
}

/// Replaces `now` by `before`, if it is a little less.
fn hold_value(now: &mut Value, before: &Value) {
    match (now, before) {
        (Value::Count(now), Value::Count(before)) if *now >= *before / 2 => *now = (*now).max(*before),
        (Value::Number(now), Value::Number(before)) => *now = (*now).max(*before),
        (Value::Distribution(now), Value::Distribution(before)) if now.count() >= before.count() / 2 => {
            hold_buckets(now, before);
        }
        _ => {}
    }
}

/// Replaces each bucket that has decreased by its previous value. The number of values is the sum of the buckets, so
/// classic and native buckets still agree with it.
fn hold_buckets(now: &mut Histogram, before: &Histogram) {
    for (upper, count) in &before.fine {
        match now.fine.binary_search_by(|(known, _)| known.total_cmp(upper)) {
            Ok(at) => now.fine[at].1 = now.fine[at].1.max(*count),
            Err(at) => now.fine.insert(at, (*upper, *count)),
        }
    }
    now.sum = now.sum.max(before.sum);
}

#[cfg(test)]
mod tests {
    use forebay_protocol::Report;

    use super::super::tests::{instance_with, small_report};
    use super::super::{Options, ServerMetrics, families};
    use super::*;

    /// Passes the report, and returns the values of a family.
    fn pass(steady: &mut SteadyCounters, report: &Report, started_s: f64, id: FamilyId) -> Vec<Value> {
        let instances = [InstanceMetrics { started_s: Some(started_s), ..instance_with("edge", report) }];
        let mut families = families(&instances, &ServerMetrics::default(), &Options::default());
        steady.hold(&mut families, &instances);
        let family = families.into_iter().find(|family| family.id == id).expect("the family");
        family.samples.into_iter().map(|sample| sample.value).collect()
    }

    #[test]
    fn a_count_decreases_by_half_or_not_at_all() {
        let (mut steady, mut report) = (SteadyCounters::default(), small_report());
        let mut entered = |count: u64| {
            report.packets.entered = count;
            pass(&mut steady, &report, 1.0, FamilyId::PacketsIn)
        };
        let shown = [100, 99, 120, 60, 59, 61].map(|count| entered(count)[0].clone());
        assert_eq!(shown, [100, 100, 120, 120, 59, 61].map(Value::Count));
    }

    #[test]
    fn times_never_decrease_during_a_run() {
        let (mut steady, mut report) = (SteadyCounters::default(), small_report());
        report.duration_s = 1_000.0;
        let mut busy = |share: f64, started_s: f64| {
            report.workers[0].busy = share;
            pass(&mut steady, &report, started_s, FamilyId::WorkerBusy)[0].clone()
        };
        let shown =
            [(0.5, 1.0), (0.25, 1.0), (0.625, 1.0), (0.125, 2.0), (0.0, 2.0)].map(|(share, at)| busy(share, at));
        assert_eq!(shown, [500.0, 500.0, 625.0, 125.0, 125.0].map(Value::Number));
    }

    #[test]
    fn a_restart_begins_again() {
        let (mut steady, mut report) = (SteadyCounters::default(), small_report());
        let before = pass(&mut steady, &report, 1.0, FamilyId::FlowDelay);
        let buckets = |values: &[Value]| match &values[0] {
            Value::Distribution(histogram) => histogram.fine.clone(),
            other => panic!("{other:?}"),
        };
        if let Some(delays) = &mut report.flows[0].delay_counts {
            delays.buckets.retain(|(upper, _)| *upper > 1.0);
            delays.buckets[0].1 -= 1;
            delays.buckets[1].1 += 1;
        }
        let held = buckets(&pass(&mut steady, &report, 1.0, FamilyId::FlowDelay));
        let mut expected = buckets(&before);
        expected[3].1 += 1;
        assert_eq!(held, expected, "buckets that have decreased keep their counts");
        let after = buckets(&pass(&mut steady, &report, 2.0, FamilyId::FlowDelay));
        assert_eq!(after.len(), 4);
        assert_eq!(after[0].1, 399);
    }

    #[test]
    fn values_of_removed_flows_are_forgotten() {
        let (mut steady, mut report) = (SteadyCounters::default(), small_report());
        pass(&mut steady, &report, 1.0, FamilyId::FlowPackets);
        let all = steady.held.len();
        report.flows.truncate(1);
        for _ in 0..PASSES {
            pass(&mut steady, &report, 1.0, FamilyId::FlowPackets);
        }
        assert!(steady.held.len() < all);
        let mut families: Vec<Family> = Vec::new();
        for _ in 0..PASSES {
            steady.hold(&mut families, &[]);
        }
        assert!(steady.held.is_empty() && steady.started.is_empty());
    }
}
