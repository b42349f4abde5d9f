//! The rules of a module: workers classify packets by the rules while the control plane changes them.
//!
//! There is one ordered list of rules, and two copies of the form that classifies packets ([`Live`]). Both copies
//! follow the list step by step. A rule keeps the number of its counter if its position changes.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::acl::readable::{Readable, Sets};
use crate::acl::rule_file::{AnyRule, parse_line};
use crate::acl::{BuildError, MAX_RULES, Order, Rule, Rule4, Rule6, RuleAddress, Step, shadow};
use forebay_graph::{Live, Outcome, Reader, Table as ControlTable, Verb, short};
use forebay_measure::Counter;
use forebay_units::wording::{allowed, range};
use thiserror::Error;

use super::list::{Change, Form, List, Log};
use super::rest;

/// One family's rules, in order.
pub(super) struct Rules<A> {
    pub(super) order: Order<A>,
    /// The number of rules at the start. All rules that are added later are counted under this number.
    added: u32,
}

impl<A: RuleAddress> Rules<A> {
    /// Creates the ordered list of a form that has not been changed yet.
    fn of(form: &Form<A>) -> Self {
        let rules = form.rules().expect("from the first change on, the rules are also kept in order");
        let order = Order::of(rules);
        Self { added: order.len() as u32, order }
    }

    /// Inserts rules in order before the rule at `position`, or at the end if it is `None`. Applies the changes to
    /// `form`, too, and appends them to `log`.
    fn insert(&mut self, position: Option<usize>, rules: &[Rule<A>], form: &mut Form<A>, log: &mut Vec<Change<A>>) {
        let position = position.unwrap_or(self.order.len());
        let mut step = |step| form.change(Change::Step(step), log);
        for (position, &rule) in (position..).zip(rules) {
            let label = self.order.insert(position, rule, self.added, &mut step);
            step(Step::Insert { rule, label, number: self.added });
        }
    }

    /// Replaces the rule at a position by `rules`. Does nothing if the position is beyond the end or `rules` is empty.
    fn replace(&mut self, position: usize, rules: &[Rule<A>], form: &mut Form<A>, log: &mut Vec<Change<A>>) {
        let (Some(entry), Some((&rule, others))) = (self.order.get(position).copied(), rules.split_first()) else {
            return;
        };
        let number = self.added;
        self.order.set(position, rule, number);
        form.change(Change::Step(Step::Remove { rule: entry.rule, label: entry.label }), log);
        form.change(Change::Step(Step::Insert { rule, label: entry.label, number }), log);
        self.insert(Some(position + 1), others, form, log);
    }

    /// Removes the rule at a position.
    fn remove_at(&mut self, position: usize, form: &mut Form<A>, log: &mut Vec<Change<A>>) {
        let entry = self.order.remove(position);
        form.change(Change::Step(Step::Remove { rule: entry.rule, label: entry.label }), log);
    }

    /// Removes the first rule equal to `rule`, if there is one.
    fn remove(&mut self, rule: Rule<A>, form: &mut Form<A>, log: &mut Vec<Change<A>>) {
        if let Some(label) = form.find(&rule) {
            self.order.remove_labelled(label);
            form.change(Change::Step(Step::Remove { rule, label }), log);
        }
    }

    /// Returns the lines of the table from a position of this family on. `before` is the number of entries before this
    /// family's first entry.
    fn lines(&self, before: usize, from: usize) -> impl Iterator<Item = String> {
        (before + from..).zip(self.order.from(from)).map(|(number, it)| format!("{number} {}", Readable(&it.rule)))
    }
}

/// The ordered lists that changes are made to.
pub(super) struct Lists {
    pub(super) v4: Rules<u32>,
    pub(super) v6: Rules<u128>,
}

/// The state that all users of a list share under the lock.
pub(super) struct State {
    /// `None` before the first change: the rules are those that were compiled at the start.
    pub(super) lists: Option<Lists>,
    /// The number of change requests that took effect.
    pub(super) changes: u64,
    /// The time that compiling the list took the last time.
    pub(super) compiling: Option<Duration>,
    /// True while a thread waits for a pause in changes or compiles the list.
    pub(super) awaited: bool,
    /// True if the table has been dropped, so that no more changes can come.
    pub(super) gone: bool,
    /// For each family (IPv4, IPv6), how often compiling was given up as too costly.
    given_up: Arc<[Counter]>,
}

