//! A second matcher for the tests. It follows the definition of rules literally, one rule and one packet at a time.
//!
//! Headers are parsed by another library, expressions are searched by another library, and contents are tried at every
//! position.

use etherparse::{LaxNetSlice, LaxSlicedPacket, TransportSlice};

use super::rule::{
    Amount, Base, BitMatch, Content, ContentRange, Field, Link, Number, NumberForm, Operator, Protocol, Rule, Test,
};

/// A packet as another library parses it.
pub struct ParsedPacket {
    pub v6: bool,
    pub source: u128,
    pub destination: u128,
    pub ports: Option<(u16, u16)>,
    pub protocol: u8,
    pub ttl: u8,
    pub flags: Option<u8>,
    pub icmp: Option<(u8, u8)>,
    pub payload: Vec<u8>,
    /// Other numbers of headers.
    pub fields: Vec<(Field, u32)>,
    /// The reserved, don't fragment and more fragments bits.
    pub fragment_bits: Option<u8>,
    /// The types of the IPv4 header's options.
    pub ip_options: Vec<u8>,
}

/// Parses a frame. Returns `None` if it is not IP.
pub fn read(frame: &[u8]) -> Option<ParsedPacket> {
    let sliced = LaxSlicedPacket::from_ethernet(frame).ok()?;
    let number = |bytes: &[u8]| bytes.iter().fold(0u128, |sum, byte| sum << 8 | u128::from(*byte));
    let (v6, source, destination, ttl, above) = match sliced.net.as_ref()? {
        LaxNetSlice::Ipv4(ip) => {
            let header = ip.header();
            (false, number(&header.source()), number(&header.destination()), header.ttl(), ip.payload())
        }
        LaxNetSlice::Ipv6(ip) => {
            let header = ip.header();
            (true, number(&header.source()), number(&header.destination()), header.hop_limit(), ip.payload())
        }
        LaxNetSlice::Arp(_) => return None,
    };
    let mut plain = ParsedPacket {
        v6,
        source,
        destination,
        ports: None,
        protocol: above.ip_number.0,
        ttl,
        flags: None,
        icmp: None,
        payload: above.payload.to_vec(),
        fields: Vec::new(),
        fragment_bits: None,
        ip_options: Vec::new(),
    };
    match sliced.net.as_ref() {
        Some(LaxNetSlice::Ipv4(ip)) => {
            let header = ip.header();
            plain.fields = vec![
                (Field::Tos, header.dcp().value() as u32 * 4 + header.ecn().value() as u32),
                (Field::Id, header.identification().into()),
                (Field::FragmentOffset, header.fragments_offset().value().into()),
            ];
            let bits = header.slice()[6] >> 5;
            plain.fragment_bits = Some(bits);
            let mut options = header.options();
            while let Some(option) = options.first() {
                plain.ip_options.push(*option);
                let length = if *option < 2 { 1 } else { options.get(1).map_or(0, |length| usize::from(*length)) };
                if *option == 0 || *option > 1 && length < 2 {
                    break;
                }
                options = options.get(length..).unwrap_or_default();
            }
        }
        Some(LaxNetSlice::Ipv6(ip)) => plain.fields.push((Field::Tos, ip.header().traffic_class().into())),
        _ => {}
    }
    match sliced.transport {
        Some(TransportSlice::Tcp(tcp)) => {
            plain.ports = Some((tcp.source_port(), tcp.destination_port()));
            plain.flags = tcp.slice().get(13).copied();
            plain.fields.extend([
                (Field::Sequence, tcp.sequence_number()),
                (Field::Acknowledgement, tcp.acknowledgment_number()),
                (Field::Window, tcp.window_size().into()),
            ]);
            plain.payload = tcp.payload().to_vec();
        }
        Some(TransportSlice::Udp(udp)) => {
            plain.ports = Some((udp.source_port(), udp.destination_port()));
            plain.payload = above.payload.get(8..).unwrap_or_default().to_vec();
        }
        Some(TransportSlice::Icmpv4(_) | TransportSlice::Icmpv6(_)) => {
            plain.icmp = above.payload.first().copied().zip(above.payload.get(1).copied());
            if let ([message_type, _, _, _, a, b, c, d, ..], v6) = (above.payload, plain.v6)
                && (if v6 { [128, 129] } else { [0, 8] }).contains(message_type)
            {
                plain.fields.push((Field::IcmpId, u16::from_be_bytes([*a, *b]).into()));
                plain.fields.push((Field::IcmpSequence, u16::from_be_bytes([*c, *d]).into()));
            }
            plain.payload = above.payload.get(8..).unwrap_or_default().to_vec();
        }
        None => {}
    }
    Some(plain)
}

