//! The search that goes back: look-around, back-references, and where matches end.
//!
//! Its time can grow exponentially with the payload, so each step is counted, and a search that takes too many ends
//! undecided. The positions to go back to are in a list of fixed length, not on the stack of the thread: no payload
//! makes that overflow.

use super::program::{MOST_SLOTS, Part, Program, Step};
use super::syntax::Position;

/// How many steps may still be taken for a packet.
#[derive(Clone, Copy, Debug)]
pub struct Budget(u64);

/// A search took too many steps: whether there is a match is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecided;

impl Budget {
    /// So many steps.
    #[must_use]
    pub fn new(steps: u64) -> Self {
        Self(steps)
    }

    /// Takes some.
    ///
    /// # Errors
    /// There are fewer.
    #[inline]
    pub fn take(&mut self, steps: usize) -> Result<(), Undecided> {
        self.0 = self.0.checked_sub(steps as u64).ok_or(Undecided)?;
        Ok(())
    }
}

/// The most entries of the list of what to go back to.
const MOST_BACK: usize = 16_384;
/// No position.
const NONE: u32 = u32::MAX;

/// Something to go back to.
#[derive(Clone, Copy, Debug)]
enum Back {
    /// Goes on at a step and a position.
    To(u32, u32),
    /// A run that may be shorter, down to a position: the step behind it, the least end, the end that was tried.
    Shorter(u32, u32, u32),
    /// A run that may be longer, up to a position: its step, the end that was tried, the greatest end.
    Longer(u32, u32, u32),
    /// A slot had another value.
    Slot(u32, u32),
    /// A part that is matched by itself began: its step, and the position.
    Part(u32, u32),
}

/// What a worker needs for searches.
pub struct Walk {
    back: Vec<Back>,
    slots: Vec<u32>,
}

impl Walk {
    /// Room for any search, or for none.
    #[must_use]
    pub fn new(needed: bool) -> Self {
        let (back, slots) = if needed { (MOST_BACK, MOST_SLOTS) } else { (0, 0) };
        Self { back: Vec::with_capacity(back), slots: vec![NONE; slots] }
    }

    /// The first match that begins at a position or behind it: where it begins and ends.
    ///
    /// # Errors
    /// It takes too many steps.
    pub fn find(
        &mut self,
        program: &Program,
        subject: &[u8],
        from: usize,
        budget: &mut Budget,
    ) -> Result<Option<(usize, usize)>, Undecided> {
        let mut start = from;
        while start <= subject.len() {
            if let Some(first) = &program.first
                && !program.anchored
            {
                let skipped = subject[start..].iter().position(|byte| first.has(*byte));
                budget.take(skipped.unwrap_or(subject.len() - start) >> 3)?;
                let Some(skipped) = skipped else { return Ok(None) };
                start += skipped;
            }
            if let Some(end) = self.at(program, subject, from, start, budget)? {
                return Ok(Some((start, end)));
            }
            if program.anchored {
                return Ok(None);
            }
            start += 1;
        }
        Ok(None)
    }

    fn push(&mut self, back: Back) -> Result<(), Undecided> {
        if self.back.len() >= MOST_BACK.min(self.back.capacity()) {
            return Err(Undecided);
        }
        self.back.push(back);
        Ok(())
    }

    /// Where a match that begins at `start` ends.
    fn at(
        &mut self,
        program: &Program,
        subject: &[u8],
        from: usize,
        start: usize,
        budget: &mut Budget,
    ) -> Result<Option<usize>, Undecided> {
        self.back.clear();
        let slots = program.slots.min(self.slots.len());
        self.slots[..slots].fill(NONE);
        budget.take(slots >> 3)?;
        let (mut step, mut at) = (0usize, start);
        loop {
            budget.take(1)?;
            let goes_on = match &program.steps[step] {
                Step::Byte(set) => {
                    let there = subject.get(at).is_some_and(|byte| set.has(*byte));
                    at += usize::from(there);
                    there
                }
                Step::Run(set, least, most, lazy) => {
                    let most = (*most as usize).min(subject.len() - at);
                    let wanted = if *lazy { (*least as usize).min(most) } else { most };
                    let length = subject[at..at + wanted].iter().position(|byte| !set.has(*byte)).unwrap_or(wanted);
                    budget.take(length >> 3)?;
                    let enough = length >= *least as usize;
                    if enough && *lazy && length < most {
                        self.push(Back::Longer(step as u32, (at + length) as u32, (at + most) as u32))?;
                    } else if enough && !*lazy && length > *least as usize {
                        let least = at + *least as usize;
                        self.push(Back::Shorter(step as u32 + 1, least as u32, (at + length) as u32))?;
                    }
                    at += length;
                    enough
                }
                Step::At(position) => holds(*position, subject, from, at),
                Step::Split(first, second) => {
                    self.push(Back::To(*second as u32, at as u32))?;
                    step = *first;
                    continue;
                }
                Step::Jump(to) => {
                    step = *to;
                    continue;
                }
                Step::Save(slot) => {
                    self.push(Back::Slot(*slot as u32, self.slots[*slot]))?;
                    self.slots[*slot] = at as u32;
                    true
                }
                Step::Moved(slot) => self.slots[*slot] != at as u32,
                Step::Back(group, nocase) => match (self.slots[2 * group], self.slots[2 * group + 1]) {
                    (begin, end) if begin == NONE || end == NONE || end < begin => false,
                    (begin, end) => {
                        let bytes = &subject[begin as usize..end as usize];
                        budget.take(bytes.len() >> 3)?;
                        let there = subject.get(at..at + bytes.len()).is_some_and(|there| {
                            if *nocase { there.eq_ignore_ascii_case(bytes) } else { there == bytes }
                        });
                        at += if there { bytes.len() } else { 0 };
                        there
                    }
                },
                Step::Rewind(bytes) => {
                    let there = at >= *bytes;
                    at -= if there { *bytes } else { 0 };
                    there
                }
                Step::Enter(..) => {
                    self.push(Back::Part(step as u32, at as u32))?;
                    true
                }
                Step::Leave => match self.leave(program, budget)? {
                    Some((next, position)) => {
                        at = position.unwrap_or(at);
                        step = next;
                        continue;
                    }
                    None => false,
                },
                Step::Match => return Ok(Some(at)),
            };
            if goes_on {
                step += 1;
                continue;
            }
            match self.go_back(program, subject, budget)? {
                Some(there) => (step, at) = there,
                None => return Ok(None),
            }
        }
    }

