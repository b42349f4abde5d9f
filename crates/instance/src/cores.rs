//! Chooses the cores of workers. A worker gets the core that the configuration names for it. For each other worker,
//! cores are preferred that no other pipeline uses, on one NUMA node, with one worker per physical core.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use forebay_host::{Core, cores_here};
use forebay_measure::machine::allowed_cores;
use forebay_pipeline::allowed_names;
use forebay_protocol::locate::own_folder;
use thiserror::Error;

use crate::lock_file::{LockError, LockFile};

/// Why workers cannot be given cores.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CoreError {
    /// This process may not run on the core.
    #[error("this process may not run on core {core}: {}", allowed_numbers(.allowed))]
    NotAllowed {
        /// The requested core.
        core: usize,
        /// The cores that the process may run on.
        allowed: Vec<usize>,
    },
    /// There are more workers than cores.
    #[error(
        "{workers} workers need a core each, but this process may run on only {} ({}): use fewer workers, or allow \
         more cores", .allowed.len(), listed(.allowed)
    )]
    TooFew {
        /// The number of workers.
        workers: usize,
        /// The cores that the process may run on.
        allowed: Vec<usize>,
    },
    /// Two workers have the same core.
    #[error("two workers would be bound to core {0}: each worker needs its own core")]
    Twice(usize),
}

/// Returns the allowed core numbers with their verb, for an error.
fn allowed_numbers(cores: &[usize]) -> String {
    let cores: Vec<_> = cores.iter().map(usize::to_string).collect();
    allowed_names(cores.iter().map(String::as_str))
}

/// Lists core numbers for an error.
fn listed(cores: &[usize]) -> String {
    cores.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

/// The core of each worker. While this value exists, other pipelines of the same user avoid these cores.
#[derive(Clone, Debug, Default)]
pub struct Cores {
    /// The core of each worker.
    numbers: Vec<usize>,
    /// The locks of the cores that no other pipeline uses, by core. They are released when the last clone is dropped.
    held: BTreeMap<usize, Arc<LockFile>>,
    /// The cores of workers that another pipeline uses, too.
    shared: Vec<usize>,
    /// The cores that the process was allowed to run on when cores were chosen for the first time. The thread that
    /// chooses cores again after a reload may be restricted to fewer cores.
    allowed: Vec<usize>,
}

impl Deref for Cores {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.numbers
    }
}

impl From<&Self> for Cores {
    fn from(cores: &Self) -> Self {
        cores.clone()
    }
}

/// Uses these cores without locks, so that other pipelines do not avoid them. `allowed` stays empty.
impl From<&[usize]> for Cores {
    fn from(cores: &[usize]) -> Self {
        Self { numbers: cores.to_vec(), ..Self::default() }
    }
}

impl Cores {
    /// Returns whether another pipeline of this user uses the core already.
    #[must_use]
    pub fn is_shared(&self, core: usize) -> bool {
        self.shared.contains(&core)
    }

    /// Chooses cores for the same pipeline after a reload, among the cores that were allowed at the start. The locks of
    /// cores that stay in use are kept.
    pub(crate) fn choose_next(&self, requested: &[Option<usize>]) -> Result<Self, CoreError> {
        let numbers = if self.allowed.is_empty() { allowed_cores() } else { self.allowed.clone() };
        let allowed = cores_here(&numbers);
        // Without a folder for locks, each pipeline chooses cores as if no other pipeline existed.
        let folder = own_folder().ok();
        let lock = |core: usize| match (self.held.get(&core), &folder) {
            (Some(held), _) => Claim::Ours(Arc::clone(held)),
            (None, Some(folder)) => match LockFile::of(&folder.join(format!("core-{core}"))) {
                Ok(sole) => Claim::Ours(Arc::new(sole)),
                Err(LockError::Taken(_)) => Claim::Foreign,
                Err(LockError::Lock { .. }) => Claim::Unknown,
            },
            (None, None) => Claim::Unknown,
        };
        Ok(Self { allowed: numbers, ..claim(requested, &allowed, lock)? })
    }

    /// Returns the cores for the threads of this process that are not workers: the allowed cores without a worker of
    /// this process, or all allowed cores if each of them has a worker. Cores of other pipelines are included. The
    /// result is empty if the cores were not chosen by [`choose`] or [`choose_next`](Self::choose_next). Then the
    /// system refuses to restrict the threads, and they keep their cores.
    pub(crate) fn beside(&self) -> Vec<usize> {
        let free: Vec<_> = self.allowed.iter().copied().filter(|core| !self.numbers.contains(core)).collect();
        if free.is_empty() { self.allowed.clone() } else { free }
    }
}

/// The owner of a core, according to the attempt to lock the core.
enum Claim {
    /// This process has the lock.
    Ours(Arc<LockFile>),
    /// Another process has the lock.
    Foreign,
    /// The core cannot be locked, for example because the folder for locks cannot be used. It is treated as unused.
    Unknown,
}

/// Chooses a core for each worker: the requested one, or the best free one. Free cores are compared in this order:
///
/// 1. cores that no other pipeline of this user uses,
/// 2. cores on the NUMA node of the first requested or chosen core,
/// 3. cores that share no physical core with another worker,
/// 4. the highest number, because systems do their own work on the first cores.
///
/// # Errors
/// Returns an error if a requested core is not allowed or requested twice, or if there are more workers than cores.
pub fn choose(requested: &[Option<usize>]) -> Result<Cores, CoreError> {
    Cores::default().choose_next(requested)
}

