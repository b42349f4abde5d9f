//! Words of a configuration that may be a secret, and messages without them.
//!
//! The check of a value against its schema quotes no value of a parameter that has a secret (`x-secret` in the
//! schema). A text that is not YAML has no such values yet, a key may stand in a wrong line, and a setting is
//! shown as it was written. So every message is searched for the words of such parameters before it is shown.

mod message;

use std::collections::HashSet;
use std::sync::OnceLock;

use forebay_graph::secret::{HIDDEN, is_key, without_keys};
use serde_json::Value;

pub(crate) use message::SecretWords;

/// What the schema knows of secrets.
struct Names {
    /// Functions, kinds of ports and of state with a parameter that has a secret.
    kinds: HashSet<String>,
    /// Parameters that have a secret in them, at any depth.
    parameters: HashSet<String>,
    /// Words of the language: they are no secrets.
    words: HashSet<String>,
}

/// Whether a value of this rule has a secret in it, or would have one where it is written rightly.
pub(crate) fn has_secret(rule: &Value) -> bool {
    match rule {
        Value::Object(map) => map.get("x-secret").is_some() || map.values().any(has_secret),
        Value::Array(list) => list.iter().any(has_secret),
        _ => false,
    }
}

impl Names {
    fn of(schema: &Value) -> Self {
        let mut names = Self { kinds: HashSet::new(), parameters: HashSet::new(), words: HashSet::new() };
        names.note_words(schema);
        for section in ["ports", "state", "modules"] {
            let kinds = schema["properties"][section]["additionalProperties"]["properties"].as_object();
            for (kind, params) in kinds.into_iter().flatten().filter(|(_, params)| has_secret(params)) {
                names.kinds.insert(kind.clone());
                names.note_parameters(params);
            }
        }
        names
    }

    fn note_words(&mut self, rule: &Value) {
        match rule {
            Value::Object(map) => {
                if let Some(Value::Object(properties)) = map.get("properties") {
                    self.words.extend(properties.keys().cloned());
                }
                let texts = map.get("enum").and_then(Value::as_array).into_iter().flatten().chain(map.get("const"));
                self.words.extend(texts.filter_map(Value::as_str).map(str::to_owned));
                map.iter().filter(|(key, _)| *key != "examples").for_each(|(_, rule)| self.note_words(rule));
            }
            Value::Array(list) => list.iter().for_each(|rule| self.note_words(rule)),
            _ => {}
        }
    }

    fn note_parameters(&mut self, rule: &Value) {
        match rule {
            Value::Object(map) => {
                if let Some(Value::Object(properties)) = map.get("properties") {
                    let with = properties.iter().filter(|(_, rule)| has_secret(rule));
                    self.parameters.extend(with.map(|(name, _)| name.clone()));
                }
                map.iter().filter(|(key, _)| *key != "examples").for_each(|(_, rule)| self.note_parameters(rule));
            }
            Value::Array(list) => list.iter().for_each(|rule| self.note_parameters(rule)),
            _ => {}
        }
    }

    fn has_secrets(&self, word: &str) -> bool {
        self.kinds.contains(word) || self.parameters.contains(word)
    }
}

fn names() -> &'static Names {
    static NAMES: OnceLock<Names> = OnceLock::new();
    NAMES.get_or_init(|| Names::of(&crate::schema::schema()))
}

/// Whether functions, ports or states of this name have a parameter with a secret.
#[must_use]
pub fn is_kind_with_secrets(name: &str) -> bool {
    names().kinds.contains(name)
}

/// Whether a parameter of this name has a secret in it.
pub(crate) fn is_secret_parameter(name: &str) -> bool {
    names().parameters.contains(name)
}

/// The words of a text: no secret has one of the characters between them.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let between = |c: char| c.is_whitespace() || "{}[](),=\"'`@#&*!|<>/:;%?".contains(c);
    text.split(between).filter(|word| !word.is_empty())
}

/// A setting, `key=value`, and what of it may be a secret.
struct Setting<'t> {
    text: &'t str,
    /// The parts of its path, and whether each may be a key.
    path: Vec<(&'t str, bool)>,
    /// Nothing where the text has no `=`.
    value: Option<&'t str>,
    /// The value as it may be shown.
    shown: String,
}

impl<'t> Setting<'t> {
    fn of(text: &'t str) -> Self {
        let names = names();
        let Some((path, value)) = text.split_once('=') else {
            let parts = || words(text).flat_map(|word| word.split('.'));
            let is_concerned = parts().any(|word| names.has_secrets(word));
            // One of these names alone is no secret.
            let shown = if is_concerned && parts().nth(1).is_some() { HIDDEN.to_owned() } else { without_keys(text) };
            return Self { text, path: Vec::new(), value: None, shown };
        };
        let known = |part: &str| names.words.contains(part) || part.parse::<u16>().is_ok();
        let parts: Vec<&str> = path.split('.').map(str::trim).collect();
        let kind = parts.iter().position(|part| names.kinds.contains(*part));
        // A word below the kind that the language does not have may be a key.
        let is_strange = |at: usize, part: &str| is_key(part) || kind.is_some_and(|kind| at > kind) && !known(part);
        let path: Vec<_> = parts.iter().enumerate().map(|(at, part)| (*part, is_strange(at, part))).collect();
        let whole = kind.is_some_and(|kind| kind + 1 == parts.len());
        let parameter = parts.iter().any(|part| names.parameters.contains(*part));
        let inside = words(value).nth(1).is_some() && words(value).any(|word| names.has_secrets(word));
        let strange = path.iter().any(|(_, strange)| *strange);
        let value = value.trim();
        let shown = match value {
            value if known(value) => value.to_owned(),
            _ if strange || whole || parameter || inside => HIDDEN.to_owned(),
            // A seed may have as many digits as a part of a key.
            value if value.parse::<u64>().is_ok() => value.to_owned(),
            value => without_keys(value),
        };
        Self { text, path, value: Some(value), shown }
    }

    /// The whole of it as it may be shown.
    fn shown(&self) -> String {
        let Some(value) = self.value else { return self.shown.clone() };
        if value == self.shown && self.path.iter().all(|(_, strange)| !strange) {
            return self.text.to_owned();
        }
        let parts = self.path.iter().map(|(part, strange)| if *strange { HIDDEN } else { *part });
        format!("{}={}", parts.collect::<Vec<_>>().join("."), self.shown)
    }
}

/// A setting, `key=value`, as it may be shown: without its value where that has a secret, or may have one.
#[must_use]
pub fn shown_setting(setting: &str) -> String {
    Setting::of(setting).shown()
}

#[cfg(test)]
mod tests;
