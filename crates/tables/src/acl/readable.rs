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

use std::collections::BTreeSet;
use std::net::IpAddr;

mod errors;
mod names;
mod sets;
mod show;

pub use errors::RuleSyntaxError;
pub use sets::{Members, Sets};
pub use show::Readable;

use forebay_graph::nearest;

use super::MAX_RULES;
use super::classbench::{number, number_pair};
use super::rule::{Action, Address, PortRange, Prefix, ProtocolMatch, Rule};
use super::rule_file::AnyRule;

/// The largest number of rules that one line may stand for, and of prefixes of one address family in a list.
const MAX_RULES_PER_LINE: usize = 1 << 14;
/// The largest number of characters of a wrong word that an error repeats.
const MAX_SHOWN: usize = 60;
/// The words of the grammar, which cannot be names of sets.
const WORDS: [&str; 14] =
    ["any", "ip", "ip6", "from", "to", "port", "type", "code", "set", "permit", "deny", "drop", "count", "="];
/// The words with which a rule may begin.
pub const ACTIONS: &str = "are permit, deny (or drop) and count";
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
    ports: Vec<PortRange>,
    /// The first prefix of each family that is written in the rule itself.
    written: [Option<String>; 2],
}

impl Ends {
    fn any() -> Ends {
        Ends { members: Members::any(), ports: Vec::new(), written: [None, None] }
    }
}

/// Parses the line of a rule.
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
    let allowed = "is a letter, then letters, digits, '-' and '_', and not a keyword of rules: set office = 10.0.0.0/8";
    let name = line.next().ok_or_else(|| RuleSyntaxError::Ends { what: "a name", allowed: allowed.to_owned() })?;
    let letters = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if !letters || !name.starts_with(|first: char| first.is_ascii_alphabetic()) || WORDS.contains(&name) {
        return Err(wrong_word(name, "name of a set", [], allowed));
    }
    if sets.get(name).is_some() {
        return Err(RuleSyntaxError::Twice(shown(name)));
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

fn shown(word: &str) -> String {
    word.chars().take(MAX_SHOWN).collect()
}

fn wrong_word<'n>(
    word: &str,
    what: &'static str,
    names: impl IntoIterator<Item = &'n str>,
    allowed: impl Into<String>,
) -> RuleSyntaxError {
    // The messages are "'x' is not a valid port" and "the rule ends before a port".
    let what = what.strip_prefix("a ").or_else(|| what.strip_prefix("an ")).unwrap_or(what);
    RuleSyntaxError::Word { word: shown(word), what, near: nearest(word, names), allowed: allowed.into() }
}

/// A protocol of a rule.
struct Protocol {
    word: String,
    is: ProtocolMatch,
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
    /// Adds the rules of one family and protocol. Adds nothing, but counts them, if there are too many.
    fn cross<A: Address>(
        &self,
        sources: &[Prefix<A>],
        destinations: &[Prefix<A>],
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

/// The words of a line. A comma is a word of its own.
struct Line<'t> {
    words: std::iter::Peekable<std::vec::IntoIter<&'t str>>,
}

impl<'t> Line<'t> {
    fn new(text: &'t str) -> Self {
        let words = text.split_whitespace().flat_map(|word| word.split_inclusive(',')).flat_map(|word| {
            match word.strip_suffix(',') {
                Some("") => [Some(","), None],
                Some(before) => [Some(before), Some(",")],
                None => [Some(word), None],
            }
        });
        Self { words: words.flatten().collect::<Vec<_>>().into_iter().peekable() }
    }

    fn next(&mut self) -> Option<&'t str> {
        self.words.next()
    }

    /// Consumes the next word if it is `wanted`.
    fn takes(&mut self, wanted: &str) -> bool {
        self.words.next_if(|word| *word == wanted).is_some()
    }

    fn action(&mut self) -> Result<Action, RuleSyntaxError> {
        let word = self.next().unwrap_or_default();
        match word {
            "permit" => Ok(Action::Permit),
            "deny" | "drop" => Ok(Action::Deny),
            "count" => Ok(Action::Count),
            "" => Err(RuleSyntaxError::Ends { what: "an action", allowed: ACTIONS.to_owned() }),
            word => Err(not_an_action(word)),
        }
    }

