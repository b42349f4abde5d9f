//! PCRE-compatible regular expressions over payloads, in bounded time and without allocation.
//!
//! An expression is compiled into a table (a deterministic automaton) if the table is small. Otherwise the search
//! simulates a nondeterministic automaton: each byte then takes time in proportion to the number of states. These two
//! methods never backtrack, so no payload takes exponential time. Look-around, back-references and the end of a match
//! need a backtracking search. That search counts its steps and gives up at a limit.

mod plain;
mod program;
mod syntax;
mod walk;

use std::sync::Arc;

use forebay_graph::short;
use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::nfa::thompson::pikevm::{Cache, PikeVM};
use regex_automata::util::syntax as library;
use regex_automata::{Anchored, Input, MatchKind};

use program::Program;
use syntax::Flags;
pub use walk::{Budget, Undecided, Walk};

/// The largest table of one expression, in bytes.
const MAX_TABLE_BYTES: usize = 256 << 10;
/// The largest compiled expression, in bytes.
const MAX_NFA_BYTES: usize = 256 << 10;
/// The longest expression text, in bytes.
const MAX_LENGTH: usize = 4_096;

/// A regular expression of a rule.
#[derive(Clone, Debug)]
pub struct Regex {
    /// The text in the rule.
    text: String,
    /// True if the search starts at the end of the previous option (`R`).
    relative: bool,
    /// The automaton that decides whether the expression matches; `None` if only a backtracking search can decide it.
    automaton: Option<CompiledRegex>,
    /// The program of the backtracking search, which finds where the expression matches; `None` if it is not needed or
    /// would be too large.
    program: Option<Arc<Program>>,
}

/// An automaton, which takes a bounded time for each byte.
#[derive(Clone, Debug)]
enum CompiledRegex {
    /// A deterministic automaton.
    Table(Arc<dense::DFA<Vec<u32>>>),
    /// A nondeterministic automaton, whose states are simulated.
    Simulated(Arc<PikeVM>),
}

/// A worker's memory to search with an expression.
pub struct SearchCache(Option<Cache>);

/// The known flags.
const FLAGS: &str = "i, s, m, x, A, E, G, R, B and O";

impl Regex {
    /// Parses `/expression/flags`, or `m` with another delimiter. With `latin1`, each character is one byte.
    ///
    /// # Errors
    /// The error and the allowed values.
    pub fn parse(text: &str, latin1: bool) -> Result<Self, String> {
        let wrong = || format!("an expression has the form \"/EXPRESSION/FLAGS\", with the flags {FLAGS}");
        let delimiter = match text.strip_prefix('m') {
            Some(rest) => rest.chars().next().filter(char::is_ascii_punctuation),
            None => Some('/'),
        };
        let (delimiter, rest) = delimiter.zip(Some(text.strip_prefix('m').unwrap_or(text))).ok_or_else(wrong)?;
        let (expression, letters) =
            rest.strip_prefix(delimiter).and_then(|rest| rest.rsplit_once(delimiter)).ok_or_else(wrong)?;
        if expression.len() > MAX_LENGTH {
            return Err(format!("an expression of {} bytes: allowed are up to {MAX_LENGTH}", expression.len()));
        }
        let (mut flags, mut relative) = (Flags::default(), false);
        for flag in letters.chars() {
            match flag {
                'i' => flags.nocase = true,
                's' => flags.dot_all = true,
                'm' => flags.lines = true,
                'x' => flags.spaced = true,
                'A' => flags.anchored = true,
                'E' => flags.end_only = true,
                'G' => flags.ungreedy = true,
                'R' => relative = true,
                // `B`: the payload is never decoded. `O`: the limit of steps is a parameter of the module.
                'B' | 'O' => {}
                'U' | 'I' | 'P' | 'H' | 'D' | 'M' | 'C' | 'K' | 'S' | 'Y' => {
                    return Err(format!("the flag '{flag}': HTTP buffers are not supported yet; allowed are {FLAGS}"));
                }
                _ => return Err(format!("unknown flag '{flag}': allowed are {FLAGS}")),
            }
        }
        let bytes: Vec<u8> = match latin1 {
            true => expression.chars().map(|letter| letter as u8).collect(),
            false => expression.as_bytes().to_vec(),
        };
        let node = syntax::parse(&bytes, flags).map_err(|error| format!("'{}': {error}", short(text)))?;
        let automaton = match plain::plain(&node) {
            Some(plain) => Some(CompiledRegex::of(&plain, &short(text))?),
            None => None,
        };
        let program = match (Program::new(&node), &automaton) {
            (Ok(program), _) => Some(Arc::new(program)),
            (Err(_), Some(_)) => None,
            (Err(error), None) => return Err(format!("'{}': {error}", short(text))),
        };
        Ok(Self { text: text.to_owned(), relative, automaton, program })
    }

