//! Formats figures and tables for people.

/// Formats a count or rate with four digits: `12.35M`.
pub(crate) fn short(value: f64) -> String {
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    // Values slightly below a unit already use this unit. Otherwise 999.96 would be rounded to 1000.0, instead of
    // 1.000k.
    match units.iter().find(|(scale, _)| value >= scale * 0.99995) {
        Some((scale, unit)) => format!("{}{unit}", figures(value / scale)),
        None if value.fract() == 0.0 => format!("{value}"),
        None => figures(value),
    }
}

/// Formats a value below 1000 with four digits.
fn figures(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.1}"),
        10.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Formats a figure with this number of decimals, or `n/a` if it is unknown.
pub(crate) fn known(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "n/a".to_owned(), |value| format!("{value:.decimals$}"))
}

/// Formats a time in microseconds with a suitable unit, or `n/a` if it is unknown.
pub(crate) fn span(micros: Option<f64>) -> String {
    match micros {
        None => "n/a".to_owned(),
        Some(micros) if micros >= 999_950.0 => format!("{} s", figures(micros / 1e6)),
        Some(micros) if micros >= 999.95 => format!("{} ms", figures(micros / 1e3)),
        Some(micros) => format!("{} us", figures(micros)),
    }
}

/// Formats a whole number in groups of three digits: `12 345 678`.
pub(crate) fn whole(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Formats a number of things: `1 module`, `12 000 modules`.
pub(crate) fn counted(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", whole(number), if number == 1 { "" } else { "s" })
}

/// Draws values as blocks, scaled from the lowest to the highest value. Draws at most `most` blocks. If there are more
/// values, each block is the mean of several values.
pub(crate) fn sparkline(values: &[f64], most: usize) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let each = values.len().div_ceil(most.max(1)).max(1);
    let means: Vec<f64> = values.chunks(each).map(|some| some.iter().sum::<f64>() / some.len() as f64).collect();
    let (low, high) =
        means.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), mean| (low.min(*mean), high.max(*mean)));
    // Equal values may differ by rounding errors. Draw them at one height.
    let flat = high - low <= high.abs().max(low.abs()) * 1e-9;
    let block = |mean: f64| if flat { BLOCKS[3] } else { BLOCKS[((mean - low) / (high - low) * 7.0).round() as usize] };
    means.into_iter().map(block).collect()
}

/// Wraps words into lines of at most `width` characters. All lines but the first are indented by `indent`. A word that
/// is longer than a line gets a line of its own.
pub(crate) fn wrapped(text: &str, indent: usize, width: usize) -> String {
    let (mut wrapped, mut at) = (String::new(), indent);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if !wrapped.is_empty() {
            let fits = at + 1 + length <= width;
            wrapped.push_str(&if fits { " ".to_owned() } else { format!("\n{}", " ".repeat(indent)) });
            at = if fits { at + 1 } else { indent };
        }
        wrapped.push_str(word);
        at += length;
    }
    wrapped
}

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Formats a table with aligned columns, separated by two spaces.
pub(crate) fn table(columns: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let width = |text: &str| text.chars().count();
    let mut widths: Vec<_> = columns.iter().map(|(head, _)| width(head)).collect();
    for row in rows {
        widths.iter_mut().zip(row).for_each(|(widest, cell)| *widest = (*widest).max(width(cell)));
    }
    let mut text = String::new();
    let heads = columns.iter().map(|(head, _)| (*head).to_owned()).collect();
    for row in std::iter::once(&heads).chain(rows) {
        let mut line = String::new();
        for ((cell, widest), (_, align)) in row.iter().zip(&widths).zip(columns) {
            let gap = " ".repeat(widest - width(cell));
            if !line.is_empty() {
                line.push_str("  ");
            }
            match align {
                Align::Left => line.extend([cell.as_str(), &gap]),
                Align::Right => line.extend([gap.as_str(), cell]),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_four() {
        let shown = [0.0, 7.0, 0.5, 999.96, 1000.0, 12_345_678.0, 1e12].map(short);
        assert_eq!(shown, ["0", "7", "0.500", "1.000k", "1.000k", "12.35M", "1.000T"]);
        assert_eq!(
            [Some(12.345), Some(1_234.5), Some(2e6), None].map(span),
            ["12.35 us", "1.234 ms", "2.000 s", "n/a"]
        );
        assert_eq!([0, 999, 1000, 1_234_567].map(whole), ["0", "999", "1 000", "1 234 567"]);
        assert_eq!([0, 1, 2_000].map(|number| counted(number, "flow")), ["0 flows", "1 flow", "2 000 flows"]);
        assert_eq!((known(None, 1), known(Some(1.25), 1)), ("n/a".to_owned(), "1.2".to_owned()));
    }

    #[test]
    fn a_sparkline_rises_and_falls_with_its_values() {
        assert_eq!(sparkline(&[0.0, 7.0, 3.0], 10), "▁█▄");
        assert_eq!(sparkline(&[5.0, 5.0], 10), "▄▄");
        assert_eq!(sparkline(&[1.0, 1.0, 2.0, 2.0, 3.0], 3), "▁▅█");
        assert_eq!(sparkline(&[], 3), "");
    }

    #[test]
    fn words_are_wrapped() {
        assert_eq!(wrapped("one  two three", 2, 9), "one two\n  three");
        assert_eq!(wrapped("immeasurable a", 1, 6), "immeasurable\n a");
        assert_eq!(wrapped("", 1, 6), "");
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["a".to_owned(), "10".to_owned()], vec!["long".to_owned(), "1".to_owned()]];
        let text = table(&[("name", Align::Left), ("n", Align::Right)], &rows);
        assert_eq!(text, "name   n\na     10\nlong   1\n");
    }
}
