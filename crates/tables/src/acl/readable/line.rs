//! The words of a line with a readable rule, and the values that they stand for.

use std::collections::BTreeSet;
use std::net::IpAddr;

use forebay_graph::{nearest, short};

use super::errors::RuleSyntaxError;
use super::sets::{Members, Sets};
use super::{ACTIONS, Ends, Family, MAX_RULES_PER_LINE, PACKETS, PREFIXES, Protocol, Types};
use super::{names, not_an_action, wrong_word};
use crate::acl::classbench::{number, number_pair};
use crate::acl::rule::{Action, PortRange, ProtocolMatch, RuleAddress, RulePrefix};

/// The words of a line. A comma is a word of its own.
pub(super) struct Line<'t> {
    words: std::iter::Peekable<std::vec::IntoIter<&'t str>>,
}

impl<'t> Line<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let words = text.split_whitespace().flat_map(|word| word.split_inclusive(',')).flat_map(|word| {
            match word.strip_suffix(',') {
                Some("") => [Some(","), None],
                Some(before) => [Some(before), Some(",")],
                None => [Some(word), None],
            }
        });
        Self { words: words.flatten().collect::<Vec<_>>().into_iter().peekable() }
    }

    pub(super) fn next(&mut self) -> Option<&'t str> {
        self.words.next()
    }

    /// Consumes the next word if it is `wanted`.
    pub(super) fn takes(&mut self, wanted: &str) -> bool {
        self.words.next_if(|word| *word == wanted).is_some()
    }

    pub(super) fn action(&mut self) -> Result<Action, RuleSyntaxError> {
        let word = self.next().unwrap_or_default();
        match word {
            "permit" => Ok(Action::Permit),
            "deny" | "drop" => Ok(Action::Deny),
            "count" => Ok(Action::Count),
            "" => Err(RuleSyntaxError::Ends { what: "an action", allowed: ACTIONS.to_owned() }),
            word => Err(not_an_action(word)),
        }
    }

    /// Parses the address family, if there is one, and the protocols. Without a protocol, all protocols match.
    pub(super) fn packets(&mut self) -> Result<(Option<Family>, Vec<Protocol>), RuleSyntaxError> {
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

    /// Parses the ICMP types and codes after the protocol's name. Returns `None` if there are none, or if the rule is
    /// not for exactly one of the protocols `icmp` and `icmp6`.
    pub(super) fn types(&mut self, protocols: &[Protocol]) -> Result<Option<Types>, RuleSyntaxError> {
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
    pub(super) fn ends(&mut self, which: &str, sets: &Sets) -> Result<Option<Ends>, RuleSyntaxError> {
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

    /// Parses `any`, or prefixes and names of sets with commas between them. The result has no ports, and no address is
    /// in two of its prefixes.
    pub(super) fn prefixes(&mut self, sets: &Sets) -> Result<Ends, RuleSyntaxError> {
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
                    ends.members.v4.push(RulePrefix::new(address.into(), length));
                    0
                }
                (IpAddr::V6(address), length) => {
                    ends.members.v6.push(RulePrefix::new(address.into(), length));
                    1
                }
            };
            ends.written[at].get_or_insert_with(|| short(word));
            Ok(())
        })?;
        ends.members.make_disjoint();
        ends.members.check_length(MAX_RULES_PER_LINE)?;
        Ok(ends)
    }

    /// Parses words with commas between them, at least one, and calls `with` with each word.
    pub(super) fn list(
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

    /// Parses values and ranges with commas between them. Returns the fewest ranges that contain exactly these values,
    /// in order. `value` parses a value. `names` returns the names among which an error suggests a similar one.
    pub(super) fn values<'n, N: Iterator<Item = &'n str>>(
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
                // Names may contain hyphens, too. So each hyphen is tried as the sign between the first and the last
                // value.
                None => {
                    word.match_indices('-').find_map(|(at, _)| Some((value(&word[..at])?, value(&word[at + 1..])?)))
                }
            };
            let (low, high) = range.ok_or_else(|| wrong_word(word, what, names(), allowed))?;
            if low > high {
                return Err(RuleSyntaxError::Backwards(short(word)));
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

/// Parses the name of a protocol, its number, or a value and a mask.
fn protocol(word: &str) -> Result<Protocol, RuleSyntaxError> {
    let of = |is, has_ports, family| Ok(Protocol { word: short(word), is, has_ports, family });
    if let Some((number, has_ports)) = names::protocol(word) {
        let family = match number {
            number if number == u32::ICMP => Some(Family::V4),
            number if number == u128::ICMP => Some(Family::V6),
            _ => None,
        };
        return of(ProtocolMatch::exactly(number), has_ports, family);
    }
    if let Some(number) = number(word).and_then(|number| u8::try_from(number).ok()) {
        // The classifier would treat a port of ICMP as a type or a code.
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
    Err(RuleSyntaxError::Word { word: short(word), what: "protocol", near, allowed: PACKETS.to_owned() })
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
        return Err(RuleSyntaxError::Length { prefix: short(word), length: short(text), most });
    };
    let (whole, network) = match address {
        IpAddr::V4(it) => {
            let prefix = RulePrefix::<u32>::new(it.into(), length);
            (prefix.first() == u32::from(it), prefix.to_string())
        }
        IpAddr::V6(it) => {
            let prefix = RulePrefix::<u128>::new(it.into(), length);
            (prefix.first() == u128::from(it), prefix.to_string())
        }
    };
    // Some programs read such a length as an octal number.
    if text.len() > 1 && text.starts_with('0') {
        return Err(RuleSyntaxError::LeadingZero { prefix: short(word), length: short(text), meant: network });
    }
    if whole {
        Ok((address, length))
    } else {
        Err(RuleSyntaxError::Bits { prefix: short(word), meant: network, host: address.to_string() })
    }
}
