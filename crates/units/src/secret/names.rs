//! Names that may have as many hexadecimal digits as a key, but are not keys: IPv6 addresses, UUIDs and files.

use std::collections::HashSet;
use std::net::Ipv6Addr;
use std::ops::Range;
use std::path::Path;

use super::is_key;

/// Lengths of the groups of a UUID (RFC 9562 section 4).
const UUID: [usize; 5] = [8, 4, 4, 4, 12];
/// The longest text of an IPv6 address, with an IPv4 address in it, plus three characters that are not part of it.
const LONGEST_ADDRESS: usize = 48;
/// The extensions of files that configurations and command lines name. No key ends in one of them.
const EXTENSIONS: [&str; 19] = [
    "cap", "conf", "csv", "gz", "json", "jsonl", "log", "lz4", "md", "ndjson", "pcap", "pcapng", "rules", "svg",
    "toml", "txt", "yaml", "yml", "zst",
];

/// Returns the parts of a text between `spans`, which are in order.
pub(super) fn between(text: &str, spans: &[Range<usize>]) -> impl Iterator<Item = Range<usize>> {
    let starts = std::iter::once(0).chain(spans.iter().map(|span| span.end));
    let ends = spans.iter().map(|span| span.start).chain([text.len()]);
    starts.zip(ends).map(|(start, end)| start..end)
}

/// Returns the longest pieces of a part of a text that consist only of characters accepted by `of`.
pub(super) fn pieces(text: &str, part: Range<usize>, of: impl Fn(char) -> bool) -> impl Iterator<Item = Range<usize>> {
    let pieces = text[part].split(move |c| !of(c)).filter(|piece| !piece.is_empty());
    pieces.map(|piece| {
        let start = piece.as_ptr() as usize - text.as_ptr() as usize;
        start..start + piece.len()
    })
}

/// Returns the ranges of IPv6 addresses and UUIDs in a text, in order.
pub(super) fn numbers(text: &str) -> Vec<Range<usize>> {
    let addresses = pieces(text, 0..text.len(), |c| c.is_ascii_hexdigit() || matches!(c, ':' | '.'));
    let digits: Vec<_> = pieces(text, 0..text.len(), |c| c.is_ascii_hexdigit()).collect();
    let uuids = digits.windows(UUID.len()).filter_map(|groups| uuid(text, groups));
    merged(addresses.filter_map(|piece| address(text, piece)).chain(uuids).collect())
}

/// Returns the ranges of a text that are not keys, in order: [`numbers`], file names, and `names`.
pub(super) fn all(text: &str, names: &HashSet<String>) -> Vec<Range<usize>> {
    let mut found = numbers(text);
    let of_file = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '+' | '-' | '/' | '~' | '%');
    for piece in pieces(text, 0..text.len(), of_file) {
        let file = text[piece.clone()].trim_end_matches('.');
        if is_file(file) || names.contains(file) {
            found.push(piece.start..piece.start + file.len());
        }
    }
    if !names.is_empty() {
        let of_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        found.extend(pieces(text, 0..text.len(), of_name).filter(|piece| names.contains(&text[piece.clone()])));
    }
    merged(found)
}

/// Sorts spans and merges those that touch.
fn merged(mut spans: Vec<Range<usize>>) -> Vec<Range<usize>> {
    spans.sort_by_key(|span| span.start);
    let mut merged = Vec::<Range<usize>>::with_capacity(spans.len());
    for span in spans {
        match merged.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => merged.push(span),
        }
    }
    merged
}

/// Returns the address in a piece of digits, colons and points. A name before the first colon is not part of the
/// address. Points and colons that end a sentence or a position are not part of it, either.
fn address(text: &str, piece: Range<usize>) -> Option<Range<usize>> {
    let of_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut start = piece.start;
    if text[..start].ends_with(of_word) {
        start += text[piece.clone()].find(':')? + 1;
    }
    let whole = &text[start..piece.end];
    if whole.len() > LONGEST_ADDRESS || text[piece.end..].starts_with(of_word) {
        return None;
    }
    let shorter = whole.strip_suffix([':', '.']);
    let shortest = shorter.and_then(|shorter| shorter.strip_suffix([':', '.']));
    let found = [Some(whole), shorter, shortest].into_iter().flatten().find(|word| word.parse::<Ipv6Addr>().is_ok())?;
    (!is_written_as_a_key(found)).then(|| start..start + found.len())
}

/// Returns whether an address has eight groups of two or of four digits each, like a key of 8 or 16 bytes. A group of
/// zeros, which is more frequent in addresses than in keys, does not count as part of a key.
fn is_written_as_a_key(address: &str) -> bool {
    [2, 4].into_iter().any(|digits| address.split(':').all(|group| group.len() == digits && group != "0000"))
}

/// Returns the range of the UUID that the groups of digits form. `None` if they do not form one.
fn uuid(text: &str, groups: &[Range<usize>]) -> Option<Range<usize>> {
    let whole = groups.first()?.start..groups.last()?.end;
    let right = groups.iter().map(Range::len).eq(UUID)
        && groups.windows(2).all(|pair| &text[pair[0].end..pair[1].start] == "-")
        && !text[..whole.start].ends_with(char::is_alphanumeric)
        && !text[whole.end..].starts_with(char::is_alphanumeric);
    right.then_some(whole)
}

/// Returns whether a word is a file name or a path. If the last part of a path may be a key, the path must exist.
fn is_file(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or_default();
    if name.rsplit_once('.').is_some_and(|(stem, extension)| !stem.is_empty() && EXTENSIONS.contains(&extension)) {
        return true;
    }
    let is_path = ["/", "./", "../", "~/"].into_iter().any(|start| word.starts_with(start));
    let mut parts = word.split('/').filter(|part| !matches!(*part, "" | "." | ".." | "~"));
    is_path && parts.nth(1).is_some() && (!is_key(name) || Path::new(word).exists())
}
