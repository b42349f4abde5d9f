//! Properties of aggregates: no packet is lost or counted twice in them.

use std::collections::{BTreeMap, HashSet};

use forebay_protocol::report::DelayCounts;
use proptest::prelude::*;

use super::syntax::check;
use super::*;

/// The counts of a generated module or flow: packets, drops or violations, and batches or delays.
type Counts = (u32, u32, Vec<u16>);

/// Elements by family of names and number, so that names are unique. Many share a family.
fn elements() -> impl Strategy<Value = BTreeMap<(usize, u8), Counts>> {
    let counts = (any::<u32>(), any::<u32>(), prop::collection::vec(any::<u16>(), 9));
    prop::collection::btree_map((0_usize..3, 0_u8..120), counts, 0..220)
}

/// Returns a report with these modules and flows. The first family is a fold. Its modules are run by one of them.
fn report_of(modules: &BTreeMap<(usize, u8), Counts>, flows: &BTreeMap<(usize, u8), Counts>) -> Report {
    let mut report = small_report();
    let (any_module, any_flow) = (module("", ""), flow(""));
    let name = |family: usize, number: u8| format!("{}{number}", ["acl", "nat", "dpi"][family]);
    let leader =
        modules.keys().next().filter(|(family, _)| *family == 0).map(|(family, number)| name(*family, *number));
    report.packets.dropped.clear();
    report.modules.clear();
    for ((family, number), (packets, dropped, sizes)) in modules {
        let name = name(*family, *number);
        report.packets.dropped.insert(format!("{name}.denied"), u64::from(*dropped));
        report.modules.push(ModuleReport {
            function: ["acl", "nat", if number % 2 == 0 { "dpi" } else { "nids" }][*family].into(),
            packets: u64::from(*packets),
            dropped: u64::from(*dropped),
            batches: u64::from(*packets / 2),
            batch_sizes: std::array::from_fn(|at| u64::from(sizes[at])),
            ticks_per_packet: (*packets > 0).then(|| f64::from(*dropped)),
            folded: leader.clone().filter(|_| *family == 0),
            name,
            ..any_module.clone()
        });
    }
    report.flows.clear();
    for ((family, number), (packets, violations, delays)) in flows {
        let buckets = delays.iter().map(|delay| (f64::from(*delay) / 8.0, u64::from(*delay) + 1)).collect();
        report.flows.push(FlowReport {
            name: name(*family, *number),
            packets: u64::from(*packets),
            violations: (*family == 0).then_some(u64::from(*violations)),
            delay_counts: (*family != 1).then_some(DelayCounts { buckets, sum_us: f64::from(*packets) }),
            ..any_flow.clone()
        });
    }
    report
}

/// Returns the sums of each family over its series, and of its classic buckets.
fn totals(families: &[Family]) -> BTreeMap<&'static str, (u64, Vec<u64>)> {
    let mut totals: BTreeMap<&'static str, (u64, Vec<u64>)> = BTreeMap::new();
    for family in families.iter().filter(|family| matches!(family.kind, MetricType::Counter | MetricType::Histogram)) {
        let (total, buckets) = totals.entry(family.name).or_default();
        for sample in &family.samples {
            match &sample.value {
                Value::Count(count) => *total += count,
                Value::Distribution(histogram) => {
                    *total += histogram.count();
                    let classic = histogram.classic();
                    buckets.resize(classic.len(), 0);
                    buckets.iter_mut().zip(classic).for_each(|(sum, (_, count))| *sum += count);
                }
                Value::Number(_) => {}
            }
        }
    }
    totals
}

