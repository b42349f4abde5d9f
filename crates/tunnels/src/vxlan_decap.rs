//! Takes frames out of VXLAN tunnels.

use std::net::IpAddr;

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_packet::wire::ethernet::{EtherType, Ethernet};
use forebay_packet::wire::ipv4::{self, Ipv4};
use forebay_packet::wire::udp::Udp;
use forebay_packet::wire::vxlan::{self, Vxlan, VxlanError};
use forebay_packet::{Network, Packet, Word};
use schemars::JsonSchema;
use serde::Deserialize;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::ecn;
use crate::receive::{Fault, datagram};
use crate::settings::Endpoint;

/// The metadata word for the network identifier.
const WORD: &str = "vni";

/// Parameters of `vxlan_decap`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The accepted network identifiers: up to 64, each from 0 to 16777215. Without this parameter all are accepted.
    #[serde(default)]
    vnis: Vec<u32>,
    /// The accepted outer destination addresses, up to 8. Without this parameter all are accepted.
    #[serde(default)]
    local: Vec<Endpoint>,
    /// The outer UDP destination port. The default is the registered port, 4789.
    #[serde(default = "port")]
    port: u16,
    /// Whether outer UDP checksums are verified if present: `true` (the default) or `false`.
    #[serde(default = "yes")]
    verify: bool,
}

fn port() -> u16 {
    vxlan::PORT
}

fn yes() -> bool {
    true
}

// The gates of the drop reasons. The numbers are the indices in `DROPS`.
const NOT_VXLAN: Gate = Gate::drop(0);
const FRAGMENT: Gate = Gate::drop(1);
const BAD_LENGTH: Gate = Gate::drop(2);
const BAD_CHECKSUM: Gate = Gate::drop(3);
const NO_VNI: Gate = Gate::drop(4);
const UNKNOWN_VNI: Gate = Gate::drop(5);
const TRUNCATED: Gate = Gate::drop(6);
const CONGESTION: Gate = Gate::drop(7);
const DROPS: &[Reason] = &[
    Reason { name: "not_vxlan", help: "The frame is not UDP over IPv4 to the port of one of the local addresses." },
    Reason { name: "fragment", help: "The outer packet is a fragment (RFC 7348 section 4.3)." },
    Reason {
        name: "bad_length",
        help: "A length in the outer headers contradicts another length or the length of the frame.",
    },
    Reason { name: "bad_checksum", help: "The outer UDP checksum is wrong." },
    Reason { name: "no_vni", help: "The VXLAN header has no network identifier." },
    Reason { name: "unknown_vni", help: "The network is not listed." },
    Reason { name: "truncated", help: "The VXLAN header or the inner Ethernet header is cut short." },
    Reason {
        name: "congestion",
        help: "The outer packet has met congestion, and the inner packet cannot be marked (RFC 6040).",
    },
];

/// The headers of a VXLAN packet without options, directly above Ethernet, and the inner Ethernet header.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Plain {
    ethernet: Ethernet,
    outer: Ipv4,
    udp: Udp,
    vxlan: Vxlan,
    inner: Ethernet,
}

const ETHERNET: usize = size_of::<Ethernet>();
/// The number of bytes before the inner frame.
const HEADERS: usize = size_of::<Plain>() - ETHERNET;

/// The network function `vxlan_decap`.
pub struct VxlanDecap {
    /// The accepted network identifiers. If empty, all are accepted.
    vnis: Vec<u32>,
    /// The accepted outer destination addresses. If empty, all are accepted.
    local: Vec<u32>,
    port: u16,
    verify: bool,
    word: Word,
}

impl Declare for VxlanDecap {
    type Params = Params;
    const NAME: &'static str = "vxlan_decap";
    const SUMMARY: &'static str = "takes frames out of a VXLAN over IPv4";
    const HELP: &'static str = "\
        The function removes the outer headers. The inner frame (RFC 7348) is unchanged and keeps its VLAN tag. Its \
        network is in the metadata word `vni`. Reserved bits of the header are ignored. A congestion mark of the outer \
        packet is copied to the inner packet (RFC 6040). `vxlan_decap` does not check the outer IPv4 checksum: to \
        check it, put `ip_validate` before `vxlan_decap`. The function does not reassemble fragments, and does not \
        learn the sources of frames.";
    const EXAMPLE: &'static str = "{ vnis: [4096, 4097], local: [192.0.2.1] }";
    const TRAFFIC: &'static str =
        "{ tunnel: { vxlan: { source: 198.18.0.1, destination: 192.0.2.1, vni: 4096, networks: 2 } } }";
    const DROPS: &'static [Reason] = DROPS;
    const WRITES: &'static [&'static str] = &[WORD];
    const STATE: StateKind = StateKind::None;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        for (name, count, most) in [("vnis", params.vnis.len(), 64), ("local", params.local.len(), 8)] {
            if count > most {
                return Err(SetupError::not_allowed(name, format!("{count} entries"), format!("up to {most}")));
            }
        }
        if let Some(index) = params.vnis.iter().position(|vni| *vni > vxlan::MAX_VNI) {
            let vni = params.vnis[index];
            let wrong = format!("{vni} is not a network identifier");
            let allowed = format!("0 to {}", vxlan::MAX_VNI);
            return Err(SetupError::wrong(format!("vnis[{index}]"), vni, wrong, allowed));
        }
        if params.port == 0 {
            return Err(SetupError::wrong("port", "0", "0 is not a port", "1 to 65535"));
        }
        Ok(Self {
            vnis: params.vnis,
            local: params.local.iter().map(|address| address.0).collect(),
            port: params.port,
            verify: params.verify,
            word: setup.word(WORD)?,
        })
    }
}

