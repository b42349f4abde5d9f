//! A rule as a person writes it. Every rule has such a form, and it reads back as that rule and no other.

use std::fmt;

use super::super::rule::{Address, PortRange, Prefix, ProtocolMatch, Rule};
use super::names;

/// Shows a rule as a person writes it.
pub struct Readable<'r, A>(pub &'r Rule<A>);

/// Numbers from first to last, as one word.
struct Range(PortRange);

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.low(), self.0.high()) {
            (low, high) if low == high => write!(f, "{low}"),
            (low, high) => write!(f, "{low}-{high}"),
        }
    }
}

impl<A: Address> Readable<'_, A> {
    /// Returns the ICMP types and codes of the rule, where the words `type` and `code` can say it.
    fn icmp(&self) -> Option<(PortRange, PortRange)> {
        let byte = |range: PortRange| range.high() <= u16::from(u8::MAX);
        let Rule { sport, dport, .. } = *self.0;
        (self.0.constrains_icmp() && byte(sport) && (dport.is_any() || byte(dport))).then_some((sport, dport))
    }

    fn end(&self, f: &mut fmt::Formatter<'_>, word: &str, prefix: Prefix<A>, ports: PortRange) -> fmt::Result {
        match prefix.length() {
            0 => write!(f, " {word} any")?,
            length if length == A::BITS => write!(f, " {word} {}", prefix.first().text())?,
            _ => write!(f, " {word} {prefix}")?,
        }
        if ports.is_any() || self.icmp().is_some() { Ok(()) } else { write!(f, " port {}", Range(ports)) }
    }
}

impl<A: Address> fmt::Display for Readable<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rule { src, dst, sport, dport, protocol, action } = *self.0;
        write!(f, "{action}")?;
        let is_v6 = A::ICMP == u128::ICMP;
        let family = if is_v6 { "ip6" } else { "ip" };
        let icmp = self.icmp();
        // ICMP by name or number takes no ports: where types are out of range, ClassBench's form of it has them.
        let unsaid =
            |number: &u8| [u32::ICMP, u128::ICMP].contains(number) && self.0.constrains_ports() && icmp.is_none();
        let exact = (protocol.mask() == u8::MAX).then_some(protocol.value()).filter(|number| !unsaid(number));
        // A name whose packets show no ports is not written beside ports.
        let name = exact
            .and_then(names::protocol_name::<A>)
            .filter(|(_, has_ports)| *has_ports || icmp.is_some() || !self.0.constrains_ports());
        // The addresses say which family it is, and so does the name of its ICMP.
        let said = src.length() > 0 || dst.length() > 0 || (name.is_some() && exact == Some(A::ICMP));
        match (protocol == ProtocolMatch::ANY, name, exact) {
            (true, ..) => write!(f, " {family}")?,
            (_, Some((name, _)), _) if said => write!(f, " {name}")?,
            (_, Some((name, _)), _) => write!(f, " {family} {name}")?,
            (_, None, Some(number)) if said => write!(f, " {number}")?,
            (_, None, Some(number)) => write!(f, " {family} {number}")?,
            (_, None, None) if said => write!(f, " {protocol}")?,
            (_, None, None) => write!(f, " {family} {protocol}")?,
        }
        if let Some((types, codes)) = icmp {
            let name = |kind: u16| names::types(is_v6).iter().find(|(_, known)| u16::from(*known) == kind);
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
