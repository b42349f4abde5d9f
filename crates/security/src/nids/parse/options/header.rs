//! Options about headers: comparisons with numbers, and TCP's control bits.

use forebay_graph::short;

use super::{Building, MAX_OFFSET, number};
use crate::nids::rule::{BitMatch, Field, NumberRange, Protocol, Test};

/// The notation of a range in an option.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RangeForm {
    /// `A<>B` excludes A and B, as in Snort 2 (`itype`, `icode`) and Snort 3. `A<=>B` includes them.
    Between,
    /// `A<>B` includes A and B: `dsize`, according to the manual of Snort 2 (section 3.6.7).
    Inclusive,
    /// Like [`Between`](Self::Between). Also `A-B`, `A-` and `-B`, which include A and B: `ttl` (Snort 2, section
    /// 3.6.2).
    Dashed,
    /// Ranges are not allowed: `ip_proto`.
    None,
}

/// Parses a comparison with numbers from 0 to `most`: `5`, `=5`, `<5`, `>=5`, `!5`, `3<>5`, `3<=>5`. Fails if no
/// number passes the test, or if the range behind a negation contains no number.
pub(super) fn span(name: &str, text: &str, most: u32, form: RangeForm) -> Result<NumberRange, String> {
    let allowed = match form {
        RangeForm::Between | RangeForm::Inclusive => "<5, >5, <=5, >=5, !5, 3<>5 and 3<=>5",
        RangeForm::Dashed => "<5, >5, <=5, >=5, !5, 3<>5, 3<=>5 and 3-5",
        RangeForm::None => "<5, >5, <=5, >=5 and !5",
    };
    let one = |text: &str| {
        number::<u32>(name, text.trim_ascii(), most.into())
            .map_err(|_| format!("{name} '{}': allowed are numbers from 0 to {most}, {allowed}", short(text)))
    };
    let empty_range = || format!("{name} '{}': no number passes this test", short(text));
    let above = |text: &str| one(text)?.checked_add(1).filter(|first| *first <= most).ok_or_else(empty_range);
    let below = |text: &str| one(text)?.checked_sub(1).ok_or_else(empty_range);
    let (not, text) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest.trim_ascii_start()));
    let ranges = form != RangeForm::None;
    let dashed = text.split_once('-').filter(|_| form == RangeForm::Dashed);
    let (first, last) = if let Some((first, last)) = text.split_once("<=>").filter(|_| ranges) {
        (one(first)?, one(last)?)
    } else if let Some((first, last)) = text.split_once("<>").filter(|_| ranges) {
        if form == RangeForm::Inclusive { (one(first)?, one(last)?) } else { (above(first)?, below(last)?) }
    } else if let Some(least) = text.strip_prefix(">=") {
        (one(least)?, most)
    } else if let Some(greatest) = text.strip_prefix("<=") {
        (0, one(greatest)?)
    } else if let Some(least) = text.strip_prefix('>') {
        (above(least)?, most)
    } else if let Some(greatest) = text.strip_prefix('<') {
        (0, below(greatest)?)
    } else if let Some((first, last)) = dashed {
        (if first.is_empty() { 0 } else { one(first)? }, if last.is_empty() { most } else { one(last)? })
    } else {
        let only = one(text.strip_prefix('=').unwrap_or(text))?;
        (only, only)
    };
    if last < first || (not && (first, last) == (0, most)) {
        return Err(empty_range());
    }
    Ok(NumberRange { first, last, not })
}

/// The protocol names that `ip_proto` accepts.
const PROTOCOLS: [(&str, u8); 12] = [
    ("ip", 0),
    ("icmp", 1),
    ("igmp", 2),
    ("tcp", 6),
    ("udp", 17),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmp6", 58),
    ("ipv6-icmp", 58),
    ("pim", 103),
    ("sctp", 132),
];

/// IPv4 header options by name, with their numbers (RFC 791 section 3.1, RFC 1108, RFC 1191).
const IP_OPTIONS: [(&str, Option<u8>); 10] = [
    ("any", None),
    ("eol", Some(0)),
    ("nop", Some(1)),
    ("rr", Some(7)),
    ("ts", Some(68)),
    ("sec", Some(130)),
    ("lsrr", Some(131)),
    ("esec", Some(133)),
    ("satid", Some(136)),
    ("ssrr", Some(137)),
];

