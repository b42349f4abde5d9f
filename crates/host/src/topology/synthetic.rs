//! Machines that are described in a word: `2x12`, `4x10:llc=5:smt=2:nic=0`.

use super::{Cache, MemoryNode, NetworkDevice, Processor, Topology, TopologyError, Usable};

impl Topology {
    /// A machine of `NODESxCORES`: so many NUMA nodes, each a package with so many cores. Behind it `:llc=CORES` says
    /// how many cores share a last-level cache (all of the node's), `:smt=THREADS` how many threads a core has (1),
    /// `:nic=DOMAIN` where a network interface is (0; several may be stated).
    ///
    /// # Errors
    /// [`TopologyError::Synthetic`].
    pub fn synthetic(text: &str) -> Result<Self, TopologyError> {
        let wrong =
            |part: &str| TopologyError::Synthetic { part: format!("'{}'", part.chars().take(60).collect::<String>()) };
        let number = |part: &str, value: &str, least: usize| {
            let value = if value.bytes().all(|byte| byte.is_ascii_digit()) { value.parse().ok() } else { None };
            value.filter(|value| *value >= least).ok_or_else(|| wrong(part))
        };
        let mut parts = text.split(':');
        let size = parts.next().unwrap_or_default();
        let (domains, cores) = size.split_once('x').ok_or_else(|| wrong(size))?;
        let (domains, cores): (usize, usize) = (number(size, domains, 1)?, number(size, cores, 1)?);
        let (mut shared, mut threads, mut homes) = (cores, 1, Vec::new());
        for part in parts {
            match part.split_once('=').ok_or_else(|| wrong(part))? {
                ("llc", value) => {
                    shared = number(part, value, 1)?;
                    if shared > cores || cores % shared != 0 {
                        return Err(wrong(part));
                    }
                }
                ("smt", value) => threads = number(part, value, 1)?,
                ("nic", value) => {
                    let home = number(part, value, 0)?;
                    if home >= domains {
                        return Err(wrong(part));
                    }
                    homes.push(home);
                }
                _ => return Err(wrong(part)),
            }
        }
        let all = domains.checked_mul(cores).and_then(|cores| cores.checked_mul(threads)).unwrap_or(usize::MAX);
        super::bounded(all, domains)?;
        if homes.is_empty() {
            homes.push(0);
        }
        let processor = |number: usize| {
            // As the kernel numbers them: first threads of all cores, then the second ones.
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
        let device = |(at, home): (usize, &usize)| NetworkDevice { name: format!("eth{at}"), node: Some(*home) };
        Self {
            processors: (0..all).map(processor).collect(),
            nodes: (0..domains).map(|number| MemoryNode { number, bytes: None }).collect(),
            caches: vec![Cache { level: 3, bytes: None }; domains * cores / shared],
            distances: (0..domains).map(row).collect(),
            interfaces: homes.iter().enumerate().map(device).collect(),
        }
        .settled()
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
    fn what_is_no_machine_is_refused_with_its_part() {
        for (text, part) in [
            ("", "''"),
            ("2", "'2'"),
            ("0x4", "'0x4'"),
            ("2x", "'2x'"),
            ("2x+4", "'2x+4'"),
            ("2x4:llc=3", "'llc=3'"),
            ("2x4:nic=2", "'nic=2'"),
            ("2x4:smt", "'smt'"),
            ("2x4:cores=1", "'cores=1'"),
            ("2x4:", "''"),
        ] {
            let error = Topology::synthetic(text).expect_err(text).to_string();
            assert!(error.starts_with(&format!("{part}: allowed is")), "{text}: {error}");
        }
        let many = Topology::synthetic("2x99999").expect_err("too many").to_string();
        assert_eq!(many, "199998 processors: allowed are 1 to 8192");
    }

    #[test]
    fn at_most_1024_memory_nodes_are_described() {
        assert_eq!(Topology::synthetic("1024x1").map(|topology| topology.nodes.len()), Ok(1_024));
        for (text, nodes) in [("1025x1", 1_025), ("8192x1", 8_192), ("99999999999x99999999999", 99_999_999_999)] {
            assert_eq!(Topology::synthetic(text), Err(TopologyError::Nodes(nodes)), "{text}");
        }
    }
}
