//! Whether a packet is what one rule asks for.
//!
//! Contents that must follow each other could be sought by trying every place of the first, from there every place of the second,
//! and so on: exponential in their number. Here all places at which the contents so far can end are kept, and the next content is
//! looked for once: the time is the payload's length times the contents' lengths, whatever the payload.

use forebay_packet::wire::ipv4::TCP;
use memchr::memmem::Finder;

use super::chain::{self, States, Subject};
use super::regex::{Budget, Room, Undecided, Walk};
use super::rule::{Place, Rule, Test};
use super::view::View;

/// The longest payload.
const MOST_PAYLOAD: usize = u16::MAX as usize;

/// A rule's contents as they are sought.
pub struct Sought {
    finders: Box<[Finder<'static>]>,
}

impl Sought {
    /// Those of a rule.
    #[must_use]
    pub fn of(rule: &Rule) -> Self {
        let finder = |content: &super::rule::Content| {
            let bytes = if content.nocase { content.bytes.to_ascii_lowercase() } else { content.bytes.clone() };
            Finder::new(&bytes).into_owned()
        };
        Self { finders: rule.contents.iter().map(finder).collect() }
    }
}

/// What a worker checks with.
pub struct Scratch {
    /// The payload in lower case, once it was asked for.
    lower: Vec<u8>,
    lowered: bool,
    /// Places at which what was sought so far can end.
    ends: Vec<u32>,
    next: Vec<u32>,
    /// What searches need that go back.
    walk: Walk,
    states: States,
    /// The steps that they may still take for this packet, and for each one.
    budget: Budget,
    steps: u64,
}

impl Scratch {
    /// Room for the longest payload, and for what these rules need. Searches may take so many steps for a packet.
    #[must_use]
    pub fn new(rules: &[Rule], steps: u64) -> Self {
        let places = || Vec::with_capacity(MOST_PAYLOAD + 1);
        let walks = rules.iter().flat_map(|rule| &rule.pcres).any(|pcre| pcre.regex.walks());
        let chains = rules.iter().any(|rule| !rule.chain.is_empty());
        Self {
            lower: Vec::with_capacity(MOST_PAYLOAD),
            lowered: false,
            ends: places(),
            next: places(),
            walk: Walk::new(walks),
            states: States::new(chains),
            budget: Budget::new(steps),
            steps,
        }
    }

    /// Makes the payload's lower case, once a packet.
    fn lower(&mut self, payload: &[u8]) {
        if !self.lowered {
            self.lower.clear();
            self.lower.extend(payload.iter().take(MOST_PAYLOAD).map(u8::to_ascii_lowercase));
            self.lowered = true;
        }
    }

