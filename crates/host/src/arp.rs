//! Which IPv4 addresses the host has, and at which interfaces it answers ARP for them (`arp_ignore`, Linux
//! `Documentation/networking/ip-sysctl.rst`).

use std::net::Ipv4Addr;

use crate::fact::{Fact, Told};
use crate::tree::{Tree, Unknown};

/// Where the kernel lists its addresses.
pub const ADDRESSES: &str = "/proc/net/fib_trie";
/// Where the kernel is told at which interfaces it answers.
const SETTINGS: &str = "/proc/sys/net/ipv4/conf";

/// The host's part in ARP.
#[derive(Clone, Debug)]
pub struct Arp {
    /// Its addresses.
    pub addresses: Fact<Vec<Ipv4Addr>>,
    /// `arp_ignore` of all interfaces.
    pub ignore: Fact<u32>,
}

impl Arp {
    /// Reads what there is beneath `tree`.
    #[must_use]
    pub fn read(tree: &Tree) -> Self {
        let told = tree.listing(ADDRESSES).map(|text| {
            let value = addresses(&text);
            let shown: Vec<_> = value.iter().filter(|it| !it.is_loopback()).map(Ipv4Addr::to_string).collect();
            Told { value, text: format!("local addresses {}", shown.join(" ")) }
        });
        Self { addresses: Fact { path: ADDRESSES.to_owned(), told }, ignore: ignore(tree, "all") }
    }
}

/// `arp_ignore` of an interface.
pub(crate) fn ignore(tree: &Tree, interface: &str) -> Fact<u32> {
    let path = format!("{SETTINGS}/{interface}/arp_ignore");
    // A name with a slash is none of an interface, and would lead elsewhere.
    if interface.contains('/') {
        return Fact::unknown(&path, Unknown::Missing(path.clone()));
    }
    tree.fact(&path, "a number from 0 to 8", |text| text.parse().ok().filter(|number| *number <= 8))
}

/// The addresses in a listing of routes: each is named by a line, and said to be the host's by the next.
pub(crate) fn addresses(text: &str) -> Vec<Ipv4Addr> {
    let (mut found, mut last): (_, Option<Ipv4Addr>) = (Vec::new(), None);
    for line in text.lines().map(str::trim) {
        if let Some(named) = line.strip_prefix("|-- ") {
            last = named.parse().ok();
        } else if line == "/32 host LOCAL" {
            found.extend(last);
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_addresses_are_those_that_the_routes_say_are_local() {
        let text = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     +-- 192.0.2.0/30 2 0 2\n        \
                    |-- 192.0.2.0\n           /24 link UNICAST\n        |-- 192.0.2.2\n           /32 host LOCAL\n     \
                    |-- 192.0.2.255\n        /32 link BROADCAST\nLocal:\n     |-- 192.0.2.2\n        /32 host LOCAL\n     \
                    |-- 127.0.0.1\n        /32 host LOCAL\n";
        assert_eq!(addresses(text), [Ipv4Addr::LOCALHOST, Ipv4Addr::new(192, 0, 2, 2)]);
        assert!(addresses("/32 host LOCAL\n|-- x\n/32 host LOCAL\n").is_empty());
    }
}
