//! Tables that the control plane reads and changes, entry by entry, while packets run: routes, rules, mappings.
//!
//! A function hands its table out when it is made ([`Setup::table`](crate::Setup::table)); whoever serves operators finds
//! it by the module's and the table's name. A change is a line of text: a verb and an entry as the table's own file has
//! it. Lines, because that is what files, sockets and people have; and they are read faster than tables change.

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
    /// Those that were not, in order.
    pub refused: Vec<Refused>,
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
        match result {
            Ok(()) => self.made += 1,
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

impl Verb {
    /// The verb that a change begins with, and the rest of the line.
    ///
    /// # Errors
    /// It begins with something else; `syntax` is repeated to say what is allowed.
    pub fn split<'c>(change: &'c str, syntax: &str) -> Result<(Self, &'c str), String> {
        let change = change.trim_ascii();
        let (verb, entry) = change.split_once(|byte: char| byte.is_ascii_whitespace()).unwrap_or((change, ""));
        let verb = match verb {
            "add" => Self::Add,
            "remove" => Self::Remove,
            "replace" => Self::Replace,
            other => {
                let other: String = other.chars().take(60).collect();
                return Err(format!("'{other}' is no change: write\n{syntax}"));
            }
        };
        Ok((verb, entry.trim_ascii_start()))
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
        assert_eq!(split("replace"), Ok((Verb::Replace, "")));
        assert_eq!(split(""), Err("'' is no change: write\nadd IT".to_owned()));
        assert_eq!(split("adds x"), Err("'adds' is no change: write\nadd IT".to_owned()));
        assert!(split(&"x".repeat(1 << 20)).is_err_and(|message| message.len() < 200));
    }

    #[test]
    fn outcomes_say_which_was_refused() {
        let mut outcome = Outcome::default();
        outcome.note::<String>(0, Ok(()));
        outcome.note(1, Err("no"));
        assert_eq!((outcome.made, outcome.refused.len()), (1, 1));
        assert_eq!(outcome.refused[0].to_string(), "change 2: no");
    }
}