    /// What follows is of another packet.
    #[inline]
    pub fn clear(&mut self) {
        self.lowered = false;
        self.budget = Budget::new(self.steps);
    }
}

/// Whether the header of a rule is met, in either direction where it says so.
#[inline]
#[must_use]
pub fn header(rule: &Rule, view: &View) -> bool {
    let way = |source: u128, destination: u128, ports: Option<(u16, u16)>| {
        let [from, to] = [&rule.source, &rule.destination].map(|hosts| if view.v6 { &hosts.v6 } else { &hosts.v4 });
        let ports = match ports {
            Some((from, to)) => rule.source_ports.contains(from.into()) && rule.destination_ports.contains(to.into()),
            // What shows no ports is met by rules that ask for none.
            None => super::parse::is_any(&rule.source_ports) && super::parse::is_any(&rule.destination_ports),
        };
        ports && from.contains(source) && to.contains(destination)
    };
    way(view.source, view.destination, view.ports)
        || rule.both && way(view.destination, view.source, view.ports.map(|(from, to)| (to, from)))
}

/// Whether all else is met.
///
/// # Errors
/// A search took too many steps: it is not known.
pub fn body(
    rule: &Rule,
    sought: &Sought,
    view: &View,
    frame: &[u8],
    scratch: &mut Scratch,
    rooms: &mut [Room],
) -> Result<bool, Undecided> {
    let payload = view.payload_of(frame);
    if !rule.tests.iter().all(|test| holds(test, view, frame)) {
        return Ok(false);
    }
    if !rule.chain.is_empty() {
        return in_order(rule, sought, payload, scratch, rooms);
    }
    if !contents(rule, sought, payload, scratch) {
        return Ok(false);
    }
    for (pcre, room) in rule.pcres.iter().zip(rooms) {
        if pcre.regex.is_match(room, &mut scratch.walk, payload, &mut scratch.budget)? == pcre.not {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether options are met that depend on each other.
#[inline(never)]
fn in_order(
    rule: &Rule,
    sought: &Sought,
    payload: &[u8],
    scratch: &mut Scratch,
    rooms: &mut [Room],
) -> Result<bool, Undecided> {
    let payload = &payload[..payload.len().min(MOST_PAYLOAD)];
    if rule.contents.iter().any(|content| content.nocase) {
        scratch.lower(payload);
    }
    let Scratch { lower, walk, states, budget, .. } = scratch;
    let subject = Subject { payload, lower, finders: &sought.finders };
    chain::matches(rule, &subject, states, walk, rooms, budget)
}

fn holds(test: &Test, view: &View, frame: &[u8]) -> bool {
    match test {
        Test::Size(span) => span.holds(view.payload_of(frame).len() as u32),
        Test::Ttl(span) => span.holds(view.ttl.into()),
        Test::IpProtocol(span) => span.holds(view.protocol.into()),
        Test::IcmpType(span) => view.icmp.is_some_and(|(kind, _)| span.holds(kind.into())),
        Test::IcmpCode(span) => view.icmp.is_some_and(|(_, code)| span.holds(code.into())),
        Test::SameAddress => view.source == view.destination,
        Test::Flags { how, bits, mask } => view.flags.is_some_and(|flags| how.holds(flags & mask, bits & mask)),
        Test::FlagsOfTcp { how, bits, mask } => {
            view.protocol != TCP || view.flags.is_some_and(|flags| how.holds(flags & mask, bits & mask))
        }
        Test::Field(field, span) => view.field(*field, frame).is_some_and(|number| span.holds(number)),
        Test::FragmentBits { how, bits } => view.fragment_bits(frame).is_some_and(|is| how.holds(is, *bits)),
        Test::IpOption(wanted) => view.has_option(*wanted, frame),
    }
}

fn contents(rule: &Rule, sought: &Sought, payload: &[u8], scratch: &mut Scratch) -> bool {
    let contents = &rule.contents;
    if contents.is_empty() {
        return true;
    }
    if !scratch.lowered && contents.iter().any(|content| content.nocase) {
        scratch.lower(payload);
    }
    let Scratch { lower, ends, next, .. } = scratch;
    ends.clear();
    ends.push(0);
    for (at, (content, finder)) in contents.iter().zip(&sought.finders).enumerate() {
        let bytes = if content.nocase { &lower[..] } else { &payload[..payload.len().min(MOST_PAYLOAD)] };
        let length = content.bytes.len();
        match content.place {
            Place::Absolute { offset, depth } => {
                let from = (offset as usize).min(bytes.len());
                let to = depth.map_or(bytes.len(), |depth| bytes.len().min(from.saturating_add(depth as usize)));
                let window = &bytes[from..to];
                if content.not {
                    if finder.find(window).is_some() {
                        return false;
                    }
                    continue;
                }
                // All places are needed only where something is sought from them on, before the next that is not.
                let after = contents[at + 1..].iter().take_while(|next| next.not || is_relative(next.place));
                if after.clone().any(|next| is_relative(next.place)) {
                    ends.clear();
                    ends.extend(places(finder, window).map(|start| (from + start + length) as u32));
                    if ends.is_empty() {
                        return false;
                    }
                } else if finder.find(window).is_none() {
                    return false;
                }
            }
            Place::Relative { distance, within } => {
                next.clear();
                let first = |end: u32| i64::from(end) + i64::from(distance);
                // Where a window ends, the content must; without one, anywhere.
                let last = |end: u32| within.map_or(i64::MAX, |within| first(end) + i64::from(within) - length as i64);
                if content.not {
                    // From each place on: whether it is in its window.
                    let mut found = places(finder, bytes).map(|start| start as i64).peekable();
                    for end in ends.iter().copied() {
                        while found.next_if(|start| *start < first(end)).is_some() {}
                        if found.peek().is_none_or(|start| *start > last(end)) {
                            next.push(end);
                        }
                    }
                } else {
                    let mut before = ends.iter().copied().peekable();
                    for start in places(finder, bytes) {
                        // Places so far back that its window is over are of no more use: the next ones are further on.
                        while before.next_if(|end| last(*end) < start as i64).is_some() {}
                        if before.peek().is_some_and(|end| first(*end) <= start as i64) {
                            next.push((start + length) as u32);
                        }
                    }
                }
                std::mem::swap(ends, next);
                if ends.is_empty() {
                    return false;
                }
            }
        }
    }
    true
}

fn is_relative(place: Place) -> bool {
    matches!(place, Place::Relative { .. })
}

/// All places at which something is, also such as overlap, in order.
fn places<'a>(finder: &'a Finder<'static>, bytes: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = from + finder.find(bytes.get(from..)?)?;
        from = start + 1;
        Some(start)
    })
}
