//! What a sender has left to its interface to do: checksums, cutting into frames, VLAN tags. Over a veth pair nobody has done
//! it when the frame is here, and no function behind may see such a frame.

use forebay_packet::Packet;
use forebay_packet::wire::checksum;
use forebay_packet::wire::ipv4::{TCP, UDP};

use super::block::{Frame, Kind, Partial};

/// Both Ethernet addresses, behind which tags stand.
const ADDRESSES: usize = 12;
/// TCP flags (RFC 9293 section 3.1, RFC 3168 section 6.1): what only the last part of a segment has, and only the first.
const FIN_PUSH: u8 = 0x09;
const CONGESTION_WINDOW_REDUCED: u8 = 0x80;
/// Where TCP, UDP and SCTP have their checksums.
const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;
const SCTP_CHECKSUM: usize = 8;

/// Completes a checksum of which the sum over what follows is missing; `false` where it is not within the frame.
#[must_use]
pub fn complete(frame: &mut [u8], partial: Partial) -> bool {
    let Some(covered) = frame.get_mut(partial.start..) else { return false };
    if partial.offset == SCTP_CHECKSUM {
        // No Internet checksum, and nothing of it has been done (RFC 9260 section 6.8).
        let Some(field) = covered.get_mut(SCTP_CHECKSUM..SCTP_CHECKSUM + 4) else { return false };
        field.fill(0);
        let sum = crc32c(covered).to_le_bytes();
        covered[SCTP_CHECKSUM..SCTP_CHECKSUM + 4].copy_from_slice(&sum);
        return true;
    }
    if covered.get(partial.offset..).is_none_or(|field| field.len() < 2) {
        return false;
    }
    // The sum of the pseudo-header stands in the field already.
    let sum = stored(checksum::sum(covered), partial.offset == UDP_CHECKSUM);
    covered[partial.offset..partial.offset + 2].copy_from_slice(&sum.to_ne_bytes());
    true
}

/// The checksum for a sum of what it covers. Of UDP one of 0 would say that there is none (RFC 768).
fn stored(sum: u16, udp: bool) -> u16 {
    if udp && sum == 0xffff { sum } else { !sum }
}

/// CRC32c (RFC 9260 appendix A), of what few frames have: bit by bit through a table of halves of bytes.
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

/// Puts a VLAN tag into a frame, behind its addresses; `false` where there is no room before it.
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

/// How a frame that is several in one is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    network: usize,
    transport: usize,
    /// Where the payload begins: all before it stands in every part.
    payload: usize,
    length: usize,
    size: usize,
    kind: Kind,
    six: bool,
}

impl Cut {
    /// How this frame is cut; `None` where it is none of those that can be: TCP or UDP straight above IPv4 or IPv6, and
    /// everything in its place.
    #[must_use]
    pub fn of(frame: &Frame<'_>) -> Option<Self> {
        let (bytes, several) = (frame.bytes, frame.several?);
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
        let (six, protocol, transport) = match kind {
            0x0800 => (false, *header.get(9)?, network + usize::from(header[0] & 15) * 4),
            0x86dd => (true, *header.get(6)?, network + 40),
            _ => return None,
        };
        if transport < network + 20 || header.first()? >> 4 != if six { 6 } else { 4 } {
            return None;
        }
        // In a tunnel the inner frame would be what is to be cut.
        if frame.partial.is_some_and(|partial| partial.start != transport) {
            return None;
        }
        let payload = match (several.kind, protocol) {
            (Kind::Tcp4 | Kind::Tcp6, TCP) => transport + usize::from(bytes.get(transport + 12)? >> 4) * 4,
            (Kind::Udp, UDP) => transport + 8,
            _ => return None,
        };
        let least = if protocol == TCP { 20 } else { 8 };
        let (length, size) = (bytes.len(), several.size);
        let fits = payload >= transport + least && payload < length && size > 0;
        fits.then_some(Self { network, transport, payload, length, size, kind: several.kind, six })
    }

    /// Into how many parts; never 0.
    #[must_use]
    pub fn parts(&self) -> usize {
        (self.length - self.payload).div_ceil(self.size)
    }

    /// Makes the packet one of the parts, checksums and all; `false` where it cannot hold it.
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
        let Some(room) = packet.append(content.len()) else { return false };
        room.copy_from_slice(content);
        let is_last = content.len() == rest.len();
        let bytes = packet.data_mut();
        let whole = bytes.len();
        if self.six {
            put(bytes, network + 4, (whole - network - 40) as u16);
        } else {
            // All ones where the frame's own checksum is right.
            let before = checksum::sum(&bytes[network..transport]);
            put(bytes, network + 2, (whole - network) as u16);
            // A datagram of its own (RFC 6864): the sender has set aside as many identifications.
            let identification = u16::from_be_bytes([bytes[network + 4], bytes[network + 5]]);
            put(bytes, network + 4, identification.wrapping_add(part as u16));
            put(bytes, network + 10, 0);
            let right = !checksum::sum(&bytes[network..transport]);
            // A checksum that was wrong is wrong by as much in every part: the header's words are not known to be those
            // that were sent, and the next host has to see that (RFC 1624 section 3).
            let sum = if before == 0xffff { right } else { checksum::add(right, before) };
            bytes[network + 10..network + 12].copy_from_slice(&sum.to_ne_bytes());
        }
        let checksum_at = if self.kind == Kind::Udp {
            put(bytes, transport + 4, (whole - transport) as u16);
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
        let (addresses, protocol) = if self.six {
            (network + 8..network + 40, bytes[network + 6])
        } else {
            (network + 12..network + 20, bytes[network + 9])
        };
        let mut pseudo = [0; 8];
        pseudo[..4].copy_from_slice(&((whole - transport) as u32).to_be_bytes());
        pseudo[7] = protocol;
        let sums = [&bytes[addresses], &pseudo, &bytes[transport..]].map(checksum::sum);
        let sum = stored(sums.into_iter().fold(0, checksum::add), self.kind == Kind::Udp);
        bytes[checksum_at..checksum_at + 2].copy_from_slice(&sum.to_ne_bytes());
        true
    }
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// For the fuzz target: all that would be done with a frame before it enters.
///
/// # Panics
/// Where the parts are not the whole.
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
    let Some(cut) = Cut::of(frame) else { return };
    let mut payload = 0;
    for part in 0..cut.parts() {
        if !cut.write(frame, part, &mut packet) {
            return;
        }
        payload += packet.len() - cut.payload;
    }
    assert_eq!(payload, frame.bytes.len() - cut.payload, "the parts are the whole");
}

#[cfg(test)]
mod tests;
