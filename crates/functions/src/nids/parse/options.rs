//! The options of a rule: what is between its parentheses.

use std::collections::BTreeMap;

use super::{near, priority_of, short};
use crate::nids::regex::Regex;
use crate::nids::rule::{Bits, Content, Kind, Limit, Pcre, Place, Protocol, Rule, Span, Test, Track};

/// The most contents and expressions of a rule.
const MOST_PARTS: usize = 64;
/// The longest content, in bytes.
const MOST_CONTENT: usize = 1_024;
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

/// A comparison: `5`, `<5`, `>=5`, `!5`, `3<>5`, `3-5`.
fn span(name: &str, text: &str, most: u32) -> Result<Span, String> {
    let one = |text: &str| {
        number::<u32>(name, text.trim_ascii(), most.into()).map_err(|_| {
            format!("{name} '{}': allowed are numbers from 0 to {most}, <5, >5, <=5, >=5, !5 and 3<>5", short(text))
        })
    };
    let nothing = || format!("{name} '{}': no number is so", short(text));
    let (not, text) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest.trim_ascii_start()));
    let (first, last) = if let Some((first, last)) = text.split_once("<=>").or_else(|| text.split_once("<>")) {
        (one(first)?, one(last)?)
    } else if let Some(least) = text.strip_prefix(">=") {
        (one(least)?, most)
    } else if let Some(greatest) = text.strip_prefix("<=") {
        (0, one(greatest)?)
    } else if let Some(below) = text.strip_prefix('>') {
        (one(below)?.checked_add(1).filter(|first| *first <= most).ok_or_else(nothing)?, most)
    } else if let Some(above) = text.strip_prefix('<') {
        (0, one(above)?.checked_sub(1).ok_or_else(nothing)?)
    } else if let Some((first, last)) = text.split_once('-') {
        (if first.is_empty() { 0 } else { one(first)? }, if last.is_empty() { most } else { one(last)? })
    } else {
        let only = one(text.strip_prefix('=').unwrap_or(text))?;
        (only, only)
    };
    if last < first {
        return Err(nothing());
    }
    Ok(Span { first, last, not })
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

