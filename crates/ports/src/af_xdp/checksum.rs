//! Completes checksums that a sender on this host has left to a device that there is not.
//!
//! Linux gives a frame to veth and the like with only the pseudo-header's sum where the checksum will be (`CHECKSUM_PARTIAL`),
//! because it never meets a wire; AF_XDP does not say which frames those are. They tell it themselves: the field holds that
//! very sum, and the checksum is wrong. One frame in 65536 has a right checksum that is equal to the sum: hence both.

use forebay_packet::wire::checksum::{add, sum};
use forebay_packet::{Network, Packet};

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Completes a TCP or UDP checksum that is only begun; whether it was. Fragments have none of their own.
#[inline]
pub fn complete(packet: &mut Packet) -> bool {
    let (network, at) = packet.network();
    let frame = packet.data();
    let Some(header) = frame.get(at..) else { return false };
    // Addresses, protocol, and where the transport header and its end are.
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
    let Some(held) = segment.get(field..field + 2) else { return false };
    let held = u16::from_ne_bytes([held[0], held[1]]);
    // RFC 9293 section 3.1 and RFC 768: addresses, protocol, length.
    let length = (segment.len() as u16).to_be();
    let pseudo = add(add(sum(&header[addresses]), u16::from(protocol).to_be()), length);
    if held != pseudo {
        return false;
    }
    let whole = sum(segment);
    if add(whole, pseudo) == u16::MAX {
        // Right as it is.
        return false;
    }
    // The sum of all with the field as it is has the pseudo-header in it.
    let right = match !whole {
        // RFC 768: none is written as all ones.
        0 if protocol == UDP => u16::MAX,
        right => right,
    };
    let at = at + from + field;
    let Some(place) = packet.data_mut().get_mut(at..at + 2) else { return false };
    place.copy_from_slice(&right.to_ne_bytes());
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

    /// A frame with the right checksum, and where that is.
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

    /// What Linux leaves in the field, by the letter of `tcp_v4_send_check` and its like: the folded sum of the pseudo-header.
    fn begun(frame: &[u8], v6: bool, tcp: bool) -> [u8; 2] {
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
        fn a_checksum_that_is_begun_is_completed_and_a_right_one_left_alone(
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
            let begun = begun(&right, v6, tcp);
            let mut partial = right.clone();
            partial[field..field + 2].copy_from_slice(&begun);
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
        fn no_frame_makes_it_panic(frame in proptest::collection::vec(any::<u8>(), 0..120), ipv4: bool) {
            let mut frame = frame;
            if let Some(kind) = frame.get_mut(12..15) {
                kind.copy_from_slice(if ipv4 { &[8, 0, 0x45] } else { &[0x86, 0xdd, 0x60] });
            }
            complete(&mut packet(&frame));
        }
    }

    #[test]
    fn a_wrong_checksum_that_was_not_begun_stays_wrong() {
        let (mut wrong, field) = frame(false, false, [1, 2], b"payload");
        wrong[field] ^= 0x55;
        let mut kept = packet(&wrong);
        assert!(!complete(&mut kept));
        assert_eq!(kept.data(), &wrong[..]);
        let sliced = SlicedPacket::from_ethernet(kept.data()).expect("a frame");
        assert!(matches!(sliced.transport, Some(TransportSlice::Udp(_))));
    }
}
