//! The OpenMetrics text format, version 1.0.0.
//!
//! It differs from the Prometheus text in three points: the name of a counter's family lacks `_total`, units are
//! stated, and the text has an end.

use super::line::write_sample;
use super::model::{Family, MetricType};

/// The content type.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns the families as text.
#[must_use]
pub fn encode(families: &[Family]) -> String {
    let mut out = String::new();
    for family in families {
        let (base, help) = (family.base(), family.help);
        let kind = match family.kind {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
            MetricType::Histogram => "histogram",
            MetricType::Info => "info",
        };
        out.push_str(&format!("# TYPE {base} {kind}\n"));
        if let Some(unit) = family.unit.name() {
            out.push_str(&format!("# UNIT {base} {unit}\n"));
        }
        // Help has no characters that are escaped (a test of the table).
        out.push_str(&format!("# HELP {base} {help}\n"));
        for sample in &family.samples {
            write_sample(&mut out, family.name, &sample.labels, &sample.value);
        }
    }
    out.push_str("# EOF\n");
    out
}
