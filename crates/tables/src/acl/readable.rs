//! Parses readable rules, such as `permit tcp from 10.0.0.0/8 to 192.168.1.10 port 80`.
//!
//! ```text
//! set      = "set" name "=" prefixes
//! rule     = action packets ["from" ends] ["to" ends]
//! action   = "permit" | "deny" | "drop" | "count"
//! packets  = "any" | family | [family] protocols | [family] icmp
//! family   = "ip" | "ip6"
//! protocols= protocol {"," protocol}     a name, a number, or value/mask
//! icmp     = ("icmp" | "icmp6") ["type" values ["code" values]]
//! ends     = prefixes ["port" values]
//! prefixes = "any" | prefix {"," prefix} an address, address/length, or a set's name
//! values   = value {"," value}           a number, a name, or first "-" last
//! ```
//!
//! A line may stand for several rules of the classifier. Each of these has one prefix, one range of ports, one protocol
//! and one address family. They follow each other in the list, and no packet matches two of them.

mod errors;
mod line;
mod names;
mod sets;
mod show;

pub use errors::RuleSyntaxError;
pub use sets::{Members, Sets};
pub use show::Readable;

use forebay_graph::{nearest, short};

use line::Line;

use super::MAX_RULES;
use super::rule::{Action, PortRange, ProtocolMatch, Rule, RuleAddress, RulePrefix};
use super::rule_file::AnyRule;

/// The largest number of rules that one line may stand for, and of prefixes of one address family in a list.
const MAX_RULES_PER_LINE: usize = 1 << 14;
/// The words of the grammar, which cannot be names of sets.
const WORDS: [&str; 14] =
    ["any", "ip", "ip6", "from", "to", "port", "type", "code", "set", "permit", "deny", "drop", "count", "="];
/// The words with which a rule may begin.
pub const ACTIONS: &str = "are permit, deny (or drop) and count";
/// The words that are allowed after the action. This and the next text continue the sentence "allowed …" of an error.
const PACKETS: &str = "are any, ip, ip6, a protocol's name (tcp, udp, icmp, icmp6, sctp, esp, ...) or number";
const PREFIXES: &str = "are any, an address, a prefix such as 10.0.0.0/8 or 2001:db8::/32, and the name of a set";

/// The address family of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    fn name(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }
}

/// The source or the destination of a rule.
struct Ends {
    members: Members,
    /// The port ranges, in order. Empty if the rule has no ports here.
    ports: Vec<PortRange>,
    /// The first prefix of each family (IPv4, IPv6) that is written in the rule itself, not in a set.
    written: [Option<String>; 2],
}

impl Ends {
    fn any() -> Ends {
        Ends { members: Members::any(), ports: Vec::new(), written: [None, None] }
    }
}

