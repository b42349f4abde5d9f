//! The patterns of a module, which workers search with while the control plane changes them.
//!
//! An automaton cannot be extended by a string. Each request therefore builds a new automaton, which then replaces the
//! old one. The changes of a request share this automaton, so it is best to make many changes in one request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_graph::{Live, Outcome, Reader, Replay, Table, Verb, existing_names};
use forebay_measure::Counter;
use thiserror::Error;

use super::pattern::{Key, Pattern};
use super::set::{Entry, Set, SetError};
use crate::inspection::tally::Tally;

/// The set in use.
#[derive(Clone)]
pub struct Current(pub Arc<Set>);

/// The log of a change: the set that the second copy must still take over, or `None`.
#[derive(Default)]
pub struct Next(Option<Arc<Set>>);

impl Replay<Next> for Current {
    fn replay(&mut self, log: &mut Next) {
        if let Some(set) = log.0.take() {
            self.0 = set;
        }
    }
}

/// The patterns of a module.
pub struct Patterns {
    /// All patterns, as the control plane changes them. Locked before `live` is changed.
    state: Mutex<State>,
    /// The compiled patterns, which workers read.
    live: Arc<Live<Current, Next>>,
    /// The packets that each pattern decided.
    tally: Arc<Tally>,
    /// The number of patterns, the number of shadowed patterns, and the memory of the automaton.
    gauges: Arc<[Counter]>,
    /// The names of the classes, from the strongest.
    classes: Vec<String>,
    /// The case of added patterns that have no option for it.
    nocase: bool,
}

/// All patterns of a module, and their slots.
struct State {
    /// All patterns, including shadowed ones.
    entries: BTreeMap<Key, Entry>,
    /// Unused slots. The slot that was freed last is used last.
    free: std::collections::VecDeque<u32>,
}

/// The reason why a change of the patterns was refused.
#[derive(Debug, Error)]
enum ChangeError {
    #[error("{0}")]
    Words(String),
    #[error("{0} exists already: use 'replace'")]
    Known(Pattern),
    #[error("there is no pattern {0}: `forebay show table NAME` lists the patterns, with case or nocase")]
    Unknown(Pattern),
    #[error("there is no class '{0}': {1}")]
    Class(String, String),
    #[error("no more patterns can be added: 'capacity' allows {0}")]
    Full(usize),
    #[error("with this change the patterns cannot be compiled: {0}")]
    Set(#[from] SetError),
}

const SYNTAX: &str = "\
add PATTERN        adds a new pattern
remove PATTERN     removes a pattern
replace PATTERN    changes the class or the name of a pattern, or adds it
where PATTERN is written as in a pattern file: \"GET /admin|0d 0a|\" nocase class=web name=admin";

impl Patterns {
    /// Creates the table of `patterns`, each with its line. At most `capacity` are allowed. `shown` is the name of the
    /// file in errors.
    ///
    /// # Errors
    /// A pattern has an unknown class, there are too many patterns, or they cannot be compiled ([`SetError`]).
    pub fn new(
        patterns: Vec<(usize, Pattern)>,
        (classes, nocase, capacity): (Vec<String>, bool, usize),
        gauges: Arc<[Counter]>,
        shown: &str,
    ) -> Result<Self, String> {
        if patterns.len() > capacity {
            return Err(format!("{} patterns: 'capacity' allows {capacity}", patterns.len()));
        }
        let tally = Arc::new(Tally::new(capacity));
        let mut state = State { entries: BTreeMap::new(), free: (0..capacity as u32).collect() };
        for (line, pattern) in patterns {
            let added = state.change(Verb::Add, pattern, &classes, &tally, capacity);
            added.map_err(|error| format!("{shown}:{line}: {error}"))?;
        }
        let set = Set::new(&state.all()).map_err(|error| format!("{shown}: {error}"))?;
        let live = Arc::new(Live::new(Arc::new(Current(Arc::default()))));
        let patterns = Self { state: Mutex::new(state), live, tally, gauges, classes, nocase };
        let set = Arc::new(set);
        patterns.show(&patterns.lock(), &set);
        Ok(Self { live: Arc::new(Live::new(Arc::new(Current(set)))), ..patterns })
    }

    /// Creates a worker's reader of the patterns.
    pub fn reader(&self) -> Reader<Current, Next> {
        Reader::new(Arc::clone(&self.live))
    }

    /// Returns the text of each pattern, by slot.
    pub fn titles(&self) -> Vec<String> {
        let state = self.lock();
        let last = state.entries.values().map(|entry| entry.slot as usize + 1).max().unwrap_or(0);
        let mut titles: Vec<String> = (0..last).map(|slot| format!("{slot}: none")).collect();
        state.entries.values().for_each(|entry| titles[entry.slot as usize] = entry.pattern.to_string());
        titles
    }

