//! Tables that the control plane reads and changes, entry by entry, while packets run: routes, rules, mappings.
//!
//! A function hands its table out when it is made ([`Setup::table`](crate::Setup::table)); whoever serves operators finds
//! it by the module's and the table's name. A change is a line of text: a verb and an entry as the table's own file has
//! it. Lines, because that is what files, sockets and people have; and they are read faster than tables change.

use std::fmt;
use std::sync::Arc;

/// A table that can be changed while packets run.
///
/// A look-up sees an entry as it was before a change or as it is after, never neither.
pub trait Table: Send + Sync {
    /// How changes are written, each verb in a line: `add 10.0.0.0/8 3`.
    fn syntax(&self) -> &'static str;

    /// Makes changes in order. Each is made wholly or refused, whatever becomes of the others; all that are made are in
    /// force when this returns, and may be before.
    fn apply(&self, changes: &[&str]) -> Outcome;

    /// Warnings about the entries as they are: of one that has no effect, say. It may take milliseconds.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// How many entries there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Up to `most` entries, as lines that can be read again, in the table's order: from the first, or those that follow
    /// the entry `after`, which is a line as given here and need not be there any more.
    ///
    /// # Errors
    /// `after` is no such line: what it is and what is allowed.
    fn entries(&self, after: Option<&str>, most: usize) -> Result<Vec<String>, String>;

    /// The same of those entries that a filter means, where the table knows how to choose.
    ///
    /// # Errors
    /// As [`entries`](Self::entries); also a filter that is none of this table.
    fn chosen(&self, filter: &str, after: Option<&str>, most: usize) -> Result<Vec<String>, String> {
        let _ = (filter, after, most);
        Err("entries of this table are not chosen by a filter: allowed is it with tables of sessions".to_owned())
    }
}

/// A module's table: `routes` of the module `core`, say.
#[derive(Clone)]
pub struct NamedTable {
    /// The module.
    pub module: String,
    /// What it holds: `routes`, `rules`, `mappings`.
    pub name: String,
    /// The table.
    pub table: Arc<dyn Table>,
}

/// What became of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// How many were made.
    pub made: usize,
    /// How many entries those put in, took out or put others in the place of: one each, but for such as mean several.
    pub entries: u64,
    /// Those that were not, in order.
    pub refused: Vec<Refused>,
    /// Warnings about those that were made: of an entry that has no effect, say.
    pub warnings: Vec<String>,
}

/// A change that was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("change {}: {message}", self.change + 1)]
pub struct Refused {
    /// Which one, counted from 0.
    pub change: usize,
    /// The entry, why not, and what is allowed.
    pub message: String,
}

impl Outcome {
    /// Notes what became of the change at this place.
    pub fn note<E: ToString>(&mut self, change: usize, result: Result<(), E>) {
        self.note_entries(change, result.map(|()| 1));
    }

    /// Notes what became of a change that means as many entries as there are of a kind: how many those were.
    pub fn note_entries<E: ToString>(&mut self, change: usize, result: Result<u64, E>) {
        match result {
            Ok(entries) => {
                self.made += 1;
                self.entries += entries;
            }
            Err(error) => self.refused.push(Refused { change, message: error.to_string() }),
        }
    }
}

/// What is to be done with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// It is new.
    Add,
    /// It is to be there no more.
    Remove,
    /// It stands in the place of the one that has the same key.
    Replace,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Add => "add",
            Self::Remove => "remove",
            Self::Replace => "replace",
        })
    }
}

/// The words of an entry that are not in the line which a table lists for it, with their numbers, counted from 1: a
/// change that takes an entry out names it by its first word, or is the whole line.
pub fn foreign_words<'e>(entry: &'e str, listed: &str) -> impl Iterator<Item = (usize, &'e str)> {
    let words = (1..).zip(entry.split_ascii_whitespace()).skip(1);
    words.filter(|(_, word)| listed.split_ascii_whitespace().all(|known| known != *word))
}

/// What is said of a line that begins with no verb: who shows such refusals may want to add how changes are written, once.
pub const NO_CHANGE: &str = "is no change";

