//! Escapes text that is not trusted for HTML and SVG.

/// Escapes the characters that have a meaning in markup, and replaces the characters that XML does not allow.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ => safe.push(allowed(character)),
        }
    }
    safe
}

/// Returns the character if XML 1.0 (section 2.2) allows it and it does not change the reading direction. Otherwise,
/// returns the replacement character U+FFFD.
pub(crate) fn allowed(character: char) -> char {
    match character {
        '\t' | '\n' | '\r' => character,
        '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        _ if character.is_control() => '\u{fffd}',
        // These characters change the reading direction of the text after them.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        _ => character,
    }
}

/// Replaces the characters that are not [allowed], and replaces line breaks by spaces. It is used for text that the
/// drawing library itself escapes.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(allowed).map(|character| if character == '\n' { ' ' } else { character }).collect()
}

/// Returns a name for an anchor, made of letters, digits and hyphens, and never empty. Different texts may have the
/// same name.
pub(crate) fn anchor(text: &str) -> String {
    let mut name = String::new();
    for character in text.chars() {
        if character.is_ascii_alphanumeric() {
            name.push(character.to_ascii_lowercase());
        } else if !name.ends_with('-') && !name.is_empty() {
            name.push('-');
        }
    }
    let name = name.trim_end_matches('-');
    if name.is_empty() { "part".to_owned() } else { name.to_owned() }
}
