//! The topology from the kernel's files (Linux `Documentation/admin-guide/cputopology.rst`,
//! `Documentation/ABI/testing/sysfs-devices-system-cpu`).

use crate::Host;
use crate::cpu::{Cpu, FOLDER};
use crate::fact::Fact;
use crate::host::MOST_CPUS;
use crate::list::KernelList;
use crate::memory::{MOST_NODES, NODES};
use crate::position::data_caches;
use crate::tree::{Tree, Unknown, senseless};

use super::{Cache, MemoryNode, NetworkDevice, Processor, Topology, TopologyError, Usable};

/// The highest number of a package or die: the kernel stores a signed number of 32 bits.
const LAST_GROUP: usize = i32::MAX as usize;
/// The largest memory of a node in KiB. Its size in bytes must fit into 64 bits.
const MOST_KIB: u64 = u64::MAX >> 10;

impl Topology {
    /// Returns the topology of `host`, which was read beneath `tree`. Processors outside of the process' CPU set are
    /// marked.
    ///
    /// # Errors
    /// Returns a [`TopologyError`] if the kernel does not list its online processors, or if a list, a number or a row
    /// of distances is invalid. Files other than `online` may be missing. Errors contain the path including the tree's
    /// root.
    pub fn read(tree: &Tree, host: &Host) -> Result<Self, TopologyError> {
        let (of_cpus, of_nodes) = (list_of("CPUs", MOST_CPUS), list_of("memory nodes", MOST_NODES));
        let online = listed(tree, &host.online, MOST_CPUS, &of_cpus)?;
        if online.is_empty() {
            let text = host.online.known.as_ref().map(|known| known.text.as_str()).unwrap_or_default();
            return Err(senseless(&host.online.path, text, &of_cpus).beneath(tree).into());
        }
        let present = if_present(&host.present, listed(tree, &host.present, MOST_CPUS, &of_cpus))?;
        if_present(&host.nodes_online, listed(tree, &host.nodes_online, MOST_NODES, &of_nodes))?;
        let allowed = known(tree, &host.process.cpus, &of_cpus, |_| true)?;
        let mut topology = Self::default();
        let mut caches: Vec<KernelList> = Vec::new();
        let mut cores: Vec<(usize, usize)> = Vec::new();
        for cpu in &host.cpus {
            let cache = last_cache(tree, cpu.number)?.map(|(level, bytes, cpus)| {
                caches.iter().position(|other| *other == cpus).unwrap_or_else(|| {
                    caches.push(cpus);
                    topology.caches.push(Cache { level, bytes });
                    caches.len() - 1
                })
            });
            let is_allowed = allowed.as_ref().is_none_or(|allowed| allowed.contains(cpu.number));
            topology.processors.push(processor(cpu, cache, &mut cores, is_allowed, tree)?);
        }
        for number in present.iter().flat_map(KernelList::iter).filter(|number| !online.contains(*number)) {
            // The kernel does not report the core, caches and node of an offline processor.
            topology.processors.push(Processor::offline(number, cores.len() + number));
        }
        for node in &host.nodes {
            known(tree, &node.cpus, &of_cpus, is_below(MOST_CPUS))?;
            let kib =
                known(tree, &node.memory_kib, &format!("a number of KiB up to {MOST_KIB}"), |kib| *kib <= MOST_KIB)?;
            topology.nodes.push(MemoryNode { number: node.number, bytes: kib.map(|kib| kib << 10) });
            let path = format!("{NODES}/node{}/distance", node.number);
            let allowed = "numbers such as 10 21";
            let row: Fact<Vec<u32>> =
                tree.fact(&path, allowed, |text| text.split_whitespace().map(|word| word.parse().ok()).collect());
            topology.distances.push(known(tree, &row, allowed, |_| true)?.unwrap_or_default());
        }
        for interface in host.interfaces.iter().filter(|interface| interface.has_device) {
            let fits = |node: &Option<usize>| node.is_none_or(|node| node < MOST_NODES);
            let allowed = format!("-1 or a number up to {}", MOST_NODES - 1);
            let node = known(tree, &interface.node, &allowed, fits)?.flatten();
            topology.interfaces.push(NetworkDevice { name: interface.name.clone(), node });
        }
        topology.sorted_and_checked()
    }
}

/// Returns the text that describes the allowed content of a list: `things` with numbers below `most`.
fn list_of(things: &str, most: usize) -> String {
    format!("a list of {things} from 0 to {}, such as 0-3,8", most - 1)
}

/// Returns a function that returns true if all numbers of a list are below `most`.
fn is_below(most: usize) -> impl Fn(&KernelList) -> bool {
    move |list| list.iter().last().is_none_or(|last| last < most)
}

