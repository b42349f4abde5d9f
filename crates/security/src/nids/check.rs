//! Tests a packet against one rule.
//!
//! A search that tries every position of the first content, from there every position of the second, and so on, takes
//! exponential time in the number of contents. Instead, the matcher keeps all positions at which the contents so far
//! can end, and searches the next content once. For any payload, the time is at most the payload's length times the
//! contents' lengths.

use forebay_packet::wire::ipv4::TCP;
use memchr::memmem::Finder;

use super::chain::{self, States, Subject};
use super::regex::{Budget, SearchCache, Undecided, Walk};
use super::rule::{ContentRange, Rule, Test};
use super::view::View;

/// The longest payload, in bytes.
const MAX_PAYLOAD: usize = u16::MAX as usize;

/// The searchers of a rule's contents.
pub struct ContentFinders {
    /// A searcher for each content, in the order of the rule.
    finders: Box<[Finder<'static>]>,
}

impl ContentFinders {
    /// Creates the searchers of a rule.
    #[must_use]
    pub fn of(rule: &Rule) -> Self {
        let finder = |content: &super::rule::Content| {
            let bytes = if content.nocase { content.bytes.to_ascii_lowercase() } else { content.bytes.clone() };
            Finder::new(&bytes).into_owned()
        };
        Self { finders: rule.contents.iter().map(finder).collect() }
    }
}

/// A worker's memory for tests.
pub struct Scratch {
    /// The payload in lower case, if `lowered` is true.
    lower: Vec<u8>,
    /// True if `lower` contains the payload of the present packet.
    lowered: bool,
    /// The positions at which the contents so far can end.
    ends: Vec<u32>,
    /// The positions at which the next content can end.
    next: Vec<u32>,
    /// The memory of backtracking searches.
    walk: Walk,
    /// The memory of chains.
    states: States,
    /// The steps that remain for this packet.
    budget: Budget,
    /// The largest number of steps for a packet.
    steps: u64,
}

impl Scratch {
    /// Allocates memory for the longest payload and these rules. `steps` is the largest number of search steps for a
    /// packet.
    #[must_use]
    pub fn new(rules: &[Rule], steps: u64) -> Self {
        let positions = || Vec::with_capacity(MAX_PAYLOAD + 1);
        let walks = rules.iter().flat_map(|rule| &rule.pcres).any(|pcre| pcre.regex.walks());
        let chains = rules.iter().any(|rule| !rule.chain.is_empty());
        Self {
            lower: Vec::with_capacity(MAX_PAYLOAD),
            lowered: false,
            ends: positions(),
            next: positions(),
            walk: Walk::new(walks),
            states: States::new(chains),
            budget: Budget::new(steps),
            steps,
        }
    }

    /// Converts the payload to lower case, at most once a packet.
    fn lower(&mut self, payload: &[u8]) {
        if !self.lowered {
            self.lower.clear();
            self.lower.extend(payload.iter().take(MAX_PAYLOAD).map(u8::to_ascii_lowercase));
            self.lowered = true;
        }
    }

