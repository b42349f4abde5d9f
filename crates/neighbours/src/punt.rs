//! `punt`: sends packets for the host itself to the stack of the host: packets to the router's own addresses, and
//! neighbour requests for these addresses.

use std::net::{IpAddr, Ipv6Addr};

use forebay_graph::{Context, Declare, Function, Gate, Setup, SetupError, StateKind, register};
use forebay_packet::host_address::check_host_address;
use forebay_packet::wire::ethernet::EtherType;
use forebay_packet::{Network, Packet};
use schemars::JsonSchema;
use serde::Deserialize;

/// Parameters of `punt`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The host's own addresses, such as `[192.0.2.1, "2001:db8::1"]`, up to 4096: packets to them go to the host.
    addresses: Vec<IpAddr>,
    /// Sends ARP requests and replies to the host if their target is one of these addresses: `true` (the default) or
    /// `false`.
    #[serde(default = "yes")]
    arp: bool,
    /// Sends IPv6 neighbour and router discovery to the host: messages to the solicited-node address of one of these
    /// addresses, to all nodes, or to all routers. `true` (the default) or `false`.
    #[serde(default = "yes")]
    neighbours: bool,
    /// Sends all multicast of the link (224.0.0.0/24, ff02::/16) to the host, for routing protocols such as OSPF:
    /// `true` or `false` (the default).
    #[serde(default)]
    multicast: bool,
    /// Sends packets with a time to live or hop limit of 0 or 1 to the host, which then sends an error to their sender:
    /// `true` or `false` (the default).
    #[serde(default)]
    expired: bool,
}

fn yes() -> bool {
    true
}

const TRANSIT: Gate = Gate::FIRST;
const HOST: Gate = Gate::out(1);

/// Maximum number of addresses.
const MOST: usize = 4_096;

/// The network function `punt`.
pub struct Punt {
    ipv4: Addresses<u32>,
    ipv6: Addresses<u128>,
    /// The lower 24 bits of the IPv6 addresses, which are also the lower bits of their solicited-node addresses (RFC
    /// 4291 section 2.7.1).
    solicited: Addresses<u32>,
    arp: bool,
    neighbours: bool,
    multicast: bool,
    expired: bool,
}

/// A sorted set of addresses.
struct Addresses<T>(Box<[T]>);

impl<T: Ord + Copy> Addresses<T> {
    /// Creates the set of addresses in any order, without duplicates.
    fn new(addresses: impl Iterator<Item = T>) -> Self {
        let mut all: Vec<T> = addresses.collect();
        all.sort_unstable();
        all.dedup();
        Self(all.into())
    }

    #[inline]
    fn has(&self, address: T) -> bool {
        // Usually there are few addresses, and then a linear search is fastest.
        if self.0.len() <= 4 { self.0.contains(&address) } else { self.0.binary_search(&address).is_ok() }
    }
}

impl Declare for Punt {
    type Params = Params;
    const NAME: &'static str = "punt";
    const SUMMARY: &'static str = "sends packets for the host itself to the host's stack";
    const HELP: &'static str = "\
        Packets in transit leave by gate `0`. Packets to the listed addresses leave by gate `host`. By default, ARP \
        (RFC 826) and IPv6 neighbour discovery (RFC 4861) for these addresses also leave by `host`. The host's stack \
        then answers pings, resolves neighbours and runs a routing daemon's sessions. Frames are not changed, and MAC \
        addresses are not checked: the host's interface needs the MAC address to which neighbours send. An example \
        with a port of type `tap` (the function `tap` is something else: it writes captures): `ports: { eth: .., host: \
        { tap: { interface: fb0, address: 192.0.2.1/24, mac: 02:00:00:00:00:01 } } }` and `pipeline: [eth -> punt, \
        punt[host] -> host, punt[0] -> route, host -> eth]`.";
    const EXAMPLE: &'static str = r#"{ addresses: [192.0.2.1, "2001:db8::1"], expired: true }"#;
    const TRAFFIC: &'static str = "{ destination: [192.0.2.1/32, 198.19.0.0/16] }";
    const STATE: StateKind = StateKind::SharedReadOnly;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        setup.gates(["0", "host"])?;
        let addresses = &params.addresses;
        if addresses.len() > MOST {
            return Err(SetupError::not_allowed(
                "addresses",
                format!("{} addresses", addresses.len()),
                format!("0 to {MOST}"),
            ));
        }
        for (index, address) in addresses.iter().enumerate() {
            check_host_address(*address).map_err(|message| SetupError::at(format!("addresses[{index}]"), message))?;
        }
        let v4 =
            addresses.iter().filter_map(|address| if let IpAddr::V4(it) = address { Some(it.to_bits()) } else { None });
        let v6 = || {
            addresses.iter().filter_map(|address| if let IpAddr::V6(it) = address { Some(it.to_bits()) } else { None })
        };
        Ok(Self {
            ipv4: Addresses::new(v4),
            ipv6: Addresses::new(v6()),
            solicited: Addresses::new(v6().map(|bits| bits as u32 & 0x00ff_ffff)),
            arp: params.arp,
            neighbours: params.neighbours,
            multicast: params.multicast,
            expired: params.expired,
        })
    }
}

