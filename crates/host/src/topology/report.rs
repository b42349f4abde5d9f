//! A topology as JSON, with its schema.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;

use super::{Topology, Usable};

/// The source of a topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceType {
    /// The kernel's files.
    Host,
    /// A file that hwloc wrote.
    Hwloc,
    /// A description such as `2x12`.
    Synthetic,
}

/// The topology of a machine.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "Forebay topology")]
pub struct TopologyReport {
    /// Format version. It changes when a field is removed or changes its meaning. Fields may be added without a new
    /// version.
    version: u32,
    /// The source of the topology.
    source: SourceReport,
    /// Hardware threads, by number.
    processors: Vec<ProcessorReport>,
    /// NUMA nodes, by number. A node without processors has only memory.
    nodes: Vec<NodeReport>,
    /// Last-level caches. Processors and domains refer to them by index, from 0.
    caches: Vec<CacheReport>,
    /// Distances between nodes in the order of `nodes`, one row per node; 10 is a node's own memory (ACPI SLIT, no
    /// unit). Empty if unknown.
    distances: Vec<Vec<u32>>,
    /// Network interfaces with a hardware device, by name.
    interfaces: Vec<InterfaceReport>,
    /// Usable processors that share a last-level cache and a node.
    domains: Vec<DomainReport>,
}

/// The source of a topology.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct SourceReport {
    /// `host`: the kernel's files; `hwloc`: a file; `synthetic`: a description such as `2x12`.
    r#type: SourceName,
    /// The command's argument.
    name: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum SourceName {
    Host,
    Hwloc,
    Synthetic,
}

/// A hardware thread.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct ProcessorReport {
    /// The kernel's number.
    number: usize,
    /// The number of its package (socket); 0 for an offline processor of an unknown package.
    package: usize,
    /// The number of its die in the package; null if the source has none.
    die: Option<usize>,
    /// The number of its NUMA node; null if unknown.
    node: Option<usize>,
    /// The index of its last-level cache in `caches`; null if unknown.
    cache: Option<usize>,
    /// Its physical core, numbered over the machine.
    core: usize,
    /// Whether it can run a worker: `yes`; `not_allowed`: not in the process' CPU set; `off`: offline.
    usable: UsableName,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum UsableName {
    Yes,
    NotAllowed,
    Off,
}

/// A NUMA node.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct NodeReport {
    /// The kernel's number.
    number: usize,
    /// Its memory in bytes; null if unknown.
    bytes: Option<u64>,
}

/// A last-level cache.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct CacheReport {
    /// Its level: 3 on most machines.
    level: u8,
    /// Its size in bytes; null if unknown.
    bytes: Option<u64>,
}

/// A network interface.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct InterfaceReport {
    /// Its name.
    name: String,
    /// The number of its NUMA node; null if the source has none (the kernel's -1).
    node: Option<usize>,
}

/// Usable processors that share a last-level cache and a node.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
struct DomainReport {
    /// The number of the node; null if unknown.
    node: Option<usize>,
    /// The index of the cache in `caches`; null if unknown.
    cache: Option<usize>,
    /// For each physical core, the number of its lowest usable processor.
    cores: Vec<usize>,
    /// The numbers of the other threads of these cores.
    siblings: Vec<usize>,
}

impl TopologyReport {
    /// Reports a topology. `name` is the text that named its source: `host`, a file or a description.
    #[must_use]
    pub fn of(topology: &Topology, source: SourceType, name: &str) -> Self {
        let r#type = match source {
            SourceType::Host => SourceName::Host,
            SourceType::Hwloc => SourceName::Hwloc,
            SourceType::Synthetic => SourceName::Synthetic,
        };
        let usable = |usable: Usable| match usable {
            Usable::Yes => UsableName::Yes,
            Usable::NotAllowed => UsableName::NotAllowed,
            Usable::Offline => UsableName::Off,
        };
        let processors = topology.processors.iter().map(|it| ProcessorReport {
            number: it.number,
            package: it.package,
            die: it.die,
            node: it.node,
            cache: it.cache,
            core: it.core,
            usable: usable(it.usable),
        });
        let nodes = topology.nodes.iter().map(|it| NodeReport { number: it.number, bytes: it.bytes });
        let caches = topology.caches.iter().map(|it| CacheReport { level: it.level, bytes: it.bytes });
        let interfaces = topology.interfaces.iter();
        let interfaces = interfaces.map(|it| InterfaceReport { name: it.name.clone(), node: it.node });
        let domains = topology.domains().into_iter().map(|it| DomainReport {
            node: it.node,
            cache: it.cache,
            cores: it.cores,
            siblings: it.siblings,
        });
        Self {
            version: 1,
            source: SourceReport { r#type, name: name.to_owned() },
            processors: processors.collect(),
            nodes: nodes.collect(),
            caches: caches.collect(),
            distances: topology.distances.clone(),
            interfaces: interfaces.collect(),
            domains: domains.collect(),
        }
    }
}

/// Returns the JSON Schema of a [`TopologyReport`].
#[must_use]
pub fn schema() -> serde_json::Value {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    generator.into_root_schema_for::<TopologyReport>().to_value()
}
