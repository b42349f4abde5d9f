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
/// shortened text ends in `…`. It has no part of a key: if the cut would divide digits that may be a key, the text ends
/// before them. The filter that hides keys in messages finds only whole keys.
#[must_use]
pub fn short(text: &str) -> String {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => on_one_line(&text[..before_key(text, end)]) + "…",
        None => on_one_line(text),
    }
}

/// Returns the position at which a text is cut: `end`, or an earlier position if `end` divides a run of at least 16
/// hexadecimal digits. Then it is the first digit of the run. The digits may have separators, as in `a0:b1`.
/// Exception: if at least 32 digits of the run are before `end`, it is `end`, because the filter recognises them.
fn before_key(text: &str, end: usize) -> usize {
    let bytes = text.as_bytes();
    let is_of_key = |byte: &u8| byte.is_ascii_hexdigit() || b" ,:-._\\x".contains(byte);
    let digits = |part: &[u8]| part.iter().filter(|byte| byte.is_ascii_hexdigit()).count();
    let start = bytes[..end].iter().rposition(|byte| !is_of_key(byte)).map_or(0, |at| at + 1);
    let stop = bytes[end..].iter().position(|byte| !is_of_key(byte)).map_or(bytes.len(), |at| end + at);
    if digits(&bytes[start..end]) >= 32 || digits(&bytes[start..stop]) < 16 {
        return end;
    }
    bytes[start..end].iter().position(u8::is_ascii_hexdigit).map_or(end, |first| start + first)
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

    /// Regression: up to 31 digits of a key were shown, because the filter finds only whole keys.
    #[test]
    fn a_short_text_has_no_part_of_a_key() {
        let key = "deadbeefcafe0123456789abcdef0123";
        let (pairs, long) = ("de:ad:be:ef:ca:fe:01:23:45:67:89:ab:cd:ef:01:23", "é".repeat(40));
        assert_eq!(short(&format!("{long}.{key}")), format!("{long}.…"));
        assert_eq!(short(&format!("{long} {pairs}=5")), format!("{long} …"));
        assert_eq!(short(&format!("key-of-site-london-tunnel-no-1:{key}")), "key-of-site-london-tunnel-no-…");
        // The filter hides a part of at least 32 digits.
        assert_eq!(short(&key.repeat(2)), format!("{}…", &key.repeat(2)[..60]));
        // Fewer than 16 digits are not a key.
        assert_eq!(short(&format!("{}feedface and more", "o".repeat(56))), format!("{}feed…", "o".repeat(56)));
    }

    #[test]
    fn a_short_text_has_60_characters_and_one_line() {
        assert_eq!(short("a\nb\u{1b}c"), "a\\u000ab\\u001bc");
        assert_eq!(short(&"é".repeat(60)), "é".repeat(60));
        assert_eq!(short(&"é".repeat(61)), format!("{}…", "é".repeat(60)));
    }
}
