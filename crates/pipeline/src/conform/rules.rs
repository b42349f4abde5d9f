//! The schema as the walk needs it: with compiled patterns and resolved references.

use std::collections::HashMap;

use regex_lite::Regex;
use serde_json::Value;

/// The largest number of references that are followed one after the other. Without a limit, a circle of references
/// would never end.
pub(super) const MOST_REFERENCES: usize = 16;

/// A schema with its compiled patterns.
pub struct Rules {
    pub(super) schema: Value,
    /// The compiled patterns, by their text in the schema.
    patterns: HashMap<String, Regex>,
}

impl Rules {
    /// Creates the rules of a schema. A pattern that is not a regular expression matches every text.
    #[must_use]
    pub fn new(schema: Value) -> Self {
        let mut patterns = HashMap::new();
        collect(&schema, &mut patterns);
        Self { schema, patterns }
    }

    /// Returns the keys that the schema allows at the top of a configuration.
    pub(crate) fn parts(&self) -> Vec<&str> {
        self.schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect()
    }

    /// Returns the rule that this rule refers to, or the rule itself.
    pub(super) fn target<'r>(&'r self, rule: &'r Value) -> &'r Value {
        let mut rule = rule;
        for _ in 0..MOST_REFERENCES {
            let Some(reference) = rule["$ref"].as_str() else { break };
            let target = reference.strip_prefix('#').and_then(|pointer| self.schema.pointer(pointer));
            // The schema is generated, so every reference exists.
            rule = target.unwrap_or(&Value::Bool(true));
        }
        rule
    }

    /// Returns whether a text matches a pattern of the schema. True if there is no pattern, or if it is not a regular
    /// expression.
    pub(super) fn matches(&self, pattern: &Value, text: &str) -> bool {
        pattern.as_str().and_then(|pattern| self.patterns.get(pattern)).is_none_or(|pattern| pattern.is_match(text))
    }
}

/// Compiles all patterns of a schema.
fn collect(schema: &Value, patterns: &mut HashMap<String, Regex>) {
    match schema {
        Value::Object(map) => {
            if let Some(pattern) = map.get("pattern").and_then(Value::as_str)
                && let Ok(regex) = Regex::new(pattern)
            {
                patterns.insert(pattern.to_owned(), regex);
            }
            map.values().for_each(|value| collect(value, patterns));
        }
        Value::Array(list) => list.iter().for_each(|value| collect(value, patterns)),
        _ => {}
    }
}

/// Returns whether a valid value of this rule may contain a secret.
pub(crate) fn has_secret(rule: &Value) -> bool {
    match rule {
        Value::Object(map) => map.get("x-secret").is_some() || map.values().any(has_secret),
        Value::Array(list) => list.iter().any(has_secret),
        _ => false,
    }
}
