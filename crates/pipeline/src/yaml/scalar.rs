//! The values of texts without quotes.

use serde_json::Number;

use super::NodeKind;

/// Returns whether text without quotes is null (YAML 1.2.2, section 10.3.2, the core schema).
pub(crate) fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// Returns whether text without quotes is read as text.
pub(crate) fn is_plain_text(text: &str) -> bool {
    matches!(plain(text.to_owned()), NodeKind::Text(_))
}

/// Returns the value of text without quotes (YAML 1.2.2, section 10.3.2, the core schema). Infinities and NaN stay
/// text, because JSON does not have them.
pub(super) fn plain(text: String) -> NodeKind {
    if is_null(&text) {
        return NodeKind::Null;
    }
    match text.as_str() {
        "true" | "True" | "TRUE" => return NodeKind::Bool(true),
        "false" | "False" | "FALSE" => return NodeKind::Bool(false),
        _ => {}
    }
    number(&text).map_or(NodeKind::Text(text), NodeKind::Number)
}

/// Returns the number in a text, if it is one.
pub(crate) fn number(text: &str) -> Option<Number> {
    let radix = |digits: &str, radix| {
        // The standard library would accept a sign here, but the core schema does not.
        digits.starts_with(|c: char| c.is_ascii_alphanumeric()).then(|| u64::from_str_radix(digits, radix).ok())?
    };
    if let Some(digits) = text.strip_prefix("0x") {
        return radix(digits, 16).map(Number::from);
    }
    if let Some(digits) = text.strip_prefix("0o") {
        return radix(digits, 8).map(Number::from);
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let of_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-');
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') || !unsigned.chars().all(of_number) {
        return None;
    }
    let whole = text.parse::<u64>().map(Number::from).or_else(|_| text.parse::<i64>().map(Number::from));
    whole.ok().or_else(|| text.parse::<f64>().ok().and_then(Number::from_f64))
}
