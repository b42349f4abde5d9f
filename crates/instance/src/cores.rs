//! Which cores workers run on: those that the configuration names, else such as no other pipeline has, near each other and
//! one to a physical core.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use forebay_host::{Core, cores_here};
use forebay_measure::machine::allowed_cores;
use forebay_protocol::locate::own_folder;
use thiserror::Error;

use crate::sole::{Sole, SoleError};

/// Why workers cannot be given cores.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum CoreError {
    /// A core that this process may not run on.
    #[error("core {core} is not one that this process may run on: allowed are {}", listed(.allowed))]
    NotAllowed {
        /// The core asked for.
        core: usize,
        /// Those that there are.
        allowed: Vec<usize>,
    },
    /// More workers than cores.
    #[error("{workers} workers need a core each: this process may run on {} ({})", .allowed.len(), listed(.allowed))]
    TooFew {
        /// How many workers.
        workers: usize,
        /// The cores that there are.
        allowed: Vec<usize>,
    },
    /// Two workers on one core.
    #[error("two workers would be bound to core {0}: each needs one of its own")]
    Twice(usize),
}

fn listed(cores: &[usize]) -> String {
    cores.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

/// By worker: its core. As long as this is there, other pipelines of the same user choose these cores last.
#[derive(Clone, Debug, Default)]
pub struct Cores {
    numbers: Vec<usize>,
    /// Locks of those that no other pipeline has.
    held: BTreeMap<usize, Arc<Sole>>,
    /// Those that another pipeline has, too.
    shared: Vec<usize>,
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

/// Cores that nobody else is told of.
impl From<&[usize]> for Cores {
    fn from(cores: &[usize]) -> Self {
        Self { numbers: cores.to_vec(), ..Self::default() }
    }
}

impl Cores {
    /// Whether another pipeline of this user had the core already.
    #[must_use]
    pub fn is_shared(&self, core: usize) -> bool {
        self.shared.contains(&core)
    }

    /// Cores for the same pipeline with other workers.
    pub(crate) fn choose_next(&self, asked: &[Option<usize>]) -> Result<Self, CoreError> {
        let allowed = cores_here(&allowed_cores());
        // Where there can be no locks, each pipeline chooses as if it were alone.
        let folder = own_folder().ok();
        let lock = |core: usize| match (self.held.get(&core), &folder) {
            (Some(held), _) => Claim::Had(Arc::clone(held)),
            (None, Some(folder)) => match Sole::of(&folder.join(format!("core-{core}"))) {
                Ok(sole) => Claim::Had(Arc::new(sole)),
                Err(SoleError::Taken(_)) => Claim::Others,
                Err(SoleError::Lock { .. }) => Claim::Unknown,
            },
            (None, None) => Claim::Unknown,
        };
        claim(asked, &allowed, lock)
    }
}

/// Whose a core is.
enum Claim {
    Had(Arc<Sole>),
    Others,
    Unknown,
}

/// A core for each worker: the one that was asked for, else one that is chosen: first such as no other pipeline of this user
/// has; of these the last allowed core, because the first is where a system does its own work; then those of the same NUMA
/// node, and of these first such as share no physical core with another worker.
///
/// # Errors
/// [`CoreError`].
pub fn choose(asked: &[Option<usize>]) -> Result<Cores, CoreError> {
    Cores::default().choose_next(asked)
}

/// The cores that would be [chosen](choose) of these, as if no other pipeline were there.
///
/// # Errors
/// [`CoreError`].
pub fn choose_of(asked: &[Option<usize>], allowed: &[Core]) -> Result<Cores, CoreError> {
    claim(asked, allowed, |_| Claim::Unknown)
}

fn claim(asked: &[Option<usize>], allowed: &[Core], lock: impl Fn(usize) -> Claim) -> Result<Cores, CoreError> {
    let (mut held, mut others) = (BTreeMap::new(), Vec::new());
    loop {
        let numbers = choose_among(asked, allowed, &others)?;
        let mut again = false;
        for (wish, core) in asked.iter().zip(&numbers) {
            if held.contains_key(core) || others.contains(core) {
                continue;
            }
            match lock(*core) {
                Claim::Had(sole) => drop(held.insert(*core, sole)),
                // One that was asked for is had together.
                Claim::Others => {
                    others.push(*core);
                    again |= wish.is_none();
                }
                Claim::Unknown => {}
            }
        }
        // Each round finds a further one of others: it ends.
        if !again {
            held.retain(|core, _| numbers.contains(core));
            others.retain(|core| numbers.contains(core));
            return Ok(Cores { numbers, held, shared: others });
        }
    }
}

fn choose_among(asked: &[Option<usize>], allowed: &[Core], others: &[usize]) -> Result<Vec<usize>, CoreError> {
    let numbers = || allowed.iter().map(|core| core.number).collect::<Vec<_>>();
    let find = |number: usize| allowed.iter().find(|core| core.number == number);
    let mut taken: Vec<&Core> = Vec::new();
    for number in asked.iter().flatten() {
        let Some(core) = find(*number) else {
            return Err(CoreError::NotAllowed { core: *number, allowed: numbers() });
        };
        if taken.iter().any(|other| other.number == *number) {
            return Err(CoreError::Twice(*number));
        }
        taken.push(core);
    }
    let mut chosen = Vec::new();
    for wish in asked {
        let core = match wish {
            Some(number) => *number,
            None => {
                let node = taken.first().map(|core| core.node);
                let free = allowed.iter().filter(|core| taken.iter().all(|other| other.number != core.number));
                let best = free.max_by_key(|core| {
                    let near = node.is_none_or(|node| node == core.node);
                    let alone = taken.iter().all(|other| other.physical != core.physical);
                    (!others.contains(&core.number), near, alone, core.number)
                });
                let core = best.ok_or_else(|| CoreError::TooFew { workers: asked.len(), allowed: numbers() })?;
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

    /// Two nodes of two physical cores with two threads each: numbers as Linux gives them.
    fn machine() -> Vec<Core> {
        (0..8).map(|number| Core { number, node: Some(number % 4 / 2), physical: (0, number % 4) }).collect()
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
    fn what_cannot_be_given_is_said() {
        let two = &machine()[..2];
        let few = choose_among(&[None; 3], two, &[]).expect_err("two cores").to_string();
        assert_eq!(few, "3 workers need a core each: this process may run on 2 (0, 1)");
        let other = choose_among(&[Some(4)], two, &[]).expect_err("two cores").to_string();
        assert_eq!(other, "core 4 is not one that this process may run on: allowed are 0, 1");
        assert_eq!(choose_among(&[Some(1), Some(1)], two, &[]), Err(CoreError::Twice(1)));
    }

    #[test]
    fn what_other_pipelines_have_is_chosen_last() {
        let claimed = |asked: &[Option<usize>], others: &[usize]| {
            let lock = |core| if others.contains(&core) { Claim::Others } else { Claim::Unknown };
            let cores = claim(asked, &machine(), lock).expect("enough cores");
            (cores.to_vec(), cores.shared.clone())
        };
        assert_eq!(claimed(&[None], &[7]), (vec![6], vec![]));
        assert_eq!(claimed(&[None, None], &[7, 6]), (vec![5, 4], vec![]), "another node");
        assert_eq!(claimed(&[None, None], &[6, 3, 2]), (vec![7, 5], vec![]));
        assert_eq!(claimed(&[Some(6), None], &[7, 6]), (vec![6, 3], vec![6]), "asked for");
        assert_eq!(claimed(&[None], &[0, 1, 2, 3, 4, 5, 6, 7]), (vec![7], vec![7]), "none is left");
    }
}
