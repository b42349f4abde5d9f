//! Which cores are measured with each other.

use std::fs;

use forebay_measure::machine::core;
use serde::Serialize;

/// What two cores are to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// Threads of one physical core: they share all its caches.
    Siblings,
    /// Of one NUMA node, or of a host that does not tell nodes.
    SameNode,
    /// Of different ones.
    OtherNode,
}

impl Relation {
    /// In words.
    #[must_use]
    pub fn told(self) -> &'static str {
        match self {
            Self::Siblings => "threads of a core",
            Self::SameNode => "one node",
            Self::OtherNode => "two nodes",
        }
    }
}

/// A core, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    number: usize,
    node: Option<usize>,
    physical: (usize, usize),
}

/// The NUMA node of a core, where the system says.
pub(super) fn node(number: usize) -> Option<usize> {
    let entries = fs::read_dir(format!("/sys/devices/system/cpu/cpu{number}")).ok()?.flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()).next()
}

fn place(number: usize) -> Place {
    Place { number, node: node(number), physical: core(number).physical }
}

fn relation(a: Place, b: Place) -> Relation {
    if a.physical == b.physical {
        Relation::Siblings
    } else if a.node.is_some() && b.node.is_some() && a.node != b.node {
        Relation::OtherNode
    } else {
        Relation::SameNode
    }
}

/// Of these cores one pair of each kind that there is; with `all` every pair, in both directions.
#[must_use]
pub fn pairs(cores: &[usize], all: bool) -> Vec<([usize; 2], Relation)> {
    let places: Vec<_> = cores.iter().map(|core| place(*core)).collect();
    of_places(&places, all)
}

fn of_places(places: &[Place], all: bool) -> Vec<([usize; 2], Relation)> {
    let mut found: Vec<([usize; 2], Relation)> = Vec::new();
    for a in places {
        for b in places.iter().filter(|b| b.number != a.number) {
            let relation = relation(*a, *b);
            if all || found.iter().all(|(_, known)| *known != relation) {
                found.push(([a.number, b.number], relation));
            }
        }
    }
    if !all {
        found.sort_by_key(|(_, relation)| *relation);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(told: &[(usize, Option<usize>, usize)]) -> Vec<Place> {
        told.iter().map(|(number, node, core)| Place { number: *number, node: *node, physical: (0, *core) }).collect()
    }

    #[test]
    fn each_kind_of_pair_is_there_once() {
        let of = |told: &[(usize, Option<usize>, usize)]| of_places(&places(told), false);
        assert_eq!(of(&[(3, Some(0), 3)]), []);
        let two = [(0, Some(0), 0), (1, Some(0), 0), (2, Some(0), 1), (3, Some(1), 2), (4, Some(1), 3)];
        assert_eq!(
            of(&two),
            [([0, 1], Relation::Siblings), ([0, 2], Relation::SameNode), ([0, 3], Relation::OtherNode)]
        );
        // A host that says nothing of nodes.
        assert_eq!(of(&[(0, None, 0), (1, None, 1), (2, None, 2)]), [([0, 1], Relation::SameNode)]);
    }

    #[test]
    fn all_pairs_are_there_in_both_directions() {
        let all = of_places(&places(&[(0, Some(0), 0), (5, Some(1), 1)]), true);
        assert_eq!(all, [([0, 5], Relation::OtherNode), ([5, 0], Relation::OtherNode)]);
    }
}
