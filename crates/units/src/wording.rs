//! Counted things and ranges of numbers in messages.

use std::fmt::Display;

/// Returns a number of things: `1 value`, `2 values`, `2 addresses`. The plural of `thing` must end in `s`, or in `es`
/// if `thing` ends in `s`.
#[must_use]
pub fn counted<N: Display + PartialEq + From<u8>>(number: N, thing: &str) -> String {
    let plural = if number == N::from(1) {
        ""
    } else if thing.ends_with('s') {
        "es"
    } else {
        "s"
    };
    format!("{number} {thing}{plural}")
}

/// Returns a range of allowed numbers: `0 to 3`. For a range of one number, it is `only 0`.
#[must_use]
pub fn range<N: Display + PartialEq>(least: N, most: N) -> String {
    if least == most { format!("only {least}") } else { format!("{least} to {most}") }
}

/// Returns what is allowed, with its verb: `allowed are 0 to 3`. For a [`range`] of one number, it is `allowed is only
/// 0`.
#[must_use]
pub fn allowed(what: &str) -> String {
    let verb = if what.starts_with("only ") { "is" } else { "are" };
    format!("allowed {verb} {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_noun_agrees_with_the_number() {
        assert_eq!(counted(0_usize, "value"), "0 values");
        assert_eq!(counted(1_u8, "value"), "1 value");
        assert_eq!(counted(2_u64, "value"), "2 values");
        assert_eq!((counted(1, "address"), counted(2, "address")), ("1 address".to_owned(), "2 addresses".to_owned()));
    }

    #[test]
    fn a_range_of_one_number_is_that_number() {
        assert_eq!(allowed(&range(0, 3)), "allowed are 0 to 3");
        assert_eq!(allowed(&range(0, 0)), "allowed is only 0");
    }
}
