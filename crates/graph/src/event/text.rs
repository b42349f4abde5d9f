//! Events as lines of text, which no text from outside can end or forge.

use serde_json::Value;

use super::Event;

/// Whether a character is an instruction to a terminal or a reader of lines: control characters but for the end of a
/// line and the tabulator, other ends of lines, and characters that turn the direction in which text is read.
#[must_use]
pub fn is_acting(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        _ => character.is_control(),
    }
}

/// `text` with such characters as JSON escapes them, which leaves JSON the same.
#[must_use]
pub fn without_acting(text: &str) -> String {
    let mut safe = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_acting(character) {
            // None of them is beyond 16 bits.
            safe.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            safe.push(character);
        }
    }
    safe
}

/// An event as pairs: the fixed ones first, then the fields in alphabetical order, then the message.
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

/// A value: plain words as they are, other text between quotes with the escapes of JSON.
fn written(value: &Value) -> String {
    match value {
        Value::String(text) if is_plain(text) => text.clone(),
        value => without_acting(&value.to_string()),
    }
}

fn is_plain(text: &str) -> bool {
    let is_of_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:@%+,#".contains(&byte);
    !text.is_empty() && text.bytes().all(is_of_word)
}
