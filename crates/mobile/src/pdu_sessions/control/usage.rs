//! The charges of users, as a table. An operator reads the counts, and then removes the counts that were read: packets
//! that were counted in between stay counted.

use std::sync::Arc;

use forebay_graph::{Outcome, Table, Verb, short};

use super::{Core, Entry, first_name, no_session, show, unsettled};
use crate::pdu_sessions::accounts::Usage;
use crate::pdu_sessions::line::User;

/// The charges of users, without charges that were removed from this table before.
pub(in crate::pdu_sessions) struct UsageTable(pub(in crate::pdu_sessions) Arc<Core>);

const USAGE: &str = "\
remove USER [COUNTS]   subtracts COUNTS, as they were shown, from the user's counts; without COUNTS, subtracts all";

impl Table for UsageTable {
    fn syntax(&self) -> &'static str {
        USAGE
    }

    fn apply(&self, changes: &[&str]) -> Outcome {
        let mut outcome = Outcome::default();
        let mut books = self.0.books();
        for (at, change) in changes.iter().enumerate() {
            let result = (|| {
                let (verb, entry) = Verb::split(change, USAGE)?;
                if verb != Verb::Remove {
                    return Err(format!("only packets add to counts: allowed is {}", Verb::Remove.form(USAGE)));
                }
                let mut words = entry.split_ascii_whitespace();
                let user = User::parse(words.next().unwrap_or_default())?;
                let number = books.session_of(user).ok_or_else(|| no_session(user))?;
                let usage = self.0.accounts.usage(number);
                let entry = books.sessions.get_mut(&number).ok_or_else(|| no_session(user))?;
                let rest = unsettled(&usage, &entry.settled);
                let taken = shown(words)?.unwrap_or_else(|| rest.clone());
                // Either all counts are subtracted or none. If a refused change had subtracted some counts, these
                // counts would be subtracted twice when the change is sent again.
                let is_covered = |(rule, taken): &(u32, Usage)| {
                    let counted = rest.iter().find(|(other, _)| other == rule);
                    counted.is_some_and(|(_, counted)| taken.less(*counted) == Usage::default())
                };
                if !taken.iter().all(is_covered) {
                    return Err(format!("{user} has lower counts: allowed are the listed counts, or lower ones"));
                }
                for (rule, taken) in taken {
                    let settled = entry.settled.entry(rule).or_default();
                    settled.0.iter_mut().zip(taken.0).for_each(|(settled, taken)| *settled += taken);
                }
                Ok(())
            })();
            outcome.note(at, result);
        }
        outcome
    }

    fn len(&self) -> usize {
        let books = self.0.books();
        let used =
            |(number, entry): (&u32, &Entry)| !unsettled(&self.0.accounts.usage(*number), &entry.settled).is_empty();
        books.sessions.iter().filter(|(number, entry)| used((*number, *entry))).count()
    }

    fn entries(&self, after: Option<&str>, most: usize) -> Result<Vec<String>, String> {
        let after = after.map(first_name).transpose()?;
        let books = self.0.books();
        let line = |(number, entry): (u32, &Entry)| {
            let usage = unsettled(&self.0.accounts.usage(number), &entry.settled);
            (!usage.is_empty()).then(|| show(&entry.user.to_string(), &usage))
        };
        Ok(books.following(after).filter_map(line).take(most).collect())
    }
}

/// Parses the counts in a line of [`show`], without its first word; `None` if there are none.
fn shown<'w>(words: impl Iterator<Item = &'w str>) -> Result<Option<Vec<(u32, Usage)>>, String> {
    let mut all: Vec<(u32, Usage)> = Vec::new();
    for word in words {
        let wrong = || {
            let word = short(word);
            format!("'{word}': allowed are counts as they were shown, such as rule=7 up=10/6000B down=12/9000B")
        };
        let (name, value) = word.split_once('=').ok_or_else(wrong)?;
        if name == "rule" {
            let rule = if value == "other" { Some(0) } else { value.parse().ok().filter(|rule| *rule != 0) };
            let rule = rule.filter(|rule| all.iter().all(|(other, _)| other != rule)).ok_or_else(wrong)?;
            all.push((rule, Usage::default()));
            continue;
        }
        let at = match name {
            "up" => 0,
            "down" => 2,
            _ => return Err(wrong()),
        };
        let counts = value.strip_suffix('B').and_then(|value| value.split_once('/'));
        let (packets, bytes) = counts.ok_or_else(wrong)?;
        let (_, usage) = all.last_mut().ok_or_else(wrong)?;
        usage.0[at] = packets.parse().map_err(|_| wrong())?;
        usage.0[at + 1] = bytes.parse().map_err(|_| wrong())?;
    }
    Ok((!all.is_empty()).then_some(all))
}
