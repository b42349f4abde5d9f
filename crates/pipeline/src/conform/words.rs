//! Values and what a schema allows, in words.

use serde_json::Value;

use crate::problem::{listed, nearest, quote};

pub(super) fn be(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

pub(super) fn unknown_key(path: &[&str], key: &str, rule: &Value) -> String {
    let names: Vec<&str> =
        rule["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    let near = nearest(key, names.iter().copied());
    let known = listed(names.iter().copied());
    match path {
        ["modules", _, _] => format!("there is no function {}{near}: there are {known}", quote(key)),
        ["ports", _, _] => format!("there is no kind of port {}{near}: there are {known}", quote(key)),
        ["state", _, _] if names.is_empty() => format!("there is no kind of state {}: none is known", quote(key)),
        ["state", _, _] => format!("there is no kind of state {}{near}: there are {known}", quote(key)),
        _ if names.is_empty() => format!("unknown key {}: none is allowed", quote(key)),
        _ => format!("unknown key {}{near}: allowed {} {known}", quote(key), be(names.len())),
    }
}

/// The units of a quantity's pattern.
pub(super) fn units(rule: &Value) -> Option<String> {
    let pattern = rule["pattern"].as_str()?.strip_prefix("^\\s*[0-9][0-9._]*\\s*(")?;
    Some(pattern.strip_suffix(")\\s*$")?.replace('|', ", "))
}

/// What a schema allows, in words.
pub(super) fn allowed(rule: &Value) -> Vec<String> {
    if let Some(value) = rule.get("const") {
        return vec![bare(value)];
    }
    if let Some(values) = rule["enum"].as_array() {
        return values.iter().map(bare).collect();
    }
    if let Some(forms) = rule.get("anyOf").or_else(|| rule.get("oneOf")).and_then(Value::as_array) {
        return forms.iter().flat_map(allowed).collect();
    }
    if let Some(units) = units(rule) {
        return vec![format!("a number with a unit ({units})")];
    }
    let kind = match &rule["type"] {
        Value::Array(kinds) => kinds.iter().find(|kind| *kind != "null").unwrap_or(&Value::Null),
        kind => kind,
    };
    vec![match kind.as_str() {
        Some("integer") => format!("a whole number{}", range(rule)),
        Some("number") => format!("a number{}", range(rule)),
        Some("string") if rule["pattern"].is_string() => rule["description"]
            .as_str()
            .map_or_else(|| format!("text like {}", rule["pattern"]), |text| first_sentence(text).to_owned()),
        Some("object") => {
            match rule["properties"].as_object().map(|it| it.keys().map(String::as_str).collect::<Vec<_>>()) {
                Some(keys) if !keys.is_empty() => format!("a mapping with {}", listed(keys)),
                _ => "a mapping".to_owned(),
            }
        }
        other => word(other).to_owned(),
    }]
}

pub(super) fn range(rule: &Value) -> String {
    let least = rule.get("minimum").map(|least| format!(" from {}", bare(least)));
    let above = rule.get("exclusiveMinimum").map(|bound| format!(" above {}", bare(bound)));
    let most = rule.get("maximum").map(|most| format!(" to {}", bare(most)));
    let below = rule.get("exclusiveMaximum").map(|bound| format!(" below {}", bare(bound)));
    [least, above, most, below].into_iter().flatten().collect()
}

/// The same beside other words: `, from 1 to 9`.
pub(super) fn within(rule: &Value) -> String {
    let range = range(rule);
    if range.is_empty() { range } else { format!(",{range}") }
}

/// The number that is meant by one with a letter for its size: `100k`.
pub(super) fn multiple(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "k" | "K" => 1_000,
        "m" | "M" => 1_000_000,
        "g" | "G" => 1_000_000_000,
        _ => return None,
    };
    digits.trim_end().parse::<u64>().ok()?.checked_mul(factor)
}

/// The types that a schema allows.
pub(super) fn types(rule: &Value) -> String {
    match &rule["type"] {
        Value::Array(kinds) => {
            let kinds = kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null");
            kinds.map(|kind| word(Some(kind))).collect::<Vec<_>>().join(" or ")
        }
        kind => word(kind.as_str()).to_owned(),
    }
}

fn word(kind: Option<&str>) -> &'static str {
    match kind {
        Some("integer") => "a whole number",
        Some("number") => "a number",
        Some("string") => "text",
        Some("boolean") => "true or false",
        Some("array") => "a list",
        Some("object") => "a mapping",
        Some("null") => "nothing",
        _ => "any value",
    }
}

/// A value in a list of what is allowed.
pub(super) fn bare(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A value in a message.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a mapping".to_owned(),
        value => quote(&bare(value)),
    }
}

pub(super) fn first_sentence(text: &str) -> &str {
    let end = text.find(". ").or_else(|| text.find(".\n")).unwrap_or(text.len());
    text[..end].trim_end_matches('.')
}
