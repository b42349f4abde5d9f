//! Counts of thousands of items, listed by frequency.
//!
//! A report with a line for each of ten thousand patterns is not useful. The counts are therefore not in reports. Each
//! worker has separate counters. Their sums are shown as a table whose first entries are the most frequent items.

use std::cmp::Reverse;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_graph::{Outcome, Table, Verb, short};
use forebay_measure::Counter;

/// Counts by slot, summed over all workers. The owner gives a slot to each item ([`Tally::name`]).
pub struct Tally {
    /// The number of slots.
    slots: usize,
    state: Mutex<State>,
}

/// The counts, which are read and reset under a lock. Workers add to their counters without it.
#[derive(Default)]
struct State {
    /// The name of each slot; empty if the slot is unused. No two slots in use have the same name.
    names: Vec<String>,
    /// The count of each slot at its last reset, which is subtracted from the sum.
    baseline: Vec<u64>,
    /// The counts of workers that have ended.
    past: Vec<u64>,
    /// The counters of each worker, by slot.
    workers: Vec<Arc<[Counter]>>,
}

impl State {
    /// Returns the count of a slot since the start, over all workers and all names that the slot has had.
    fn sum(&self, slot: usize) -> u64 {
        let count = |counts: &Arc<[Counter]>| counts.get(slot).map_or(0, Counter::get);
        self.past.get(slot).copied().unwrap_or(0) + self.workers.iter().map(count).sum::<u64>()
    }

    /// Returns the names with their counts, the most frequent first.
    fn ranked(&self) -> Vec<(u64, &str)> {
        let counted = self.names.iter().enumerate().map(|(slot, name)| {
            (self.sum(slot).saturating_sub(self.baseline.get(slot).copied().unwrap_or(0)), name.as_str())
        });
        let mut all: Vec<_> = counted.filter(|(count, name)| *count > 0 && !name.is_empty()).collect();
        all.sort_unstable_by_key(|(count, name)| (Reverse(*count), *name));
        all
    }
}

impl Tally {
    /// Creates a tally with `slots` slots.
    #[must_use]
    pub fn new(slots: usize) -> Self {
        let state = State {
            names: vec![String::new(); slots],
            baseline: vec![0; slots],
            past: vec![0; slots],
            workers: Vec::new(),
        };
        Self { slots, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a worker's counters, one for each slot. Their counts remain in the sums after the worker has ended.
    pub fn counters(&self) -> Arc<[Counter]> {
        let mut state = self.lock();
        let State { past, workers, .. } = &mut *state;
        // The counts of ended workers are added to `past`, and their counters leave `workers`. So the list does not
        // grow with each new worker.
        workers.retain(|counts| {
            let gone = Arc::strong_count(counts) == 1;
            if gone {
                past.iter_mut().zip(counts.iter()).for_each(|(sum, count)| *sum += count.get());
            }
            !gone
        });
        let counts: Arc<[Counter]> = (0..self.slots).map(|_| Counter::new()).collect();
        workers.push(Arc::clone(&counts));
        counts
    }

    /// Sets the name of a slot and resets its count.
    pub fn name(&self, slot: usize, name: String) {
        let mut state = self.lock();
        let sum = state.sum(slot);
        if let Some(known) = state.names.get_mut(slot) {
            *known = name;
            state.baseline[slot] = sum;
        }
    }

    /// Returns the names with their counts, the most frequent first.
    pub fn ranked(&self) -> Vec<(u64, String)> {
        self.lock().ranked().into_iter().map(|(count, name)| (count, name.to_owned())).collect()
    }
}

const SYNTAX: &str = "\
remove [COUNT] NAME    resets the count of this name";

/// Parses the optional count and the name.
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
                let slot = state.names.iter().position(|known| known == name && !name.is_empty());
                let slot = slot.ok_or_else(|| {
                    let name = short(name);
                    format!("there is no count with the name '{name}': `forebay show table NAME` lists the names")
                })?;
                state.baseline[slot] = state.sum(slot);
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
                return Err(format!("'{}' is not a line of the table of counts: allowed is COUNT NAME", short(name)));
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
    fn the_most_frequent_come_first_over_all_workers() {
        let tally = Tally::new(4);
        for (slot, name) in ["one", "two", "three"].into_iter().enumerate() {
            tally.name(slot, name.to_owned());
        }
        let (a, b) = (tally.counters(), tally.counters());
        a[0].add(1);
        a[1].add(3);
        b[1].add(4);
        b[2].add(1);
        assert_eq!(tally.entries(None, 9).expect("all"), ["7 two", "1 one", "1 three"]);
        assert_eq!(tally.entries(Some("7 two"), 1).expect("one"), ["1 one"]);
        assert!(tally.entries(Some("two"), 1).is_err());
        // The counts remain after their worker has ended.
        drop(a);
        let c = tally.counters();
        c[0].add(1);
        assert_eq!(tally.ranked(), [(7, "two".to_owned()), (2, "one".to_owned()), (1, "three".to_owned())]);
        let outcome = tally.apply(&["remove two", "remove 1 three", "remove four", "add two"]);
        assert_eq!((outcome.made, outcome.refused.len(), tally.len()), (2, 2, 1));
        b[1].add(1);
        assert_eq!(tally.entries(None, 9).expect("all"), ["2 one", "1 two"]);
        // A slot with a new name begins at 0.
        tally.name(0, "other".to_owned());
        assert_eq!(tally.entries(None, 9).expect("all"), ["1 two"]);
    }
}
