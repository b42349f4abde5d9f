//! What shares what: packages, memory domains, last-level caches, physical cores, and where network interfaces are.
//!
//! There are three sources with one result: the kernel's files beneath a [`Tree`], a description that hwloc wrote, and
//! a short text such as `2x12`. A processor that is switched off, or that the process may not use, stays in the picture
//! and is marked; the [domains](Topology::domains) have only usable ones.

mod hwloc;
mod synthetic;
mod sysfs;

use std::collections::BTreeMap;

use crate::host::MOST_CPUS;
use crate::memory::MOST_NODES;
use crate::tree::Unknown;

/// Why there is no topology.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// A file of the kernel's makes no sense.
    #[error(transparent)]
    Unknown(#[from] Unknown),
    /// A list of the kernel's is missing or cannot be read.
    #[error("{why}: allowed is {allowed}")]
    List {
        /// Why it cannot be known.
        why: Unknown,
        /// What is allowed in it.
        allowed: String,
    },
    /// The text is not XML.
    #[error("{line}: not XML ({what}): allowed is a file that lstopo wrote, `lstopo FILE.xml`")]
    NotXml {
        /// The line.
        line: u32,
        /// Why it is not.
        what: String,
    },
    /// The XML is not from hwloc, or lacks a part.
    #[error("{line}: {what}: {allowed}")]
    Hwloc {
        /// The line.
        line: u32,
        /// What is wrong.
        what: String,
        /// What is allowed.
        allowed: String,
    },
    /// The text describes no machine.
    #[error("{part}: allowed is {allowed}")]
    Synthetic {
        /// The part that is wrong.
        part: String,
        /// What is allowed in its place.
        allowed: String,
    },
    /// There are no processors, or too many.
    #[error("{0} processors: allowed are 1 to {MOST_CPUS}")]
    Count(usize),
    /// Two processors have one number.
    #[error("processor {0} is there twice: allowed is one of each number")]
    Twice(usize),
    /// There are too many memory nodes.
    #[error("{0} memory nodes: allowed are up to {MOST_NODES}")]
    Nodes(usize),
    /// Two memory nodes have one number.
    #[error("memory node {0} is there twice: allowed is one of each number")]
    NodeTwice(usize),
}

/// Whether a processor can run a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Usable {
    /// It can.
    Yes,
    /// The process' CPU set does not have it.
    NotAllowed,
    /// It is switched off.
    Offline,
}

/// A hardware thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processor {
    /// The kernel's number.
    pub number: usize,
    /// Its package (socket).
    pub package: usize,
    /// Its die, where packages have several.
    pub die: Option<usize>,
    /// Its NUMA node; `None` where the system does not say.
    pub node: Option<usize>,
    /// Its last-level cache: an index of [`Topology::caches`]; `None` where the system does not say.
    pub cache: Option<usize>,
    /// The physical core that it is a thread of, numbered over the machine.
    pub core: usize,
    /// Whether it can run a worker.
    pub usable: Usable,
}

/// A NUMA node. One without processors has memory only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryNode {
    /// The kernel's number.
    pub number: usize,
    /// Its memory in bytes, where that is known.
    pub bytes: Option<u64>,
}

/// A last-level cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Its level: 3 on most machines.
    pub level: u8,
    /// Its size in bytes, where that is known.
    pub bytes: Option<u64>,
}

/// A network interface with a device behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkDevice {
    /// Its name.
    pub name: String,
    /// The NUMA node of the device; `None` where the firmware names none (node −1).
    pub node: Option<usize>,
}

/// Usable processors that share a last-level cache and a NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// The node.
    pub node: Option<usize>,
    /// The cache, as in [`Topology::caches`].
    pub cache: Option<usize>,
    /// One processor of each physical core, the lowest.
    pub cores: Vec<usize>,
    /// The other threads of these cores.
    pub siblings: Vec<usize>,
}

/// What shares what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// By number.
    pub processors: Vec<Processor>,
    /// By number.
    pub nodes: Vec<MemoryNode>,
    /// Last-level caches.
    pub caches: Vec<Cache>,
    /// Distances between nodes, in the order of [`nodes`](Self::nodes), 10 for a node's own memory (ACPI SLIT); empty
    /// where they are unknown.
    pub distances: Vec<Vec<u32>>,
    /// By name.
    pub interfaces: Vec<NetworkDevice>,
}

impl Processor {
    /// One of which nothing else is known.
    fn offline(number: usize, core: usize) -> Self {
        Self { number, package: 0, die: None, node: None, cache: None, core, usable: Usable::Offline }
    }
}

impl Topology {
    /// The usable processors by memory domain, in the order of their lowest processors.
    #[must_use]
    pub fn domains(&self) -> Vec<Domain> {
        let mut found: BTreeMap<(Option<usize>, Option<usize>), Domain> = BTreeMap::new();
        let mut seen = std::collections::BTreeSet::new();
        for processor in self.processors.iter().filter(|processor| processor.usable == Usable::Yes) {
            let Processor { node, cache, core, number, .. } = *processor;
            let empty = || Domain { node, cache, cores: Vec::new(), siblings: Vec::new() };
            let domain = found.entry((node, cache)).or_insert_with(empty);
            if seen.insert(core) { domain.cores.push(number) } else { domain.siblings.push(number) }
        }
        let mut domains: Vec<_> = found.into_values().filter(|domain| !domain.cores.is_empty()).collect();
        domains.sort_by_key(|domain| domain.cores[0]);
        domains
    }

    /// The distance between two nodes: from the firmware's table, or 10 within a node and 20 between two (the kernel's
    /// defaults).
    #[must_use]
    pub fn distance(&self, from: Option<usize>, to: Option<usize>) -> u32 {
        let index = |node: Option<usize>| self.nodes.iter().position(|there| Some(there.number) == node);
        let stated = index(from).zip(index(to)).and_then(|(from, to)| self.distances.get(from)?.get(to).copied());
        stated.unwrap_or(if from == to { 10 } else { 20 })
    }

    /// Puts everything in order and checks that there is something. Every source ends here.
    fn settled(mut self) -> Result<Self, TopologyError> {
        bounded(self.processors.len(), self.nodes.len())?;
        self.processors.sort_by_key(|processor| processor.number);
        if let Some(twice) = self.processors.windows(2).find(|pair| pair[0].number == pair[1].number) {
            return Err(TopologyError::Twice(twice[0].number));
        }
        // The distances are in this order.
        debug_assert!(self.nodes.is_sorted_by_key(|node| node.number));
        if let Some(twice) = self.nodes.windows(2).find(|pair| pair[0].number == pair[1].number) {
            return Err(TopologyError::NodeTwice(twice[0].number));
        }
        self.interfaces.sort_by(|a, b| a.name.cmp(&b.name));
        if self.distances.len() != self.nodes.len() || self.distances.iter().any(|row| row.len() != self.nodes.len()) {
            self.distances.clear();
        }
        Ok(self)
    }
}

/// Checks the numbers of processors and memory nodes. A source that does work for each calls it before the work, too.
fn bounded(processors: usize, nodes: usize) -> Result<(), TopologyError> {
    if nodes > MOST_NODES {
        return Err(TopologyError::Nodes(nodes));
    }
    if processors == 0 || processors > MOST_CPUS {
        return Err(TopologyError::Count(processors));
    }
    Ok(())
}
