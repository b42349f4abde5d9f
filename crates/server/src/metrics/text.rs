//! The Prometheus text format, version 0.0.4.

use super::line::write_sample;
use super::model::{Family, MetricType};

/// The content type.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the families as text.
#[must_use]
pub fn encode(families: &[Family]) -> String {
    let mut out = String::new();
    for family in families {
        let Family { name, help, .. } = family;
        let kind = match family.kind {
            MetricType::Counter => "counter",
            MetricType::Gauge | MetricType::Info => "gauge",
            MetricType::Histogram => "histogram",
        };
        // Help has no characters that are escaped (a test of the table).
        out.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        for sample in &family.samples {
            write_sample(&mut out, name, &sample.labels, &sample.value);
        }
    }
    out
}
