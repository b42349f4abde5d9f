//! Regular expressions over payloads, as PCRE means them, in bounded time and without allocation.
//!
//! An expression becomes a table of steps (a deterministic automaton) where that is small. Else its states are simulated: slower
//! by the number of states, and bounded all the same. Neither goes back, so that no payload makes one take exponential time.
//! Look-around, back-references, and where a match ends, need a search that does: it counts its steps, and gives up.

mod plain;
mod program;
mod syntax;
mod walk;

use std::sync::Arc;

use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::nfa::thompson::pikevm::{Cache, PikeVM};
use regex_automata::util::syntax as library;
use regex_automata::{Anchored, Input, MatchKind};

use program::Program;
use syntax::Flags;
pub use walk::{Budget, Undecided, Walk};

/// The largest table of one expression, in bytes.
const MOST_TABLE: usize = 256 << 10;
/// The largest expression, compiled, in bytes.
const MOST_STATES: usize = 256 << 10;
/// The longest expression, as it is written.
const MOST_LENGTH: usize = 4_096;

/// An expression.
#[derive(Clone, Debug)]
pub struct Regex {
    /// As the rule has it.
    text: String,
    /// Whether it is matched from where the option before has ended (`R`).
    relative: bool,
    /// Whether it matches is found by this, where an automaton can.
    form: Option<Form>,
    /// Where it matches is found by this.
    program: Option<Arc<Program>>,
}

#[derive(Clone, Debug)]
enum Form {
    Table(Arc<dense::DFA<Vec<u32>>>),
    Simulated(Arc<PikeVM>),
}

/// What a worker needs to search by an expression.
pub struct Room(Option<Cache>);

/// Flags that are known.
const FLAGS: &str = "i, s, m, x, A, E, G, R, B and O";

impl Regex {
    /// Reads `/expression/flags`, or `m` with another delimiter. Of Latin-1 each character is one byte.
    ///
    /// # Errors
    /// What is wrong with it and what is allowed.
    pub fn parse(text: &str, latin1: bool) -> Result<Self, String> {
        let wrong = || format!("an expression is written \"/EXPRESSION/FLAGS\", flags being of {FLAGS}");
        let delimiter = match text.strip_prefix('m') {
            Some(rest) => rest.chars().next().filter(char::is_ascii_punctuation),
            None => Some('/'),
        };
        let (delimiter, rest) = delimiter.zip(Some(text.strip_prefix('m').unwrap_or(text))).ok_or_else(wrong)?;
        let (expression, letters) =
            rest.strip_prefix(delimiter).and_then(|rest| rest.rsplit_once(delimiter)).ok_or_else(wrong)?;
        if expression.len() > MOST_LENGTH {
            return Err(format!("an expression of {} bytes: allowed are up to {MOST_LENGTH}", expression.len()));
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
                // The payload is never decoded; the limit of steps is the module's.
                'B' | 'O' => {}
                'U' | 'I' | 'P' | 'H' | 'D' | 'M' | 'C' | 'K' | 'S' | 'Y' => {
                    return Err(format!("the flag '{flag}': HTTP buffers are not supported yet"));
                }
                _ => return Err(format!("the flag '{flag}' is not known: allowed are {FLAGS}")),
            }
        }
        let short = || text.chars().take(60).collect::<String>();
        let bytes: Vec<u8> = match latin1 {
            true => expression.chars().map(|letter| letter as u8).collect(),
            false => expression.as_bytes().to_vec(),
        };
        let node = syntax::parse(&bytes, flags).map_err(|error| format!("'{}': {error}", short()))?;
        let form = match plain::plain(&node) {
            Some(plain) => Some(Form::of(&plain, &short())?),
            None => None,
        };
        let program = match (Program::new(&node), &form) {
            (Ok(program), _) => Some(Arc::new(program)),
            (Err(_), Some(_)) => None,
            (Err(error), None) => return Err(format!("'{}': {error}", short())),
        };
        Ok(Self { text: text.to_owned(), relative, form, program })
    }

    /// Says whether [`find`](Self::find) is needed.
    ///
    /// # Errors
    /// The expression is too large for it.
    pub fn keep(&mut self, find: bool) -> Result<(), String> {
        if self.form.is_some() && !find {
            self.program = None;
        } else if self.program.is_none() {
            return Err(format!(
                "'{}': it is too large for a search that says where it ends: allowed are fewer repetitions",
                self.text.chars().take(60).collect::<String>()
            ));
        }
        Ok(())
    }

    /// As the rule has it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it is matched from where the option before has ended.
    #[must_use]
    pub fn is_relative(&self) -> bool {
        self.relative
    }

    /// Whether each step is one load.
    #[must_use]
    pub fn is_table(&self) -> bool {
        matches!(self.form, Some(Form::Table(_)))
    }

    /// Whether searches by it need room in [`Walk`].
    #[must_use]
    pub fn walks(&self) -> bool {
        self.program.is_some()
    }

    /// What a worker needs for it.
    #[must_use]
    pub fn room(&self) -> Room {
        Room(match &self.form {
            None | Some(Form::Table(_)) => None,
            Some(Form::Simulated(states)) => {
                let mut cache = states.create_cache();
                // What the search takes grows to its size with what is searched: here rather than with the first packets.
                states.is_match(&mut cache, [0u8; 64].as_slice());
                Some(cache)
            }
        })
    }

    /// Whether it matches anywhere.
    ///
    /// # Errors
    /// The search takes too many steps.
    pub fn is_match(
        &self,
        room: &mut Room,
        walk: &mut Walk,
        bytes: &[u8],
        budget: &mut Budget,
    ) -> Result<bool, Undecided> {
        let input = Input::new(bytes).anchored(Anchored::No).earliest(true);
        match (&self.form, &mut room.0) {
            (Some(Form::Table(table)), _) => Ok(table.try_search_fwd(&input).is_ok_and(|found| found.is_some())),
            (Some(Form::Simulated(states)), Some(cache)) => Ok(states.is_match(cache, input)),
            (Some(Form::Simulated(_)), None) => Ok(false),
            (None, _) => self.find(walk, bytes, 0, budget).map(|found| found.is_some()),
        }
    }

    /// The first match that begins at a position or behind it: where it begins and ends.
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