/// Returns true if a rule matches a packet, without regard to its limits.
pub fn matches(rule: &Rule, packet: &ParsedPacket) -> bool {
    let protocol = match rule.protocol {
        Protocol::Tcp => packet.protocol == 6,
        Protocol::Udp => packet.protocol == 17,
        Protocol::Icmp => packet.protocol == 1 || packet.protocol == 58,
        Protocol::Ip => true,
    };
    let forth = direction_matches(rule, packet, (packet.source, packet.destination), packet.ports);
    let back = direction_matches(
        rule,
        packet,
        (packet.destination, packet.source),
        packet.ports.map(|(one, other)| (other, one)),
    );
    protocol
        && (forth || rule.both && back)
        && rule.tests.iter().all(|wanted| test(wanted, packet))
        && match rule.chain.is_empty() {
            false => chain(rule, 0, 0, [0, 0], &packet.payload),
            true => {
                contents(rule, 0, 0, &packet.payload)
                    && rule.pcres.iter().all(|pcre| ends(pcre.regex.text(), &packet.payload).is_empty() == pcre.not)
            }
        }
}

fn direction_matches(rule: &Rule, packet: &ParsedPacket, addresses: (u128, u128), ports: Option<(u16, u16)>) -> bool {
    let within = |ranges: &super::ranges::Ranges, number: u128| {
        ranges.ranges().iter().any(|(first, last)| (*first..=*last).contains(&number))
    };
    let [from, to] = match packet.v6 {
        true => [&rule.source.v6, &rule.destination.v6],
        false => [&rule.source.v4, &rule.destination.v4],
    };
    let ports = match ports {
        Some((from, to)) => within(&rule.source_ports, from.into()) && within(&rule.destination_ports, to.into()),
        None => [&rule.source_ports, &rule.destination_ports].iter().all(|ports| ports.ranges() == [(0, 65_535)]),
    };
    within(from, addresses.0) && within(to, addresses.1) && ports
}

fn test(condition: &Test, packet: &ParsedPacket) -> bool {
    let span = |span: &super::rule::NumberRange, number: u32| {
        let within = span.first <= number && number <= span.last;
        if span.not { !within } else { within }
    };
    match condition {
        Test::Size(wanted) => span(wanted, packet.payload.len() as u32),
        Test::Ttl(wanted) => span(wanted, packet.ttl.into()),
        Test::IpProtocol(wanted) => span(wanted, packet.protocol.into()),
        Test::IcmpType(wanted) => packet.icmp.is_some_and(|(number, _)| span(wanted, number.into())),
        Test::IcmpCode(wanted) => packet.icmp.is_some_and(|(_, code)| span(wanted, code.into())),
        Test::SameAddress => packet.source == packet.destination,
        Test::Flags { how, bits, mask } => packet.flags.is_some_and(|flags| bits_hold(*how, flags, *bits, *mask)),
        Test::FlagsOfTcp { how, bits, mask } => match packet.flags {
            Some(flags) => bits_hold(*how, flags, *bits, *mask),
            None => packet.protocol != 6,
        },
        Test::Field(field, wanted) => {
            packet.fields.iter().find(|(name, _)| name == field).is_some_and(|(_, number)| span(wanted, *number))
        }
        Test::FragmentBits { how, bits } => packet.fragment_bits.is_some_and(|is| bits_hold(*how, is, *bits, 7)),
        Test::IpOption(None) => !packet.ip_options.is_empty(),
        Test::IpOption(Some(number)) => packet.ip_options.contains(number),
    }
}

