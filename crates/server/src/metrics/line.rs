//! The parts that the two text formats share: names, labels and numbers.

use std::fmt::Write;

use super::model::{Histogram, Label, Value};

/// Writes the lines of one sample. `name` is the name of a plain sample, and that of a histogram without its suffixes.
pub(super) fn write_sample(out: &mut String, name: &str, labels: &[Label], value: &Value) {
    match value {
        Value::Count(count) => write_line(out, (name, ""), labels, None, count),
        Value::Number(number) => write_line(out, (name, ""), labels, None, number),
        Value::Distribution(histogram) => write_histogram(out, name, labels, histogram),
    }
}

fn write_histogram(out: &mut String, name: &str, labels: &[Label], histogram: &Histogram) {
    for (bound, total) in histogram.classic() {
        write_line(out, (name, "_bucket"), labels, Some(&bound_in_words(bound)), total);
    }
    write_line(out, (name, "_bucket"), labels, Some("+Inf"), histogram.count());
    write_line(out, (name, "_sum"), labels, None, histogram.sum);
    write_line(out, (name, "_count"), labels, None, histogram.count());
}

/// Writes one line. `bound` is the upper bound of a bucket.
fn write_line(
    out: &mut String,
    (name, suffix): (&str, &str),
    labels: &[Label],
    bound: Option<&str>,
    value: impl std::fmt::Display,
) {
    out.push_str(name);
    out.push_str(suffix);
    let bound = bound.map(|bound| ("le", bound));
    let all = labels.iter().map(|(name, value)| (*name, value.as_str())).chain(bound);
    for (at, (label, text)) in all.enumerate() {
        out.push(if at == 0 { '{' } else { ',' });
        out.push_str(label);
        out.push_str("=\"");
        write_escaped(out, text);
        out.push('"');
    }
    if !labels.is_empty() || bound.is_some() {
        out.push('}');
    }
    // Writing to a string never fails.
    let _ = writeln!(out, " {value}");
}

/// Writes a text with its backslashes, quotes and line feeds escaped.
pub(super) fn write_escaped(out: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            _ => out.push(character),
        }
    }
}

/// Returns the bound in the canonical form of OpenMetrics: `1.0`, `0.0001`, `1e-05`. The form is part of the series'
/// identity, so all formats use the same.
fn bound_in_words(bound: f64) -> String {
    if bound == 0.0 || bound >= 1e-4 {
        return format!("{bound:?}");
    }
    let text = format!("{bound:e}");
    match text.split_once("e-") {
        Some((digits, exponent)) => format!("{digits}e-{exponent:0>2}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::super::flows::DELAY_BOUNDS;
    use super::*;

    #[test]
    fn bounds_have_the_canonical_form() {
        let words: Vec<_> = DELAY_BOUNDS.into_iter().chain([0.0, 256.0, 1.5e-5, 1e-10]).map(bound_in_words).collect();
        assert_eq!(
            words.join(" "),
            "1e-06 2e-06 5e-06 1e-05 2e-05 5e-05 0.0001 0.0002 0.0005 0.001 0.002 0.005 0.01 0.02 0.05 0.1 0.2 0.5 1.0 \
             2.0 5.0 10.0 0.0 256.0 1.5e-05 1e-10"
        );
    }

    #[test]
    fn values_of_labels_are_escaped() {
        let mut out = String::new();
        let labels = vec![("module", "a\\b\"c\nd\te{}=,é".to_owned()), ("reason", String::new())];
        write_sample(&mut out, "name", &labels, &Value::Count(u64::MAX));
        let expected = "name{module=\"a\\\\b\\\"c\\nd\te{}=,é\",reason=\"\"} 18446744073709551615\n";
        assert_eq!(out, expected);
        out.clear();
        write_sample(&mut out, "name", &[], &Value::Number(0.25));
        assert_eq!(out, "name 0.25\n");
    }

    #[test]
    fn a_histogram_without_labels_has_bounds() {
        let fine = vec![(0.5, 1), (3.0, 2)];
        let histogram = Histogram { bounds: &[1.0, 2.0], fine, sum: 6.5, is_native: false };
        let mut out = String::new();
        write_sample(&mut out, "name", &[], &Value::Distribution(histogram));
        let lines = [
            "name_bucket{le=\"1.0\"} 1",
            "name_bucket{le=\"2.0\"} 1",
            "name_bucket{le=\"+Inf\"} 3",
            "name_sum 6.5",
            "name_count 3",
        ];
        assert_eq!(out.lines().collect::<Vec<_>>(), lines);
    }
}
