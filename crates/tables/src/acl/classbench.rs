//! Reads filter rules in ClassBench's format (Taylor and Turner, "ClassBench: A Packet Classification Benchmark",
//! INFOCOM 2005) and in ClassBench-ng's format for IPv6, with an action added at the end.
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
//! The flags column is read and checked but not matched, as in the benchmark's own tools: keys hold the five classic
//! fields. [`RuleFile::flags_ignored`](super::rule_file::RuleFile) counts the rules with flags. In a rule for exactly
//! ICMP the ports are types and codes.

use std::net::IpAddr;
use std::str::SplitWhitespace;

use forebay_graph::short;

use super::rule::{Action, PortRange, ProtocolMatch, Rule, RulePrefix};
use super::rule_file::{AnyRule, Problem};

/// Reads the fields of a rule, which follow the sign `@`. Also returns whether the rule's flags column has a mask other
/// than 0.
///
/// # Errors
/// All problems of the line.
pub fn parse(fields: &str) -> Result<(AnyRule, bool), Vec<Problem>> {
    let mut reader = LineReader { problems: Vec::new() };
    let read = reader.read(fields);
    match read {
        Some(read) if reader.problems.is_empty() => Ok(read),
        _ => Err(reader.problems),
    }
}

/// Parses a decimal or hexadecimal number without a sign.
pub fn number(text: &str) -> Option<u16> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) if !digits.starts_with('+') => u16::from_str_radix(digits, 16).ok(),
        None if !text.starts_with('+') => text.parse().ok(),
        _ => None,
    }
}

/// Parses two numbers separated by a slash.
pub fn number_pair(text: &str) -> Option<(u16, u16)> {
    let (value, mask) = text.split_once('/')?;
    Some((number(value)?, number(mask)?))
}

/// A reader of one line that collects all problems: it goes on after a wrong field.
struct LineReader {
    problems: Vec<Problem>,
}

impl LineReader {
    /// Reads the fields. Returns `None` if a prefix, a port or the protocol is wrong. Other problems are only added to
    /// `problems`, so the result is valid only if there are none.
    fn read(&mut self, text: &str) -> Option<(AnyRule, bool)> {
        // The prefixes are cut off first, because IPv6 addresses have colons too. Then each colon becomes a separate
        // word.
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
                self.problems.push(Problem::Tail(short(other)));
                Action::Permit
            }
        };
        if let Some(surplus) = words.next() {
            self.problems.push(Problem::Surplus(short(surplus)));
        }
        if let (Some((IpAddr::V4(_), _)), Some((IpAddr::V6(_), _)))
        | (Some((IpAddr::V6(_), _)), Some((IpAddr::V4(_), _))) = (src, dst)
        {
            self.problems.push(Problem::Families(short(dst_text)));
        }
        let (sport, dport, protocol) = (sport?, dport?, protocol?);
        let rule = match (src?, dst?) {
            ((IpAddr::V4(src), src_length), (IpAddr::V4(dst), dst_length)) => {
                let (src, dst) = (RulePrefix::new(src.into(), src_length), RulePrefix::new(dst.into(), dst_length));
                AnyRule::V4(Rule { src, dst, sport, dport, protocol, action })
            }
            ((IpAddr::V6(src), src_length), (IpAddr::V6(dst), dst_length)) => {
                let (src, dst) = (RulePrefix::new(src.into(), src_length), RulePrefix::new(dst.into(), dst_length));
                AnyRule::V6(Rule { src, dst, sport, dport, protocol, action })
            }
            _ => return None,
        };
        Some((rule, flags))
    }

    /// Parses a prefix. If it is wrong, adds the problem and returns `None`, as the following methods do. `what` is the
    /// name of the field in the problem.
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
            self.problems.push(Problem::RulePrefix { what, value: short(text) });
        }
        prefix
    }

    /// Parses the next words as a range of ports.
    fn ports(&mut self, what: &'static str, words: &mut SplitWhitespace<'_>) -> Option<PortRange> {
        let low = self.port(what, words.next());
        match words.next() {
            Some(":") => {}
            Some(other) => self.problems.push(Problem::Colon { what, value: short(other) }),
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

    /// Parses a word as a port. `word` is `None` if the line has ended.
    fn port(&mut self, what: &'static str, word: Option<&str>) -> Option<u16> {
        match word {
            Some(text) => {
                let port = number(text);
                if port.is_none() {
                    self.problems.push(Problem::Port { what, value: short(text) });
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
            self.problems.push(Problem::Protocol(short(text)));
        }
        protocol
    }

    /// Adds the problem that the line ends too early, once, for the first missing field.
    fn end(&mut self, what: &'static str) {
        if !self.problems.iter().any(|problem| matches!(problem, Problem::Ends(_))) {
            self.problems.push(Problem::Ends(what));
        }
    }
}