    /// Frees the program of the backtracking search if it is not needed: if `find` is false and the expression has an
    /// automaton. `find` must be true if [`find`](Self::find) will be called. Must be called once, after all options of
    /// the rule are parsed.
    ///
    /// # Errors
    /// The expression is too large for [`find`](Self::find).
    pub fn keep(&mut self, find: bool) -> Result<(), String> {
        if self.automaton.is_some() && !find {
            self.program = None;
        } else if self.program.is_none() {
            return Err(format!(
                "'{}' is too large for options that are relative to its match: use fewer repetitions",
                short(&self.text)
            ));
        }
        Ok(())
    }

    /// Returns the text in the rule.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns true if the search must start at the end of the previous option. The caller passes only the bytes from
    /// there on.
    #[must_use]
    pub fn is_relative(&self) -> bool {
        self.relative
    }

    /// Returns true if the expression is a table, whose steps take one load each.
    #[must_use]
    pub fn is_table(&self) -> bool {
        matches!(self.automaton, Some(CompiledRegex::Table(_)))
    }

    /// Returns true if searches with this expression need memory in [`Walk`].
    #[must_use]
    pub fn walks(&self) -> bool {
        self.program.is_some()
    }

    /// Creates a worker's memory for searches with this expression.
    #[must_use]
    pub fn cache(&self) -> SearchCache {
        SearchCache(match &self.automaton {
            None | Some(CompiledRegex::Table(_)) => None,
            Some(CompiledRegex::Simulated(states)) => {
                let mut cache = states.create_cache();
                // The cache grows to its full size in the first search. This search makes it grow now, and not when the
                // first packets come.
                states.is_match(&mut cache, [0u8; 64].as_slice());
                Some(cache)
            }
        })
    }

    /// Returns true if the expression matches anywhere in `bytes`. `cache` must be a [`cache`](Self::cache) of this
    /// expression.
    ///
    /// # Errors
    /// The search takes too many steps.
    pub fn is_match(
        &self,
        cache: &mut SearchCache,
        walk: &mut Walk,
        bytes: &[u8],
        budget: &mut Budget,
    ) -> Result<bool, Undecided> {
        let input = Input::new(bytes).anchored(Anchored::No).earliest(true);
        match (&self.automaton, &mut cache.0) {
            (Some(CompiledRegex::Table(table)), _) => {
                Ok(table.try_search_fwd(&input).is_ok_and(|found| found.is_some()))
            }
            (Some(CompiledRegex::Simulated(states)), Some(cache)) => Ok(states.is_match(cache, input)),
            (Some(CompiledRegex::Simulated(_)), None) => Ok(false),
            (None, _) => self.find(walk, bytes, 0, budget).map(|found| found.is_some()),
        }
    }

    /// Returns the start and the end of the first match that begins at `from` or later. Finds nothing if
    /// [`keep`](Self::keep) has freed the program.
    ///
    /// # Errors
    /// The search takes too many steps.
    pub fn find(
        &self,
        walk: &mut Walk,
        bytes: &[u8],
        from: usize,
        budget: &mut Budget,
    ) -> Result<Option<(usize, usize)>, Undecided> {
        self.program.as_ref().map_or(Ok(None), |program| walk.find(program, bytes, from, budget))
    }
}