    fn packets(&mut self) -> Result<(Option<Family>, Vec<Protocol>), RuleSyntaxError> {
        let family = if self.takes("ip") {
            Some(Family::V4)
        } else if self.takes("ip6") {
            Some(Family::V6)
        } else {
            None
        };
        let any =
            |word: &str| Protocol { word: word.to_owned(), is: ProtocolMatch::ANY, has_ports: true, family: None };
        match self.words.peek() {
            Some(&"any") => {
                self.next();
                return Ok((family, vec![any("any")]));
            }
            Some(&("from" | "to" | "type" | "port")) | None if family.is_some() => {
                return Ok((family, vec![any("ip")]));
            }
            None => return Err(RuleSyntaxError::Ends { what: "the packets", allowed: PACKETS.to_owned() }),
            _ => {}
        }
        let mut protocols: Vec<Protocol> = Vec::new();
        self.list("a protocol", PACKETS, |word| {
            let protocol = protocol(word)?;
            // A second rule for the same protocol would match the same packets.
            if !protocols.iter().any(|known| known.is == protocol.is) {
                protocols.push(protocol);
            }
            Ok(())
        })?;
        if let (Some(masked), true) =
            (protocols.iter().find(|protocol| protocol.is.mask() != u8::MAX), protocols.len() > 1)
        {
            return Err(wrong_word(
                &masked.word,
                "protocol of a list",
                [],
                "are names and numbers; value/mask is allowed only alone",
            ));
        }
        Ok((family, protocols))
    }

    /// Parses the ICMP types after the protocol's name.
    fn types(&mut self, protocols: &[Protocol]) -> Result<Option<Types>, RuleSyntaxError> {
        let icmp = match protocols {
            [Protocol { family: Some(family), .. }] => *family,
            _ => return Ok(None),
        };
        let known = names::types(icmp == Family::V6);
        let allowed = || {
            let names = known.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            format!("are numbers from 0 to 255, ranges such as 3-4, and {names}")
        };
        if !self.takes("type") {
            return match self.words.peek() {
                Some(word) if known.iter().any(|(name, _)| name == word) => {
                    Err(wrong_word(word, "continuation of the rule", [], format!("is icmp type {word}")))
                }
                _ => Ok(None),
            };
        }
        let byte = |word: &str| {
            let named = known.iter().find(|(name, _)| *name == word).map(|(_, number)| u16::from(*number));
            named.or_else(|| number(word).filter(|value| *value <= u16::from(u8::MAX)))
        };
        let names = || known.iter().map(|(name, _)| *name);
        let types = self.values("a type of ICMP", &allowed(), byte, names)?;
        let codes = "are numbers from 0 to 255 and ranges such as 0-3";
        let code = |word: &str| number(word).filter(|value| *value <= u16::from(u8::MAX));
        let codes = match self.takes("code") {
            true => Some(self.values("a code of ICMP", codes, code, std::iter::empty)?),
            false => None,
        };
        Ok(Some((types, codes)))
    }

    /// Parses the source or the destination if the next word is `which`.
    fn ends(&mut self, which: &str, sets: &Sets) -> Result<Option<Ends>, RuleSyntaxError> {
        if !self.takes(which) {
            return Ok(None);
        }
        let mut ends = self.prefixes(sets)?;
        if self.takes("port") {
            let allowed = "are numbers from 0 to 65535, ranges such as 1024-65535, and names such as http and domain";
            let port = |word: &str| names::service(word).or_else(|| number(word));
            ends.ports = self.values("a port", allowed, port, names::services)?;
        }
        Ok(Some(ends))
    }

    fn prefixes(&mut self, sets: &Sets) -> Result<Ends, RuleSyntaxError> {
        if self.takes("any") {
            return Ok(Ends::any());
        }
        let mut ends = Ends { members: Members::default(), ports: Vec::new(), written: [None, None] };
        let mut named = BTreeSet::new();
        self.list("an address", PREFIXES, |word| {
            // A short line may repeat a long set many times. The check here bounds memory before the list is complete.
            if ends.members.count() > 4 * MAX_RULES_PER_LINE {
                ends.members.make_disjoint();
                ends.members.check_length(MAX_RULES_PER_LINE)?;
            }
            if let Some(set) = sets.get(word) {
                if named.insert(word) {
                    ends.members.extend(set);
                }
                return Ok(());
            }
            let at = match prefix(word, sets)? {
                (IpAddr::V4(address), length) => {
                    ends.members.v4.push(Prefix::new(address.into(), length));
                    0
                }
                (IpAddr::V6(address), length) => {
                    ends.members.v6.push(Prefix::new(address.into(), length));
                    1
                }
            };
            ends.written[at].get_or_insert_with(|| shown(word));
            Ok(())
        })?;
        ends.members.make_disjoint();
        ends.members.check_length(MAX_RULES_PER_LINE)?;
        Ok(ends)
    }