impl State {
    /// Counts a family (0 for IPv4, 1 for IPv6) whose rules were not compiled because compiling would be too costly.
    /// Does nothing if they were compiled, or not compiled for another reason.
    pub(super) fn note(&self, family: usize, why: Option<&BuildError>) {
        if let (Some(BuildError::DoesNotFit { .. }), Some(count)) = (why, self.given_up.get(family)) {
            count.add(1);
        }
    }
}

/// A module's rules, shared by the table and the thread that compiles them.
pub(super) struct Shared {
    state: Mutex<State>,
    /// The two copies of the form that classifies packets.
    pub(super) live: Arc<Live<List, Log>>,
    /// Notified when the table is dropped.
    pub(super) going: Condvar,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock, except when memory runs out.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `then` with the ordered lists. The first call creates the lists.
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
    /// True if the rules are synthetic. Synthetic rules hide one another by design, so no warnings are given.
    synthetic: bool,
    /// The pause in changes before the list is compiled for the first time.
    quiet: Duration,
}

impl RuleTable {
    /// Creates the table. `given_up` has one counter for each family, which counts how often compiling was given up.
    pub(super) fn of(list: Arc<List>, given_up: Arc<[Counter]>) -> Self {
        Self::compiled_after(rest::QUIET, list, given_up)
    }

    /// As [`of`](Self::of), with another pause before the list is compiled. Tests use it.
    pub(super) fn compiled_after(quiet: Duration, list: Arc<List>, given_up: Arc<[Counter]>) -> Self {
        let state = State { lists: None, changes: 0, compiling: None, awaited: false, gone: false, given_up };
        state.note(0, list.v4.not_compiled());
        state.note(1, list.v6.not_compiled());
        let shared = Shared { state: Mutex::new(state), live: Arc::new(Live::new(list)), going: Condvar::new() };
        Self { shared: Arc::new(shared), synthetic: false, quiet }
    }

    /// Sets whether the rules are synthetic.
    pub(super) fn synthetic(mut self, synthetic: bool) -> Self {
        self.synthetic = synthetic;
        self
    }

    /// Returns a worker's reader of the rules.
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

/// The largest number of pairs of rules that are compared for the changes of one request, which takes some
/// milliseconds.
const LOOKS: usize = 1 << 20;

/// The syntax of changes.
const SYNTAX: &str = "\
add [NUMBER] RULE       adds a rule at the end, or before the rule with this number
remove RULE             removes the first rule equal to this one
remove NUMBER [RULE]    removes the rule with this number; with RULE, only if the rule is equal to RULE
replace NUMBER RULE     replaces the rule with this number by another one
where NUMBER is shown in the table, and RULE is written as in a rule file: permit tcp from 10.0.0.0/8 to any port 80";

const EXAMPLE: &str = "permit tcp from 10.0.0.0/8 to any port 80";

/// The reason why a change of the rules was refused.
#[derive(Debug, Error)]
enum ChangeError {
    #[error("{0}")]
    Verb(String),
    #[error("{0}: write a rule such as {EXAMPLE}")]
    Rule(String),
    #[error("'{0}' is not a rule number: allowed are whole numbers from 0")]
    NoNumber(String),
    #[error("no rule has number {number}: {}", allowed(&range(.least, .most)))]
    Number { number: usize, least: usize, most: usize },
    #[error("no rule has a number: the table is empty")]
    Empty,
    #[error("number {number} belongs to a rule of the other address family: {}", allowed(&range(.least, .most)))]
    Family { number: usize, least: usize, most: usize },
    #[error("the table has no rule of this address family that could be replaced")]
    NoneOfFamily,
    #[error(
        "the rule applies to IPv4 and IPv6, but a number belongs to one family: write ip or ip6 before the protocol"
    )]
    BothFamilies,
    #[error("'add' needs a rule: write add [NUMBER] RULE, such as add 0 {EXAMPLE}")]
    NoRule,
    #[error("'replace' needs a number and a rule: write replace NUMBER RULE")]
    NoReplacement,
    #[error("rule number {number} is {current}, not the given rule: write that rule, or only the number")]
    Other { number: usize, current: String },
    #[error(
        "the table has no rule {0}: the addresses, protocol, ports and action must equal those of a rule in the table"
    )]
    Unknown(String),
    #[error("the table is full: it has {MAX_RULES} rules; remove a rule first")]
    Full,
}

