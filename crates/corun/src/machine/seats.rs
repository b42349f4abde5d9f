//! The cores of co-runs, and the sizes of their caches.

use forebay_host::position::data_cache;
use forebay_host::{Host, Topology, TopologyError, Tree};

use crate::record::Seats;

/// More competitors than there are sets of.
const MOST: usize = 15;
/// The sizes of caches that are assumed where the system does not say, in bytes.
const OWN: u64 = 1 << 20;
const SHARED: u64 = 32 << 20;

/// Why there are no co-runs.
#[derive(Debug, thiserror::Error)]
pub enum SeatsError {
    /// The machine is not known.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A function and a competitor need a core each.
    #[error(
        "co-runs need two cores that share a last-level cache: this process may use {0}, no two of which do (`forebay \
         topology` shows them)"
    )]
    One(String),
}

/// The cores of this machine that co-runs use: those of the largest memory domain, one thread of each physical core.
/// Where a domain has one core, its other threads compete.
///
/// # Errors
/// [`SeatsError`].
pub fn seats(tree: &Tree) -> Result<Seats, SeatsError> {
    of_topology(&Topology::read(tree, &Host::read(tree))?)
}

fn of_topology(topology: &Topology) -> Result<Seats, SeatsError> {
    let domains = topology.domains();
    let seats = |mut cores: Vec<usize>, siblings: bool| {
        // The first core is where a system does its own work: the function is not on it.
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
    /// The largest that is its own.
    pub own: u64,
    /// The last-level cache.
    pub shared: u64,
    /// Whether the system does not say, and these are assumed.
    pub are_assumed: bool,
}

/// The sizes of a core's caches.
#[must_use]
pub fn caches(tree: &Tree, core: usize) -> Caches {
    let [second, third] = [2, 3].map(|level| data_cache(tree, core, level));
    match (second, third) {
        (Some(own), Some(shared)) => Caches { own, shared, are_assumed: false },
        // Without a third one the second is shared.
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
