//! Selects the cores of co-runs and reads the sizes of their caches.

use forebay_host::position::data_cache;
use forebay_host::{Host, Topology, TopologyError, Tree};

use crate::record::Seats;

/// The maximum number of competitors.
const MOST: usize = 15;
/// The assumed size of the largest cache that belongs to one core, in bytes, if the system does not report cache sizes.
const OWN: u64 = 1 << 20;
/// The assumed size of the last-level cache, in bytes, if the system does not report cache sizes.
const SHARED: u64 = 32 << 20;

/// The reason why co-runs are not possible.
#[derive(Debug, thiserror::Error)]
pub enum SeatsError {
    /// The topology of the machine is unknown.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// There are not two cores that share a last-level cache.
    #[error(
        "co-runs need two cores that share a last-level cache: this process may use no such cores ({0}; `forebay \
         topology` shows the cores)"
    )]
    One(String),
}

/// Returns the cores for co-runs: the cores of the largest memory domain, with one thread of each physical core. If
/// every domain has only one physical core, the competitors run on the other threads of the function's core.
///
/// # Errors
/// Returns [`SeatsError`] if the topology is unknown, or if no two cores or threads share a last-level cache.
pub fn seats(tree: &Tree) -> Result<Seats, SeatsError> {
    of_topology(&Topology::read(tree, &Host::read(tree))?)
}

fn of_topology(topology: &Topology) -> Result<Seats, SeatsError> {
    let domains = topology.domains();
    let seats = |mut cores: Vec<usize>, siblings: bool| {
        // The system does its own work on the first core, so the function uses the last core.
        let subject = cores.pop()?;
        cores.truncate(MOST);
        (!cores.is_empty()).then_some(Seats { subject, competitors: cores, siblings })
    };
    let largest = domains.iter().rev().max_by_key(|domain| domain.cores.len());
    let cores = largest.and_then(|domain| seats(domain.cores.clone(), false));
    let threads = || {
        let both = |domain: &forebay_host::topology::Domain| [&domain.cores[..1], &domain.siblings[..]].concat();
        domains.iter().find_map(|domain| seats(both(domain), true))
    };
    let all: Vec<_> = domains.iter().flat_map(|domain| &domain.cores).map(ToString::to_string).collect();
    cores.or_else(threads).ok_or_else(|| SeatsError::One(format!("core {}", all.join(", "))))
}

/// The sizes of a core's caches, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches {
    /// The largest cache that belongs to one core.
    pub own: u64,
    /// The last-level cache.
    pub shared: u64,
    /// True if the sizes are assumed, because the system does not report them.
    pub are_assumed: bool,
}

/// Reads the sizes of a core's caches.
#[must_use]
pub fn caches(tree: &Tree, core: usize) -> Caches {
    let [second, third] = [2, 3].map(|level| data_cache(tree, core, level));
    match (second, third) {
        (Some(own), Some(shared)) => Caches { own, shared, are_assumed: false },
        // Without a third level the second level is the shared cache.
        (Some(shared), None) if data_cache(tree, core, 1).is_some() => {
            let own = data_cache(tree, core, 1).unwrap_or(OWN);
            Caches { own, shared, are_assumed: false }
        }
        _ => Caches { own: OWN, shared: SHARED, are_assumed: true },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Seats, String> {
        let topology = Topology::synthetic(text).expect("a description");
        of_topology(&topology).map_err(|error| error.to_string())
    }

    #[test]
    fn competitors_share_the_functions_cache() {
        let seats = |subject, competitors: &[usize], siblings| {
            Ok(Seats { subject, competitors: competitors.to_vec(), siblings })
        };
        assert_eq!(of("1x2"), seats(1, &[0], false));
        assert_eq!(of("2x4:llc=2"), seats(1, &[0], false));
        assert_eq!(of("2x3"), seats(2, &[0, 1], false));
        assert_eq!(of("1x40").map(|seats| seats.competitors.len()), Ok(MOST));
        assert!(of("1x1:smt=2").is_ok_and(|seats| seats.siblings && seats.competitors.len() == 1));
        assert!(of("2x1").is_err_and(|error| error.contains("core 0, 1")), "{:?}", of("2x1"));
    }

    #[test]
    fn caches_are_read_or_assumed() {
        let folder = tempfile::tempdir().expect("a folder");
        let tree = Tree::at(folder.path());
        assert!(caches(&tree, 0).are_assumed);
        for (at, level, size) in [(0, "1", "32K"), (1, "2", "2048K")] {
            let cache = folder.path().join(format!("sys/devices/system/cpu/cpu0/cache/index{at}"));
            std::fs::create_dir_all(&cache).expect("a folder");
            for (file, text) in [("level", level), ("type", "Unified"), ("size", size)] {
                std::fs::write(cache.join(file), text).expect("a file");
            }
        }
        assert_eq!(caches(&tree, 0), Caches { own: 32 << 10, shared: 2 << 20, are_assumed: false });
    }
}