/// Returns a list, whose numbers must be below `most`. It is an error if the list is missing.
fn listed(tree: &Tree, fact: &Fact<KernelList>, most: usize, allowed: &str) -> Result<KernelList, TopologyError> {
    let list = known(tree, fact, allowed, is_below(most))?;
    list.ok_or_else(|| {
        let why = fact.known.as_ref().err().cloned().unwrap_or_else(|| Unknown::Missing(fact.path.clone()));
        TopologyError::List { why: why.beneath(tree), allowed: allowed.to_owned() }
    })
}

/// Returns a list from a file that some kernels and containers do not have, or `None` if the file is missing. If the
/// file exists, it must be readable.
fn if_present(
    fact: &Fact<KernelList>,
    listed: Result<KernelList, TopologyError>,
) -> Result<Option<KernelList>, TopologyError> {
    match fact.known {
        Err(Unknown::Missing(_)) => Ok(None),
        _ => listed.map(Some),
    }
}

/// Returns the value of a file, or `None` if it cannot be read. It is an error if the text is invalid, or if `fits`
/// returns `false` for the value.
fn known<T: Clone>(
    tree: &Tree,
    fact: &Fact<T>,
    allowed: &str,
    fits: impl FnOnce(&T) -> bool,
) -> Result<Option<T>, TopologyError> {
    let text = match &fact.known {
        Ok(known) if fits(&known.value) => return Ok(Some(known.value.clone())),
        Ok(known) => &known.text,
        Err(Unknown::Senseless { text, .. }) => text,
        Err(_) => return Ok(None),
    };
    Err(senseless(&fact.path, text, allowed).beneath(tree).into())
}

/// Returns an online processor. `cores` has the physical cores found so far, each as its package and its lowest thread.
/// If the processor's core is new, it is added to `cores`.
fn processor(
    cpu: &Cpu,
    cache: Option<usize>,
    cores: &mut Vec<(usize, usize)>,
    is_allowed: bool,
    tree: &Tree,
) -> Result<Processor, TopologyError> {
    let package = group(tree, cpu, "physical_package_id")?.unwrap_or(0);
    let die = group(tree, cpu, "die_id")?;
    // The kernel's number of a core is unique only in its package or die. Therefore, the core is identified by its
    // package and its lowest thread, which is unique in the machine.
    let threads = known(tree, &cpu.threads, &list_of("CPUs", MOST_CPUS), is_below(MOST_CPUS))?;
    let first = threads.and_then(|threads| threads.iter().next()).unwrap_or(cpu.number);
    let core = cores.iter().position(|other| *other == (package, first)).unwrap_or_else(|| {
        cores.push((package, first));
        cores.len() - 1
    });
    let usable = if is_allowed { Usable::Yes } else { Usable::NotAllowed };
    Ok(Processor { number: cpu.number, package, die, node: cpu.node, cache, core, usable })
}

/// Returns the package or die of a processor from this file. Returns `None` if the file is missing or contains -1,
/// which means unknown.
fn group(tree: &Tree, cpu: &Cpu, file: &str) -> Result<Option<usize>, TopologyError> {
    let allowed = format!("-1 or a number up to {LAST_GROUP}");
    let number = |text: &str| if text == "-1" { Some(None) } else { text.parse().ok().map(Some) };
    let fact: Fact<Option<usize>> = tree.fact(&format!("{FOLDER}/cpu{}/topology/{file}", cpu.number), &allowed, number);
    let fits = |number: &Option<usize>| number.is_none_or(|number| number <= LAST_GROUP);
    Ok(known(tree, &fact, &allowed, fits)?.flatten())
}

/// Returns the data cache of the highest level: its level, its size in bytes, and the processors that share it. Returns
/// `None` if no cache is reported.
fn last_cache(tree: &Tree, cpu: usize) -> Result<Option<(u8, Option<u64>, KernelList)>, TopologyError> {
    let mut last: Option<(u8, Option<u64>, KernelList)> = None;
    for cache in data_caches(tree, cpu) {
        let cpus = known(tree, &cache.cpus(tree), &list_of("CPUs", MOST_CPUS), is_below(MOST_CPUS))?;
        let bytes = known(tree, &cache.size(tree), "a size in bytes such as 32K", |_| true)?;
        let is_last = last.as_ref().is_none_or(|(level, ..)| cache.level >= *level);
        if let Some(cpus) = cpus.filter(|_| is_last) {
            last = Some((cache.level, bytes, cpus));
        }
    }
    Ok(last)
}
