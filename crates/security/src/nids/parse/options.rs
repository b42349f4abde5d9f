//! Parses the options of a rule, which are between its parentheses.

mod bits;
mod flow;
mod header;
mod limit;
mod number;
mod payload;

use std::collections::BTreeMap;

use forebay_graph::short;

use super::refused::Refused;
use super::{FlowMode, near, priority_of};
use crate::nids::rule::{Link, Rule, Test};
use limit::limit;
pub(in crate::nids) use payload::MODIFIERS;

/// The largest offset, depth and similar values: the size of the largest packets.
const MAX_OFFSET: u32 = 65_535;

/// The supported options. All others are refused.
pub(in crate::nids) const KNOWN: [&str; 48] = [
    "msg",
    "sid",
    "rev",
    "gid",
    "classtype",
    "priority",
    "reference",
    "metadata",
    "service",
    "target",
    "rem",
    "noalert",
    "content",
    "nocase",
    "offset",
    "depth",
    "distance",
    "within",
    "startswith",
    "endswith",
    "fast_pattern",
    "rawbytes",
    "pcre",
    "isdataat",
    "byte_test",
    "byte_jump",
    "byte_extract",
    "dsize",
    "flags",
    "itype",
    "icode",
    "icmp_id",
    "icmp_seq",
    "ttl",
    "tos",
    "id",
    "ipopts",
    "fragbits",
    "fragoffset",
    "ip_proto",
    "sameip",
    "seq",
    "ack",
    "window",
    "flow",
    "flowbits",
    "threshold",
    "detection_filter",
];

/// Returns the error of an unsupported option, with advice.
fn advice(name: &str) -> String {
    match name {
        "xbits" | "flowint" | "hostbits" => {
            format!("the option '{name}' is not supported yet: it keeps state between packets")
        }
        "byte_math" => "the option 'byte_math' is not supported yet".to_owned(),
        "stream_size" | "stream_reassemble" => {
            format!("the option '{name}': stream reassembly is not supported yet")
        }
        "resp" | "react" | "activates" | "activated_by" | "logto" | "session" | "tag" | "replace"
        | "detection_filter2" => {
            format!(
                "the option '{name}' is not supported: rules do not respond to, record or change packets; \
                 remove the option"
            )
        }
        "uricontent" | "urilen" | "file_data" | "pkt_data" | "base64_data" | "base64_decode" | "cookie" => {
            format!("the option '{name}': HTTP buffers are not supported yet")
        }
        name if name.starts_with("http") || name.starts_with("file") => {
            format!("the option '{name}': HTTP buffers are not supported yet")
        }
        name if PROTOCOLS.iter().any(|prefix| name.starts_with(prefix)) || name.contains('.') => {
            format!("the option '{name}': buffers of application protocols are not supported yet")
        }
        name => {
            let advice = match near(name, KNOWN.into_iter()) {
                Some(near) => format!("did you mean '{near}'?"),
                None => format!("allowed are {}", KNOWN.join(", ")),
            };
            format!("unknown option '{}': {advice}", short(name))
        }
    }
}

/// Prefixes of the names of options that look into application protocols.
const PROTOCOLS: [&str; 20] = [
    "dns",
    "tls",
    "ssl",
    "ssh",
    "smtp",
    "smb",
    "dce",
    "sip",
    "cip",
    "enip",
    "modbus",
    "dnp3",
    "gtp",
    "s7comm",
    "ftp",
    "krb5",
    "snmp",
    "js_data",
    "vba_data",
    "app-layer",
];

/// Splits the options at semicolons, except semicolons in quotes or after a backslash.
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
        return Err("a quote is not closed: write '\"' at the end of the value".to_owned());
    }
    let rest = text[from..].trim_ascii();
    if !rest.is_empty() {
        return Err(format!("no ';' after '{}'", short(rest)));
    }
    all.retain(|option| !option.is_empty());
    Ok(all)
}

/// The rule under construction, while its options are parsed one by one.
struct Building<'a> {
    /// The rule, with the options so far.
    rule: Rule,
    /// The priorities of classes, by name.
    classes: &'a BTreeMap<String, u8>,
    /// The treatment of the options `flow` and `flowbits`.
    flow: FlowMode,
    /// True if each character is one byte of the file.
    latin1: bool,
    /// The priority that the rule states; without it, the priority of its class applies.
    priority: Option<u8>,
    /// Options about the payload, in order.
    links: Vec<Link>,
    /// The names of variables, by index.
    variables: Vec<String>,
    /// The options so far that are allowed once.
    seen: Vec<&'a str>,
}

