//! Writes events as lines of text. Text from outside cannot end or forge a line.

use serde_json::Value;

use super::Event;

/// Returns whether a character controls a terminal or a reader of lines: control characters except line feed and tab,
/// other line separators, and characters that change the direction of text.
#[must_use]
pub fn is_control(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        _ => character.is_control(),
    }
}

/// Returns `text` with each character that [`is_control`] finds replaced by its JSON escape. A JSON text keeps its
/// meaning.
#[must_use]
pub fn without_control(text: &str) -> String {
    escaped(text, is_control)
}

/// Returns `text` on one line: like [`without_control`], but line feeds and tabs are escaped, too. A message that
/// repeats text from outside must pass this function before it is joined with other messages.
#[must_use]
pub fn on_one_line(text: &str) -> String {
    escaped(text, |character| is_control(character) || matches!(character, '\n' | '\t'))
}

/// Returns `text` with the characters that `is` finds replaced by their JSON escapes.
fn escaped(text: &str, is: impl Fn(char) -> bool) -> String {
    let mut safe = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is(character) {
            // All characters that are escaped fit in 16 bits.
            safe.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            safe.push(character);
        }
    }
    safe
}

/// Writes an event as `name=value` pairs: time, level, name and (if it is known) pipeline, then the fields in
/// alphabetical order, then the message.
pub(super) fn logfmt(event: &Event) -> String {
    let mut line = format!("time={} level={} event={}", event.time, event.level, event.event);
    let mut add = |name: &str, value: &Value| {
        line.push(' ');
        line.push_str(name);
        line.push('=');
        line.push_str(&written(value));
    };
    if !event.pipeline.is_empty() {
        add("pipeline", &Value::from(event.pipeline.as_str()));
    }
    event.fields.iter().for_each(|(name, value)| add(name, value));
    add("msg", &Value::from(event.message.as_str()));
    line
}

/// Writes a value: plain words unchanged, other text in quotes with the escapes of JSON.
fn written(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        value => without_control(&value.to_string()),
    }
}

/// Returns whether logfmt needs no quotes for `text`.
fn is_plain(text: &str) -> bool {
    let is_of_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:@%+,#".contains(&byte);
    !text.is_empty() && text.bytes().all(is_of_word)
}
