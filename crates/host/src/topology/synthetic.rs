//! Machines described by a short text: `2x12`, `4x10:llc=5:smt=2:nic=0`.

use super::{Cache, MemoryNode, NetworkDevice, Processor, Topology, TopologyError, Usable};
use crate::host::MOST_CPUS;
use crate::memory::MOST_NODES;
use crate::tree::shown;

/// The format of a description and its options.
const FORMS: &str = "NODESxCORES, optionally followed by :llc=CORES (a divisor of a node's cores), :smt=THREADS, \
                     :nic=NODE (from 0), such as 4x10:llc=5";

impl Topology {
    /// Parses a machine of `NODESxCORES`: the number of NUMA nodes, and the number of cores per node. Each node is a
    /// package. Options follow. `:llc=CORES` is the number of cores that share a last-level cache (default: all cores
    /// of the node). `:smt=THREADS` is the number of threads per core (default: 1). `:nic=NODE` is the node of a
    /// network interface (default: 0), and may be given several times.
    ///
    /// # Errors
    /// Returns [`TopologyError::Synthetic`] with the invalid part, or [`TopologyError`] for a machine that is too
    /// large.
    pub fn synthetic(text: &str) -> Result<Self, TopologyError> {
        let mut parts = text.split(':');
        let size = parts.next().unwrap_or_default();
        let (domains, cores) = size.split_once('x').ok_or_else(|| wrong(size, FORMS))?;
        if !is_digits(domains) || !is_digits(cores) {
            return Err(wrong(size, FORMS));
        }
        let of_size = |unit: &str| wrong(size, &format!("NODESxCORES with {unit}"));
        let domains = number(domains, 1).ok_or_else(|| of_size(&format!("1 to {MOST_NODES} memory nodes")))?;
        let cores = number(cores, 1).ok_or_else(|| of_size(&format!("1 to {MOST_CPUS} cores")))?;
        // The number of nodes is checked first, because the options are checked against it.
        super::check_counts(1, domains)?;
        let (mut shared, mut threads, mut device_nodes) = (None, None, Vec::new());
        for part in parts {
            match part.split_once('=').ok_or_else(|| wrong(part, FORMS))? {
                ("llc", value) => {
                    let value = number(value, 1).filter(|shared| cores % shared == 0);
                    let value = value
                        .ok_or_else(|| wrong(part, &format!("a divisor of the node's number of cores, {cores}")))?;
                    once(&mut shared, value, part)?;
                }
                ("smt", value) => {
                    let value = number(value, 1).filter(|threads| *threads <= MOST_CPUS);
                    let value = value.ok_or_else(|| wrong(part, &format!("1 to {MOST_CPUS} threads")))?;
                    once(&mut threads, value, part)?;
                }
                ("nic", value) => {
                    let device_node = number(value, 0).filter(|device_node| *device_node < domains);
                    let last = domains - 1;
                    let allowed = if last == 0 { "node 0".to_owned() } else { format!("a node from 0 to {last}") };
                    device_nodes.push(device_node.ok_or_else(|| wrong(part, &allowed))?);
                }
                _ => return Err(wrong(part, FORMS)),
            }
        }
        let (shared, threads) = (shared.unwrap_or(cores), threads.unwrap_or(1));
        // The product does not overflow: there are at most 1024 nodes, cores have 32 bits, and there are at most 8192
        // threads per core.
        let all = domains.saturating_mul(cores).saturating_mul(threads);
        super::check_counts(all, domains)?;
        if device_nodes.is_empty() {
            device_nodes.push(0);
        }
        let processor = |number: usize| {
            // The numbers are those that the kernel assigns: first one thread of every core, then the second thread of
            // every core.
            let core = number % (domains * cores);
            let node = core / cores;
            Processor {
                number,
                package: node,
                die: None,
                node: Some(node),
                cache: Some(core / shared),
                core,
                usable: Usable::Yes,
            }
        };
        let row = |from: usize| (0..domains).map(|to| if from == to { 10 } else { 20 }).collect();
        let device =
            |(at, device_node): (usize, &usize)| NetworkDevice { name: format!("eth{at}"), node: Some(*device_node) };
        Self {
            processors: (0..all).map(processor).collect(),
            nodes: (0..domains).map(|number| MemoryNode { number, bytes: None }).collect(),
            caches: vec![Cache { level: 3, bytes: None }; domains * cores / shared],
            distances: (0..domains).map(row).collect(),
            interfaces: device_nodes.iter().enumerate().map(device).collect(),
        }
        .sorted_and_checked()
    }
}

/// Creates the error for an invalid part, with the allowed text.
fn wrong(part: &str, allowed: &str) -> TopologyError {
    TopologyError::Synthetic { part: format!("'{}'", shown(part)), allowed: allowed.to_owned() }
}

/// Returns true if the text consists only of digits. `parse` would also accept a sign.
fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses a number of at least `least` that fits 32 bits.
fn number(text: &str, least: usize) -> Option<usize> {
    let number: u32 = text.parse().ok().filter(|_| is_digits(text))?;
    usize::try_from(number).ok().filter(|number| *number >= least)
}