/// Splits an entry into its number, if it has one, and the text after the number. Returns an error if the first word
/// begins like a number but is not a whole number from 0.
fn split(entry: &str) -> Result<(Option<usize>, &str), ChangeError> {
    let (word, rest) = entry.split_once(|byte: char| byte.is_ascii_whitespace()).unwrap_or((entry, ""));
    if !word.starts_with(|first: char| first.is_ascii_digit() || first == '-' || first == '+') {
        return Ok((None, entry));
    }
    let digits = word.bytes().all(|byte| byte.is_ascii_digit());
    let number = word.parse().ok().filter(|_| digits);
    Ok((Some(number.ok_or_else(|| ChangeError::NoNumber(short(word)))?), rest.trim_ascii()))
}

/// The position of a rule: its family and its index there.
enum Position {
    V4(usize),
    V6(usize),
}

impl Lists {
    /// Returns the position of the rule with a number.
    fn position_of(&self, number: usize) -> Result<Position, ChangeError> {
        let (v4, v6) = (self.v4.order.len(), self.v6.order.len());
        match number.checked_sub(v4) {
            _ if v4 + v6 == 0 => Err(ChangeError::Empty),
            None => Ok(Position::V4(number)),
            Some(position) if position < v6 => Ok(Position::V6(position)),
            Some(_) => Err(ChangeError::Number { number, least: 0, most: v4 + v6 - 1 }),
        }
    }

    /// Returns the position and the rule of a number.
    fn at(&self, number: usize) -> Result<(Position, AnyRule), ChangeError> {
        let position = self.position_of(number)?;
        let rule = match position {
            Position::V4(position) => self.v4.order.get(position).map(|entry| AnyRule::V4(entry.rule)),
            Position::V6(position) => self.v6.order.get(position).map(|entry| AnyRule::V6(entry.rule)),
        };
        Ok((position, rule.ok_or(ChangeError::Empty)?))
    }
}

/// Splits rules by family.
fn by_family(rules: &[AnyRule]) -> (Vec<Rule4>, Vec<Rule6>) {
    let v4 = rules.iter().filter_map(|rule| if let AnyRule::V4(rule) = rule { Some(*rule) } else { None });
    let v6 = rules.iter().filter_map(|rule| if let AnyRule::V6(rule) = rule { Some(*rule) } else { None });
    (v4.collect(), v6.collect())
}

/// Searches for hidden rules: rules that changes have inserted, or rules that inserted rules hide.
struct HiddenSearch {
    /// The number of pairs of rules that may still be compared.
    budget: usize,
    warnings: Vec<String>,
}

impl HiddenSearch {
    /// Searches the rules around each of the `count` rules from position `at` on. Adds warnings with the numbers of the
    /// table: `before` is the number of entries before this family's first entry.
    fn at<A: RuleAddress>(&mut self, order: &Order<A>, before: usize, at: usize, count: usize) {
        for at in at..at + count {
            let Some((hidden, by)) = shadow::hidden_near(order, at, &mut self.budget) else { continue };
            let shown = |at| order.get(at).map(|entry| Readable(&entry.rule).to_string()).unwrap_or_default();
            let (hidden, by) = ((before + hidden, shown(hidden)), (before + by, shown(by)));
            self.warnings.push(shadow::warning((hidden.0, &hidden.1), (by.0, &by.1)));
        }
    }
}

