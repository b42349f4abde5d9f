//! The rules of a module, asked by workers and changed by the control plane at the same time.
//!
//! Their order is here once; of what packets are judged by there are two ([`Live`]), which follow it step by step. A rule
//! keeps the number under which it is counted wherever it moves.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay_graph::{Live, Outcome, Reader, Table as ControlTable, Verb};
use forebay_measure::Counter;
use thiserror::Error;

use super::list::{Change, Form, List, Log};
use super::rest;
use crate::tables::acl::classbench::{AnyRule, parse_rule};
use crate::tables::acl::{Address, BuildError, MAX_RULES, Order, Rule, Step};

/// One family's rules, in order.
pub(super) struct Rules<A> {
    pub(super) order: Order<A>,
    /// The number of rules that were not there at first.
    added: u32,
}

impl<A: Address> Rules<A> {
    fn of(form: &Form<A>) -> Self {
        let rules = form.rules().expect("from the first change on the rules are kept in order too");
        let order = Order::of(rules);
        Self { added: order.len() as u32, order }
    }

    /// Makes a change, and makes it in `form` too and notes it in `log`.
    fn change(
        &mut self,
        (verb, position, rule): (Verb, Option<usize>, Rule<A>),
        form: &mut Form<A>,
        log: &mut Vec<Change<A>>,
    ) -> Result<(), ChangeError> {
        let (len, number) = (self.order.len(), self.added);
        let mut step = |step| form.change(Change::Step(step), log);
        let there = |position| self.order.get(position).copied().ok_or_else(|| beyond(position, len));
        match (verb, position) {
            (Verb::Add, _) if len == MAX_RULES => return Err(ChangeError::Full),
            (Verb::Add, Some(position)) if position > len => {
                return Err(ChangeError::Position { position, allowed: len });
            }
            (Verb::Add, position) => {
                let label = self.order.insert(position.unwrap_or(len), rule, number, &mut step);
                step(Step::Insert { rule, label, number });
            }
            (Verb::Replace, Some(position)) => {
                let place = there(position)?;
                self.order.set(position, rule, number);
                step(Step::Remove { rule: place.rule, label: place.label });
                step(Step::Insert { rule, label: place.label, number });
            }
            (Verb::Replace, None) => return Err(ChangeError::NoPosition),
            (Verb::Remove, Some(position)) => {
                let place = there(position)?;
                if place.rule != rule {
                    return Err(ChangeError::Other { position, there: place.rule.to_string() });
                }
                self.order.remove(position);
                step(Step::Remove { rule, label: place.label });
            }
            (Verb::Remove, None) => {
                let label = form.find(&rule).ok_or_else(|| ChangeError::Unknown(rule.to_string()))?;
                self.order.remove_labelled(label);
                form.change(Change::Step(Step::Remove { rule, label }), log);
            }
        }
        Ok(())
    }

    /// The lines from a position on.
    fn lines(&self, from: usize) -> impl Iterator<Item = String> {
        (from..).zip(self.order.from(from)).map(|(position, it)| format!("{position} {}", it.rule))
    }
}

fn beyond(position: usize, len: usize) -> ChangeError {
    match len.checked_sub(1) {
        Some(allowed) => ChangeError::Position { position, allowed },
        None => ChangeError::Empty,
    }
}

/// The lists that changes are made on.
pub(super) struct Lists {
    pub(super) v4: Rules<u32>,
    pub(super) v6: Rules<u128>,
}

/// What those who change a list hold.
pub(super) struct State {
    /// None before the first change: then the rules are those that are compiled.
    pub(super) lists: Option<Lists>,
    /// How often there were changes.
    pub(super) changes: u64,
    /// How long it last took to compile the list.
    pub(super) compiling: Option<Duration>,
    /// Whether somebody waits for the list to come to rest.
    pub(super) awaited: bool,
    /// Whether nobody can change it any more.
    pub(super) gone: bool,
    /// How often compiling the rules of IPv4 and IPv6 was given up, as it would have taken too much.
    given_up: Arc<[Counter]>,
}

impl State {
    /// Counts a family's rules that were not compiled, where what it would have taken is the reason.
    pub(super) fn note(&self, family: usize, why: Option<&BuildError>) {
        if let (Some(BuildError::DoesNotFit { .. }), Some(count)) = (why, self.given_up.get(family)) {
            count.add(1);
        }
    }
}