/// Parses the line of a rule. Returns the rules of the classifier for which the line stands: at least one, in order.
/// Names of sets are looked up in `sets`.
///
/// # Errors
/// The first wrong word.
pub fn parse(text: &str, sets: &Sets) -> Result<Vec<AnyRule>, RuleSyntaxError> {
    let mut line = Line::new(text);
    let action = line.action()?;
    let (family, protocols) = line.packets()?;
    let icmp = line.types(&protocols)?;
    let src = line.ends("from", sets)?.unwrap_or_else(Ends::any);
    let dst = line.ends("to", sets)?.unwrap_or_else(Ends::any);
    if let Some(word) = line.next() {
        return Err(surplus(word));
    }
    for end in [&src, &dst] {
        if let Some(protocol) = protocols.iter().find(|protocol| !end.ports.is_empty() && !protocol.has_ports) {
            return Err(RuleSyntaxError::NoPorts(protocol.word.clone()));
        }
    }
    let mut rules = Vec::new();
    let mut count: u64 = 0;
    let any = [PortRange::ANY];
    let icmp = icmp.as_ref().map(|(types, codes)| (&types[..], codes.as_deref().unwrap_or(&any)));
    let ports = |end: &Ends| if end.ports.is_empty() { vec![PortRange::ANY] } else { end.ports.clone() };
    let (sports, dports) = match icmp {
        Some((types, codes)) => (types.to_vec(), codes.to_vec()),
        None => (ports(&src), ports(&dst)),
    };
    let services = Services { sports: &sports, dports: &dports, action };
    let mut matchable = [false; 2];
    for protocol in &protocols {
        let is = |wanted: Family| {
            family.is_none_or(|family| family == wanted) && protocol.family.is_none_or(|it| it == wanted)
        };
        if is(Family::V4) {
            let (src, dst) = (&src.members.v4, &dst.members.v4);
            matchable[0] |= !src.is_empty() && !dst.is_empty();
            services.cross(src, dst, protocol.is, AnyRule::V4, &mut rules, &mut count);
        }
        if is(Family::V6) {
            let (src, dst) = (&src.members.v6, &dst.members.v6);
            matchable[1] |= !src.is_empty() && !dst.is_empty();
            services.cross(src, dst, protocol.is, AnyRule::V6, &mut rules, &mut count);
        }
    }
    if count > MAX_RULES_PER_LINE as u64 {
        return Err(RuleSyntaxError::Many { count, most: MAX_RULES_PER_LINE });
    }
    // A prefix that is written in the rule itself must be able to match a packet.
    for (family_index, wanted) in [(0, Family::V4), (1, Family::V6)] {
        for (end, other) in [(&src, "to"), (&dst, "from")] {
            if let (Some(word), false) = (&end.written[family_index], matchable[family_index]) {
                let other_protocol = protocols.iter().find(|protocol| protocol.family.is_some_and(|it| it != wanted));
                let why = match (family, other_protocol) {
                    (Some(family), _) if family != wanted => {
                        format!("the rule is for {} only", family.name())
                    }
                    (_, Some(protocol)) => format!("'{}' is of the other address family", protocol.word),
                    _ => {
                        format!("it is {}, and '{other}' has no address of that family", wanted.name())
                    }
                };
                return Err(RuleSyntaxError::Families { word: word.clone(), why });
            }
        }
    }
    if rules.is_empty() {
        let word = protocols.first().map_or_else(String::new, |protocol| protocol.word.clone());
        let why = "'from', 'to' and the protocol have no address family in common".to_owned();
        return Err(RuleSyntaxError::Families { word, why });
    }
    Ok(rules)
}

/// Parses the line of a set and adds the set.
///
/// # Errors
/// The first wrong word.
pub fn parse_set(text: &str, sets: &mut Sets) -> Result<(), RuleSyntaxError> {
    // The sign may stand next to its neighbours without a space.
    let text = text.replacen('=', " = ", 1);
    let mut line = Line::new(&text);
    line.next();
    let allowed =
        "is a letter, then letters, digits, '-' and '_', except keywords of rules, such as set office = 10.0.0.0/8";
    let name = line.next().ok_or_else(|| RuleSyntaxError::Ends { what: "a name", allowed: allowed.to_owned() })?;
    let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if !letters || !name.starts_with(|first: char| first.is_ascii_alphabetic()) || WORDS.contains(&name) {
        return Err(wrong_word(name, "name of a set", [], allowed));
    }
    if sets.get(name).is_some() {
        return Err(RuleSyntaxError::Twice(short(name)));
    }
    match line.next() {
        Some("=") => {}
        Some(other) => {
            let allowed = "is \"=\": set office = 10.0.0.0/8, 2001:db8::/32";
            return Err(wrong_word(other, "sign after the name", [], allowed));
        }
        None => return Err(RuleSyntaxError::Ends { what: "'='", allowed: "is set office = 10.0.0.0/8".to_owned() }),
    }
    let Ends { members, .. } = line.prefixes(sets)?;
    if let Some(word) = line.next() {
        return Err(wrong_word(word, "separator", [], "is \",\" between prefixes, and nothing after the last one"));
    }
    if members.count() > MAX_RULES_PER_LINE || sets.members() + members.count() > MAX_RULES {
        return Err(RuleSyntaxError::Large(if members.count() > MAX_RULES_PER_LINE {
            MAX_RULES_PER_LINE
        } else {
            MAX_RULES
        }));
    }
    sets.add(name, members);
    Ok(())
}

