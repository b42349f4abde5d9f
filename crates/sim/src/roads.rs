//! Where packets go in each worker: by its own nodes, or to other workers.
//!
//! As the engine places it (`Placement`): past a worker's modules, ports and bin come its spreads, then its aways, each for
//! one target and one kind of crossing.

use std::sync::Arc;

use forebay_graph::{Origin, Placement, Target};

use crate::scene::{Crossing, Place, RingPlan};

/// A pipeline's graph with folded modules as one: the first of a fold stands for all.
pub(crate) struct Graph {
    /// By module: where its gates lead; nothing where another runs for it.
    pub(crate) gates: Vec<Vec<Target>>,
    /// By port: where its packets enter.
    pub(crate) entries: Vec<Option<Target>>,
    pub(crate) placement: Arc<Placement>,
    /// By module: whether packets for it are dropped where the ring to its worker is full.
    pub(crate) drops: Vec<bool>,
}

impl Graph {
    /// Everything that leads somewhere on a worker.
    fn edges(&self, worker: usize) -> impl Iterator<Item = (Origin, Target)> {
        let here = move |on: &Vec<usize>| on.contains(&worker);
        let modules = self.gates.iter().zip(&self.placement.modules).enumerate().filter(move |(_, (_, on))| here(on));
        let gates = modules.flat_map(|(module, (gates, _))| gates.iter().map(move |to| (Origin::Gate(module), *to)));
        let ports = self.entries.iter().zip(&self.placement.ports).enumerate().filter(move |(_, (_, on))| here(on));
        gates.chain(ports.filter_map(|(port, (entry, _))| Some((Origin::Port(port), (*entry)?))))
    }

    /// The rings that there are, in the order in which a worker reads its own.
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
    fn of(origin: Origin, target: Target) -> Self {
        match (origin, target) {
            (Origin::Port(_), Target::Module(_)) => Self::Entry,
            (Origin::Gate(_), Target::Module(_)) => Self::Work,
            (_, Target::Port(_) | Target::Drop) => Self::Leave,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Road {
    Spread(Crossing, Target),
    Away(Crossing, Target, usize),
}

/// A worker's nodes.
pub(crate) struct Roads<'g> {
    graph: &'g Graph,
    worker: usize,
    roads: Vec<Road>,
}

impl<'g> Roads<'g> {
    pub(crate) fn of(graph: &'g Graph, worker: usize) -> Self {
        let mut roads = Vec::new();
        for (origin, target) in graph.edges(worker) {
            let Some(to) = graph.placement.leads(worker, origin, target) else { continue };
            let crossing = Crossing::of(origin, target);
            roads.extend(to.iter().filter(|to| **to != worker).map(|to| Road::Away(crossing, target, *to)));
            if to.len() > 1 {
                roads.push(Road::Spread(crossing, target));
            }
        }
        roads.sort_unstable();
        roads.dedup();
        Self { graph, worker, roads }
    }

    fn bin(&self) -> usize {
        self.graph.gates.len() + self.graph.entries.len()
    }

    /// A target's own node.
    pub(crate) fn node(&self, target: Target) -> usize {
        match target {
            Target::Module(module) => module,
            Target::Port(port) => self.graph.gates.len() + port,
            Target::Drop => self.bin(),
        }
    }

    /// Where packets come first that go from `origin` to `target` on worker `to`: as far as this worker has them. The last is the target's
    /// own node where that is here.
    pub(crate) fn way(&self, origin: Origin, target: Target, to: usize) -> Vec<usize> {
        let crossing = Crossing::of(origin, target);
        let place = |road| self.roads.binary_search(&road).ok().map(|place| self.bin() + 1 + place);
        let leads = self.graph.placement.leads(self.worker, origin, target);
        let spread = leads.filter(|to| to.len() > 1).and_then(|_| place(Road::Spread(crossing, target)));
        let then = match leads {
            Some(_) if to != self.worker => place(Road::Away(crossing, target, to)),
            _ => Some(self.node(target)),
        };
        spread.into_iter().chain(then).collect()
    }

    /// The first node from `origin` to `target`, whichever worker a packet is for.
    pub(crate) fn first(&self, origin: Origin, target: Target) -> usize {
        let to = self.graph.placement.leads(self.worker, origin, target).and_then(|to| to.first().copied());
        let way = self.way(origin, target, to.unwrap_or(self.worker));
        way.first().copied().unwrap_or_else(|| self.node(target))
    }

    /// What the nodes are.
    pub(crate) fn places(&self, rings: &[RingPlan]) -> Vec<Place> {
        let ring = |to: usize, crossing: Crossing| {
            let wanted = RingPlan { to, crossing, from: self.worker };
            rings.binary_search(&wanted).expect("rings are found by the same edges")
        };
        let modules = std::iter::repeat_n(Place::Module, self.graph.gates.len());
        let outs = std::iter::repeat_n(Place::Out, self.graph.entries.len() + 1);
        let roads = self.roads.iter().map(|road| match *road {
            Road::Spread(..) => Place::Spread,
            Road::Away(crossing, target, to) => {
                let module = |target| if let Target::Module(module) = target { Some(module) } else { None };
                let drops = module(target).filter(|module| self.graph.drops[*module]);
                Place::Away(ring(to, crossing), drops)
            }
        });
        modules.chain(outs).chain(roads).collect()
    }

    /// By node: whether one edge alone leads there, so that a batch may go straight on.
    pub(crate) fn alone(&self) -> Vec<bool> {
        let mut feeders = vec![0; self.bin() + 1 + self.roads.len()];
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
