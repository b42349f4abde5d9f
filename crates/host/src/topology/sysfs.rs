//! The machine as the kernel's files describe it (Linux `Documentation/admin-guide/cputopology.rst`,
//! `Documentation/ABI/testing/sysfs-devices-system-cpu`).

use crate::cpu::{Cpu, FOLDER};
use crate::list::KernelList;
use crate::memory::NODES;
use crate::position::data_caches;
use crate::tree::Tree;
use crate::{Host, Unknown};

use super::{Cache, MOST_CPUS, MemoryNode, NetworkDevice, Processor, Topology, TopologyError, Usable};

impl Topology {
    /// What `host`, read beneath `tree`, shares with what. Processors outside of the process' CPU set are marked.
    ///
    /// # Errors
    /// [`TopologyError`]: the kernel does not say which processors there are.
    pub fn read(tree: &Tree, host: &Host) -> Result<Self, TopologyError> {
        let allowed = host.process.cpus.value();
        let mut topology = Self::default();
        let mut caches: Vec<KernelList> = Vec::new();
        let mut cores: Vec<(usize, usize)> = Vec::new();
        for cpu in host.cpus.iter().take(MOST_CPUS) {
            let cache = last_cache(tree, cpu.number).map(|(level, bytes, cpus)| {
                caches.iter().position(|there| *there == cpus).unwrap_or_else(|| {
                    caches.push(cpus);
                    topology.caches.push(Cache { level, bytes });
                    caches.len() - 1
                })
            });
            let is_allowed = allowed.is_none_or(|allowed| allowed.contains(cpu.number));
            topology.processors.push(processor(cpu, cache, &mut cores, is_allowed, tree));
        }
        let present = host.present.value().into_iter().flat_map(KernelList::iter).take(MOST_CPUS);
        for number in present.filter(|number| host.cpu(*number).is_none()) {
            // The kernel does not say what a processor that is switched off shares.
            topology.processors.push(Processor::offline(number, cores.len() + number));
        }
        for node in &host.nodes {
            let bytes = node.memory_kib.value().map(|kib| kib << 10);
            topology.nodes.push(MemoryNode { number: node.number, bytes });
            let row = tree.value(&format!("{NODES}/node{}/distance", node.number)).unwrap_or_default();
            topology.distances.push(row.split_whitespace().filter_map(|word| word.parse().ok()).collect());
        }
        for interface in host.interfaces.iter().filter(|interface| interface.has_device) {
            let node = interface.node.value().copied().flatten();
            topology.interfaces.push(NetworkDevice { name: interface.name.clone(), node });
        }
        if topology.processors.is_empty() {
            return Err(Unknown::Missing(format!("{FOLDER}/online")).into());
        }
        topology.settled()
    }
}

fn processor(
    cpu: &Cpu,
    cache: Option<usize>,
    cores: &mut Vec<(usize, usize)>,
    is_allowed: bool,
    tree: &Tree,
) -> Processor {
    let package = cpu.package.value().copied().unwrap_or(0);
    let die = tree.value(&format!("{FOLDER}/cpu{}/topology/die_id", cpu.number)).ok().and_then(|die| die.parse().ok());
    // A core's number is its package's own; on machines with dies, its die's. Its lowest thread is the machine's.
    let first = cpu.threads.value().and_then(|threads| threads.iter().next()).unwrap_or(cpu.number);
    let core = cores.iter().position(|there| *there == (package, first)).unwrap_or_else(|| {
        cores.push((package, first));
        cores.len() - 1
    });
    let usable = if is_allowed { Usable::Yes } else { Usable::NotAllowed };
    Processor { number: cpu.number, package, die, node: cpu.node, cache, core, usable }
}

/// The cache for data of the highest level: its level, its size, and who shares it.
fn last_cache(tree: &Tree, cpu: usize) -> Option<(u8, Option<u64>, KernelList)> {
    let found = data_caches(tree, cpu).into_iter().filter_map(|cache| {
        let cpus: KernelList = cache.value(tree, "shared_cpu_list")?.parse().ok()?;
        Some((cache.level, cache.bytes, cpus))
    });
    found.max_by_key(|(level, ..)| *level)
}
