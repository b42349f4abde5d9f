//! The machine's topology: packages, memory domains, last-level caches, physical cores, and the nodes of network
//! interfaces.
//!
//! There are three sources: the kernel's files beneath a [`Tree`](crate::tree::Tree), a description written by hwloc,
//! and a short text such as `2x12`. Each of them gives a [`Topology`]. A processor that is offline, or that the process
//! may not use, is included and marked. The [domains](Topology::domains) contain only usable processors.

mod hwloc;
mod report;
mod synthetic;
mod sysfs;

use std::collections::BTreeMap;

use crate::host::MOST_CPUS;
use crate::memory::MOST_NODES;
use crate::tree::Unknown;

pub use report::{SourceType, TopologyReport, schema};

/// An error in the description of a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// A file of the kernel is invalid.
    #[error(transparent)]
    Unknown(#[from] Unknown),
    /// A list of the kernel is missing or cannot be read.
    #[error("{why}: allowed is {allowed}")]
    List {
        /// The reason why it is unknown.
        why: Unknown,
        /// The allowed content.
        allowed: String,
    },
    /// The text is not XML.
    #[error("{line}: not XML ({what}): allowed is a file that lstopo wrote: run `lstopo FILE.xml`")]
    NotXml {
        /// The line number.
        line: u32,
        /// The parser's error.
        what: String,
    },
    /// The XML is not from hwloc, or lacks a part.
    #[error("{line}: {what}: {allowed}")]
    Hwloc {
        /// The line number.
        line: u32,
        /// The fault.
        what: String,
        /// The allowed content.
        allowed: String,
    },
    /// The text does not describe a machine.
    #[error("{part}: allowed is {allowed}")]
    Synthetic {
        /// The invalid part.
        part: String,
        /// The allowed text in its place.
        allowed: String,
    },
    /// There are no processors, or too many.
    #[error("{0} processors: allowed are 1 to {MOST_CPUS}")]
    Count(usize),
    /// Two processors have the same number.
    #[error("processor {0} is listed twice: each number is allowed once")]
    Twice(usize),
    /// There are too many memory nodes.
    #[error("{0} memory nodes: allowed are up to {MOST_NODES}")]
    Nodes(usize),
    /// Two memory nodes have the same number.
    #[error("memory node {0} is listed twice: each number is allowed once")]
    NodeTwice(usize),
}

/// The state of a processor: usable for a worker, or the reason why it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Usable {
    /// The processor can run a worker.
    Yes,
    /// The process' CPU set does not contain the processor.
    NotAllowed,
    /// The processor is offline.
    Offline,
}

/// A hardware thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processor {
    /// The kernel's number.
    pub number: usize,
    /// The processor's package (socket).
    pub package: usize,
    /// The processor's die. `None` if the system does not report it.
    pub die: Option<usize>,
    /// The processor's NUMA node. `None` if the system does not report it.
    pub node: Option<usize>,
    /// The processor's last-level cache, as an index of [`Topology::caches`]. `None` if the system does not report it.
    pub cache: Option<usize>,
    /// The processor's physical core. Cores are numbered over the whole machine.
    pub core: usize,
    /// The state of the processor.
    pub usable: Usable,
}

/// A NUMA node. A node without processors has only memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryNode {
    /// The kernel's number.
    pub number: usize,
    /// The node's memory in bytes. `None` if it is unknown.
    pub bytes: Option<u64>,
}

/// A last-level cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// The level of the cache: 3 on most machines.
    pub level: u8,
    /// The size of the cache in bytes. `None` if it is unknown.
    pub bytes: Option<u64>,
}

/// A network interface that has a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkDevice {
    /// The name of the interface.
    pub name: String,
    /// The NUMA node of the device. `None` if the firmware reports no node (−1).
    pub node: Option<usize>,
}

/// A memory domain: the usable processors that share a last-level cache and a NUMA node. It has at least one core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// The NUMA node. `None` if the system does not report it.
    pub node: Option<usize>,
    /// The last-level cache, as an index of [`Topology::caches`]. `None` if the system does not report it.
    pub cache: Option<usize>,
    /// The lowest processor number of each physical core, in ascending order.
    pub cores: Vec<usize>,
    /// The numbers of the other processors (hardware threads) of these cores.
    pub siblings: Vec<usize>,
}

/// The topology of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// The processors, in ascending order.
    pub processors: Vec<Processor>,
    /// The memory nodes, in ascending order.
    pub nodes: Vec<MemoryNode>,
    /// The last-level caches.
    pub caches: Vec<Cache>,
    /// The distances between nodes: a row for each node, in the order of [`nodes`](Self::nodes). A node's distance to
    /// its own memory is 10 (ACPI SLIT). Empty if the distances are unknown.
    pub distances: Vec<Vec<u32>>,
    /// The network interfaces with a device, in the order of their names.
    pub interfaces: Vec<NetworkDevice>,
}

impl Processor {
    /// Creates an offline processor. The other facts are unknown, so the processor gets a physical core of its own.
    fn offline(number: usize, core: usize) -> Self {
        Self { number, package: 0, die: None, node: None, cache: None, core, usable: Usable::Offline }
    }
}

impl Topology {
    /// Returns the memory domains, in the order of their lowest processors.
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

    /// Returns the distance between two nodes from the firmware's table. Without a table, the distance is 10 within a
    /// node, and 20 between two nodes (the kernel's defaults).
    #[must_use]
    pub fn distance(&self, from: Option<usize>, to: Option<usize>) -> u32 {
        let index = |node: Option<usize>| self.nodes.iter().position(|other| Some(other.number) == node);
        let stated = index(from).zip(index(to)).and_then(|(from, to)| self.distances.get(from)?.get(to).copied());
        stated.unwrap_or(if from == to { 10 } else { 20 })
    }

    /// Sorts processors and interfaces, and checks that the numbers of processors and nodes are allowed and unique.
    /// Every source calls this last. The nodes must already be sorted, with the distances in their order. Distances
    /// that do not match the nodes are removed.
    fn sorted_and_checked(mut self) -> Result<Self, TopologyError> {
        check_counts(self.processors.len(), self.nodes.len())?;
        self.processors.sort_by_key(|processor| processor.number);
        if let Some(twice) = self.processors.windows(2).find(|pair| pair[0].number == pair[1].number) {
            return Err(TopologyError::Twice(twice[0].number));
        }
        // The nodes are not sorted here, because the rows of distances are in the order of the nodes.
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

/// Checks the numbers of processors and memory nodes. If the work of a source grows with these numbers, the source also
/// calls this before that work.
fn check_counts(processors: usize, nodes: usize) -> Result<(), TopologyError> {
    if nodes > MOST_NODES {
        return Err(TopologyError::Nodes(nodes));
    }
    if processors == 0 || processors > MOST_CPUS {
        return Err(TopologyError::Count(processors));
    }
    Ok(())
}