fn bits_hold(how: BitMatch, is: u8, bits: u8, mask: u8) -> bool {
    let mut each = (0..8).filter(|bit| mask >> bit & 1 == 1).map(|bit| (is >> bit & 1, bits >> bit & 1));
    match how {
        BitMatch::Exactly => each.all(|(is, wanted)| is == wanted),
        BitMatch::All => each.all(|(is, wanted)| wanted == 0 || is == 1),
        BitMatch::Any => each.any(|(is, wanted)| wanted == 1 && is == 1),
        BitMatch::None => each.all(|(is, wanted)| wanted == 0 || is == 0),
    }
}

/// Returns true if the contents from index `at` on match, where the previous one has ended at `cursor`. Tries every
/// position.
fn contents(rule: &Rule, at: usize, cursor: usize, payload: &[u8]) -> bool {
    let Some(content) = rule.contents.get(at) else { return true };
    let mut starts = starts(content, cursor, [0, 0], payload).into_iter();
    match content.not {
        true => starts.next().is_none() && contents(rule, at + 1, cursor, payload),
        false => starts.any(|start| contents(rule, at + 1, start + content.bytes.len(), payload)),
    }
}

/// Returns every position of a content.
fn starts(content: &Content, cursor: usize, variables: [u32; 2], payload: &[u8]) -> Vec<usize> {
    let length = content.bytes.len();
    let by = |which: Option<u8>, otherwise: i64| which.map_or(otherwise, |which| variables[which as usize].into());
    let (first, end) = match content.place {
        ContentRange::Absolute { offset, depth } => {
            let first = by(content.by.0, offset.into());
            (first, depth.map_or(i64::MAX, |depth| first + by(content.by.1, depth.into())))
        }
        ContentRange::Relative { distance, within } => {
            let first = cursor as i64 + by(content.by.0, distance.into());
            (first, within.map_or(i64::MAX, |within| first + by(content.by.1, within.into())))
        }
    };
    let is = |start: &usize| {
        let part = &payload[*start..*start + length];
        let same = if content.nocase { part.eq_ignore_ascii_case(&content.bytes) } else { part == content.bytes };
        let ends = !content.end || start + length == payload.len();
        same && ends && *start as i64 >= first && (start + length) as i64 <= end
    };
    (0..(payload.len() + 1).saturating_sub(length)).filter(is).collect()
}

/// Returns true if the options from index `at` on match. Tries every way.
fn chain(rule: &Rule, at: usize, cursor: usize, variables: [u32; 2], payload: &[u8]) -> bool {
    let Some(step) = rule.chain.get(at) else { return true };
    let next = |cursor: usize| chain(rule, at + 1, cursor, variables, payload);
    let amount = |amount: &Amount| match amount {
        Amount::Fixed(number) => *number,
        Amount::Variable(which) => variables[*which as usize].into(),
    };
    let number = |number: &Number| {
        let start = amount(&number.offset) + if number.relative { cursor as i64 } else { 0 };
        value(number, payload.get(usize::try_from(start).ok()?..).filter(|rest| !rest.is_empty())?)
            .map(|(value, length)| (value, start as usize + length))
    };
    match &step.link {
        Link::Content(index) => {
            let content = &rule.contents[*index];
            let mut starts = starts(content, cursor, variables, payload).into_iter();
            match content.not {
                true => starts.next().is_none() && next(cursor),
                false => starts.any(|start| next(start + content.bytes.len())),
            }
        }
        Link::Pcre(index) => {
            let pcre = &rule.pcres[*index];
            let from = if pcre.regex.is_relative() { cursor } else { 0 };
            let ends = ends(pcre.regex.text(), &payload[from..]);
            match pcre.not {
                true => ends.is_empty() && next(cursor),
                false => ends.into_iter().any(|end| next(from + end)),
            }
        }
        Link::DataAt { not, relative, at } => {
            let position = amount(at) + if *relative { cursor as i64 } else { 0 };
            let present = usize::try_from(position).is_ok_and(|position| payload.get(position).is_some());
            present != *not && next(cursor)
        }
        Link::Test { number: source, not, operator, value } => {
            let Some((number, _)) = number(source) else { return false };
            let wanted = amount(value) as u32;
            let holds = match operator {
                Operator::Less => number < wanted,
                Operator::More => number > wanted,
                Operator::Equal => number == wanted,
                Operator::AtMost => number <= wanted,
                Operator::AtLeast => number >= wanted,
                Operator::And => number & wanted > 0,
                Operator::Xor => number != wanted,
            };
            holds != *not && next(cursor)
        }
        Link::Jump(jump) => {
            let Some((number, end)) = number(&jump.number) else { return false };
            let mut far = i64::from(number.wrapping_mul(jump.multiplier));
            while jump.align && far % 4 > 0 {
                far += 1;
            }
            let to = amount(&jump.post)
                + match jump.base {
                    Base::Number => end as i64 + far,
                    Base::Start => far,
                    Base::End => payload.len() as i64 + far,
                };
            (0..=payload.len() as i64).contains(&to) && next(to as usize)
        }
        Link::Extract { number: source, variable, multiplier, align } => {
            let Some((number, end)) = number(source) else { return false };
            let mut number = number.wrapping_mul(*multiplier);
            while *align > 1 && number % u32::from(*align) > 0 {
                number += 1;
            }
            let mut variables = variables;
            variables[*variable as usize] = number;
            chain(rule, at + 1, end, variables, payload)
        }
    }
}

