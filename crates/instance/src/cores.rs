//! Which cores workers run on: those that the configuration names, else near each other and one to a physical core.

use forebay_measure::machine::{Core, allowed_cores, core};
use thiserror::Error;

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

/// A core for each worker: the one that was asked for, else one that is chosen. The last allowed core is chosen first,
/// because the first is where a system does its own work; then those of the same NUMA node, and of these first such as
/// share no physical core with another worker.
///
/// # Errors
/// [`CoreError`].
pub fn choose(asked: &[Option<usize>]) -> Result<Vec<usize>, CoreError> {
    choose_among(asked, &allowed_cores().into_iter().map(core).collect::<Vec<_>>())
}

fn choose_among(asked: &[Option<usize>], allowed: &[Core]) -> Result<Vec<usize>, CoreError> {
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
                    (near, alone, core.number)
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
        (0..8).map(|number| Core { number, node: number % 4 / 2, physical: (0, number % 4) }).collect()
    }

    #[test]
    fn workers_are_near_each_other_and_alone_on_physical_cores() {
        assert_eq!(choose_among(&[None], &machine()), Ok(vec![7]));
        assert_eq!(choose_among(&[None, None], &machine()), Ok(vec![7, 6]));
        assert_eq!(choose_among(&[None, None, None], &machine()), Ok(vec![7, 6, 3]));
        assert_eq!(choose_among(&[Some(0), None], &machine()), Ok(vec![0, 5]));
        assert_eq!(choose_among(&[None, Some(5)], &machine()), Ok(vec![4, 5]));
    }

    #[test]
    fn what_cannot_be_given_is_said() {
        let two = &machine()[..2];
        let few = choose_among(&[None; 3], two).expect_err("two cores").to_string();
        assert_eq!(few, "3 workers need a core each: this process may run on 2 (0, 1)");
        let other = choose_among(&[Some(4)], two).expect_err("two cores").to_string();
        assert_eq!(other, "core 4 is not one that this process may run on: allowed are 0, 1");
        assert_eq!(choose_among(&[Some(1), Some(1)], two), Err(CoreError::Twice(1)));
    }
}