/// Returns the warnings about all hidden rules of a family. `before` is the number of entries before this family's
/// first entry.
fn hidden<'r, A: RuleAddress>(rules: &'r [Rule<A>], before: usize) -> impl Iterator<Item = String> + 'r {
    shadow::hidden(rules).into_iter().map(move |(hidden, by)| {
        let shown = |at: usize| Readable(&rules[at]).to_string();
        shadow::warning((before + hidden, &shown(hidden)), (before + by, &shown(by)))
    })
}

/// Makes the change in `line`. Returns the number of rules that it added, removed or replaced. After an error, nothing
/// has changed.
fn change(
    lists: &mut Lists,
    list: &mut List,
    log: &mut Log,
    search: &mut HiddenSearch,
    line: &str,
) -> Result<u64, ChangeError> {
    let (verb, entry) = Verb::split(line, SYNTAX).map_err(ChangeError::Verb)?;
    let (number, text) = split(entry)?;
    if let (Verb::Remove, Some(number), "") = (verb, number, text) {
        remove_at(lists, list, log, lists.position_of(number)?);
        return Ok(1);
    }
    if text.is_empty() {
        return Err(if verb == Verb::Add { ChangeError::NoRule } else { ChangeError::NoReplacement });
    }
    let rules = parse_line(text, &list.sets).map_err(ChangeError::Rule)?;
    let (v4, v6) = by_family(&rules);
    let (count4, count6) = (lists.v4.order.len(), lists.v6.order.len());
    let full = count4 + v4.len() > MAX_RULES || count6 + v6.len() > MAX_RULES;
    match (verb, number) {
        (Verb::Add, _) if full => return Err(ChangeError::Full),
        (Verb::Add, Some(_)) if !v4.is_empty() && !v6.is_empty() => return Err(ChangeError::BothFamilies),
        (Verb::Add, None) => {
            lists.v4.insert(None, &v4, &mut list.v4, &mut log.v4);
            lists.v6.insert(None, &v6, &mut list.v6, &mut log.v6);
            search.at(&lists.v4.order, 0, count4, v4.len());
            search.at(&lists.v6.order, lists.v4.order.len(), count6, v6.len());
        }
        (Verb::Add, Some(number)) => {
            // `most` is one more than the number of the family's last rule. A rule added under this number is appended.
            let (least, most) = if v6.is_empty() { (0, count4) } else { (count4, count4 + count6) };
            match number.checked_sub(least).filter(|_| number <= most) {
                Some(at) if v6.is_empty() => {
                    lists.v4.insert(Some(at), &v4, &mut list.v4, &mut log.v4);
                    search.at(&lists.v4.order, 0, at, v4.len());
                }
                Some(at) => {
                    lists.v6.insert(Some(at), &v6, &mut list.v6, &mut log.v6);
                    search.at(&lists.v6.order, count4, at, v6.len());
                }
                None if number > count4 + count6 => return Err(ChangeError::Number { number, least, most }),
                None => return Err(ChangeError::Family { number, least, most }),
            }
        }
        (Verb::Replace, None) => return Err(ChangeError::NoReplacement),
        (Verb::Replace, Some(number)) => {
            let position = lists.position_of(number)?;
            // The replaced rule makes room for one rule.
            if count4 + v4.len() > MAX_RULES + 1 || count6 + v6.len() > MAX_RULES + 1 {
                return Err(ChangeError::Full);
            }
            match position {
                Position::V4(_) | Position::V6(_) if !v4.is_empty() && !v6.is_empty() => {
                    return Err(ChangeError::BothFamilies);
                }
                Position::V4(at) if v6.is_empty() => {
                    lists.v4.replace(at, &v4, &mut list.v4, &mut log.v4);
                    search.at(&lists.v4.order, 0, at, v4.len());
                }
                Position::V6(at) if v4.is_empty() => {
                    lists.v6.replace(at, &v6, &mut list.v6, &mut log.v6);
                    search.at(&lists.v6.order, count4, at, v6.len());
                }
                Position::V4(_) => return Err(other_family(number, count4, count4 + count6)),
                Position::V6(_) => return Err(other_family(number, 0, count4)),
            }
        }
        (Verb::Remove, Some(number)) => {
            let (position, current) = lists.at(number)?;
            if !rules.contains(&current) {
                return Err(ChangeError::Other { number, current: current.to_string() });
            }
            remove_at(lists, list, log, position);
            return Ok(1);
        }
        (Verb::Remove, None) => {
            let known = |rule: &AnyRule| match rule {
                AnyRule::V4(rule) => list.v4.find(rule).is_some(),
                AnyRule::V6(rule) => list.v6.find(rule).is_some(),
            };
            if let Some(unknown) = rules.iter().find(|rule| !known(rule)) {
                return Err(ChangeError::Unknown(unknown.to_string()));
            }
            v4.into_iter().for_each(|rule| lists.v4.remove(rule, &mut list.v4, &mut log.v4));
            v6.into_iter().for_each(|rule| lists.v6.remove(rule, &mut list.v6, &mut log.v6));
        }
    }
    Ok(rules.len() as u64)
}