/// Reads the number at the start of bytes. Returns it and its length in bytes.
fn value(number: &Number, bytes: &[u8]) -> Option<(u32, usize)> {
    let count = number.bytes as usize;
    let (value, length) = match number.form {
        NumberForm::Text(base) => {
            let text: String = bytes.iter().take(count).map(|byte| char::from(*byte)).collect();
            let trimmed = text.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
            let unsigned = trimmed.strip_prefix('+').unwrap_or(trimmed);
            let hex = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X"));
            let hex = hex.filter(|rest| base == 16 && rest.starts_with(|digit: char| digit.is_ascii_hexdigit()));
            let from = hex.unwrap_or(unsigned);
            let digits: String = from.chars().take_while(|digit| digit.is_digit(base.into())).collect();
            let value = u128::from_str_radix(&digits, base.into()).ok()?;
            (value as u32, text.len() - from.len() + digits.len())
        }
        form => {
            let mut taken = bytes.get(..count)?.to_vec();
            if form == NumberForm::Big {
                taken.reverse();
            }
            (taken.iter().zip(0..).map(|(byte, index)| u32::from(*byte) << (8 * index)).sum(), count)
        }
    };
    let masked =
        if number.mask == 0 { value } else { (value & number.mask) / (number.mask & number.mask.wrapping_neg()) };
    Some((masked, length))
}

/// Returns the ends of successive matches of an expression, found by a library for backtracking expressions. Empty if
/// there is none.
fn ends(text: &str, payload: &[u8]) -> Vec<usize> {
    let (expression, flags) = text[1..].rsplit_once('/').expect("a parsed expression");
    // PCRE's dollar also matches before a line feed at the end.
    let dollar = if flags.contains(['m', 'E']) { "$" } else { r"(?=\n?\z)" };
    let mut builder = fancy_regex::RegexBuilder::new(&expression.replace('$', dollar));
    builder.bytes_mode(fancy_regex::BytesMode::Ascii).backtrack_limit(10_000_000);
    for flag in flags.chars() {
        match flag {
            'i' => builder.case_insensitive(true),
            's' => builder.dot_matches_new_line(true),
            'm' => builder.multi_line(true),
            'x' => builder.ignore_whitespace(true),
            _ => &mut builder,
        };
    }
    let regex = builder.build().expect("a parsed expression");
    let (mut ends, mut from) = (Vec::new(), 0);
    while from <= payload.len()
        && let Some(found) = regex.find_from_pos(payload, from).expect("few steps")
    {
        ends.push(found.end());
        from = found.end() + usize::from(found.start() == found.end());
    }
    ends
}
