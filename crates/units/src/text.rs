//! Texts from outside in messages. They cannot end a line, forge a line, or control a terminal.

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

/// Returns a text shortened to 60 characters, and [on one line](on_one_line), for a message or the value of a fault. A
/// shortened text ends in `…`.
#[must_use]
pub fn short(text: &str) -> String {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => on_one_line(&text[..end]) + "…",
        None => on_one_line(text),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_text_has_60_characters_and_one_line() {
        assert_eq!(short("a\nb\u{1b}c"), "a\\u000ab\\u001bc");
        assert_eq!(short(&"é".repeat(60)), "é".repeat(60));
        assert_eq!(short(&"é".repeat(61)), format!("{}…", "é".repeat(60)));
    }
}
