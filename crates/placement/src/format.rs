//! Formats numbers for display.

/// Formats packets per second, for example `4.21 Mpps`.
#[must_use]
pub fn rate(rate: f64) -> String {
    let units = [(1e9, "Gpps"), (1e6, "Mpps"), (1e3, "kpps")];
    let (scale, unit) = units.into_iter().find(|(scale, _)| rate >= 0.9995 * scale).unwrap_or((1.0, "pps"));
    let value = rate / scale;
    let digits = if value >= 99.95 { 0 } else { usize::from(value < 9.995) + 1 };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn rates_have_three_digits() {
        let all = [4.214e6, 12.34e6, 999.96e3, 0.0, 812.4, 5e9, 2.5e13];
        let expected = ["4.21 Mpps", "12.3 Mpps", "1.00 Mpps", "0.00 pps", "812 pps", "5.00 Gpps", "25000 Gpps"];
        assert_eq!(all.map(rate), expected);
    }
}
