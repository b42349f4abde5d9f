//! Compiles lists that have come to rest after changes.
//!
//! A thread of the control side waits for it: made by the first change, gone when the list is compiled. Workers only come
//! upon the compiled list instead of the tuples. Verdicts are the same before and after, so nothing depends on the time.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::list::Change;
use super::rules::{Lists, Rules, Shared};
use crate::tables::acl::{Address, BuildError, Classifier, Decision, Rule, Tuples};

/// For how long there must be no change where it is not known how long the list takes to compile: who changes rules one by
/// one rarely pauses for longer, and who pauses does not notice a second.
pub(super) const QUIET: Duration = Duration::from_secs(1);

/// How much longer than it took to compile the list there must be no change, so that one list's compilation takes no more
/// than a small share of a core however changes come.
const SHARE: u32 = 10;

/// One list is compiled at a time: there may be more modules than cores.
static COMPILING: Mutex<()> = Mutex::new(());

/// Has the list compiled once it has not been changed for so long. False where the system has no thread to give: then the
/// list stays as it is until the next change.
pub(super) fn wait(shared: &Arc<Shared>, quiet: Duration) -> bool {
    let shared = Arc::clone(shared);
    let waiting = move || {
        // What compiles in no time need not wait long for it either.
        let pause = |compiling: Option<Duration>| compiling.map_or(quiet, |time| (time * SHARE).max(quiet / 20));
        let mut state = shared.lock();
        let mut wait = pause(state.compiling);
        loop {
            let changes = state.changes;
            state = shared
                .going
                .wait_timeout_while(state, wait, |state| !state.gone)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            if state.gone {
                return;
            }
            if state.changes != changes {
                continue;
            }
            drop(state);
            match shared.compile() {
                Ok(()) => return,
                Err(took) => wait = pause(Some(took)),
            }
            state = shared.lock();
        }
    };
    thread::Builder::new().name("rules".to_owned()).spawn(waiting).is_ok()
}

/// What has become of a family's rules.
type Built<A> = Result<Arc<Classifier<A>>, BuildError>;

/// The rules of a family, taken out to be compiled.
struct Taken<A> {
    rules: Vec<Rule<A>>,
    numbers: Vec<u32>,
    default: Decision,
}

impl<A: Address> Taken<A> {
    fn of(rules: &Rules<A>, default: Decision) -> Self {
        let (rules, numbers) = rules.order.from(0).map(|place| (place.rule, place.number)).unzip();
        Self { rules, numbers, default }
    }

    /// An error where tuples are faster or compiling would take too much.
    fn compile(self) -> Built<A> {
        Ok(Arc::new(Classifier::build(self.rules, self.default)?.numbered(&self.numbers)))
    }
}

/// A list as it was after so many changes, of the families that have changed since they were compiled.
pub(super) struct Snapshot {
    changes: u64,
    v4: Option<Taken<u32>>,
    v6: Option<Taken<u128>>,
}

/// The same, compiled, and how long that took.
pub(super) struct Compiled {
    changes: u64,
    v4: Option<Built<u32>>,
    v6: Option<Built<u128>>,
    took: Duration,
}

impl Snapshot {
    pub(super) fn compile(self) -> Compiled {
        let _turn = COMPILING.lock().unwrap_or_else(PoisonError::into_inner);
        let start = Instant::now();
        let (v4, v6) = (self.v4.map(Taken::compile), self.v6.map(Taken::compile));
        Compiled { changes: self.changes, v4, v6, took: start.elapsed() }
    }
}

impl Shared {
    /// Compiles the list and has packets judged by that.
    ///
    /// # Errors
    /// It was changed meanwhile, or nobody wants it any more: how long compiling took.
    pub(super) fn compile(&self) -> Result<(), Duration> {
        let compiled = self.snapshot().compile();
        let took = compiled.took;
        if self.put(compiled) { Ok(()) } else { Err(took) }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let state = self.lock();
        let list = self.live.look();
        let rules = state.lists.as_ref();
        let default4 = list.v4.changing().map(Tuples::default_decision);
        let default6 = list.v6.changing().map(Tuples::default_decision);
        Snapshot {
            changes: state.changes,
            v4: rules.zip(default4).map(|(Lists { v4, .. }, default)| Taken::of(v4, default)),
            v6: rules.zip(default6).map(|(Lists { v6, .. }, default)| Taken::of(v6, default)),
        }
    }

    /// Has packets judged by what was compiled; false where the list was changed meanwhile, or nobody wants it any more.
    pub(super) fn put(&self, compiled: Compiled) -> bool {
        let Compiled { changes, v4, v6, took } = compiled;
        let mut state = self.lock();
        if state.changes != changes || state.gone {
            return false;
        }
        (state.awaited, state.compiling) = (false, Some(took));
        state.note(0, v4.as_ref().and_then(|built| built.as_ref().err()));
        state.note(1, v6.as_ref().and_then(|built| built.as_ref().err()));
        let (v4, v6) = (v4.and_then(Result::ok), v6.and_then(Result::ok));
        if v4.is_none() && v6.is_none() {
            return true;
        }
        self.live.change(|list, log| {
            if let Some(v4) = v4 {
                list.v4.change(Change::Compiled(v4), &mut log.v4);
            }
            if let Some(v6) = v6 {
                list.v6.change(Change::Compiled(v6), &mut log.v6);
            }
        });
        // Once more, so that the other copy follows and lets go of what was compiled before.
        self.live.change(|_, _| ());
        true
    }
}
