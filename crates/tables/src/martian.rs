//! Addresses that no router forwards: "martian" sources and destinations (RFC 1812 sections 5.3.7 and 11, RFC 4291
//! section 2).
//!
//! A packet that stays on its link may have the unspecified address as its source, because a host that has no address
//! yet sends such packets (DHCP, RFC 2131 section 4.1; duplicate address detection, RFC 4862 section 5.4.2).

use forebay_packet::host_address::stands_for_v4;
use forebay_packet::{Network, Packet};
use schemars::JsonSchema;
use serde::Deserialize;

/// Whether packets are dropped for their addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Martians {
    /// Packets with martian addresses are dropped and counted.
    #[default]
    Drop,
    /// Packets with martian addresses pass like other packets.
    Pass,
}

/// First octets of IPv4 addresses that need a full check: 0, 127, and 224 and above.
const SPECIAL: [bool; 256] = {
    let mut marked = [false; 256];
    marked[0] = true;
    marked[127] = true;
    let mut octet = 224;
    while octet < 256 {
        marked[octet] = true;
        octet += 1;
    }
    marked
};
const NONE: [bool; 256] = [false; 256];

impl Martians {
    /// Returns a table of first octets. [`refuses`](Self::refuses) can return true for an IPv4 packet only if the first
    /// octet of its source or destination is marked here.
    pub fn marked(self) -> &'static [bool; 256] {
        if self == Self::Drop { &SPECIAL } else { &NONE }
    }

    /// Returns true if a packet must be dropped for its addresses. Returns false for packets other than IP. The caller
    /// must have checked the IP header.
    pub fn refuses(self, packet: &mut Packet) -> bool {
        if self == Self::Pass {
            return false;
        }
        match packet.network().0 {
            Network::Ipv4 => packet.ipv4().is_some_and(|header| {
                let (source, destination) = (header.source, header.destination);
                is_martian_v4(u32::from_be_bytes(source), u32::from_be_bytes(destination))
            }),
            // No global unicast address begins with 0x00 or 0xff.
            Network::Ipv6 => packet.ipv6().is_some_and(|header| {
                let [source, destination] = [header.source, header.destination];
                (source[0].wrapping_add(1) <= 1 || destination[0].wrapping_add(1) <= 1)
                    && is_martian_v6(u128::from_be_bytes(source), u128::from_be_bytes(destination))
            }),
            Network::Other => false,
        }
    }
}

/// Returns true if the source or the destination of an IPv4 packet is a martian (RFC 1812 section 5.3.7). Sources and
/// destinations in the networks 0 and 127 are martians. Addresses from 224.0.0.0 on are never sources. From 240.0.0.0
/// on, only the broadcast address is a destination.
#[cold]
fn is_martian_v4(source: u32, destination: u32) -> bool {
    let is_broadcast = destination == u32::MAX;
    let stays_on_link = is_broadcast || destination >> 8 == 0x00e0_0000;
    let bad_source = match source >> 24 {
        0 => source != 0 || !stays_on_link,
        first => first == 127 || first >= 224,
    };
    let bad_destination = match destination >> 24 {
        0 | 127 => true,
        first => first >= 240 && !is_broadcast,
    };
    bad_source || bad_destination
}

/// Returns true if the source or the destination of an IPv6 packet is a martian. The unspecified address, the loopback
/// address and addresses that stand for IPv4 are martians (RFC 4291 sections 2.5.2, 2.5.3, 2.5.5). Multicast addresses
/// are never sources, and packets to multicast groups of the scopes 0 and 1 never leave their node (section 2.7).
#[cold]
fn is_martian_v6(source: u128, destination: u128) -> bool {
    let link_scope = destination >> 112 == 0xff02;
    let bad_source = source >> 120 == 0xff || stands_for_v4(source) && (source != 0 || !link_scope);
    let bad_group = destination >> 120 == 0xff && destination >> 112 & 0xf <= 1;
    bad_source || stands_for_v4(destination) || bad_group
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn only_host_addresses_are_forwarded_in_ipv4() {
        let is_martian = |source: &str, destination: &str| {
            let bits = |text: &str| text.parse::<Ipv4Addr>().expect("an address").to_bits();
            let (source, destination) = (bits(source), bits(destination));
            let marked = SPECIAL[(source >> 24) as usize] || SPECIAL[(destination >> 24) as usize];
            let martian = is_martian_v4(source, destination);
            assert!(marked || !martian, "{source:x} {destination:x}: the quick check must not miss it");
            martian
        };
        let host = "198.51.100.9";
        for bad in ["0.0.0.0", "0.1.2.3", "127.0.0.1", "127.255.255.255", "240.0.0.1", "255.255.255.254"] {
            assert!(is_martian(bad, host), "from {bad}");
            assert!(is_martian(host, bad), "to {bad}");
        }
        for bad in ["224.0.0.0", "224.0.0.5", "239.255.255.255", "255.255.255.255"] {
            assert!(is_martian(bad, host), "from {bad}");
            assert!(!is_martian(host, bad), "to {bad}");
        }
        for good in ["1.0.0.0", "126.255.255.255", "128.0.0.0", "223.255.255.255", "10.0.0.1"] {
            assert!(!is_martian(good, host) && !is_martian(host, good), "{good}");
        }
        // DHCP and IGMP of hosts without an address stay on their link.
        assert!(!is_martian("0.0.0.0", "255.255.255.255") && !is_martian("0.0.0.0", "224.0.0.22"));
        assert!(is_martian("0.0.0.0", "224.0.1.1") && is_martian("0.0.0.1", "255.255.255.255"));
        assert!(is_martian("127.0.0.1", "255.255.255.255"));
    }

    #[test]
    fn only_host_addresses_are_forwarded_in_ipv6() {
        let is_martian = |source: &str, destination: &str| {
            let bits = |text: &str| text.parse::<Ipv6Addr>().expect("an address").to_bits();
            is_martian_v6(bits(source), bits(destination))
        };
        let host = "2001:db8::9";
        for bad in ["::", "::1", "::192.0.2.1", "::ffff:192.0.2.1", "ff00::1", "ff01::1"] {
            assert!(is_martian(bad, host), "from {bad}");
            assert!(is_martian(host, bad), "to {bad}");
        }
        for bad in ["ff02::1", "ff0e::1", "ffff::"] {
            assert!(is_martian(bad, host), "from {bad}");
            assert!(!is_martian(host, bad), "to {bad}");
        }
        for good in ["64:ff9b::192.0.2.1", "::ffff:0:192.0.2.1", "fd00::1", "100::1", "2000::"] {
            assert!(!is_martian(good, host) && !is_martian(host, good), "{good}");
        }
        // Duplicate address detection and listener reports stay on their link.
        assert!(!is_martian("::", "ff02::1:ff00:1") && !is_martian("::", "ff02::16"));
        assert!(is_martian("::", "ff05::2") && is_martian("::1", "ff02::1"));
    }
}
