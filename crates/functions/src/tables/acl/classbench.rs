//! Reads filter rules in ClassBench's format (Taylor and Turner, "ClassBench: A Packet Classification Benchmark",
//! INFOCOM 2005) and in ClassBench-ng's for IPv6, with an action added at the end.
//!
//! One rule a line; the line's place is its priority. `#` starts a comment, empty lines are skipped.
//!
//! ```text
//! line     = "@" prefix prefix ports ports protocol [flags] [action]
//! prefix   = address "/" length         both IPv4 or both IPv6; bits past the length are ignored
//! ports    = number ":" number          first and last port, 0 to 65535: source first, then destination
//! protocol = number "/" number          value and mask, 0 to 255; mask 0 is any protocol
//! flags    = number "/" number          value and mask, 0 to 65535
//! action   = "permit" | "deny" | "count"     permit when absent
//! number   = decimal | "0x" hexadecimal
//! ```
//!
//! The flags column is read and checked but takes no part in matching, as in the benchmark's own tools: keys hold
//! the five classic fields. [`RuleFile::flags_ignored`] says how many rules meant more than that.

use std::net::IpAddr;
use std::str::SplitWhitespace;

mod errors;

pub use errors::{FileErrors, LineError, Problem};

use super::MAX_RULES;
use super::rule::{Action, PortRange, Prefix, ProtocolMatch, Rule, Rule4, Rule6};

/// Errors kept; further ones are only counted.
const MAX_ERRORS: usize = 50;
/// Characters of a wrong value that an error repeats.
const MAX_VALUE: usize = 60;

/// The rules of a file, by family, each list in file order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleFile {
    /// IPv4 rules.
    pub v4: Vec<Rule4>,
    /// The line of each IPv4 rule, from 1.
    pub v4_lines: Vec<u32>,
    /// IPv6 rules.
    pub v6: Vec<Rule6>,
    /// The line of each IPv6 rule, from 1.
    pub v6_lines: Vec<u32>,
    /// Rules whose flags column has a mask other than 0: they match more packets than they say.
    pub flags_ignored: usize,
}

/// Reads a rule file; `file` is its name for messages.
///
/// # Errors
/// Everything that is wrong with it, at most 50 problems in full.
pub fn parse(file: &str, bytes: &[u8]) -> Result<RuleFile, FileErrors> {
    let mut rules = RuleFile::default();
    let mut errors = FileErrors::default();
    for (line, bytes) in (1u32..).zip(bytes.split(|&byte| byte == b'\n')) {
        let mut reader = LineReader { problems: Vec::new() };
        if rules.v4.len() + rules.v6.len() == MAX_RULES && !bytes.trim_ascii().is_empty() {
            reader.problems.push(Problem::TooMany);
        } else {
            match std::str::from_utf8(bytes) {
                Ok(text) => reader.read(text.split('#').next().unwrap_or_default(), line, &mut rules),
                Err(_) => reader.problems.push(Problem::NotText),
            }
        }
        let full = reader.problems.contains(&Problem::TooMany);
        for problem in reader.problems {
            if errors.errors.len() < MAX_ERRORS {
                errors.errors.push(LineError { file: file.into(), line, problem });
            } else {
                errors.further += 1;
            }
        }
        if full {
            break;
        }
    }
    if errors.errors.is_empty() { Ok(rules) } else { Err(errors) }
}

/// A rule of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnyRule {
    /// Of IPv4.
    V4(Rule4),
    /// Of IPv6.
    V6(Rule6),
}

/// Reads one rule, as a line of a file has it.
///
/// # Errors
/// All that is wrong with it.
pub fn parse_rule(text: &str) -> Result<AnyRule, String> {
    let (mut rules, mut reader) = (RuleFile::default(), LineReader { problems: Vec::new() });
    reader.read(text.split('#').next().unwrap_or_default(), 1, &mut rules);
    match (rules.v4.pop(), rules.v6.pop()) {
        (Some(rule), _) => Ok(AnyRule::V4(rule)),
        (None, Some(rule)) => Ok(AnyRule::V6(rule)),
        (None, None) if reader.problems.is_empty() => Err("there is no rule".to_owned()),
        (None, None) => Err(reader.problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
    }
}

/// Reads bytes from anywhere: whatever they are, either rules come out or bounded errors. The entry for fuzzers.
pub fn fuzz_parse(bytes: &[u8]) {
    match parse("fuzz", bytes) {
        Ok(rules) => assert_eq!((rules.v4.len(), rules.v6.len()), (rules.v4_lines.len(), rules.v6_lines.len())),
        Err(errors) => assert!(!errors.errors.is_empty() && errors.errors.len() <= MAX_ERRORS),
    }
}

/// The part of a wrong value that an error repeats.
fn quoted(value: &str) -> String {
    value.chars().take(MAX_VALUE).collect()
}

/// A decimal or hexadecimal number, digits only.
fn number(text: &str) -> Option<u16> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) if !digits.starts_with('+') => u16::from_str_radix(digits, 16).ok(),
        None if !text.starts_with('+') => text.parse().ok(),
        _ => None,
    }
}

/// Two numbers around a slash.
fn number_pair(text: &str) -> Option<(u16, u16)> {
    let (value, mask) = text.split_once('/')?;
    Some((number(value)?, number(mask)?))
}