impl CompiledRegex {
    /// Compiles an expression without look-around and back-references. `short` is its name in errors.
    fn of(plain: &str, short: &str) -> Result<Self, String> {
        let config = library::Config::new().unicode(false).utf8(false).nest_limit(500);
        let refused = |error: &dyn std::fmt::Display| {
            // The library's message shows the position in the expression over several lines. Only its last line is
            // used.
            let error = error.to_string();
            let fault = error.lines().rev().find(|line| line.starts_with("error: ")).unwrap_or(&error);
            format!("'{short}': {}", fault.trim_start_matches("error: "))
        };
        let mut compiler = thompson::Compiler::new();
        compiler.syntax(config).configure(
            thompson::Config::new()
                .utf8(false)
                .nfa_size_limit(Some(MAX_NFA_BYTES))
                .which_captures(thompson::WhichCaptures::None),
        );
        let states = compiler.build(plain).map_err(|error| match error.size_limit() {
            Some(_) => {
                format!("'{short}': it takes more than {} KiB: use fewer repetitions", MAX_NFA_BYTES >> 10)
            }
            None => refused(&RootCause(&error)),
        })?;
        let mut builder = dense::Builder::new();
        builder.configure(
            dense::Config::new()
                .match_kind(MatchKind::All)
                .start_kind(StartKind::Unanchored)
                .dfa_size_limit(Some(MAX_TABLE_BYTES))
                .determinize_size_limit(Some(4 * MAX_TABLE_BYTES)),
        );
        Ok(match builder.build_from_nfa(&states) {
            Ok(table) => Self::Table(Arc::new(table)),
            Err(_) => {
                Self::Simulated(Arc::new(PikeVM::builder().build_from_nfa(states).map_err(|error| refused(&error))?))
            }
        })
    }
}

/// Displays the cause of a build error, which has more details than the error itself.
struct RootCause<'a>(&'a thompson::BuildError);

