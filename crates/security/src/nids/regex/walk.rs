//! The backtracking search for expressions with look-around or back-references, and for the positions of matches.
//!
//! The time of such a search can grow exponentially with the payload. So each step is counted, and a search that
//! exceeds the limit ends undecided. The positions to go back to are in a list of bounded length, not on the thread's
//! stack, so no payload can overflow the stack.

use super::program::{MAX_SLOTS, Program, Step, SubmatchKind};
use super::syntax::Position;

/// The number of steps that remain for a packet.
#[derive(Clone, Copy, Debug)]
pub struct Budget(u64);

/// The error of a search that took too many steps: its result is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecided;

impl Budget {
    /// Creates a budget of `steps` steps.
    #[must_use]
    pub fn new(steps: u64) -> Self {
        Self(steps)
    }

    /// Takes `steps` from the budget.
    ///
    /// # Errors
    /// Fewer steps remain. The budget is then unchanged.
    #[inline]
    pub fn take(&mut self, steps: usize) -> Result<(), Undecided> {
        self.0 = self.0.checked_sub(steps as u64).ok_or(Undecided)?;
        Ok(())
    }
}

/// The largest number of entries in the list of positions to go back to. A search that needs more is undecided.
const MAX_BACKTRACKS: usize = 16_384;
/// The value of a slot without a position.
const NONE: u32 = u32::MAX;

/// An entry of the list of positions to go back to.
#[derive(Clone, Copy, Debug)]
enum Backtrack {
    /// Continue at a step and a position.
    To(u32, u32),
    /// A [`Step::Run`] that may match fewer bytes: the step after it, its least end, and the end that was tried.
    Shorter(u32, u32, u32),
    /// A [`Step::Run`] that may match more bytes: its step, the end that was tried, and its greatest end.
    Longer(u32, u32, u32),
    /// Restore a slot's previous value: the slot and the value.
    Slot(u32, u32),
    /// The start of a part that is matched on its own: its step and the position.
    Submatch(u32, u32),
}

/// A worker's memory for backtracking searches.
pub struct Walk {
    /// The positions to go back to, the latest last.
    back: Vec<Backtrack>,
    /// The slots of the program; [`NONE`] without a position.
    slots: Vec<u32>,
}

impl Walk {
    /// Allocates memory for any search if `needed`, else none.
    #[must_use]
    pub fn new(needed: bool) -> Self {
        let (back, slots) = if needed { (MAX_BACKTRACKS, MAX_SLOTS) } else { (0, 0) };
        Self { back: Vec::with_capacity(back), slots: vec![NONE; slots] }
    }

    /// Returns the start and the end of the first match that begins at `from` or later.
    ///
    /// # Errors
    /// The search takes too many steps.
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

    /// Adds an entry to go back to. Fails if the list is full.
    fn push(&mut self, back: Backtrack) -> Result<(), Undecided> {
        if self.back.len() >= MAX_BACKTRACKS.min(self.back.capacity()) {
            return Err(Undecided);
        }
        self.back.push(back);
        Ok(())
    }

