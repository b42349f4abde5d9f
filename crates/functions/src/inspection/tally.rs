//! Counts of thousands of things, of which the most frequent are told.
//!
//! A report with a line for each of ten thousand patterns is read by nobody. So counts are kept apart from reports, each worker
//! its own, and are a table that operators ask for its beginning.

use std::cmp::Reverse;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_graph::{Outcome, Table, Verb};
use forebay_measure::Counter;

/// Counts by place, of all workers together.
pub struct Tally {
    places: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By place; empty where nothing is counted. Never two alike.
    names: Vec<String>,
    /// What is not to be told any more: counts of what had the place before, or was taken out.
    told: Vec<u64>,
    /// Counts of workers that are gone.
    past: Vec<u64>,
    workers: Vec<Arc<[Counter]>>,
}

impl State {
    fn sum(&self, place: usize) -> u64 {
        let count = |counts: &Arc<[Counter]>| counts.get(place).map_or(0, Counter::get);
        self.past.get(place).copied().unwrap_or(0) + self.workers.iter().map(count).sum::<u64>()
    }

    /// What was counted of each name, the most first.
    fn ranked(&self) -> Vec<(u64, &str)> {
        let counted = self.names.iter().enumerate().map(|(place, name)| {
            (self.sum(place).saturating_sub(self.told.get(place).copied().unwrap_or(0)), name.as_str())
        });
        let mut all: Vec<_> = counted.filter(|(count, name)| *count > 0 && !name.is_empty()).collect();
        all.sort_unstable_by_key(|(count, name)| (Reverse(*count), *name));
        all
    }
}

impl Tally {
    /// Room for so many.
    #[must_use]
    pub fn new(places: usize) -> Self {
        let state = State {
            names: vec![String::new(); places],
            told: vec![0; places],
            past: vec![0; places],
            workers: Vec::new(),
        };
        Self { places, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One worker's counters.
    pub fn counters(&self) -> Arc<[Counter]> {
        let mut state = self.lock();
        let State { past, workers, .. } = &mut *state;
        // Those of workers that are gone become the past, so that they do not gather.
        workers.retain(|counts| {
            let gone = Arc::strong_count(counts) == 1;
            if gone {
                past.iter_mut().zip(counts.iter()).for_each(|(sum, count)| *sum += count.get());
            }
            !gone
        });
        let counts: Arc<[Counter]> = (0..self.places).map(|_| Counter::new()).collect();
        workers.push(Arc::clone(&counts));
        counts
    }

    /// What is counted at a place from now on.
    pub fn name(&self, place: usize, name: String) {
        let mut state = self.lock();
        let sum = state.sum(place);
        if let Some(slot) = state.names.get_mut(place) {
            *slot = name;
            state.told[place] = sum;
        }
    }

    /// What was counted of each name, the most first.
    pub fn ranked(&self) -> Vec<(u64, String)> {
        self.lock().ranked().into_iter().map(|(count, name)| (count, name.to_owned())).collect()
    }
}

const SYNTAX: &str = "\
remove [COUNT] NAME    starts the count of this name anew";

/// The count, where there is one, and the name.
fn parse(entry: &str) -> (Option<u64>, &str) {
    match entry.split_once(' ') {
        Some((count, name)) if count.bytes().all(|byte| byte.is_ascii_digit()) => {
            (count.parse().ok(), name.trim_start())
        }
        _ => (None, entry),
    }
}

impl Table for Tally {
    fn syntax(&self) -> &'static str {
        SYNTAX
    }

    fn apply(&self, changes: &[&str]) -> Outcome {
        let mut state = self.lock();
        let mut outcome = Outcome::default();
        for (at, line) in changes.iter().enumerate() {
            let forget = |state: &mut State| {
                let (verb, entry) = Verb::split(line, SYNTAX)?;
                if verb != Verb::Remove {
                    return Err(format!("counts cannot be changed by '{verb}': allowed is remove"));
                }
                let (_, name) = parse(entry);
                let place = state.names.iter().position(|known| known == name && !name.is_empty());
                let place = place.ok_or_else(|| {
                    let name: String = name.chars().take(80).collect();
                    format!("nothing is counted as '{name}': allowed are names as they are listed")
                })?;
                state.told[place] = state.sum(place);
                Ok(())
            };
            let result = forget(&mut state);
            outcome.note(at, result);
        }
        outcome
    }

    fn len(&self) -> usize {
        self.lock().ranked().len()
    }

    fn entries(&self, after: Option<&str>, most: usize) -> Result<Vec<String>, String> {
        let after = match after.map(parse) {
            None => None,
            Some((Some(count), name)) => Some((Reverse(count), name)),
            Some((None, name)) => {
                return Err(format!(
                    "'{}' is no line of counts: allowed is COUNT NAME",
                    name.chars().take(80).collect::<String>()
                ));
            }
        };
        let state = self.lock();
        let ranked = state.ranked().into_iter();
        let rest = ranked.filter(|(count, name)| after.is_none_or(|after| (Reverse(*count), *name) > after));
        Ok(rest.take(most).map(|(count, name)| format!("{count} {name}")).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_come_first_whoever_counted_them() {
        let tally = Tally::new(4);
        for (place, name) in ["one", "two", "three"].into_iter().enumerate() {
            tally.name(place, name.to_owned());
        }
        let (a, b) = (tally.counters(), tally.counters());
        a[0].add(1);
        a[1].add(3);
        b[1].add(4);
        b[2].add(1);
        assert_eq!(tally.entries(None, 9).expect("all"), ["7 two", "1 one", "1 three"]);
        assert_eq!(tally.entries(Some("7 two"), 1).expect("one"), ["1 one"]);
        assert!(tally.entries(Some("two"), 1).is_err());
        // Counts outlast their worker.
        drop(a);
        let c = tally.counters();
        c[0].add(1);
        assert_eq!(tally.ranked(), [(7, "two".to_owned()), (2, "one".to_owned()), (1, "three".to_owned())]);
        let outcome = tally.apply(&["remove two", "remove 1 three", "remove four", "add two"]);
        assert_eq!((outcome.made, outcome.refused.len(), tally.len()), (2, 2, 1));
        b[1].add(1);
        assert_eq!(tally.entries(None, 9).expect("all"), ["2 one", "1 two"]);
        // A place that something else has now begins at none.
        tally.name(0, "other".to_owned());
        assert_eq!(tally.entries(None, 9).expect("all"), ["1 two"]);
    }
}