impl Building<'_> {
    /// Parses an option that compares a number in a header.
    pub(super) fn comparison(&mut self, name: &str, value: &str) -> Result<(), String> {
        let field = match name {
            "dsize" => {
                let span = span(name, value, MAX_OFFSET, RangeForm::Inclusive)?;
                self.rule.tests.push(Test::Size(span));
                return Ok(());
            }
            "ttl" => {
                let span = span(name, value, 255, RangeForm::Dashed)?;
                self.rule.tests.push(Test::Ttl(span));
                return Ok(());
            }
            "ip_proto" => return self.ip_protocol(value),
            "itype" | "icode" => {
                self.require_protocol(name, Protocol::Icmp)?;
                let span = span(name, value, 255, RangeForm::Between)?;
                self.rule.tests.push(if name == "itype" { Test::IcmpType(span) } else { Test::IcmpCode(span) });
                return Ok(());
            }
            "tos" => Field::Tos,
            "id" => Field::Id,
            "fragoffset" => Field::FragmentOffset,
            "seq" => Field::Sequence,
            "ack" => Field::Acknowledgement,
            "window" => Field::Window,
            "icmp_id" => Field::IcmpId,
            _ => Field::IcmpSequence,
        };
        let most = match field {
            Field::Tos => 255,
            Field::FragmentOffset => 8_191,
            Field::Sequence | Field::Acknowledgement => u32::MAX,
            _ => 65_535,
        };
        match field {
            Field::Sequence | Field::Acknowledgement | Field::Window => self.require_protocol(name, Protocol::Tcp)?,
            Field::IcmpId | Field::IcmpSequence => self.require_protocol(name, Protocol::Icmp)?,
            Field::Tos | Field::Id | Field::FragmentOffset => {}
        }
        let span = span(name, value, most, RangeForm::Between)?;
        self.rule.tests.push(Test::Field(field, span));
        Ok(())
    }

    /// Fails if the rule is not for `protocol`, which is TCP or ICMP. `name` is the option's name, for the error.
    fn require_protocol(&self, name: &str, protocol: Protocol) -> Result<(), String> {
        if self.rule.protocol == protocol {
            return Ok(());
        }
        let word = if protocol == Protocol::Tcp { "tcp" } else { "icmp" };
        Err(format!("'{name}' is allowed only in rules for {word}"))
    }

    /// Parses an option `ip_proto` and adds its test to the rule.
    fn ip_protocol(&mut self, value: &str) -> Result<(), String> {
        let (sign, word) = value.split_at(value.len() - value.trim_start_matches(['!', '<', '>', '=', ' ']).len());
        let word = word.trim_ascii();
        let named = PROTOCOLS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
        let text = named.map_or_else(|| value.to_owned(), |(_, number)| format!("{}{number}", sign.trim_ascii()));
        let span = span("ip_proto", &text, 255, RangeForm::None)?;
        self.rule.tests.push(Test::IpProtocol(span));
        Ok(())
    }

    /// Parses an option `fragbits` and adds its test to the rule.
    pub(super) fn fragment_bits(&mut self, value: &str) -> Result<(), String> {
        let wrong = || format!("fragbits '{}': allowed are M, D and R, with one of !, * and +", short(value));
        let letters = value.trim_matches(['!', '*', '+', ' ']);
        let signs: String = value.chars().filter(|letter| ['!', '*', '+'].contains(letter)).collect();
        let how = match signs.as_str() {
            "" => BitMatch::Exactly,
            "+" => BitMatch::All,
            "*" => BitMatch::Any,
            "!" => BitMatch::None,
            _ => return Err(wrong()),
        };
        // RFC 791 section 3.1: reserved, don't fragment, more fragments.
        let bits = letters.chars().try_fold(0u8, |bits, letter| match letter.to_ascii_uppercase() {
            'R' => Some(bits | 4),
            'D' => Some(bits | 2),
            'M' => Some(bits | 1),
            _ => None,
        });
        let bits = bits.filter(|bits| *bits != 0).ok_or_else(wrong)?;
        self.rule.tests.push(Test::FragmentBits { how, bits });
        Ok(())
    }

    /// Parses an option `ipopts` and adds its test to the rule.
    pub(super) fn ip_options(&mut self, value: &str) -> Result<(), String> {
        let known = IP_OPTIONS.iter().find(|(name, _)| name.eq_ignore_ascii_case(value));
        let (_, number) = known.ok_or_else(|| {
            let names = IP_OPTIONS.map(|(name, _)| name).join(", ");
            format!("ipopts '{}': allowed are {names}", short(value))
        })?;
        self.rule.tests.push(Test::IpOption(*number));
        Ok(())
    }

    /// Parses an option `flags` and adds its test to the rule.
    pub(super) fn flags(&mut self, value: &str) -> Result<(), String> {
        if self.rule.protocol != Protocol::Tcp {
            return Err("'flags' is allowed only in rules for tcp".to_owned());
        }
        let read = |text: &str| {
            text.chars().try_fold(0u8, |bits, letter| {
                Ok(bits
                    | match letter.to_ascii_uppercase() {
                        'F' => 1,
                        'S' => 2,
                        'R' => 4,
                        'P' => 8,
                        'A' => 16,
                        'U' => 32,
                        'E' | '2' => 64,
                        'C' | '1' => 128,
                        '0' => 0,
                        _ => {
                            return Err(format!(
                                "flags '{}': allowed are F, S, R, P, A, U, E, C and 0, with !, * or + and a mask \
                             after a comma",
                                short(value)
                            ));
                        }
                    })
            })
        };
        let (bits, mask) = value.split_once(',').map_or((value, ""), |(bits, mask)| (bits, mask.trim_ascii()));
        let letters = bits.trim_ascii().trim_matches(['!', '*', '+']);
        let signs: String = bits.chars().filter(|letter| ['!', '*', '+'].contains(letter)).collect();
        let how = match signs.as_str() {
            "" => BitMatch::Exactly,
            "+" => BitMatch::All,
            "*" => BitMatch::Any,
            "!" => BitMatch::None,
            _ => return Err(format!("flags '{}': allowed is one of !, * and +", short(value))),
        };
        if letters.is_empty() {
            return Err(format!("flags '{}': write at least one of F, S, R, P, A, U, E, C and 0", short(value)));
        }
        self.rule.tests.push(Test::Flags { how, bits: read(letters)?, mask: !read(mask)? });
        Ok(())
    }
}
