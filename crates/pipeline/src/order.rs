//! Sorts modules topologically, or finds the cycles that prevent it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Returns the nodes in topological order (Kahn 1962). If several nodes may come next, the node with the lowest number
/// comes first. `successors` are the targets of the edges of each node.
///
/// # Errors
/// Returns one cycle of each strongly connected component that has cycles, with the nodes in the order of the edges.
pub(crate) fn topological(successors: &[Vec<usize>]) -> Result<Vec<usize>, Vec<Vec<usize>>> {
    let mut before = vec![0_usize; successors.len()];
    successors.iter().flatten().for_each(|node| before[*node] += 1);
    let mut free: BinaryHeap<_> = (0..successors.len()).filter(|node| before[*node] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(successors.len());
    while let Some(Reverse(node)) = free.pop() {
        order.push(node);
        for next in &successors[node] {
            before[*next] -= 1;
            if before[*next] == 0 {
                free.push(Reverse(*next));
            }
        }
    }
    if order.len() == successors.len() { Ok(order) } else { Err(cycles(successors)) }
}

/// Returns one cycle of each strongly connected component that has cycles (Tarjan 1972, without recursion).
fn cycles(successors: &[Vec<usize>]) -> Vec<Vec<usize>> {
    const NONE: usize = usize::MAX;
    let count = successors.len();
    let (mut index, mut low, mut component) = (vec![NONE; count], vec![0; count], vec![NONE; count]);
    let (mut stack, mut found) = (Vec::new(), Vec::new());
    let mut next_index = 0;
    for start in 0..count {
        let mut calls = vec![(start, 0)];
        while let Some((node, at)) = calls.pop() {
            if at == 0 {
                if index[node] != NONE {
                    continue;
                }
                (index[node], low[node]) = (next_index, next_index);
                next_index += 1;
                stack.push(node);
            } else {
                let child = successors[node][at - 1];
                if component[child] == NONE {
                    low[node] = low[node].min(low[child]);
                }
            }
            if let Some(child) = successors[node].get(at) {
                calls.push((node, at + 1));
                if index[*child] == NONE {
                    calls.push((*child, 0));
                }
            } else if low[node] == index[node] {
                let first = stack
                    .iter()
                    .rposition(|on| *on == node)
                    .expect("a node stays on the stack until its component is complete");
                let members = stack.split_off(first);
                members.iter().for_each(|member| component[*member] = node);
                found.extend(cycle(successors, &component, &members));
            }
        }
    }
    found
}

/// Returns a cycle within a strongly connected component: follows edges from its lowest member until a node repeats.
/// `None` if the component has no cycle.
fn cycle(successors: &[Vec<usize>], component: &[usize], members: &[usize]) -> Option<Vec<usize>> {
    let first = *members.iter().min()?;
    let mut seen = std::collections::HashMap::new();
    let mut walk = Vec::new();
    let mut node = first;
    loop {
        if let Some(start) = seen.insert(node, walk.len()) {
            return Some(walk.split_off(start));
        }
        walk.push(node);
        // A component of one node has a cycle only where the node leads to itself.
        node = *successors[node].iter().find(|next| component[**next] == component[first])?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ties_keep_the_order_of_definition() {
        assert_eq!(topological(&[vec![], vec![0], vec![], vec![2, 0]]), Ok(vec![1, 3, 0, 2]));
    }

    #[test]
    fn each_component_shows_one_cycle() {
        let graph = [vec![1], vec![2, 4], vec![1], vec![3], vec![]];
        assert_eq!(topological(&graph), Err(vec![vec![1, 2], vec![3]]));
    }

    #[test]
    fn a_long_cycle_is_found_without_recursion() {
        let graph: Vec<_> = (0..100_000).map(|node| vec![(node + 1) % 100_000]).collect();
        assert_eq!(topological(&graph).expect_err("a cycle")[0].len(), 100_000);
    }

    proptest! {
        #[test]
        fn the_order_is_topological_or_a_cycle_is_shown(
            graph in prop::collection::vec(prop::collection::vec(0usize..12, 0..3), 12)
        ) {
            match topological(&graph) {
                Ok(order) => {
                    let mut position = vec![usize::MAX; graph.len()];
                    order.iter().enumerate().for_each(|(at, node)| position[*node] = at);
                    prop_assert!(position.iter().all(|at| *at < graph.len()));
                    for (node, successors) in graph.iter().enumerate() {
                        prop_assert!(successors.iter().all(|next| position[node] < position[*next]));
                    }
                }
                Err(cycles) => {
                    prop_assert!(!cycles.is_empty());
                    for cycle in cycles {
                        let steps = cycle.iter().zip(cycle.iter().cycle().skip(1));
                        for (from, to) in steps {
                            prop_assert!(graph[*from].contains(to), "{from} does not lead to {to}");
                        }
                    }
                }
            }
        }
    }
}
