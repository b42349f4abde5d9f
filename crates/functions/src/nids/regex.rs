//! Regular expressions over payloads, in time that grows with the payload alone and without allocation.
//!
//! An expression becomes a table of steps (a deterministic automaton) where that is small. Else its states are simulated: slower
//! by the number of states, and bounded all the same. Neither goes back, so that no payload makes one take exponential time.

use std::sync::Arc;

use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::nfa::thompson::pikevm::{Cache, PikeVM};
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, MatchKind};

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
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    Table(Arc<dense::DFA<Vec<u32>>>),
    Simulated(Arc<PikeVM>),
}

/// What a worker needs to search by an expression.
pub struct Room(Option<Cache>);

impl Regex {
    /// Reads `/expression/flags`, flags being of `i`, `s`, `m` and `x`.
    ///
    /// # Errors
    /// What is wrong with it and what is allowed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "an expression is written \"/EXPRESSION/FLAGS\", flags being of i, s, m and x".to_owned();
        let (expression, flags) = text.strip_prefix('/').and_then(|rest| rest.rsplit_once('/')).ok_or_else(wrong)?;
        if expression.len() > MOST_LENGTH {
            return Err(format!("an expression of {} bytes: allowed are up to {MOST_LENGTH}", expression.len()));
        }
        let mut config = syntax::Config::new().unicode(false).utf8(false).nest_limit(100);
        for flag in flags.chars() {
            config = match flag {
                'i' => config.case_insensitive(true),
                's' => config.dot_matches_new_line(true),
                'm' => config.multi_line(true),
                'x' => config.ignore_whitespace(true),
                'R' => return Err("the flag 'R' (from the match before on) is not known: allowed are i, s, m and x; write what is before into the expression".to_owned()),
                _ => return Err(format!("the flag '{flag}' is not known: allowed are i, s, m and x")),
            };
        }
        let refused = |error: &dyn std::fmt::Display| {
            // The library shows where in the expression, over several lines.
            let error = error.to_string();
            let told = error.lines().rev().find(|line| line.starts_with("error: ")).unwrap_or(&error);
            let told: String = told.trim_start_matches("error: ").chars().take(160).collect();
            format!(
                "'{}': {told}: allowed are expressions without look-around, back-references, possessive and atomic groups",
                text.chars().take(60).collect::<String>()
            )
        };
        let mut compiler = thompson::Compiler::new();
        compiler.syntax(config).configure(
            thompson::Config::new()
                .utf8(false)
                .nfa_size_limit(Some(MOST_STATES))
                .which_captures(thompson::WhichCaptures::None),
        );
        let states = compiler.build(expression).map_err(|error| match error.size_limit() {
            Some(_) => {
                let short: String = text.chars().take(60).collect();
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
        let form = match builder.build_from_nfa(&states) {
            Ok(table) => Form::Table(Arc::new(table)),
            Err(_) => {
                Form::Simulated(Arc::new(PikeVM::builder().build_from_nfa(states).map_err(|error| refused(&error))?))
            }
        };
        Ok(Self { text: text.to_owned(), form })
    }

    /// As the rule has it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether each step is one load.
    #[must_use]
    pub fn is_table(&self) -> bool {
        matches!(self.form, Form::Table(_))
    }

    /// What a worker needs for it.
    #[must_use]
    pub fn room(&self) -> Room {
        Room(match &self.form {
            Form::Table(_) => None,
            Form::Simulated(states) => {
                let mut cache = states.create_cache();
                // What the search takes grows to its size with what is searched: here rather than with the first packets.
                states.is_match(&mut cache, [0u8; 64].as_slice());
                Some(cache)
            }
        })
    }

    /// Whether it matches anywhere.
    #[must_use]
    pub fn is_match(&self, room: &mut Room, bytes: &[u8]) -> bool {
        let input = Input::new(bytes).anchored(Anchored::No).earliest(true);
        match (&self.form, &mut room.0) {
            (Form::Table(table), _) => table.try_search_fwd(&input).is_ok_and(|found| found.is_some()),
            (Form::Simulated(states), Some(cache)) => states.is_match(cache, input),
            (Form::Simulated(_), None) => false,
        }
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

    fn matches(text: &str, bytes: &[u8]) -> bool {
        let regex = Regex::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        regex.is_match(&mut regex.room(), bytes)
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
        let text = "/a[ab]{14}c/";
        let regex = Regex::parse(text).expect("it is known");
        assert!(!regex.is_table(), "2^14 states");
        let mut room = regex.room();
        assert!(regex.is_match(&mut room, b"bbbabababababababac"));
        assert!(!regex.is_match(&mut room, &b"ab".repeat(4_000)));
    }

    #[test]
    fn what_is_no_expression_is_told() {
        for (text, told) in [
            ("abc", "an expression is written"),
            ("/a(?=b)/", "look-around"),
            (r"/(a)\1/", "back"),
            ("/a/U", "the flag 'U' is not known: allowed are i, s, m and x"),
            ("/a/R", "the flag 'R'"),
            ("/(/", "unclosed group"),
            ("/(((a{1000}){1000}){1000})/", "it takes more than 256 KiB"),
            (&format!("/{}/", "(".repeat(2_000)), "allowed are expressions"),
            (&format!("/{}/", "a".repeat(5_000)), "an expression of 5000 bytes: allowed are up to 4096"),
        ] {
            let error = Regex::parse(text).expect_err(&text[..text.len().min(30)]);
            assert!(error.contains(told) && error.len() < 500, "{error}");
        }
    }
}
