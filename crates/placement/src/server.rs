//! The server in the form of the search: memory domains with the cores that functions may use, and the home domains of
//! chains.

use forebay_host::Topology;
use forebay_pipeline::{listed, nearest};

use crate::chains::ServiceChain;

/// A server's memory domains and network interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The domains, in the order of their lowest cores.
    pub domains: Vec<ServerDomain>,
    /// The network interfaces by name, each with its NUMA node if it is known.
    pub interfaces: Vec<(String, Option<usize>)>,
    /// The distance between the nodes of each pair of domains (ACPI SLIT).
    distances: Vec<Vec<u32>>,
}

/// Cores that share a last-level cache and a NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerDomain {
    /// The NUMA node, if it is known.
    pub node: Option<usize>,
    /// The processors that functions may use, by the kernel's numbers.
    pub cores: Vec<usize>,
}

/// The home domain of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// The domain.
    pub domain: usize,
    /// The assumption that was made, if the chain and the topology do not determine the home.
    pub note: Option<String>,
}

impl Server {
    /// Creates the server of a topology. Functions may use one processor of each physical core, or all processors if
    /// `threads` is set.
    #[must_use]
    pub fn of(topology: &Topology, threads: bool) -> Self {
        let domains: Vec<_> = topology.domains();
        let distance =
            |a: &forebay_host::topology::Domain, b: &forebay_host::topology::Domain| topology.distance(a.node, b.node);
        let distances = domains.iter().map(|a| domains.iter().map(|b| distance(a, b)).collect()).collect();
        let interfaces = topology.interfaces.iter().map(|interface| (interface.name.clone(), interface.node));
        let domain = |domain: forebay_host::topology::Domain| {
            let mut cores = domain.cores;
            if threads {
                cores.extend(domain.siblings);
            }
            ServerDomain { node: domain.node, cores }
        };
        Self { interfaces: interfaces.collect(), distances, domains: domains.into_iter().map(domain).collect() }
    }

    /// Returns the number of cores that functions may use.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.domains.iter().map(|domain| domain.cores.len()).sum()
    }

    /// Returns the home domain of a chain: the domain that the chain states, or the first domain of its interface's
    /// NUMA node. A chain without an interface gets the first interface with a known node. If the node is unknown or
    /// has no core, the home is domain 0. In these two cases, the result has a note if the server has several domains.
    ///
    /// # Errors
    /// Returns the fault and the allowed values if the stated domain or the interface does not exist, or if the server
    /// has no cores.
    pub fn home(&self, chain: &ServiceChain) -> Result<Home, String> {
        let domains = self.domains.len();
        if domains == 0 {
            return Err("the server has no core that functions may use: allowed is 1 or more".to_owned());
        }
        if let Some(domain) = chain.home {
            if domain >= domains {
                return Err(format!("home domain {domain}: allowed are 0 to {}", domains - 1));
            }
            return Ok(Home { domain, note: None });
        }
        let known = domains == 1;
        let (name, node) = match &chain.interface {
            Some(name) => {
                let found = self.interfaces.iter().find(|(interface, _)| interface == name);
                let Some((_, node)) = found else {
                    let names = || self.interfaces.iter().map(|(name, _)| name.as_str());
                    let near = nearest(name, names());
                    let available =
                        if self.interfaces.is_empty() { "no interface".to_owned() } else { listed(names()) };
                    return Err(format!(
                        "the topology has no interface '{}'{near}: it has {available}; to state the domain \
                         without an interface, write `home: DOMAIN`",
                        name.escape_debug()
                    ));
                };
                (format!("interface '{name}'"), *node)
            }
            None => match self.interfaces.iter().find(|(_, node)| node.is_some()) {
                Some((name, node)) => (format!("no interface of its own, taken as '{name}'"), *node),
                None => ("no interface".to_owned(), None),
            },
        };
        let of_node = node.and_then(|node| self.domains.iter().position(|domain| domain.node == Some(node)));
        let note = match (of_node, node) {
            _ if known => None,
            (Some(_), _) => chain.interface.is_none().then_some(name),
            (None, Some(node)) => Some(format!("{name}: node {node} has no core to use: the home is domain 0")),
            (None, None) => Some(format!("{name}: its node is unknown (-1): the home is domain 0")),
        };
        Ok(Home { domain: of_node.unwrap_or(0), note })
    }

    /// Returns the class of each domain: the index of the first domain of the class. Domains of one class have equal
    /// numbers of cores, equal numbers of interfaces and equal distances to all homes. A home is the only domain of its
    /// class.
    #[must_use]
    pub fn classes(&self, homes: &[usize]) -> Vec<usize> {
        let mut classes: Vec<usize> = Vec::new();
        for at in 0..self.domains.len() {
            let alike = |other: &usize| {
                let size = |at: usize| self.domains[at].cores.len();
                let interfaces = |at: usize| {
                    let node = self.domains[at].node;
                    self.interfaces.iter().filter(|(_, of)| of.is_some() && *of == node).count()
                };
                let distances = homes.iter().all(|home| self.distances[at][*home] == self.distances[*other][*home]);
                let is_home = homes.contains(&at) || homes.contains(other);
                !is_home && size(at) == size(*other) && interfaces(at) == interfaces(*other) && distances
            };
            let class = (0..at).find(alike).map(|other| classes[other]);
            classes.push(class.unwrap_or(at));
        }
        classes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(interface: Option<&str>, home: Option<usize>) -> ServiceChain {
        ServiceChain {
            name: "web".to_owned(),
            functions: Vec::new(),
            rate: None,
            weight: 1.0,
            slo: None,
            percentile: None,
            interface: interface.map(str::to_owned),
            to: None,
            home,
            copies: 0,
        }
    }

    #[test]
    fn a_home_is_that_of_the_interface_and_assumptions_are_stated() {
        let mut topology = Topology::synthetic("4x4:llc=2:nic=2").expect("it is valid");
        let server = Server::of(&topology, false);
        let home = |server: &Server, interface, home| server.home(&chain(interface, home));
        assert_eq!(home(&server, Some("eth0"), None), Ok(Home { domain: 4, note: None }));
        assert_eq!(home(&server, None, Some(7)), Ok(Home { domain: 7, note: None }));
        let assumed = home(&server, None, None).expect("a home");
        assert_eq!(assumed.note.as_deref(), Some("no interface of its own, taken as 'eth0'"));
        assert_eq!(assumed.domain, 4);
        assert_eq!(home(&server, None, Some(8)), Err("home domain 8: allowed are 0 to 7".to_owned()));
        let unknown = home(&server, Some("eth1"), None).expect_err("unknown");
        assert!(unknown.starts_with("the topology has no interface 'eth1' (did you mean 'eth0'?)"), "{unknown}");
        topology.interfaces[0].node = None;
        let note = home(&Server::of(&topology, false), Some("eth0"), None).expect("a home").note.expect("a note");
        assert_eq!(note, "interface 'eth0': its node is unknown (-1): the home is domain 0");
    }

    #[test]
    fn only_domains_that_are_alike_are_of_one_class() {
        let server = Server::of(&Topology::synthetic("4x4:llc=2").expect("in order"), false);
        // Domain 1 is on the node of the home. All others have the same distance to it.
        assert_eq!(server.classes(&[0]), [0, 1, 2, 2, 2, 2, 2, 2]);
        assert_eq!(server.classes(&[0, 4]), [0, 1, 2, 2, 4, 5, 2, 2]);
        let threads = Server::of(&Topology::synthetic("1x2:smt=2").expect("in order"), true);
        assert_eq!(threads.domains[0].cores, [0, 1, 2, 3]);
    }
}
