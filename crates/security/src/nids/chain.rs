//! Options that depend on the position where other options have matched, or on numbers that other options have read.
//!
//! An option may match in several ways, and the next options may fit only one of them. Trying each way to its end takes
//! exponential time. Instead, the matcher keeps the set of all states that the options so far can lead to, and applies
//! each option to all of them. A state contains only what later options depend on. The number of states and of steps is
//! limited.

use memchr::memmem::Finder;

use super::regex::{Budget, SearchCache, Undecided, Walk};
use super::rule::{Amount, Base, Comparison, Content, ContentRange, Jump, Link, Number, NumberForm, Operator, Rule};

/// The largest number of states at a time.
const MAX_STATES: usize = 16_384;

/// The cursor and the variables after the options so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct State {
    /// The variables that `byte_extract` has set. A variable on which no later option depends is 0.
    pub variables: [u32; 2],
    /// The end of the last option, in bytes into the payload. 0 if no later option depends on it.
    pub cursor: u32,
}

impl State {
    /// Returns a fixed number, or the value of a variable.
    #[must_use]
    pub fn amount(&self, amount: Amount) -> i64 {
        match amount {
            Amount::Fixed(number) => number,
            Amount::Variable(which) => self.variables.get(usize::from(which)).map_or(0, |value| i64::from(*value)),
        }
    }
}

/// The states before and after an option.
pub struct States {
    /// The states before the option, sorted and without duplicates.
    now: Vec<State>,
    /// The states after the option.
    next: Vec<State>,
}

impl States {
    /// Allocates memory for all states if `needed`, else none.
    #[must_use]
    pub fn new(needed: bool) -> Self {
        let cache = || Vec::with_capacity(if needed { MAX_STATES } else { 0 });
        Self { now: cache(), next: cache() }
    }

    /// Adds a state after the option. Fails if there are [`MAX_STATES`] states already.
    fn push(&mut self, state: State) -> Result<(), Undecided> {
        if self.next.len() >= MAX_STATES.min(self.next.capacity()) {
            return Err(Undecided);
        }
        self.next.push(state);
        Ok(())
    }
}

/// The bytes that a rule is matched against.
pub struct Subject<'a> {
    /// The payload.
    pub payload: &'a [u8],
    /// The payload in lower case, if a content needs it.
    pub lower: &'a [u8],
    /// The searchers of the rule's contents.
    pub finders: &'a [Finder<'static>],
}

