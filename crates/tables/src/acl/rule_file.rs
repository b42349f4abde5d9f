//! Reads a file of rules, one per line. A line that begins with `@` has ClassBench's form, other lines are [readable].
//!
//! The order of the lines is the priority: the first line comes first. `#` starts a comment. Empty lines are skipped.

mod errors;

pub use errors::{FileErrors, Problem, RuleLineError};

use super::MAX_RULES;
use super::classbench;
use super::readable::{self, Readable, Sets};
use super::rule::{Rule4, Rule6};

/// The largest number of errors that are kept; further errors are only counted.
const MAX_ERRORS: usize = 50;

/// The rules of a file, by family, each list in file order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleFile {
    /// IPv4 rules.
    pub v4: Vec<Rule4>,
    /// The line of each IPv4 rule, from 1.
    pub v4_lines: Vec<u32>,
    /// IPv6 rules.
    pub v6: Vec<Rule6>,
    /// The line of each IPv6 rule, from 1.
    pub v6_lines: Vec<u32>,
    /// The number of ClassBench rules whose flags column has a mask other than 0. Flags are not matched, so these rules
    /// match more packets than the file says.
    pub flags_ignored: usize,
    /// The sets that the file defines.
    pub sets: Sets,
}

/// A rule of either family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnyRule {
    /// An IPv4 rule.
    V4(Rule4),
    /// An IPv6 rule.
    V6(Rule6),
}

/// Writes the readable form.
impl std::fmt::Display for AnyRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AnyRule::V4(rule) => Readable(rule).fmt(f),
            AnyRule::V6(rule) => Readable(rule).fmt(f),
        }
    }
}

impl AnyRule {
    /// Returns the rule as a line of ClassBench's form.
    #[must_use]
    pub fn classbench(&self) -> String {
        match self {
            AnyRule::V4(rule) => rule.to_string(),
            AnyRule::V6(rule) => rule.to_string(),
        }
    }
}

/// Reads a rule file; `file` is its name for messages.
///
/// # Errors
/// All problems of the file; at most 50 are kept in full.
pub fn parse(file: &str, bytes: &[u8]) -> Result<RuleFile, FileErrors> {
    let mut rules = RuleFile::default();
    let mut errors = FileErrors::default();
    for (line, bytes) in (1u32..).zip(bytes.split(|&byte| byte == b'\n')) {
        let mut problems = Vec::new();
        match std::str::from_utf8(bytes) {
            Ok(text) => match read(text, &mut rules.sets) {
                Ok(read) => rules.add(&read, line, &mut problems),
                Err(wrong) => problems = wrong,
            },
            Err(_) => problems.push(Problem::NotText),
        }
        let full = problems.contains(&Problem::TooMany);
        for problem in problems {
            if errors.errors.len() < MAX_ERRORS {
                errors.errors.push(RuleLineError { file: file.into(), line, problem });
            } else {
                errors.further += 1;
            }
        }
        if full {
            break;
        }
    }
    if errors.errors.is_empty() { Ok(rules) } else { Err(errors) }
}

/// Reads a line in either form and returns its rules. Names of sets are looked up in `sets`.
///
/// # Errors
/// All problems of the line.
pub fn parse_line(text: &str, sets: &Sets) -> Result<Vec<AnyRule>, String> {
    let line = text.split('#').next().unwrap_or_default().trim();
    if line.split_whitespace().next() == Some("set") {
        return Err("a change cannot define a set: define sets in the rule file, or in the list `rules`".to_owned());
    }
    // A ClassBench line does not use or define sets, so an empty `Sets` is enough.
    let read = if line.starts_with('@') {
        read(line, &mut Sets::default()).map(|read| read.rules)
    } else {
        readable::parse(line, sets).map_err(|wrong| vec![Problem::Readable(wrong)])
    };
    match read {
        Ok(rules) if rules.is_empty() => Err("the line has no rule".to_owned()),
        Ok(rules) => Ok(rules),
        Err(problems) => Err(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
    }
}

/// Converts a line of a rule table, such as `7 permit tcp from any to any port 80`, to ClassBench's form with its
/// number. Returns `None` for any other line.
#[must_use]
pub fn numbered_classbench(entry: &str) -> Option<String> {
    let (number, rule) = entry.split_once(' ')?;
    number.parse::<usize>().ok()?;
    let rules = readable::parse(rule, &Sets::default()).ok()?;
    let [rule] = rules.as_slice() else { return None };
    Some(format!("{number} {}", rule.classbench()))
}

/// The entry point for fuzzers: checks that any bytes give either rules or a bounded number of errors, and that each
/// rule, written in either form, reads back as the same rule.
pub fn fuzz_parse(bytes: &[u8]) {
    match parse("fuzz", bytes) {
        Ok(rules) => {
            assert_eq!((rules.v4.len(), rules.v6.len()), (rules.v4_lines.len(), rules.v6_lines.len()));
            let all =
                rules.v4.iter().map(|rule| AnyRule::V4(*rule)).chain(rules.v6.iter().map(|rule| AnyRule::V6(*rule)));
            for rule in all {
                for line in [rule.to_string(), rule.classbench()] {
                    assert_eq!(parse_line(&line, &Sets::default()), Ok(vec![rule]), "{line}");
                }
            }
        }
        Err(errors) => assert!(!errors.errors.is_empty() && errors.errors.len() <= MAX_ERRORS),
    }
}

/// The content of one line.
#[derive(Default)]
struct LineContent {
    rules: Vec<AnyRule>,
    /// True if the rule has flags, which are not matched.
    flags: bool,
}

/// Reads a line of a file. The result has no rules if the line is empty or defines a set, which is added to `sets`.
fn read(text: &str, sets: &mut Sets) -> Result<LineContent, Vec<Problem>> {
    let line = text.split('#').next().unwrap_or_default().trim();
    let readable_error = |wrong| vec![Problem::Readable(wrong)];
    if let Some(fields) = line.strip_prefix('@') {
        let (rule, flags) = classbench::parse(fields)?;
        return Ok(LineContent { rules: vec![rule], flags });
    }
    match line.split_whitespace().next() {
        None => Ok(LineContent::default()),
        Some("set") => readable::parse_set(line, sets).map(|()| LineContent::default()).map_err(readable_error),
        Some("permit" | "deny" | "drop" | "count") => {
            readable::parse(line, sets).map(|rules| LineContent { rules, flags: false }).map_err(readable_error)
        }
        Some(word) => Err(vec![Problem::Readable(readable::not_an_action(word))]),
    }
}

impl RuleFile {
    /// Adds the rules of a line. If the file then has too many rules, adds only the problem [`Problem::TooMany`], after
    /// which the file is not read on.
    fn add(&mut self, read: &LineContent, line: u32, problems: &mut Vec<Problem>) {
        if self.v4.len() + self.v6.len() + read.rules.len() > MAX_RULES {
            return problems.push(Problem::TooMany);
        }
        self.flags_ignored += usize::from(read.flags);
        for rule in &read.rules {
            match rule {
                AnyRule::V4(rule) => {
                    self.v4.push(*rule);
                    self.v4_lines.push(line);
                }
                AnyRule::V6(rule) => {
                    self.v6.push(*rule);
                    self.v6_lines.push(line);
                }
            }
        }
    }
}
