//! Compiles patterns into a set, and finds the pattern in a payload that decides.
//!
//! The strongest class decides, and within it the pattern that ends first. If several patterns of the class end at this
//! position, the shortest decides. So a pattern that contains another pattern of the same class or of a stronger class
//! never decides: the other pattern also occurs and ends no later. The longer pattern is *shadowed* and is not searched
//! for. This bounds the cost of a hostile payload: if several of the remaining case-insensitive patterns end at one
//! position, a longer pattern always has a stronger class than a shorter one. So the number of these patterns is at
//! most the number of classes.

use std::collections::HashMap;
use std::ops::ControlFlow;

use thiserror::Error;

use super::pattern::Pattern;
use crate::inspection::strings::{self, BuildError, Found, Job, Strings};

/// The largest number of classes.
pub const MOST_CLASSES: usize = 64;
/// The largest number of patterns that may end at one position of a payload if case is ignored.
const MAX_AT_ONE_POSITION: usize = 128;

/// The result for a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The class, from 0 for the strongest. [`Verdict::CLEAN`] has a number that no class has.
    pub class: u16,
    /// The slot in which the pattern is counted.
    pub slot: u32,
    /// The position where the pattern ends, in bytes into the payload.
    end: u32,
}

impl Verdict {
    /// The payload contains no pattern.
    pub const CLEAN: Self = Self { class: u16::MAX, slot: u32::MAX, end: 0 };
}

/// A pattern with its class and its slot.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The pattern.
    pub pattern: Pattern,
    /// The index of its class, from 0 for the strongest.
    pub class: u16,
    /// The slot in which it is counted.
    pub slot: u32,
}

/// A compiled set of patterns.
#[derive(Debug, Default)]
pub struct Set {
    /// The compiled strings; `None` if there are no patterns.
    strings: Option<Strings>,
    /// The pattern of each string, by the string's number.
    patterns: Box<[SoughtPattern]>,
    /// The number of shadowed patterns.
    pub shadowed: usize,
}

/// A pattern that is searched for.
#[derive(Debug)]
struct SoughtPattern {
    /// The index of its class, from 0 for the strongest.
    class: u16,
    /// The slot in which it is counted.
    slot: u32,
    /// The exact bytes of a case-sensitive pattern, if the strings are searched in either case. A string that was found
    /// must then be compared with these bytes. `None` if every string that is found is a match.
    exact: Option<Box<[u8]>>,
}

/// The reason why patterns cannot be compiled into a set.
#[derive(Debug, Error)]
pub enum SetError {
    /// Too many patterns differ only in case.
    #[error(
        "{0} patterns match the end of {1} if case is ignored: at most {MAX_AT_ONE_POSITION} are allowed; write nocase \
         for all of these patterns"
    )]
    Crowded(usize, String),
    /// The patterns are too large.
    #[error(transparent)]
    Build(#[from] BuildError),
}

impl Set {
    /// Compiles patterns.
    ///
    /// # Errors
    /// The patterns are too large, or too many differ only in case.
    pub fn new(entries: &[Entry]) -> Result<Self, SetError> {
        let unshadowed_entries = unshadowed(entries)?;
        let shadowed = entries.len() - unshadowed_entries.len();
        if unshadowed_entries.is_empty() {
            return Ok(Self::default());
        }
        let nocase = unshadowed_entries.iter().any(|entry| entry.pattern.nocase && has_letters(entry));
        if nocase {
            refuse_crowds(&unshadowed_entries)?;
        }
        let texts: Vec<&[u8]> = unshadowed_entries.iter().map(|entry| &entry.pattern.bytes[..]).collect();
        let strings = Strings::new(&texts, nocase)?;
        for entry in &unshadowed_entries {
            let bytes = &entry.pattern.bytes;
            let mut most = 0;
            strings.scan(bytes, &mut |found| {
                if found.end == bytes.len() {
                    most = found.strings().count();
                }
                ControlFlow::Continue(())
            });
            if most > MAX_AT_ONE_POSITION {
                return Err(SetError::Crowded(most, entry.pattern.to_string()));
            }
        }
        let patterns = unshadowed_entries.iter().map(|Entry { pattern, class, slot }| {
            let exact = (nocase && !pattern.nocase).then(|| pattern.bytes.clone().into_boxed_slice());
            SoughtPattern { class: *class, slot: *slot, exact }
        });
        Ok(Self { patterns: patterns.collect(), strings: Some(strings), shadowed })
    }

