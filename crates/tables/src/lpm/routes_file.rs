//! Reads route files: one route per line, `prefix next-hop`, both families mixed.
//!
//! ```text
//! # To the Internet.
//! 0.0.0.0/0      0
//! 10.1.0.0/16    3   # the second site
//! 2001:db8::/32  3
//! ```
//!
//! Every line is read even after an error, so that one pass finds all mistakes. The number of reported errors is
//! bounded, because a file of another kind has a mistake in every line.

use std::borrow::Cow;
use std::fmt;

use forebay_units::wording::{allowed, range};
use thiserror::Error;

use super::prefix::{Address, IpPrefix, Prefix, PrefixError};

/// The largest number of errors that are reported in full; further errors are only counted.
const MAX_ERRORS: usize = 20;
/// The largest number of characters of a wrong value that an error repeats.
const MAX_CHARACTERS: usize = 60;

/// The routes of a file by family. Each prefix occurs once; routes are ordered by prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    /// IPv4 prefixes and their next hops.
    pub ipv4: Vec<(Prefix<u32>, u32)>,
    /// IPv6 prefixes and their next hops.
    pub ipv6: Vec<(Prefix<u128>, u32)>,
}

/// The error of one line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LineError {
    /// The line is not UTF-8 text.
    #[error("not UTF-8 text: {0:?}")]
    NotText(String),
    /// The line has too few words.
    #[error("{0:?} has no next hop; write prefix next-hop, as in 10.0.0.0/8 3")]
    NoNextHop(String),
    /// The line has too many words.
    #[error("{0:?} after the next hop; write one route a line, prefix next-hop, and comments after #")]
    Surplus(String),
    /// The first word is not a prefix.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// The second word is not a number in the allowed range.
    #[error("next hop {value:?} is not allowed; {}", allowed(&range(&0, .most)))]
    NextHop {
        /// The text given.
        value: String,
        /// The greatest next hop allowed.
        most: u32,
    },
    /// The prefix has another next hop in an earlier line.
    #[error(
        "{prefix} goes to {next_hop}, but line {earlier} sends it to {other}; allowed is one next hop for a prefix"
    )]
    Conflict {
        /// The prefix.
        prefix: IpPrefix,
        /// Its next hop in this line.
        next_hop: u32,
        /// The earlier line.
        earlier: usize,
        /// The next hop there.
        other: u32,
    },
}

/// The errors of a file, printed one per line as `file:line: error`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct RoutesFileError {
    /// The file's name as given.
    pub file: String,
    /// The first 20 errors, each with its line's number from 1.
    pub errors: Vec<(usize, LineError)>,
    /// The number of further errors.
    pub further: usize,
}

impl fmt::Display for RoutesFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (line, error)) in self.errors.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{}:{line}: {error}", self.file)?;
        }
        if self.further > 0 {
            write!(f, "\n{}: {} further errors", self.file, self.further)?;
        }
        Ok(())
    }
}

/// Parses the routes in a file's contents. `file` is its name, for errors only.
///
/// A next hop is a number from 0 to `most_next_hop`. A route that occurs twice with the same next hop counts once.
///
/// # Errors
/// The errors of all lines, in order: the first 20, and the number of further errors. Any bytes are accepted as input.
pub fn parse_routes(file: &str, contents: &[u8], most_next_hop: u32) -> Result<Routes, RoutesFileError> {
    parse_lines(file, contents.split(|&byte| byte == b'\n'), most_next_hop)
}

/// Parses routes that are already split into lines, otherwise like [`parse_routes`].
///
/// # Errors
/// As [`parse_routes`].
pub fn parse_lines<'a>(
    file: &str,
    lines: impl IntoIterator<Item = &'a [u8]>,
    most_next_hop: u32,
) -> Result<Routes, RoutesFileError> {
    let mut report = RoutesFileError { file: file.into(), errors: Vec::new(), further: 0 };
    let mut ipv4 = Vec::new();
    let mut ipv6 = Vec::new();
    for (line, text) in (1..).zip(lines) {
        match parse_line(text, most_next_hop) {
            Ok(None) => {}
            Ok(Some((IpPrefix::V4(prefix), next_hop))) => ipv4.push(NumberedRoute { prefix, line, next_hop }),
            Ok(Some((IpPrefix::V6(prefix), next_hop))) => ipv6.push(NumberedRoute { prefix, line, next_hop }),
            Err(error) => report.push(line, error),
        }
    }
    let routes = Routes { ipv4: merge(ipv4, IpPrefix::V4, &mut report), ipv6: merge(ipv6, IpPrefix::V6, &mut report) };
    if report.errors.is_empty() {
        return Ok(routes);
    }
    report.errors.sort_by_key(|&(line, _)| line);
    Err(report)
}

