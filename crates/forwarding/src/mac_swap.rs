//! Swaps the Ethernet addresses: sends a frame back to its sender, as reflectors and test beds do.

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_packet::Packet;
use forebay_packet::wire::ethernet::Ethernet;
use schemars::JsonSchema;
use serde::Deserialize;

/// `mac_swap` has no parameters.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {}

const TRUNCATED: Gate = Gate::drop(0);

/// The network function `mac_swap`.
pub struct MacSwap;

impl Declare for MacSwap {
    type Params = Params;
    const NAME: &'static str = "mac_swap";
    const SUMMARY: &'static str = "swaps the Ethernet source and destination address";
    const HELP: &'static str = "Every frame leaves by the one gate. The rest of the frame is not checked.";
    const EXAMPLE: &'static str = "{}";
    const DROPS: &'static [Reason] =
        &[Reason { name: "truncated", help: "The frame is shorter than an Ethernet header." }];
    const STATE: StateKind = StateKind::None;

    fn new(_: Params, _: &mut Setup<'_>) -> Result<Self, SetupError> {
        Ok(Self)
    }
}

impl Function for MacSwap {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        context.filter(batch, swap, |_| TRUNCATED);
    }
}

/// Swaps the addresses. Returns false if the frame does not have both.
#[inline]
fn swap(packet: &mut Packet) -> bool {
    let Some(header) = packet.data_mut().first_chunk_mut::<{ size_of::<Ethernet>() }>() else { return false };
    // All bytes are read before the first is written, so that the compiler generates one shuffle instruction.
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, ..] = *header;
    header[..12].copy_from_slice(&[s0, s1, s2, s3, s4, s5, d0, d1, d2, d3, d4, d5]);
    true
}

register!(MacSwap);

#[cfg(test)]
mod tests {
    use forebay_graph::Rig;
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_are_swapped_and_swapped_back() {
        let mut rig = Rig::of::<MacSwap>(&json!({})).expect("no parameters");
        let frame: Vec<u8> = (0..60).collect();
        let (gate, swapped) = rig.run(&frame);
        assert_eq!(gate, Gate::FIRST);
        assert_eq!(swapped[..14], [6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 12, 13]);
        assert_eq!(rig.run(&swapped).1, frame);
    }

    #[test]
    fn a_frame_that_ends_inside_the_header_is_dropped() {
        let mut rig = Rig::of::<MacSwap>(&json!({})).expect("no parameters");
        assert_eq!(rig.run(&[1; 13]).0, TRUNCATED);
    }
}
