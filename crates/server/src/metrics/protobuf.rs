//! The protobuf format of Prometheus: one delimited `io.prometheus.client.MetricFamily` after the other.
//!
//! The messages are those of `metrics.proto` in Prometheus' `client_model`, with only the fields that are used here.

use prost::Message;

use super::model::{self, Family, MetricType, Value};
use super::native::{NativeBuckets, SCHEMA, ZERO_THRESHOLD};

/// The content type.
pub const CONTENT_TYPE: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// The values of `MetricType` in `metrics.proto`.
const COUNTER: i32 = 0;
const GAUGE: i32 = 1;
const HISTOGRAM: i32 = 4;

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, required, tag = "1")]
    name: String,
    #[prost(string, required, tag = "2")]
    value: String,
}

/// The value of a gauge or of a counter.
#[derive(Clone, PartialEq, Message)]
struct Number {
    #[prost(double, required, tag = "1")]
    value: f64,
}

#[derive(Clone, PartialEq, Message)]
struct Bucket {
    #[prost(uint64, required, tag = "1")]
    cumulative_count: u64,
    #[prost(double, required, tag = "2")]
    upper_bound: f64,
}

#[derive(Clone, PartialEq, Message)]
struct BucketSpan {
    #[prost(sint32, required, tag = "1")]
    offset: i32,
    #[prost(uint32, required, tag = "2")]
    length: u32,
}

/// A classic histogram. The fields from `schema` on are those of a native histogram, and are left out without one.
#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(uint64, required, tag = "1")]
    sample_count: u64,
    #[prost(double, required, tag = "2")]
    sample_sum: f64,
    #[prost(message, repeated, tag = "3")]
    bucket: Vec<Bucket>,
    #[prost(sint32, tag = "5")]
    schema: i32,
    #[prost(double, tag = "6")]
    zero_threshold: f64,
    #[prost(uint64, tag = "7")]
    zero_count: u64,
    #[prost(message, repeated, tag = "12")]
    positive_span: Vec<BucketSpan>,
    #[prost(sint64, repeated, packed = "false", tag = "13")]
    positive_delta: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Number>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Number>,
    #[prost(message, optional, tag = "7")]
    histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
struct MetricFamily {
    #[prost(string, required, tag = "1")]
    name: String,
    #[prost(string, required, tag = "2")]
    help: String,
    #[prost(int32, required, tag = "3")]
    kind: i32,
    #[prost(message, repeated, tag = "4")]
    metric: Vec<Metric>,
    #[prost(string, tag = "5")]
    unit: String,
}

/// Returns the families as delimited messages.
#[must_use]
pub fn encode(families: &[Family]) -> Vec<u8> {
    families.iter().flat_map(|family| message_of(family).encode_length_delimited_to_vec()).collect()
}

fn message_of(family: &Family) -> MetricFamily {
    let metric = family.samples.iter().map(|sample| {
        let label = sample.labels.iter();
        let label = label.map(|(name, value)| LabelPair { name: (*name).to_owned(), value: value.clone() }).collect();
        let mut metric = Metric { label, gauge: None, counter: None, histogram: None };
        let number = match &sample.value {
            Value::Count(count) => *count as f64,
            Value::Number(number) => *number,
            Value::Distribution(histogram) => {
                metric.histogram = Some(histogram_of(histogram));
                return metric;
            }
        };
        let value = match family.kind {
            MetricType::Counter => &mut metric.counter,
            MetricType::Gauge | MetricType::Info | MetricType::Histogram => &mut metric.gauge,
        };
        *value = Some(Number { value: number });
        metric
    });
    MetricFamily {
        name: family.name.to_owned(),
        help: family.help.to_owned(),
        kind: match family.kind {
            MetricType::Counter => COUNTER,
            MetricType::Gauge | MetricType::Info => GAUGE,
            MetricType::Histogram => HISTOGRAM,
        },
        metric: metric.collect(),
        unit: family.unit.name().unwrap_or_default().to_owned(),
    }
}

/// Returns both kinds of buckets, so that a reader without native histograms has the classic ones.
fn histogram_of(histogram: &model::Histogram) -> Histogram {
    let classic = histogram.classic().into_iter();
    let classic = Histogram {
        sample_count: histogram.count(),
        sample_sum: histogram.sum,
        bucket: classic.map(|(upper_bound, cumulative_count)| Bucket { cumulative_count, upper_bound }).collect(),
        ..Histogram::default()
    };
    if !histogram.is_native {
        return classic;
    }
    let NativeBuckets { zero, spans, deltas } = NativeBuckets::of(&histogram.fine);
    Histogram {
        schema: SCHEMA,
        zero_threshold: ZERO_THRESHOLD,
        zero_count: zero,
        positive_span: spans.into_iter().map(|(offset, length)| BucketSpan { offset, length }).collect(),
        positive_delta: deltas,
        ..classic
    }
}

#[cfg(test)]
mod tests;
