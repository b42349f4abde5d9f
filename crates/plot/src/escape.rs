//! Text that comes from outside, as HTML and SVG may carry it.

/// Text with what has a meaning in markup escaped, and without what XML does not allow at all.
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

/// A character that XML 1.0 (section 2.2) allows, or the one that stands for any other.
pub(crate) fn allowed(character: char) -> char {
    match character {
        '\t' | '\n' | '\r' => character,
        '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        _ if character.is_control() => '\u{fffd}',
        // Those turn the direction in which what follows is read.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        _ => character,
    }
}

/// The same for what the drawing library escapes itself.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(allowed).map(|character| if character == '\n' { ' ' } else { character }).collect()
}

/// A name for an anchor: letters, digits and hyphens.
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