impl std::fmt::Display for RootCause<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match std::error::Error::source(self.0) {
            Some(source) => write!(f, "{source}"),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Regex {
        Regex::parse(text, false).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Returns true if the expression matches. Checks that both searches agree.
    fn matches(text: &str, bytes: &[u8]) -> bool {
        let regex = parse(text);
        let (mut walk, mut budget) = (Walk::new(true), Budget::new(1 << 20));
        let found = regex.is_match(&mut regex.cache(), &mut walk, bytes, &mut budget).expect("few steps");
        let walked = regex.find(&mut walk, bytes, 0, &mut budget).expect("few steps");
        assert_eq!(walked.is_some(), found, "{text}");
        found
    }

    #[test]
    fn expressions_are_over_bytes() {
        assert!(matches(r"/ab+c/", b"xxabbbc"));
        assert!(!matches(r"/ab+c/", b"ABC") && matches("/ab+c/i", b"ABC"));
        assert!(!matches("/a.b/", b"a\nb") && matches("/a.b/s", b"a\nb"));
        assert!(!matches("/^b/", b"a\nb") && matches("/^b/m", b"a\nb"));
        assert!(matches("/a b # and/x", b"ab"));
        assert!(matches(r"/\xff\x00[\x80-\xfe]/", b"\xff\0\x90"));
        assert!(matches(r"/^\/a\/b\x2fc\;\:/", b"/a/b/c;:"));
        assert!(matches(r"/\bGET\b/", b"a GET "));
    }

    #[test]
    fn expressions_with_too_large_a_table_are_simulated_with_the_same_result() {
        let regex = parse("/a[ab]{14}c/");
        assert!(!regex.is_table(), "2^14 states");
        let (mut cache, mut walk, mut budget) = (regex.cache(), Walk::new(true), Budget::new(1 << 20));
        let mut is = |bytes: &[u8]| regex.is_match(&mut cache, &mut walk, bytes, &mut budget).expect("few steps");
        assert!(is(b"bbbabababababababac") && !is(&b"ab".repeat(4_000)));
    }

    #[test]
    fn expressions_mean_what_pcre_says() {
        for (text, yes, no) in [
            // A brace that does not begin a repetition is a literal.
            ("/a{,5}b/", &b"a{,5}b"[..], &b"aab"[..]),
            ("/a{2,}b/", b"aab", b"ab"),
            (r"/x{/", b"x{", b"x"),
            // Classes have no intersections and no nested classes.
            ("/[a&&b]/", b"&", b"c"),
            ("/[[a]+z/", b"[az", b"bz"),
            ("/[]a]z/", b"]z", b"bz"),
            ("/[^]a]z/", b"bz", b"]z"),
            ("/[a-c-e]/", b"-", b"d"),
            (r"/[\w-]z/", b"-z", b".z"),
            ("/[[:digit:][:^alpha:]]/", b"5", b"a"),
            (r"/\<a\>/", b"<a>", b"a"),
            // Without the flag E, a dollar also matches before a line feed at the end.
            ("/a$/", b"xa\n", b"a\nb"),
            ("/a$/E", b"xa", b"a\n"),
            ("/a$/m", b"a\nb", b"ab"),
            (r"/a\Z/", b"a\n", b"a\n\n"),
            ("/^b/m", b"a\nb", b"ab"),
            ("/b/A", b"b", b"ab"),
            (r"/\x4z/", b"\x04z", b"4z"),
            (r"/\x{41}\101\012\0/", b"AA\n\0", b"AA\n"),
            (r"/\Qa.b\E+c/", b"a.bbc", b"axbc"),
            (r"/\h\e\cA/", b"\t\x1b\x01", b"\t\x1b"),
            ("/a(?#comment)b/", b"ab", b"a"),
            ("/a(?i)b(?-i)c/", b"aBc", b"aBC"),
            ("/(?i:a)b/", b"Ab", b"AB"),
            ("m|a/b|i", b"A/B", b"ab"),
            // Look-around.
            ("/a(?=b)/", b"ab", b"ac"),
            ("/a(?!b)/", b"ac", b"ab"),
            ("/(?<=a)b/", b"ab", b"cb"),
            ("/(?<!a)b/", b"cb", b"ab"),
            ("/(?<=ab|c)d/", b"abd", b"bd"),
            (r"/^(?!.*failed).*user/", b"a user", b"failed user"),
            (r"/(?=.*a)(?=.*b)^c/", b"cba", b"ca"),
            // Back-references.
            (r"/(\w+)=\1/", b"ab=ab", b"ab=cd"),
            (r"/(a)(?P<n>b)\2(?P=n)\k<n>\g{2}\g{-1}/", b"abbbbbb", b"abbbbb"),
            (r"/(a)\1/i", b"aA", b"ab"),
            ("/([z'])x\\1/", b"'x'", b"'xz"),
            (r"/(?:(a)|b)\1/", b"aa", b"ba"),
            // Regression: a '(' in a comment or in a class with a name counted as a group.
            (r"/(?#()(?P<x>a)(?P=x)/", b"aa", b"ab"),
            ("/b# (\n(?<x>a)\\k<x>/x", b"baa", b"ba"),
            (r"/[[:alpha:](](?P<x>a)(?P=x)/", b"(aa", b"(ab"),
            // Atomic groups and possessive repetitions.
            ("/a++b/", b"aab", b"aa"),
            ("/a*+ab/", b"", b"aab"),
            ("/(?>a|ab)c/", b"ac", b"abc"),
            (r"/\Ra/", b"\r\na", b"a"),
        ] {
            if !yes.is_empty() {
                assert!(matches(text, yes), "{text} in {yes:?}");
            }
            assert!(!matches(text, no), "{text} not in {no:?}");
        }
    }

    #[test]
    fn a_match_ends_where_pcre_says() {
        for (text, subject, expected) in [
            ("/a+/", "xaay", (1, 3)),
            ("/a+?/", "xaay", (1, 2)),
            ("/a+/G", "xaay", (1, 2)),
            ("/a+?/G", "xaay", (1, 3)),
            ("/a|ab/", "ab", (0, 1)),
            ("/(?:ab|a)b?/", "abb", (0, 3)),
            ("/a{2,3}/", "aaaa", (0, 3)),
            ("/(?:ab){1,2}/", "ababab", (0, 4)),
            ("/a(?=b)/", "ab", (0, 1)),
            ("/x*/", "ab", (0, 0)),
            ("/(?:a*)*b/", "aab", (0, 3)),
            ("/(?:a|b)*?b/", "aab", (0, 3)),
            (r"/a.*c/", "abcbc", (0, 5)),
            (r"/a.*?c/", "abcbc", (0, 3)),
        ] {
            let found = parse(text).find(&mut Walk::new(true), subject.as_bytes(), 0, &mut Budget::new(10_000));
            assert_eq!(found, Ok(Some(expected)), "{text} in {subject}");
        }
        let second = parse("/^a|b/").find(&mut Walk::new(true), b"aab", 1, &mut Budget::new(100));
        assert_eq!(second, Ok(Some((2, 3))), "the start of the subject, not of the search");
    }

    /// Searches that would take exponential time or a deep stack.
    #[test]
    fn a_search_that_takes_too_many_steps_is_undecided() {
        for text in [r"/(a*)*\1c/", "/(?=((a+)+)$)ab/", r"/(?:(a|aa)+)+\1$c/", "/(?=(?:a|b|ab)*c)/", r"/((?:a|b)+)\1c/"]
        {
            let regex = parse(text);
            let mut walk = Walk::new(true);
            let subject = [b'a'; 9_000];
            let found = regex.is_match(&mut regex.cache(), &mut walk, &subject, &mut Budget::new(100_000));
            assert_eq!(found, Err(Undecided), "{text}");
            // The next search still works.
            assert_eq!(parse("/a(?=b)/").find(&mut walk, b"ab", 0, &mut Budget::new(100)), Ok(Some((0, 1))));
        }
    }

    #[test]
    fn invalid_expressions_are_refused() {
        for (text, expected) in [
            ("abc", "an expression has the form"),
            ("/a/U", "the flag 'U': HTTP buffers are not supported yet"),
            ("/a/z", "unknown flag 'z': allowed are i, s, m, x, A, E, G, R, B and O"),
            ("/(/", "unclosed group"),
            ("/a)/", "a ')' has no matching '('"),
            ("/[a/", "unclosed character class"),
            ("/[b-a]/", "a range in a class ends before it starts"),
            ("/*a/", "nothing before a repetition"),
            ("/a{3,2}/", "a repetition of 3 to 2 times"),
            (r"/(a)\2/", "a reference to group 2: allowed is 1"),
            (r"/(a)(b)\3/", "a reference to group 3: allowed are 1 to 2"),
            (r"/a\1/", "a reference to group 1: the expression has no groups"),
            ("/[[:vowel:]]/", "unknown class '[:vowel:]': allowed are alpha, digit"),
            ("/(?~a)/", "unknown group '(?~': allowed are (?:, (?="),
            ("/(?<=a+)b/", "the length of a look-behind is not fixed"),
            ("/(?R)/", "recursion is not supported"),
            ("/(?(1)a)/", "a condition"),
            ("/(*UTF8)a/", "a verb"),
            (r"/\p{L}/", "bytes have no properties"),
            ("/(((a{1000}){1000}){1000})/", "it takes more than 256 KiB"),
            (r"/(((a(?=b)){1000}){1000})/", "it takes more than 16384 steps"),
            (&format!("/{}/", "()".repeat(2_000)), "2000 groups: allowed are up to 99"),
            (&format!("/{}/", "(".repeat(2_000)), "groups are nested too deeply: at most 100 levels"),
            (r"/(?#()(a)\2/", "a reference to group 2: allowed is 1"),
            (&format!("/{}/", "(?:".repeat(1_000)), "groups are nested too deeply: at most 100 levels"),
            (&format!("/{}/", "a".repeat(5_000)), "an expression of 5000 bytes: allowed are up to 4096"),
        ] {
            let error = Regex::parse(text, false).expect_err(&text[..text.len().min(30)]);
            assert!(error.contains(expected) && error.len() < 500, "{error}");
        }
        // Repetitions of an empty group add no steps.
        parse("/(?:(?:(?:){65535}){65535}){65535}(?=a)/");
    }
}