fn values_are_sound(families: &[Family]) -> Result<(), TestCaseError> {
    for family in families {
        let labels: HashSet<_> = family.samples.iter().map(|sample| &sample.labels).collect();
        prop_assert_eq!(labels.len(), family.samples.len(), "{} has a series twice", family.name);
        for sample in &family.samples {
            match &sample.value {
                Value::Count(_) => {}
                Value::Number(number) => prop_assert!(number.is_finite(), "{}", family.name),
                Value::Distribution(histogram) => {
                    prop_assert!(histogram.sum.is_finite());
                    prop_assert!(histogram.fine.windows(2).all(|pair| pair[0].0 <= pair[1].0));
                    prop_assert!(histogram.classic().windows(2).all(|pair| pair[0].1 <= pair[1].1));
                    let last = histogram.classic().last().map_or(0, |(_, total)| *total);
                    prop_assert!(last <= histogram.count());
                }
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn sums_over_aggregates_equal_sums_over_all_series(modules in elements(), flows in elements()) {
        let report = report_of(&modules, &flows);
        let instance = [instance_with("edge", &report)];
        let server = ServerMetrics::default();
        let few = families(&instance, &server, &Options::default());
        let all = families(&instance, &server, &Options { all_modules: true });
        values_are_sound(&few)?;
        values_are_sound(&all)?;
        prop_assert_eq!(totals(&few), totals(&all));
        let packets = |families: &[Family]| totals(families).get("forebay_module_packets_total").map(|(sum, _)| *sum);
        let expected = modules.values().map(|(packets, ..)| u64::from(*packets)).sum::<u64>();
        prop_assert_eq!(packets(&few).unwrap_or(0), expected);
        let series = |families: &[Family], id: FamilyId| {
            families.iter().find(|family| family.id == id).map_or(0, |family| family.samples.len())
        };
        prop_assert_eq!(series(&all, FamilyId::ModulePackets), modules.len());
        // Four kinds of modules and three of flows: below 64 of each kind, or one series.
        prop_assert!(series(&few, FamilyId::ModulePackets) <= 4 * 63);
        for (kind, id) in [(&modules, FamilyId::ModulePackets), (&flows, FamilyId::FlowPackets)] {
            let first = kind.keys().filter(|(family, _)| *family == 0).count();
            let found = few.iter().find(|family| family.id == id).map(|family| &family.samples[..]).unwrap_or_default();
            let covers = |text: &str| found.iter().any(|sample| sample.labels[1].1 == text);
            prop_assert_eq!(covers("acl*"), first >= 64);
        }
        for families in [&few, &all] {
            check(&text::encode(families), false);
            check(&openmetrics::encode(families), true);
        }
    }
}

#[test]
fn a_setting_of_an_aggregate_is_the_one_that_all_members_have() {
    let mut report = small_report();
    let named = |at: u32| ModuleReport { trigger: 32, hold_us: Some(50.0), ..module(&format!("acl{at}"), "acl") };
    report.modules = (0..64).map(named).collect();
    (report.modules[5].hold_us, report.modules[5].packets) = (Some(60.0), 30);
    (report.modules[5].ticks_per_packet, report.modules[6].ticks_per_packet) = (Some(10.0), Some(20.0));
    report.modules[6].packets = 10;
    let families = families(&[instance_with("edge", &report)], &ServerMetrics::default(), &Options::default());
    let value = |id: FamilyId| {
        let family = families.iter().find(|family| family.id == id)?;
        assert_eq!(family.samples.len(), 1);
        assert_eq!(family.samples[0].labels[1], ("module", "acl*".to_owned()));
        Some(family.samples[0].value.clone())
    };
    assert_eq!(value(FamilyId::ModuleMembers), Some(Value::Number(64.0)));
    assert_eq!(value(FamilyId::ModuleTrigger), Some(Value::Number(32.0)));
    assert_eq!(value(FamilyId::ModuleHold), None, "the limits differ");
    assert_eq!(value(FamilyId::ModuleTicks), Some(Value::Number(12.5)), "weighted with packets");
}

#[test]
fn modules_that_run_as_one_have_one_series_of_calls() {
    let report = small_report();
    let families =
        families(&[instance_with("edge", &report)], &ServerMetrics::default(), &Options { all_modules: true });
    let labels = |id: FamilyId| -> Vec<String> {
        let family = families.iter().find(|family| family.id == id).expect("modules");
        family.samples.iter().map(|sample| sample.labels[1].1.clone()).collect()
    };
    assert_eq!(labels(FamilyId::ModulePackets), ["acl", "nat0", "nat1"]);
    assert_eq!(labels(FamilyId::ModuleBatches), ["acl", "nat0"]);
}
