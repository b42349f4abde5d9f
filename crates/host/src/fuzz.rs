//! Fuzz targets: they parse any bytes as each of the kernel's files. Tests replay the corpora of the targets.

use crate::{KernelList, Topology, arp, cgroup, interrupts, kernel, memory, process, stat};

/// Parses bytes as each type of file. Every result is allowed, but a panic or a long computation is a fault. A parsed
/// list must be the same after it is written and parsed again.
pub fn fuzz_files(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for line in text.lines() {
        if let Ok(list) = line.parse::<KernelList>() {
            assert_eq!(list.to_string().parse(), Ok(list.clone()), "a written list parses to the same list");
            assert_eq!(list.iter().take(5_000).count(), list.len().min(5_000));
        }
        let _ = (stat::line(line), cgroup::share(line), memory::chosen(line));
    }
    if let Some(counted) = interrupts::parse(text) {
        assert!(counted.iter().all(|interrupt| interrupt.counts.iter().all(|(_, count)| *count > 0)));
    }
    for name in ["MemTotal", "HugePages_Free", "Node 0 MemTotal"] {
        let _ = memory::number(text, name);
    }
    let _ = arp::addresses(text);
    let _ = (process::line(text, "CapEff"), kernel::flags(text), cgroup::field(text, "nr_throttled"));
    let (own, mounts) = text.split_once("\n\n").unwrap_or((text, text));
    let _ = (cgroup::unified(own, mounts), cgroup::controlled(own, mounts, "cpu"));
}

/// Parses bytes as a description by hwloc, and as a short description. If the bytes are accepted, the topology must
/// have processors, and their caches must exist. Its domains must have cores, and together at most as many threads as
/// there are processors. No bytes may cause a panic.
pub fn fuzz_topology(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let read = [Topology::hwloc(text), Topology::synthetic(text.trim_end())];
    for topology in read.into_iter().filter_map(Result::ok) {
        assert!(!topology.processors.is_empty());
        let caches = topology.caches.len();
        assert!(topology.processors.iter().all(|processor| processor.cache.is_none_or(|cache| cache < caches)));
        let nodes = topology.nodes.len();
        assert!(topology.distances.is_empty() || topology.distances.len() == nodes);
        assert!(topology.distances.iter().all(|row| row.len() == nodes));
        let domains = topology.domains();
        let assigned: usize = domains.iter().map(|domain| domain.cores.len() + domain.siblings.len()).sum();
        assert!(assigned <= topology.processors.len() && domains.iter().all(|domain| !domain.cores.is_empty()));
    }
}
