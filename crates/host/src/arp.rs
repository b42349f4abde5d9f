//! The host's IPv4 addresses and three settings (Linux `Documentation/networking/ip-sysctl.rst`). `arp_ignore`
//! determines the interfaces at which the host replies to ARP requests for its addresses. `arp_announce` determines the
//! address that it uses in its own requests, and `rp_filter` the sources from which it accepts packets.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use crate::fact::{Fact, Known};
use crate::tree::{Tree, Unknown};

/// The kernel's list of its addresses.
pub const ADDRESSES: &str = "/proc/net/fib_trie";
/// The folder of the settings. It has a folder for each interface, and the folders `all` and `default`.
const SETTINGS: &str = "/proc/sys/net/ipv4/conf";

/// The kernel's list of IPv4 routes.
const ROUTES: &str = "/proc/net/route";

/// The interfaces to which the host's routes lead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    /// The interfaces of all routes.
    pub all: BTreeSet<String>,
    /// The interfaces of the default routes.
    pub default: BTreeSet<String>,
}

/// A setting of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    /// The addresses for which the host replies to ARP requests.
    Ignore,
    /// The source address of the host's own ARP requests.
    Announce,
    /// The check of a packet's source address. With 0, there is no check. With 1, the host must have a route to the
    /// source through the interface at which the packet arrived. With 2, it may be a route through any interface.
    ReversePath,
}

impl Setting {
    /// Reads the value for an interface, or for `all` or `default`.
    pub(crate) fn of(self, tree: &Tree, interface: &str) -> Fact<u32> {
        let (file, most, allowed) = match self {
            Self::Ignore => ("arp_ignore", 8, "a number from 0 to 8"),
            Self::Announce => ("arp_announce", 2, "a number from 0 to 2"),
            Self::ReversePath => ("rp_filter", 2, "a number from 0 to 2"),
        };
        let path = format!("{SETTINGS}/{interface}/{file}");
        // A name with a slash is not an interface and would lead to another folder.
        if interface.contains('/') {
            return Fact::unknown(&path, Unknown::Missing(path.clone()));
        }
        tree.fact(&path, allowed, |text| text.parse().ok().filter(|number| *number <= most))
    }
}

/// The host's IPv4 addresses, and its settings for ARP and source checks.
#[derive(Clone, Debug)]
pub struct Arp {
    /// The host's addresses.
    pub addresses: Fact<Vec<Ipv4Addr>>,
    /// `arp_ignore` of all interfaces.
    pub ignore: Fact<u32>,
    /// `arp_announce` of all interfaces.
    pub announce: Fact<u32>,
    /// `rp_filter` of all interfaces.
    pub reverse_path: Fact<u32>,
    /// `rp_filter` of new interfaces.
    pub reverse_path_of_new: Fact<u32>,
    /// The interfaces of the host's routes.
    pub routes: Fact<Routes>,
}

impl Arp {
    /// Reads the settings beneath `tree`.
    #[must_use]
    pub fn read(tree: &Tree) -> Self {
        let known = tree.listing(ADDRESSES).map(|text| {
            let value = addresses(&text);
            let shown: Vec<_> = value.iter().filter(|it| !it.is_loopback()).map(Ipv4Addr::to_string).collect();
            Known { value, text: format!("local addresses {}", shown.join(" ")) }
        });
        let routes = tree.listing(ROUTES).map(|text| {
            let value = routes(&text);
            let default = value.default.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
            Known {
                value,
                text: format!("default routes through {}", if default.is_empty() { "none" } else { &default }),
            }
        });
        Self {
            addresses: Fact { path: ADDRESSES.to_owned(), known },
            ignore: Setting::Ignore.of(tree, "all"),
            announce: Setting::Announce.of(tree, "all"),
            reverse_path: Setting::ReversePath.of(tree, "all"),
            reverse_path_of_new: Setting::ReversePath.of(tree, "default"),
            routes: Fact { path: ROUTES.to_owned(), known: routes },
        }
    }
}

/// Parses the kernel's list of routes. After a line of headings, each line has the interface, destination, gateway,
/// flags, three counts and the mask. Addresses have hexadecimal digits. Other lines are ignored.
fn routes(text: &str) -> Routes {
    let mut routes = Routes::default();
    for line in text.lines().skip(1) {
        let words: Vec<_> = line.split_whitespace().collect();
        let [interface, destination, _, _, _, _, _, mask, ..] = words[..] else { continue };
        routes.all.insert(interface.to_owned());
        if (destination, mask) == ("00000000", "00000000") {
            routes.default.insert(interface.to_owned());
        }
    }
    routes
}

/// Parses the kernel's list of addresses. A line has an address, and the next line shows whether the address belongs to
/// the host. Returns the host's addresses in ascending order.
pub(crate) fn addresses(text: &str) -> Vec<Ipv4Addr> {
    let (mut found, mut last): (_, Option<Ipv4Addr>) = (Vec::new(), None);
    for line in text.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
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
    fn routes_lead_to_interfaces() {
        let head = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";
        let line =
            |name: &str, to: &str, mask: &str| format!("{name}\t{to}\t00000000\t0001\t0\t0\t0\t{mask}\t0\t0\t0\n");
        let read = routes(
            &[head, &line("eth0", "00000000", "00000000"), &line("fb0", "0001A8C0", "00FFFFFF"), "x\n"].concat(),
        );
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(read, Routes { all: names(&["eth0", "fb0"]), default: names(&["eth0"]) });
        assert_eq!(routes(""), Routes::default());
    }

    #[test]
    fn the_hosts_addresses_are_the_local_routes() {
        let text = concat!(
            "Main:\n",
            "  +-- 0.0.0.0/0 3 0 5\n",
            "     |-- 0.0.0.0\n",
            "        /0 universe UNICAST\n",
            "     +-- 192.0.2.0/30 2 0 2\n",
            "        |-- 192.0.2.0\n",
            "           /24 link UNICAST\n",
            "        |-- 192.0.2.2\n",
            "           /32 host LOCAL\n",
            "     |-- 192.0.2.255\n",
            "        /32 link BROADCAST\n",
            "Local:\n",
            "     |-- 192.0.2.2\n",
            "        /32 host LOCAL\n",
            "     |-- 127.0.0.1\n",
            "        /32 host LOCAL\n",
        );
        assert_eq!(addresses(text), [Ipv4Addr::LOCALHOST, Ipv4Addr::new(192, 0, 2, 2)]);
        assert!(addresses("/32 host LOCAL\n|-- x\n/32 host LOCAL\n").is_empty());
    }
}
