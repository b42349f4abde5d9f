//! Which of a worker's gates and ports lead to other workers, and by which ring.

use std::sync::Arc;

use super::crossing::Crossroad;
use crate::links::{Crossing, Links};
use crate::placement::{Origin, Placement};
use crate::plan::{Plan, Target};
use crate::scheduler::WhenFull;

/// The places, past the bin, where packets wait that are for other workers. Spreads come first, because what they give
/// goes on to the others in the same turn.
pub(super) struct Roads {
    worker: usize,
    placement: Arc<Placement>,
    roads: Vec<Road>,
    /// By module: whether packets for it are dropped where the ring to its worker is full.
    drops: Vec<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Road {
    Spread(Crossing, Target),
    Away(Crossing, Target, usize),
}

impl Roads {
    pub(super) fn find(plan: &Plan) -> Self {
        let drops = plan.modules.iter().map(|module| module.share.marks.when_full == WhenFull::Drop).collect();
        let mut found = Self { worker: plan.worker, placement: Arc::clone(&plan.placement), roads: Vec::new(), drops };
        let gates = plan.modules.iter().enumerate();
        let gates = gates.filter(|(module, _)| plan.placement.modules[*module].contains(&plan.worker));
        let gates = gates.flat_map(|(module, told)| told.gates.iter().map(move |(_, to)| (Origin::Gate(module), *to)));
        let entries = plan.ports.iter().zip(&plan.placement.ports).enumerate();
        let entries = entries.filter(|(_, (_, workers))| workers.contains(&plan.worker));
        let entries = entries.filter_map(|(port, (plan, _))| Some((Origin::Port(port), plan.entry?)));
        for (origin, target) in gates.chain(entries) {
            let Some(to) = plan.placement.leads(plan.worker, origin, target) else { continue };
            let crossing = Crossing::of(origin, target);
            let others = to.iter().filter(|worker| **worker != plan.worker);
            found.roads.extend(others.map(|worker| Road::Away(crossing, target, *worker)));
            if to.len() > 1 {
                found.roads.push(Road::Spread(crossing, target));
            }
        }
        found.roads.sort_unstable();
        found.roads.dedup();
        found
    }

    /// How many places there are.
    pub(super) fn len(&self) -> usize {
        self.roads.len()
    }

    /// The place, from the first of them, to which packets of `origin` go that are for `target`; none where it is this
    /// worker's own.
    pub(super) fn place(&self, origin: Origin, target: Target) -> Option<usize> {
        let to = self.placement.leads(self.worker, origin, target)?;
        let crossing = Crossing::of(origin, target);
        let road = match to {
            [worker] => Road::Away(crossing, target, *worker),
            _ => Road::Spread(crossing, target),
        };
        self.roads.binary_search(&road).ok()
    }

    /// What the places are, the first being node `first`, by these rings; `node` tells a target's own node, which is the
    /// same in all workers.
    pub(super) fn crossroads(&self, first: usize, links: &Links, node: impl Fn(Target) -> usize) -> Vec<Crossroad> {
        let crossroad = |road: &Road| match *road {
            Road::Spread(crossing, target) => {
                let share = |worker: &usize| match self.roads.binary_search(&Road::Away(crossing, target, *worker)) {
                    Ok(away) => (first + away) as u32,
                    Err(_) => node(target) as u32,
                };
                Crossroad::Spread(self.placement.of(target).iter().map(share).collect())
            }
            Road::Away(crossing, target, worker) => {
                let ring = |out: &crate::links::Out| (out.crossing, out.to) == (crossing, worker);
                let out = links.outs.iter().position(ring).expect("links are made for the same placement");
                let drops = matches!(target, Target::Module(module) if self.drops[module]);
                Crossroad::Away { out, tag: node(target) as u32, drops }
            }
        };
        self.roads.iter().map(crossroad).collect()
    }
}
