//! Values in messages.

pub(crate) use forebay_graph::short;

/// Quotes a value for a message: shortened, and on one line.
pub(crate) fn quote(text: &str) -> String {
    format!("'{}'", short(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_value_is_short_and_on_one_line() {
        assert_eq!(quote("a\nb"), "'a\\u000ab'");
        assert_eq!(quote(&"x".repeat(61)), format!("'{}…'", "x".repeat(60)));
    }
}
