//! Decides which flows can share a worker (Batchy section 4.4, "control-flow decomposition").
//!
//! A packet waits for at most one turn. A turn takes at most the time in which each module of the worker processes a
//! full batch. If this time alone exceeds a flow's objective, no triggers help: some flows must move to another worker.
//!
//! The paper always moves flows without an objective, and checks only the objective of a flow that is added. This
//! implementation also checks the objectives of the flows that are already on the worker.

use super::Model;

/// The flows that stay and the modules that move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decomposition {
    /// The flows that stay together on the worker.
    pub stay: Vec<usize>,
    /// The modules that move to another worker. No flow in `stay` passes them.
    pub go: Vec<usize>,
}

impl Model {
    /// Returns the flows that cannot keep their objectives on a worker that runs all modules, with any triggers: a turn
    /// with full batches takes too long.
    #[must_use]
    pub fn inherent_violations(&self) -> Vec<usize> {
        let used = self.used(0..self.flows().len());
        let turn = self.full_turn(&used);
        (0..self.flows().len()).filter(|&flow| turn >= self.flows()[flow].slo).collect()
    }

    /// Divides the flows if some of them cannot keep their objectives together. Flows are examined in the order of
    /// their objectives, the tightest first. A flow stays if a turn with its modules is still short enough for all
    /// flows that stay. The tightest flow always stays. Returns `None` if all objectives can be kept, or if the flows
    /// that stay pass all modules.
    #[must_use]
    pub fn decomposition(&self) -> Option<Decomposition> {
        if self.inherent_violations().is_empty() {
            return None;
        }
        let mut order: Vec<usize> = (0..self.flows().len()).collect();
        let alone = |flow: usize| self.full_turn(&self.used([flow]));
        // Ties are decided by the properties of the flows, not by the order of their definition.
        let key = |flow: usize| (self.flows()[flow].slo, alone(flow), self.flows()[flow].rate);
        order.sort_by(|a, b| key(*a).partial_cmp(&key(*b)).unwrap_or(std::cmp::Ordering::Equal));
        let mut stay: Vec<usize> = Vec::new();
        for flow in order {
            let used = self.used(stay.iter().copied().chain([flow]));
            let tightest = stay.iter().map(|&flow| self.flows()[flow].slo).fold(self.flows()[flow].slo, f64::min);
            if stay.is_empty() || self.full_turn(&used) < tightest {
                stay.push(flow);
            }
        }
        stay.sort_unstable();
        let (kept, all) = (self.used(stay.iter().copied()), self.used(0..self.flows().len()));
        let go: Vec<usize> = (0..kept.len()).filter(|&at| all[at] && !kept[at]).collect();
        // If the remaining flows pass all modules, there is nothing to move.
        (!go.is_empty()).then_some(Decomposition { stay, go })
    }

    /// True if all flows can run on one worker again: a turn with full batches takes less than `part` times each
    /// objective. `part` should be less than 1. Otherwise, flows that were just joined may be divided again.
    #[must_use]
    pub fn fits_together(&self, part: f64) -> bool {
        let turn = self.full_turn(&self.used(0..self.flows().len()));
        self.flows().iter().all(|flow| turn < part * flow.slo)
    }

    /// Returns, for each module, true if one of `flows` passes it.
    fn used(&self, flows: impl IntoIterator<Item = usize>) -> Vec<bool> {
        let mut used = vec![false; self.modules().len()];
        for flow in flows {
            self.flows()[flow].path.iter().for_each(|&at| used[at] = true);
        }
        used
    }

    /// Returns the duration of a turn in which each of these modules runs on a full batch, in seconds.
    fn full_turn(&self, used: &[bool]) -> f64 {
        let modules = self.modules().iter().zip(used).filter(|(_, used)| **used);
        modules.map(|(module, _)| module.delay.at(self.largest())).sum()
    }
}
