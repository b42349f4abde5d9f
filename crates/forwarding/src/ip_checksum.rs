//! Recomputes the IPv4 header checksum.

use forebay_graph::{Context, Declare, Fold, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_packet::wire::ipv4::Ipv4;
use forebay_packet::{Network, Packet};
use schemars::JsonSchema;
use serde::Deserialize;
use zerocopy::FromBytes;

/// Parameters of `ip_checksum`: none.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {}

const BAD_HEADER: Gate = Gate::drop(0);
/// The drop reasons. The number of a drop gate is the index of its reason in this list. A test requires the same names
/// and texts in `docs/drops.md`.
const DROPS: &[Reason] = &[Reason {
    name: "bad_header",
    help: "The IPv4 header length is below 20 bytes, or the frame ends inside the header.",
}];

/// The network function `ip_checksum`. It has no state.
pub struct IpChecksum;

impl Declare for IpChecksum {
    type Params = Params;
    const NAME: &'static str = "ip_checksum";
    const SUMMARY: &'static str = "recomputes the IPv4 header checksum";
    const HELP: &'static str = "\
        Computes the checksum over the header and its options (RFC 791 section 3.1, RFC 1071), and writes it, whether \
        the old value was right or wrong. IPv6 packets, which have no header checksum, and frames that are not IP pass \
        unchanged. Only the header length is checked, because it is needed for the computation.";
    const EXAMPLE: &'static str = "{}";
    const DROPS: &'static [Reason] = DROPS;
    const STATE: StateKind = StateKind::None;
    const FOLD: Option<Fold<Self>> = Some(|_| Box::new(Self));

    fn new(_: Params, _: &mut Setup<'_>) -> Result<Self, SetupError> {
        Ok(Self)
    }
}

/// Writes the checksum of an IPv4 header. Returns false if the header is incomplete or its length is invalid. Returns
/// true, and changes nothing, for packets that are not IPv4.
#[inline]
fn recompute(packet: &mut Packet) -> bool {
    let (Network::Ipv4, start) = packet.network() else { return true };
    let Some((header, rest)) = packet.data_mut().get_mut(start..).and_then(|bytes| Ipv4::mut_from_prefix(bytes).ok())
    else {
        return false;
    };
    let options = header.header_len().and_then(|length| rest.get(..length - size_of::<Ipv4>()));
    options.map(|options| header.update_checksum(options)).is_some()
}

impl Function for IpChecksum {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        context.filter(batch, recompute, |_| BAD_HEADER);
    }
}

register!(IpChecksum);

#[cfg(test)]
mod tests {
    use etherparse::{Ipv4HeaderSlice, PacketBuilder};
    use forebay_graph::Rig;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn rig() -> Rig {
        Rig::of::<IpChecksum>(&json!({})).expect("no parameters")
    }

    #[test]
    fn frames_without_an_ipv4_header_pass_unchanged() {
        let mut v6 = Vec::new();
        PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv6([1; 16], [2; 16], 64)
            .udp(1, 2)
            .write(&mut v6, b"abc")
            .expect("memory");
        for frame in [v6, vec![0xff; 60], vec![1; 5], vec![]] {
            assert_eq!(rig().run(&frame), (Gate::FIRST, frame));
        }
    }

    #[test]
    fn an_incomplete_header_is_dropped() {
        let frame = |first: u8| [&[2; 12], &[0x08, 0x00, first][..], &[0; 30]].concat();
        assert_eq!(rig().run(&frame(0x44)), (BAD_HEADER, frame(0x44)), "four words");
        assert_eq!(rig().run(&frame(0x48)), (BAD_HEADER, frame(0x48)), "32 bytes of 31");
        assert_eq!(rig().run(&frame(0x47)).0, Gate::FIRST, "28 bytes of 31");
    }

    proptest! {
        #[test]
        fn it_equals_the_checksum_of_etherparse(
            header in prop::collection::vec(any::<u8>(), 60),
            words in 5u8..=15,
            tags in 0usize..3,
        ) {
            let tag = [0x81, 0x00, 0x00, 0x07].repeat(tags);
            let mut frame = [&[2; 12], &tag[..], &[0x08, 0x00], &header].concat();
            let start = 14 + tag.len();
            frame[start] = 0x40 | words;
            let (gate, after) = rig().run(&frame);
            prop_assert_eq!(gate, Gate::FIRST);
            let parsed = Ipv4HeaderSlice::from_slice(&after[start..]).expect("a header");
            // The parsed header loses the reserved flag, so the sum is compared only if that flag is not set.
            if frame[start + 6] & 0x80 == 0 {
                prop_assert_eq!(parsed.header_checksum(), parsed.to_header().calc_header_checksum());
            }
            frame[start + 10..start + 12].copy_from_slice(&after[start + 10..start + 12]);
            prop_assert_eq!(after, frame, "nothing else changes");
        }
    }
}
