//! The length of a packet for meters and shapers.

use forebay_packet::Packet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Ipv4View;

/// The bytes of a packet that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// The bytes of the IP packet, without the Ethernet header and padding. For a frame that is not IP: the payload of
    /// the frame.
    Ip,
    /// The bytes of the frame, without its check sequence.
    Frame,
    /// The bytes on a wire: the frame with check sequence, preamble and gap, at least 84 bytes.
    Wire,
}

/// The number of bytes around a frame on a wire: check sequence (4), preamble with delimiter (8) and gap (12), IEEE
/// 802.3 sections 3.1.1 and 4.4.2.
const AROUND: usize = 24;
/// The length of the shortest frame in bytes, without its check sequence.
const SHORTEST: usize = 60;

impl Layer {
    /// Returns the number of bytes that count.
    #[inline(always)]
    #[must_use]
    pub fn length(self, packet: &mut Packet) -> usize {
        self.length_of(packet, None)
    }

    /// Returns the same as [`length`](Self::length). `ipv4` is the packet's IPv4 header if it was already read, so that
    /// it is not read again.
    #[inline(always)]
    #[must_use]
    pub fn length_of(self, packet: &mut Packet, ipv4: Option<Ipv4View>) -> usize {
        match self {
            Self::Ip => ipv4.or_else(|| Ipv4View::of(packet)).map_or_else(|| long_length(packet), |ipv4| ipv4.length),
            Self::Frame => packet.len(),
            Self::Wire => packet.len().max(SHORTEST) + AROUND,
        }
    }
}

/// Returns the IP length of a packet that is not IPv4, or the length of the payload of a frame that is not IP.
#[inline(never)]
fn long_length(packet: &mut Packet) -> usize {
    let (_, start) = packet.network();
    packet.network_end().saturating_sub(start)
}

#[cfg(test)]
mod tests {
    use etherparse::PacketBuilder;
    use forebay_packet::{Pool, PoolOptions};

    use super::*;

    fn lengths(frame: &[u8]) -> [usize; 3] {
        let pool = Pool::new(PoolOptions { chunks: 1, ..PoolOptions::default() }).expect("memory");
        let mut packet = pool.take().expect("a chunk");
        assert!(packet.write(frame));
        [Layer::Ip, Layer::Frame, Layer::Wire].map(|layer| layer.length(&mut packet))
    }

    #[test]
    fn an_ip_packet_is_without_ethernet_around_it() {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([1; 4], [2; 4], 64).udp(1, 2);
        builder.write(&mut frame, &[7; 100]).expect("memory");
        assert_eq!(lengths(&frame), [128, 142, 166]);
        let mut tagged = Vec::new();
        let id = etherparse::VlanId::try_new(5).expect("an identifier");
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).single_vlan(id).ipv6([1; 16], [2; 16], 64).udp(1, 2);
        builder.write(&mut tagged, &[7; 100]).expect("memory");
        assert_eq!(lengths(&tagged), [148, 166, 190]);
    }

    #[test]
    fn padding_does_not_count_and_a_wrong_length_counts_the_frame() {
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([1; 4], [2; 4], 64).udp(1, 2);
        builder.write(&mut frame, &[]).expect("memory");
        frame.resize(60, 0);
        assert_eq!(lengths(&frame), [28, 60, 84]);
        frame[16..18].copy_from_slice(&9_000u16.to_be_bytes());
        assert_eq!(lengths(&frame), [46, 60, 84]);
        frame[16..18].fill(0);
        assert_eq!(lengths(&frame), [46, 60, 84]);
    }

    #[test]
    fn a_frame_that_is_not_ip_counts_its_payload() {
        assert_eq!(lengths(&[0xff; 70]), [70 - 14, 70, 94]);
        assert_eq!(lengths(&[]), [0, 0, 84]);
    }
}