impl Verb {
    /// The verb that a change begins with, and the rest of the line.
    ///
    /// # Errors
    /// It begins with something else, or says nothing more: what is allowed, on one line. `syntax` is the table's.
    pub fn split<'c>(change: &'c str, syntax: &str) -> Result<(Self, &'c str), String> {
        let change = change.trim_ascii();
        let (verb, entry) = change.split_once(|byte: char| byte.is_ascii_whitespace()).unwrap_or((change, ""));
        let verb = match verb {
            "add" => Self::Add,
            "remove" => Self::Remove,
            "replace" => Self::Replace,
            other => {
                let near = Self::near(other).map_or_else(String::new, |verb| format!(" (did you mean '{verb}'?)"));
                let other: String = other.chars().take(60).collect();
                return Err(format!("'{other}' {NO_CHANGE}{near}: allowed are add, remove and replace"));
            }
        };
        match entry.trim_ascii_start() {
            "" => Err(format!("'{verb}' lacks what it is about: write {}", verb.form(syntax))),
            entry => Ok((verb, entry)),
        }
    }

    /// How a change of this verb is written, by a table's `syntax`: the beginning of its line.
    #[must_use]
    pub fn form(self, syntax: &str) -> &str {
        let verb = self.to_string();
        let line = syntax.lines().find(|line| line.split(' ').next() == Some(&verb)).unwrap_or(syntax);
        line.split("  ").next().unwrap_or(line).trim_ascii_end()
    }

    /// The verb that is probably meant: it begins alike and is about as long.
    fn near(word: &str) -> Option<Self> {
        let alike = |verb: &Self| {
            let verb = verb.to_string();
            let common = verb.bytes().zip(word.bytes()).take_while(|(a, b)| a.eq_ignore_ascii_case(b)).count();
            common >= 2.max(verb.len() / 2) && word.len().abs_diff(verb.len()) <= 3
        };
        match word.to_ascii_lowercase().as_str() {
            "del" | "delete" | "rm" => Some(Self::Remove),
            _ => [Self::Add, Self::Remove, Self::Replace].into_iter().find(alike),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_begin_with_a_verb() {
        let split = |change| Verb::split(change, "add IT");
        assert_eq!(split("add 10.0.0.0/8 3"), Ok((Verb::Add, "10.0.0.0/8 3")));
        assert_eq!(split(" \tremove\t  x  y \r\n"), Ok((Verb::Remove, "x  y")));
        assert_eq!(split("replace x"), Ok((Verb::Replace, "x")));
        assert_eq!(split(""), Err("'' is no change: allowed are add, remove and replace".to_owned()));
        let near = |word, verb| {
            Err(format!("'{word}' is no change (did you mean '{verb}'?): allowed are add, remove and replace"))
        };
        for (word, verb) in [
            ("adds", "add"),
            ("ADD", "add"),
            ("rem", "remove"),
            ("remvoe", "remove"),
            ("delete", "remove"),
            ("repalce", "replace"),
        ] {
            assert_eq!(split(word), near(word, verb));
        }
        assert!(split("insert x").is_err_and(|message| !message.contains("mean")));
        assert!(split(&"x".repeat(1 << 20)).is_err_and(|message| message.len() < 200));
    }

    #[test]
    fn a_verb_alone_is_told_what_is_missing() {
        const SYNTAX: &str = "add IT [WHERE]   something new\nremove IT        something\nwhere IT is a word";
        assert_eq!(Verb::split("add", SYNTAX), Err("'add' lacks what it is about: write add IT [WHERE]".to_owned()));
        assert_eq!(Verb::split(" remove ", SYNTAX), Err("'remove' lacks what it is about: write remove IT".to_owned()));
    }

    #[test]
    fn words_that_are_not_of_a_listed_line_are_found() {
        for (entry, expected) in [
            ("a", None),
            ("A", None),
            ("0x0a x=1", None),
            ("a y x=1", None),
            ("a x=2", Some((2, "x=2"))),
            ("a x=1 y  z x=1", Some((4, "z"))),
        ] {
            assert_eq!(foreign_words(entry, "a x=1 y").next(), expected, "{entry}");
        }
    }

    #[test]
    fn outcomes_say_which_was_refused() {
        let mut outcome = Outcome::default();
        outcome.note::<String>(0, Ok(()));
        outcome.note(1, Err("no"));
        outcome.note_entries::<String>(2, Ok(1_377));
        assert_eq!((outcome.made, outcome.entries, outcome.refused.len()), (2, 1_378, 1));
        assert_eq!(outcome.refused[0].to_string(), "change 2: no");
    }
}
