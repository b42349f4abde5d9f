//! The rules of a module, asked by workers and changed by the control plane at the same time.
//!
//! A list is compiled as a whole, once for all changes that come together; packets are judged by the former list until the
//! new one is published. A rule keeps the number under which it is counted wherever it moves.

use std::sync::{Arc, Mutex, PoisonError};

use forebay_graph::{Live, Outcome, Reader, Table as ControlTable, Verb};
use thiserror::Error;

use crate::tables::acl::classbench::{AnyRule, parse_rule};
use crate::tables::acl::{Address, Classifier, Decision, MAX_RULES, Rule};

/// One rule list, compiled for both families.
pub(super) struct List {
    pub(super) v4: Arc<Classifier<u32>>,
    pub(super) v6: Arc<Classifier<u128>>,
}

/// A rule and the number that it is counted under.
#[derive(Clone, Copy)]
struct Numbered<A> {
    rule: Rule<A>,
    number: u32,
}

/// One family's rules, in order.
struct Rules<A> {
    list: Vec<Numbered<A>>,
    /// The number of rules that were not there at first.
    added: u32,
    /// Whether they are others than those that are compiled.
    stale: bool,
}

impl<A: Address> Rules<A> {
    fn of(compiled: &Classifier<A>) -> Self {
        let list: Vec<_> = (0..).zip(compiled.rules()).map(|(number, rule)| Numbered { rule: *rule, number }).collect();
        Self { added: list.len() as u32, list, stale: false }
    }

    fn change(&mut self, verb: Verb, position: Option<usize>, rule: Rule<A>) -> Result<(), ChangeError> {
        let (len, new) = (self.list.len(), Numbered { rule, number: self.added });
        match (verb, position) {
            (Verb::Add, _) if len == MAX_RULES => return Err(ChangeError::Full),
            (Verb::Add, Some(position)) if position > len => {
                return Err(ChangeError::Position { position, allowed: len });
            }
            (Verb::Add, position) => self.list.insert(position.unwrap_or(len), new),
            (Verb::Replace, Some(position)) => *self.list.get_mut(position).ok_or_else(|| beyond(position, len))? = new,
            (Verb::Replace, None) => return Err(ChangeError::NoPosition),
            (Verb::Remove, Some(position)) => {
                let there = self.list.get(position).ok_or_else(|| beyond(position, len))?;
                if there.rule != rule {
                    return Err(ChangeError::Other { position, there: there.rule.to_string() });
                }
                self.list.remove(position);
            }
            (Verb::Remove, None) => {
                let position = self.list.iter().position(|there| there.rule == rule);
                self.list.remove(position.ok_or_else(|| ChangeError::Unknown(rule.to_string()))?);
            }
        }
        self.stale = true;
        Ok(())
    }

    /// Compiles them where they have changed.
    fn compile(&mut self, compiled: &Arc<Classifier<A>>, default: Decision) -> Arc<Classifier<A>> {
        if !std::mem::take(&mut self.stale) {
            return Arc::clone(compiled);
        }
        let (rules, numbers): (Vec<_>, Vec<_>) = self.list.iter().map(|it| (it.rule, it.number)).unzip();
        let built = Classifier::build(rules, default).expect("no rule is added to a list that is full");
        Arc::new(built.numbered(&numbers))
    }

    /// The lines from a position on.
    fn lines(&self, from: usize) -> impl Iterator<Item = String> {
        self.list.iter().enumerate().skip(from).map(|(position, it)| format!("{position} {}", it.rule))
    }
}

fn beyond(position: usize, len: usize) -> ChangeError {
    match len.checked_sub(1) {
        Some(allowed) => ChangeError::Position { position, allowed },
        None => ChangeError::Empty,
    }
}

/// The lists that changes are made on; compiled afterwards.
struct Lists {
    v4: Rules<u32>,
    v6: Rules<u128>,
}

/// A module's rules.
pub(super) struct RuleTable {
    /// Held by whoever changes them. None before the first change: then the rules are those that are compiled.
    lists: Mutex<Option<Lists>>,
    live: Arc<Live<List>>,
}

impl RuleTable {
    pub(super) fn of(list: Arc<List>) -> Self {
        Self { lists: Mutex::new(None), live: Arc::new(Live::new(list)) }
    }

    /// A worker's way to the rules.
    pub(super) fn reader(&self) -> Reader<List> {
        Reader::new(Arc::clone(&self.live))
    }