    /// Returns the counts of packets by the pattern that decided.
    pub fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the gauges.
    fn show(&self, state: &State, set: &Set) {
        let values = [state.entries.len(), set.shadowed, set.memory_bytes()];
        self.gauges.iter().zip(values).for_each(|(gauge, value)| gauge.set(value as u64));
    }

    /// Gives workers a new set, which the caller has compiled from `state`.
    fn publish(&self, set: Set, state: &State) {
        let set = Arc::new(set);
        self.show(state, &set);
        self.live.change(|current, next| {
            current.0 = Arc::clone(&set);
            next.0 = Some(set);
        });
    }
}

impl State {
    fn all(&self) -> Vec<Entry> {
        self.entries.values().cloned().collect()
    }

    /// Makes one change of the entries, and names the pattern's slot in `tally`. `capacity` is only used in an error
    /// message. After an error, nothing has changed.
    fn change(
        &mut self,
        verb: Verb,
        pattern: Pattern,
        classes: &[String],
        tally: &Tally,
        capacity: usize,
    ) -> Result<(), ChangeError> {
        let key = pattern.key();
        if verb == Verb::Remove {
            let entry = self.entries.remove(&key).ok_or(ChangeError::Unknown(pattern))?;
            tally.name(entry.slot as usize, String::new());
            self.free.push_back(entry.slot);
            return Ok(());
        }
        let class = match &pattern.class {
            None => 0,
            Some(class) => classes
                .iter()
                .position(|known| known == class)
                .ok_or_else(|| ChangeError::Class(class.clone(), existing_names(classes.iter().map(String::as_str))))?,
        };
        let class = class as u16;
        let slot = match self.entries.get(&key) {
            Some(_) if verb == Verb::Add => return Err(ChangeError::Known(pattern)),
            Some(existing) => existing.slot,
            None => self.free.pop_front().ok_or(ChangeError::Full(capacity))?,
        };
        let pattern = Pattern { class: classes.get(usize::from(class)).cloned(), ..pattern };
        tally.name(slot as usize, pattern.to_string());
        self.entries.insert(key, Entry { pattern, class, slot });
        Ok(())
    }
}

impl Patterns {
    /// Makes the change that a line describes in `state`. The caller compiles and publishes the set. After an error,
    /// `state` is unchanged.
    fn change(&self, state: &mut State, line: &str) -> Result<(), ChangeError> {
        let (verb, entry) = Verb::split(line, SYNTAX).map_err(ChangeError::Words)?;
        let pattern = Pattern::parse(entry, self.nocase).map_err(ChangeError::Words)?;
        let capacity = state.entries.len() + state.free.len();
        state.change(verb, pattern, &self.classes, &self.tally, capacity)
    }
}

impl Table for Patterns {
    fn syntax(&self) -> &'static str {
        SYNTAX
    }

    fn apply(&self, changes: &[&str]) -> Outcome {
        let mut state = self.lock();
        let mut outcome = Outcome::default();
        let before = state.entries.clone();
        for (at, line) in changes.iter().enumerate() {
            let result = self.change(&mut state, line);
            outcome.note(at, result);
        }
        if outcome.made == 0 {
            return outcome;
        }
        match Set::new(&state.all()) {
            Ok(set) => {
                self.publish(set, &state);
                outcome
            }
            // Together, the changes are too large: none is made, and each of them is refused.
            Err(error) => {
                let error = ChangeError::Set(error);
                state.restore(before, &self.tally);
                let mut refused = Outcome::default();
                for at in 0..changes.len() {
                    let own =
                        outcome.refused.iter().find(|refused| refused.change == at).map(|own| own.message.clone());
                    refused.note::<String>(at, Err(own.unwrap_or_else(|| error.to_string())));
                }
                refused
            }
        }
    }

    fn len(&self) -> usize {
        self.lock().entries.len()
    }

    fn entries(&self, after: Option<&str>, most: usize) -> Result<Vec<String>, String> {
        let after = after.map(|line| Pattern::parse(line, self.nocase).map(|pattern| pattern.key())).transpose()?;
        let state = self.lock();
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        let rest = state.entries.range((from, std::ops::Bound::Unbounded));
        Ok(rest.take(most).map(|(_, entry)| entry.pattern.to_string()).collect())
    }
}

impl State {
    /// Reverses the changes of a request. `before` has the entries before these changes. Their slots and the names in
    /// `tally` are restored, too. The counts of patterns that were changed are lost.
    fn restore(&mut self, before: BTreeMap<Key, Entry>, tally: &Tally) {
        for (key, entry) in &self.entries {
            if !before.contains_key(key) {
                tally.name(entry.slot as usize, String::new());
                self.free.push_back(entry.slot);
            }
        }
        for (key, entry) in &before {
            let present = self.entries.get(key);
            if present.is_none_or(|present| present.slot != entry.slot || present.pattern != entry.pattern) {
                tally.name(entry.slot as usize, entry.pattern.to_string());
                self.free.retain(|slot| *slot != entry.slot);
            }
        }
        self.entries = before;
    }
}
