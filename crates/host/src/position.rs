//! The node, physical core and caches of a core. These facts are sufficient to choose the core of a thread, so they can
//! be read without the rest of the machine.

use crate::cpu::{Cpu, FOLDER};
use crate::fact::Fact;
use crate::list::KernelList;
use crate::tree::Tree;

/// The largest number of caches that are read per core. Processors have fewer.
const MOST_CACHES: usize = 16;

/// A core's position in the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Core {
    /// The core's number: that of the hardware thread.
    pub number: usize,
    /// The core's NUMA node. `None` if the system does not report it.
    pub node: Option<usize>,
    /// The physical core: the lowest number of its hardware threads, which is unique in the machine. The kernel's
    /// number of a core is not used, because it is unique only in its package or die. If the system does not report
    /// the threads, this is `number`.
    pub physical: usize,
}

impl Core {
    /// Reads the position of core `number`.
    #[must_use]
    pub fn read(tree: &Tree, number: usize) -> Self {
        let folder = format!("{FOLDER}/cpu{number}");
        let threads = tree.value(&format!("{folder}/topology/thread_siblings_list")).ok();
        let threads = threads.and_then(|list| list.parse::<KernelList>().ok());
        // This folder contains a link `nodeN` to the folder of the core's node.
        let node = tree.names(&folder).iter().find_map(|name| name.strip_prefix("node")?.parse().ok());
        Self { number, node, physical: physical(threads.as_ref(), number) }
    }
}

impl From<&Cpu> for Core {
    fn from(cpu: &Cpu) -> Self {
        Self { number: cpu.number, node: cpu.node, physical: physical(cpu.threads.value(), cpu.number) }
    }
}

/// Returns the [physical core](Core::physical) of core `number`. `threads` are its hardware threads, or `None` if the
/// system does not report them.
fn physical(threads: Option<&KernelList>, number: usize) -> usize {
    threads.and_then(|threads| threads.iter().next()).unwrap_or(number)
}

/// Returns the positions of these cores of this machine.
#[must_use]
pub fn cores_here(numbers: &[usize]) -> Vec<Core> {
    let tree = Tree::default();
    numbers.iter().map(|number| Core::read(&tree, *number)).collect()
}

/// Returns the size of a core's data cache of this level in bytes. Returns `None` if the core has no such cache, or the
/// system does not report its size.
#[must_use]
pub fn data_cache(tree: &Tree, core: usize, level: u8) -> Option<u64> {
    let caches = data_caches(tree, core).into_iter().filter(|cache| cache.level == level);
    caches.filter_map(|cache| cache.bytes).max()
}

/// A data cache, as described in a processor's folder.
pub(crate) struct DataCache {
    /// The level: 1 for the cache that is nearest to the core.
    pub(crate) level: u8,
    /// The size in bytes. `None` if it is missing or invalid.
    pub(crate) bytes: Option<u64>,
    /// The kernel's folder of the cache.
    folder: String,
}

impl DataCache {
    /// Returns the processors that share the cache.
    pub(crate) fn cpus(&self, tree: &Tree) -> Fact<KernelList> {
        tree.fact(&format!("{}/shared_cpu_list", self.folder), "a list of CPUs", |text| text.parse().ok())
    }

    /// Returns the size of the cache in bytes, with its evidence.
    pub(crate) fn size(&self, tree: &Tree) -> Fact<u64> {
        tree.fact(&format!("{}/size", self.folder), "a size such as 32K", bytes)
    }
}

/// Returns the caches of a core that contain data, including caches for data and instructions.
pub(crate) fn data_caches(tree: &Tree, core: usize) -> Vec<DataCache> {
    let folders = (0..MOST_CACHES).map(|at| format!("{FOLDER}/cpu{core}/cache/index{at}"));
    let found = folders.take_while(|folder| tree.has(folder)).filter_map(|folder| {
        let value = |file: &str| tree.value(&format!("{folder}/{file}")).ok();
        let level = value("level")?.parse().ok()?;
        let is_of_data = value("type")? != "Instruction";
        let bytes = value("size").and_then(|size| bytes(&size));
        is_of_data.then_some(DataCache { level, bytes, folder })
    });
    found.collect()
}

/// Parses a size such as `32K`, as the kernel writes it.
fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = match text.strip_suffix('K') {
        Some(number) => (number, 1 << 10),
        None => text.strip_suffix('M').map_or((text, 1), |number| (number, 1 << 20)),
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed() {
        assert_eq!(
            ["32K", "1M", "512", "x", "K", "", "18446744073709551615K"].map(bytes),
            [Some(32 << 10), Some(1 << 20), Some(512), None, None, None, None]
        );
    }

    #[test]
    fn a_core_is_read_from_its_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let cpu = folder.path().join("sys/devices/system/cpu/cpu3");
        let set = |file: &str, text: &str| {
            let file = cpu.join(file);
            std::fs::create_dir_all(file.parent().expect("it has one")).expect("a folder");
            std::fs::write(file, text).expect("a file");
        };
        set("topology/thread_siblings_list", "1,3\n");
        let caches = [("0", "1", "Data", "48K"), ("1", "1", "Instruction", "64K"), ("2", "2", "Unified", "2M")];
        for (at, level, kind, size) in caches {
            set(&format!("cache/index{at}/level"), level);
            set(&format!("cache/index{at}/type"), kind);
            set(&format!("cache/index{at}/size"), size);
        }
        let tree = Tree::at(folder.path());
        assert_eq!(Core::read(&tree, 3), Core { number: 3, node: None, physical: 1 });
        std::fs::create_dir(cpu.join("node2")).expect("a folder");
        assert_eq!(Core::read(&tree, 3).node, Some(2));
        assert_eq!([1, 2, 3].map(|level| data_cache(&tree, 3, level)), [Some(48 << 10), Some(2 << 20), None]);
        // A core without facts is taken as a separate physical core.
        assert_eq!(Core::read(&tree, 9), Core { number: 9, node: None, physical: 9 });
        // The facts about a CPU give the same position.
        for (number, node) in [(3, Some(2)), (9, None)] {
            assert_eq!(Core::from(&Cpu::read(&tree, number, node)), Core::read(&tree, number));
        }
    }

    /// Regression: the kernel numbers the cores of each die from 0. Cores of two dies in one package were taken for
    /// threads of one core.
    #[test]
    fn cores_of_two_dies_are_not_threads_of_one_core() {
        let folder = tempfile::tempdir().expect("a folder");
        for (number, die, threads) in [(0, "0", "0,2"), (1, "1", "1,3"), (2, "0", "0,2"), (3, "1", "1,3")] {
            let topology = folder.path().join(format!("sys/devices/system/cpu/cpu{number}/topology"));
            std::fs::create_dir_all(&topology).expect("a folder");
            let files =
                [("physical_package_id", "0"), ("die_id", die), ("core_id", "0"), ("thread_siblings_list", threads)];
            files.iter().for_each(|(file, text)| std::fs::write(topology.join(file), text).expect("a file"));
        }
        let tree = Tree::at(folder.path());
        assert_eq!([0, 1, 2, 3].map(|number| Core::read(&tree, number).physical), [0, 1, 0, 1]);
    }
}
