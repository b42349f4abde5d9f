//! Thousands of strings sought in many payloads at once.
//!
//! An Aho-Corasick automaton (Aho and Corasick, *Communications of the ACM* 18, 1975) takes one step for each byte, and each
//! step waits for the one before: the processor idles for the cache most of the time. So several payloads are stepped
//! through in turn ([`LANES`]), which has as many loads under way.

use std::ops::ControlFlow;

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::{Anchored, MatchKind, PatternID, dfa, nfa};
use thiserror::Error;

/// Payloads that are stepped through in turn: more do not fit the registers.
const LANES: usize = 4;
/// The most memory that a table of all steps may take: beyond it states are kept as lists, which take a fraction of it and
/// are walked more slowly.
pub const MOST_TABLE: usize = 64 << 20;
/// The most bytes of all strings together.
pub const MOST_BYTES: usize = 8 << 20;

/// Strings that were compiled together. Each is known by its place among them.
#[derive(Clone, Debug)]
pub struct Strings(Form);

#[derive(Clone, Debug)]
enum Form {
    Table(Box<dfa::DFA>),
    Lists(Box<nfa::contiguous::NFA>),
}

/// Why strings cannot be compiled.
#[derive(Debug, Error)]
pub enum BuildError {
    /// There are too many.
    #[error("the strings have {0} bytes together: allowed are up to {MOST_BYTES}")]
    TooLong(usize),
    /// The library refuses them.
    #[error("{0}")]
    Refused(#[from] aho_corasick::BuildError),
}

impl Strings {
    /// Compiles strings, none of which may be empty. With `nocase` ASCII letters are found in either case.
    ///
    /// # Errors
    /// They are too much.
    pub fn new(strings: &[&[u8]], nocase: bool) -> Result<Self, BuildError> {
        let bytes = strings.iter().map(|string| string.len()).sum();
        if bytes > MOST_BYTES {
            return Err(BuildError::TooLong(bytes));
        }
        let mut builder = nfa::noncontiguous::Builder::new();
        builder.match_kind(MatchKind::Standard).ascii_case_insensitive(nocase).prefilter(false);
        let built = builder.build(strings)?;
        if table_bytes(strings, nocase) <= MOST_TABLE {
            let table = dfa::Builder::new().build_from_noncontiguous(&built)?;
            return Ok(Self(Form::Table(Box::new(table))));
        }
        let lists = nfa::contiguous::Builder::new().build_from_noncontiguous(&built)?;
        Ok(Self(Form::Lists(Box::new(lists))))
    }

    /// What it takes in memory, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            Form::Table(table) => table.memory_usage(),
            Form::Lists(lists) => lists.memory_usage(),
        }
    }

    /// Whether each step is one load.
    #[must_use]
    pub fn is_table(&self) -> bool {
        matches!(self.0, Form::Table(_))
    }

    /// Tells `sink` of everything that is found in `bytes`, place by place from the first.
    #[inline]
    pub fn scan(&self, bytes: &[u8], sink: &mut impl FnMut(Found<'_>) -> ControlFlow<()>) {
        let mut numbered = |_: usize, found: Found<'_>| sink(found);
        match &self.0 {
            Form::Table(table) => Lane::new(&**table, 0, bytes).finish(&mut numbered),
            Form::Lists(lists) => Lane::new(&**lists, 0, bytes).finish(&mut numbered),
        }
    }
}

/// About what a state of a list takes, in bytes: two steps, for a letter in either case, and where to go on elsewhere.
const LIST_STATE: usize = 32;

/// About what strings will take in memory, in bytes, told without compiling them.
#[must_use]
pub fn estimate(strings: &[&[u8]], nocase: bool) -> usize {
    let table = table_bytes(strings, nocase);
    if table <= MOST_TABLE { table } else { strings.iter().map(|string| string.len()).sum::<usize>() * LIST_STATE }
}

