//! The graph as the scheduler sees it: edges between modules, and each module's share.

use forebay_units::Frequency;

use super::Share;
use crate::placement::Origin;
use crate::plan::{Plan, Target};

/// The graph as the scheduler sees it.
#[derive(Clone, Debug)]
pub struct Topology {
    /// The number of nodes: modules, ports, the bin, and crossings to other workers.
    pub nodes: usize,
    /// By module, in topological order: its share.
    pub shares: Vec<Share>,
    /// By module: the module that each of its gates leads to. `None`: out of the graph.
    pub gates: Vec<Vec<Option<usize>>>,
    /// By port: the module where its packets enter. `None` if no packets enter by the port.
    pub entries: Vec<Option<usize>>,
    /// By module: whether packets come from a gate, or from a port that another worker reads.
    pub fed_otherwise: Vec<bool>,
    /// The largest batch, in packets.
    pub batch: usize,
    /// The frequency of the clock's ticks.
    pub frequency: Frequency,
}

impl Default for Topology {
    fn default() -> Self {
        Self {
            nodes: 0,
            shares: Vec::new(),
            gates: Vec::new(),
            entries: Vec::new(),
            fed_otherwise: Vec::new(),
            batch: 32,
            frequency: Frequency::new(1e9),
        }
    }
}

impl Topology {
    /// Returns the topology of a plan whose gates have been checked.
    pub(crate) fn of(plan: &Plan, frequency: Frequency) -> Self {
        let module = |target: &Target| if let Target::Module(module) = *target { Some(module) } else { None };
        let gates = |at: &crate::Module| at.gates.iter().map(|(_, target)| module(target)).collect();
        Self {
            nodes: plan.modules.len() + plan.ports.len() + 1,
            shares: plan.modules.iter().map(|module| module.share).collect(),
            gates: plan.modules.iter().map(gates).collect(),
            entries: plan.ports.iter().map(|port| port.entry.as_ref().and_then(module)).collect(),
            fed_otherwise: fed_otherwise(plan),
            batch: plan.batch,
            frequency,
        }
    }

    /// Returns, by module, the ports whose packets can come to it, in ascending order.
    pub(super) fn sources(&self) -> Vec<Vec<u32>> {
        let mut sources = vec![Vec::new(); self.gates.len()];
        for (port, entry) in self.entries.iter().enumerate() {
            if let Some(entry) = entry {
                sources[*entry].push(port as u32);
            }
        }
        // Gates lead only to later modules, so one pass in this order finds all sources.
        for module in 0..sources.len() {
            let own = std::mem::take(&mut sources[module]);
            for next in self.gates[module].iter().flatten() {
                sources[*next].extend(&own);
                sources[*next].sort_unstable();
                sources[*next].dedup();
            }
            sources[module] = own;
        }
        sources
    }

    /// Returns, by module, the first module of the chain that leads only to it. From this first module on, a packet
    /// cannot go elsewhere: it reaches the module, or it is dropped or consumed on the way. Before the first module,
    /// the packet may still go elsewhere.
    pub(super) fn chain_heads(&self) -> Vec<u32> {
        let mut feeders = vec![Vec::new(); self.gates.len()];
        for entry in self.entries.iter().flatten() {
            feeders[*entry].push(None);
        }
        for (module, gates) in self.gates.iter().enumerate() {
            gates.iter().flatten().for_each(|next| feeders[*next].push(Some(module)));
        }
        let mut heads: Vec<u32> = Vec::with_capacity(feeders.len());
        for (module, fed_by) in feeders.iter().enumerate() {
            heads.push(match fed_by[..] {
                [Some(before)] if self.gates[before].len() == 1 => heads[before],
                _ => module as u32,
            });
        }
        heads
    }
}

/// Returns, by module, whether gates lead to it, or other workers hand over packets of their ports to it.
fn fed_otherwise(plan: &Plan) -> Vec<bool> {
    let mut fed = vec![false; plan.modules.len()];
    let mut feed = |target: Target| {
        if let Target::Module(module) = target {
            fed[module] = true;
        }
    };
    plan.modules.iter().flat_map(|module| &module.gates).for_each(|(_, target)| feed(*target));
    for (port, (planned, workers)) in plan.ports.iter().zip(&plan.placement.ports).enumerate() {
        let Some(entry) = planned.entry else { continue };
        let hands_here = |worker: &usize| {
            let to = plan.placement.leads(*worker, Origin::Port(port), entry);
            *worker != plan.worker && to.is_some_and(|to| to.contains(&plan.worker))
        };
        if workers.iter().any(hands_here) {
            feed(entry);
        }
    }
    fed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_and_chains_are_found() {
        // Port 0 → 0, a split → 2 → 3 → out, and → 4 → out; port 1 → 1 → 4.
        let topology = Topology {
            gates: vec![vec![Some(2), Some(4)], vec![Some(4)], vec![Some(3)], vec![None], vec![None]],
            entries: vec![Some(0), Some(1), None],
            ..Topology::default()
        };
        assert_eq!(topology.sources(), [vec![0], vec![1], vec![0], vec![0], vec![0, 1]]);
        assert_eq!(topology.chain_heads(), [0, 1, 2, 2, 4]);
    }
}
