//! Draws equal branches of a graph once, so that a gateway with 64 branches looks like one with a single branch.
//!
//! Two branches are equal if they have the same functions on the same workers, with gates of the same names, and lead
//! to the same modules and ports. A module that also receives packets from outside a branch does not belong to the
//! branch.

use std::collections::{BTreeSet, HashMap, HashSet};

use forebay_protocol::graph::GraphReport;

/// A graph whose equal branches are drawn once.
pub(crate) struct Drawing<'g> {
    pub(crate) graph: &'g GraphReport,
    /// The ports by which packets enter. Equal ports are grouped.
    pub(crate) roots: Vec<Root>,
    /// The modules. Equal modules are grouped.
    pub(crate) bundles: Vec<Bundle>,
}

/// Equal ports by which packets enter.
pub(crate) struct Root {
    /// Indices in the graph.
    pub(crate) ports: Vec<usize>,
    pub(crate) to: End,
}

/// The modules at the same position of equal branches. There is usually one.
pub(crate) struct Bundle {
    /// Indices in the graph.
    pub(crate) modules: Vec<usize>,
    pub(crate) ways: Vec<Way>,
    /// Number of other bundles and roots that send packets here.
    pub(crate) feeders: usize,
}

/// Gates that lead to the same bundle.
pub(crate) struct Way {
    /// Names of the gates.
    pub(crate) gates: Vec<String>,
    /// True if the gates are next to each other in the module's list.
    pub(crate) consecutive: bool,
    pub(crate) to: End,
}

/// The end of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum End {
    Bundle(usize),
    Port(usize),
    Drop,
}

/// The target of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Target {
    Module(usize),
    Port(usize),
    Drop,
}

/// The graph by indices. Nodes are modules, followed by source ports.
struct Shape<'g> {
    graph: &'g GraphReport,
    /// For each module, its gates and their targets.
    gates: Vec<Vec<(&'g str, Target)>>,
    /// For each port, the target of its packets.
    entries: Vec<Option<Target>>,
    /// For each module, the nodes that send packets to it.
    feeders: Vec<BTreeSet<usize>>,
    /// For each node, the times at which a depth-first walk of the dominator tree enters and leaves the node.
    spans: Vec<(usize, usize)>,
}

impl<'g> Drawing<'g> {
    /// Bundles equal branches.
    pub(crate) fn of(graph: &'g GraphReport) -> Self {
        Shape::of(graph).drawing(true)
    }

    /// Draws every module and port separately.
    pub(crate) fn full(graph: &'g GraphReport) -> Self {
        Shape::of(graph).drawing(false)
    }
}

impl<'g> Shape<'g> {
    fn of(graph: &'g GraphReport) -> Self {
        let modules = graph.modules.len();
        let names = graph.modules.iter().map(|module| module.name.as_str());
        let ports = graph.ports.iter().map(|port| port.name.as_str());
        let numbers: HashMap<_, _> = names.chain(ports).enumerate().map(|(at, name)| (name, at)).collect();
        let mut shape = Self {
            graph,
            gates: vec![Vec::new(); modules],
            entries: vec![None; graph.ports.len()],
            feeders: vec![BTreeSet::new(); modules],
            spans: Vec::new(),
        };
        for edge in &graph.edges {
            let target = match edge.to.as_deref().and_then(|to| numbers.get(to)) {
                Some(to) if *to < modules => Target::Module(*to),
                Some(to) => Target::Port(to - modules),
                None => Target::Drop,
            };
            match numbers.get(edge.from.as_str()) {
                Some(from) if *from < modules => {
                    shape.gates[*from].push((edge.gate.as_deref().unwrap_or_default(), target));
                }
                Some(from) => shape.entries[from - modules] = Some(target),
                None => continue,
            }
            if let (Some(from), Target::Module(to)) = (numbers.get(edge.from.as_str()), target) {
                shape.feeders[to].insert(*from);
            }
        }
        shape.spans = shape.dominators();
        shape
    }

