//! The nodes of each worker, and the nodes that packets pass on their routes.
//!
//! Nodes are numbered as in the engine's `Placement`: the modules, the ports and the drop node come first, then the
//! worker's spread nodes, then its transfer nodes. A spread or transfer node serves one target and one type of
//! crossing.

use std::sync::Arc;

use forebay_graph::{Origin, Placement, Target};

use crate::scene::{Crossing, NodeType, RingPlan};

/// The graph of a pipeline in which folded modules count as one: the first module of a fold represents all of them.
pub(crate) struct Graph {
    /// By module: the targets of its gates. Empty for a module that is folded into another.
    pub(crate) gates: Vec<Vec<Target>>,
    /// By port: the target that its packets enter.
    pub(crate) entries: Vec<Option<Target>>,
    /// The workers of each module and port.
    pub(crate) placement: Arc<Placement>,
    /// By module: true if packets to it are dropped when the ring to its worker is full.
    pub(crate) drops: Vec<bool>,
}

impl Graph {
    /// Returns all edges of a worker.
    fn edges(&self, worker: usize) -> impl Iterator<Item = (Origin, Target)> {
        let here = move |on: &Vec<usize>| on.contains(&worker);
        let modules = self.gates.iter().zip(&self.placement.modules).enumerate().filter(move |(_, (_, on))| here(on));
        let gates = modules.flat_map(|(module, (gates, _))| gates.iter().map(move |to| (Origin::Gate(module), *to)));
        let ports = self.entries.iter().zip(&self.placement.ports).enumerate().filter(move |(_, (_, on))| here(on));
        gates.chain(ports.filter_map(|(port, (entry, _))| Some((Origin::Port(port), (*entry)?))))
    }

    /// Returns all rings, sorted. A worker reads its rings in this order.
    pub(crate) fn rings(&self) -> Vec<RingPlan> {
        let mut rings = Vec::new();
        for from in 0..self.placement.workers {
            for (origin, target) in self.edges(from) {
                let to = self.placement.leads(from, origin, target).unwrap_or_default();
                let crossing = Crossing::of(origin, target);
                rings.extend(to.iter().filter(|to| **to != from).map(|to| RingPlan { to: *to, crossing, from }));
            }
        }
        rings.sort_unstable();
        rings.dedup();
        rings
    }
}

impl Crossing {
    /// Returns the reason why packets from `origin` to `target` go to another worker.
    fn of(origin: Origin, target: Target) -> Self {
        match (origin, target) {
            (Origin::Port(_), Target::Module(_)) => Self::Entry,
            (Origin::Gate(_), Target::Module(_)) => Self::Work,
            (_, Target::Port(_) | Target::Drop) => Self::Leave,
        }
    }
}

/// A node at which packets to other workers wait. The order of the variants and of their fields is the order in which
/// the nodes are numbered, and must be equal to the order in the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TransferNode {
    /// Packets to several workers, before they are divided.
    Spread(Crossing, Target),
    /// Packets to the worker with this number.
    Transfer(Crossing, Target, usize),
}

/// The nodes of a worker.
pub(crate) struct WorkerNodes<'g> {
    graph: &'g Graph,
    worker: usize,
    /// The spread and transfer nodes, sorted. The node at index i has the number of the drop node plus 1 plus i.
    transfers: Vec<TransferNode>,
}

impl<'g> WorkerNodes<'g> {
    /// Finds the spread and transfer nodes of a worker.
    pub(crate) fn of(graph: &'g Graph, worker: usize) -> Self {
        let mut transfers = Vec::new();
        for (origin, target) in graph.edges(worker) {
            let Some(to) = graph.placement.leads(worker, origin, target) else { continue };
            let crossing = Crossing::of(origin, target);
            transfers
                .extend(to.iter().filter(|to| **to != worker).map(|to| TransferNode::Transfer(crossing, target, *to)));
            if to.len() > 1 {
                transfers.push(TransferNode::Spread(crossing, target));
            }
        }
        transfers.sort_unstable();
        transfers.dedup();
        Self { graph, worker, transfers }
    }

    /// Returns the number of the drop node, which follows the modules and the ports.
    fn drop_node(&self) -> usize {
        self.graph.gates.len() + self.graph.entries.len()
    }

    /// Returns the node of a target. The node has the same number on every worker.
    pub(crate) fn node(&self, target: Target) -> usize {
        match target {
            Target::Module(module) => module,
            Target::Port(port) => self.graph.gates.len() + port,
            Target::Drop => self.drop_node(),
        }
    }

    /// Returns the nodes of this worker that a packet passes from `origin` to `target` on worker `to`. If `to` is this
    /// worker, the last node is the node of the target.
    pub(crate) fn route(&self, origin: Origin, target: Target, to: usize) -> Vec<usize> {
        let crossing = Crossing::of(origin, target);
        let transfer = |wanted| self.transfers.binary_search(&wanted).ok().map(|at| self.drop_node() + 1 + at);
        let leads = self.graph.placement.leads(self.worker, origin, target);
        let spread = leads.filter(|to| to.len() > 1).and_then(|_| transfer(TransferNode::Spread(crossing, target)));
        let then = match leads {
            Some(_) if to != self.worker => transfer(TransferNode::Transfer(crossing, target, to)),
            _ => Some(self.node(target)),
        };
        spread.into_iter().chain(then).collect()
    }

    /// Returns the first node that packets enter on the way from `origin` to `target`.
    pub(crate) fn first(&self, origin: Origin, target: Target) -> usize {
        let to = self.graph.placement.leads(self.worker, origin, target).and_then(|to| to.first().copied());
        let route = self.route(origin, target, to.unwrap_or(self.worker));
        route.first().copied().unwrap_or_else(|| self.node(target))
    }

    /// Returns the type of each node. `rings` are the sorted rings of the same graph ([`Graph::rings`]).
    pub(crate) fn types(&self, rings: &[RingPlan]) -> Vec<NodeType> {
        let ring = |to: usize, crossing: Crossing| {
            let wanted = RingPlan { to, crossing, from: self.worker };
            rings.binary_search(&wanted).expect("rings are found by the same edges")
        };
        let modules = std::iter::repeat_n(NodeType::Module, self.graph.gates.len());
        let outs = std::iter::repeat_n(NodeType::Out, self.graph.entries.len() + 1);
        let transfers = self.transfers.iter().map(|transfer_node| match *transfer_node {
            TransferNode::Spread(..) => NodeType::Spread,
            TransferNode::Transfer(crossing, target, to) => {
                let module = |target| if let Target::Module(module) = target { Some(module) } else { None };
                let drops = module(target).filter(|module| self.graph.drops[*module]);
                NodeType::Transfer(ring(to, crossing), drops)
            }
        });
        modules.chain(outs).chain(transfers).collect()
    }

    /// Returns, by node, whether only one module or port of this worker leads to it. A batch may then bypass the queue
    /// of the node.
    pub(crate) fn single_feed(&self) -> Vec<bool> {
        let mut feeders = vec![0; self.drop_node() + 1 + self.transfers.len()];
        for (port, entry) in self.graph.entries.iter().enumerate() {
            if let Some(target) = entry {
                feeders[self.first(Origin::Port(port), *target)] += 1;
            }
        }
        for (module, gates) in self.graph.gates.iter().enumerate() {
            let mut fed: Vec<usize> = gates.iter().map(|to| self.first(Origin::Gate(module), *to)).collect();
            fed.sort_unstable();
            fed.dedup();
            fed.into_iter().for_each(|node| feeders[node] += 1);
        }
        feeders.into_iter().map(|feeders| feeders == 1).collect()
    }
}
