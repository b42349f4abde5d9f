//! Parses a rule file. An error about an unsupported part of Snort's language says what to write instead.
//!
//! Nothing is ignored silently: a rule that would have another meaning here than in Snort is refused.

mod bits;
mod lines;
pub(super) mod options;
mod refused;

use std::collections::{BTreeMap, HashMap};

use forebay_graph::short;

use super::classes;
use super::ranges::{self, Variables};
use super::rule::{Action, Protocol, Rule};
use bits::BitNumbers;
use lines::logical;
pub use refused::Skipped;
use refused::{Refused, drops, sid_of};

/// The largest number of rules.
pub const MAX_RULES: usize = 65_536;
/// The largest number of faults that are reported in full.
const MAX_FAULTS: usize = 20;

/// The treatment of the options `flow` and `flowbits`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowMode {
    /// Rules with either option are refused.
    #[default]
    Refuse,
    /// `flow` tests the flags of one packet. Rules with `flowbits` are refused.
    Approximate,
    /// A table of sessions is used.
    Session,
}

/// The settings of the parser.
#[derive(Clone, Debug, Default)]
pub struct Dialect {
    /// Variables. They take precedence over variables of the file.
    pub variables: Variables,
    /// The treatment of the options `flow` and `flowbits`.
    pub flow: FlowMode,
    /// True if rules that cannot be loaded are skipped and listed instead of refusing the file.
    pub skip: bool,
    /// True if rules that drop packets are skipped as well.
    pub skip_drop: bool,
}

/// The content of a rule file.
#[derive(Clone, Debug, Default)]
pub struct File {
    /// The rules, in order.
    pub rules: Vec<Rule>,
    /// Lines that were skipped, in order.
    pub skipped: Vec<Skipped>,
    /// Descriptions of classes, by name.
    pub categories: BTreeMap<String, String>,
    /// The names of the bits that rules keep for sessions, by number.
    pub bits: Vec<String>,
}

/// Parses a rule file. `shown` is its name in errors.
///
/// # Errors
/// The first faults, each with its line.
pub fn parse(shown: &str, bytes: &[u8], dialect: &Dialect) -> Result<File, String> {
    let mut reader = Reader {
        variables: dialect.variables.clone(),
        given: dialect.variables.keys().cloned().collect(),
        classes: classes::known(),
        categories: BTreeMap::new(),
        flow: dialect.flow,
        rules: Vec::new(),
        indices: HashMap::new(),
        replaced: Vec::new(),
        bits: BitNumbers::default(),
    };
    let mut faults = Vec::new();
    let mut skipped = Vec::new();
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if text.starts_with(b"\xff\xfe") || text.starts_with(b"\xfe\xff") {
        return Err(format!("{shown}:1: the file is UTF-16: allowed are UTF-8 and Latin-1"));
    }
    if let Some(at) = memchr::memchr(0, text) {
        let line = 1 + memchr::memchr_iter(b'\n', &text[..at]).count();
        return Err(format!("{shown}:{line}: a byte of value 0: allowed are text files, UTF-8 or Latin-1"));
    }
    for line in logical(text) {
        let result = line.text.and_then(|text| {
            let read = reader.read(line.number, &text, line.latin1);
            read.map_err(|refused| Refused { sid: sid_of(&text), drops: drops(&text), ..refused })
        });
        match result {
            Ok(()) => {}
            Err(refused) if dialect.skip && !refused.always && (!refused.drops || dialect.skip_drop) => {
                skipped.push(refused.skipped(shown, line.number));
            }
            Err(Refused { message, drops, always, .. }) => {
                let kept = if dialect.skip && drops && !always {
                    ": 'unknown: skip' does not skip rules that drop packets (set 'skip_drop: true' to skip them)"
                } else {
                    ""
                };
                faults.push(format!("{shown}:{}: {message}{kept}", line.number));
            }
        }
    }
    if faults.is_empty() {
        skipped.extend(reader.replaced.drain(..).map(|(refused, line)| refused.skipped(shown, line)));
        skipped.sort_by_key(|skipped| skipped.line);
        let bits = reader.bits.finish(&mut reader.rules);
        return Ok(File { rules: reader.rules, skipped, categories: reader.categories, bits });
    }
    let more = faults.len().saturating_sub(MAX_FAULTS);
    faults.truncate(MAX_FAULTS);
    if more > 0 {
        faults.push(format!("and {more} more (with 'unknown: skip', 'forebay check --json' lists all)"));
    }
    Err(faults.join("\n"))
}

/// Application protocols that rules may name. They are not decoded.
const SERVICES: [&str; 29] = [
    "http",
    "http1",
    "http2",
    "http3",
    "file",
    "ssl",
    "tls",
    "ssh",
    "smtp",
    "imap",
    "pop3",
    "ftp",
    "ftp-data",
    "dns",
    "smb",
    "dcerpc",
    "dcerpc_tcp",
    "dcerpc_udp",
    "sip",
    "snmp",
    "tftp",
    "nfs",
    "ntp",
    "dhcp",
    "krb5",
    "modbus",
    "dnp3",
    "rdp",
    "quic",
];

