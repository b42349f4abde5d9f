//! The options of a rule: what is between its parentheses.

mod flow;
mod header;
mod limit;
mod payload;

use std::collections::BTreeMap;

use super::{near, priority_of, short};
use crate::nids::rule::{Protocol, Rule, Test};
use header::span;
use limit::limit;

/// The largest offset, depth and the like: what the largest packets have.
const MOST_OFFSET: u32 = 65_535;

/// Options that are known.
const KNOWN: [&str; 28] = [
    "msg",
    "sid",
    "rev",
    "gid",
    "classtype",
    "priority",
    "reference",
    "metadata",
    "content",
    "nocase",
    "offset",
    "depth",
    "distance",
    "within",
    "fast_pattern",
    "rawbytes",
    "pcre",
    "dsize",
    "flags",
    "itype",
    "icode",
    "ttl",
    "ip_proto",
    "sameip",
    "flow",
    "threshold",
    "detection_filter",
    "service",
];

/// What to do about an option that is not known.
fn advice(name: &str) -> String {
    match name {
        "flowbits" | "xbits" | "flowint" => "nothing is kept from packet to packet: leave the rule out".to_owned(),
        "byte_test" | "byte_jump" | "byte_extract" | "byte_math" => {
            "numbers in payloads are not read: write a content or pcre".to_owned()
        }
        "isdataat" | "bufferlen" => "write dsize, or a pcre such as /START.{10}/s".to_owned(),
        "uricontent" => "write content: requests are not decoded".to_owned(),
        "stream_size" | "stream_reassemble" => "streams are not put together: leave it out".to_owned(),
        "tos" | "id" | "ipopts" | "fragbits" | "fragoffset" | "seq" | "ack" | "window" | "icmp_id" | "icmp_seq" => {
            "of headers there are dsize, flags, itype, icode, ttl, ip_proto and sameip".to_owned()
        }
        "resp" | "react" | "activates" | "activated_by" | "logto" | "session" | "tag" | "replace" => {
            "there is no answering or recording by rule: leave it out".to_owned()
        }
        name if name.starts_with("http")
            || name.starts_with("file")
            || name.contains('.')
            || name.ends_with("_data") =>
        {
            "protocols are not decoded: leave it out, and the content is sought in the whole payload".to_owned()
        }
        name => match near(name, KNOWN.into_iter()) {
            Some(near) => format!("did you mean '{near}'?"),
            None => format!("allowed are {}", KNOWN.join(", ")),
        },
    }
}

/// Options, cut at semicolons that are not in quotes or behind a backslash.
fn split(text: &str) -> Result<Vec<&str>, String> {
    let (mut quoted, mut escaped, mut from, mut all) = (false, false, 0, Vec::new());
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            b';' if !quoted => {
                all.push(text[from..at].trim_ascii());
                from = at + 1;
            }
            _ => {}
        }
    }
    if quoted {
        return Err("a quote without its second".to_owned());
    }
    let rest = text[from..].trim_ascii();
    if !rest.is_empty() {
        return Err(format!("no ';' after '{}'", short(rest)));
    }
    all.retain(|option| !option.is_empty());
    Ok(all)
}

/// What the options say, one after the other.
struct Building<'a> {
    rule: Rule,
    classes: &'a BTreeMap<String, u8>,
    approximate_flow: bool,
    priority: Option<u8>,
    /// Whether what was sought last is an expression: what comes after it cannot be relative to it.
    after_pcre: bool,
    seen: Vec<&'a str>,
}

/// Reads a rule's options.
pub(super) fn read(
    rule: Rule,
    text: &str,
    classes: &BTreeMap<String, u8>,
    approximate_flow: bool,
) -> Result<Rule, String> {
    let mut building =
        Building { rule, classes, approximate_flow, priority: None, after_pcre: false, seen: Vec::new() };
    for option in split(text)? {
        let (name, value) = option
            .split_once(':')
            .map_or((option, None), |(name, value)| (name.trim_ascii_end(), Some(value.trim_ascii())));
        building.option(name, value)?;
    }
    building.finish()
}

fn number<N: TryFrom<u64>>(name: &str, text: &str, most: u64) -> Result<N, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number =
        text.parse::<u64>().ok().filter(|number| digits && *number <= most).and_then(|number| N::try_from(number).ok());
    number.ok_or_else(|| format!("{name} '{}': allowed are 0 to {most}", short(text)))
}

/// What is in quotes, without what escapes it, and what follows.
fn quoted<'t>(name: &str, text: &'t str) -> Result<(&'t str, &'t str), String> {
    let wrong = || format!("{name} '{}': write it in quotes", short(text));
    let rest = text.strip_prefix('"').ok_or_else(wrong)?;
    let mut escaped = false;
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Ok((&rest[..at], rest[at + 1..].trim_ascii_start())),
            _ => {}
        }
    }
    Err(wrong())
}

/// What a text is, without its backslashes.
fn plain(text: &str) -> String {
    let mut escaped = false;
    text.chars()
        .filter(|letter| {
            escaped = *letter == '\\' && !escaped;
            !escaped
        })
        .collect()
}