/// Sets an option that may be given only once. Returns an error if it is set already.
fn once(option: &mut Option<usize>, value: usize, part: &str) -> Result<(), TopologyError> {
    match option.replace(value) {
        None => Ok(()),
        Some(before) => {
            let name = part.split('=').next().unwrap_or_default();
            Err(wrong(part, &format!("{name} once, but {name}={before} was given before")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_caches_within_nodes() {
        let topology = Topology::synthetic("4x10:llc=5:smt=2:nic=2").expect("in order");
        let domains = topology.domains();
        assert_eq!((domains.len(), topology.processors.len(), topology.nodes.len()), (8, 80, 4));
        assert_eq!(domains[1].cores, [5, 6, 7, 8, 9]);
        assert_eq!(domains[1].siblings, [45, 46, 47, 48, 49]);
        assert_eq!((domains[1].node, domains[2].node), (Some(0), Some(1)));
        assert_eq!(topology.interfaces, [NetworkDevice { name: "eth0".to_owned(), node: Some(2) }]);
        assert_eq!((topology.distance(Some(1), Some(1)), topology.distance(Some(0), Some(3))), (10, 20));
        assert_eq!(Topology::synthetic("2x12").expect("in order").domains().len(), 2);
    }

    #[test]
    fn errors_name_the_invalid_part() {
        for (text, part) in [
            ("", "''"),
            ("2", "'2'"),
            ("2x", "'2x'"),
            ("2x+4", "'2x+4'"),
            ("2x4:smt", "'smt'"),
            ("2x4:cores=1", "'cores=1'"),
            ("2x4:", "''"),
        ] {
            let error = Topology::synthetic(text).expect_err(text).to_string();
            assert!(error.starts_with(&format!("{part}: allowed is NODESxCORES, optionally ")), "{text}: {error}");
        }
        let many = Topology::synthetic("2x99999").expect_err("too many").to_string();
        assert_eq!(many, "199998 processors: allowed are 1 to 8192");
    }

    #[test]
    fn errors_name_the_allowed_range() {
        for (text, expected) in [
            ("0x4", "'0x4': allowed is NODESxCORES with 1 to 1024 memory nodes"),
            ("4x0", "'4x0': allowed is NODESxCORES with 1 to 8192 cores"),
            ("99999999999999999999x2", "'99999999999999999999x2': allowed is NODESxCORES with 1 to 1024 memory nodes"),
            ("2x99999999999999999999", "'2x99999999999999999999': allowed is NODESxCORES with 1 to 8192 cores"),
            ("4x10:nic=9", "'nic=9': allowed is a node from 0 to 3"),
            ("4x10:nic=-1", "'nic=-1': allowed is a node from 0 to 3"),
            ("1x10:nic=1", "'nic=1': allowed is node 0"),
            ("2x10:llc=3", "'llc=3': allowed is a divisor of the node's number of cores, 10"),
            ("2x10:llc=20", "'llc=20': allowed is a divisor of the node's number of cores, 10"),
            ("2x10:llc=0", "'llc=0': allowed is a divisor of the node's number of cores, 10"),
            ("2x10:smt=0", "'smt=0': allowed is 1 to 8192 threads"),
            ("2x10:smt=99999999999999999999", "'smt=99999999999999999999': allowed is 1 to 8192 threads"),
            ("2x10:smt=8192", "163840 processors: allowed are 1 to 8192"),
        ] {
            assert_eq!(Topology::synthetic(text).expect_err(text).to_string(), expected, "{text}");
        }
        let long = "9".repeat(100) + "x2";
        let error = Topology::synthetic(&long).expect_err("too long").to_string();
        assert!(error.starts_with(&format!("'{}…': allowed is ", "9".repeat(60))), "{error}");
    }

    #[test]
    fn an_option_given_twice_is_refused() {
        for (text, expected) in [
            ("2x6:llc=2:llc=3", "'llc=3': allowed is llc once, but llc=2 was given before"),
            ("2x6:llc=2:smt=2:llc=2", "'llc=2': allowed is llc once, but llc=2 was given before"),
            ("2x6:smt=1:smt=2", "'smt=2': allowed is smt once, but smt=1 was given before"),
        ] {
            assert_eq!(Topology::synthetic(text).expect_err(text).to_string(), expected, "{text}");
        }
        let topology = Topology::synthetic("2x6:nic=0:nic=1").expect("a machine has several interfaces");
        assert_eq!(topology.interfaces.len(), 2);
    }

    #[test]
    fn at_most_1024_memory_nodes_are_described() {
        assert_eq!(Topology::synthetic("1024x1").map(|topology| topology.nodes.len()), Ok(1_024));
        for (text, nodes) in
            [("1025x1", 1_025), ("8192x1", 8_192), ("1025x1:nic=2000", 1_025), ("4294967295x4294967295", 4_294_967_295)]
        {
            assert_eq!(Topology::synthetic(text), Err(TopologyError::Nodes(nodes)), "{text}");
        }
    }
}
