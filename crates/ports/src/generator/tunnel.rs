//! The headers of a tunnel around frames, in the form in which a base station or another tunnel endpoint sends them.

use std::net::Ipv4Addr;

use forebay_packet::wire::ethernet::EtherType;
use forebay_packet::wire::gtpu::{self, Gtpu};
use forebay_packet::wire::ipv4::{self, Ipv4};
use forebay_packet::wire::udp::Udp;
use forebay_packet::wire::vxlan::{self, Vxlan};
use forebay_units::wording::{allowed, range};
use schemars::JsonSchema;
use serde::Deserialize;
use zerocopy::{FromZeros, IntoBytes};

/// A tunnel around all frames.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Tunnel {
    /// GTP-U (3GPP TS 29.281), with an IP packet inside.
    Gtpu(Gtp),
    /// VXLAN (RFC 7348), with a frame inside.
    Vxlan(Network),
}

/// A GTP-U tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gtp {
    /// The outer source address.
    source: Ipv4Addr,
    /// The outer destination address.
    destination: Ipv4Addr,
    /// The tunnel endpoint identifier of session 0.
    teid: u32,
    /// The number of tunnels, n. Session i has the tunnel number (i mod n).
    #[serde(default = "one")]
    tunnels: u32,
}

/// A VXLAN.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// The outer source address.
    source: Ipv4Addr,
    /// The outer destination address.
    destination: Ipv4Addr,
    /// The network identifier of session 0.
    vni: u32,
    /// The number of networks, n. Session i has the network number (i mod n).
    #[serde(default = "one")]
    networks: u32,
}

fn one() -> u32 {
    1
}

/// The length of the header of GTP-U, and of the header of VXLAN, without options.
const HEADER: usize = 8;
/// The length of all outer headers without Ethernet: IPv4, UDP and the header of the tunnel.
pub(super) const OUTER: usize = size_of::<Ipv4>() + size_of::<Udp>() + HEADER;

impl Tunnel {
    /// Returns the first identifier, the number of identifiers, and the largest identifier that the header can contain.
    fn identifiers(&self) -> (u32, u32, u32) {
        match self {
            Self::Gtpu(gtp) => (gtp.teid, gtp.tunnels, u32::MAX),
            Self::Vxlan(network) => (network.vni, network.networks, vxlan::MAX_VNI),
        }
    }

    /// Returns true if the inner packet has its own Ethernet header.
    pub(super) fn has_ethernet(&self) -> bool {
        matches!(self, Self::Vxlan(_))
    }

    /// Checks the limits of identifiers. An error has the name of the parameter and the text for the user.
    pub(super) fn check(&self) -> Result<(), (&'static str, String)> {
        let (first, count, most) = self.identifiers();
        let (first_name, count_name) = match self {
            Self::Gtpu(_) => ("tunnel.gtpu.teid", "tunnel.gtpu.tunnels"),
            Self::Vxlan(_) => ("tunnel.vxlan.vni", "tunnel.vxlan.networks"),
        };
        if first > most {
            return Err((first_name, format!("{first}: allowed are 0 to {most}")));
        }
        let room = u64::from(most - first) + 1;
        if count == 0 || u64::from(count) > room {
            return Err((count_name, format!("{count}: {}", allowed(&range(1, room)))));
        }
        Ok(())
    }

    /// Returns the outer headers around an inner packet or frame of `inside` bytes: EtherType, IPv4, UDP without
    /// checksum, and the header of the tunnel with the identifier 0.
    pub(super) fn headers(&self, inside: usize) -> Vec<u8> {
        let (source, destination, port) = match self {
            Self::Gtpu(gtp) => (gtp.source, gtp.destination, gtpu::PORT),
            Self::Vxlan(network) => (network.source, network.destination, vxlan::PORT),
        };
        let mut ip = Ipv4::new_zeroed();
        (ip.version_ihl, ip.ttl, ip.protocol) = (0x45, 64, ipv4::UDP);
        ip.total_length = ((OUTER + inside) as u16).into();
        ip.flags_fragment = 0x4000.into();
        (ip.source, ip.destination) = (source.octets(), destination.octets());
        ip.update_checksum(&[]);
        let length = (OUTER + inside - size_of::<Ipv4>()) as u16;
        let udp = Udp { source: port.into(), destination: port.into(), length: length.into(), checksum: 0.into() };
        let mut bytes = EtherType::IPV4.to_be_bytes().to_vec();
        bytes.extend(ip.as_bytes());
        bytes.extend(udp.as_bytes());
        match self {
            Self::Gtpu(_) => bytes.extend(Gtpu::g_pdu(inside as u16, 0).as_bytes()),
            Self::Vxlan(_) => bytes.extend(Vxlan::of(0).as_bytes()),
        }
        bytes
    }

    /// Returns the last four bytes of the tunnel's header for a session: they contain the identifier.
    pub(super) fn identifier(&self, session: usize) -> [u8; 4] {
        let (first, count, _) = self.identifiers();
        let identifier = first + (session % count as usize) as u32;
        match self {
            Self::Gtpu(_) => identifier.to_be_bytes(),
            // 24 bits and a reserved byte.
            Self::Vxlan(_) => (identifier << 8).to_be_bytes(),
        }
    }
}