impl VxlanDecap {
    #[inline(always)]
    fn is_local(&self, address: u32) -> bool {
        self.local.is_empty() || self.local.contains(&address)
    }

    #[inline(always)]
    fn is_known(&self, vni: u32) -> bool {
        self.vnis.is_empty() || self.vnis.contains(&vni)
    }

    /// Unwraps a usual frame of an accepted network. A frame is usual if its outer IPv4 header has no options, is no
    /// fragment and has a [neutral](ecn::is_neutral) mark, if it has no padding, and if no UDP checksum has to be
    /// verified. Returns false, without a change, for all other frames: [`unusual`](Self::unusual) handles these.
    #[inline(always)]
    fn usual(&self, packet: &mut Packet) -> bool {
        let Some(Plain { ethernet, outer, udp, vxlan, .. }) = packet.view(0) else { return false };
        let (total, vni) = (outer.total_length.get(), vxlan.vni());
        let shaped = ethernet.ether_type.get() == EtherType::IPV4
            && outer.version_ihl == 0x45
            && outer.flags_fragment.get() & 0x3fff == 0
            && outer.protocol == ipv4::UDP
            && udp.destination.get() == self.port
            && vxlan.flags & 0x08 != 0;
        let fits = packet.len() == ETHERNET + usize::from(total)
            && udp.length.get() == total.wrapping_sub(size_of::<Ipv4>() as u16);
        let taken = shaped
            && fits
            && ecn::is_neutral(outer.traffic_class)
            && (udp.checksum.get() == 0 || !self.verify)
            && self.is_local(u32::from_be_bytes(outer.destination))
            && self.is_known(vni);
        if taken {
            packet.strip(HEADERS);
            packet.forget_layers();
            packet.set_word(self.word, vni);
        }
        taken
    }

    /// Unwraps any frame and returns its gate. A frame that is dropped for congestion is already unwrapped.
    #[cold]
    #[inline(never)]
    fn unusual(&self, packet: &mut Packet) -> Gate {
        if packet.network().0 == Network::Ipv6 {
            return NOT_VXLAN;
        }
        let datagram = match datagram(packet, self.port, self.verify) {
            Ok(datagram) if matches!(datagram.destination, IpAddr::V4(to) if self.is_local(to.to_bits())) => datagram,
            Ok(_) | Err(Fault::Other) => return NOT_VXLAN,
            Err(Fault::Fragment) => return FRAGMENT,
            Err(Fault::Length) => return BAD_LENGTH,
            Err(Fault::Checksum) => return BAD_CHECKSUM,
        };
        let (vni, start) = match Vxlan::parse(packet.data().get(datagram.payload..datagram.end).unwrap_or_default()) {
            Ok((_, frame)) if frame.len() < ETHERNET => return TRUNCATED,
            Ok((vni, frame)) => (vni, datagram.end - frame.len()),
            Err(VxlanError::Truncated(_)) => return TRUNCATED,
            Err(VxlanError::NoVni(_)) => return NO_VNI,
        };
        if !self.is_known(vni) {
            return UNKNOWN_VNI;
        }
        packet.truncate(datagram.end);
        packet.strip(start);
        packet.forget_layers();
        packet.set_word(self.word, vni);
        if ecn::pass_on(packet, datagram.class) { Gate::FIRST } else { CONGESTION }
    }
}

impl Function for VxlanDecap {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        // `Context::filter` is not used: it has two loops, and the compiler would share one copy of `usual` between
        // them.
        for (index, packet) in batch.iter_mut().enumerate() {
            if !self.usual(packet) {
                let gate = self.unusual(packet);
                if gate != Gate::FIRST {
                    context.put(index, gate);
                }
            }
        }
    }
}

register!(VxlanDecap);

#[cfg(test)]
mod tests;