/// Returns the error of a word that cannot follow the rule.
fn surplus(word: &str) -> RuleSyntaxError {
    let allowed = match word {
        "port" | "ports" => {
            "is 'port' after 'from PREFIX' for source ports, and after 'to PREFIX' for destination ports"
        }
        "type" | "code" => "is 'type' right after icmp or icmp6, and 'code' after the types: icmp type echo-request",
        "flags" | "established" | "related" | "state" | "syn" | "new" => {
            "are addresses, protocols, ports and types of ICMP: use the function `firewall` to match connections"
        }
        "from" => "is 'from' before 'to'",
        _ => "are 'from' with the source, 'to' with the destination, and 'port' after either",
    };
    wrong_word(word, "continuation of the rule", ["from", "to", "port"], allowed)
}

/// Returns the error of a word that is not a valid `what`. `names` are the words among which the error suggests a
/// similar one. `allowed` continues the sentence "allowed …".
fn wrong_word<'n>(
    word: &str,
    what: &'static str,
    names: impl IntoIterator<Item = &'n str>,
    allowed: impl Into<String>,
) -> RuleSyntaxError {
    // The messages are "'x' is not a valid port" and "the rule ends before a port".
    let what = what.strip_prefix("a ").or_else(|| what.strip_prefix("an ")).unwrap_or(what);
    RuleSyntaxError::Word { word: short(word), what, near: nearest(word, names), allowed: allowed.into() }
}

/// A protocol of a rule.
struct Protocol {
    word: String,
    is: ProtocolMatch,
    /// True if a rule for the protocol may constrain ports.
    has_ports: bool,
    /// The address family, if the protocol's name implies it.
    family: Option<Family>,
}

/// ICMP types, and codes if there are any.
type Types = (Vec<PortRange>, Option<Vec<PortRange>>);

/// The ports and the action, which all rules of a line share.
struct Services<'p> {
    sports: &'p [PortRange],
    dports: &'p [PortRange],
    action: Action,
}

impl Services<'_> {
    /// Adds the rules of one family and protocol to `rules`, and their number to `count`. If `count` is then above
    /// [`MAX_RULES_PER_LINE`], the rules are only counted, and the caller must report the error.
    fn cross<A: RuleAddress>(
        &self,
        sources: &[RulePrefix<A>],
        destinations: &[RulePrefix<A>],
        protocol: ProtocolMatch,
        any: fn(Rule<A>) -> AnyRule,
        rules: &mut Vec<AnyRule>,
        count: &mut u64,
    ) {
        let factors = [sources.len(), destinations.len(), self.sports.len(), self.dports.len()];
        *count = count.saturating_add(factors.iter().fold(1, |product, factor| product.saturating_mul(*factor as u64)));
        if *count > MAX_RULES_PER_LINE as u64 {
            return;
        }
        for &src in sources {
            for &dst in destinations {
                for &sport in self.sports {
                    let rule = |&dport| any(Rule { src, dst, sport, dport, protocol, action: self.action });
                    rules.extend(self.dports.iter().map(rule));
                }
            }
        }
    }
}

/// Returns the error of a word that does not begin a rule.
pub fn not_an_action(word: &str) -> RuleSyntaxError {
    let synonym = match word.to_ascii_lowercase().as_str() {
        "allow" | "accept" | "pass" => Some("permit"),
        "block" | "reject" | "discard" => Some("deny"),
        _ => None,
    };
    let near = synonym.map_or_else(
        || nearest(word, ["permit", "deny", "drop", "count", "set"]),
        |synonym| format!(" (did you mean '{synonym}'?)"),
    );
    let allowed = format!("{ACTIONS}; a set begins with 'set', a ClassBench rule with '@', a comment with '#'");
    RuleSyntaxError::Word { word: short(word), what: "action", near, allowed }
}

#[cfg(test)]
mod tests;