/// Returns the error for the name of an application protocol in place of a transport protocol.
fn service(name: &str) -> String {
    if name.starts_with("http") || name == "file" {
        return format!("the protocol '{name}': HTTP buffers are not supported yet");
    }
    format!("the protocol '{name}' is not decoded: write the transport protocol and the port")
}

/// The parser of a file, with the definitions and rules so far.
struct Reader {
    /// The variables of the configuration, and of the file so far.
    variables: Variables,
    /// Variables that the configuration gives. If the file defines such a variable, too, the definition is checked but
    /// not used.
    given: std::collections::BTreeSet<String>,
    /// Priorities by class.
    classes: BTreeMap<String, u8>,
    /// Descriptions of the classes that the file defines.
    categories: BTreeMap<String, String>,
    /// The treatment of the options `flow` and `flowbits`.
    flow: FlowMode,
    /// The rules so far, in order.
    rules: Vec<Rule>,
    /// The index of each rule by generator and number.
    indices: HashMap<(u32, u32), usize>,
    /// Rules that a newer revision replaces, with their lines.
    replaced: Vec<(Refused, usize)>,
    /// The numbers of the bits of `flowbits`.
    bits: BitNumbers,
}

/// Returns the known word that is most similar, if one is similar enough.
pub(super) fn near<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let word = word.chars().take(40).collect::<String>().to_ascii_lowercase();
    let likely = known.map(|known| (strsim::jaro_winkler(&word, known), known)).filter(|(alike, _)| *alike > 0.85);
    likely.max_by(|one, other| one.0.total_cmp(&other.0)).map(|(_, known)| known)
}

impl Reader {
    /// Parses a line and adds its rule or definition. With `latin1`, each character is one byte of the file.
    fn read(&mut self, line: usize, text: &str, latin1: bool) -> Result<(), Refused> {
        let (word, rest) = text.split_once(|letter: char| letter.is_ascii_whitespace()).unwrap_or((text, ""));
        match word {
            "var" | "ipvar" | "portvar" => self.variable(word, rest).map_err(Refused::of(word)),
            "config" => self.config(rest).map_err(Refused::of(word)),
            "include" => Err(Refused::new("include", "'include' is not supported: join the files into one".to_owned())),
            _ => {
                let rule = self.rule(line, word, rest, latin1)?;
                self.add(rule)
            }
        }
    }

    /// Adds a rule. If two rules have the same number, the rule with the newer revision is kept, as in Snort, and the
    /// other is listed in `replaced`.
    fn add(&mut self, mut rule: Rule) -> Result<(), Refused> {
        self.bits.number(&mut rule)?;
        let Rule { sid, revision, generator, .. } = rule;
        if let Some(before) = self.indices.get(&(generator, sid)).and_then(|index| self.rules.get_mut(*index)) {
            if before.revision == revision {
                let message = format!(
                    "sid {sid} is already used by the rule in line {}: each sid is allowed once per revision",
                    before.line
                );
                return Err(Refused::new("sid", message));
            }
            let older = if before.revision < revision { std::mem::replace(before, rule) } else { rule };
            let message = format!(
                "sid {sid} has revision {} in line {}: the newest revision is used",
                before.revision, before.line
            );
            self.replaced.push((Refused { sid: Some(sid), ..Refused::new("rev", message) }, older.line));
            return Ok(());
        }
        if self.rules.len() == MAX_RULES {
            return Err(Refused {
                always: true,
                ..Refused::new("", format!("too many rules: allowed are up to {MAX_RULES}"))
            });
        }
        self.indices.insert((generator, sid), self.rules.len());
        self.rules.push(rule);
        Ok(())
    }

    /// Parses the definition of a variable. `word` is `var`, `ipvar` or `portvar`.
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
        // The value must be valid even if it is not used. With `var` it may be an address or a port.
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

    /// Parses the definition of a class.
    fn config(&mut self, rest: &str) -> Result<(), String> {
        let Some(class) = rest.trim_ascii().strip_prefix("classification:") else {
            return Err(format!(
                "'config {}' is not supported: allowed is config classification: NAME, DESCRIPTION, PRIORITY",
                short(rest)
            ));
        };
        let parts: Vec<&str> = class.split(',').map(str::trim_ascii).collect();
        match parts[..] {
            [name, text, priority] if !name.is_empty() => {
                self.classes.insert(name.to_owned(), priority_of(priority)?);
                self.categories.insert(name.to_owned(), text.to_owned());
                Ok(())
            }
            _ => Err(format!("'{}': write config classification: NAME, DESCRIPTION, PRIORITY", short(class))),
        }
    }