    /// Parses words with commas between them.
    fn list(
        &mut self,
        what: &'static str,
        allowed: &str,
        mut with: impl FnMut(&'t str) -> Result<(), RuleSyntaxError>,
    ) -> Result<(), RuleSyntaxError> {
        loop {
            match self.next() {
                Some(",") => return Err(wrong_word(",", what, [], allowed)),
                Some(word) => with(word)?,
                None => return Err(RuleSyntaxError::Ends { what, allowed: allowed.to_owned() }),
            }
            if !self.takes(",") {
                return Ok(());
            }
        }
    }

    /// Parses values and ranges with commas between them. Returns them in order, as the smallest number of ranges that
    /// contain exactly these values.
    fn values<'n, N: Iterator<Item = &'n str>>(
        &mut self,
        what: &'static str,
        allowed: &str,
        value: impl Fn(&str) -> Option<u16>,
        names: impl Fn() -> N,
    ) -> Result<Vec<PortRange>, RuleSyntaxError> {
        let mut ranges: Vec<PortRange> = Vec::new();
        self.list(what, allowed, |word| {
            let range = match value(word) {
                Some(value) => Some((value, value)),
                // Names may contain hyphens, too.
                None => {
                    word.match_indices('-').find_map(|(at, _)| Some((value(&word[..at])?, value(&word[at + 1..])?)))
                }
            };
            let (low, high) = range.ok_or_else(|| wrong_word(word, what, names(), allowed))?;
            if low > high {
                return Err(RuleSyntaxError::Backwards(shown(word)));
            }
            ranges.push(PortRange::new(low, high));
            Ok(())
        })?;
        ranges.sort_unstable_by_key(|range| (range.low(), range.high()));
        ranges.dedup_by(|next, kept| {
            let touches = u32::from(next.low()) <= u32::from(kept.high()) + 1;
            if touches {
                *kept = PortRange::new(kept.low(), kept.high().max(next.high()));
            }
            touches
        });
        Ok(ranges)
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
    RuleSyntaxError::Word { word: shown(word), what: "action", near, allowed }
}

fn protocol(word: &str) -> Result<Protocol, RuleSyntaxError> {
    let of = |is, has_ports, family| Ok(Protocol { word: shown(word), is, has_ports, family });
    if let Some((number, has_ports)) = names::protocol(word) {
        let family = match number {
            number if number == u32::ICMP => Some(Family::V4),
            number if number == u128::ICMP => Some(Family::V6),
            _ => None,
        };
        return of(ProtocolMatch::exactly(number), has_ports, family);
    }
    if let Some(number) = number(word).and_then(|number| u8::try_from(number).ok()) {
        // A port of ICMP would be taken for a type or a code.
        let has_ports = ![u32::ICMP, u128::ICMP].contains(&number);
        return of(ProtocolMatch::exactly(number), has_ports, None);
    }
    if let Some((value, mask)) = number_pair(word)
        && let (Ok(value), Ok(mask)) = (u8::try_from(value), u8::try_from(mask))
    {
        return of(ProtocolMatch::new(value, mask), true, None);
    }
    let near = match word {
        "ipv4" | "ip4" | "inet" => " (did you mean 'ip'?)".to_owned(),
        "ipv6" | "inet6" => " (did you mean 'ip6'?)".to_owned(),
        "icmpv6" | "ipv6-icmp" => " (did you mean 'icmp6'?)".to_owned(),
        "all" | "from" | "to" => " (did you mean 'any'?)".to_owned(),
        word => nearest(word, names::protocols().chain(["any", "ip", "ip6"])),
    };
    Err(RuleSyntaxError::Word { word: shown(word), what: "protocol", near, allowed: PACKETS.to_owned() })
}

/// Parses an address, or a prefix whose bits past its length are 0.
fn prefix(word: &str, sets: &Sets) -> Result<(IpAddr, u8), RuleSyntaxError> {
    let (address, length) = word.split_once('/').map_or((word, None), |(address, length)| (address, Some(length)));
    let Ok(address) = address.parse::<IpAddr>() else {
        let names = sets.names().chain(["any"]);
        return Err(wrong_word(word, "address, prefix or set", names, PREFIXES));
    };
    let most = if address.is_ipv4() { 32 } else { 128 };
    let Some(text) = length else { return Ok((address, most)) };
    let length = text.parse::<u8>().ok().filter(|length| *length <= most && !text.starts_with('+'));
    let Some(length) = length else {
        return Err(RuleSyntaxError::Length { prefix: shown(word), length: shown(text), most });
    };
    let (whole, network) = match address {
        IpAddr::V4(it) => {
            let prefix = Prefix::<u32>::new(it.into(), length);
            (prefix.first() == u32::from(it), prefix.to_string())
        }
        IpAddr::V6(it) => {
            let prefix = Prefix::<u128>::new(it.into(), length);
            (prefix.first() == u128::from(it), prefix.to_string())
        }
    };
    // Some programs read such a length as an octal number.
    if text.len() > 1 && text.starts_with('0') {
        return Err(RuleSyntaxError::LeadingZero { prefix: shown(word), length: shown(text), meant: network });
    }
    if whole {
        Ok((address, length))
    } else {
        Err(RuleSyntaxError::Bits { prefix: shown(word), meant: network, host: address.to_string() })
    }
}

#[cfg(test)]
mod tests;
