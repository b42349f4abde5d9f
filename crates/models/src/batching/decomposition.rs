//! Which flows can stay together on a worker (Batchy section 4.4, "control-flow decomposition").
//!
//! A packet waits for a turn at most, which takes at most what all modules of its worker take with full batches. Where that alone is a
//! flow's objective, no triggers help: some of the flows must go to another worker.
//!
//! The paper moves flows without an objective always, and asks of a flow that is added only whether it suits itself; here what it
//! brings with it is counted for all that are there already.

use super::Model;

/// Who stays, and what goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decomposition {
    /// Flows that stay together.
    pub stay: Vec<usize>,
    /// Modules that go: those that only other flows pass.
    pub go: Vec<usize>,
}

impl Model {
    /// Flows that cannot keep their objectives on a worker that runs all modules, whatever triggers are: a turn with full batches takes
    /// as long.
    #[must_use]
    pub fn inherent_violations(&self) -> Vec<usize> {
        let used = self.used(0..self.flows().len());
        let turn = self.full_turn(&used);
        (0..self.flows().len()).filter(|&flow| turn >= self.flows()[flow].slo).collect()
    }

    /// Parts the flows, if some cannot keep their objectives together: those with the tightest objectives stay, and all for which there
    /// is time in a turn besides, so that none of those that stay is broken. The tightest flow always stays.
    #[must_use]
    pub fn decomposition(&self) -> Option<Decomposition> {
        if self.inherent_violations().is_empty() {
            return None;
        }
        let mut order: Vec<usize> = (0..self.flows().len()).collect();
        let alone = |flow: usize| self.full_turn(&self.used([flow]));
        // Ties by what flows are, and not by where they were defined.
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
        // Where everything is on the way of those that stay there is nothing to move.
        (!go.is_empty()).then_some(Decomposition { stay, go })
    }

    /// Whether all flows can be together again on one worker: for each of them a turn with full batches takes no more than this `part`
    /// of its objective. Less than 1, or what has just been put together is taken apart again.
    #[must_use]
    pub fn fits_together(&self, part: f64) -> bool {
        let turn = self.full_turn(&self.used(0..self.flows().len()));
        self.flows().iter().all(|flow| turn < part * flow.slo)
    }

    /// By module: whether one of `flows` passes it.
    fn used(&self, flows: impl IntoIterator<Item = usize>) -> Vec<bool> {
        let mut used = vec![false; self.modules().len()];
        for flow in flows {
            self.flows()[flow].path.iter().for_each(|&at| used[at] = true);
        }
        used
    }

    /// Seconds that a turn takes in which each of these modules runs on a full batch.
    fn full_turn(&self, used: &[bool]) -> f64 {
        let modules = self.modules().iter().zip(used).filter(|(_, used)| **used);
        modules.map(|(module, _)| module.delay.at(self.largest())).sum()
    }
}
