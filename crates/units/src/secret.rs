//! Hides, in messages, the words that may be keys.
//!
//! Keys have 32 or more hexadecimal digits. A word that consists mostly of such digits may be a key in a wrong
//! position, or with a typing error. Other programs write keys in pairs of digits, as in `a0:b1:c2`, and so may a user.
//! Addresses, UUIDs and file names may have as many digits, but are shown. All work here is linear in the length of the
//! text, because a client of the control socket may send a text of a megabyte.

mod groups;
mod names;

use std::collections::HashSet;
use std::ops::Range;

/// The text that replaces a hidden word.
pub const HIDDEN: &str = "(not shown)";
/// A word may be a key, or the largest part of a key, only if it has at least this number of hexadecimal digits.
const FEWEST: usize = 16;
/// The smallest number of hexadecimal digits of a whole key.
const KEY: usize = 32;
/// The number of digits of the largest decimal number of 64 bits. A decimal number with more digits may be a key.
const LONGEST_NUMBER: usize = 20;

/// Returns whether a word may be a key. A word may be a key if it has 16 or more hexadecimal digits and one of two
/// conditions holds: at least three quarters of its characters are such digits, or 16 digits are in consecutive pairs
/// between colons or dashes. IPv6 addresses and UUIDs are not keys, and not parts of a key.
#[must_use]
pub fn is_key(word: &str) -> bool {
    names::between(word, &names::numbers(word)).any(|part| is_like_a_key(&word[part]))
}

/// Returns the same as [`is_key`] for a word without IPv6 addresses and UUIDs.
fn is_like_a_key(word: &str) -> bool {
    let digits = word.bytes().filter(u8::is_ascii_hexdigit).count();
    digits >= FEWEST && (digits * 4 >= word.len() * 3 || is_in_pairs(word))
}

/// Returns whether a word may be a key because it has 16 digits or more in consecutive pairs, between colons or dashes.
/// A MAC address has fewer.
fn is_in_pairs(word: &str) -> bool {
    let mut pairs = 0;
    word.split([':', '-']).any(|group| {
        let is_pair = group.len() == 2 && group.bytes().all(|c| c.is_ascii_hexdigit());
        pairs = if is_pair { pairs + 1 } else { 0 };
        pairs * 2 >= FEWEST
    })
}

/// Hides the words and groups of digits of a text that may be keys. Whole numbers of up to 20 digits, IPv6 addresses,
/// UUIDs and file names are shown.
#[must_use]
pub fn without_keys(text: &str) -> String {
    without_keys_but(text, &HashSet::new())
}

/// Hides keys like [`without_keys`], but shows the words in `names`, for example the names of modules and files.
#[must_use]
pub fn without_keys_but(text: &str, names: &HashSet<String>) -> String {
    let (mut shown, mut end) = (String::with_capacity(text.len()), 0);
    for key in keys(text, names) {
        shown.push_str(&text[end..key.start]);
        shown.push_str(HIDDEN);
        end = key.end;
    }
    shown.push_str(&text[end..]);
    shown
}

/// Returns the ranges of bytes of a text that may be keys, in order. Words in `names` are not keys.
#[must_use]
pub fn keys(text: &str, names: &HashSet<String>) -> Vec<Range<usize>> {
    find(text, names).0
}

/// Returns [`keys`], and the number of groups of digits that were read, a measure of the work.
fn find(text: &str, names: &HashSet<String>) -> (Vec<Range<usize>>, usize) {
    let (mut keys, mut steps) = (Vec::new(), 0);
    for part in names::between(text, &names::all(text, names)) {
        let mut at = part.start;
        for group in groups::find(&text[part.clone()], &mut steps) {
            let group = part.start + group.start..part.start + group.end;
            words(text, at..group.start, &mut keys);
            at = group.end;
            keys.push(group);
        }
        words(text, at..part.end, &mut keys);
    }
    (keys, steps)
}

/// Returns whether a word is a decimal number with a point and a signed exponent, such as `1.8446744073709552e+19`. A
/// key has no point.
fn is_scientific(word: &str) -> bool {
    let is_whole =
        |digits: &str, most: usize| (1..=most).contains(&digits.len()) && digits.bytes().all(|c| c.is_ascii_digit());
    let Some((number, exponent)) = word.split_once("e+").or_else(|| word.split_once("e-")) else { return false };
    let parts = number.split_once('.');
    parts.is_some_and(|(whole, rest)| is_whole(whole, 1) && is_whole(rest, LONGEST_NUMBER)) && is_whole(exponent, 3)
}

/// Adds the words in a part of a text that may be keys to `keys`.
fn words(text: &str, part: Range<usize>, keys: &mut Vec<Range<usize>>) {
    let of_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | ':' | '+' | '-');
    for word in names::pieces(text, part, of_word) {
        // Points and colons that end a sentence or a position are not part of a word.
        let word = word.start..word.start + text[word].trim_end_matches(['.', ':']).len();
        let is_number = text[word.clone()]
            .split(['+', '-', '.', ':'])
            .all(|part| part.len() <= LONGEST_NUMBER && part.bytes().all(|c| c.is_ascii_digit()));
        if is_number || is_scientific(&text[word.clone()]) {
            continue;
        }
        if is_like_a_key(&text[word.clone()]) {
            keys.push(word);
            continue;
        }
        // Finds a whole key in a longer word, for example in a path of names.
        keys.extend(names::pieces(text, word, char::is_alphanumeric).filter(|piece| {
            let digits = text[piece.clone()].bytes().filter(u8::is_ascii_hexdigit).count();
            digits >= KEY && is_like_a_key(&text[piece.clone()])
        }));
    }
}

/// Checks the search for keys on any text, for fuzzing: the work is linear, each key found is hidden, and no word that
/// is a whole key remains.
pub fn fuzz_secret(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (keys, steps) = find(&text, &HashSet::new());
    assert!(steps <= text.len(), "{steps} groups read in {} bytes", text.len());
    assert!(keys.windows(2).all(|pair| pair[0].end <= pair[1].start), "keys come in order");
    let hidden: usize = keys.iter().map(|key| key.len()).sum();
    let shown = without_keys(&text);
    assert_eq!(shown.len(), text.len() - hidden + keys.len() * HIDDEN.len());
    // A file name may have as many digits as a key, and is shown.
    if !text.contains(['.', '/']) {
        let is_whole = |word: &str| word.len() >= KEY && word.bytes().all(|c| c.is_ascii_hexdigit());
        assert!(!shown.split(|c: char| !c.is_alphanumeric()).any(is_whole), "a key remains in {shown:?}");
    }
}

#[cfg(test)]
mod tests;
