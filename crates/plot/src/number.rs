//! Formats numbers for axes and tables, in engineering notation.

/// The prefixes for powers of a thousand.
const PREFIXES: [(f64, &str); 7] =
    [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-6, "µ"), (1e-9, "n")];

/// Returns the prefix for numbers with the absolute value `size`, and the number by which to divide them. There is no
/// prefix for thousandths, because `0.2` is easier to read than `200m`.
fn prefix(size: f64) -> (f64, &'static str) {
    let size = size.abs();
    if size == 0.0 || (1e-3..1e3).contains(&size) {
        return (1.0, "");
    }
    PREFIXES.into_iter().find(|(scale, _)| size >= scale * 0.999_95).unwrap_or((1e-9, "n"))
}

/// Formats a number with at most four digits: `12.35M`, `0.25`, and 1234 as `1.234k`. A value that is not finite is
/// `n/a`.
#[must_use]
pub fn engineering(value: f64) -> String {
    if !value.is_finite() {
        return "n/a".to_owned();
    }
    let (scale, unit) = prefix(value);
    let scaled = value / scale;
    let whole = if scaled.abs() >= 1.0 { scaled.abs().log10().floor() as usize + 1 } else { 1 };
    format!("{}{unit}", trimmed(&format!("{scaled:.*}", 4usize.saturating_sub(whole))))
}

/// Formats the mark at `value`. The distance between marks is `step`, and `largest` is the largest absolute value on
/// the axis. All marks have the prefix of `largest`. The result has so many decimals that two marks never have the same
/// text.
pub(crate) fn tick(value: f64, step: f64, largest: f64) -> String {
    let (scale, unit) = prefix(largest.max(step));
    let decimals = (-(step / scale).abs().log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{:.decimals$}", value / scale);
    let text = trimmed(&text);
    if text == "0" || text == "-0" { "0".to_owned() } else { format!("{text}{unit}") }
}

/// Removes zeros at the end of a fraction.
fn trimmed(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_at_most_four_digits() {
        let shown = [0.0, 7.0, 0.25, 1234.0, 999_999.0, 12_345_678.0, -2e9, 2.5e-6, 0.001, f64::NAN].map(engineering);
        assert_eq!(shown, ["0", "7", "0.25", "1.234k", "1M", "12.35M", "-2G", "2.5µ", "0.001", "n/a"]);
    }

    #[test]
    fn ticks_share_a_prefix_and_differ() {
        let shown = [0.0, 5e5, 1e6, 1.5e6].map(|value| tick(value, 5e5, 1.5e6));
        assert_eq!(shown, ["0", "0.5M", "1M", "1.5M"]);
        assert_eq!([41.0, 41.2, 41.4].map(|value| tick(value, 0.2, 41.4)), ["41", "41.2", "41.4"]);
        assert_eq!([0.0, 0.2].map(|value| tick(value, 0.2, 1.0)), ["0", "0.2"]);
    }
}