impl Form {
    /// Compiles an expression that automata match; `short` is what it is called in errors.
    fn of(plain: &str, short: &str) -> Result<Self, String> {
        let config = library::Config::new().unicode(false).utf8(false).nest_limit(500);
        let refused = |error: &dyn std::fmt::Display| {
            // The library shows where in the expression, over several lines.
            let error = error.to_string();
            let fault = error.lines().rev().find(|line| line.starts_with("error: ")).unwrap_or(&error);
            let fault: String = fault.trim_start_matches("error: ").chars().take(160).collect();
            format!("'{short}': {fault}")
        };
        let mut compiler = thompson::Compiler::new();
        compiler.syntax(config).configure(
            thompson::Config::new()
                .utf8(false)
                .nfa_size_limit(Some(MOST_STATES))
                .which_captures(thompson::WhichCaptures::None),
        );
        let states = compiler.build(plain).map_err(|error| match error.size_limit() {
            Some(_) => {
                format!("'{short}': it takes more than {} KiB: allowed are fewer repetitions", MOST_STATES >> 10)
            }
            None => refused(&Source(&error)),
        })?;
        let mut builder = dense::Builder::new();
        builder.configure(
            dense::Config::new()
                .match_kind(MatchKind::All)
                .start_kind(StartKind::Unanchored)
                .dfa_size_limit(Some(MOST_TABLE))
                .determinize_size_limit(Some(4 * MOST_TABLE)),
        );
        Ok(match builder.build_from_nfa(&states) {
            Ok(table) => Self::Table(Arc::new(table)),
            Err(_) => {
                Self::Simulated(Arc::new(PikeVM::builder().build_from_nfa(states).map_err(|error| refused(&error))?))
            }
        })
    }
}

/// An error with the one that it comes of, which says more.
struct Source<'a>(&'a thompson::BuildError);