/// [Chooses](choose) among these cores, as if there were no other pipeline.
///
/// # Errors
/// Returns the same errors as [`choose`].
pub fn choose_of(requested: &[Option<usize>], allowed: &[Core]) -> Result<Cores, CoreError> {
    claim(requested, allowed, |_| Claim::Unknown)
}

/// Chooses a core for each worker among the `allowed` cores, and locks it with `lock`. If another pipeline has a chosen
/// core that was not requested, chooses again and avoids that core as long as other cores are free. The field `allowed`
/// of the result is empty: the caller sets it.
fn claim(requested: &[Option<usize>], allowed: &[Core], lock: impl Fn(usize) -> Claim) -> Result<Cores, CoreError> {
    let (mut held, mut foreign) = (BTreeMap::new(), Vec::new());
    loop {
        let numbers = choose_among(requested, allowed, &foreign)?;
        let mut again = false;
        for (wish, core) in requested.iter().zip(&numbers) {
            if held.contains_key(core) || foreign.contains(core) {
                continue;
            }
            match lock(*core) {
                Claim::Ours(sole) => drop(held.insert(*core, sole)),
                // A requested core is shared with the other pipeline.
                Claim::Foreign => {
                    foreign.push(*core);
                    again |= wish.is_none();
                }
                Claim::Unknown => {}
            }
        }
        // The loop ends: each round finds one more core of another pipeline.
        if !again {
            held.retain(|core, _| numbers.contains(core));
            foreign.retain(|core| numbers.contains(core));
            return Ok(Cores { numbers, held, shared: foreign, allowed: Vec::new() });
        }
    }
}

/// Chooses a core for each worker by the rules of [`choose`]. `foreign` are the cores that other pipelines are known to
/// use.
fn choose_among(requested: &[Option<usize>], allowed: &[Core], foreign: &[usize]) -> Result<Vec<usize>, CoreError> {
    let numbers = || allowed.iter().map(|core| core.number).collect::<Vec<_>>();
    let find = |number: usize| allowed.iter().find(|core| core.number == number);
    let mut taken: Vec<&Core> = Vec::new();
    for number in requested.iter().flatten() {
        let Some(core) = find(*number) else {
            return Err(CoreError::NotAllowed { core: *number, allowed: numbers() });
        };
        if taken.iter().any(|other| other.number == *number) {
            return Err(CoreError::Twice(*number));
        }
        taken.push(core);
    }
    let mut chosen = Vec::new();
    for wish in requested {
        let core = match wish {
            Some(number) => *number,
            None => {
                let node = taken.first().map(|core| core.node);
                let free = allowed.iter().filter(|core| taken.iter().all(|other| other.number != core.number));
                let best = free.max_by_key(|core| {
                    let near = node.is_none_or(|node| node == core.node);
                    let alone = taken.iter().all(|other| other.physical != core.physical);
                    (!foreign.contains(&core.number), near, alone, core.number)
                });
                let core = best.ok_or_else(|| CoreError::TooFew { workers: requested.len(), allowed: numbers() })?;
                taken.push(core);
                core.number
            }
        };
        chosen.push(core);
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two NUMA nodes of two physical cores with two threads each, in the numbering of Linux.
    fn machine() -> Vec<Core> {
        (0..8).map(|number| Core { number, node: Some(number % 4 / 2), physical: number % 4 }).collect()
    }

    #[test]
    fn workers_are_near_each_other_and_alone_on_physical_cores() {
        assert_eq!(choose_among(&[None], &machine(), &[]), Ok(vec![7]));
        assert_eq!(choose_among(&[None, None], &machine(), &[]), Ok(vec![7, 6]));
        assert_eq!(choose_among(&[None, None, None], &machine(), &[]), Ok(vec![7, 6, 3]));
        assert_eq!(choose_among(&[Some(0), None], &machine(), &[]), Ok(vec![0, 5]));
        assert_eq!(choose_among(&[None, Some(5)], &machine(), &[]), Ok(vec![4, 5]));
    }

    #[test]
    fn impossible_requests_are_errors() {
        let two = &machine()[..2];
        let few = choose_among(&[None; 3], two, &[]).expect_err("two cores").to_string();
        let expected = "3 workers need a core each, but this process may run on only 2 (0, 1): use fewer workers, or \
                        allow more cores";
        assert_eq!(few, expected);
        let other = choose_among(&[Some(4)], two, &[]).expect_err("two cores").to_string();
        assert_eq!(other, "this process may not run on core 4: allowed are 0, 1");
        let one = choose_among(&[Some(4)], &two[..1], &[]).expect_err("one core").to_string();
        assert_eq!(one, "this process may not run on core 4: allowed is 0");
        assert_eq!(choose_among(&[Some(1), Some(1)], two, &[]), Err(CoreError::Twice(1)));
    }

    #[test]
    fn cores_of_other_pipelines_are_chosen_last() {
        let claimed = |requested: &[Option<usize>], foreign: &[usize]| {
            let lock = |core| if foreign.contains(&core) { Claim::Foreign } else { Claim::Unknown };
            let cores = claim(requested, &machine(), lock).expect("enough cores");
            (cores.to_vec(), cores.shared.clone())
        };
        assert_eq!(claimed(&[None], &[7]), (vec![6], vec![]));
        assert_eq!(claimed(&[None, None], &[7, 6]), (vec![5, 4], vec![]), "another node");
        assert_eq!(claimed(&[None, None], &[6, 3, 2]), (vec![7, 5], vec![]));
        assert_eq!(claimed(&[Some(6), None], &[7, 6]), (vec![6, 3], vec![6]), "requested");
        assert_eq!(claimed(&[None], &[0, 1, 2, 3, 4, 5, 6, 7]), (vec![7], vec![7]), "all are in use");
    }
}