/// Parses the options in `text` into `rule`, whose header is parsed.
pub(super) fn read(
    rule: Rule,
    text: &str,
    classes: &BTreeMap<String, u8>,
    flow: FlowMode,
    latin1: bool,
) -> Result<Rule, Refused> {
    let mut building = Building {
        rule,
        classes,
        flow,
        latin1,
        priority: None,
        links: Vec::new(),
        variables: Vec::new(),
        seen: Vec::new(),
    };
    for option in split(text).map_err(Refused::of(""))? {
        let (name, value) = option
            .split_once(':')
            .map_or((option, None), |(name, value)| (name.trim_ascii_end(), Some(value.trim_ascii())));
        building.option(name, value).map_err(Refused::of(name))?;
    }
    building.finish().map_err(Refused::of("sid"))
}

/// Parses a decimal number from 0 to `most`. `name` is for the error.
fn number<N: TryFrom<u64>>(name: &str, text: &str, most: u64) -> Result<N, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number =
        text.parse::<u64>().ok().filter(|number| digits && *number <= most).and_then(|number| N::try_from(number).ok());
    number.ok_or_else(|| format!("{name} '{}': allowed are 0 to {most}", short(text)))
}

/// Parses a text in quotes. Returns the text with its backslashes, and the rest after the quotes.
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

/// Removes the backslashes that escape characters.
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
    /// Checks that an option occurs at most once.
    fn once(&mut self, name: &'static str) -> Result<(), String> {
        if self.seen.contains(&name) {
            return Err(format!("'{name}' occurs twice: it is allowed once per rule"));
        }
        self.seen.push(name);
        Ok(())
    }

    /// Parses one option. The value is the text after the colon.
    fn option(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        let given = || {
            value.filter(|value| !value.is_empty()).ok_or_else(|| format!("'{name}' has no value: write {name}: VALUE"))
        };
        if !KNOWN.contains(&name) {
            return Err(advice(name));
        }
        match name {
            "msg" => {
                self.once("msg")?;
                let (text, rest) = quoted(name, given()?)?;
                if !rest.is_empty() {
                    return Err(format!("'{}' after the message: write ';' after the closing quote", short(rest)));
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
                let generator = number::<u32>(name, given()?, u32::MAX.into())?;
                // Other generators are for events of Snort's own decoders and preprocessors.
                if generator != 1 && generator < 1_000_000 {
                    return Err(format!("gid {generator}: allowed are 1, and 1000000 and above"));
                }
                self.rule.generator = generator;
            }
            "classtype" => {
                self.once("classtype")?;
                let class = given()?;
                if !self.classes.contains_key(class) {
                    let known = self.classes.keys().map(String::as_str);
                    let near = near(class, known)
                        .map_or_else(String::new, |near| format!("did you mean '{near}'? Otherwise "));
                    return Err(format!(
                        "unknown classtype '{}': {near}write a line 'config classification: NAME, DESCRIPTION, \
                         PRIORITY'",
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
            "metadata" | "service" | "target" | "rem" => drop(given()?),
            "noalert" => self.rule.silent = true,
            "content" => self.content(given()?)?,
            _ if MODIFIERS.contains(&name) => self.modifier(name, value)?,
            "pcre" => self.pcre(given()?)?,
            "isdataat" => self.data_at(given()?)?,
            "byte_test" => self.byte_test(given()?)?,
            "byte_jump" => self.byte_jump(given()?)?,
            "byte_extract" => self.byte_extract(given()?)?,
            "dsize" | "ttl" | "tos" | "id" | "fragoffset" | "itype" | "icode" | "icmp_id" | "icmp_seq" | "seq"
            | "ack" | "window" | "ip_proto" => self.comparison(name, given()?)?,
            "fragbits" => self.fragment_bits(given()?)?,
            "ipopts" => self.ip_options(given()?)?,
            "flags" => self.flags(given()?)?,
            "sameip" => self.rule.tests.push(Test::SameAddress),
            "flow" => self.flow(given()?)?,
            "flowbits" => self.flow_bits(given()?)?,
            "threshold" => {
                self.once("threshold")?;
                self.rule.threshold = Some(limit(name, given()?)?);
            }
            "detection_filter" => {
                self.once("detection_filter")?;
                self.rule.filter = Some(limit(name, given()?)?);
            }
            other => return Err(advice(other)),
        }
        if matches!(name, "nocase" | "sameip" | "rawbytes" | "noalert" | "startswith" | "endswith") && value.is_some() {
            return Err(format!("'{name}' takes no value: write {name};"));
        }
        Ok(())
    }

    /// Completes the rule after all options are parsed. Fails if the rule has no number, or if its options contradict
    /// each other.
    fn finish(self) -> Result<Rule, String> {
        let Self { mut rule, priority, classes, links, .. } = self;
        payload::finish(&mut rule, links)?;
        if rule.sid == 0 {
            return Err("the rule has no number: write sid: NUMBER, from 1".to_owned());
        }
        let by_class = rule.class.as_ref().and_then(|class| classes.get(class));
        rule.priority = priority.or(by_class.copied()).unwrap_or(3);
        if rule.message.is_empty() {
            rule.message = format!("rule {}", rule.sid);
        }
        Ok(rule)
    }
}