impl RoutesFileError {
    fn push(&mut self, line: usize, error: LineError) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push((line, error));
        } else {
            self.further += 1;
        }
    }
}

/// A route and its line, ordered by prefix, then by line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct NumberedRoute<A> {
    prefix: Prefix<A>,
    line: usize,
    next_hop: u32,
}

/// Sorts routes and keeps one for each prefix. Reports a prefix that has different next hops. `name` makes the prefix
/// of an error.
fn merge<A: Address>(
    mut routes: Vec<NumberedRoute<A>>,
    name: fn(Prefix<A>) -> IpPrefix,
    report: &mut RoutesFileError,
) -> Vec<(Prefix<A>, u32)> {
    routes.sort_unstable();
    routes.dedup_by(|later, first| {
        let same = later.prefix == first.prefix;
        if same && later.next_hop != first.next_hop {
            report.push(
                later.line,
                LineError::Conflict {
                    prefix: name(later.prefix),
                    next_hop: later.next_hop,
                    earlier: first.line,
                    other: first.next_hop,
                },
            );
        }
        same
    });
    routes.into_iter().map(|route| (route.prefix, route.next_hop)).collect()
}

/// Parses a prefix and an optional next hop from a command that changes the routes. `text` must not contain anything
/// else, not even a comment.
///
/// # Errors
/// The error of the line.
pub fn parse_entry(text: &str, most_next_hop: u32) -> Result<(IpPrefix, Option<u32>), LineError> {
    match text.split_ascii_whitespace().nth(1) {
        None => Ok((clip(text.trim_ascii()).parse()?, None)),
        Some(_) => words(text, most_next_hop).map(|(prefix, next_hop)| (prefix, Some(next_hop))),
    }
}

/// Parses the route in a line, if the line has one.
fn parse_line(line: &[u8], most_next_hop: u32) -> Result<Option<(IpPrefix, u32)>, LineError> {
    let line = line.split(|&byte| byte == b'#').next().unwrap_or_default().trim_ascii();
    if line.is_empty() {
        return Ok(None);
    }
    let Ok(line) = str::from_utf8(line) else {
        return Err(LineError::NotText(clip(&String::from_utf8_lossy(line)).into()));
    };
    words(line, most_next_hop).map(Some)
}

/// Parses the words of a line as a route.
fn words(line: &str, most_next_hop: u32) -> Result<(IpPrefix, u32), LineError> {
    let mut words = line.split_ascii_whitespace().map(clip);
    let prefix = words.next().unwrap_or_default();
    let Some(next_hop) = words.next() else {
        return Err(LineError::NoNextHop(prefix.into()));
    };
    if let Some(surplus) = words.next() {
        return Err(LineError::Surplus(surplus.into()));
    }
    let prefix = prefix.parse()?;
    // `u32::from_str` accepts a leading plus sign, which no number here may have.
    let number = Some(&*next_hop).filter(|text| !text.starts_with('+')).and_then(|text| text.parse().ok());
    match number.filter(|&number| number <= most_next_hop) {
        Some(number) => Ok((prefix, number)),
        None => Err(LineError::NextHop { value: next_hop.into(), most: most_next_hop }),
    }
}

/// Returns at most [`MAX_CHARACTERS`] of a text, with a mark at the end if it was cut. No valid word is that long or
/// contains the mark, so a word may be cut before it is parsed.
fn clip(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_CHARACTERS {
        return text.into();
    }
    match text.char_indices().nth(MAX_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

/// The entry point for fuzzers: checks that all bytes either parse or give an error that names a line, and that parsed
/// routes can be written and read again.
pub fn fuzz_routes_file(bytes: &[u8]) {
    match parse_routes("fuzz", bytes, u32::from(u16::MAX)) {
        Ok(routes) => {
            let written: String = (routes.ipv4.iter().map(|(prefix, next_hop)| format!("{prefix} {next_hop}\n")))
                .chain(routes.ipv6.iter().map(|(prefix, next_hop)| format!("{prefix} {next_hop}\n")))
                .collect();
            assert_eq!(parse_routes("again", written.as_bytes(), u32::from(u16::MAX)).as_ref(), Ok(&routes));
        }
        Err(error) => {
            assert!(!error.errors.is_empty() && error.errors.len() <= MAX_ERRORS);
            assert!(error.to_string().starts_with("fuzz:"));
        }
    }
}

#[cfg(test)]
mod tests;
