//! Tables that the control plane reads and changes entry by entry while packets run, for example routes, rules and
//! mappings.
//!
//! A function registers its table while it is created ([`Setup::table`](crate::Setup::table)). The control interface
//! finds it by the names of the module and the table. A change is a line of text: a verb, and an entry in the format of
//! the table's own file. Text lines suit files, sockets and people, and parsing them is faster than changing tables.

use std::fmt;
use std::sync::Arc;

use forebay_units::text::short;

/// A table that can be changed while packets run.
///
/// A look-up during a change sees the entry before the change or after it.
pub trait Table: Send + Sync {
    /// Returns the syntax of changes, one line for each verb: `add 10.0.0.0/8 3`.
    fn syntax(&self) -> &'static str;

    /// Makes changes in order. Each change is made completely or refused, independently of the others. The changes are
    /// in force when this returns, and possibly earlier.
    fn apply(&self, changes: &[&str]) -> Outcome;

    /// Returns warnings about the present entries, for example about an entry without effect. It may take milliseconds.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the number of entries.
    fn len(&self) -> usize;

    /// Returns whether there are no entries.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns up to `most` entries as lines that can be read again, in the table's order. `after` is a line that was
    /// returned earlier: the result starts with the entry after the entry of this line, which need not exist any more.
    /// Without `after` the result starts with the first entry.
    ///
    /// # Errors
    /// `after` is not a line of an entry. The error names the allowed lines.
    fn entries(&self, after: Option<&str>, most: usize) -> Result<Vec<String>, String>;

    /// Returns up to `most` entries that match a filter, if the table supports filters.
    ///
    /// # Errors
    /// Those of [`entries`](Self::entries), and an unsupported filter.
    fn chosen(&self, filter: &str, after: Option<&str>, most: usize) -> Result<Vec<String>, String> {
        let _ = (filter, after, most);
        Err("filters are not allowed for this table: only tables of sessions support them".to_owned())
    }
}

/// A module's table, for example `routes` of the module `core`.
#[derive(Clone)]
pub struct NamedTable {
    /// The module.
    pub module: String,
    /// The table's name: `routes`, `rules`, `mappings`.
    pub name: String,
    /// The table.
    pub table: Arc<dyn Table>,
}

/// The result of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The number of changes made.
    pub made: usize,
    /// The number of entries added, removed or replaced. A single change may affect several entries.
    pub entries: u64,
    /// The refused changes, in order.
    pub refused: Vec<Refused>,
    /// Warnings about the changes made, for example about an entry without effect.
    pub warnings: Vec<String>,
}

/// A refused change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("change {}: {message}", self.change + 1)]
pub struct Refused {
    /// The index of the change, counted from 0.
    pub change: usize,
    /// The entry, the reason, and the allowed values.
    pub message: String,
}

impl Outcome {
    /// Records the result of the change with the index `change`.
    pub fn note<E: ToString>(&mut self, change: usize, result: Result<(), E>) {
        self.note_entries(change, result.map(|()| 1));
    }

    /// Records the result of a change that may affect several entries. `result` is the number of affected entries.
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

/// The verb of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// The entry is new.
    Add,
    /// The entry is removed.
    Remove,
    /// The entry replaces the one with the same key.
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

/// Compares the `entry` in a request to remove it with the line that the table lists for this entry. Returns the words
/// of `entry` that do not occur in the line, each with its position in `entry`, counted from 1. The first word is the
/// key of the entry and is not compared. So a request may consist of the key, or of the whole line.
pub fn foreign_words<'e>(entry: &'e str, listed: &str) -> impl Iterator<Item = (usize, &'e str)> {
    let words = (1..).zip(entry.split_ascii_whitespace()).skip(1);
    words.filter(|(_, word)| listed.split_ascii_whitespace().all(|known| known != *word))
}

/// Part of the error about a line without a verb. A program that prints such errors may add the syntax of changes once.
pub const NO_CHANGE: &str = "is not a kind of change";

impl Verb {
    /// Splits a change into its verb and the rest of the line.
    ///
    /// # Errors
    /// The line begins with another word, or has no entry. The error gives the allowed form, on one line. `syntax` is
    /// the table's syntax.
    pub fn split<'c>(change: &'c str, syntax: &str) -> Result<(Self, &'c str), String> {
        let change = change.trim_ascii();
        let (verb, entry) = change.split_once(|byte: char| byte.is_ascii_whitespace()).unwrap_or((change, ""));
        let verb = match verb {
            "add" => Self::Add,
            "remove" => Self::Remove,
            "replace" => Self::Replace,
            other => {
                let near = Self::near(other).map_or_else(String::new, |verb| format!(" (did you mean '{verb}'?)"));
                let other = short(other);
                return Err(format!("'{other}' {NO_CHANGE}{near}: allowed are add, remove and replace"));
            }
        };
        match entry.trim_ascii_start() {
            "" => Err(format!("'{verb}' lacks an entry: write {}", verb.form(syntax))),
            entry => Ok((verb, entry)),
        }
    }

    /// Returns the form of a change with this verb: the beginning of its line in a table's `syntax`.
    #[must_use]
    pub fn form(self, syntax: &str) -> &str {
        let verb = self.to_string();
        let line = syntax.lines().find(|line| line.split(' ').next() == Some(&verb)).unwrap_or(syntax);
        line.split("  ").next().unwrap_or(line).trim_ascii_end()
    }

    /// Returns the verb that is probably meant: it begins with the same letters and has a similar length.
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
        assert_eq!(split(""), Err("'' is not a kind of change: allowed are add, remove and replace".to_owned()));
        let near = |word, verb| {
            Err(format!(
                "'{word}' is not a kind of change (did you mean '{verb}'?): allowed are add, remove and replace"
            ))
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
    fn the_error_about_a_lone_verb_gives_its_form() {
        const SYNTAX: &str = "add IT [WHERE]   something new\nremove IT        something\nwhere IT is a word";
        assert_eq!(Verb::split("add", SYNTAX), Err("'add' lacks an entry: write add IT [WHERE]".to_owned()));
        assert_eq!(Verb::split(" remove ", SYNTAX), Err("'remove' lacks an entry: write remove IT".to_owned()));
    }

    #[test]
    fn words_missing_in_the_listed_line_are_found() {
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
