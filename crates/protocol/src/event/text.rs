//! Writes events as lines of text. Text from outside cannot end or forge a line.

use forebay_units::text::without_control;
use serde_json::Value;

use super::Event;

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