    /// Returns the end of the match that begins at `start`, or `None` if there is none. `from` is the position where
    /// the search started.
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
            let matched = match &program.steps[step] {
                Step::Byte(set) => {
                    let found = subject.get(at).is_some_and(|byte| set.has(*byte));
                    at += usize::from(found);
                    found
                }
                Step::Run(set, least, most, lazy) => {
                    let most = (*most as usize).min(subject.len() - at);
                    let wanted = if *lazy { (*least as usize).min(most) } else { most };
                    let length = subject[at..at + wanted].iter().position(|byte| !set.has(*byte)).unwrap_or(wanted);
                    budget.take(length >> 3)?;
                    let enough = length >= *least as usize;
                    if enough && *lazy && length < most {
                        self.push(Backtrack::Longer(step as u32, (at + length) as u32, (at + most) as u32))?;
                    } else if enough && !*lazy && length > *least as usize {
                        let least = at + *least as usize;
                        self.push(Backtrack::Shorter(step as u32 + 1, least as u32, (at + length) as u32))?;
                    }
                    at += length;
                    enough
                }
                Step::At(position) => holds(*position, subject, from, at),
                Step::Split(first, second) => {
                    self.push(Backtrack::To(*second as u32, at as u32))?;
                    step = *first;
                    continue;
                }
                Step::Jump(to) => {
                    step = *to;
                    continue;
                }
                Step::Save(slot) => {
                    self.push(Backtrack::Slot(*slot as u32, self.slots[*slot]))?;
                    self.slots[*slot] = at as u32;
                    true
                }
                Step::Moved(slot) => self.slots[*slot] != at as u32,
                Step::Back(group, nocase) => match (self.slots[2 * group], self.slots[2 * group + 1]) {
                    (begin, end) if begin == NONE || end == NONE || end < begin => false,
                    (begin, end) => {
                        let bytes = &subject[begin as usize..end as usize];
                        budget.take(bytes.len() >> 3)?;
                        let found = subject.get(at..at + bytes.len()).is_some_and(|found| {
                            if *nocase { found.eq_ignore_ascii_case(bytes) } else { found == bytes }
                        });
                        at += if found { bytes.len() } else { 0 };
                        found
                    }
                },
                Step::Rewind(bytes) => {
                    let found = at >= *bytes;
                    at -= if found { *bytes } else { 0 };
                    found
                }
                Step::Enter(..) => {
                    self.push(Backtrack::Submatch(step as u32, at as u32))?;
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
            if matched {
                step += 1;
                continue;
            }
            match self.go_back(program, subject, budget)? {
                Some(found) => (step, at) = found,
                None => return Ok(None),
            }
        }
    }

    /// Ends the innermost part that is matched on its own, after it has matched. Returns the next step, and the
    /// position if it changes. Returns `None` if the part must not match: then the search goes back.
    fn leave(&mut self, program: &Program, budget: &mut Budget) -> Result<Option<(usize, Option<usize>)>, Undecided> {
        let mut begun = self.back.len();
        let (enter, position) = loop {
            let Some(last) = begun.checked_sub(1) else { return Ok(None) };
            begun = last;
            if let Some(Backtrack::Submatch(enter, position)) = self.back.get(begun) {
                break (*enter as usize, *position as usize);
            }
        };
        budget.take(self.back.len() - begun)?;
        let Some(Step::Enter(part, end)) = program.steps.get(enter) else { return Ok(None) };
        if *part == SubmatchKind::Unwanted {
            while self.back.len() > begun {
                if let Some(Backtrack::Slot(slot, value)) = self.back.pop() {
                    self.slots[slot as usize] = value;
                }
            }
            return Ok(None);
        }
        // The part is final: drop its entries, but keep the entries that restore slots.
        let mut kept = begun;
        for at in begun..self.back.len() {
            if let Backtrack::Slot(..) = self.back[at] {
                self.back[kept] = self.back[at];
                kept += 1;
            }
        }
        self.back.truncate(kept);
        Ok(Some((*end, (*part == SubmatchKind::Wanted).then_some(position))))
    }

    /// Returns the step and the position to go back to, or `None` if there are no more.
    fn go_back(
        &mut self,
        program: &Program,
        subject: &[u8],
        budget: &mut Budget,
    ) -> Result<Option<(usize, usize)>, Undecided> {
        while let Some(back) = self.back.pop() {
            budget.take(1)?;
            match back {
                Backtrack::To(step, at) => return Ok(Some((step as usize, at as usize))),
                Backtrack::Shorter(step, least, tried) => {
                    let end = tried - 1;
                    if end > least {
                        self.back.push(Backtrack::Shorter(step, least, end));
                    }
                    return Ok(Some((step as usize, end as usize)));
                }
                Backtrack::Longer(step, tried, most) => {
                    let Some(Step::Run(set, ..)) = program.steps.get(step as usize) else { continue };
                    if subject.get(tried as usize).is_some_and(|byte| set.has(*byte)) {
                        if tried + 1 < most {
                            self.back.push(Backtrack::Longer(step, tried + 1, most));
                        }
                        return Ok(Some((step as usize + 1, tried as usize + 1)));
                    }
                }
                Backtrack::Slot(slot, value) => self.slots[slot as usize] = value,
                Backtrack::Submatch(enter, at) => {
                    // The part does not match. If it must not match, the search continues after it.
                    if let Some(Step::Enter(SubmatchKind::Unwanted, end)) = program.steps.get(enter as usize) {
                        return Ok(Some((*end, at as usize)));
                    }
                }
            }
        }
        Ok(None)
    }
}

/// Returns true if the position `at` meets the condition. `from` is the position where the search started.
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
