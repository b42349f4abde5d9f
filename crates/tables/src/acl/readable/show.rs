//! Writes a rule in the readable form. Every rule has such a form, and it reads back as exactly that rule.

use std::fmt;

use super::super::rule::{PortRange, ProtocolMatch, Rule, RuleAddress, RulePrefix};
use super::names;

/// Displays a rule in the readable form.
pub struct Readable<'r, A>(pub &'r Rule<A>);

/// Displays a range of numbers as one word.
struct Range(PortRange);

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.low(), self.0.high()) {
            (low, high) if low == high => write!(f, "{low}"),
            (low, high) => write!(f, "{low}-{high}"),
        }
    }
}

impl<A: RuleAddress> Readable<'_, A> {
    /// Returns the ICMP types and codes of the rule, if the words `type` and `code` can express them.
    fn icmp(&self) -> Option<(PortRange, PortRange)> {
        let byte = |range: PortRange| range.high() <= u16::from(u8::MAX);
        let Rule { sport, dport, .. } = *self.0;
        (self.0.constrains_icmp() && byte(sport) && (dport.is_any() || byte(dport))).then_some((sport, dport))
    }

    /// Writes the source or the destination: `word`, the prefix, and the ports if the rule constrains them here.
    fn end(&self, f: &mut fmt::Formatter<'_>, word: &str, prefix: RulePrefix<A>, ports: PortRange) -> fmt::Result {
        match prefix.length() {
            0 => write!(f, " {word} any")?,
            length if length == A::BITS => write!(f, " {word} {}", prefix.first().text())?,
            _ => write!(f, " {word} {prefix}")?,
        }
        if ports.is_any() || self.icmp().is_some() { Ok(()) } else { write!(f, " port {}", Range(ports)) }
    }
}

impl<A: RuleAddress> fmt::Display for Readable<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rule { src, dst, sport, dport, protocol, action } = *self.0;
        write!(f, "{action}")?;
        let is_v6 = A::ICMP == u128::ICMP;
        let family = if is_v6 { "ip6" } else { "ip" };
        let icmp = self.icmp();
        // Ports are not allowed after the name or number of ICMP. So if `type` and `code` cannot express the rule's
        // port fields, the protocol is written with a mask.
        let needs_mask =
            |number: &u8| [u32::ICMP, u128::ICMP].contains(number) && self.0.constrains_ports() && icmp.is_none();
        let exact = (protocol.mask() == u8::MAX).then_some(protocol.value()).filter(|number| !needs_mask(number));
        // The name of a protocol without ports cannot be followed by ports.
        let name = exact
            .and_then(names::protocol_name::<A>)
            .filter(|(_, has_ports)| *has_ports || icmp.is_some() || !self.0.constrains_ports());
        // An address or the name of ICMP determines the family. Without these, the word `ip` or `ip6` is written.
        let has_family = src.length() > 0 || dst.length() > 0 || (name.is_some() && exact == Some(A::ICMP));
        match (protocol == ProtocolMatch::ANY, name, exact) {
            (true, ..) => write!(f, " {family}")?,
            (_, Some((name, _)), _) if has_family => write!(f, " {name}")?,
            (_, Some((name, _)), _) => write!(f, " {family} {name}")?,
            (_, None, Some(number)) if has_family => write!(f, " {number}")?,
            (_, None, Some(number)) => write!(f, " {family} {number}")?,
            (_, None, None) if has_family => write!(f, " {protocol}")?,
            (_, None, None) => write!(f, " {family} {protocol}")?,
        }
        if let Some((types, codes)) = icmp {
            let name = |number: u16| names::types(is_v6).iter().find(|(_, known)| u16::from(*known) == number);
            match name(types.low()).filter(|_| types.low() == types.high()) {
                Some((name, _)) => write!(f, " type {name}")?,
                None => write!(f, " type {}", Range(types))?,
            }
            if !codes.is_any() {
                write!(f, " code {}", Range(codes))?;
            }
        }
        self.end(f, "from", src, sport)?;
        self.end(f, "to", dst, dport)
    }
}