/// Offset of the target's protocol address in an ARP packet for Ethernet and IPv4 (RFC 826).
const ARP_TARGET: usize = 24;
/// Hardware type Ethernet, protocol IPv4, addresses of six and four bytes.
const ARP_KIND: [u8; 6] = [0, 1, 8, 0, 6, 4];
/// `ff02::1:ff00:0/104` (RFC 4291 section 2.7.1).
const SOLICITED: u128 = 0xff02_0000_0000_0000_0000_0001_ff00_0000;
const ALL_NODES: u128 = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).to_bits();
const ALL_ROUTERS: u128 = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2).to_bits();
/// IP protocol number of ICMPv6 (RFC 4443).
const ICMPV6: u8 = 58;

impl Punt {
    /// Returns true if the packet is for the host.
    #[inline]
    fn is_hosts(&self, packet: &mut Packet) -> bool {
        if let Some(header) = packet.ipv4() {
            let destination = u32::from_be_bytes(header.destination);
            let link = self.multicast && destination >> 8 == 0xe0_0000;
            return self.ipv4.has(destination) || link || self.expired && header.ttl <= 1;
        }
        self.is_hosts_otherwise(packet)
    }

    /// Returns true if a packet that is not IPv4 is for the host.
    #[inline(never)]
    fn is_hosts_otherwise(&self, packet: &mut Packet) -> bool {
        let (network, start) = packet.network();
        let Some(header) = packet.ipv6() else {
            return network == Network::Other && self.arp && self.is_arp(packet.data(), start);
        };
        let (destination, limit) = (u128::from_be_bytes(header.destination), header.hop_limit);
        if self.ipv6.has(destination) {
            return true;
        }
        if destination >> 112 == 0xff02 {
            return self.multicast || self.neighbours && self.is_discovery(packet, destination, limit);
        }
        self.expired && limit <= 1
    }

    /// Returns true if the packet is neighbour discovery for the host: ICMPv6 133 to 137 with a hop limit of 255, which
    /// proves that no router has forwarded it (RFC 4861 sections 6.1, 7.1, 8.1).
    fn is_discovery(&self, packet: &mut Packet, destination: u128, limit: u8) -> bool {
        let for_us = match destination {
            ALL_NODES | ALL_ROUTERS => true,
            address => address & !0x00ff_ffff == SOLICITED && self.solicited.has(address as u32 & 0x00ff_ffff),
        };
        let upper = packet.transport().filter(|(protocol, _)| *protocol == ICMPV6);
        let end = packet.network_end();
        // Ethernet padding after the packet must not be read as a type.
        let kind = upper.and_then(|(_, offset)| packet.data().get(offset..end)?.first());
        for_us && limit == 255 && kind.is_some_and(|kind| (133..=137).contains(kind))
    }

    /// Returns true if the frame is ARP for one of the addresses. `start` is the offset after the Ethernet header and
    /// its tags.
    fn is_arp(&self, frame: &[u8], start: usize) -> bool {
        let ether_type = start.checked_sub(2).and_then(|at| frame.get(at..start));
        let (Some(ether_type), Some(body)) = (ether_type, frame.get(start..)) else { return false };
        if ether_type != EtherType::ARP.to_be_bytes() || !body.starts_with(&ARP_KIND) {
            return false;
        }
        let target = body.get(ARP_TARGET..).and_then(<[u8]>::first_chunk);
        target.is_some_and(|target| self.ipv4.has(u32::from_be_bytes(*target)))
    }
}

impl Function for Punt {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        context.filter(
            batch,
            |packet| !self.is_hosts(packet),
            |packet| if self.is_hosts(packet) { HOST } else { TRANSIT },
        );
    }
}

register!(Punt);

#[cfg(test)]
mod tests;
