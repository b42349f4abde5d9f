//! Finds words of a configuration that may be secrets, and removes them from messages.
//!
//! The schema check quotes no value of a parameter with a secret (`x-secret` in the schema). This is not enough: a text
//! that is not YAML has no parameters, a key may be in a wrong line, and a setting is shown as it was written.
//! Therefore every message is searched for the words of such parameters before it is shown.

mod message;

use std::collections::HashSet;
use std::sync::OnceLock;

use forebay_graph::secret::{HIDDEN, is_key, without_keys};
use forebay_protocol::event::on_one_line;
use serde_json::Value;

use crate::conform::has_secret;
pub(crate) use message::SecretWords;

/// The names in the schema that are needed to find secrets.
struct Names {
    /// The functions, kinds of ports and kinds of state with a secret parameter.
    kinds: HashSet<String>,
    /// The parameters that contain a secret, at any depth.
    parameters: HashSet<String>,
    /// The words of the language, which are not secrets.
    words: HashSet<String>,
}

impl Names {
    /// Finds the names in the JSON Schema of configurations.
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

    /// Adds the names of parameters and the fixed values in a rule to `words`.
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

    /// Adds the names of the parameters with a secret in a rule to `parameters`.
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

    /// Returns whether a word names a kind or a parameter with a secret.
    fn has_secrets(&self, word: &str) -> bool {
        self.kinds.contains(word) || self.parameters.contains(word)
    }
}

/// Returns the names. They are found at the first call.
fn names() -> &'static Names {
    static NAMES: OnceLock<Names> = OnceLock::new();
    NAMES.get_or_init(|| Names::of(&crate::schema::schema()))
}

/// Returns whether functions, ports or states of this name have a secret parameter.
#[must_use]
pub fn is_kind_with_secrets(name: &str) -> bool {
    names().kinds.contains(name)
}

/// Returns whether a parameter of this name contains a secret.
pub(crate) fn is_secret_parameter(name: &str) -> bool {
    names().parameters.contains(name)
}

/// Returns the words of a text. No secret contains one of the separators between words.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_separator = |c: char| c.is_whitespace() || "{}[](),=\"'`@#&*!|<>/:;%?".contains(c);
    text.split(is_separator).filter(|word| !word.is_empty())
}

/// A setting, `key=value`, and its parts that may be secrets.
struct Setting<'t> {
    text: &'t str,
    /// The parts of its path. The flag is true if the part may be a secret. Empty if the text has no `=`.
    path: Vec<(&'t str, bool)>,
    /// The value; `None` if the text has no `=`.
    value: Option<&'t str>,
    /// The value in a form that may be shown, or the whole text if there is no value.
    shown: String,
}

impl<'t> Setting<'t> {
    /// Splits a setting, and decides which of its parts may be shown.
    fn of(text: &'t str) -> Self {
        let names = names();
        let Some((path, value)) = text.split_once('=') else {
            let parts = || words(text).flat_map(|word| word.split('.'));
            let is_concerned = parts().any(|word| names.has_secrets(word));
            // One of these names alone is not a secret.
            let shown = if is_concerned && parts().nth(1).is_some() { HIDDEN.to_owned() } else { without_keys(text) };
            return Self { text, path: Vec::new(), value: None, shown };
        };
        let known = |part: &str| names.words.contains(part) || part.parse::<u16>().is_ok();
        let parts: Vec<&str> = path.split('.').map(str::trim).collect();
        let kind = parts.iter().position(|part| names.kinds.contains(*part));
        // An unknown word below the kind may be a key.
        let is_strange =
            |index: usize, part: &str| is_key(part) || kind.is_some_and(|kind| index > kind) && !known(part);
        let path: Vec<_> = parts.iter().enumerate().map(|(index, part)| (*part, is_strange(index, part))).collect();
        let whole = kind.is_some_and(|kind| kind + 1 == parts.len());
        let parameter = parts.iter().any(|part| names.parameters.contains(*part));
        let inside = words(value).nth(1).is_some() && words(value).any(|word| names.has_secrets(word));
        let strange = path.iter().any(|(_, strange)| *strange);
        let value = value.trim();
        let shown = match value {
            value if known(value) => value.to_owned(),
            _ if strange || whole || parameter || inside => HIDDEN.to_owned(),
            // A number is shown, because a seed may have as many digits as a part of a key.
            value if value.parse::<u64>().is_ok() => value.to_owned(),
            value => without_keys(value),
        };
        Self { text, path, value: Some(value), shown }
    }

    /// Returns the setting without secrets.
    fn shown(&self) -> String {
        let Some(value) = self.value else { return self.shown.clone() };
        if value == self.shown && self.path.iter().all(|(_, strange)| !strange) {
            return self.text.to_owned();
        }
        let parts = self.path.iter().map(|(part, strange)| if *strange { HIDDEN } else { *part });
        format!("{}={}", parts.collect::<Vec<_>>().join("."), self.shown)
    }
}

/// Returns a setting, `key=value`, for display, on one line. Its value and parts of its path are hidden if they may be
/// secrets.
#[must_use]
pub fn shown_setting(setting: &str) -> String {
    on_one_line(&Setting::of(setting).shown())
}

#[cfg(test)]
mod tests;
