//! A topology as nested parts, as it is drawn: packages, dies, memory nodes, last-level caches and cores.

use std::collections::{BTreeMap, BTreeSet};

use forebay_graph::files::size;
use forebay_host::topology::{MemoryNode, NetworkDevice, Processor, SourceType, Usable};
use forebay_host::{KernelList, Topology};

use crate::format::counted;

/// Minimum number of consecutive cores that are written as a range.
const LEAST_RUN: usize = 3;

/// A topology as nested parts. The parts contain only online processors, because the kernel does not report where
/// offline processors are.
pub(super) struct Outline<'t> {
    pub(super) topology: &'t Topology,
    source: SourceType,
    /// The outermost parts: packages, or memory nodes if these contain several packages.
    pub(super) parts: Vec<TopologyPart>,
    /// The memory nodes that belong to no part.
    pub(super) memory: Vec<&'t MemoryNode>,
}

/// The type of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Package,
    Die,
    Node,
    Cache,
}

/// A package, a die, a memory node or a last-level cache.
pub(super) struct TopologyPart {
    pub(super) level: Level,
    /// The name, with the size if known.
    pub(super) name: String,
    /// The network interfaces of a node. Empty in a part that continues the node.
    pub(super) interfaces: Vec<String>,
    pub(super) parts: Vec<TopologyPart>,
    /// The cores of a cache, ordered by their lowest threads.
    pub(super) cores: Vec<CoreOutline>,
}

/// A core with its online threads.
pub(super) struct CoreOutline {
    /// Thread numbers, ascending.
    pub(super) threads: Vec<usize>,
    /// True if one of the threads can run a worker.
    pub(super) is_usable: bool,
}

impl Level {
    /// Returns the number of the part at this level that contains a processor.
    fn of(self, processor: &Processor) -> Option<usize> {
        match self {
            Self::Package => Some(processor.package),
            Self::Die => processor.die,
            Self::Node => processor.node,
            Self::Cache => processor.cache,
        }
    }
}

/// Returns the levels from the outside to the inside. Either memory nodes are parts of packages, or packages are parts
/// of memory nodes.
fn levels(online: &[&Processor]) -> [Level; 4] {
    let pairs: BTreeSet<_> = online.iter().map(|one| (one.package, one.node)).collect();
    let packages: BTreeSet<_> = online.iter().map(|one| one.package).collect();
    let known = || pairs.iter().filter_map(|(_, node)| *node);
    let has_several = known().count() > known().collect::<BTreeSet<_>>().len();
    if has_several && packages.len() == pairs.len() {
        [Level::Node, Level::Package, Level::Die, Level::Cache]
    } else {
        [Level::Package, Level::Die, Level::Node, Level::Cache]
    }
}

/// Groups values by key, in the order of the keys.
fn grouped<K: Ord + Copy, T: Copy>(of: &[T], key: impl Fn(&T) -> K) -> Vec<(K, Vec<T>)> {
    let mut groups: BTreeMap<K, Vec<T>> = BTreeMap::new();
    for one in of {
        groups.entry(key(one)).or_default().push(*one);
    }
    groups.into_iter().collect()
}

impl<'t> Outline<'t> {
    pub(super) fn of(topology: &'t Topology, source: SourceType) -> Self {
        let online: Vec<_> = topology.processors.iter().filter(|one| one.usable != Usable::Offline).collect();
        let mut outline = Self { topology, source, parts: Vec::new(), memory: Vec::new() };
        let mut seen = BTreeSet::new();
        outline.parts = outline.parts(&online, &levels(&online), &mut seen);
        outline.memory = topology.nodes.iter().filter(|node| !seen.contains(&node.number)).collect();
        outline
    }

