//! Selects the pairs of cores to measure.

use forebay_host::{Core, cores_here};
use serde::Serialize;

/// The relation of two cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// Hardware threads of one physical core, which share all its caches.
    Siblings,
    /// Cores of one NUMA node, or of a host that does not report nodes.
    SameNode,
    /// Cores of different nodes.
    OtherNode,
}

impl Relation {
    /// Returns the relation in words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Siblings => "threads of a core",
            Self::SameNode => "one node",
            Self::OtherNode => "two nodes",
        }
    }
}

/// Returns the relation of two cores. If the node of one is unknown, both count as cores of one node.
fn relation(a: Core, b: Core) -> Relation {
    if a.physical == b.physical {
        Relation::Siblings
    } else if a.node.is_some() && b.node.is_some() && a.node != b.node {
        Relation::OtherNode
    } else {
        Relation::SameNode
    }
}

/// Returns one pair of these cores for each relation that exists; with `all`, every pair in both directions.
#[must_use]
pub fn pairs(cores: &[usize], all: bool) -> Vec<([usize; 2], Relation)> {
    pairs_of(&cores_here(cores), all)
}

fn pairs_of(cores: &[Core], all: bool) -> Vec<([usize; 2], Relation)> {
    let mut found: Vec<([usize; 2], Relation)> = Vec::new();
    for a in cores {
        for b in cores.iter().filter(|b| b.number != a.number) {
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

    fn cores(rows: &[(usize, Option<usize>, usize)]) -> Vec<Core> {
        rows.iter().map(|(number, node, core)| Core { number: *number, node: *node, physical: *core }).collect()
    }

    #[test]
    fn there_is_one_pair_for_each_relation() {
        let of = |rows: &[(usize, Option<usize>, usize)]| pairs_of(&cores(rows), false);
        assert_eq!(of(&[(3, Some(0), 3)]), []);
        let two = [(0, Some(0), 0), (1, Some(0), 0), (2, Some(0), 1), (3, Some(1), 2), (4, Some(1), 3)];
        assert_eq!(
            of(&two),
            [([0, 1], Relation::Siblings), ([0, 2], Relation::SameNode), ([0, 3], Relation::OtherNode)]
        );
        // A host that does not report nodes.
        assert_eq!(of(&[(0, None, 0), (1, None, 1), (2, None, 2)]), [([0, 1], Relation::SameNode)]);
    }

    #[test]
    fn all_pairs_are_listed_in_both_directions() {
        let all = pairs_of(&cores(&[(0, Some(0), 0), (5, Some(1), 1)]), true);
        assert_eq!(all, [([0, 5], Relation::OtherNode), ([5, 0], Relation::OtherNode)]);
    }
}