/// What a table of all steps takes: a state for each different beginning of a string, a column for each different byte.
fn table_bytes(strings: &[&[u8]], nocase: bool) -> usize {
    let fold = |bytes: &[u8]| if nocase { bytes.to_ascii_lowercase() } else { bytes.to_vec() };
    let mut sorted: Vec<Vec<u8>> = strings.iter().map(|string| fold(string)).collect();
    sorted.sort_unstable();
    let mut states = 4;
    let mut before: &[u8] = &[];
    for string in &sorted {
        let common = before.iter().zip(string).take_while(|(one, other)| one == other).count();
        states += string.len() - common;
        before = string;
    }
    let mut there = [false; 256];
    sorted.iter().flatten().for_each(|byte| there[usize::from(*byte)] = true);
    let columns = there.iter().filter(|there| **there).count() * if nocase { 2 } else { 1 } + 1;
    states * columns.next_power_of_two().min(256) * size_of::<u32>()
}

/// Strings that end at one place of a payload: each is the end of the one before.
pub struct Found<'a> {
    form: At<'a>,
    state: StateID,
    /// How many bytes of the payload are up to there.
    pub end: usize,
}

#[derive(Clone, Copy)]
enum At<'a> {
    Table(&'a dfa::DFA),
    Lists(&'a nfa::contiguous::NFA),
}

impl Found<'_> {
    /// The strings' numbers, from the longest. Equal strings come in their order.
    #[inline]
    pub fn strings(&self) -> impl Iterator<Item = usize> + '_ {
        let count = match self.form {
            At::Table(table) => table.match_len(self.state),
            At::Lists(lists) => lists.match_len(self.state),
        };
        (0..count).map(|at| self.string(at))
    }

    #[inline]
    fn string(&self, at: usize) -> usize {
        let id: PatternID = match self.form {
            At::Table(table) => table.match_pattern(self.state, at),
            At::Lists(lists) => lists.match_pattern(self.state, at),
        };
        id.as_usize()
    }
}

/// An automaton that says what it is.
trait Steps: Automaton {
    fn at(&self) -> At<'_>;
}

impl Steps for dfa::DFA {
    #[inline(always)]
    fn at(&self) -> At<'_> {
        At::Table(self)
    }
}

impl Steps for nfa::contiguous::NFA {
    #[inline(always)]
    fn at(&self) -> At<'_> {
        At::Lists(self)
    }
}

/// A payload in which strings are sought.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The strings.
    pub strings: &'a Strings,
    /// The payload.
    pub bytes: &'a [u8],
}

/// A payload that is being stepped through.
struct Lane<'a, A> {
    automaton: &'a A,
    job: usize,
    /// What is left of it.
    rest: &'a [u8],
    /// How many bytes are done.
    done: usize,
    state: StateID,
}

// By hand: the automaton need not be one that can be copied.
impl<A> Clone for Lane<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Lane<'_, A> {}

impl<'a, A: Steps> Lane<'a, A> {
    #[inline]
    fn new(automaton: &'a A, job: usize, bytes: &'a [u8]) -> Self {
        // Both forms are made for searches that begin anywhere.
        let (state, rest) =
            automaton.start_state(Anchored::No).map_or((StateID::ZERO, &[][..]), |state| (state, bytes));
        Self { automaton, job, rest, done: 0, state }
    }