impl<'a> Building<'a> {
    /// An option that may be there once.
    fn once(&mut self, name: &'static str) -> Result<(), String> {
        if self.seen.contains(&name) {
            return Err(format!("'{name}' twice: allowed is once a rule"));
        }
        self.seen.push(name);
        Ok(())
    }

    fn option(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        let given = || {
            value
                .filter(|value| !value.is_empty())
                .ok_or_else(|| format!("'{name}' of what is missing: write {name}: VALUE"))
        };
        match name {
            "msg" => {
                self.once("msg")?;
                let (text, rest) = quoted(name, given()?)?;
                if !rest.is_empty() {
                    return Err(format!("'{}' after the message", short(rest)));
                }
                self.rule.message = plain(text);
            }
            "sid" => {
                self.once("sid")?;
                let text = given()?;
                let sid = number(name, text, u32::MAX.into()).ok().filter(|sid| *sid > 0);
                self.rule.sid = sid.ok_or_else(|| format!("sid '{}': allowed are 1 to {}", short(text), u32::MAX))?;
            }
            "rev" => {
                self.once("rev")?;
                self.rule.revision = number(name, given()?, u32::MAX.into())?;
            }
            "gid" => {
                if number::<u32>(name, given()?, u32::MAX.into())? != 1 {
                    return Err("gid: allowed is 1, that of rules".to_owned());
                }
            }
            "classtype" => {
                self.once("classtype")?;
                let class = given()?;
                if !self.classes.contains_key(class) {
                    let known = self.classes.keys().map(String::as_str);
                    let near =
                        near(class, known).map_or_else(String::new, |near| format!("did you mean '{near}'? else "));
                    return Err(format!(
                        "the classtype '{}' is not known: {near}write a line config classification: NAME, DESCRIPTION, PRIORITY",
                        short(class)
                    ));
                }
                self.rule.class = Some(class.to_owned());
            }
            "priority" => {
                self.once("priority")?;
                self.priority = Some(priority_of(given()?)?);
            }
            "reference" => self.rule.references.push(given()?.chars().take(200).collect()),
            "metadata" | "service" => drop(given()?),
            "content" => self.content(given()?)?,
            "nocase" | "offset" | "depth" | "distance" | "within" | "fast_pattern" | "rawbytes" => {
                self.modifier(name, value)?
            }
            "pcre" => self.pcre(given()?)?,
            "dsize" => {
                let span = span(name, given()?, MOST_OFFSET)?;
                self.rule.tests.push(Test::Size(span));
            }
            "ttl" => {
                let span = span(name, given()?, 255)?;
                self.rule.tests.push(Test::Ttl(span));
            }
            "itype" | "icode" => {
                if self.rule.protocol != Protocol::Icmp {
                    return Err(format!("'{name}' of a rule that is not of icmp"));
                }
                let span = span(name, given()?, 255)?;
                self.rule.tests.push(if name == "itype" { Test::IcmpType(span) } else { Test::IcmpCode(span) });
            }
            "ip_proto" => {
                let value = given()?;
                let (sign, word) = value.split_at(value.len() - value.trim_start_matches(['!', '<', '>', '=']).len());
                let named = [
                    ("icmp", 1),
                    ("igmp", 2),
                    ("tcp", 6),
                    ("udp", 17),
                    ("gre", 47),
                    ("esp", 50),
                    ("ah", 51),
                    ("icmp6", 58),
                    ("sctp", 132),
                ];
                let by_name = named
                    .iter()
                    .find(|(name, _)| *name == word.trim_ascii())
                    .map(|(_, number)| format!("{sign}{number}"));
                let span = span(name, &by_name.unwrap_or_else(|| value.to_owned()), 255)?;
                self.rule.tests.push(Test::IpProtocol(span));
            }
            "flags" => self.flags(given()?)?,
            "sameip" => self.rule.tests.push(Test::SameAddress),
            "flow" => self.flow(given()?)?,
            "threshold" => {
                self.once("threshold")?;
                self.rule.threshold = Some(limit(name, given()?)?);
            }
            "detection_filter" => {
                self.once("detection_filter")?;
                self.rule.filter = Some(limit(name, given()?)?);
            }
            other => return Err(format!("the option '{}' is not known: {}", short(other), advice(other))),
        }
        if matches!(name, "nocase" | "sameip" | "rawbytes") && value.is_some() {
            return Err(format!("'{name}' has no value"));
        }
        Ok(())
    }

    fn finish(self) -> Result<Rule, String> {
        let Self { mut rule, priority, classes, .. } = self;
        if rule.sid == 0 {
            return Err("a rule without a number: write sid: NUMBER, from 1".to_owned());
        }
        let by_class = rule.class.as_ref().and_then(|class| classes.get(class));
        rule.priority = priority.or(by_class.copied()).unwrap_or(3);
        if rule.message.is_empty() {
            rule.message = format!("rule {}", rule.sid);
        }
        Ok(rule)
    }
}
