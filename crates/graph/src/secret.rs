//! Words that may be a key, which no message shows wherever they stand.
//!
//! Keys are hexadecimal digits, 32 and more. A word that is mostly such digits may be one in a wrong place, or
//! with a typing error in it. Other programs write keys in pairs, as in `a0:b1:c2`: so does a wrong place.

/// Stands where a word is not shown.
pub const HIDDEN: &str = "(not shown)";
/// The fewest hexadecimal digits of a word that may be a key, or the larger part of one.
const FEWEST: usize = 16;
/// Digits of the largest whole number of 64 bits.
const LONGEST_NUMBER: usize = 20;

/// Whether a word may be a key: 16 hexadecimal digits and more, and at most a quarter of other characters; or as many
/// digits in pairs between colons or dashes.
#[must_use]
pub fn is_key(word: &str) -> bool {
    let digits = word.bytes().filter(u8::is_ascii_hexdigit).count();
    digits >= FEWEST && (digits * 4 >= word.len() * 3 || is_in_pairs(word))
}

/// Whether a word has so many pairs of digits one after the other, between colons or dashes, that it may be a key. A
/// MAC address has fewer.
fn is_in_pairs(word: &str) -> bool {
    let mut pairs = 0;
    word.split([':', '-']).any(|group| {
        let is_pair = group.len() == 2 && group.bytes().all(|c| c.is_ascii_hexdigit());
        pairs = if is_pair { pairs + 1 } else { 0 };
        pairs * 2 >= FEWEST
    })
}

/// The length of a text's first run of groups of hexadecimal digits that may be a key, and where it starts: as `od`,
/// `xxd` and C write bytes, with the same characters between each two groups. Groups have an even number of digits, and
/// one of the letters shows that they are no decimal numbers.
fn find_groups(text: &str) -> Option<(usize, usize)> {
    let group = |at: usize| {
        let rest = &text[at..];
        let digits = rest.strip_prefix("0x").unwrap_or(rest);
        let count = digits.bytes().take_while(u8::is_ascii_hexdigit).count();
        let length = rest.len() - digits.len() + count;
        let ends = !rest[length..].starts_with(char::is_alphanumeric);
        (matches!(count, 2 | 4 | 6 | 8) && ends).then_some((length, count))
    };
    let separator = |at: usize| {
        let rest = &text[at..];
        [", ", " ", ",", ":", "-", ".", "_", "\\x"].into_iter().find(|between| rest.starts_with(between))
    };
    let starts = text.char_indices().map(|(at, _)| at);
    let begins = |before: &str| !before.ends_with(char::is_alphanumeric) || before.ends_with("\\x");
    starts.filter(|at| begins(&text[..*at])).find_map(|start| {
        let (length, mut digits) = group(start)?;
        let mut end = start + length;
        let between = separator(end)?;
        while text[end..].starts_with(between)
            && let Some((length, count)) = group(end + between.len())
        {
            end += between.len() + length;
            digits += count;
        }
        let letters = text[start..end].bytes().filter(|c| matches!(c, b'a'..=b'f' | b'A'..=b'F')).count();
        (digits >= FEWEST && letters >= 2).then_some((start, end - start))
    })
}

/// A text without the words and groups of digits that may be keys. Whole numbers of up to 20 digits are none.
#[must_use]
pub fn without_keys(text: &str) -> String {
    if let Some((start, length)) = find_groups(text) {
        let [before, after] = [&text[..start], &text[start + length..]];
        return format!("{}{HIDDEN}{}", without_keys(before), without_keys(after));
    }
    let of_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | ':' | '+' | '-');
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while !rest.is_empty() {
        let end = rest.find(|c| !of_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let is_number = word
            .split(['+', '-', '.', ':'])
            .all(|part| part.len() <= LONGEST_NUMBER && part.bytes().all(|c| c.is_ascii_digit()));
        shown.push_str(if is_key(word) && !is_number { HIDDEN } else { word });
        let next = after.chars().next().map_or(0, char::len_utf8);
        shown.push_str(&after[..next]);
        rest = &after[next..];
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key with something between each two digits.
    fn pairs(key: &str, between: &str) -> String {
        let pairs: Vec<&str> = (0..key.len()).step_by(2).map(|at| &key[at..at + 2]).collect();
        pairs.join(between)
    }

    #[test]
    fn words_of_many_digits_are_hidden_and_others_are_not() {
        let key = "a0b1c2d3e4f506172839405162738495";
        for (text, shown) in [
            (format!("'{key}' is no list"), "'(not shown)' is no list"),
            (format!("key={key}zz peer=192.0.2.1"), "key=(not shown) peer=192.0.2.1"),
            ("1.2345678901234568e31".to_owned(), "(not shown)"),
            (
                "batch 64 of 02:00:00:00:00:01 in café: 2001:db8::1".to_owned(),
                "batch 64 of 02:00:00:00:00:01 in café: 2001:db8::1",
            ),
            (String::new(), ""),
            ("hop=99999999999999999999+1".to_owned(), "hop=99999999999999999999+1"),
            ("from 1 to 18446744073709551615, 4096".to_owned(), "from 1 to 18446744073709551615, 4096"),
            (format!("'{}' is no list", pairs(key, " ")), "'(not shown)' is no list"),
            (format!("'{}' is no list", pairs(key, ",")), "'(not shown)' is no list"),
            (format!("'0x{}' is no list", pairs(key, ", 0x")), "'(not shown)' is no list"),
            (format!("'\\x{}' is no list", pairs(key, "\\x")), "'\\x(not shown)' is no list"),
            ("'A0B1C2D3 E4F50617 28394051' is é".to_owned(), "'(not shown)' is é"),
            ("'a0b1 c2d3 e4f5 0617' 'a0b1 c2d3 e4f5 0617'".to_owned(), "'(not shown)' '(not shown)'"),
            (
                "02:00:00:00:00:0a, 02:00:00:00:00:0b, 02:00:00:00:00:0c".to_owned(),
                "02:00:00:00:00:0a, 02:00:00:00:00:0b, 02:00:00:00:00:0c",
            ),
            (
                "allowed are 10, 20, 30, 40, 50, 60, 70, 80, 90".to_owned(),
                "allowed are 10, 20, 30, 40, 50, 60, 70, 80, 90",
            ),
            (format!("'{}' is no list", pairs(key, ":")), "'(not shown)' is no list"),
            (format!("key:{} is no list", pairs(key, "-")), "key:(not shown) is no list"),
            (
                "2001:db8:10:20:30:40:50:60 and 00-1b-21-aa-bb-cc".to_owned(),
                "2001:db8:10:20:30:40:50:60 and 00-1b-21-aa-bb-cc",
            ),
        ] {
            assert_eq!(without_keys(&text), shown);
        }
    }
}