    /// Returns the span of each node: the times at which a depth-first walk of the dominator tree enters and leaves the
    /// node. A module whose span contains the span of another module dominates it: all packets that reach the other
    /// module pass the dominating module first. Modules must be in topological order. Edges that lead back are ignored
    /// (Forebay makes none).
    fn dominators(&self) -> Vec<(usize, usize)> {
        let modules = self.graph.modules.len();
        // The root of the tree, above all sources.
        let (top, nodes) = (modules + self.entries.len(), modules + self.entries.len() + 1);
        let (mut above, mut depth) = (vec![top; nodes], vec![1_usize; nodes]);
        depth[top] = 0;
        for module in 0..modules {
            let mut common = None;
            for &feeder in self.feeders[module].iter().filter(|feeder| **feeder < module || **feeder >= modules) {
                let (mut a, mut b) = (feeder, common.unwrap_or(feeder));
                while a != b {
                    if depth[a] >= depth[b] { a = above[a] } else { b = above[b] }
                }
                common = Some(a);
            }
            above[module] = common.unwrap_or(top);
            depth[module] = depth[above[module]] + 1;
        }
        let mut below = vec![Vec::new(); nodes];
        (0..top).for_each(|node| below[above[node]].push(node));
        let (mut spans, mut clock, mut pending) = (vec![(0, 0); nodes], 0, vec![(top, false)]);
        while let Some((node, is_leaving)) = pending.pop() {
            clock += 1;
            if is_leaving {
                spans[node].1 = clock;
            } else {
                spans[node].0 = clock;
                pending.push((node, true));
                pending.extend(below[node].iter().map(|node| (*node, false)));
            }
        }
        spans
    }

    /// Returns true if all packets that reach `other` pass `module` first. A module also dominates itself.
    fn dominates(&self, module: usize, other: usize) -> bool {
        let ((from, to), (start, _)) = (self.spans[module], self.spans[other]);
        (from..to).contains(&start)
    }

    /// Returns properties of a module that begins a branch. Two branches can be equal only if these properties of their
    /// first modules are equal.
    fn first(&self, module: usize) -> (&'g str, &'g [usize], bool, usize) {
        let described = &self.graph.modules[module];
        (described.function.as_str(), &described.workers, described.folded.is_some(), self.gates[module].len())
    }

    /// Describes the branch that begins with `start`. Equal branches have equal descriptions.
    fn branch(&self, start: usize) -> String {
        let (mut words, mut numbers, mut pending) = (String::new(), HashMap::new(), vec![Target::Module(start)]);
        while let Some(target) = pending.pop() {
            let next = match target {
                Target::Module(module) if self.dominates(start, module) => {
                    let known = numbers.len();
                    if let Some(number) = numbers.get(&module) {
                        format!("#{number};")
                    } else {
                        numbers.insert(module, known);
                        pending.extend(self.gates[module].iter().rev().map(|(_, target)| *target));
                        let gates: Vec<_> = self.gates[module].iter().map(|(gate, _)| *gate).collect();
                        format!("{:?}{gates:?};", self.first(module))
                    }
                }
                other => format!("{other:?};"),
            };
            words.push_str(&next);
        }
        words
    }

    /// Groups targets that begin equal branches. Returns the groups, as indices into `targets`. `feeders` has, for each
    /// target, the node that sends packets to the target. If `bundle` is false, only identical targets are in one
    /// group.
    fn groups(&self, targets: &[Target], feeders: &[usize], bundle: bool) -> Vec<Vec<usize>> {
        let own = |at: usize| match targets[at] {
            Target::Module(module) if self.feeders[module].iter().eq([&feeders[at]]) => Some(module),
            _ => None,
        };
        let mut alike: HashMap<_, HashSet<usize>> = HashMap::new();
        for module in (0..targets.len()).filter_map(own) {
            alike.entry(self.first(module)).or_default().insert(module);
        }
        let key = |at: usize| match own(at) {
            // A single branch needs no comparison.
            Some(module) if bundle && alike[&self.first(module)].len() > 1 => self.branch(module),
            _ => format!("{:?}", targets[at]),
        };
        let (mut groups, mut known) = (Vec::<Vec<usize>>::new(), HashMap::new());
        for at in 0..targets.len() {
            let group = *known.entry(key(at)).or_insert(groups.len());
            if group == groups.len() {
                groups.push(Vec::new());
            }
            groups[group].push(at);
        }
        groups
    }