    /// Parses a rule. `action` is its first word.
    fn rule(&self, line: usize, action: &str, rest: &str, latin1: bool) -> Result<Rule, Refused> {
        let action = match action {
            "alert" => Action::Alert,
            "drop" | "block" => Action::Drop,
            "pass" => Action::Pass,
            "log" => Action::Log,
            "reject" | "sdrop" | "rejectsrc" | "rejectdst" | "rejectboth" => {
                return Err(Refused::new(
                    action,
                    format!(
                        "the action '{action}' is not supported: allowed are alert, drop, pass and log; write drop"
                    ),
                ));
            }
            other => {
                let known = ["alert", "drop", "pass", "log", "var", "ipvar", "portvar", "config"];
                let near = near(other, known.into_iter())
                    .map_or_else(String::new, |near| format!(" (did you mean '{near}'?)"));
                let message =
                    format!("'{}' does not begin a rule{near}: allowed are alert, drop, pass and log", short(other));
                return Err(Refused::new("", message));
            }
        };
        let (header, options) = lines::parts(rest).map_err(Refused::of(""))?;
        let words = words(header);
        if let [service_name] = words[..]
            && SERVICES.contains(&service_name)
        {
            return Err(Refused::new(service_name, service(service_name)));
        }
        let [protocol, source, source_ports, direction, destination, destination_ports] = words[..] else {
            return Err(Refused::new(
                "header",
                format!(
                    "the header has {} words: write ACTION PROTOCOL ADDRESS PORT -> ADDRESS PORT (OPTIONS)",
                    words.len() + 1
                ),
            ));
        };
        let protocol = match protocol {
            "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            "icmp" => Protocol::Icmp,
            "ip" => Protocol::Ip,
            other => {
                let message = if SERVICES.contains(&other) {
                    service(other)
                } else {
                    format!("unknown protocol '{}': allowed are tcp, udp, icmp and ip", short(other))
                };
                return Err(Refused::new(other, message));
            }
        };
        let both = match direction {
            "->" => false,
            "<>" => true,
            "<-" => {
                return Err(Refused::new("<-", "'<-' is not supported: swap both sides and write '->'".to_owned()));
            }
            other => {
                let message = format!("'{}' is not a valid direction: allowed are -> and <>", short(other));
                return Err(Refused::new("header", message));
            }
        };
        let hosts = |text| ranges::hosts(text, &self.variables).map_err(Refused::of("address"));
        let (source, destination) = (hosts(source)?, hosts(destination)?);
        let ports = |text| ranges::ports(text, &self.variables).map_err(Refused::of("port"));
        let (mut source_ports, mut destination_ports) = (ports(source_ports)?, ports(destination_ports)?);
        // Snort 2 and 3 parse the ports in rules for icmp and ip but do not compare them. Here such rules are for all
        // ports.
        if matches!(protocol, Protocol::Icmp | Protocol::Ip) {
            let any = || ranges::Ranges::of(vec![(0, ranges::PORTS)]);
            (source_ports, destination_ports) = (any(), any());
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
            generator: 1,
            silent: false,
            flow: None,
            bits: Vec::new(),
            revision: 0,
            class: None,
            priority: 0,
            references: Vec::new(),
            tests: Vec::new(),
            contents: Vec::new(),
            pcres: Vec::new(),
            chain: Vec::new(),
            filter: None,
            threshold: None,
        };
        options::read(rule, options, &self.classes, self.flow, latin1)
    }
}

/// Returns true if the set contains every port.
#[must_use]
pub fn is_any(ports: &ranges::Ranges) -> bool {
    ports.ranges() == [(0, ranges::PORTS)]
}

/// Parses a priority, 1 to 255.
fn priority_of(text: &str) -> Result<u8, String> {
    let priority = text.parse::<u8>().ok().filter(|priority| *priority > 0);
    priority.ok_or_else(|| format!("'{}' is not a valid priority: allowed are 1 to 255", short(text)))
}

/// Splits a header into words. Lists may contain spaces.
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

/// The entry point for fuzzers: checks that any bytes give rules, or an error with a line.
pub fn fuzz_rules(bytes: &[u8]) {
    let bit = |mask| bytes.first().is_some_and(|byte| byte & mask != 0);
    let flow = match (bit(1), bit(4)) {
        (_, true) => FlowMode::Session,
        (true, false) => FlowMode::Approximate,
        (false, false) => FlowMode::Refuse,
    };
    let dialect = Dialect { flow, ..Dialect::default() };
    match parse("fuzz", bytes, &dialect) {
        Ok(file) => {
            assert!(file.rules.iter().all(|rule| rule.sid > 0 && rule.priority > 0));
            let mut bits = file.rules.iter().flat_map(|rule| &rule.bits).flat_map(|step| &step.bits);
            assert!(bits.all(|bit| usize::from(*bit) < file.bits.len()), "each bit has a name");
        }
        Err(error) => assert!(error.starts_with("fuzz:"), "{error}"),
    }
}
