//! Patterns as payloads are judged by them: which of those that are there decides.
//!
//! The strongest class decides; within it the pattern that ends first, and of those that end there the shortest. So a
//! pattern that contains another one of its own class or a stronger one never decides: the other is there, too, and ends no
//! later. Such a pattern is *shadowed*, and is not sought at all. What is left has a property that bounds what a hostile
//! payload can cost: of patterns that end at one place and are found in any case each is stronger than the next shorter one,
//! so that there are no more of them than classes.

use std::collections::HashMap;
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
        if nocase {
            refuse_crowds(&left)?;
        }
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
/// found is enough, so that this takes no longer than reading them once a class.
fn unshadowed(entries: &[Entry]) -> Result<Vec<&Entry>, SetError> {
    let mut classes: Vec<u16> = entries.iter().map(|entry| entry.class).collect();
    classes.sort_unstable();
    classes.dedup();
    let mut left: Vec<&Entry> = Vec::new();
    for class in classes {
        // Those of stronger classes that are shadowed themselves say nothing that those before them do not.
        let own: Vec<&Entry> = entries.iter().filter(|entry| entry.class == class).collect();
        let variants = Variants::of(left.iter().chain(&own).copied())?;
        left.extend(own.into_iter().filter(|entry| !variants.shadow(entry)));
    }
    Ok(left)
}

/// Patterns by what they are in lower case. Those that differ in case alone are one text, so that none has to be compared
/// with all others of it.
struct Variants<'a> {
    /// Each text once.
    strings: Strings,
    /// By text: its length, and how many patterns of it are found in either case.
    texts: Vec<(usize, usize)>,
    /// How many patterns are these bytes and nothing else.
    exact: HashMap<&'a [u8], usize>,
}

impl<'a> Variants<'a> {
    fn of(entries: impl Iterator<Item = &'a Entry>) -> Result<Self, BuildError> {
        let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
        let (mut texts, mut exact) = (Vec::new(), HashMap::new());
        for Pattern { bytes, nocase, .. } in entries.map(|entry| &entry.pattern) {
            let place = *places.entry(bytes.to_ascii_lowercase()).or_insert_with(|| {
                texts.push((bytes.len(), 0));
                texts.len() - 1
            });
            if *nocase {
                texts[place].1 += 1;
            } else {
                *exact.entry(&bytes[..]).or_default() += 1;
            }
        }
        let mut folded = vec![&[][..]; texts.len()];
        places.iter().for_each(|(text, place)| folded[*place] = text);
        Ok(Self { strings: Strings::new(&folded, true)?, texts, exact })
    }

    /// Whether another of these patterns, to which `entry` belongs, is wherever that is.
    fn shadow(&self, entry: &Entry) -> bool {
        let Pattern { bytes, nocase, .. } = &entry.pattern;
        let mut shadowed = false;
        self.strings.scan(bytes, &mut |found| {
            shadowed = found.strings().filter_map(|text| self.texts.get(text)).any(|(length, in_either_case)| {
                let there = &bytes[found.end - length..found.end];
                // A pattern is in itself.
                let itself = usize::from(there.len() == bytes.len());
                if *nocase {
                    *in_either_case > itself
                } else {
                    *in_either_case > 0 || self.exact.get(there).is_some_and(|exact| *exact > itself)
                }
            });
            if shadowed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        shadowed
    }
}

/// Refuses patterns of which too many are one text in lower case, before they are compiled: every text that ends with it
/// would list them all.
fn refuse_crowds(left: &[&Entry]) -> Result<(), SetError> {
    let mut alike: HashMap<Vec<u8>, usize> = HashMap::new();
    for entry in left {
        *alike.entry(entry.pattern.bytes.to_ascii_lowercase()).or_default() += 1;
    }
    let many = |entry: &&&Entry| alike.get(&entry.pattern.bytes.to_ascii_lowercase()).copied().unwrap_or(0);
    match left.iter().find(|entry| many(entry) > MOST_AT_ONE_PLACE) {
        Some(entry) => Err(SetError::Crowded(many(&entry), entry.pattern.to_string())),
        None => Ok(()),
    }
}
