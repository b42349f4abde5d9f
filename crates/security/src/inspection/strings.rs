//! Searches many payloads for thousands of strings at once.
//!
//! An Aho-Corasick automaton (Aho and Corasick, *Communications of the ACM* 18, 1975) takes one step for each byte, and
//! each step depends on the one before. The processor therefore mostly waits for the cache. To overlap the loads, the
//! search interleaves several payloads ([`LANES`]).

use std::ops::ControlFlow;

use aho_corasick::automaton::{Automaton, StateID};
use aho_corasick::{Anchored, MatchKind, PatternID, dfa, nfa};
use thiserror::Error;

/// The number of payloads that are interleaved. The state of more payloads does not fit into the registers.
const LANES: usize = 4;
/// The largest memory of a transition table, in bytes. A larger automaton keeps its transitions as lists, which take a
/// fraction of the memory and are slower.
pub const MOST_TABLE: usize = 64 << 20;
/// The largest number of bytes of all strings together.
pub const MOST_BYTES: usize = 8 << 20;

/// A compiled set of strings. Each string has its index in the set as a number.
#[derive(Clone, Debug)]
pub struct Strings(CompiledStrings);

/// The automaton as a table if that is small enough, otherwise as lists.
#[derive(Clone, Debug)]
enum CompiledStrings {
    Table(Box<dfa::DFA>),
    Lists(Box<nfa::contiguous::NFA>),
}

/// The reason why strings cannot be compiled.
#[derive(Debug, Error)]
pub enum BuildError {
    /// The strings have too many bytes.
    #[error("the strings have {0} bytes together: allowed are up to {MOST_BYTES}")]
    TooLong(usize),
    /// The library refuses the strings.
    #[error("{0}")]
    Refused(#[from] aho_corasick::BuildError),
}

impl Strings {
    /// Compiles strings, none of which may be empty. With `nocase`, ASCII letters match in either case.
    ///
    /// # Errors
    /// The strings are too large.
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
            return Ok(Self(CompiledStrings::Table(Box::new(table))));
        }
        let lists = nfa::contiguous::Builder::new().build_from_noncontiguous(&built)?;
        Ok(Self(CompiledStrings::Lists(Box::new(lists))))
    }

    /// Returns the memory taken, in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            CompiledStrings::Table(table) => table.memory_usage(),
            CompiledStrings::Lists(lists) => lists.memory_usage(),
        }
    }

    /// Returns true if the automaton is a table, whose steps take one load each.
    #[must_use]
    pub fn is_table(&self) -> bool {
        matches!(self.0, CompiledStrings::Table(_))
    }

    /// Calls `sink` with all matches in `bytes`, in the order of their ends.
    #[inline]
    pub fn scan(&self, bytes: &[u8], sink: &mut impl FnMut(Found<'_>) -> ControlFlow<()>) {
        let mut numbered = |_: usize, found: Found<'_>| sink(found);
        match &self.0 {
            CompiledStrings::Table(table) => Lane::new(&**table, 0, bytes).finish(&mut numbered),
            CompiledStrings::Lists(lists) => Lane::new(&**lists, 0, bytes).finish(&mut numbered),
        }
    }
}

/// The approximate memory of a state with lists, in bytes: two transitions, for a letter in either case, and the
/// failure transition.
const LIST_STATE: usize = 32;

/// Estimates the memory of the compiled strings, in bytes, without compiling them.
#[must_use]
pub fn estimate(strings: &[&[u8]], nocase: bool) -> usize {
    let table = table_bytes(strings, nocase);
    if table <= MOST_TABLE { table } else { strings.iter().map(|string| string.len()).sum::<usize>() * LIST_STATE }
}

/// Returns the memory of a transition table: a state for each different prefix of a string, and a column for each
/// different byte.
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
    let mut present = [false; 256];
    sorted.iter().flatten().for_each(|byte| present[usize::from(*byte)] = true);
    let columns = present.iter().filter(|present| **present).count() * if nocase { 2 } else { 1 } + 1;
    states * columns.next_power_of_two().min(256) * size_of::<u32>()
}

/// The strings that end at one position of a payload. Each string is a suffix of the string before it.
pub struct Found<'a> {
    automaton: AutomatonRef<'a>,
    state: StateID,
    /// The position: the number of bytes of the payload up to the end of the strings.
    pub end: usize,
}

#[derive(Clone, Copy)]
enum AutomatonRef<'a> {
    Table(&'a dfa::DFA),
    Lists(&'a nfa::contiguous::NFA),
}

impl Found<'_> {
    /// Iterates over the numbers of the strings, from the longest to the shortest. Equal strings come in the order of
    /// their numbers.
    #[inline]
    pub fn strings(&self) -> impl Iterator<Item = usize> + '_ {
        let count = match self.automaton {
            AutomatonRef::Table(table) => table.match_len(self.state),
            AutomatonRef::Lists(lists) => lists.match_len(self.state),
        };
        (0..count).map(|at| self.string(at))
    }

    #[inline]
    fn string(&self, at: usize) -> usize {
        let id: PatternID = match self.automaton {
            AutomatonRef::Table(table) => table.match_pattern(self.state, at),
            AutomatonRef::Lists(lists) => lists.match_pattern(self.state, at),
        };
        id.as_usize()
    }
}

/// An automaton of one of the two kinds.
trait StringAutomaton: Automaton {
    /// Returns a reference that names the kind.
    fn by_kind(&self) -> AutomatonRef<'_>;
}

impl StringAutomaton for dfa::DFA {
    #[inline(always)]
    fn by_kind(&self) -> AutomatonRef<'_> {
        AutomatonRef::Table(self)
    }
}