/// The bytes of a content.
fn bytes(text: &str) -> Result<Vec<u8>, String> {
    let (mut bytes, mut letters) = (Vec::new(), text.bytes());
    while let Some(byte) = letters.next() {
        match byte {
            b'\\' => bytes.extend(letters.next()),
            b'|' => {
                let mut high = None;
                loop {
                    let Some(byte) = letters.next() else {
                        return Err(
                            "a '|' without a second: write hexadecimal bytes as |0d 0a|, and \\| for itself".to_owned()
                        );
                    };
                    let digit = char::from(byte).to_digit(16).map(|digit| digit as u8);
                    match (byte, digit, high) {
                        (b'|', _, None) => break,
                        (b' ', _, None) => {}
                        (_, Some(digit), None) => high = Some(digit),
                        (_, Some(digit), Some(before)) => {
                            bytes.push(before << 4 | digit);
                            high = None;
                        }
                        _ => return Err("hexadecimal bytes are two digits each, such as |0d 0a|".to_owned()),
                    }
                }
            }
            byte => bytes.push(byte),
        }
    }
    if (1..=MOST_CONTENT).contains(&bytes.len()) {
        Ok(bytes)
    } else {
        Err(format!("a content of {} bytes: allowed are 1 to {MOST_CONTENT}", bytes.len()))
    }
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

    fn room(&self) -> Result<(), String> {
        if self.rule.contents.len() + self.rule.pcres.len() < MOST_PARTS {
            return Ok(());
        }
        Err(format!("more than {MOST_PARTS} contents and expressions"))
    }

    fn content(&mut self, value: &str) -> Result<(), String> {
        self.room()?;
        let (not, value) = value.strip_prefix('!').map_or((false, value), |rest| (true, rest.trim_ascii_start()));
        let (text, rest) = quoted("content", value)?;
        let place = Place::Absolute { offset: 0, depth: None };
        self.rule.contents.push(Content { bytes: bytes(text)?, nocase: false, not, fast: false, place });
        // As of Snort 3: behind commas, where 2 has options of their own.
        let Some(rest) = rest.strip_prefix(',') else {
            return if rest.is_empty() {
                Ok(())
            } else {
                Err(format!("'{}' after the content: write a comma before it", short(rest)))
            };
        };
        for word in rest.split(',').map(str::trim_ascii) {
            let (name, value) =
                word.split_once([' ', ':']).map_or((word, None), |(name, value)| (name, Some(value.trim_ascii())));
            if !["nocase", "offset", "depth", "distance", "within", "fast_pattern"].contains(&name) {
                return Err(format!(
                    "'{}' of a content: allowed are nocase, offset, depth, distance, within and fast_pattern",
                    short(name)
                ));
            }
            self.modifier(name, value)?;
        }
        Ok(())
    }

    fn modifier(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        let after_pcre = self.after_pcre;
        let fast_before = self.rule.contents.iter().any(|content| content.fast);
        let Some(content) = self.rule.contents.last_mut() else {
            return Err(format!("'{name}' before any content: write it after the content that it is of"));
        };
        let value = value.unwrap_or("");
        match name {
            "rawbytes" => {}
            "nocase" => content.nocase = true,
            "fast_pattern" => {
                if content.not {
                    return Err("'fast_pattern' of a content that must not be there".to_owned());
                }
                if !value.is_empty() {
                    return Err(format!(
                        "fast_pattern '{}': allowed is fast_pattern alone, the whole content",
                        short(value)
                    ));
                }
                if fast_before {
                    return Err("'fast_pattern' twice: allowed is once a rule".to_owned());
                }
                content.fast = true;
            }
            "offset" | "depth" => {
                let Place::Absolute { offset, depth } = &mut content.place else {
                    return Err(format!("'{name}' of a content with distance or within: allowed are either"));
                };
                let number = number(name, value, MOST_OFFSET.into())?;
                if name == "offset" { *offset = number } else { *depth = Some(number) }
            }
            _ => {
                if after_pcre {
                    return Err(format!(
                        "'{name}' after a pcre: an expression is no place to count from; write the content before it"
                    ));
                }
                if let Place::Absolute { offset: 0, depth: None } = content.place {
                    content.place = Place::Relative { distance: 0, within: None };
                }
                let Place::Relative { distance, within } = &mut content.place else {
                    return Err(format!("'{name}' of a content with offset or depth: allowed are either"));
                };
                if name == "within" {
                    *within = Some(number(name, value, MOST_OFFSET.into())?);
                } else {
                    let (minus, digits) = value.strip_prefix('-').map_or((false, value), |rest| (true, rest));
                    let number: i32 = number(name, digits, MOST_OFFSET.into())?;
                    *distance = if minus { -number } else { number };
                }
            }
        }
        let length = content.bytes.len() as u32;
        let (name, bytes) = match content.place {
            Place::Absolute { depth: Some(depth), .. } => ("depth", depth),
            Place::Relative { within: Some(within), .. } => ("within", within),
            _ => return Ok(()),
        };
        if bytes < length {
            return Err(format!("{name} {bytes} of a content of {length} bytes: allowed is as much or more"));
        }
        Ok(())
    }

    fn pcre(&mut self, value: &str) -> Result<(), String> {
        self.room()?;
        let (not, value) = value.strip_prefix('!').map_or((false, value), |rest| (true, rest.trim_ascii_start()));
        let (text, rest) = quoted("pcre", value)?;
        if !rest.is_empty() {
            return Err(format!("'{}' after the expression", short(rest)));
        }
        let regex = Regex::parse(text).map_err(|error| format!("pcre: {error}"))?;
        self.rule.pcres.push(Pcre { regex, not });
        self.after_pcre = true;
        Ok(())
    }

    fn flags(&mut self, value: &str) -> Result<(), String> {
        if self.rule.protocol != Protocol::Tcp {
            return Err("'flags' of a rule that is not of tcp".to_owned());
        }
        let read = |text: &str| {
            text.chars().try_fold(0u8, |bits, letter| {
                Ok(bits | match letter.to_ascii_uppercase() {
                    'F' => 1,
                    'S' => 2,
                    'R' => 4,
                    'P' => 8,
                    'A' => 16,
                    'U' => 32,
                    'E' | '2' => 64,
                    'C' | '1' => 128,
                    '0' => 0,
                    _ => return Err(format!("flags '{}': allowed are F, S, R, P, A, U, E, C and 0, with !, * or + and a mask behind a comma", short(value))),
                })
            })
        };
        let (bits, mask) = value.split_once(',').map_or((value, ""), |(bits, mask)| (bits, mask.trim_ascii()));
        let letters = bits.trim_ascii().trim_matches(['!', '*', '+']);
        let signs: String = bits.chars().filter(|letter| ['!', '*', '+'].contains(letter)).collect();
        let how = match signs.as_str() {
            "" => Bits::Exactly,
            "+" => Bits::All,
            "*" => Bits::Any,
            "!" => Bits::None,
            _ => return Err(format!("flags '{}': allowed is one of !, * and +", short(value))),
        };
        if letters.is_empty() {
            return Err(format!("flags '{}': no flag", short(value)));
        }
        self.rule.tests.push(Test::Flags { how, bits: read(letters)?, mask: !read(mask)? });
        Ok(())
    }

    fn flow(&mut self, value: &str) -> Result<(), String> {
        let words: Vec<&str> = value.split(',').map(str::trim_ascii).collect();
        for word in &words {
            if ![
                "established",
                "not_established",
                "stateless",
                "to_server",
                "from_client",
                "to_client",
                "from_server",
                "no_stream",
                "only_stream",
            ]
            .contains(word)
            {
                return Err(format!(
                    "flow '{}': allowed are established, not_established, stateless, to_server, from_client, to_client and from_server",
                    short(word)
                ));
            }
        }
        if words == ["stateless"] {
            return Ok(());
        }
        if !self.approximate_flow {
            return Err(
                "'flow' needs the state of connections, which is not kept: leave it out, or set 'flow: approximate'"
                    .to_owned(),
            );
        }
        if self.rule.protocol == Protocol::Tcp && words.contains(&"established") {
            // What is after the handshake acknowledges and neither opens nor resets (RFC 9293 section 3.10.7.4).
            self.rule.tests.push(Test::Flags { how: Bits::Exactly, bits: 16, mask: 16 | 2 | 4 });
        }
        if self.rule.protocol == Protocol::Tcp && words.contains(&"not_established") {
            self.rule.tests.push(Test::Flags { how: Bits::None, bits: 16, mask: 16 });
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

/// `track by_src, count 5, seconds 60`, and for a threshold `type limit`.
fn limit(name: &str, value: &str) -> Result<Limit, String> {
    let filter = name == "detection_filter";
    let form = if filter {
        "track by_src|by_dst, count N, seconds N"
    } else {
        "type limit|threshold|both, track by_src|by_dst, count N, seconds N"
    };
    let wrong = |part: &str| format!("{name} '{}': write {form}", short(part));
    let (mut kind, mut track, mut count, mut seconds) = (filter.then_some(Kind::Filter), None, None, None);
    for part in value.split(',').map(str::trim_ascii) {
        let (key, value) = part.split_once(' ').ok_or_else(|| wrong(part))?;
        let positive = |value: &str| number::<u32>(name, value, 1_000_000).ok().filter(|number| *number > 0);
        match (key, value.trim_ascii()) {
            ("type", "limit") if !filter => kind = Some(Kind::Limit),
            ("type", "threshold") if !filter => kind = Some(Kind::Threshold),
            ("type", "both") if !filter => kind = Some(Kind::Both),
            ("track", "by_src") => track = Some(Track::Source),
            ("track", "by_dst") => track = Some(Track::Destination),
            ("count", value) => {
                count = Some(
                    positive(value)
                        .ok_or_else(|| format!("{name} count '{}': allowed are 1 to 1000000", short(value)))?,
                )
            }
            ("seconds", value) => {
                let allowed = positive(value).filter(|seconds| *seconds <= 86_400);
                seconds =
                    Some(allowed.ok_or_else(|| format!("{name} seconds '{}': allowed are 1 to 86400", short(value)))?);
            }
            _ => return Err(wrong(part)),
        }
    }
    match (kind, track, count, seconds) {
        (Some(kind), Some(track), Some(count), Some(seconds)) => Ok(Limit { kind, track, count, seconds }),
        _ => Err(wrong(value)),
    }
}
