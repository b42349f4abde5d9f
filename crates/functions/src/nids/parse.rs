//! Reads a file of rules: what of the language of Snort is known, and for all else what to write instead.
//!
//! Nothing is passed over in silence: a rule that would mean something else here than where it comes from is refused.

mod options;

use std::collections::{BTreeMap, HashMap};

use super::classes;
use super::ranges::{self, Variables};
use super::rule::{Action, Protocol, Rule};

/// The most rules.
pub const MOST_RULES: usize = 65_536;
/// The longest rule, in bytes.
const MOST_LENGTH: usize = 64 << 10;
/// Faults of a file that are told one by one.
const MOST_FAULTS: usize = 20;

/// What of the language may be left to the configuration.
#[derive(Clone, Debug, Default)]
pub struct Dialect {
    /// Variables, before those of the file.
    pub variables: Variables,
    /// Whether `flow` is taken for what can be seen in one packet, instead of being refused.
    pub approximate_flow: bool,
}

/// What a file says.
#[derive(Clone, Debug, Default)]
pub struct File {
    /// The rules, in order.
    pub rules: Vec<Rule>,
}

/// Reads a file. `shown` is what it is called in errors.
///
/// # Errors
/// The first faults, each with its line.
pub fn parse(shown: &str, bytes: &[u8], dialect: &Dialect) -> Result<File, String> {
    let mut reader = Reader {
        variables: dialect.variables.clone(),
        given: dialect.variables.keys().cloned().collect(),
        classes: classes::known(),
        approximate_flow: dialect.approximate_flow,
        rules: Vec::new(),
        lines: HashMap::new(),
    };
    let mut faults = Vec::new();
    for (line, text) in logical(bytes) {
        let result = match text {
            Ok(text) => reader.read(line, &text),
            Err(message) => Err(message),
        };
        if let Err(message) = result {
            faults.push(format!("{shown}:{line}: {message}"));
        }
    }
    if faults.is_empty() {
        return Ok(File { rules: reader.rules });
    }
    let more = faults.len().saturating_sub(MOST_FAULTS);
    faults.truncate(MOST_FAULTS);
    if more > 0 {
        faults.push(format!("and {more} more"));
    }
    Err(faults.join("\n"))
}

/// Lines with those that they are continued by (a backslash at the end), each with its number; without empty ones and
/// comments.
fn logical(bytes: &[u8]) -> Vec<(usize, Result<String, String>)> {
    let mut all = Vec::new();
    let mut begun: Option<(usize, String)> = None;
    let mut lines = (1..).zip(bytes.split(|byte| *byte == b'\n')).peekable();
    while let Some((number, line)) = lines.next() {
        let Ok(text) = std::str::from_utf8(line) else {
            begun = None;
            all.push((number, Err("it is no UTF-8: write other bytes as |ff|".to_owned())));
            continue;
        };
        let text = text.trim_ascii_end();
        if begun.is_none() && (text.is_empty() || text.trim_ascii_start().starts_with('#')) {
            continue;
        }
        let (from, mut whole) = begun.take().unwrap_or_else(|| (number, String::new()));
        let continued = text.strip_suffix('\\').filter(|_| lines.peek().is_some());
        whole.push_str(continued.unwrap_or(text));
        if whole.len() > MOST_LENGTH {
            all.push((from, Err(format!("more than {MOST_LENGTH} bytes: allowed are shorter rules"))));
        } else if continued.is_some() {
            begun = Some((from, whole));
        } else {
            all.push((from, Ok(whole.trim_ascii().to_owned())));
        }
    }
    all
}

struct Reader {
    variables: Variables,
    /// Variables that the configuration gave: what the file says of them does not count.
    given: std::collections::BTreeSet<String>,
    /// Priorities by class.
    classes: BTreeMap<String, u8>,
    approximate_flow: bool,
    rules: Vec<Rule>,
    /// By number, the line of the rule that has it.
    lines: HashMap<u32, usize>,
}

pub(super) fn short(text: &str) -> String {
    text.chars().take(60).collect()
}

/// What of `known` is probably meant.
pub(super) fn near<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let word = word.chars().take(40).collect::<String>().to_ascii_lowercase();
    let likely = known.map(|known| (strsim::jaro_winkler(&word, known), known)).filter(|(alike, _)| *alike > 0.85);
    likely.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, known)| known)
}

impl Reader {
    fn read(&mut self, line: usize, text: &str) -> Result<(), String> {
        let (word, rest) = text.split_once(|letter: char| letter.is_ascii_whitespace()).unwrap_or((text, ""));
        match word {
            "var" | "ipvar" | "portvar" => self.variable(word, rest),
            "config" => self.config(rest),
            "include" => Err("'include' is not known: give the files one after the other in one".to_owned()),
            _ => {
                let rule = self.rule(line, word, rest)?;
                if let Some(before) = self.lines.insert(rule.sid, line) {
                    return Err(format!("sid {} is that of the rule in line {before}: allowed is each once", rule.sid));
                }
                if self.rules.len() == MOST_RULES {
                    return Err(format!("more than {MOST_RULES} rules"));
                }
                self.rules.push(rule);
                Ok(())
            }
        }
    }

    fn variable(&mut self, word: &str, rest: &str) -> Result<(), String> {
        let (name, value) = rest
            .trim_ascii()
            .split_once(|letter: char| letter.is_ascii_whitespace())
            .unwrap_or((rest.trim_ascii(), ""));
        let value = value.trim_ascii();
        let plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !plain || value.is_empty() {
            return Err(format!("'{}': write {word} NAME VALUE", short(rest)));
        }
        // It is to be right, whether or not it is used: `var` may be either.
        let (address, port) = (|| ranges::hosts(value, &self.variables), || ranges::ports(value, &self.variables));
        match word {
            "ipvar" => drop(address()?),
            "portvar" => drop(port()?),
            _ => {
                if let (Err(error), Err(_)) = (address(), port()) {
                    return Err(error);
                }
            }
        }
        if !self.given.contains(name) {
            self.variables.insert(name.to_owned(), value.to_owned());
        }
        Ok(())
    }

