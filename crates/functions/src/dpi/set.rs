//! Patterns as payloads are judged by them: which of those that are there decides.
//!
//! The strongest class decides; within it the pattern that ends first, and of those that end there the shortest. So a
//! pattern that contains another one of its own class or a stronger one never decides: the other is there, too, and ends no
//! later. Such a pattern is *shadowed*, and is not sought at all. What is left has a property that bounds what a hostile
//! payload can cost: of patterns that end at one place and are found in any case each is stronger than the next shorter one,
//! so that there are no more of them than classes.

use std::ops::ControlFlow;

use thiserror::Error;

use super::pattern::Pattern;
use crate::inspection::strings::{self, BuildError, Found, Job, Strings};

/// The most classes.
pub const MOST_CLASSES: usize = 64;
/// The most patterns that may end at one place of a payload, as far as letters' case is disregarded.
const MOST_AT_ONE_PLACE: usize = 128;

/// What a payload is, by the patterns in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The class: from the strongest, 0. [`Verdict::CLEAN`] has one that nothing has.
    pub class: u16,
    /// The place at which the pattern is counted.
    pub slot: u32,
    /// Where it ends.
    end: u32,
}

impl Verdict {
    /// No pattern is in it.
    pub const CLEAN: Self = Self { class: u16::MAX, slot: u32::MAX, end: 0 };
}

/// A pattern, and what it is to be.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What is sought.
    pub pattern: Pattern,
    /// Its class' place, from the strongest.
    pub class: u16,
    /// The place at which it is counted.
    pub slot: u32,
}

/// Patterns that are sought together.
#[derive(Debug, Default)]
pub struct Set {
    /// None where nothing is sought.
    strings: Option<Strings>,
    /// By the number of the string.
    sought: Box<[Sought]>,
    /// How many patterns are shadowed.
    pub shadowed: usize,
}

#[derive(Debug)]
struct Sought {
    class: u16,
    slot: u32,
    /// The bytes as they must be, where strings are sought in either case and this one is not.
    exact: Option<Box<[u8]>>,
}

/// Why patterns cannot be sought together.
#[derive(Debug, Error)]
pub enum SetError {
    /// Too many of them differ in case alone.
    #[error(
        "{0} patterns end with {1} or differ from an end of it in case alone: allowed are {MOST_AT_ONE_PLACE}; write nocase for all of them"
    )]
    Crowded(usize, String),
    /// They are too much.
    #[error(transparent)]
    Build(#[from] BuildError),
}

impl Set {
    /// Compiles patterns.
    ///
    /// # Errors
    /// They are too much.
    pub fn new(entries: &[Entry]) -> Result<Self, SetError> {
        let left = unshadowed(entries)?;
        let shadowed = entries.len() - left.len();
        if left.is_empty() {
            return Ok(Self::default());
        }
        let nocase = left.iter().any(|entry| entry.pattern.nocase && has_letters(entry));
        let texts: Vec<&[u8]> = left.iter().map(|entry| &entry.pattern.bytes[..]).collect();
        let strings = Strings::new(&texts, nocase)?;
        for entry in &left {
            let bytes = &entry.pattern.bytes;
            let mut most = 0;
            strings.scan(bytes, &mut |found| {
                if found.end == bytes.len() {
                    most = found.strings().count();
                }
                ControlFlow::Continue(())
            });
            if most > MOST_AT_ONE_PLACE {
                return Err(SetError::Crowded(most, entry.pattern.to_string()));
            }
        }
        let sought = left.iter().map(|Entry { pattern, class, slot }| {
            let exact = (nocase && !pattern.nocase).then(|| pattern.bytes.clone().into_boxed_slice());
            Sought { class: *class, slot: *slot, exact }
        });
        Ok(Self { sought: sought.collect(), strings: Some(strings), shadowed })
    }

    /// What it takes in memory, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.strings.as_ref().map_or(0, Strings::memory_bytes)
    }

    /// Judges payloads, as many as there are verdicts, each by its number.
    #[inline]
    pub fn judge<'a>(&'a self, payload: impl Fn(usize) -> &'a [u8], verdicts: &mut [Verdict]) {
        verdicts.fill(Verdict::CLEAN);
        let Some(strings) = &self.strings else { return };
        let jobs = (0..verdicts.len()).map(|job| Job { strings, bytes: payload(job) });
        strings::scan(jobs, &mut |job, found| match verdicts.get_mut(job) {
            Some(verdict) => self.weigh(payload(job), &found, verdict),
            None => ControlFlow::Break(()),
        });
    }

    /// What becomes of a verdict by what ends at one place.
    #[inline(never)]
    fn weigh(&self, payload: &[u8], found: &Found<'_>, verdict: &mut Verdict) -> ControlFlow<()> {
        let end = found.end as u32;
        for Sought { class, slot, exact } in found.strings().filter_map(|string| self.sought.get(string)) {
            // From the longest to the shortest: of one class the last is the one that counts.
            let decides = *class < verdict.class || *class == verdict.class && end == verdict.end;
            if decides && exact.as_ref().is_none_or(|exact| payload[..found.end].ends_with(exact)) {
                *verdict = Verdict { class: *class, slot: *slot, end };
            }
        }
        // Nothing is stronger than the first class.
        if verdict.class == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

fn has_letters(entry: &Entry) -> bool {
    entry.pattern.bytes.iter().any(u8::is_ascii_alphabetic)
}

/// Entries that may decide. Each class' patterns are looked at for those of the class and of stronger ones; the first that is
/// found is enough, so that this takes no longer than reading them once a class, but for patterns that differ in case.
fn unshadowed(entries: &[Entry]) -> Result<Vec<&Entry>, SetError> {
    let mut classes: Vec<u16> = entries.iter().map(|entry| entry.class).collect();
    classes.sort_unstable();
    classes.dedup();
    let mut left: Vec<&Entry> = Vec::new();
    for class in classes {
        // Those of stronger classes that are shadowed themselves say nothing that those before them do not.
        let own: Vec<&Entry> = entries.iter().filter(|entry| entry.class == class).collect();
        let candidates: Vec<&Entry> = left.iter().chain(&own).copied().collect();
        let texts: Vec<&[u8]> = candidates.iter().map(|entry| &entry.pattern.bytes[..]).collect();
        let strings = Strings::new(&texts, true)?;
        for entry in own {
            let text = &entry.pattern.bytes;
            let mut shadowed = false;
            strings.scan(text, &mut |found| {
                shadowed = found.strings().filter_map(|string| candidates.get(string)).any(|other| {
                    // A pattern is in itself.
                    if std::ptr::eq(*other, entry) {
                        return false;
                    }
                    let exact = text[..found.end].ends_with(&other.pattern.bytes);
                    other.pattern.nocase || !entry.pattern.nocase && exact
                });
                if shadowed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            if !shadowed {
                left.push(entry);
            }
        }
    }
    Ok(left)
}