    /// Returns the memory taken, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.strings.as_ref().map_or(0, Strings::memory_bytes)
    }

    /// Writes the verdict on each payload. `payload` returns the payload for the verdict with the same index.
    #[inline]
    pub fn judge<'a>(&'a self, payload: impl Fn(usize) -> &'a [u8], verdicts: &mut [Verdict]) {
        verdicts.fill(Verdict::CLEAN);
        let Some(strings) = &self.strings else { return };
        let jobs = (0..verdicts.len()).map(|job| Job { strings, bytes: payload(job) });
        strings::scan(jobs, &mut |job, found| match verdicts.get_mut(job) {
            Some(verdict) => self.update_verdict(payload(job), &found, verdict),
            None => ControlFlow::Break(()),
        });
    }

    /// Updates a verdict with the patterns that end at one position. Breaks if later matches cannot change the verdict.
    #[inline(never)]
    fn update_verdict(&self, payload: &[u8], found: &Found<'_>, verdict: &mut Verdict) -> ControlFlow<()> {
        let end = found.end as u32;
        for SoughtPattern { class, slot, exact } in found.strings().filter_map(|string| self.patterns.get(string)) {
            // The strings come from the longest to the shortest. Within one class the last one decides.
            let decides = *class < verdict.class || *class == verdict.class && end == verdict.end;
            if decides && exact.as_ref().is_none_or(|exact| payload[..found.end].ends_with(exact)) {
                *verdict = Verdict { class: *class, slot: *slot, end };
            }
        }
        // No class is stronger than the first.
        if verdict.class == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Returns true if the pattern has bytes whose case can be ignored.
fn has_letters(entry: &Entry) -> bool {
    entry.pattern.bytes.iter().any(u8::is_ascii_alphabetic)
}

/// Returns the entries that may decide. The bytes of each pattern are searched for other patterns of its class and of
/// stronger classes. The first match is enough, so for each class this takes at most one pass over the patterns of the
/// class.
fn unshadowed(entries: &[Entry]) -> Result<Vec<&Entry>, SetError> {
    let mut classes: Vec<u16> = entries.iter().map(|entry| entry.class).collect();
    classes.sort_unstable();
    classes.dedup();
    let mut remaining: Vec<&Entry> = Vec::new();
    for class in classes {
        // Shadowed patterns of stronger classes are left out: the patterns that shadow them have the same effect.
        let own: Vec<&Entry> = entries.iter().filter(|entry| entry.class == class).collect();
        let variants = Variants::of(remaining.iter().chain(&own).copied())?;
        remaining.extend(own.into_iter().filter(|entry| !variants.shadow(entry)));
    }
    Ok(remaining)
}

/// Patterns by their lower-case text. Patterns that differ only in case share one text, so that they need not be
/// compared with each other.
struct Variants<'a> {
    /// The texts, each once.
    strings: Strings,
    /// For each text: its length, and the number of its patterns that match in either case.
    texts: Vec<(usize, usize)>,
    /// The number of case-sensitive patterns with these bytes.
    exact: HashMap<&'a [u8], usize>,
}

impl<'a> Variants<'a> {
    /// Compiles the texts of these patterns.
    fn of(entries: impl Iterator<Item = &'a Entry>) -> Result<Self, BuildError> {
        let mut indices: HashMap<Vec<u8>, usize> = HashMap::new();
        let (mut texts, mut exact) = (Vec::new(), HashMap::new());
        for Pattern { bytes, nocase, .. } in entries.map(|entry| &entry.pattern) {
            let index = *indices.entry(bytes.to_ascii_lowercase()).or_insert_with(|| {
                texts.push((bytes.len(), 0));
                texts.len() - 1
            });
            if *nocase {
                texts[index].1 += 1;
            } else {
                *exact.entry(&bytes[..]).or_default() += 1;
            }
        }
        let mut folded = vec![&[][..]; texts.len()];
        indices.iter().for_each(|(text, index)| folded[*index] = text);
        Ok(Self { strings: Strings::new(&folded, true)?, texts, exact })
    }

    /// Returns true if every payload that contains `entry` also contains another of these patterns. `entry` must be one
    /// of these patterns.
    fn shadow(&self, entry: &Entry) -> bool {
        let Pattern { bytes, nocase, .. } = &entry.pattern;
        let mut shadowed = false;
        self.strings.scan(bytes, &mut |found| {
            shadowed = found.strings().filter_map(|text| self.texts.get(text)).any(|(length, in_either_case)| {
                let part = &bytes[found.end - length..found.end];
                // A pattern contains itself, which does not count.
                let itself = usize::from(part.len() == bytes.len());
                if *nocase {
                    *in_either_case > itself
                } else {
                    *in_either_case > 0 || self.exact.get(part).is_some_and(|exact| *exact > itself)
                }
            });
            if shadowed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        shadowed
    }
}

/// Refuses patterns if too many of them have the same lower-case text. This is checked before they are compiled,
/// because in the automaton every longer text that ends with this text would list all of them.
fn refuse_crowds(entries: &[&Entry]) -> Result<(), SetError> {
    let mut same_text: HashMap<Vec<u8>, usize> = HashMap::new();
    for entry in entries {
        *same_text.entry(entry.pattern.bytes.to_ascii_lowercase()).or_default() += 1;
    }
    let many = |entry: &&&Entry| same_text.get(&entry.pattern.bytes.to_ascii_lowercase()).copied().unwrap_or(0);
    match entries.iter().find(|entry| many(entry) > MAX_AT_ONE_POSITION) {
        Some(entry) => Err(SetError::Crowded(many(&entry), entry.pattern.to_string())),
        None => Ok(()),
    }
}