/// Returns true if the options of a rule match in order. The rule must have a chain, `states` must be allocated, and
/// `caches` must be those of the rule's expressions.
///
/// # Errors
/// The search takes too many steps or states.
pub fn matches(
    rule: &Rule,
    subject: &Subject<'_>,
    states: &mut States,
    walk: &mut Walk,
    caches: &mut [SearchCache],
    budget: &mut Budget,
) -> Result<bool, Undecided> {
    states.now.clear();
    states.now.push(State::default());
    for step in &rule.chain {
        states.next.clear();
        budget.take(states.now.len())?;
        match &step.link {
            Link::Content(at) => {
                content(&rule.contents[*at], &subject.finders[*at], subject, step.cursor, states, budget)?
            }
            Link::Pcre(at) => {
                let (pcre, cache) = (&rule.pcres[*at], &mut caches[*at]);
                let mut known = None;
                for index in 0..states.now.len() {
                    let state = states.now[index];
                    let from =
                        if pcre.regex.is_relative() { (state.cursor as usize).min(subject.payload.len()) } else { 0 };
                    let bytes = &subject.payload[from..];
                    if pcre.not || !step.cursor {
                        // A search from the same position has the same result.
                        let found = match known {
                            Some((place, found)) if place == from => found,
                            _ => {
                                budget.take(bytes.len() >> 4)?;
                                pcre.regex.is_match(cache, walk, bytes, budget)?
                            }
                        };
                        known = Some((from, found));
                        if found != pcre.not {
                            states.push(state)?;
                        }
                        continue;
                    }
                    // As in Snort, the search for the next match starts where the previous one has ended.
                    let mut start = 0;
                    while let Some((begin, end)) = pcre.regex.find(walk, bytes, start, budget)? {
                        states.push(State { cursor: (from + end) as u32, ..state })?;
                        start = if end > begin.max(start) { end } else { end.max(start) + 1 };
                        if start > bytes.len() {
                            break;
                        }
                    }
                }
            }
            Link::DataAt { not, relative, at } => {
                for index in 0..states.now.len() {
                    let state = states.now[index];
                    let at = state.amount(*at) + if *relative { i64::from(state.cursor) } else { 0 };
                    if (0..subject.payload.len() as i64).contains(&at) != *not {
                        states.push(state)?;
                    }
                }
            }
            Link::Test { number, not, operator, value } => {
                for index in 0..states.now.len() {
                    let state = states.now[index];
                    let Some(read) = read(number, subject.payload, &state) else { continue };
                    let holds =
                        Comparison { operator: *operator, not: *not }.holds(read.value, state.amount(*value) as u32);
                    if holds {
                        states.push(state)?;
                    }
                }
            }
            Link::Jump(jump) => {
                for index in 0..states.now.len() {
                    let state = states.now[index];
                    if let Some(cursor) = target(jump, subject.payload, &state) {
                        states.push(State { cursor, ..state })?;
                    }
                }
            }
            Link::Extract { number, variable, multiplier, align } => {
                for index in 0..states.now.len() {
                    let mut state = states.now[index];
                    let Some(read) = read(number, subject.payload, &state) else { continue };
                    let value = aligned(read.value.wrapping_mul(*multiplier), *align);
                    if let Some(slot) = state.variables.get_mut(usize::from(*variable)) {
                        *slot = value;
                    }
                    states.push(State { cursor: read.end as u32, ..state })?;
                }
            }
        }
        if states.next.is_empty() {
            return Ok(false);
        }
        for state in &mut states.next {
            state.cursor = if step.cursor { state.cursor } else { 0 };
            state.variables.iter_mut().zip(step.variables).filter(|(_, kept)| !kept).for_each(|(value, _)| *value = 0);
        }
        budget.take(states.next.len())?;
        states.next.sort_unstable();
        states.next.dedup();
        std::mem::swap(&mut states.now, &mut states.next);
    }
    Ok(true)
}

/// Applies a content to all states: adds the possible states after it to `states`. `cursor` is true if later options
/// depend on the end of the match.
fn content(
    content: &Content,
    finder: &Finder<'static>,
    subject: &Subject<'_>,
    cursor: bool,
    states: &mut States,
    budget: &mut Budget,
) -> Result<(), Undecided> {
    let bytes = if content.nocase { subject.lower } else { subject.payload };
    let length = content.bytes.len() as i64;
    let relative = matches!(content.place, ContentRange::Relative { .. });
    // States with equal variables are adjacent, sorted by cursor. Their windows move forward, so no part is searched
    // twice.
    let mut index = 0;
    while let Some(first) = states.now.get(index).copied() {
        let mut searched_to = 0;
        let mut found_any = false;
        while let Some(state) = states.now.get(index).copied().filter(|state| state.variables == first.variables) {
            index += 1;
            let (from, end) = window(content, &state, bytes.len() as i64);
            // The last position where the content may begin. If the content must be at the payload's end, only this
            // position is searched.
            let last = end - length;
            let from = if content.end { from.max(bytes.len() as i64 - length) } else { from };
            if content.not {
                budget.take((end - from).max(0) as usize >> 5)?;
                let found = from <= last && finder.find(&bytes[from as usize..end as usize]).is_some();
                if !found {
                    states.push(state)?;
                }
                continue;
            }
            if !relative && found_any {
                break;
            }
            let mut start = from.max(searched_to);
            while start <= last {
                let window = &bytes[start as usize..end as usize];
                let found = finder.find(window);
                budget.take(1 + (found.unwrap_or(window.len()) >> 5))?;
                let Some(found) = found else { break };
                start += found as i64;
                states.push(State { cursor: (start + length) as u32, ..state })?;
                found_any = true;
                start += 1;
                if !cursor {
                    break;
                }
            }
            searched_to = searched_to.max(last + 1);
            // One match is enough if nothing depends on its position.
            if found_any && !cursor || !relative {
                break;
            }
        }
        if content.not {
            continue;
        }
        while states.now.get(index).is_some_and(|state| state.variables == first.variables) {
            index += 1;
        }
    }
    Ok(())
}