    /// Returns the parts at the first of `levels` that contain these processors. A node that is already in `seen` is
    /// marked as continued, and nodes are added to `seen`.
    fn parts(&self, of: &[&Processor], levels: &[Level], seen: &mut BTreeSet<usize>) -> Vec<TopologyPart> {
        let Some((&level, inner)) = levels.split_first() else { return Vec::new() };
        let groups = grouped(of, |one| level.of(one));
        // If a package has one die, the die is left out.
        if level == Level::Die && groups.len() == 1 {
            return self.parts(of, inner, seen);
        }
        let mut parts = Vec::new();
        for (number, of) in groups {
            let is_continued = level == Level::Node && number.is_some_and(|number| !seen.insert(number));
            let name = match (level, number) {
                (Level::Package, number) => format!("package {}", number.unwrap_or_default()),
                (Level::Die, Some(number)) => format!("die {number}"),
                (Level::Die, None) => "die unknown".to_owned(),
                (Level::Node, Some(number)) if is_continued => format!("node {number} (continued)"),
                (Level::Node, number) => self.node(number),
                (Level::Cache, index) => self.cache(index, of[0].node),
            };
            let near = number.filter(|_| level == Level::Node && !is_continued);
            parts.push(TopologyPart {
                level,
                name,
                interfaces: near.map(|node| self.interfaces(node)).unwrap_or_default(),
                parts: self.parts(&of, inner, seen),
                cores: if level == Level::Cache { cores(&of) } else { Vec::new() },
            });
        }
        parts
    }

    /// Formats the numbers of packages, nodes, caches, cores, threads and interfaces.
    pub(super) fn summary(&self) -> String {
        let online = || self.topology.processors.iter().filter(|one| one.usable != Usable::Offline);
        let distinct = |of: fn(&Processor) -> Option<usize>| online().filter_map(of).collect::<BTreeSet<_>>().len();
        [
            (distinct(|one| Some(one.package)), "package", ", "),
            (self.topology.nodes.len(), "memory node", ", "),
            (distinct(|one| one.cache), "last-level cache", ", "),
            (distinct(|one| Some(one.core)), "core", ", "),
            (online().count(), "thread", "; "),
            (self.topology.interfaces.len(), "network interface", ""),
        ]
        .map(|(number, thing, behind)| counted(number as u64, thing) + behind)
        .concat()
    }

    /// Formats a node with the size of its memory.
    fn node(&self, number: Option<usize>) -> String {
        let Some(number) = number else { return "memory node unknown".to_owned() };
        let bytes = self.topology.nodes.iter().find(|node| node.number == number).and_then(|node| node.bytes);
        bytes.map_or_else(|| format!("node {number}"), |bytes| format!("node {number}, {}", size(bytes)))
    }

    /// Formats a node that belongs to no part.
    pub(super) fn memory_node(&self, node: &MemoryNode) -> String {
        let has_processors = self.topology.processors.iter().any(|one| one.node == Some(node.number));
        let what = if has_processors { "its processors are off" } else { "memory only" };
        format!("{}, {what}", self.node(Some(node.number)))
    }

    /// Formats a cache with its size, and the other nodes that use it.
    fn cache(&self, index: Option<usize>, node: Option<usize>) -> String {
        let Some((index, cache)) = index.and_then(|index| Some((index, self.topology.caches.get(index)?))) else {
            return "last-level cache unknown".to_owned();
        };
        let users = self.topology.processors.iter().filter(|one| one.cache == Some(index) && one.node != node);
        let others: KernelList = users.filter(|one| one.usable != Usable::Offline).filter_map(|one| one.node).collect();
        let bytes = cache.bytes.map(|bytes| format!(", {}", size(bytes))).unwrap_or_default();
        let shared = match others.len() {
            0 => String::new(),
            1 => format!(", shared with node {others}"),
            _ => format!(", shared with nodes {others}"),
        };
        format!("L{}{bytes}{shared}", cache.level)
    }

    /// Returns the names of a node's interfaces.
    pub(super) fn interfaces(&self, node: usize) -> Vec<String> {
        let near = self.topology.interfaces.iter().filter(|device| device.node == Some(node));
        near.map(|device| device.name.clone()).collect()
    }

