//! Groups of hexadecimal digits, in the formats in which `od`, `xxd` and C write bytes.

use std::ops::Range;

use super::FEWEST;

/// The separators between two groups. The first one that matches is used.
const BETWEEN: [&str; 8] = [", ", " ", ",", ":", "-", ".", "_", "\\x"];

/// The largest number of digits of a group.
const LONGEST: usize = 8;

/// Two, four, six or eight digits in a text.
struct Group {
    /// The position after the group.
    end: usize,
    digits: usize,
    /// The number of digits from A to F.
    letters: usize,
}

impl Group {
    /// Returns the group that begins at `start`, with or without `0x`. `None` if there is no group.
    fn at(text: &str, start: usize) -> Option<Self> {
        let rest = &text[start..];
        let digits = rest.strip_prefix("0x").unwrap_or(rest);
        let count = digits.bytes().take(LONGEST + 1).take_while(u8::is_ascii_hexdigit).count();
        let end = text.len() - digits.len() + count;
        let letters = digits.bytes().take(count).filter(u8::is_ascii_alphabetic).count();
        let ends = !text[end..].starts_with(char::is_alphanumeric);
        (matches!(count, 2 | 4 | 6 | 8) && ends).then_some(Self { end, digits: count, letters })
    }
}

/// Finds the runs of groups that may be a key, with the same separator between all groups. A run must have at least two
/// letters. Otherwise its groups may be decimal numbers. `steps` counts the groups that are read. Each group is read at
/// most twice, because the last group of a run may be the first group of another run.
pub(super) fn find(text: &str, steps: &mut usize) -> Vec<Range<usize>> {
    let (mut found, mut at) = (Vec::new(), 0);
    let begins = |at: usize| {
        let before = &text[..at];
        !before.ends_with(char::is_alphanumeric) || before.ends_with("\\x")
    };
    while at < text.len() {
        let first = if text.as_bytes()[at].is_ascii_hexdigit() && begins(at) { Group::at(text, at) } else { None };
        let Some(first) = first else {
            at += 1;
            continue;
        };
        *steps += 1;
        let (start, mut last) = (at, at);
        let Group { mut end, mut digits, mut letters } = first;
        if let Some(between) = BETWEEN.into_iter().find(|between| text[end..].starts_with(between)) {
            while text[end..].starts_with(between)
                && let Some(next) = Group::at(text, end + between.len())
            {
                *steps += 1;
                last = end + between.len();
                (end, digits, letters) = (next.end, digits + next.digits, letters + next.letters);
            }
        }
        at = if digits >= FEWEST && letters >= 2 && last > start {
            let behind = found.last().map_or(0, |run: &Range<usize>| run.end);
            let run = with_neighbours(text, behind, start..end);
            end = run.end;
            found.push(run);
            end
        } else if last > start {
            last
        } else {
            end
        };
    }
    found
}

/// Extends a run by the word before it and the word after it, if these are almost groups: they consist mostly of
/// digits, and have a typing error, or no space between several groups. Does not look at text before `behind`.
fn with_neighbours(text: &str, behind: usize, run: Range<usize>) -> Range<usize> {
    let is_near = |word: &str| {
        let digits = word.bytes().filter(u8::is_ascii_hexdigit).count();
        word.len() < FEWEST && digits >= LONGEST && digits * 4 >= word.len() * 3
    };
    // Longer words are searched on their own, which bounds the work for each run.
    let length = |bytes: &mut dyn Iterator<Item = u8>| bytes.take(FEWEST).take_while(u8::is_ascii_alphanumeric).count();
    let (mut start, mut end) = (run.start, run.end);
    if let Some(between) = BETWEEN.into_iter().find(|between| text[run.end..].starts_with(between)) {
        let at = run.end + between.len();
        let word = at..at + length(&mut text[at..].bytes());
        end = if is_near(&text[word.clone()]) { word.end } else { end };
    }
    if let Some(between) = BETWEEN.into_iter().find(|between| text[behind..run.start].ends_with(between)) {
        let at = run.start - between.len();
        let word = at - length(&mut text[behind..at].bytes().rev())..at;
        start = if is_near(&text[word.clone()]) { word.start } else { start };
    }
    start..end
}