impl std::fmt::Display for Source<'_> {
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

    /// Whether it matches; both ways to find that must say the same.
    fn matches(text: &str, bytes: &[u8]) -> bool {
        let regex = parse(text);
        let (mut walk, mut budget) = (Walk::new(true), Budget::new(1 << 20));
        let found = regex.is_match(&mut regex.room(), &mut walk, bytes, &mut budget).expect("few steps");
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
    fn what_takes_too_large_a_table_is_simulated_and_says_the_same() {
        let regex = parse("/a[ab]{14}c/");
        assert!(!regex.is_table(), "2^14 states");
        let (mut room, mut walk, mut budget) = (regex.room(), Walk::new(true), Budget::new(1 << 20));
        let mut is = |bytes: &[u8]| regex.is_match(&mut room, &mut walk, bytes, &mut budget).expect("few steps");
        assert!(is(b"bbbabababababababac") && !is(&b"ab".repeat(4_000)));
    }

    #[test]
    fn expressions_mean_what_pcre_says() {
        for (text, yes, no) in [
            // A brace that is no repetition is itself.
            ("/a{,5}b/", &b"a{,5}b"[..], &b"aab"[..]),
            ("/a{2,}b/", b"aab", b"ab"),
            (r"/x{/", b"x{", b"x"),
            // Neither intersections nor nested classes.
            ("/[a&&b]/", b"&", b"c"),
            ("/[[a]+z/", b"[az", b"bz"),
            ("/[]a]z/", b"]z", b"bz"),
            ("/[^]a]z/", b"bz", b"]z"),
            ("/[a-c-e]/", b"-", b"d"),
            (r"/[\w-]z/", b"-z", b".z"),
            ("/[[:digit:][:^alpha:]]/", b"5", b"a"),
            (r"/\<a\>/", b"<a>", b"a"),
            // A dollar is also before a line feed at the end, unless E says otherwise.
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
            // What is never given back.
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
        assert_eq!(second, Ok(Some((2, 3))), "the start is that of the subject");
    }

    /// Searches that would take exponential time, and such as would need a deep stack.
    #[test]
    fn a_search_that_takes_too_many_steps_is_undecided() {
        for text in [r"/(a*)*\1c/", "/(?=((a+)+)$)ab/", r"/(?:(a|aa)+)+\1$c/", "/(?=(?:a|b|ab)*c)/", r"/((?:a|b)+)\1c/"]
        {
            let regex = parse(text);
            let mut walk = Walk::new(true);
            let subject = [b'a'; 9_000];
            let found = regex.is_match(&mut regex.room(), &mut walk, &subject, &mut Budget::new(100_000));
            assert_eq!(found, Err(Undecided), "{text}");
            // The next search is not disturbed by it.
            assert_eq!(parse("/a(?=b)/").find(&mut walk, b"ab", 0, &mut Budget::new(100)), Ok(Some((0, 1))));
        }
    }

    #[test]
    fn what_is_no_expression_is_told() {
        for (text, told) in [
            ("abc", "an expression is written"),
            ("/a/U", "the flag 'U': HTTP buffers are not supported yet"),
            ("/a/z", "the flag 'z' is not known: allowed are i, s, m, x, A, E, G, R, B and O"),
            ("/(/", "unclosed group"),
            ("/a)/", "a parenthesis is closed that is not open"),
            ("/[a/", "unclosed character class"),
            ("/[b-a]/", "whose end is before its start"),
            ("/*a/", "nothing before a repetition"),
            ("/a{3,2}/", "a repetition of 3 to 2 times"),
            (r"/(a)\2/", "a reference to group 2 of 1"),
            ("/(?<=a+)b/", "look-behind of something whose length is not fixed"),
            ("/(?R)/", "recursion is not supported"),
            ("/(?(1)a)/", "a condition"),
            ("/(*UTF8)a/", "a verb"),
            (r"/\p{L}/", "bytes have no properties"),
            ("/(((a{1000}){1000}){1000})/", "it takes more than 256 KiB"),
            (r"/(((a(?=b)){1000}){1000})/", "it takes more than 16384 steps"),
            (&format!("/{}/", "(".repeat(2_000)), "groups: allowed are up to 99"),
            (&format!("/{}/", "(?:".repeat(1_000)), "groups more than 100 deep"),
            (&format!("/{}/", "a".repeat(5_000)), "an expression of 5000 bytes: allowed are up to 4096"),
        ] {
            let error = Regex::parse(text, false).expect_err(&text[..text.len().min(30)]);
            assert!(error.contains(told) && error.len() < 500, "{error}");
        }
        // Nothing many times is nothing.
        parse("/(?:(?:(?:){65535}){65535}){65535}(?=a)/");
    }
}
