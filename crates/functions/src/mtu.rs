//! Keeps packets to the length that the next link takes: cuts into fragments what may be cut, and rejects what may not.

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_packet::wire::ipv4::Ipv4;
use forebay_packet::{Network, Packet};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::parameters::Rejected;

mod fragments;

/// Parameters of `mtu`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// How long packets may be from the IP header on, 68 to 65535 bytes.
    mtu: u16,
    /// Whether IPv4 packets that are longer and may be cut into fragments are: `true` (the default) or `false`.
    #[serde(default = "yes")]
    fragment: bool,
    /// What becomes of packets that are too long: `drop` (the default), or `gate`: they leave by the gate `too_big`.
    #[serde(default)]
    too_big: Rejected,
}

fn yes() -> bool {
    true
}

const TOO_BIG: Gate = Gate::drop(0);
const BAD_LENGTH: Gate = Gate::drop(1);
const POOL_EMPTY: Gate = Gate::drop(2);
const DROPS: &[Reason] = &[
    Reason { name: "too_big", help: "The packet is longer than the MTU, and may not or should not be cut." },
    Reason {
        name: "bad_length",
        help: "A packet that would be cut has lengths that contradict each other, or options that do.",
    },
    Reason { name: "no_chunks", help: "The pool had no chunks for all fragments of the packet: the datagram is lost." },
];

/// Position in [`CREATES`].
const FRAGMENT: usize = 0;
const CREATES: &[Reason] = &[Reason { name: "fragment", help: "A packet was cut: each fragment but the first." }];

/// The function.
pub struct Mtu {
    mtu: usize,
    fragment: bool,
    too_big: Gate,
}

impl Declare for Mtu {
    type Params = Params;
    const NAME: &'static str = "mtu";
    const SUMMARY: &'static str = "cuts IPv4 packets longer than a link takes into fragments, and rejects others";
    const HELP: &'static str = "\
        A packet of IPv4 that is longer and may be cut becomes fragments (RFC 791 section 3.2): all but the last \
        as long as may be, options that say so in each. What may not be (don't fragment), and every longer packet \
        of IPv6, is dropped or leaves by the gate `too_big`, behind which `icmp_error` with `error: too_big` and \
        the same `mtu` informs its sender (RFC 1191, RFC 8201). Other frames pass. Lengths are those that IP \
        headers state. Fragments of a packet with a wrong header checksum have wrong ones, too: `ip_validate` \
        before drops such packets.";
    const EXAMPLE: &'static str = "{ mtu: 1400, too_big: gate }";
    const DROPS: &'static [Reason] = DROPS;
    const CREATES: &'static [Reason] = CREATES;
    const STATE: StateKind = StateKind::None;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        if params.mtu < 68 {
            return Err(SetupError::at("mtu", format!("{}: allowed are 68 to 65535 bytes", params.mtu)));
        }
        if params.too_big == Rejected::Gate {
            setup.gates(["0", "too_big"])?;
        }
        Ok(Self { mtu: params.mtu.into(), fragment: params.fragment, too_big: params.too_big.resolve(1, TOO_BIG) })
    }
}

impl Mtu {
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
                        self.cut(packet, start, context)
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
            // A frame this short cannot hold a longer packet; one that says it does is cut short, and no link minds its length.
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
