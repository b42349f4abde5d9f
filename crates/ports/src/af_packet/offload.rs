//! Completes the work that a sender has left to its interface: checksums, segmentation and VLAN tags. On a veth pair,
//! no interface does this work. So the port does this work before network functions receive the frames.

use forebay_packet::Packet;
use forebay_packet::wire::checksum;
use forebay_packet::wire::ipv4::{TCP, UDP};

use super::block::{Frame, Partial, SegmentType};

/// The length of both Ethernet addresses. Tags follow them.
const ADDRESSES: usize = 12;
/// The TCP flags FIN and PSH. If a segment is split, only its last part keeps them (RFC 9293 section 3.1).
const FIN_PUSH: u8 = 0x09;
/// The TCP flag CWR. If a segment is split, only its first part keeps the flag (RFC 3168 section 6.1).
const CONGESTION_WINDOW_REDUCED: u8 = 0x80;
/// The offset of the checksum in a TCP header.
const TCP_CHECKSUM: usize = 16;
/// The offset of the checksum in a UDP header. A [`Partial`] with this offset is taken for UDP.
const UDP_CHECKSUM: usize = 6;
/// The offset of the checksum in an SCTP header. A [`Partial`] with this offset is taken for SCTP.
const SCTP_CHECKSUM: usize = 8;

/// Completes a partial checksum. Returns `false`, and leaves the frame unchanged, if the checksum is not within the
/// frame. The caller then drops the frame.
#[must_use]
pub fn complete(frame: &mut [u8], partial: Partial) -> bool {
    let Some(covered) = frame.get_mut(partial.start..) else { return false };
    if partial.offset == SCTP_CHECKSUM {
        // SCTP uses no Internet checksum, and the sender has computed no part of it (RFC 9260 section 6.8).
        let Some(field) = covered.get_mut(SCTP_CHECKSUM..SCTP_CHECKSUM + 4) else { return false };
        field.fill(0);
        let sum = crc32c(covered).to_le_bytes();
        covered[SCTP_CHECKSUM..SCTP_CHECKSUM + 4].copy_from_slice(&sum);
        return true;
    }
    if covered.get(partial.offset..).is_none_or(|field| field.len() < 2) {
        return false;
    }
    // The field already has the sum of the pseudo-header.
    let sum = stored(checksum::sum(covered), partial.offset == UDP_CHECKSUM);
    covered[partial.offset..partial.offset + 2].copy_from_slice(&sum.to_ne_bytes());
    true
}

/// Returns the checksum field for a sum of the covered bytes, with all ones instead of 0 for UDP. A UDP checksum of 0
/// would mean that the datagram has no checksum (RFC 768).
fn stored(sum: u16, udp: bool) -> u16 {
    if udp && sum == 0xffff { sum } else { !sum }
}

/// Computes CRC32c (RFC 9260 appendix A), in steps of four bits. A small table is sufficient, because few frames need
/// the sum.
fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 16] = {
        let mut table = [0; 16];
        let mut at = 0;
        while at < 16 {
            let (mut rest, mut bit) = (at as u32, 0);
            while bit < 4 {
                rest = if rest & 1 == 1 { rest >> 1 ^ 0x82f6_3b78 } else { rest >> 1 };
                bit += 1;
            }
            table[at] = rest;
            at += 1;
        }
        table
    };
    let half = |crc: u32| crc >> 4 ^ TABLE[(crc & 15) as usize];
    !bytes.iter().fold(u32::MAX, |crc, byte| half(half(crc ^ u32::from(*byte))))
}

/// Inserts a VLAN tag after the addresses of a frame. Returns `false`, and leaves the packet unchanged, if the frame
/// has no complete addresses or the packet has too little headroom.
#[must_use]
#[inline]
pub fn put_tag(packet: &mut Packet, tag: [u8; 4]) -> bool {
    if packet.len() < ADDRESSES || packet.prepend(tag.len()).is_none() {
        return false;
    }
    let frame = packet.data_mut();
    frame.copy_within(tag.len()..tag.len() + ADDRESSES, 0);
    frame[ADDRESSES..ADDRESSES + tag.len()].copy_from_slice(&tag);
    true
}

/// The layout of a merged frame, and its split into parts. It is valid for the frame for which it was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// The offset of the IP header.
    network: usize,
    /// The offset of the TCP or UDP header.
    transport: usize,
    /// The offset of the payload. The headers before it are copied into every part.
    payload: usize,
    /// The length of the frame.
    length: usize,
    /// The payload length, in bytes, of each part except the last. Above 0.
    size: usize,
    /// The type of the merged frame.
    kind: SegmentType,
    /// True for IPv6, false for IPv4.
    ipv6: bool,
}

impl Split {
    /// Returns the split of this frame. Returns `None` if the frame is not merged, or is not TCP or UDP directly over
    /// IPv4 or IPv6 with valid header lengths. The caller then drops the frame.
    #[must_use]
    pub fn of(frame: &Frame<'_>) -> Option<Self> {
        let (bytes, merged) = (frame.bytes, frame.merged?);
        let mut network = ADDRESSES;
        let kind = loop {
            let kind = u16::from_be_bytes(*bytes.get(network..)?.first_chunk()?);
            network += 2;
            match kind {
                0x8100 | 0x88a8 => network += 2,
                _ => break kind,
            }
        };
        let header = bytes.get(network..)?;
        let (ipv6, protocol, transport) = match kind {
            0x0800 => (false, *header.get(9)?, network + usize::from(header[0] & 15) * 4),
            0x86dd => (true, *header.get(6)?, network + 40),
            _ => return None,
        };
        if transport < network + 20 || header.first()? >> 4 != if ipv6 { 6 } else { 4 } {
            return None;
        }
        // The checksum to complete is not that of the outermost transport header: the frame is in a tunnel, and the
        // inner frame would have to be split. This is not supported.
        if frame.partial.is_some_and(|partial| partial.start != transport) {
            return None;
        }
        let payload = match (merged.kind, protocol) {
            (SegmentType::Tcp4 | SegmentType::Tcp6, TCP) => {
                transport + usize::from(bytes.get(transport + 12)? >> 4) * 4
            }
            (SegmentType::Udp, UDP) => transport + 8,
            _ => return None,
        };
        let least = if protocol == TCP { 20 } else { 8 };
        let (length, size) = (bytes.len(), merged.size);
        let fits = payload >= transport + least && payload < length && size > 0;
        fits.then_some(Self { network, transport, payload, length, size, kind: merged.kind, ipv6 })
    }