    /// Returns the drawing. With `bundle`, equal branches are drawn once.
    fn drawing(self, bundle: bool) -> Drawing<'g> {
        let mut made = BundleBuilder { bundles: Vec::new(), known: HashMap::new(), drawn: HashSet::new() };
        let modules = self.graph.modules.len();
        let sources: Vec<_> = self.entries.iter().enumerate().filter_map(|(port, to)| Some((port, (*to)?))).collect();
        let mut roots = Vec::new();
        for (kind, of_kind) in self.sources_by_kind(&sources, bundle) {
            let targets: Vec<_> = of_kind.iter().map(|at| sources[*at].1).collect();
            let feeders: Vec<_> = of_kind.iter().map(|at| modules + sources[*at].0).collect();
            for group in self.groups(&targets, &feeders, bundle && kind) {
                let ports = group.iter().map(|at| sources[of_kind[*at]].0).collect();
                let to = made.end(group.iter().map(|at| targets[*at]));
                roots.push(Root { ports, to });
            }
        }
        let mut next = 0;
        // Process every bundle as it is created, and at the end the modules that no edge leads to.
        let mut first_undrawn = 0;
        loop {
            if next == made.bundles.len() {
                let Some(module) = (first_undrawn..modules).find(|module| !made.drawn.contains(module)) else { break };
                first_undrawn = module + 1;
                made.end([Target::Module(module)]);
            }
            let members = made.bundles[next].modules.clone();
            let gates = &self.gates[members[0]];
            let targets: Vec<_> = gates.iter().map(|(_, target)| *target).collect();
            let groups = self.groups(&targets, &vec![members[0]; targets.len()], bundle);
            let ways = groups.into_iter().map(|group| {
                let of = |module: &usize| {
                    let gates = &self.gates[*module];
                    group.iter().filter_map(|at| Some(gates.get(*at)?.1)).collect::<Vec<_>>()
                };
                Way {
                    gates: group.iter().map(|at| gates[*at].0.to_owned()).collect(),
                    consecutive: group.windows(2).all(|pair| pair[0] + 1 == pair[1]),
                    to: made.end(members.iter().flat_map(of).collect::<Vec<_>>()),
                }
            });
            made.bundles[next].ways = ways.collect::<Vec<_>>();
            next += 1;
        }
        let mut bundles = made.bundles;
        let from_bundles = bundles.iter().flat_map(|bundle| {
            let ends: HashSet<_> = bundle.ways.iter().map(|way| way.to).collect();
            ends.into_iter().collect::<Vec<_>>()
        });
        let ends: Vec<_> = roots.iter().map(|root| root.to).chain(from_bundles).collect();
        for end in ends {
            if let End::Bundle(bundle) = end {
                bundles[bundle].feeders += 1;
            }
        }
        Drawing { graph: self.graph, roots, bundles }
    }

    /// Groups sources by port type and workers. Returns for each group whether it has several members, and its indices
    /// into `sources`. If `bundle` is false, each source is a group.
    fn sources_by_kind(&self, sources: &[(usize, Target)], bundle: bool) -> Vec<(bool, Vec<usize>)> {
        let (mut kinds, mut known) = (Vec::<Vec<usize>>::new(), HashMap::new());
        for (at, (port, _)) in sources.iter().enumerate() {
            let port = &self.graph.ports[*port];
            let key = if bundle { (port.kind.as_str(), &port.workers[..], 0) } else { ("", &[][..], at) };
            let kind = *known.entry(key).or_insert(kinds.len());
            if kind == kinds.len() {
                kinds.push(Vec::new());
            }
            kinds[kind].push(at);
        }
        kinds.into_iter().map(|kind| (kind.len() > 1, kind)).collect()
    }
}

/// Bundles under construction.
struct BundleBuilder {
    bundles: Vec<Bundle>,
    /// For each list of modules, the index of their bundle.
    known: HashMap<Vec<usize>, usize>,
    /// Modules that are in a bundle.
    drawn: HashSet<usize>,
}

impl BundleBuilder {
    /// Returns the end of ways that lead to these targets. If there are modules among the targets, the end is the
    /// bundle of these modules, and ports among the targets are ignored. The bundle is created if it does not exist.
    fn end(&mut self, targets: impl IntoIterator<Item = Target>) -> End {
        let (mut modules, mut seen, mut other) = (Vec::new(), HashSet::new(), End::Drop);
        for target in targets {
            match target {
                Target::Module(module) if seen.insert(module) => modules.push(module),
                Target::Module(_) => {}
                Target::Port(port) => other = End::Port(port),
                Target::Drop => other = End::Drop,
            }
        }
        if modules.is_empty() {
            return other;
        }
        self.drawn.extend(&modules);
        let at = *self.known.entry(modules).or_insert_with_key(|modules| {
            self.bundles.push(Bundle { modules: modules.clone(), ways: Vec::new(), feeders: 0 });
            self.bundles.len() - 1
        });
        End::Bundle(at)
    }
}

#[cfg(test)]
mod tests;
