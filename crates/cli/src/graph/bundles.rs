//! Equal branches of a graph as one, so that a gateway of 64 branches is a drawing of one.
//!
//! Two branches are equal where they have the same functions on the same workers, with gates of the same names, and
//! leave to the same modules and ports. Modules that also get packets from elsewhere belong to no branch.

use std::collections::{BTreeSet, HashMap, HashSet};

use forebay_protocol::graph::GraphReport;

/// A graph whose equal branches are drawn once.
pub(crate) struct Drawing<'g> {
    pub(crate) graph: &'g GraphReport,
    /// Ports by which packets enter, those alike together.
    pub(crate) roots: Vec<Root>,
    /// Modules, those alike together.
    pub(crate) bundles: Vec<Bundle>,
}

/// Ports by which packets enter.
pub(crate) struct Root {
    /// Their numbers in the graph.
    pub(crate) ports: Vec<usize>,
    pub(crate) to: End,
}

/// Modules that do the same in equal branches; mostly one.
pub(crate) struct Bundle {
    /// Their numbers in the graph.
    pub(crate) modules: Vec<usize>,
    pub(crate) ways: Vec<Way>,
    /// From how many other bundles and roots packets come.
    pub(crate) feeders: usize,
}

/// Gates that lead to the same bundle.
pub(crate) struct Way {
    /// Their names.
    pub(crate) gates: Vec<String>,
    /// Whether they are neighbours in the module's list.
    pub(crate) consecutive: bool,
    pub(crate) to: End,
}

/// Where a way ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum End {
    Bundle(usize),
    Port(usize),
    Drop,
}

/// Where an edge of the graph leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Target {
    Module(usize),
    Port(usize),
    Drop,
}

/// The graph by numbers. Sources, which are ports by which packets enter, are nodes behind the modules.
struct Shape<'g> {
    graph: &'g GraphReport,
    /// By module: gates and where they lead.
    gates: Vec<Vec<(&'g str, Target)>>,
    /// By port: where its packets go.
    entries: Vec<Option<Target>>,
    /// By module: the nodes that its packets come from.
    feeders: Vec<BTreeSet<usize>>,
    /// By module, when a walk over the tree of dominators enters and leaves it.
    spans: Vec<(usize, usize)>,
}

impl<'g> Drawing<'g> {
    /// Bundles equal branches.
    pub(crate) fn of(graph: &'g GraphReport) -> Self {
        Shape::of(graph).drawing(true)
    }

    /// Every module and port by itself.
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

    /// By module, its span in the tree of dominators: a module dominates those whose spans are within its own. Modules
    /// are in topological order; edges that lead back, which Forebay does not make, are left out.
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
        while let Some((node, left)) = pending.pop() {
            clock += 1;
            if left {
                spans[node].1 = clock;
            } else {
                spans[node].0 = clock;
                pending.push((node, true));
                pending.extend(below[node].iter().map(|node| (*node, false)));
            }
        }
        spans
    }

    fn dominates(&self, module: usize, other: usize) -> bool {
        let ((from, to), (start, _)) = (self.spans[module], self.spans[other]);
        (from..to).contains(&start)
    }

    /// Returns the properties in which the first modules of equal branches agree.
    fn first(&self, module: usize) -> (&'g str, &'g [usize], bool, usize) {
        let described = &self.graph.modules[module];
        (described.function.as_str(), &described.workers, described.folded.is_some(), self.gates[module].len())
    }

    /// The branch that begins with `start`, in words that are the same for equal ones.
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

    /// Groups targets that begin equal branches, by their places in `targets`; `feeders` has the node that each comes
    /// from.
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
            // A branch by itself is not compared.
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

    fn drawing(self, bundle: bool) -> Drawing<'g> {
        let mut made = Makes { bundles: Vec::new(), known: HashMap::new(), drawn: HashSet::new() };
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
        // Every bundle that is made is looked at, and last the modules that nothing leads to.
        let mut rest = 0;
        loop {
            if next == made.bundles.len() {
                let Some(module) = (rest..modules).find(|module| !made.drawn.contains(module)) else { break };
                rest = module + 1;
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

    /// Sources by what they are: their places in `sources`, and whether there are several of a kind.
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

/// Bundles as they are made.
struct Makes {
    bundles: Vec<Bundle>,
    known: HashMap<Vec<usize>, usize>,
    /// Modules that are in one.
    drawn: HashSet<usize>,
}

impl Makes {
    /// Where ways end that lead to these: the bundle of all modules among them, which is made where there is none.
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
