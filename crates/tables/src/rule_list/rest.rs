//! Compiles a list after it has not changed for a while.
//!
//! The first change starts a thread on the control side. The thread waits for a pause in the changes, compiles the
//! list, and ends. Workers then use the compiled list instead of the tuples ([`Tuples`]). Verdicts are the same before
//! and after, so nothing depends on the time.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::list::Change;
use super::rules::{Lists, Rules, Shared};
use crate::acl::{BuildError, Classifier, Decision, Rule, RuleAddress, Tuples};

/// The pause after which a list is compiled if its compile time is not known yet. Programs that change rules one by one
/// rarely pause for longer, and after a pause one more second is not noticed.
pub(super) const QUIET: Duration = Duration::from_secs(1);

/// The pause is at least this number times the time that compiling took last. So compiling one list takes at most about
/// a tenth of a core's time, however often the list changes.
const SHARE: u32 = 10;

/// Held while a list is compiled. Only one list is compiled at a time, because there may be more modules than cores.
static COMPILING: Mutex<()> = Mutex::new(());

/// Starts a thread that compiles the list after a pause in changes. `quiet` is the pause if the compile time is not
/// known yet. Returns false if the system cannot start a thread. Then the list keeps its form until the next change.
pub(super) fn wait(shared: &Arc<Shared>, quiet: Duration) -> bool {
    let shared = Arc::clone(shared);
    let waiting = move || {
        // If a list compiles quickly, a short pause suffices.
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

/// The result of compiling a family's rules.
type Built<A> = Result<Arc<Classifier<A>>, BuildError>;

/// A copy of a family's rules, to be compiled.
struct FamilySnapshot<A> {
    rules: Vec<Rule<A>>,
    /// The number under which each rule is counted.
    numbers: Vec<u32>,
    default: Decision,
}

impl<A: RuleAddress> FamilySnapshot<A> {
    fn of(rules: &Rules<A>, default: Decision) -> Self {
        let (rules, numbers) = rules.order.from(0).map(|entry| (entry.rule, entry.number)).unzip();
        Self { rules, numbers, default }
    }

    /// Compiles the rules. Returns an error if tuples are faster or compiling would be too costly.
    fn compile(self) -> Built<A> {
        Ok(Arc::new(Classifier::build(self.rules, self.default)?.numbered(&self.numbers)))
    }
}

/// A copy of the families of a list that have changed since they were compiled.
pub(super) struct Snapshot {
    /// The number of change requests before this copy. If more changes have been requested since, the copy is out of
    /// date.
    changes: u64,
    /// `None` if the family has not changed since it was compiled; also for `v6`.
    v4: Option<FamilySnapshot<u32>>,
    v6: Option<FamilySnapshot<u128>>,
}

/// The compiled form of a snapshot.
pub(super) struct Compiled {
    /// The number of change requests before the snapshot.
    changes: u64,
    /// `None` if the snapshot does not have the family; also for `v6`.
    v4: Option<Built<u32>>,
    v6: Option<Built<u128>>,
    /// The time that compiling took.
    took: Duration,
}

impl Snapshot {
    /// Compiles the rules. Waits first if another list is being compiled.
    pub(super) fn compile(self) -> Compiled {
        let _turn = COMPILING.lock().unwrap_or_else(PoisonError::into_inner);
        let start = Instant::now();
        let (v4, v6) = (self.v4.map(FamilySnapshot::compile), self.v6.map(FamilySnapshot::compile));
        Compiled { changes: self.changes, v4, v6, took: start.elapsed() }
    }
}

impl Shared {
    /// Compiles the list and switches packets to the compiled form.
    ///
    /// # Errors
    /// The time that compiling took, if the list was changed meanwhile or is no longer in use.
    pub(super) fn compile(&self) -> Result<(), Duration> {
        let compiled = self.snapshot().compile();
        let took = compiled.took;
        if self.put(compiled) { Ok(()) } else { Err(took) }
    }

    /// Copies the rules of the families that have changed since they were compiled.
    pub(super) fn snapshot(&self) -> Snapshot {
        let state = self.lock();
        let list = self.live.look();
        let rules = state.lists.as_ref();
        let default4 = list.v4.changing().map(Tuples::default_decision);
        let default6 = list.v6.changing().map(Tuples::default_decision);
        Snapshot {
            changes: state.changes,
            v4: rules.zip(default4).map(|(Lists { v4, .. }, default)| FamilySnapshot::of(v4, default)),
            v6: rules.zip(default6).map(|(Lists { v6, .. }, default)| FamilySnapshot::of(v6, default)),
        }
    }

    /// Switches packets to the compiled form. A family that could not be compiled keeps its tuples. Returns false,
    /// without a change, if the list was changed meanwhile or is no longer in use.
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
        // A second, empty change makes the other copy follow and release the previous compiled form.
        self.live.change(|_, _| ());
        true
    }
}