    fn config(&mut self, rest: &str) -> Result<(), String> {
        let Some(class) = rest.trim_ascii().strip_prefix("classification:") else {
            return Err(format!(
                "'config {}' is not known: allowed is config classification: NAME, DESCRIPTION, PRIORITY",
                short(rest)
            ));
        };
        let parts: Vec<&str> = class.split(',').map(str::trim_ascii).collect();
        match parts[..] {
            [name, _, priority] if !name.is_empty() => {
                self.classes.insert(name.to_owned(), priority_of(priority)?);
                Ok(())
            }
            _ => Err(format!("'{}': write config classification: NAME, DESCRIPTION, PRIORITY", short(class))),
        }
    }

    fn rule(&self, line: usize, action: &str, rest: &str) -> Result<Rule, String> {
        let action = match action {
            "alert" => Action::Alert,
            "drop" | "block" => Action::Drop,
            "pass" => Action::Pass,
            "log" => Action::Log,
            "reject" | "sdrop" | "rejectsrc" | "rejectdst" => {
                return Err(format!(
                    "the action '{action}' is not known: allowed are alert, drop, pass and log; write drop"
                ));
            }
            other => {
                let known = ["alert", "drop", "pass", "log", "var", "ipvar", "portvar", "config"];
                let near = near(other, known.into_iter())
                    .map_or_else(String::new, |near| format!(" (did you mean '{near}'?)"));
                return Err(format!("'{}' begins no rule{near}: allowed are alert, drop, pass and log", short(other)));
            }
        };
        let Some((header, options)) = rest.split_once('(') else {
            return Err("a rule without '(': write ACTION PROTOCOL ADDRESS PORT -> ADDRESS PORT (OPTIONS)".to_owned());
        };
        let Some(options) = options.trim_ascii_end().strip_suffix(')') else {
            return Err("a rule without ')' at its end".to_owned());
        };
        let words = words(header);
        let [protocol, source, source_ports, direction, destination, destination_ports] = words[..] else {
            return Err(format!(
                "a header of {} words: write ACTION PROTOCOL ADDRESS PORT -> ADDRESS PORT (OPTIONS)",
                words.len() + 1
            ));
        };
        let protocol = match protocol {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            "icmp" => Protocol::Icmp,
            "ip" => Protocol::Ip,
            other => {
                return Err(format!(
                    "the protocol '{}' is not known: allowed are tcp, udp, icmp and ip; write the one that it is carried by, with its port",
                    short(other)
                ));
            }
        };
        let both = match direction {
            "->" => false,
            "<>" => true,
            "<-" => return Err("'<-' is not known: write the other way round with '->'".to_owned()),
            other => return Err(format!("'{}' is no direction: allowed are -> and <>", short(other))),
        };
        let source = ranges::hosts(source, &self.variables)?;
        let destination = ranges::hosts(destination, &self.variables)?;
        let source_ports = ranges::ports(source_ports, &self.variables)?;
        let destination_ports = ranges::ports(destination_ports, &self.variables)?;
        if matches!(protocol, Protocol::Icmp | Protocol::Ip)
            && [&source_ports, &destination_ports].iter().any(|ports| !is_any(ports))
        {
            return Err("ports of a protocol without any: allowed with icmp and ip is any".to_owned());
        }
        let rule = Rule {
            line,
            action,
            protocol,
            source,
            source_ports,
            both,
            destination,
            destination_ports,
            message: String::new(),
            sid: 0,
            revision: 0,
            class: None,
            priority: 0,
            references: Vec::new(),
            tests: Vec::new(),
            contents: Vec::new(),
            pcres: Vec::new(),
            filter: None,
            threshold: None,
        };
        options::read(rule, options, &self.classes, self.approximate_flow)
    }
}

/// Whether every port is meant.
#[must_use]
pub fn is_any(ports: &ranges::Ranges) -> bool {
    ports.ranges() == [(0, ranges::PORTS)]
}

fn priority_of(text: &str) -> Result<u8, String> {
    let priority = text.parse::<u8>().ok().filter(|priority| *priority > 0);
    priority.ok_or_else(|| format!("'{}' is no priority: allowed are 1 to 255", short(text)))
}

/// The words of a header: lists may have spaces in them.
fn words(header: &str) -> Vec<&str> {
    let (mut depth, mut from, mut words) = (0i32, None, Vec::new());
    for (at, letter) in header.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        match (letter.is_ascii_whitespace() && depth <= 0, from) {
            (true, Some(start)) => {
                words.push(&header[start..at]);
                from = None;
            }
            (false, None) => from = Some(at),
            _ => {}
        }
    }
    words.extend(from.map(|start| &header[start..]));
    words
}

/// What a fuzzer tries: any bytes are rules or have a fault that says where.
pub fn fuzz_rules(bytes: &[u8]) {
    let dialect = Dialect { approximate_flow: bytes.first().is_some_and(|byte| byte & 1 == 1), ..Dialect::default() };
    match parse("fuzz", bytes, &dialect) {
        Ok(file) => assert!(file.rules.iter().all(|rule| rule.sid > 0 && rule.priority > 0)),
        Err(error) => assert!(error.starts_with("fuzz:"), "{error}"),
    }
}