    /// Lists the interfaces that belong to no part, each with the reason.
    pub(super) fn elsewhere(&self) -> Vec<String> {
        let why = |device: &NetworkDevice| match (device.node, self.source) {
            (None, SourceType::Host) => Some("node unknown (-1)".to_owned()),
            (None, _) => Some("node unknown".to_owned()),
            (Some(node), _) if self.topology.nodes.iter().all(|known| known.number != node) => {
                Some(format!("node {node}, which is not described"))
            }
            _ => None,
        };
        let all = self.topology.interfaces.iter();
        all.filter_map(|device| Some(format!("{}: {}", device.name, why(device)?))).collect()
    }

    /// Lists the processors that cannot run a worker, by reason.
    pub(super) fn unusable(&self) -> Vec<(&'static str, Vec<String>)> {
        let not_allowed = match self.source {
            SourceType::Host => "not in this process' CPU set:",
            SourceType::Hwloc | SourceType::Synthetic => "not in the allowed CPU set:",
        };
        let numbers = |usable: Usable| {
            let all = self.topology.processors.iter().filter(|one| one.usable == usable);
            runs(&all.map(|one| vec![one.number]).collect::<Vec<_>>())
        };
        let mut all = vec![("off:", numbers(Usable::Offline)), (not_allowed, numbers(Usable::NotAllowed))];
        all.retain(|(_, numbers)| !numbers.is_empty());
        all
    }
}

/// Returns the cores of these processors.
fn cores(of: &[&Processor]) -> Vec<CoreOutline> {
    let core = |(_, of): (usize, Vec<&Processor>)| CoreOutline {
        threads: of.iter().map(|one| one.number).collect(),
        is_usable: of.iter().any(|one| one.usable == Usable::Yes),
    };
    let mut cores: Vec<_> = grouped(of, |one| one.core).into_iter().map(core).collect();
    cores.sort_by(|a, b| a.threads.cmp(&b.threads));
    cores
}

impl TopologyPart {
    /// Formats the cores: threads are joined, and three or more consecutive cores are a range.
    pub(super) fn cores(&self) -> Vec<String> {
        runs(&self.cores.iter().map(|core| core.threads.clone()).collect::<Vec<_>>())
    }
}

/// Formats cores with their threads: `0+12`, or as ranges `0-5` or `0+12 … 5+17`.
fn runs(cores: &[Vec<usize>]) -> Vec<String> {
    let is_next = |(a, b): (&Vec<usize>, &Vec<usize>)| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.checked_add(1) == Some(*b))
    };
    let written = |core: &Vec<usize>| core.iter().map(usize::to_string).collect::<Vec<_>>().join("+");
    let mut all = Vec::new();
    for run in cores.chunk_by(|a, b| is_next((a, b))) {
        match run {
            [first, .., last] if run.len() >= LEAST_RUN => {
                let between = if first.len() == 1 { "-" } else { " … " };
                all.push(format!("{}{between}{}", written(first), written(last)));
            }
            few => all.extend(few.iter().map(written)),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::runs;

    #[test]
    fn ranges_are_of_three_or_more() {
        let single = |numbers: &[usize]| runs(&numbers.iter().map(|number| vec![*number]).collect::<Vec<_>>());
        assert_eq!(single(&[0, 1, 2, 3, 5, 6, 8]), ["0-3", "5", "6", "8"]);
        assert_eq!(single(&[0, 2, 4]), ["0", "2", "4"]);
        assert_eq!(single(&[]), [""; 0]);
        assert_eq!(single(&[usize::MAX]), [usize::MAX.to_string()]);
        let pairs: Vec<_> = (0..4).map(|core| vec![core, core + 12]).chain([vec![4], vec![5, 18]]).collect();
        assert_eq!(runs(&pairs), ["0+12 … 3+15", "4", "5+18"]);
    }
}