/// Returns the error that a rule cannot replace the rule with this number, which is of the other family. The numbers of
/// the rule's own family are `least` to `end` - 1.
fn other_family(number: usize, least: usize, end: usize) -> ChangeError {
    match end.checked_sub(1) {
        Some(most) if most >= least => ChangeError::Family { number, least, most },
        _ => ChangeError::NoneOfFamily,
    }
}

/// Removes the rule at a position, which must exist.
fn remove_at(lists: &mut Lists, list: &mut List, log: &mut Log, position: Position) {
    match position {
        Position::V4(position) => lists.v4.remove_at(position, &mut list.v4, &mut log.v4),
        Position::V6(position) => lists.v6.remove_at(position, &mut list.v6, &mut log.v6),
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
                let mut search = HiddenSearch { budget: LOOKS, warnings: Vec::new() };
                for (at, line) in changes.iter().enumerate() {
                    outcome.note_entries(at, change(lists, list, log, &mut search, line));
                }
                outcome.warnings = search.warnings;
                outcome
            })
        });
        if outcome.made > 0 {
            state.changes += 1;
            state.awaited = state.awaited || rest::wait(&self.shared, self.quiet);
        }
        outcome
    }

    fn warnings(&self) -> Vec<String> {
        let state = self.shared.lock();
        let (v4, v6): (Vec<Rule4>, Vec<Rule6>) = match &state.lists {
            None if self.synthetic => return Vec::new(),
            Some(Lists { v4, v6 }) => {
                (v4.order.from(0).map(|entry| entry.rule).collect(), v6.order.from(0).map(|entry| entry.rule).collect())
            }
            None => {
                let list = self.shared.live.look();
                let (v4, v6) = (list.v4.rules().unwrap_or_default(), list.v6.rules().unwrap_or_default());
                (v4.to_vec(), v6.to_vec())
            }
        };
        drop(state);
        hidden(&v4, 0).chain(hidden(&v6, v4.len())).collect()
    }

    fn len(&self) -> usize {
        let list = self.shared.live.look();
        list.v4.len() + list.v6.len()
    }

    fn entries(&self, after: Option<&str>, most: usize) -> Result<Vec<String>, String> {
        let after = after.map(|line| {
            let (number, text) = split(line).map_err(|error| error.to_string())?;
            let rules = parse_line(text, &Sets::default())?;
            let number = number.ok_or_else(|| ChangeError::NoNumber(short(line)).to_string())?;
            Ok::<_, String>((number, matches!(rules.first(), Some(AnyRule::V6(_)))))
        });
        let after = after.transpose()?;
        self.shared.with_lists(&mut self.shared.lock(), |lists| {
            let before = lists.v4.order.len();
            Ok(match after {
                Some((number, true)) => {
                    let next = number.saturating_sub(before).saturating_add(1);
                    lists.v6.lines(before, next).take(most).collect()
                }
                Some((number, false)) => {
                    let next = number.saturating_add(1);
                    lists.v4.lines(0, next).chain(lists.v6.lines(before, 0)).take(most).collect()
                }
                None => lists.v4.lines(0, 0).chain(lists.v6.lines(before, 0)).take(most).collect(),
            })
        })
    }
}

#[cfg(test)]
mod tests;
