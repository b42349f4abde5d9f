//! The placement of modules on workers, and the worker of each session.
//!
//! A module may run on several workers. Each of them gets a fixed share of the sessions. So a session's packets stay in
//! order and its state has one owner (`docs/workers.md`).

use crate::plan::Target;

/// Returns the share that a session with this hash belongs to, from 0 to `shares` − 1. All shares have the same size.
/// Both directions of a session have the same hash and so the same share. Ports that spread packets themselves use the
/// same rule.
#[inline]
#[must_use]
pub fn share(hash: u32, shares: usize) -> usize {
    // The high bits of the product: a multiplication instead of a division (Lemire 2019).
    ((u64::from(hash) * shares as u64) >> 32) as usize
}

/// The origin of packets that go to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A gate of this module.
    Gate(usize),
    /// A port.
    Port(usize),
}

/// The workers that run each module and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The number of workers.
    pub workers: usize,
    /// By module: the workers that run it, in ascending order, at least one.
    pub modules: Vec<Vec<usize>>,
    /// By port: the workers that have it open, in ascending order, at least one.
    pub ports: Vec<Vec<usize>>,
    /// By module: whether it has state of each session, so that it must run on the session's worker. Other modules run
    /// where their packets already are.
    pub keyed: Vec<bool>,
}

impl Placement {
    /// Places everything on one worker.
    #[must_use]
    pub fn alone(modules: usize, ports: usize) -> Self {
        Self { workers: 1, modules: vec![vec![0]; modules], ports: vec![vec![0]; ports], keyed: vec![false; modules] }
    }

    /// Returns the workers that packets for `target` may go to. Empty for the bin, which every worker has.
    #[must_use]
    pub fn of(&self, target: Target) -> &[usize] {
        match target {
            Target::Module(module) => &self.modules[module],
            Target::Port(port) => &self.ports[port],
            Target::Drop => &[],
        }
    }

    /// Returns the workers over which packets are spread if they go from `origin` on `worker` to `target`. `None` if
    /// the packets stay on `worker`.
    #[must_use]
    pub fn leads(&self, worker: usize, origin: Origin, target: Target) -> Option<&[usize]> {
        let to = self.of(target);
        let stays = match (origin, target) {
            (_, Target::Drop) => true,
            // If a port is open on all workers that its packets go to, the port spreads the packets itself.
            (Origin::Port(port), Target::Module(_)) => to == [worker] || self.ports[port] == to && to.contains(&worker),
            // If both modules run on the same workers, the packets are already on their session's worker.
            (Origin::Gate(from), Target::Module(module)) if self.keyed[module] => {
                to == [worker] || self.modules[from] == to
            }
            _ => to.contains(&worker),
        };
        (!stays).then_some(to)
    }

    /// Finds a cycle of workers: worker A hands packets to B, and B directly or through other workers to A. Such
    /// workers could wait for each other for ever. Returns two modules between which packets are handed over on the
    /// cycle. `None` if there is no cycle. `edges` are all gates that lead to modules, as pairs of modules.
    #[must_use]
    pub fn circle(&self, edges: &[(usize, usize)]) -> Option<(usize, usize)> {
        // By worker: the workers to which it hands over packets between modules, and the edge.
        let mut handed = vec![vec![None; self.workers]; self.workers];
        for &(from, to) in edges {
            for &sender in &self.modules[from] {
                let receivers = self.leads(sender, Origin::Gate(from), Target::Module(to)).unwrap_or_default();
                for receiver in receivers.iter().filter(|receiver| **receiver != sender) {
                    handed[sender][*receiver].get_or_insert((from, to));
                }
            }
        }
        // A worker that can be reached from itself lies on a cycle.
        (0..self.workers).find_map(|start| {
            let (mut reached, mut pending) = (vec![false; self.workers], vec![start]);
            while let Some(worker) = pending.pop() {
                for (next, edge) in handed[worker].iter().enumerate() {
                    match edge {
                        Some(edge) if next == start => return Some(*edge),
                        Some(_) if !std::mem::replace(&mut reached[next], true) => pending.push(next),
                        _ => {}
                    }
                }
            }
            None
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_even_and_cover_all() {
        for shares in 1..=64 {
            let mut counts = vec![0u32; shares];
            (0..1 << 16).for_each(|hash: u32| counts[share(hash << 16, shares)] += 1);
            let even = (1 << 16) / shares as u32;
            assert!(counts.iter().all(|count| (even..=even + 1).contains(count)), "{shares}: {counts:?}");
            assert_eq!(share(u32::MAX, shares), shares - 1);
        }
    }

    #[test]
    fn a_circle_over_workers_is_found() {
        let placement = |modules: &[&[usize]]| Placement {
            workers: 3,
            modules: modules.iter().map(|workers| workers.to_vec()).collect(),
            ports: vec![vec![0]],
            keyed: vec![false; modules.len()],
        };
        let line = [(0, 1), (1, 2)];
        assert_eq!(placement(&[&[0], &[1], &[2]]).circle(&line), None);
        assert_eq!(placement(&[&[0], &[0, 1], &[2]]).circle(&line), None);
        assert_eq!(placement(&[&[0, 1], &[0, 1], &[2]]).circle(&line), None);
        assert_eq!(placement(&[&[0, 1], &[0], &[0, 1]]).circle(&line), None);
        let keyed = Placement { keyed: vec![true; 3], ..placement(&[&[0, 1], &[0], &[0, 1]]) };
        assert!(keyed.circle(&line).is_some(), "the last one is spread again");
        assert!(placement(&[&[0], &[1], &[0]]).circle(&line).is_some());
        assert!(placement(&[&[0], &[1], &[2]]).circle(&[(0, 1), (1, 2), (2, 0)]).is_some());
    }
}
