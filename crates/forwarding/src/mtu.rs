//! Keeps packets to the MTU of the next link: fragments packets that may be fragmented, and rejects all others.

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_packet::wire::ipv4::Ipv4;
use forebay_packet::{Network, Packet};
use forebay_tables::parameters::RejectAction;
use schemars::JsonSchema;
use serde::Deserialize;

mod fragments;

/// Parameters of `mtu`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The greatest length of packets from the IP header on, 68 to 65535 bytes.
    #[schemars(range(min = 68, max = 65_535))]
    mtu: u16,
    /// Fragments longer IPv4 packets that may be fragmented (`true`, the default), or treats them as `too_big`
    /// (`false`).
    #[serde(default = "yes")]
    fragment: bool,
    /// The action for packets that are too long: `drop` (the default), or `gate`, which sends them to the gate
    /// `too_big`.
    #[serde(default)]
    too_big: RejectAction,
}

fn yes() -> bool {
    true
}

const TOO_BIG: Gate = Gate::drop(0);
const BAD_LENGTH: Gate = Gate::drop(1);
const POOL_EMPTY: Gate = Gate::drop(2);
/// The drop reasons. The number of a drop gate is the index of its reason in this list. A test requires the same names
/// and texts in `docs/drops.md`.
const DROPS: &[Reason] = &[
    Reason { name: "too_big", help: "The packet is longer than the MTU, and must not be fragmented." },
    Reason {
        name: "bad_length",
        help: "A packet that would be fragmented has lengths or options that contradict each other.",
    },
    Reason { name: "no_chunks", help: "The pool had no chunks for all fragments of the packet: the datagram is lost." },
];

/// Index in [`CREATES`].
const FRAGMENT: usize = 0;
const CREATES: &[Reason] =
    &[Reason { name: "fragment", help: "A packet was fragmented: each fragment except the first." }];

/// The network function `mtu`.
pub struct Mtu {
    /// The greatest length of a packet from its IP header on, in bytes.
    mtu: usize,
    fragment: bool,
    /// The gate of packets that are too long and are not fragmented.
    too_big: Gate,
}

impl Declare for Mtu {
    type Params = Params;
    const NAME: &'static str = "mtu";
    const SUMMARY: &'static str =
        "fragments IPv4 packets that exceed a link's MTU, and rejects other packets that exceed it";
    const HELP: &'static str = "\
        An IPv4 packet that is longer than the MTU and may be fragmented becomes fragments (RFC 791 section 3.2). All \
        fragments except the last have the greatest allowed length. Options with the copy flag are in every fragment. \
        A packet that is longer than the MTU is dropped, or leaves by the gate `too_big`, if it is IPv6 or has the \
        don't-fragment bit, or if the parameter `fragment` is `false`. To inform its sender (RFC 1191, RFC 8201), put \
        `icmp_error` with `error: too_big` and the same `mtu` behind this gate. All other frames pass. Lengths are \
        those in the IP headers. Fragments of a packet with a wrong header checksum have wrong checksums, too: to drop \
        such packets, put `ip_validate` before.";
    const EXAMPLE: &'static str = "{ mtu: 1400, too_big: gate }";
    const DROPS: &'static [Reason] = DROPS;
    const CREATES: &'static [Reason] = CREATES;
    const STATE: StateKind = StateKind::None;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        if params.mtu < 68 {
            return Err(SetupError::not_allowed("mtu", params.mtu, "68 to 65535 bytes"));
        }
        if params.too_big == RejectAction::Gate {
            setup.gates(["0", "too_big"])?;
        }
        Ok(Self { mtu: params.mtu.into(), fragment: params.fragment, too_big: params.too_big.resolve(1, TOO_BIG) })
    }
}

impl Mtu {
    /// Handles a frame that is longer than the MTU, except a frame whose IPv4 packet alone fits. Returns the gate of
    /// the packet. Fragments the packet if it may be fragmented.
    #[cold]
    #[inline(never)]
    fn unusual(&self, packet: &mut Packet, context: &mut Context<'_>) -> Gate {
        let (network, start) = packet.network();
        match network {
            Network::Other => Gate::FIRST,
            Network::Ipv6 => match packet.ipv6() {
                Some(header) if 40 + usize::from(header.payload_length.get()) > self.mtu => self.too_big,
                _ => Gate::FIRST,
            },
            Network::Ipv4 => match packet.view::<Ipv4>(start) {
                Some(header) if usize::from(header.total_length.get()) > self.mtu => {
                    if self.fragment && header.flags_fragment.get() & 0x4000 == 0 {
                        self.fragment(packet, start, context)
                    } else {
                        self.too_big
                    }
                }
                _ => Gate::FIRST,
            },
        }
    }
}

impl Function for Mtu {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let mtu = self.mtu;
        for (index, packet) in batch.iter_mut().enumerate() {
            // A frame this short cannot contain a packet that is too long. If its header has a greater length, the
            // packet was cut, and the bytes that remain fit the link.
            if packet.len() <= mtu {
                continue;
            }
            let fits = packet.ipv4().is_some_and(|header| usize::from(header.total_length.get()) <= mtu);
            if !fits {
                let gate = self.unusual(packet, context);
                if gate != Gate::FIRST {
                    context.put(index, gate);
                }
            }
        }
    }
}

register!(Mtu);

#[cfg(test)]
mod tests;