/// Returns the first position where a content may begin and the position where it must end at the latest, within the
/// payload.
fn window(content: &Content, state: &State, size: i64) -> (i64, i64) {
    let (first, bytes) = match content.place {
        ContentRange::Absolute { offset, depth } => (i64::from(offset), depth.map(i64::from)),
        ContentRange::Relative { distance, within } => (i64::from(distance), within.map(i64::from)),
    };
    let (by_first, by_size) = content.by;
    let first = by_first.map_or(first, |which| state.amount(Amount::Variable(which)));
    let bytes = by_size.map(|which| state.amount(Amount::Variable(which))).or(bytes);
    let from = first + if matches!(content.place, ContentRange::Relative { .. }) { i64::from(state.cursor) } else { 0 };
    let end = bytes.map_or(size, |bytes| size.min(from.saturating_add(bytes)));
    (from.clamp(0, size), end.clamp(0, size))
}

/// A number that was read.
pub struct Read {
    /// The number's value. If the number has a mask: the bits under the mask, shifted to the right.
    pub value: u32,
    /// The position after its bytes.
    pub end: usize,
}

/// Reads a number from the payload. Returns `None` if the number begins outside the payload, if some of its bytes are
/// missing, or if a number in text has no digit.
#[must_use]
pub fn read(number: &Number, payload: &[u8], state: &State) -> Option<Read> {
    let start = state.amount(number.offset) + if number.relative { i64::from(state.cursor) } else { 0 };
    let start = usize::try_from(start).ok().filter(|start| *start < payload.len())?;
    let length = usize::from(number.bytes);
    let (value, end) = match number.form {
        NumberForm::Big | NumberForm::Little => {
            let bytes = payload.get(start..start + length)?;
            let add = |value: u32, byte: &u8| value << 8 | u32::from(*byte);
            let value = match number.form {
                NumberForm::Big => bytes.iter().fold(0, add),
                _ => bytes.iter().rev().fold(0, add),
            };
            (value, start + length)
        }
        NumberForm::Text(base) => {
            // As strtoul() reads it: white space, a plus sign, 0x before hexadecimal digits. There may be fewer bytes
            // at the payload's end.
            let bytes = &payload[start..payload.len().min(start + length)];
            let mut at = bytes.iter().take_while(|byte| byte.is_ascii_whitespace() || **byte == 0x0b).count();
            at += usize::from(bytes.get(at) == Some(&b'+'));
            let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(u32::from(base)));
            let prefix = base == 16 && bytes.get(at) == Some(&b'0') && matches!(bytes.get(at + 1), Some(b'x' | b'X'));
            at += if prefix && digit(at + 2).is_some() { 2 } else { 0 };
            let (mut value, first) = (0u64, at);
            while let Some(digit) = digit(at) {
                value = value.wrapping_mul(u64::from(base)).wrapping_add(u64::from(digit));
                at += 1;
            }
            if at == first {
                return None;
            }
            (value as u32, start + at)
        }
    };
    let value = match number.mask {
        0 => value,
        mask => (value & mask) >> mask.trailing_zeros(),
    };
    Some(Read { value, end })
}

/// Rounds up to a multiple of `align`. An alignment of 0 or 1 does not round.
fn aligned(value: u32, align: u8) -> u32 {
    match u32::from(align) {
        0 | 1 => value,
        align => value.wrapping_add((align - value % align) % align),
    }
}

/// Returns the target of a jump, or `None` if the target is outside the payload or the number is missing.
fn target(jump: &Jump, payload: &[u8], state: &State) -> Option<u32> {
    let read = read(&jump.number, payload, state)?;
    let value = i64::from(aligned(read.value.wrapping_mul(jump.multiplier), if jump.align { 4 } else { 0 }));
    let at = match jump.base {
        Base::Number => read.end as i64 + value,
        Base::Start => value,
        Base::End => payload.len() as i64 + value,
    };
    let at = at + state.amount(jump.post);
    u32::try_from(at).ok().filter(|at| *at as usize <= payload.len())
}

impl Comparison {
    /// Returns true if `number` passes the comparison with `value`.
    #[must_use]
    pub fn holds(self, number: u32, value: u32) -> bool {
        let is = match self.operator {
            Operator::Less => number < value,
            Operator::More => number > value,
            Operator::Equal => number == value,
            Operator::AtMost => number <= value,
            Operator::AtLeast => number >= value,
            Operator::And => number & value != 0,
            Operator::Xor => number ^ value != 0,
        };
        is != self.not
    }
}
