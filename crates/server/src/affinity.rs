//! Keeps the threads of the server off the cores of workers.
//!
//! A worker polls its core without pause, so a thread of the server on the same core delays packets. The cores of
//! workers change while the server runs: pipelines start, end and reload.

use std::collections::BTreeSet;
use std::io;

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use thiserror::Error;

/// The threads of this process, one folder each (proc(5)).
const THREADS: &str = "/proc/self/task";

/// The reason why threads cannot be restricted to cores.
#[derive(Debug, Error)]
pub enum AffinityError {
    /// The system does not report the allowed cores.
    #[error("the cores that this process may run on are unknown: {0}")]
    Unknown(#[source] io::Error),
    /// The system does not list the threads.
    #[error("the threads of this process cannot be listed in {THREADS}: {0}")]
    Threads(#[source] io::Error),
    /// The system refuses the cores, for example because a control group allows none of them any more.
    #[error("the threads of this process cannot be restricted to the cores {}: {source}", listed(.cores))]
    Refused {
        /// The cores.
        cores: BTreeSet<usize>,
        /// The system's error.
        source: io::Error,
    },
}

/// Lists core numbers for an error.
fn listed(cores: &BTreeSet<usize>) -> String {
    cores.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

/// The cores that the process may run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Affinity {
    /// The allowed cores at the start of the process.
    allowed: BTreeSet<usize>,
}

impl Affinity {
    /// Reads the cores that the calling thread may run on. Call it at the start of the process, before
    /// [`keep_off`](Self::keep_off) restricts its threads.
    ///
    /// # Errors
    /// Returns [`AffinityError::Unknown`] if the system does not report them.
    pub fn at_start() -> Result<Self, AffinityError> {
        let set = sched_getaffinity(None).map_err(|error| AffinityError::Unknown(error.into()))?;
        Ok(Self { allowed: (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect() })
    }

    /// Returns the allowed cores at the start of the process.
    #[must_use]
    pub fn allowed(&self) -> &BTreeSet<usize> {
        &self.allowed
    }

    /// Restricts all threads of this process to the allowed cores without a worker; if each allowed core has a worker,
    /// to all allowed cores. Later threads inherit this from the thread that starts them. Returns the cores.
    ///
    /// # Errors
    /// Returns [`AffinityError`] if the threads cannot be listed, or if the system refuses the cores. Some threads may
    /// be restricted already.
    pub fn keep_off(&self, cores_of_workers: &BTreeSet<usize>) -> Result<BTreeSet<usize>, AffinityError> {
        let cores = choose(&self.allowed, cores_of_workers);
        let mut set = CpuSet::new();
        cores.iter().for_each(|core| set.set(*core));
        restrict(&set, &cores)?;
        Ok(cores)
    }
}

/// Restricts all threads of this process to the cores of `process`. The root helper follows the HTTP process in this
/// way. `last` has the cores of the last call: if they have not changed, the threads stay as they are.
///
/// # Errors
/// As [`Affinity::keep_off`].
pub fn follow(process: Pid, last: &mut BTreeSet<usize>) -> Result<(), AffinityError> {
    let set = sched_getaffinity(Some(process)).map_err(|error| AffinityError::Unknown(error.into()))?;
    let cores: BTreeSet<usize> = (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect();
    if cores != *last {
        restrict(&set, &cores)?;
        *last = cores;
    }
    Ok(())
}

/// Restricts all threads of this process to a set of cores, which are also listed in `cores`.
fn restrict(set: &CpuSet, cores: &BTreeSet<usize>) -> Result<(), AffinityError> {
    let mut done = BTreeSet::new();
    // A thread that is not restricted yet may start another one meanwhile, so threads are listed until none is new.
    loop {
        let new: Vec<i32> = threads()?.into_iter().filter(|thread| done.insert(*thread)).collect();
        if new.is_empty() {
            return Ok(());
        }
        for thread in new.into_iter().filter_map(Pid::from_raw) {
            match sched_setaffinity(Some(thread), set) {
                // The thread has ended.
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(AffinityError::Refused { cores: cores.clone(), source: error.into() }),
            }
        }
    }
}

/// Returns the numbers (TID) of the threads of this process.
fn threads() -> Result<Vec<i32>, AffinityError> {
    let entries = std::fs::read_dir(THREADS).map_err(AffinityError::Threads)?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter_map(|name| name.parse().ok().filter(|thread| *thread > 0)).collect())
}

/// Returns the `allowed` cores that are not in `workers`, or all allowed cores if none remains.
#[must_use]
pub fn choose(allowed: &BTreeSet<usize>, workers: &BTreeSet<usize>) -> BTreeSet<usize> {
    let free = allowed - workers;
    if free.is_empty() { allowed.clone() } else { free }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    fn set(cores: &[usize]) -> BTreeSet<usize> {
        cores.iter().copied().collect()
    }

    #[test]
    fn cores_without_a_worker_are_chosen() {
        let allowed = set(&[0, 1, 5]);
        assert_eq!(choose(&allowed, &set(&[])), allowed);
        assert_eq!(choose(&allowed, &set(&[1, 7])), set(&[0, 5]));
        assert_eq!(choose(&allowed, &set(&[0, 1])), set(&[5]));
        assert_eq!(choose(&allowed, &set(&[0, 1, 5])), allowed, "each core has a worker");
        assert_eq!(choose(&set(&[]), &set(&[1])), set(&[]));
    }

    proptest! {
        #[test]
        fn the_choice_is_allowed_and_never_empty(
            allowed in prop::collection::btree_set(0usize..12, 1..12),
            workers in prop::collection::btree_set(0usize..12, 0..12),
        ) {
            let cores = choose(&allowed, &workers);
            prop_assert!(!cores.is_empty() && cores.is_subset(&allowed));
            let is_free = |core: &usize| !workers.contains(core);
            if allowed.iter().any(is_free) {
                prop_assert!(allowed.iter().all(|core| cores.contains(core) == is_free(core)));
            } else {
                prop_assert_eq!(cores, allowed);
            }
        }
    }

    /// The only test that changes the cores of the test program. It restores them at its end.
    #[test]
    fn earlier_and_later_threads_are_restricted() {
        let cores = || Affinity::at_start().expect("the cores of this thread").allowed;
        let affinity = Affinity::at_start().expect("the cores of this thread");
        let (ask, asked) = mpsc::channel::<()>();
        let earlier = thread::spawn(move || asked.into_iter().map(|()| cores()).collect::<Vec<_>>());
        let ended = thread::spawn(|| ());
        ended.join().expect("it does nothing");
        let last = set(affinity.allowed().last().map(std::slice::from_ref).expect("it runs somewhere"));
        let chosen = affinity.keep_off(&last).expect("allowed cores");
        assert_eq!(chosen, choose(affinity.allowed(), &last));
        assert_eq!((cores(), thread::spawn(cores).join().expect("it only reads")), (chosen.clone(), chosen.clone()));
        ask.send(()).expect("the thread runs");
        drop(ask);
        assert_eq!(earlier.join().expect("it only reads"), [chosen]);
        assert_eq!(&affinity.keep_off(&set(&[])).expect("allowed cores"), affinity.allowed());
        assert_eq!(&cores(), affinity.allowed());
        let none = Affinity { allowed: set(&[]) };
        let error = none.keep_off(&last).expect_err("a thread needs a core").to_string();
        assert!(error.starts_with("the threads of this process cannot be restricted to the cores "), "{error}");
    }
}
