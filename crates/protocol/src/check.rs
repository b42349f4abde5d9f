//! The result of checking a configuration.

use std::fmt;

use forebay_units::text::{on_one_line, short};
use forebay_units::wording;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A fault of a configuration: its place, the value, what is allowed, and a hint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fault {
    /// The place as messages show it: `gateway.yaml:12`, or `--set batch=0`. Empty for parameters that are not part of
    /// a text.
    pub place: String,
    /// The line in the text, from 1; `None` if the fault is in a setting.
    pub line: Option<u32>,
    /// The column in the line, from 1; `None` if the fault is in a setting.
    pub column: Option<u32>,
    /// The path of the value: `modules.fw.acl.rules[3]`. Empty if the fault is not about one value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// What is wrong, with the value, what is allowed, and the hint.
    pub message: String,
    /// The wrong value, shortened and without quotes; `***` if it may be a secret. For a list of a wrong length, the
    /// number of elements and their noun, such as `65 addresses`. `None` if only the message has the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The allowed values, if they are known apart from the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<String>,
    /// What to write instead, if it is known apart from the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl Fault {
    /// Creates a fault without a place. Its message is [on one line](on_one_line): a line feed in a name cannot forge
    /// another fault.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: on_one_line(&message.into()), ..Self::default() }
    }

    /// Creates a fault without a place, whose message has several lines: one for each wrong line of a file. The caller
    /// must put text from outside [on one line](on_one_line).
    #[must_use]
    pub fn lines(message: &str) -> Self {
        let lines: Vec<_> = message.split('\n').map(on_one_line).collect();
        Self { message: lines.join("\n"), ..Self::default() }
    }

    /// Creates the fault of a value that is not allowed. Write a range as [`wording::range`] does.
    #[must_use]
    pub fn not_allowed(value: impl fmt::Display, allowed: impl Into<String>) -> Self {
        let (value, allowed) = (value.to_string(), allowed.into());
        let message = format!("{value}: {}", wording::allowed(&allowed));
        Self { value: Some(value), allowed: Some(allowed), ..Self::new(message) }
    }

    /// Creates the fault of a value that is not allowed, and says in `wrong` why. `wrong` should name the value.
    #[must_use]
    pub fn wrong(value: impl fmt::Display, wrong: impl fmt::Display, allowed: impl Into<String>) -> Self {
        let allowed = allowed.into();
        let message = format!("{wrong}: {}", wording::allowed(&allowed));
        Self { value: Some(value.to_string()), allowed: Some(allowed), ..Self::new(message) }
    }

    /// Creates a fault like [`wrong`](Self::wrong), but a single value or form is allowed.
    #[must_use]
    pub fn wrong_single(value: impl fmt::Display, wrong: impl fmt::Display, allowed: impl Into<String>) -> Self {
        let allowed = allowed.into();
        let message = format!("{wrong}: allowed is {allowed}");
        Self { value: Some(value.to_string()), allowed: Some(allowed), ..Self::new(message) }
    }

    /// Creates a fault with a hint, which says what to write instead.
    #[must_use]
    pub fn with_hint(wrong: impl fmt::Display, hint: impl Into<String>) -> Self {
        let hint = hint.into();
        Self { message: on_one_line(&format!("{wrong}: {hint}")), hint: Some(hint), ..Self::default() }
    }

    /// Returns the fault with its value [shortened](short).
    #[must_use]
    pub fn with_short_value(self) -> Self {
        Self { value: self.value.map(|value| short(&value)), ..self }
    }

    /// Returns the fault with all its texts, except its place, replaced by `replace`.
    #[must_use]
    pub fn map_texts(self, replace: impl Fn(&str) -> String) -> Self {
        let option = |text: Option<String>| text.map(|text| replace(&text));
        Self {
            path: replace(&self.path),
            message: replace(&self.message),
            value: option(self.value),
            allowed: option(self.allowed),
            hint: option(self.hint),
            ..self
        }
    }

    /// Returns the path and the message.
    #[must_use]
    pub fn text(&self) -> String {
        if self.path.is_empty() { self.message.clone() } else { format!("{}: {}", self.path, self.message) }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.text())
    }
}

/// A configuration that was checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Checked {
    /// All faults, in the order of lines. Without any, the configuration can be loaded.
    pub faults: Vec<Fault>,
    /// The pipeline's name; empty if there are faults, as the following lists are.
    pub pipeline: String,
    /// The modules: name and function.
    pub modules: Vec<(String, String)>,
    /// The ports: name and type.
    pub ports: Vec<(String, String)>,
    /// The declared flows.
    pub flows: Vec<String>,
    /// Warnings about tables: the module and a sentence.
    pub warnings: Vec<(String, String)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_and_what_is_allowed_are_in_the_message_and_apart_from_it() {
        let fields =
            |fault: &Fault| (fault.value.clone().unwrap_or_default(), fault.allowed.clone().unwrap_or_default());
        for (fault, message, value, allowed) in [
            (Fault::not_allowed(0, "1 to 9"), "0: allowed are 1 to 9", "0", "1 to 9"),
            (Fault::wrong(0, "0 is not a port", "1 to 9"), "0 is not a port: allowed are 1 to 9", "0", "1 to 9"),
            (Fault::not_allowed(2, wording::range(0, 0)), "2: allowed is only 0", "2", "only 0"),
            (Fault::wrong_single(false, "IPv6 needs it", "true"), "IPv6 needs it: allowed is true", "false", "true"),
        ] {
            assert_eq!(fault.message, message);
            assert_eq!(fields(&fault), (value.to_owned(), allowed.to_owned()), "{message}");
        }
    }

    /// Regression: a line feed in a name continued the message in another line, which looked like another fault.
    #[test]
    fn a_message_is_on_one_line_unless_it_is_made_of_lines() {
        let message = "module 'a\\u000ab' is missing";
        for fault in [
            Fault::new("module 'a\nb' is missing"),
            Fault::wrong("a\nb", "module 'a\nb' is missing", "a\nb"),
            Fault::with_hint("module 'a\nb' is missing", "add\nit"),
        ] {
            assert!(fault.message.starts_with(message) && !fault.message.contains('\n'), "{}", fault.message);
        }
        assert_eq!(Fault::lines("r:1: x\ty\nr:2: z").message, "r:1: x\\u0009y\nr:2: z");
    }

    #[test]
    fn a_short_value_has_60_characters_and_one_line() {
        let value = |text: &str| Fault::not_allowed(text, "1 to 9").with_short_value().value.unwrap_or_default();
        assert_eq!(value("a\nb\u{1b}c"), "a\\u000ab\\u001bc");
        assert_eq!(value(&"x".repeat(60)), "x".repeat(60));
        assert_eq!(value(&"x".repeat(61)), format!("{}…", "x".repeat(60)));
    }
}
