//! The gates and ports of a worker that lead to other workers, and the rings that they use.

use std::sync::Arc;

use super::crossing::CrossingNode;
use crate::links::{Crossing, Links};
use crate::placement::{Origin, Placement};
use crate::plan::{Plan, Target};
use crate::scheduler::WhenFull;

/// The nodes after the bin, where packets for other workers wait. Nodes that spread packets come first, because the
/// packets go on to the other nodes in the same turn.
pub(super) struct CrossingNodes {
    worker: usize,
    placement: Arc<Placement>,
    /// The keys of the nodes, sorted. The index of a key is the index of its node.
    keys: Vec<CrossingKey>,
    /// By module: whether packets for it are dropped when the ring to its worker is full.
    drops: Vec<bool>,
}

/// The key of a node. The derived order is the order of the nodes, so `Spread` must be the first variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CrossingKey {
    /// Packets for this target that are spread over the workers that have the target.
    Spread(Crossing, Target),
    /// Packets for this target on this other worker.
    Away(Crossing, Target, usize),
}

impl CrossingNodes {
    /// Finds the nodes that the worker of `plan` needs. The gates and ports of the plan must already lead to the first
    /// modules of folds.
    pub(super) fn find(plan: &Plan) -> Self {
        let drops = plan.modules.iter().map(|module| module.share.marks.when_full == WhenFull::Drop).collect();
        let mut found = Self { worker: plan.worker, placement: Arc::clone(&plan.placement), keys: Vec::new(), drops };
        let gates = plan.modules.iter().enumerate();
        let gates = gates.filter(|(module, _)| plan.placement.modules[*module].contains(&plan.worker));
        let gates =
            gates.flat_map(|(module, planned)| planned.gates.iter().map(move |(_, to)| (Origin::Gate(module), *to)));
        let entries = plan.ports.iter().zip(&plan.placement.ports).enumerate();
        let entries = entries.filter(|(_, (_, workers))| workers.contains(&plan.worker));
        let entries = entries.filter_map(|(port, (plan, _))| Some((Origin::Port(port), plan.entry?)));
        for (origin, target) in gates.chain(entries) {
            let Some(to) = plan.placement.leads(plan.worker, origin, target) else { continue };
            let crossing = Crossing::of(origin, target);
            let others = to.iter().filter(|worker| **worker != plan.worker);
            found.keys.extend(others.map(|worker| CrossingKey::Away(crossing, target, *worker)));
            if to.len() > 1 {
                found.keys.push(CrossingKey::Spread(crossing, target));
            }
        }
        found.keys.sort_unstable();
        found.keys.dedup();
        found
    }

    /// Returns the number of nodes.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns the index, counted from the first of these nodes, of the node for packets of `origin` that go to
    /// `target`. `None` if they stay on this worker.
    pub(super) fn index(&self, origin: Origin, target: Target) -> Option<usize> {
        let to = self.placement.leads(self.worker, origin, target)?;
        let crossing = Crossing::of(origin, target);
        let key = match to {
            [worker] => CrossingKey::Away(crossing, target, *worker),
            _ => CrossingKey::Spread(crossing, target),
        };
        self.keys.binary_search(&key).ok()
    }

    /// Creates the nodes. The first one has the number `first`. `links` are the rings. `node` returns a target's own
    /// node, which has the same number in all workers.
    pub(super) fn build(&self, first: usize, links: &Links, node: impl Fn(Target) -> usize) -> Vec<CrossingNode> {
        let build = |key: &CrossingKey| match *key {
            CrossingKey::Spread(crossing, target) => {
                let share =
                    |worker: &usize| match self.keys.binary_search(&CrossingKey::Away(crossing, target, *worker)) {
                        Ok(away) => (first + away) as u32,
                        Err(_) => node(target) as u32,
                    };
                CrossingNode::Spread(self.placement.of(target).iter().map(share).collect())
            }
            CrossingKey::Away(crossing, target, worker) => {
                let ring = |out: &crate::links::Out| (out.crossing, out.to) == (crossing, worker);
                let out = links.outs.iter().position(ring).expect("links are made for the same placement");
                let drops = matches!(target, Target::Module(module) if self.drops[module]);
                CrossingNode::Away { out, tag: node(target) as u32, drops }
            }
        };
        self.keys.iter().map(build).collect()
    }
}
