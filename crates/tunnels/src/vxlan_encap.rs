//! Puts frames into VXLAN tunnels: an Ethernet over an IP network.

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_packet::Packet;
use forebay_packet::wire::vxlan::{self, Vxlan};
use schemars::JsonSchema;
use serde::Deserialize;
use zerocopy::transmute;

use crate::entropy::{Inner, Shown};
use crate::first_unusual;
use crate::outer::{Outer, OuterSettings, Refusal, Start};
use crate::settings::{Dscp, Endpoint, SourcePort};

/// Parameters of `vxlan_encap`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The outer source address.
    source: Endpoint,
    /// The outer destination address: the tunnel endpoint (VTEP) to which frames are sent.
    peer: Endpoint,
    /// The network identifier, 0 to 16777215.
    vni: u32,
    /// The outer UDP source port: `session` (the default: a port from 49152 to 65535, derived from the inner addresses
    /// and ports), or a number.
    #[serde(default)]
    #[schemars(extend("default" = "session"))]
    source_port: SourcePort,
    /// The outer UDP destination port. The default is the registered port, 4789.
    #[serde(default = "port")]
    port: u16,
    /// Whether the outer UDP checksum is computed: `true`, or `false` (the default). With `false` it is 0, which means
    /// that there is no checksum.
    #[serde(default)]
    udp_checksum: bool,
    /// The outer differentiated services code point: `copy` (the default: the code point of the inner packet, or 0 if
    /// the frame is not IP), or a number from 0 to 63.
    #[serde(default)]
    #[schemars(extend("default" = "copy"))]
    dscp: Dscp,
    /// Whether the don't-fragment bit of outer packets is set: `true` (the default) or `false`.
    #[serde(default = "yes")]
    df: bool,
    /// The outer time to live, 1 to 255.
    #[serde(default = "ttl")]
    ttl: u8,
    /// The longest outer packet in bytes, from 68. Longer packets are dropped. The default is 65535, the longest packet
    /// of IPv4.
    mtu: Option<u16>,
}

fn port() -> u16 {
    vxlan::PORT
}

fn yes() -> bool {
    true
}

fn ttl() -> u8 {
    64
}

// The gates of the drop reasons. The numbers are the indices in `DROPS`.
const TRUNCATED: Gate = Gate::drop(0);
const TOO_LONG: Gate = Gate::drop(1);
const NO_HEADROOM: Gate = Gate::drop(2);
const DROPS: &[Reason] = &[
    Reason { name: "truncated", help: "The frame is shorter than an Ethernet header." },
    Reason { name: "too_long", help: "The outer packet would be longer than `mtu`." },
    Reason { name: "no_headroom", help: "There is no room before the frame for the outer headers." },
];

/// The network function `vxlan_encap`.
pub struct VxlanEncap {
    outer: Outer,
    /// The outer destination address, in host byte order.
    peer: u32,
    /// The VXLAN header as a number: its first byte in the packet is the highest byte.
    header: u64,
}

impl Declare for VxlanEncap {
    type Params = Params;
    const NAME: &'static str = "vxlan_encap";
    const SUMMARY: &'static str = "puts frames into a VXLAN over IPv4";
    const HELP: &'static str = "\
        The whole frame stays unchanged. Ethernet, IPv4, UDP and VXLAN headers (RFC 7348) are put before it, 50 bytes \
        in total. The outer Ethernet header has the addresses of the inner one: to write others, put `mac_rewrite` \
        after this module. A module has one network and one peer: put a module such as `vlan_split` or `mac_table` \
        before to select its frames. An inner VLAN tag stays. RFC 7348 section 6.1 recommends frames without an inner \
        tag: to remove it, put `vlan_pop` before. The identification field is 0 if packets may not be fragmented (RFC \
        6864). Otherwise it comes from a counter that all modules with the same `source` share. Congestion \
        notification is copied to the outer header (RFC 6040).";
    const EXAMPLE: &'static str = "{ source: 192.0.2.1, peer: 192.0.2.2, vni: 4096, mtu: 1550 }";
    const DROPS: &'static [Reason] = DROPS;
    const STATE: StateKind = StateKind::None;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let Params { vni, port, peer, .. } = params;
        if vni > vxlan::MAX_VNI {
            let wrong = format!("{vni} is not a network identifier");
            return Err(SetupError::wrong("vni", vni, wrong, format!("0 to {}", vxlan::MAX_VNI)));
        }
        if port == 0 {
            return Err(SetupError::wrong("port", "0", "0 is not a port", "1 to 65535"));
        }
        let outer = Outer::new(
            &OuterSettings {
                source: params.source,
                source_port: params.source_port,
                destination_port: port,
                udp_checksum: params.udp_checksum,
                dscp: params.dscp,
                df: params.df,
                ttl: params.ttl,
                mtu: params.mtu,
            },
            setup,
        )?;
        let header: [u8; 8] = transmute!(Vxlan::of(vni));
        Ok(Self { outer, peer: peer.0, header: u64::from_be_bytes(header) })
    }
}

impl VxlanEncap {
    /// Encapsulates a whole frame. The conditions and errors are those of [`Outer::write`].
    #[inline(always)]
    fn put<const PLAIN: bool>(&mut self, packet: &mut Packet, start: Start, shown: Shown) -> Result<(), Refusal> {
        self.outer.write::<0, PLAIN>(packet, 0, start, shown, self.peer, |_| self.header, [0; 8])
    }

    /// Encapsulates a usual frame: TCP or UDP over IPv4. Returns false, without a change, for all other frames and for
    /// frames that cannot be sent. [`unusual`](Self::unusual) handles these frames.
    #[inline(always)]
    fn usual<const PLAIN: bool>(&mut self, packet: &mut Packet) -> bool {
        let Some(inner) = Inner::of(packet, false) else { return false };
        let shown = inner.shown();
        let Some(start) = Start::of(packet) else { return false };
        self.put::<PLAIN>(packet, start, shown).is_ok()
    }

    /// Encapsulates any frame and returns [`Gate::FIRST`]. If that is not possible, returns the gate of the drop
    /// reason.
    #[cold]
    #[inline(never)]
    fn unusual(&mut self, packet: &mut Packet) -> Gate {
        let Some(start) = Start::of(packet) else { return TRUNCATED };
        let shown = Shown::of(packet);
        match self.put::<false>(packet, start.with_ipv4(), shown) {
            Ok(()) => Gate::FIRST,
            Err(Refusal::TooLong) => TOO_LONG,
            Err(Refusal::NoRoom) => NO_HEADROOM,
        }
    }

    /// Processes the packets of a batch from the index `first` on. The packet at `first` is known to be unusual.
    #[inline(never)]
    fn process_from(&mut self, first: usize, batch: &mut [Packet], context: &mut Context<'_>) {
        for (index, packet) in batch.iter_mut().enumerate().skip(first) {
            if index == first || !self.usual::<false>(packet) {
                let gate = self.unusual(packet);
                if gate != Gate::FIRST {
                    context.put(index, gate);
                }
            }
        }
    }
}

impl Function for VxlanEncap {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let first = if self.outer.is_plain() {
            first_unusual(batch, |packet| self.usual::<true>(packet))
        } else {
            self.outer.begin(batch.len());
            first_unusual(batch, |packet| self.usual::<false>(packet))
        };
        if let Some(first) = first {
            self.process_from(first, batch, context);
        }
    }
}

register!(VxlanEncap);

#[cfg(test)]
mod tests;