/// A module's rules, for all who change them.
pub(super) struct Shared {
    state: Mutex<State>,
    pub(super) live: Arc<Live<List, Log>>,
    /// Told when nobody can change the rules any more.
    pub(super) going: Condvar,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that holds it panics half way but for want of memory.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_lists<R>(&self, state: &mut State, then: impl FnOnce(&mut Lists) -> R) -> R {
        then(state.lists.get_or_insert_with(|| {
            let list = self.live.look();
            Lists { v4: Rules::of(&list.v4), v6: Rules::of(&list.v6) }
        }))
    }
}

/// A module's rules.
pub(super) struct RuleTable {
    pub(super) shared: Arc<Shared>,
    /// For how long there must be no change before the list is compiled for the first time.
    quiet: Duration,
}

impl RuleTable {
    /// Counts in `given_up`, one counter a family, how often compiling the list was given up.
    pub(super) fn of(list: Arc<List>, given_up: Arc<[Counter]>) -> Self {
        Self::compiled_after(rest::QUIET, list, given_up)
    }

    pub(super) fn compiled_after(quiet: Duration, list: Arc<List>, given_up: Arc<[Counter]>) -> Self {
        let state = State { lists: None, changes: 0, compiling: None, awaited: false, gone: false, given_up };
        state.note(0, list.v4.not_compiled());
        state.note(1, list.v6.not_compiled());
        let shared = Shared { state: Mutex::new(state), live: Arc::new(Live::new(list)), going: Condvar::new() };
        Self { shared: Arc::new(shared), quiet }
    }

    /// A worker's way to the rules.
    pub(super) fn reader(&self) -> Reader<List, Log> {
        Reader::new(Arc::clone(&self.shared.live))
    }
}

impl Drop for RuleTable {
    fn drop(&mut self) {
        self.shared.lock().gone = true;
        self.shared.going.notify_all();
    }
}

/// How rules are changed.
const SYNTAX: &str = "\
add [POSITION] RULE       a new rule, at the end or before the rule that has this position among those of its family
remove [POSITION] RULE    a rule that is there, the first of its kind or the one that has this position
replace POSITION RULE     another rule in the place of the one that has this position
where RULE is as in a file of rules: @10.0.0.0/8 0.0.0.0/0 0 : 65535 22 : 22 0x06/0xff deny";

const EXAMPLE: &str = "@10.0.0.0/8 0.0.0.0/0 0 : 65535 22 : 22 0x06/0xff deny";

/// Why a change of the rules was refused.
#[derive(Debug, Error)]
enum ChangeError {
    #[error("{0}")]
    Verb(String),
    #[error("{0}: write a rule such as {EXAMPLE}")]
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

fn change(lists: &mut Lists, list: &mut List, log: &mut Log, line: &str) -> Result<(), ChangeError> {
    let (verb, entry) = Verb::split(line, SYNTAX).map_err(ChangeError::Verb)?;
    match parse(entry)? {
        (position, AnyRule::V4(rule)) => lists.v4.change((verb, position, rule), &mut list.v4, &mut log.v4),
        (position, AnyRule::V6(rule)) => lists.v6.change((verb, position, rule), &mut list.v6, &mut log.v6),
    }
}

impl ControlTable for RuleTable {
    fn syntax(&self) -> &'static str {
        SYNTAX
    }

    fn apply(&self, changes: &[&str]) -> Outcome {
        let mut state = self.shared.lock();
        let outcome = self.shared.with_lists(&mut state, |lists| {
            self.shared.live.change(|list, log| {
                let mut outcome = Outcome::default();
                for (at, line) in changes.iter().enumerate() {
                    outcome.note(at, change(lists, list, log, line));
                }
                outcome
            })
        });
        if outcome.made > 0 {
            state.changes += 1;
            state.awaited = state.awaited || rest::wait(&self.shared, self.quiet);
        }
        outcome
    }

    fn len(&self) -> usize {
        let list = self.shared.live.look();
        list.v4.len() + list.v6.len()
    }

    fn entries(&self, after: Option<&str>, most: usize) -> Result<Vec<String>, String> {
        let after = after.map(parse).transpose().map_err(|error| error.to_string())?;
        let next = |position: Option<usize>| position.map_or(0, |position| position.saturating_add(1));
        self.shared.with_lists(&mut self.shared.lock(), |lists| {
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