/// Reads one line, noting every problem: a wrong field does not hide the next one.
struct LineReader {
    problems: Vec<Problem>,
}

impl LineReader {
    fn read(&mut self, text: &str, line: u32, rules: &mut RuleFile) {
        let text = text.trim();
        if text.is_empty() {
            return;
        }
        let Some(text) = text.strip_prefix('@') else {
            self.problems.push(Problem::NoAt(quoted(text.split_whitespace().next().unwrap_or_default())));
            return;
        };
        // Colons stand alone behind the prefixes, whether written with spaces or not.
        let text = text.trim_start();
        let src_end = text.find(char::is_whitespace).unwrap_or(text.len());
        let (src, rest) = text.split_at(src_end);
        let rest = rest.trim_start();
        let dst_end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let (dst, rest) = rest.split_at(dst_end);
        let rest = rest.replace(':', " : ");
        let mut words = rest.split_whitespace();

        let src = self.prefix("source prefix", src);
        let dst_text = dst;
        let dst = self.prefix("destination prefix", dst);
        let sport = self.ports("source port", &mut words);
        let dport = self.ports("destination port", &mut words);
        let protocol = self.protocol(&mut words);
        let mut word = words.next();
        let mut flags = false;
        if let Some((_, mask)) = word.and_then(number_pair) {
            flags = mask != 0;
            word = words.next();
        }
        let action = match word {
            None | Some("permit") => Action::Permit,
            Some("deny") => Action::Deny,
            Some("count") => Action::Count,
            Some(other) => {
                self.problems.push(Problem::Tail(quoted(other)));
                Action::Permit
            }
        };
        if let Some(surplus) = words.next() {
            self.problems.push(Problem::Surplus(quoted(surplus)));
        }
        if let (Some((IpAddr::V4(_), _)), Some((IpAddr::V6(_), _)))
        | (Some((IpAddr::V6(_), _)), Some((IpAddr::V4(_), _))) = (src, dst)
        {
            self.problems.push(Problem::Families(quoted(dst_text)));
        }
        let (Some(sport), Some(dport), Some(protocol), true) = (sport, dport, protocol, self.problems.is_empty())
        else {
            return;
        };
        match (src, dst) {
            (Some((IpAddr::V4(src), src_length)), Some((IpAddr::V4(dst), dst_length))) => {
                let (src, dst) = (Prefix::new(src.into(), src_length), Prefix::new(dst.into(), dst_length));
                rules.v4.push(Rule { src, dst, sport, dport, protocol, action });
                rules.v4_lines.push(line);
            }
            (Some((IpAddr::V6(src), src_length)), Some((IpAddr::V6(dst), dst_length))) => {
                let (src, dst) = (Prefix::new(src.into(), src_length), Prefix::new(dst.into(), dst_length));
                rules.v6.push(Rule { src, dst, sport, dport, protocol, action });
                rules.v6_lines.push(line);
            }
            _ => return,
        }
        rules.flags_ignored += usize::from(flags);
    }

    fn prefix(&mut self, what: &'static str, text: &str) -> Option<(IpAddr, u8)> {
        if text.is_empty() {
            self.problems.push(Problem::Ends(what));
            return None;
        }
        let prefix = text.split_once('/').and_then(|(address, length)| {
            let address: IpAddr = address.parse().ok()?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            let length = if length.starts_with('+') { None } else { length.parse::<u8>().ok() }?;
            (length <= most).then_some((address, length))
        });
        if prefix.is_none() {
            self.problems.push(Problem::Prefix { what, value: quoted(text) });
        }
        prefix
    }

    fn ports(&mut self, what: &'static str, words: &mut SplitWhitespace<'_>) -> Option<PortRange> {
        let low = self.port(what, words.next());
        match words.next() {
            Some(":") => {}
            Some(other) => self.problems.push(Problem::Colon { what, value: quoted(other) }),
            None => {}
        }
        let high = self.port(what, words.next());
        let (low, high) = (low?, high?);
        if low > high {
            self.problems.push(Problem::Backwards { what, low, high });
            return None;
        }
        Some(PortRange::new(low, high))
    }

    fn port(&mut self, what: &'static str, word: Option<&str>) -> Option<u16> {
        match word {
            Some(text) => {
                let port = number(text);
                if port.is_none() {
                    self.problems.push(Problem::Port { what, value: quoted(text) });
                }
                port
            }
            None => {
                self.end(what);
                None
            }
        }
    }

    fn protocol(&mut self, words: &mut SplitWhitespace<'_>) -> Option<ProtocolMatch> {
        let Some(text) = words.next() else {
            self.end("protocol");
            return None;
        };
        let protocol = number_pair(text)
            .and_then(|(value, mask)| Some(ProtocolMatch::new(value.try_into().ok()?, mask.try_into().ok()?)));
        if protocol.is_none() {
            self.problems.push(Problem::Protocol(quoted(text)));
        }
        protocol
    }

    /// The line ends too early: said once, for the first field that is missing.
    fn end(&mut self, what: &'static str) {
        if !self.problems.iter().any(|problem| matches!(problem, Problem::Ends(_))) {
            self.problems.push(Problem::Ends(what));
        }
    }
}
