//! Selects the neighbour to which a packet is sent: a router, or its destination.

use std::collections::BTreeMap;
use std::hint::cold_path;
use std::net::IpAddr;

use forebay_graph::{MAX_GATES, SetupError};
use forebay_packet::host_address::{check_host_address, mapped};
use forebay_packet::{Network, Packet, Word};

use crate::interface::Interface;
use crate::interface::neighbours::Address;

/// The router of each address family, if there is one.
#[derive(Clone, Copy, Default)]
struct Pair {
    v4: Option<Address>,
    v6: Option<Address>,
}

/// The routers of an interface.
pub(super) struct Gateways {
    /// The metadata word with the next hop; `None` if there are no routers by next hop.
    word: Option<Word>,
    /// By next hop: the routers.
    by_hop: Vec<Pair>,
    /// The routers for packets whose next hop has no router in `by_hop`.
    default: Pair,
}

impl Pair {
    /// Checks addresses of the parameter `path`: they must be neighbours, at most one of each family.
    fn of(path: &str, interface: &Interface, addresses: &[IpAddr]) -> Result<Self, SetupError> {
        let mut pair = Self::default();
        for (index, &address) in addresses.iter().enumerate() {
            let at = |message| SetupError::at(format!("{path}[{index}]"), message);
            let neighbour = Address::of(address).ok_or_else(|| at(mapped(address)))?;
            check_host_address(address).map_err(at)?;
            interface.refuse_broadcast(address).map_err(at)?;
            let wrong = |wrong: &str, allowed: &str| {
                SetupError::wrong(format!("{path}[{index}]"), address, format!("{address} is {wrong}"), allowed)
            };
            if !interface.connects(address) {
                return Err(wrong("in none of the interface's prefixes", "hosts in these prefixes"));
            }
            if interface.addresses().any(|own| own == address) {
                return Err(wrong("the interface's own address", "addresses of other hosts"));
            }
            let slot = if address.is_ipv4() { &mut pair.v4 } else { &mut pair.v6 };
            if slot.replace(neighbour).is_some() {
                return Err(wrong("the second address of its IP version", "one IPv4 and one IPv6 address"));
            }
        }
        Ok(pair)
    }
}

/// The first IPv4 address above all host addresses: multicast groups, reserved addresses, and the broadcast address
/// follow (RFC 5735 section 3).
const PAST_HOSTS: u32 = 0xe000_0000;
/// The first reserved address (RFC 1112 section 4).
const PAST_GROUPS: u32 = 0xf000_0000;

impl Gateways {
    /// Checks the routers. `default` and `by_hop` are the parameters `gateway` and `next_hops`, and `word` is the
    /// metadata word with the next hop.
    pub(super) fn new(
        interface: &Interface,
        default: &[IpAddr],
        by_hop: &BTreeMap<String, Vec<IpAddr>>,
        word: Option<Word>,
    ) -> Result<Self, SetupError> {
        let mut hops = Vec::new();
        for (name, addresses) in by_hop {
            let path = format!("next_hops.{name}");
            let hop = name.parse().ok().filter(|hop| *hop < MAX_GATES).ok_or_else(|| {
                let wrong = format!("'{name}' is not a next hop");
                SetupError::wrong("next_hops", name, wrong, format!("0 to {}", MAX_GATES - 1))
            })?;
            if hops.len() <= hop {
                hops.resize(hop + 1, Pair::default());
            }
            hops[hop] = Pair::of(&path, interface, addresses)?;
        }
        Ok(Self { word, by_hop: hops, default: Pair::of("gateway", interface, default)? })
    }

    /// Returns the neighbour to which a packet is sent. `None` if the packet is not IP, or its destination is
    /// IPv4-mapped. For multicast and broadcast packets, returns their destination, whatever the routes are (RFC 1112
    /// section 6.4, RFC 2464 section 7).
    #[inline(always)]
    pub(super) fn target(&self, interface: &Interface, packet: &mut Packet) -> Option<Address> {
        if let Some(header) = packet.ipv4() {
            let destination = u32::from_be_bytes(header.destination);
            if destination >= PAST_HOSTS {
                cold_path();
                if destination < PAST_GROUPS || destination == u32::MAX {
                    return Some(Address::v4(destination));
                }
            }
            if let Some(word) = self.word
                && let Some(Pair { v4: Some(router), .. }) = self.by_hop.get(packet.word(word) as usize)
            {
                return Some(*router);
            }
            return Some(match self.default.v4 {
                Some(router) if !interface.connects_v4(destination) => router,
                _ => Address::v4(destination),
            });
        }
        self.target_v6(interface, packet)
    }

    /// Returns the neighbour of a packet that is not IPv4, like [`target`](Self::target).
    fn target_v6(&self, interface: &Interface, packet: &mut Packet) -> Option<Address> {
        if packet.network().0 != Network::Ipv6 {
            return None;
        }
        let destination = u128::from_be_bytes(packet.ipv6()?.destination);
        if destination >> 120 == 0xff {
            return Address::v6(destination);
        }
        if let Some(word) = self.word
            && let Some(Pair { v6: Some(router), .. }) = self.by_hop.get(packet.word(word) as usize)
        {
            return Some(*router);
        }
        match self.default.v6 {
            Some(router) if !interface.connects_v6(destination) => Some(router),
            _ => Address::v6(destination),
        }
    }
}
