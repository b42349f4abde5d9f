//! Which workers run which modules, and which worker a session is for.
//!
//! A module may run on several workers, each of which gets its share of the sessions: always the same ones, so that a
//! session's packets stay in order and its state has one owner (`docs/workers.md`).

use crate::plan::Target;

/// Which of `shares` equal shares a session with this hash belongs to. Both directions of a session have the same hash,
/// so they have the same share. Ports that spread packets themselves do it in the same way.
#[inline]
#[must_use]
pub fn share(hash: u32, shares: usize) -> usize {
    // The high bits of the product: a multiplication instead of a division (Lemire 2019).
    ((u64::from(hash) * shares as u64) >> 32) as usize
}

/// Where packets come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A module, by one of its gates.
    Gate(usize),
    /// A port.
    Port(usize),
}

/// Which workers run what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// How many workers there are.
    pub workers: usize,
    /// By module: the workers that run it, lowest first; never none.
    pub modules: Vec<Vec<usize>>,
    /// By port: the workers that it is open on, lowest first; never none.
    pub ports: Vec<Vec<usize>>,
    /// By module: whether it has state of each session, so that it must always run on the session's worker. Other
    /// modules run where their packets are already.
    pub keyed: Vec<bool>,
}

impl Placement {
    /// Everything on one worker.
    #[must_use]
    pub fn alone(modules: usize, ports: usize) -> Self {
        Self { workers: 1, modules: vec![vec![0]; modules], ports: vec![vec![0]; ports], keyed: vec![false; modules] }
    }

    /// The workers that packets for `target` may go to; none where it is the bin, which is everywhere.
    #[must_use]
    pub fn of(&self, target: Target) -> &[usize] {
        match target {
            Target::Module(module) => &self.modules[module],
            Target::Port(port) => &self.ports[port],
            Target::Drop => &[],
        }
    }

    /// The workers among which packets are spread that go from `origin` on `worker` to `target`; none where they stay.
    #[must_use]
    pub fn leads(&self, worker: usize, origin: Origin, target: Target) -> Option<&[usize]> {
        let to = self.of(target);
        let stays = match (origin, target) {
            (_, Target::Drop) => true,
            // A port that is open on all workers that its packets go to spreads them itself.
            (Origin::Port(port), Target::Module(_)) => to == [worker] || self.ports[port] == to && to.contains(&worker),
            // Where the modules run on the same workers, the packets have come to their session's already.
            (Origin::Gate(from), Target::Module(module)) if self.keyed[module] => {
                to == [worker] || self.modules[from] == to
            }
            _ => to.contains(&worker),
        };
        (!stays).then_some(to)
    }

    /// Modules between which packets would go in a circle over workers: packets of `from` are handed from worker to
    /// worker and come back to one where they have been. Such workers could wait for each other for ever. `edges` are all
    /// gates: from which module to which.
    #[must_use]
    pub fn circle(&self, edges: &[(usize, usize)]) -> Option<(usize, usize)> {
        // By worker: to which others it hands packets between modules, and by which edge.
        let mut handed = vec![vec![None; self.workers]; self.workers];
        for &(from, to) in edges {
            for &giver in &self.modules[from] {
                let takers = self.leads(giver, Origin::Gate(from), Target::Module(to)).unwrap_or_default();
                for taker in takers.iter().filter(|taker| **taker != giver) {
                    handed[giver][*taker].get_or_insert((from, to));
                }
            }
        }
        // A worker from which itself can be reached lies on a circle.
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
        let place = |modules: &[&[usize]]| Placement {
            workers: 3,
            modules: modules.iter().map(|workers| workers.to_vec()).collect(),
            ports: vec![vec![0]],
            keyed: vec![false; modules.len()],
        };
        let line = [(0, 1), (1, 2)];
        assert_eq!(place(&[&[0], &[1], &[2]]).circle(&line), None);
        assert_eq!(place(&[&[0], &[0, 1], &[2]]).circle(&line), None);
        assert_eq!(place(&[&[0, 1], &[0, 1], &[2]]).circle(&line), None);
        assert_eq!(place(&[&[0, 1], &[0], &[0, 1]]).circle(&line), None);
        let keyed = Placement { keyed: vec![true; 3], ..place(&[&[0, 1], &[0], &[0, 1]]) };
        assert!(keyed.circle(&line).is_some(), "the last is spread anew");
        assert!(place(&[&[0], &[1], &[0]]).circle(&line).is_some());
        assert!(place(&[&[0], &[1], &[2]]).circle(&[(0, 1), (1, 2), (2, 0)]).is_some());
    }
}