    /// Goes on to the payload's end.
    #[inline]
    fn finish(self, sink: &mut impl FnMut(usize, Found<'_>) -> ControlFlow<()>) {
        let Self { automaton, job, rest, done, mut state } = self;
        for (at, byte) in rest.iter().enumerate() {
            state = automaton.next_state(Anchored::No, state, *byte);
            if automaton.is_special(state) && automaton.is_match(state) {
                let found = Found { form: automaton.at(), state, end: done + at + 1 };
                if sink(job, found).is_break() {
                    return;
                }
            }
        }
    }
}

/// Tells `sink` of everything that is found in each of the payloads, by its number, until it has had enough of that one. What is
/// found in one payload is told from its beginning on; the payloads take turns.
#[inline]
pub fn scan<'a, J: Iterator<Item = Job<'a>> + Clone>(
    jobs: J,
    sink: &mut impl FnMut(usize, Found<'_>) -> ControlFlow<()>,
) {
    let mut lists = false;
    let tables = jobs.clone().enumerate().filter_map(|(number, job)| match &job.strings.0 {
        Form::Table(table) => Some(Lane::new(&**table, number, job.bytes)),
        Form::Lists(_) => {
            lists = true;
            None
        }
    });
    by_turns(tables, sink);
    if lists {
        let lists = jobs.enumerate().filter_map(|(number, job)| match &job.strings.0 {
            Form::Lists(lists) => Some(Lane::new(&**lists, number, job.bytes)),
            Form::Table(_) => None,
        });
        by_turns(lists, sink);
    }
}

/// Steps through payloads by turns.
#[inline]
fn by_turns<'a, A: Steps + 'a>(
    waiting: impl Iterator<Item = Lane<'a, A>>,
    sink: &mut impl FnMut(usize, Found<'_>) -> ControlFlow<()>,
) {
    let mut waiting = waiting.filter(|lane| !lane.rest.is_empty());
    let mut lanes: [Option<Lane<'_, A>>; LANES] = std::array::from_fn(|_| waiting.next());
    while let [Some(a), Some(b), Some(c), Some(d)] = lanes {
        let mut running = [a, b, c, d];
        stretch(&mut running, sink);
        for (lane, ran) in lanes.iter_mut().zip(running) {
            *lane = if ran.rest.is_empty() { waiting.next() } else { Some(ran) };
        }
    }
    for lane in lanes.into_iter().flatten() {
        lane.finish(sink);
    }
}

/// Steps through all lanes until one of them is at its end.
#[inline(always)]
fn stretch<A: Steps>(lanes: &mut [Lane<'_, A>; LANES], sink: &mut impl FnMut(usize, Found<'_>) -> ControlFlow<()>) {
    let length = lanes.iter().map(|lane| lane.rest.len()).min().unwrap_or(0);
    let automata = lanes.map(|lane| lane.automaton);
    let mut states = lanes.map(|lane| lane.state);
    let [a, b, c, d] = lanes.map(|lane| &lane.rest[..length]);
    let mut done = length;
    for at in 0..length {
        let bytes = [a[at], b[at], c[at], d[at]];
        let mut special = false;
        for lane in 0..LANES {
            states[lane] = automata[lane].next_state(Anchored::No, states[lane], bytes[lane]);
            special |= automata[lane].is_special(states[lane]);
        }
        if special {
            let enough = tell(lanes, &states, at, sink);
            if enough != [false; LANES] {
                for (lane, _) in lanes.iter_mut().zip(enough).filter(|(_, enough)| *enough) {
                    lane.rest = &[];
                }
                done = at + 1;
                break;
            }
        }
    }
    for (lane, state) in lanes.iter_mut().zip(states) {
        (lane.rest, lane.state) = (lane.rest.get(done..).unwrap_or_default(), state);
        lane.done += done;
    }
}

/// Tells what was found at place `at` of the stretch, and which lanes' payloads that was enough of.
#[inline(never)]
fn tell<A: Steps>(
    lanes: &[Lane<'_, A>; LANES],
    states: &[StateID; LANES],
    at: usize,
    sink: &mut impl FnMut(usize, Found<'_>) -> ControlFlow<()>,
) -> [bool; LANES] {
    std::array::from_fn(|lane| {
        let (Lane { automaton, job, done, .. }, state) = (lanes[lane], states[lane]);
        automaton.is_match(state) && sink(job, Found { form: automaton.at(), state, end: done + at + 1 }).is_break()
    })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn lists(strings: &[&[u8]], nocase: bool) -> Strings {
        let mut builder = nfa::contiguous::Builder::new();
        builder.match_kind(MatchKind::Standard).ascii_case_insensitive(nocase).prefilter(false);
        Strings(Form::Lists(Box::new(builder.build(strings).expect("few"))))
    }

    /// Every string at every place: payload, string, end.
    fn naive(strings: &[Vec<u8>], payloads: &[Vec<u8>], nocase: bool) -> Vec<(usize, usize, usize)> {
        let mut all = Vec::new();
        for (job, payload) in payloads.iter().enumerate() {
            for (number, string) in strings.iter().enumerate() {
                for (at, window) in payload.windows(string.len()).enumerate() {
                    if window == &string[..] || nocase && window.eq_ignore_ascii_case(string) {
                        all.push((job, number, at + string.len()));
                    }
                }
            }
        }
        all.sort_unstable();
        all
    }

    fn byte() -> impl Strategy<Value = u8> {
        prop_oneof![4 => prop::sample::select(b"abAB".to_vec()), 1 => any::<u8>()]
    }

    proptest! {
        #[test]
        fn all_that_is_there_is_found(
            strings in vec(vec(byte(), 1..6), 1..20), payloads in vec(vec(byte(), 0..40), 0..12), nocase: bool, as_lists: bool,
        ) {
            let given: Vec<&[u8]> = strings.iter().map(Vec::as_slice).collect();
            let compiled = if as_lists { lists(&given, nocase) } else { Strings::new(&given, nocase).expect("few") };
            prop_assert_eq!(compiled.is_table(), !as_lists);
            let jobs: Vec<_> = payloads.iter().map(|bytes| Job { strings: &compiled, bytes }).collect();
            let (mut found, mut last) = (Vec::new(), vec![0; jobs.len()]);
            scan(jobs.iter().copied(), &mut |job, at| {
                assert!(last[job] < at.end, "in order");
                last[job] = at.end;
                found.extend(at.strings().map(|string| (job, string, at.end)));
                ControlFlow::Continue(())
            });
            found.sort_unstable();
            prop_assert_eq!(&found, &naive(&strings, &payloads, nocase));
            // Whoever has enough after the first hears of no second.
            let mut first = Vec::new();
            scan(jobs.iter().copied(), &mut |job, at| {
                first.push((job, at.end));
                ControlFlow::Break(())
            });
            first.sort_unstable();
            let mut expected: Vec<_> = found.iter().map(|(job, _, end)| (*job, *end)).collect();
            expected.sort_unstable();
            expected.dedup_by_key(|(job, _)| *job);
            prop_assert_eq!(first, expected);
            // One by one it is the same.
            let mut alone = Vec::new();
            for (job, bytes) in payloads.iter().enumerate() {
                compiled.scan(bytes, &mut |at| {
                    alone.extend(at.strings().map(|string| (job, string, at.end)));
                    ControlFlow::Continue(())
                });
            }
            alone.sort_unstable();
            prop_assert_eq!(alone, found);
        }
    }

    #[test]
    fn what_is_too_large_for_a_table_is_kept_as_lists() {
        let strings: Vec<Vec<u8>> =
            (0..3_000u32).map(|n| (0..40).map(|at| (n * 31 + at * n / 7) as u8).collect()).collect();
        let given: Vec<&[u8]> = strings.iter().map(Vec::as_slice).collect();
        let compiled = Strings::new(&given, false).expect("fewer than most");
        assert!(!compiled.is_table() && compiled.memory_bytes() < 16 << 20, "{}", compiled.memory_bytes());
        let estimated = estimate(&given, false);
        let near = estimated / 4..estimated * 4;
        assert!(near.contains(&compiled.memory_bytes()), "{}, not {estimated}", compiled.memory_bytes());
        let few = Strings::new(&given[..100], true).expect("fewer than most");
        let estimated = estimate(&given[..100], true);
        let near = estimated / 4..estimated * 4;
        assert!(few.is_table() && near.contains(&few.memory_bytes()), "{}, not {estimated}", few.memory_bytes());
        let long = vec![0u8; MOST_BYTES + 1];
        assert!(Strings::new(&[&long], false).expect_err("too long").to_string().contains("8388609 bytes"));
    }
}
