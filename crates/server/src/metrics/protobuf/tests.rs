//! Decodes the messages again.

use proptest::prelude::*;

use super::super::tests::{flow, instance_with, small_families, small_report};
use super::super::{Options, ServerMetrics, families};
use super::*;

fn decode(mut bytes: &[u8]) -> Vec<MetricFamily> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        messages.push(MetricFamily::decode_length_delimited(&mut bytes).expect("a message"));
    }
    messages
}

/// Returns the number of values in the native buckets.
fn native_count(histogram: &Histogram) -> u64 {
    let buckets: u32 = histogram.positive_span.iter().map(|span| span.length).sum();
    assert_eq!(buckets as usize, histogram.positive_delta.len());
    let mut count = 0_i64;
    let counts = histogram.positive_delta.iter().map(|delta| {
        count += delta;
        u64::try_from(count).expect("a count")
    });
    histogram.zero_count + counts.sum::<u64>()
}

#[test]
fn the_messages_have_the_field_numbers_of_client_model() {
    let fine = vec![(0.0, 1), (1.0, 2)];
    let histogram = model::Histogram { bounds: &[0.5], fine, sum: 2.0, is_native: true };
    let expected: [Vec<u8>; 8] = [
        vec![0x08, 3],                                               // sample_count = 3
        vec![0x11, 0, 0, 0, 0, 0, 0, 0, 0x40],                       // sample_sum = 2.0
        vec![0x1a, 11, 0x08, 1, 0x11, 0, 0, 0, 0, 0, 0, 0xe0, 0x3f], // bucket = { 1, 0.5 }
        vec![0x28, 6],                                               // schema = 3, zigzag
        vec![0x31, 0, 0, 0, 0, 0, 0, 0x10, 0x3e],                    // zero_threshold = 2^-30
        vec![0x38, 1],                                               // zero_count = 1
        vec![0x62, 4, 0x08, 0, 0x10, 1],                             // positive_span = { 0, 1 }
        vec![0x68, 4],                                               // positive_delta = 2, zigzag
    ];
    assert_eq!(histogram_of(&histogram).encode_to_vec(), expected.concat());
    let family = MetricFamily {
        name: "n".to_owned(),
        help: "h".to_owned(),
        kind: COUNTER,
        metric: vec![Metric {
            label: vec![LabelPair { name: "l".to_owned(), value: "v".to_owned() }],
            gauge: None,
            counter: Some(Number { value: 2.0 }),
            histogram: None,
        }],
        unit: String::new(),
    };
    let metric = [&[0x0a, 6, 0x0a, 1, b'l', 0x12, 1, b'v'][..], &[0x1a, 9, 0x09, 0, 0, 0, 0, 0, 0, 0, 0x40]].concat();
    let message = [&[0x0a, 1, b'n', 0x12, 1, b'h', 0x18, 0, 0x22, 19][..], &metric].concat();
    assert_eq!(family.encode_to_vec(), message);
}

#[test]
fn a_small_report_comes_back() {
    let families = small_families();
    let messages = decode(&encode(&families));
    assert_eq!(messages.len(), families.len());
    for (message, family) in messages.iter().zip(&families) {
        assert_eq!((message.name.as_str(), message.help.as_str()), (family.name, family.help));
        assert_eq!(message.unit, family.unit.name().unwrap_or_default());
        assert_eq!(message.metric.len(), family.samples.len(), "{}", family.name);
        for (metric, sample) in message.metric.iter().zip(&family.samples) {
            let labels = metric.label.iter().map(|label| (label.name.as_str(), label.value.as_str()));
            assert!(labels.eq(sample.labels.iter().map(|(name, value)| (*name, value.as_str()))));
            let numbers = [&metric.gauge, &metric.counter].map(|number| number.as_ref().map(|number| number.value));
            match (&sample.value, family.kind) {
                (Value::Distribution(histogram), MetricType::Histogram) => {
                    assert_eq!(numbers, [None, None]);
                    assert_eq!(metric.histogram, Some(histogram_of(histogram)));
                }
                (Value::Count(count), MetricType::Counter) => assert_eq!(numbers, [None, Some(*count as f64)]),
                (Value::Number(number), MetricType::Counter) => assert_eq!(numbers, [None, Some(*number)]),
                (Value::Number(number), MetricType::Gauge) => assert_eq!(numbers, [Some(*number), None]),
                (Value::Count(1), MetricType::Info) => assert_eq!(numbers, [Some(1.0), None]),
                (value, kind) => panic!("{}: {value:?} in a {kind:?}", family.name),
            }
        }
    }
    let kinds = messages.iter().map(|message| message.kind).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), [COUNTER, GAUGE, HISTOGRAM]);
}

#[test]
fn only_delays_are_native() {
    for message in decode(&encode(&small_families())) {
        for histogram in message.metric.iter().filter_map(|metric| metric.histogram.as_ref()) {
            assert_eq!(
                histogram.zero_threshold > 0.0,
                message.name == "forebay_flow_delay_seconds",
                "{}",
                message.name
            );
            assert!(!histogram.bucket.is_empty());
        }
    }
}

proptest! {
    #[test]
    fn native_counts_sum_to_the_number_of_samples(
        buckets in prop::collection::btree_map(0_u32..1 << 24, 1_u64..1 << 40, 0..80),
    ) {
        let mut report = small_report();
        let total = buckets.values().sum::<u64>();
        let buckets = buckets.into_iter().map(|(eighths, count)| (f64::from(eighths) / 8.0, count)).collect();
        let delay_counts = Some(forebay_protocol::report::DelayCounts { buckets, sum_us: total as f64 });
        report.flows = vec![forebay_protocol::report::FlowReport { delay_counts, ..flow("video") }];
        let families = families(&[instance_with("edge", &report)], &ServerMetrics::default(), &Options::default());
        let messages = decode(&encode(&families));
        let delays = messages.iter().find(|message| message.name == "forebay_flow_delay_seconds").expect("delays");
        let histogram = delays.metric[0].histogram.as_ref().expect("a histogram");
        prop_assert_eq!(histogram.sample_count, total);
        prop_assert_eq!(native_count(histogram), total);
        let totals: Vec<_> = histogram.bucket.iter().map(|bucket| bucket.cumulative_count).collect();
        prop_assert!(totals.windows(2).all(|pair| pair[0] <= pair[1]));
        prop_assert!(totals.last().is_some_and(|last| *last <= total));
    }
}
