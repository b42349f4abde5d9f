//! Completes checksums that a sender on this host has left to a device that does not exist.
//!
//! Linux passes a frame to veth and similar interfaces with only the sum of the pseudo-header in the checksum field
//! (`CHECKSUM_PARTIAL`), because the frame never reaches a wire. AF_XDP does not report which frames these are. Such a
//! frame can be recognised: its checksum field contains that sum, and the checksum is wrong. Both conditions must be
//! checked, because in one of 65536 frames the right checksum is equal to that sum.

use forebay_packet::wire::checksum::{add, sum};
use forebay_packet::{Network, Packet};

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Completes a partial TCP or UDP checksum, and returns true. Returns false, without a change, for all other packets.
/// Fragments are never changed, because a fragment does not contain all bytes that the checksum covers.
#[inline]
pub fn complete(packet: &mut Packet) -> bool {
    let (network, at) = packet.network();
    let frame = packet.data();
    let Some(header) = frame.get(at..) else { return false };
    // The range of the addresses, the protocol, and the start and end of the segment, as offsets from the IP header.
    let (addresses, protocol, from, to) = match network {
        Network::Ipv4 => {
            let Some(fixed) = header.first_chunk::<20>() else { return false };
            let fragment = u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff;
            if fragment != 0 {
                return false;
            }
            let length = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
            (12..20, fixed[9], usize::from(fixed[0] & 0xf) * 4, length)
        }
        Network::Ipv6 => {
            let Some(fixed) = header.first_chunk::<40>() else { return false };
            let length = usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
            (8..40, fixed[6], 40, 40 + length)
        }
        _ => return false,
    };
    let field = match protocol {
        TCP => 16,
        UDP => 6,
        _ => return false,
    };
    let Some(segment) = header.get(from..to) else { return false };
    let Some(current) = segment.get(field..field + 2) else { return false };
    let current = u16::from_ne_bytes([current[0], current[1]]);
    // RFC 9293 section 3.1 and RFC 768: addresses, protocol, length.
    let length = (segment.len() as u16).to_be();
    let pseudo = add(add(sum(&header[addresses]), u16::from(protocol).to_be()), length);
    if current != pseudo {
        return false;
    }
    let whole = sum(segment);
    if add(whole, pseudo) == u16::MAX {
        // The checksum is right already.
        return false;
    }
    // The sum of the segment includes the pseudo-header, because the checksum field contains the sum of the
    // pseudo-header.
    let right = match !whole {
        // RFC 768: a checksum of zero is written as all ones.
        0 if protocol == UDP => u16::MAX,
        right => right,
    };
    let at = at + from + field;
    let Some(bytes) = packet.data_mut().get_mut(at..at + 2) else { return false };
    bytes.copy_from_slice(&right.to_ne_bytes());
    true
}

#[cfg(test)]
mod tests {
    use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};
    use forebay_packet::{Pool, PoolOptions};
    use proptest::prelude::*;

    use super::*;

    fn packet(frame: &[u8]) -> Packet {
        let pool = Pool::new(PoolOptions { chunks: 1, ..PoolOptions::default() }).expect("memory");
        let mut packet = pool.take().expect("one");
        assert!(packet.write(frame));
        packet
    }

    /// Returns a frame with the right checksum, and the offset of the checksum.
    fn frame(v6: bool, tcp: bool, ports: [u16; 2], payload: &[u8]) -> (Vec<u8>, usize) {
        let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let ip = match v6 {
            true => ethernet.ipv6([0xfd; 16], [0x20; 16], 64),
            false => ethernet.ipv4([192, 0, 2, 1], [198, 51, 100, 7], 64),
        };
        let mut frame = Vec::new();
        let done = match tcp {
            true => ip.tcp(ports[0], ports[1], 1, 65_000).write(&mut frame, payload),
            false => ip.udp(ports[0], ports[1]).write(&mut frame, payload),
        };
        done.expect("memory");
        (frame, 14 + if v6 { 40 } else { 20 } + if tcp { 16 } else { 6 })
    }

    /// Returns the value that Linux leaves in the field, according to `tcp_v4_send_check` and similar functions: the
    /// folded sum of the pseudo-header.
    fn partial_sum(frame: &[u8], v6: bool, tcp: bool) -> [u8; 2] {
        let (addresses, from) = if v6 { (22..54, 54) } else { (26..34, 34) };
        let words = frame[addresses].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
        let mut sum: u32 = words.sum::<u32>() + (frame.len() - from) as u32 + if tcp { 6 } else { 17 };
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        (sum as u16).to_be_bytes()
    }

    proptest! {
        /// The oracle is etherparse's own checksum of the same frame.
        #[test]
        fn a_partial_checksum_is_completed_and_a_right_one_is_kept(
            v6: bool,
            tcp: bool,
            ports: [u16; 2],
            mut payload in proptest::collection::vec(any::<u8>(), 0..200),
            padding in 0..10usize,
        ) {
            if payload.len() > 150 {
                payload.fill(0);
            }
            let (mut right, field) = frame(v6, tcp, ports, &payload);
            let partial_sum = partial_sum(&right, v6, tcp);
            let mut partial = right.clone();
            partial[field..field + 2].copy_from_slice(&partial_sum);
            right.extend(vec![0xee; padding]);
            partial.extend(vec![0xee; padding]);
            let mut whole = packet(&right);
            prop_assert!(!complete(&mut whole));
            prop_assert_eq!(whole.data(), &right[..]);
            let mut done = packet(&partial);
            prop_assert_eq!(complete(&mut done), right != partial);
            prop_assert_eq!(done.data(), &right[..]);
        }

        #[test]
        fn no_frame_causes_a_panic(frame in proptest::collection::vec(any::<u8>(), 0..120), ipv4: bool) {
            let mut frame = frame;
            if let Some(kind) = frame.get_mut(12..15) {
                kind.copy_from_slice(if ipv4 { &[8, 0, 0x45] } else { &[0x86, 0xdd, 0x60] });
            }
            complete(&mut packet(&frame));
        }
    }

    #[test]
    fn a_wrong_checksum_that_was_not_partial_stays_wrong() {
        let (mut wrong, field) = frame(false, false, [1, 2], b"payload");
        wrong[field] ^= 0x55;
        let mut kept = packet(&wrong);
        assert!(!complete(&mut kept));
        assert_eq!(kept.data(), &wrong[..]);
        let sliced = SlicedPacket::from_ethernet(kept.data()).expect("a frame");
        assert!(matches!(sliced.transport, Some(TransportSlice::Udp(_))));
    }
}