    /// Ends the innermost part: where to go on, and at which position where it is another one. None where the part must
    /// not match.
    fn leave(&mut self, program: &Program, budget: &mut Budget) -> Result<Option<(usize, Option<usize>)>, Undecided> {
        let mut begun = self.back.len();
        let (enter, position) = loop {
            let Some(last) = begun.checked_sub(1) else { return Ok(None) };
            begun = last;
            if let Some(Back::Part(enter, position)) = self.back.get(begun) {
                break (*enter as usize, *position as usize);
            }
        };
        budget.take(self.back.len() - begun)?;
        let Some(Step::Enter(part, end)) = program.steps.get(enter) else { return Ok(None) };
        if *part == Part::Unwanted {
            while self.back.len() > begun {
                if let Some(Back::Slot(slot, value)) = self.back.pop() {
                    self.slots[slot as usize] = value;
                }
            }
            return Ok(None);
        }
        // Nothing within is tried another way; what slots had is still needed.
        let mut kept = begun;
        for at in begun..self.back.len() {
            if let Back::Slot(..) = self.back[at] {
                self.back[kept] = self.back[at];
                kept += 1;
            }
        }
        self.back.truncate(kept);
        Ok(Some((*end, (*part == Part::Wanted).then_some(position))))
    }

    /// The step and position to go back to; none where there are no more.
    fn go_back(
        &mut self,
        program: &Program,
        subject: &[u8],
        budget: &mut Budget,
    ) -> Result<Option<(usize, usize)>, Undecided> {
        while let Some(back) = self.back.pop() {
            budget.take(1)?;
            match back {
                Back::To(step, at) => return Ok(Some((step as usize, at as usize))),
                Back::Shorter(step, least, tried) => {
                    let end = tried - 1;
                    if end > least {
                        self.back.push(Back::Shorter(step, least, end));
                    }
                    return Ok(Some((step as usize, end as usize)));
                }
                Back::Longer(step, tried, most) => {
                    let Some(Step::Run(set, ..)) = program.steps.get(step as usize) else { continue };
                    if subject.get(tried as usize).is_some_and(|byte| set.has(*byte)) {
                        if tried + 1 < most {
                            self.back.push(Back::Longer(step, tried + 1, most));
                        }
                        return Ok(Some((step as usize + 1, tried as usize + 1)));
                    }
                }
                Back::Slot(slot, value) => self.slots[slot as usize] = value,
                Back::Part(enter, at) => {
                    // Nothing within matches: right where nothing was to.
                    if let Some(Step::Enter(Part::Unwanted, end)) = program.steps.get(enter as usize) {
                        return Ok(Some((*end, at as usize)));
                    }
                }
            }
        }
        Ok(None)
    }
}

/// Whether a position is what a step asks for.
fn holds(position: Position, subject: &[u8], from: usize, at: usize) -> bool {
    let word = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let edge = || word(at.checked_sub(1).and_then(|before| subject.get(before))) != word(subject.get(at));
    match position {
        Position::Start => at == 0,
        Position::LineStart => at == 0 || subject.get(at - 1) == Some(&b'\n') && at < subject.len(),
        Position::End => at == subject.len(),
        Position::LastLineEnd => at == subject.len() || at + 1 == subject.len() && subject[at] == b'\n',
        Position::LineEnd => at == subject.len() || subject[at] == b'\n',
        Position::WordEdge => edge(),
        Position::NoWordEdge => !edge(),
        Position::SearchStart => at == from,
    }
}