    /// Returns the number of parts, at least 1.
    #[must_use]
    pub fn parts(&self) -> usize {
        (self.length - self.payload).div_ceil(self.size)
    }

    /// Writes the part with this number (from 0) into the packet, with its checksums. `frame` must be the frame of this
    /// split. Returns `false` if the packet is too small or there is no such part. The packet's contents are then
    /// undefined.
    #[must_use]
    pub fn write(&self, frame: &Frame<'_>, part: usize, packet: &mut Packet) -> bool {
        let Self { network, transport, payload, .. } = *self;
        let start = part.saturating_mul(self.size);
        let (Some(headers), Some(rest)) = (frame.bytes.get(..payload), frame.bytes.get(payload..)) else {
            return false;
        };
        let Some(rest) = rest.get(start..) else { return false };
        let content = &rest[..rest.len().min(self.size)];
        if !packet.write(headers) {
            return false;
        }
        let Some(destination) = packet.append(content.len()) else { return false };
        destination.copy_from_slice(content);
        let is_last = content.len() == rest.len();
        let bytes = packet.data_mut();
        let total = bytes.len();
        if self.ipv6 {
            put(bytes, network + 4, (total - network - 40) as u16);
        } else {
            // The sum is all ones if the header checksum of the frame is right.
            let before = checksum::sum(&bytes[network..transport]);
            put(bytes, network + 2, (total - network) as u16);
            // Each part is a separate datagram (RFC 6864). The sender has reserved one identification for each part.
            let identification = u16::from_be_bytes([bytes[network + 4], bytes[network + 5]]);
            put(bytes, network + 4, identification.wrapping_add(part as u16));
            put(bytes, network + 10, 0);
            let right = !checksum::sum(&bytes[network..transport]);
            // If the checksum was wrong, it must be wrong by the same amount in every part. The header may have been
            // corrupted, and the next host must detect that (RFC 1624 section 3).
            let sum = if before == 0xffff { right } else { checksum::add(right, before) };
            bytes[network + 10..network + 12].copy_from_slice(&sum.to_ne_bytes());
        }
        let checksum_at = if self.kind == SegmentType::Udp {
            put(bytes, transport + 4, (total - transport) as u16);
            transport + UDP_CHECKSUM
        } else {
            let sequence = &mut bytes[transport + 4..transport + 8];
            let first = u32::from_be_bytes(*sequence.first_chunk().expect("four bytes"));
            sequence.copy_from_slice(&first.wrapping_add(start as u32).to_be_bytes());
            let flags = &mut bytes[transport + 13];
            *flags &= !if is_last { 0 } else { FIN_PUSH };
            *flags &= !if part == 0 { 0 } else { CONGESTION_WINDOW_REDUCED };
            transport + TCP_CHECKSUM
        };
        put(bytes, checksum_at, 0);
        let (addresses, protocol) = if self.ipv6 {
            (network + 8..network + 40, bytes[network + 6])
        } else {
            (network + 12..network + 20, bytes[network + 9])
        };
        let mut pseudo = [0; 8];
        pseudo[..4].copy_from_slice(&((total - transport) as u32).to_be_bytes());
        pseudo[7] = protocol;
        let sums = [&bytes[addresses], &pseudo, &bytes[transport..]].map(checksum::sum);
        let sum = stored(sums.into_iter().fold(0, checksum::add), self.kind == SegmentType::Udp);
        bytes[checksum_at..checksum_at + 2].copy_from_slice(&sum.to_ne_bytes());
        true
    }
}

/// Writes a number of two bytes in network byte order.
fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// For the fuzz target: processes a frame as the receiver does.
///
/// # Panics
/// Panics if the parts do not add up to the frame.
pub fn fuzz_frame(frame: &Frame<'_>) {
    thread_local! {
        static POOL: forebay_packet::Pool =
            forebay_packet::Pool::new(forebay_packet::PoolOptions { chunks: 64, frame: 9_216, ..Default::default() })
                .expect("memory for a small pool");
    }
    let Some(mut packet) = POOL.with(forebay_packet::Pool::take) else { return };
    if packet.write(frame.bytes) {
        if let Some(partial) = frame.partial {
            let _ = complete(packet.data_mut(), partial);
        }
        let before = packet.len();
        if let Some(tag) = frame.tag
            && put_tag(&mut packet, tag)
        {
            assert_eq!(packet.len(), before + 4, "a tag is four bytes");
        }
    }
    let Some(split) = Split::of(frame) else { return };
    let mut payload = 0;
    for part in 0..split.parts() {
        if !split.write(frame, part, &mut packet) {
            return;
        }
        payload += packet.len() - split.payload;
    }
    assert_eq!(payload, frame.bytes.len() - split.payload, "the parts add up to the frame");
}

#[cfg(test)]
mod tests;