    fn with_lists<R>(&self, then: impl FnOnce(&mut Lists) -> R) -> R {
        // Nothing that holds them panics half way but for want of memory.
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let compiled = self.live.look();
        then(lists.get_or_insert_with(|| Lists { v4: Rules::of(&compiled.v4), v6: Rules::of(&compiled.v6) }))
    }
}

/// How rules are changed.
const SYNTAX: &str = "\
add [POSITION] RULE       a new rule, at the end or before the rule that has this position among those of its family
remove [POSITION] RULE    a rule that is there, the first of its kind or the one that has this position
replace POSITION RULE     another rule in the place of the one that has this position
where RULE is as in a file of rules: @10.0.0.0/8 0.0.0.0/0 0 : 65535 22 : 22 0x06/0xff deny";

/// Why a change of the rules was refused.
#[derive(Debug, Error)]
enum ChangeError {
    #[error("{0}")]
    Verb(String),
    #[error("{0}: write\n{SYNTAX}")]
    Rule(String),
    #[error("'{0}' is no position: allowed are whole numbers from 0")]
    NoNumber(String),
    #[error("there is no position {position}: allowed are 0 to {allowed}")]
    Position { position: usize, allowed: usize },
    #[error("no rule has a position: this family has no rules")]
    Empty,
    #[error("'replace' has no position: write replace POSITION RULE")]
    NoPosition,
    #[error("at position {position} is the rule {there}: allowed is that one")]
    Other { position: usize, there: String },
    #[error("there is no rule {0}: allowed are rules that are there, word for word")]
    Unknown(String),
    #[error("there are {MAX_RULES} rules: no more are allowed")]
    Full,
}

/// The position, where there is one, and the rule.
fn parse(entry: &str) -> Result<(Option<usize>, AnyRule), ChangeError> {
    let (position, rule) = match entry.split_once(|byte: char| byte.is_ascii_whitespace()) {
        Some((word, rest)) if !word.starts_with('@') => {
            let digits = word.bytes().all(|byte| byte.is_ascii_digit());
            let number = word.parse().ok().filter(|_| digits);
            (Some(number.ok_or_else(|| ChangeError::NoNumber(word.chars().take(60).collect()))?), rest)
        }
        _ => (None, entry),
    };
    Ok((position, parse_rule(rule).map_err(ChangeError::Rule)?))
}

fn change(lists: &mut Lists, line: &str) -> Result<(), ChangeError> {
    let (verb, entry) = Verb::split(line, SYNTAX).map_err(ChangeError::Verb)?;
    match parse(entry)? {
        (position, AnyRule::V4(rule)) => lists.v4.change(verb, position, rule),
        (position, AnyRule::V6(rule)) => lists.v6.change(verb, position, rule),
    }
}

impl ControlTable for RuleTable {
    fn syntax(&self) -> &'static str {
        SYNTAX
    }

    fn apply(&self, changes: &[&str]) -> Outcome {
        self.with_lists(|lists| {
            let mut outcome = Outcome::default();
            for (at, line) in changes.iter().enumerate() {
                outcome.note(at, change(lists, line));
            }
            if outcome.made > 0 {
                let before = self.live.look();
                let v4 = lists.v4.compile(&before.v4, before.v4.default_decision());
                let v6 = lists.v6.compile(&before.v6, before.v6.default_decision());
                self.live.publish(Arc::new(List { v4, v6 }));
            }
            outcome
        })
    }

    fn len(&self) -> usize {
        let list = self.live.look();
        list.v4.rules().len() + list.v6.rules().len()
    }

    fn entries(&self, after: Option<&str>, most: usize) -> Result<Vec<String>, String> {
        let after = after.map(parse).transpose().map_err(|error| error.to_string())?;
        let next = |position: Option<usize>| position.map_or(0, |position| position.saturating_add(1));
        self.with_lists(|lists| {
            Ok(match after {
                Some((position, AnyRule::V6(_))) => lists.v6.lines(next(position)).take(most).collect(),
                Some((position, AnyRule::V4(_))) => {
                    lists.v4.lines(next(position)).chain(lists.v6.lines(0)).take(most).collect()
                }
                None => lists.v4.lines(0).chain(lists.v6.lines(0)).take(most).collect(),
            })
        })
    }
}

#[cfg(test)]
mod tests;
