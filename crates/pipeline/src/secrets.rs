//! Words of a configuration that may be a secret, and messages without them.
//!
//! The check of a value against its schema quotes no value of a parameter that has a secret (`x-secret` in the
//! schema). A text that is not YAML has no such values yet, a key may stand in a wrong line, and a setting is
//! shown as it was written. So every message is searched for the words of such parameters before it is shown.

use std::collections::HashSet;
use std::sync::OnceLock;

use forebay_graph::secret::{HIDDEN, is_key, without_keys};
use serde_json::Value;

/// The shortest word that is looked for, and how many letters of one in a row are hidden: parts of keys are, too.
const SHORTEST: usize = 8;

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

/// The words of a text: no secret has one of the characters between them.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let between = |c: char| c.is_whitespace() || "{}[](),=\"'`@#&*!|<>/:;%?".contains(c);
    text.split(between).filter(|word| !word.is_empty())
}

/// The words of a text in which pairs of digits with colons between them are one word.
fn wide_words(text: &str) -> impl Iterator<Item = &str> {
    let between = |c: char| c.is_whitespace() || "{}[](),=\"'`@#&*!|<>/;%?".contains(c);
    text.split(between).filter(|word| !word.is_empty())
}

/// The words of a line that are no names of `name=value`.
fn values(line: &str) -> impl Iterator<Item = &str> {
    words(line).filter(|word| {
        let end = word.as_ptr() as usize - line.as_ptr() as usize + word.len();
        !line[end..].starts_with('=') || word.bytes().any(|c| c.is_ascii_digit())
    })
}

/// Where one of `names` stands in a line, as a word of its own.
fn find(line: &str, names: &HashSet<String>) -> Option<usize> {
    words(line).find(|word| names.contains(*word)).map(|word| word.as_ptr() as usize - line.as_ptr() as usize)
}

/// A setting, `key=value`, as it may be shown: without its value where that has a secret, or may have one.
#[must_use]
pub fn shown_setting(setting: &str) -> String {
    let names = names();
    let Some((path, value)) = setting.split_once('=') else {
        let is_concerned = words(setting).flat_map(|word| word.split('.')).any(|word| names.has_secrets(word));
        return if is_concerned { HIDDEN.to_owned() } else { without_keys(setting) };
    };
    let known = |part: &str| names.words.contains(part) || part.parse::<u16>().is_ok();
    let parts: Vec<&str> = path.split('.').map(str::trim).collect();
    let kind = parts.iter().position(|part| names.kinds.contains(*part));
    // A word below the kind that the language does not have may be a key.
    let is_strange = |(at, part): (usize, &&str)| is_key(part) || kind.is_some_and(|kind| at > kind) && !known(part);
    let strange = parts.iter().enumerate().any(is_strange);
    let whole = kind.is_some_and(|kind| kind + 1 == parts.len());
    let parameter = parts.iter().any(|part| names.parameters.contains(*part));
    let inside = words(value).nth(1).is_some() && words(value).any(|word| names.has_secrets(word));
    let value = value.trim();
    let shown = match value {
        value if known(value) => value.to_owned(),
        _ if strange || whole || parameter || inside => HIDDEN.to_owned(),
        // A seed may have as many digits as a part of a key.
        value if value.parse::<u64>().is_ok() => value.to_owned(),
        value => without_keys(value),
    };
    if !strange && shown == value {
        return setting.to_owned();
    }
    let parts = parts.iter().enumerate().map(|(at, part)| if is_strange((at, part)) { HIDDEN } else { *part });
    format!("{}={shown}", parts.collect::<Vec<_>>().join("."))
}

/// The words of a configuration that may be secrets.
#[derive(Default)]
pub(crate) struct Hidden {
    /// Those that are letters alone: hidden as whole words.
    whole: HashSet<String>,
    /// Every part of [`SHORTEST`] characters of the others.
    parts: HashSet<Vec<char>>,
}

impl Hidden {
    /// Those of a text and of its settings.
    pub(crate) fn of(text: &str, sets: &[String]) -> Self {
        let mut hidden = Self::default();
        if words(text).any(|word| names().has_secrets(word)) {
            hidden.note_text(text);
        }
        for set in sets.iter().filter(|set| shown_setting(set) != **set) {
            words(set).flat_map(|word| word.split('.').chain([word])).for_each(|word| hidden.note(word));
            wide_words(set)
                .flat_map(|word| word.split('.'))
                .filter(|word| is_key(word))
                .for_each(|word| hidden.note(word));
        }
        hidden
    }

    /// A kind's own lines are those that are further to the right, up to the first that is not.
    fn note_text(&mut self, text: &str) {
        let mut within: Option<usize> = None;
        for line in text.lines() {
            let indent = line.len() - line.trim_start().len();
            let blank = line.trim().is_empty();
            if within.is_some_and(|kind| indent <= kind && !blank) {
                within = None;
            }
            let code = line.split(" #").next().unwrap_or_default();
            if within.is_some() {
                values(code).for_each(|word| self.note(word));
            } else if let Some(at) = find(code, &names().kinds) {
                within = Some(indent);
                values(&code[at..]).for_each(|word| self.note(word));
            } else if let Some(at) = find(code, &names().parameters) {
                // A key in a wrong line, or below a kind with a typing error.
                words(&code[at..])
                    .filter(|word| word.bytes().any(|c| c.is_ascii_digit()))
                    .for_each(|word| self.note(word));
            }
            words(line).chain(wide_words(line)).filter(|word| is_key(word)).for_each(|word| self.note(word));
        }
    }

    fn note(&mut self, word: &str) {
        let is_file = word.rsplit_once('.').is_some_and(|(_, extension)| {
            (1..=5).contains(&extension.len()) && extension.bytes().all(|c| c.is_ascii_alphabetic())
        });
        let is_name = is_file || word.parse::<std::net::Ipv4Addr>().is_ok() || names().words.contains(word);
        if word.chars().count() < SHORTEST || is_name && !is_key(word) {
            return;
        }
        if word.chars().all(|c| c.is_ascii_alphabetic() || c == '_' || c == '-') {
            self.whole.insert(word.to_owned());
            return;
        }
        // As messages show it that have read it as a number.
        let number = crate::yaml::number(word).map(|number| number.to_string());
        for form in [Some(word.to_owned()), number].into_iter().flatten() {
            let letters: Vec<char> = form.chars().collect();
            self.parts.extend(letters.windows(SHORTEST).map(<[char]>::to_vec));
        }
    }

    /// A message without them, and without any other text of the shape of a key.
    pub(crate) fn remove(&self, message: String) -> String {
        let letters: Vec<char> = message.chars().collect();
        let mut secret = vec![false; letters.len()];
        for (at, part) in letters.windows(SHORTEST).enumerate().filter(|_| !self.parts.is_empty()) {
            if self.parts.contains(part) {
                secret[at..at + SHORTEST].fill(true);
            }
        }
        let of_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        let mut at = 0;
        for word in letters.split(|c| !of_word(*c)) {
            if !self.whole.is_empty() && self.whole.contains(&word.iter().collect::<String>()) {
                secret[at..at + word.len()].fill(true);
            }
            at += word.len() + 1;
        }
        if !secret.contains(&true) {
            return without_keys(&message);
        }
        let mut shown = String::with_capacity(message.len());
        for (at, letter) in letters.iter().enumerate() {
            match (secret[at], at > 0 && secret[at - 1]) {
                (true, true) => {}
                (true, false) => shown.push_str(HIDDEN),
                (false, _) => shown.push(*letter),
            }
        }
        without_keys(&shown)
    }
}

#[cfg(test)]
mod tests;