    /// Prepares for the next packet.
    #[inline]
    pub fn clear(&mut self) {
        self.lowered = false;
        self.budget = Budget::new(self.steps);
    }
}

/// Returns true if a packet matches the header of a rule, in either direction if the rule is bidirectional.
#[inline]
#[must_use]
pub fn header(rule: &Rule, view: &View) -> bool {
    let direction_matches = |source: u128, destination: u128, ports: Option<(u16, u16)>| {
        let [from, to] = [&rule.source, &rule.destination].map(|hosts| if view.v6 { &hosts.v6 } else { &hosts.v4 });
        let ports = match ports {
            Some((from, to)) => rule.source_ports.contains(from.into()) && rule.destination_ports.contains(to.into()),
            // A packet without ports matches only rules for all ports.
            None => super::parse::is_any(&rule.source_ports) && super::parse::is_any(&rule.destination_ports),
        };
        ports && from.contains(source) && to.contains(destination)
    };
    direction_matches(view.source, view.destination, view.ports)
        || rule.both && direction_matches(view.destination, view.source, view.ports.map(|(from, to)| (to, from)))
}

/// Returns true if a packet passes all tests of a rule except the header, the session and the limits. `finders` and
/// `caches` must be those of the rule, and `scratch` must have been [cleared](Scratch::clear) for this packet.
///
/// # Errors
/// A search takes too many steps, so the result is unknown.
pub fn body(
    rule: &Rule,
    finders: &ContentFinders,
    view: &View,
    frame: &[u8],
    scratch: &mut Scratch,
    caches: &mut [SearchCache],
) -> Result<bool, Undecided> {
    let payload = view.payload_of(frame);
    if !rule.tests.iter().all(|test| holds(test, view, frame)) {
        return Ok(false);
    }
    if !rule.chain.is_empty() {
        return in_order(rule, finders, payload, scratch, caches);
    }
    if !contents(rule, finders, payload, scratch) {
        return Ok(false);
    }
    for (pcre, cache) in rule.pcres.iter().zip(caches) {
        if pcre.regex.is_match(cache, &mut scratch.walk, payload, &mut scratch.budget)? == pcre.not {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns true if a payload matches the chain of a rule, whose options depend on each other.
#[inline(never)]
fn in_order(
    rule: &Rule,
    finders: &ContentFinders,
    payload: &[u8],
    scratch: &mut Scratch,
    caches: &mut [SearchCache],
) -> Result<bool, Undecided> {
    let payload = &payload[..payload.len().min(MAX_PAYLOAD)];
    if rule.contents.iter().any(|content| content.nocase) {
        scratch.lower(payload);
    }
    let Scratch { lower, walk, states, budget, .. } = scratch;
    let subject = Subject { payload, lower, finders: &finders.finders };
    chain::matches(rule, &subject, states, walk, caches, budget)
}

/// Returns true if a packet passes a test of its headers or of its payload's size.
fn holds(test: &Test, view: &View, frame: &[u8]) -> bool {
    match test {
        Test::Size(span) => span.holds(view.payload_of(frame).len() as u32),
        Test::Ttl(span) => span.holds(view.ttl.into()),
        Test::IpProtocol(span) => span.holds(view.protocol.into()),
        Test::IcmpType(span) => view.icmp.is_some_and(|(number, _)| span.holds(number.into())),
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

/// Returns true if a payload matches the contents of a rule without a chain.
fn contents(rule: &Rule, finders: &ContentFinders, payload: &[u8], scratch: &mut Scratch) -> bool {
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
    for (at, (content, finder)) in contents.iter().zip(&finders.finders).enumerate() {
        let bytes = if content.nocase { &lower[..] } else { &payload[..payload.len().min(MAX_PAYLOAD)] };
        let length = content.bytes.len();
        match content.place {
            ContentRange::Absolute { offset, depth } => {
                let from = (offset as usize).min(bytes.len());
                let to = depth.map_or(bytes.len(), |depth| bytes.len().min(from.saturating_add(depth as usize)));
                let window = &bytes[from..to];
                if content.not {
                    if finder.find(window).is_some() {
                        return false;
                    }
                    continue;
                }
                // All positions are needed only if a relative content follows before the next absolute one.
                let after = contents[at + 1..].iter().take_while(|next| next.not || is_relative(next.place));
                if after.clone().any(|next| is_relative(next.place)) {
                    ends.clear();
                    ends.extend(positions(finder, window).map(|start| (from + start + length) as u32));
                    if ends.is_empty() {
                        return false;
                    }
                } else if finder.find(window).is_none() {
                    return false;
                }
            }
            ContentRange::Relative { distance, within } => {
                next.clear();
                let first = |end: u32| i64::from(end) + i64::from(distance);
                // The last position where the content may begin. With `within`, the content must end within its window.
                // Otherwise it may end anywhere.
                let last = |end: u32| within.map_or(i64::MAX, |within| first(end) + i64::from(within) - length as i64);
                if content.not {
                    // Keep each end whose window does not contain the content.
                    let mut found = positions(finder, bytes).map(|start| start as i64).peekable();
                    for end in ends.iter().copied() {
                        while found.next_if(|start| *start < first(end)).is_some() {}
                        if found.peek().is_none_or(|start| *start > last(end)) {
                            next.push(end);
                        }
                    }
                } else {
                    let mut before = ends.iter().copied().peekable();
                    for start in positions(finder, bytes) {
                        // The content may begin in the window of this end only before the present position. So no later
                        // position is in this window, either.
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

fn is_relative(place: ContentRange) -> bool {
    matches!(place, ContentRange::Relative { .. })
}

/// Iterates over all positions of a content in order, including overlapping ones.
fn positions<'a>(finder: &'a Finder<'static>, bytes: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = from + finder.find(bytes.get(from..)?)?;
        from = start + 1;
        Some(start)
    })
}