impl StringAutomaton for nfa::contiguous::NFA {
    #[inline(always)]
    fn by_kind(&self) -> AutomatonRef<'_> {
        AutomatonRef::Lists(self)
    }
}

/// A payload and the strings to search it for.
#[derive(Clone, Copy)]
pub struct Job<'a> {
    /// The strings.
    pub strings: &'a Strings,
    /// The payload.
    pub bytes: &'a [u8],
}

/// The state of the search in one payload.
struct Lane<'a, A> {
    automaton: &'a A,
    /// The number of the payload.
    job: usize,
    /// The bytes that remain.
    rest: &'a [u8],
    /// The number of bytes processed.
    done: usize,
    /// The automaton's state after `done` bytes.
    state: StateID,
}

// By hand, because `derive` would require `A: Copy`.
impl<A> Clone for Lane<'_, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A> Copy for Lane<'_, A> {}

impl<'a, A: StringAutomaton> Lane<'a, A> {
    /// Creates the state before the first byte of a payload.
    #[inline]
    fn new(automaton: &'a A, job: usize, bytes: &'a [u8]) -> Self {
        // Both kinds are built for unanchored searches.
        let (state, rest) =
            automaton.start_state(Anchored::No).map_or((StateID::ZERO, &[][..]), |state| (state, bytes));
        Self { automaton, job, rest, done: 0, state }
    }

    /// Searches the rest of the payload.
    #[inline]
    fn finish(self, sink: &mut impl FnMut(usize, Found<'_>) -> ControlFlow<()>) {
        let Self { automaton, job, rest, done, mut state } = self;
        for (at, byte) in rest.iter().enumerate() {
            state = automaton.next_state(Anchored::No, state, *byte);
            if automaton.is_special(state) && automaton.is_match(state) {
                let found = Found { automaton: automaton.by_kind(), state, end: done + at + 1 };
                if sink(job, found).is_break() {
                    return;
                }
            }
        }
    }
}

/// Calls `sink` with the number of a payload and a match in it, for all matches in all payloads. If `sink` breaks, the
/// search in that payload ends. The matches of one payload come in the order of their ends. The matches of different
/// payloads are interleaved. The number of a payload is its index in `jobs`.
#[inline]
pub fn scan<'a, J: Iterator<Item = Job<'a>> + Clone>(
    jobs: J,
    sink: &mut impl FnMut(usize, Found<'_>) -> ControlFlow<()>,
) {
    let mut lists = false;
    let tables = jobs.clone().enumerate().filter_map(|(number, job)| match &job.strings.0 {
        CompiledStrings::Table(table) => Some(Lane::new(&**table, number, job.bytes)),
        CompiledStrings::Lists(_) => {
            lists = true;
            None
        }
    });
    search_interleaved(tables, sink);
    if lists {
        let lists = jobs.enumerate().filter_map(|(number, job)| match &job.strings.0 {
            CompiledStrings::Lists(lists) => Some(Lane::new(&**lists, number, job.bytes)),
            CompiledStrings::Table(_) => None,
        });
        search_interleaved(lists, sink);
    }
}

/// Searches [`LANES`] payloads at a time. When fewer remain, they are searched one after the other.
#[inline]
fn search_interleaved<'a, A: StringAutomaton + 'a>(
    waiting: impl Iterator<Item = Lane<'a, A>>,
    sink: &mut impl FnMut(usize, Found<'_>) -> ControlFlow<()>,
) {
    let mut waiting = waiting.filter(|lane| !lane.rest.is_empty());
    let mut lanes: [Option<Lane<'_, A>>; LANES] = std::array::from_fn(|_| waiting.next());
    while let [Some(a), Some(b), Some(c), Some(d)] = lanes {
        let mut running = [a, b, c, d];
        advance_together(&mut running, sink);
        for (lane, ran) in lanes.iter_mut().zip(running) {
            *lane = if ran.rest.is_empty() { waiting.next() } else { Some(ran) };
        }
    }
    for lane in lanes.into_iter().flatten() {
        lane.finish(sink);
    }
}

/// Advances all lanes by the same number of steps, until one of them is at its end or `sink` breaks.
#[inline(always)]
fn advance_together<A: StringAutomaton>(
    lanes: &mut [Lane<'_, A>; LANES],
    sink: &mut impl FnMut(usize, Found<'_>) -> ControlFlow<()>,
) {
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
            let enough = report_matches(lanes, &states, at, sink);
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

/// Reports the matches at position `at` of the present steps. Returns the lanes for which `sink` breaks.
#[inline(never)]
fn report_matches<A: StringAutomaton>(
    lanes: &[Lane<'_, A>; LANES],
    states: &[StateID; LANES],
    at: usize,
    sink: &mut impl FnMut(usize, Found<'_>) -> ControlFlow<()>,
) -> [bool; LANES] {
    std::array::from_fn(|lane| {
        let (Lane { automaton, job, done, .. }, state) = (lanes[lane], states[lane]);
        automaton.is_match(state)
            && sink(job, Found { automaton: automaton.by_kind(), state, end: done + at + 1 }).is_break()
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
        Strings(CompiledStrings::Lists(Box::new(builder.build(strings).expect("few"))))
    }

    /// Compares every string at every position. Returns payload, string and end of each match.
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
        fn all_matches_are_found(
            strings in vec(vec(byte(), 1..6), 1..20),
            payloads in vec(vec(byte(), 0..40), 0..12),
            nocase: bool,
            as_lists: bool,
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
            // If `sink` breaks after the first match, it is not called again for that payload.
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
            // The search of single payloads gives the same matches.
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
    fn strings_too_large_for_a_table_are_kept_as_lists() {
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
