//! Values and lists of names in messages.

/// Quotes a value for a message: shortened, and on one line.
pub(crate) fn quote(text: &str) -> String {
    format!("'{}'", short(text))
}

/// Returns a text shortened to 60 characters, and on one line.
pub(crate) fn short(text: &str) -> String {
    const LONGEST: usize = 60;
    let mut short: String = text.chars().take(LONGEST).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().nth(LONGEST).is_some() {
        short.push('…');
    }
    short
}

/// Lists names for a message. Shortens long lists.
#[must_use]
pub fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const MOST: usize = 24;
    let names: Vec<_> = names.into_iter().collect();
    let mut text = names[..names.len().min(MOST)].join(", ");
    if names.len() > MOST {
        text.push_str(&format!(" and {} more", names.len() - MOST));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_value_is_short_and_on_one_line() {
        assert_eq!(quote("a\nb"), "'a\u{fffd}b'");
        assert_eq!(quote(&"x".repeat(61)), format!("'{}…'", "x".repeat(60)));
    }
}
