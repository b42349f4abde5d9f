//! Parses a line of `pipeline:`: `port -> module[gate] -> module -> port`.

use crate::wording::quote;

/// A name on a line, with its gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stop<'a> {
    /// A module or port, or [`DROP`].
    pub(crate) name: &'a str,
    /// The text in brackets after the name; `None` without brackets.
    pub(crate) gate: Option<&'a str>,
}

/// The name at the end of a line whose packets are dropped.
pub(crate) const DROP: &str = "drop";

/// Reads the names between arrows.
///
/// # Errors
/// Returns a message if the line is not names with arrows between.
pub(crate) fn read(text: &str) -> Result<Vec<Stop<'_>>, String> {
    if text.trim().is_empty() {
        return Err("the line is empty: write names with `->` between".to_owned());
    }
    let stops = text.split("->").map(|part| stop(part.trim()).map_err(|wrong| format!("{wrong} in {}", quote(text))));
    stops.collect()
}

/// Parses `module`, `port` or `module[gate]`.
fn stop(part: &str) -> Result<Stop<'_>, String> {
    if part.is_empty() {
        return Err("a name is missing beside an arrow".to_owned());
    }
    let (name, gate) = match part.split_once('[') {
        None => (part, None),
        Some((name, rest)) => match rest.strip_suffix(']').map(str::trim) {
            Some(gate) if !gate.is_empty() && !gate.contains(['[', ']']) => (name.trim_end(), Some(gate)),
            _ => return Err(format!("{} is not `module[gate]`", quote(part))),
        },
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if name.is_empty() || !name.chars().all(plain) {
        return Err(format!("{} is not a name: lines are names with `->` between", quote(part)));
    }
    Ok(Stop { name, gate })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_gates_are_read() {
        let stops = read("core -> vlans[100]->fw  ->  drop").expect("a line");
        let names: Vec<_> = stops.iter().map(|stop| (stop.name, stop.gate)).collect();
        assert_eq!(names, [("core", None), ("vlans", Some("100")), ("fw", None), ("drop", None)]);
    }

    #[test]
    fn errors_quote_the_wrong_part() {
        for (text, expected) in [
            ("", "the line is empty: write names with `->` between"),
            ("a ->", "a name is missing"),
            ("a -> b c", "'b c' is not a name"),
            ("a[ -> b", "'a[' is not `module[gate]`"),
            ("a[] -> b", "'a[]' is not"),
            ("a[x]y -> b", "'a[x]y' is not"),
            ("[x] -> b", "'[x]' is not a name"),
            ("a => b", "'a => b' is not a name"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(expected), "{error}");
        }
    }
}
