//! Fragments IPv4 packets (RFC 791 section 3.2).

use forebay_graph::{Context, Gate};
use forebay_packet::Packet;
use forebay_packet::wire::checksum;
use forebay_packet::wire::ipv4::Ipv4;
use zerocopy::FromBytes;
use zerocopy::big_endian::U16;

use super::{BAD_LENGTH, FRAGMENT, Mtu, POOL_EMPTY};

/// The flag for more fragments.
const MORE: u16 = 0x2000;
/// The longest header in bytes.
const MOST_HEADER: usize = 60;

/// A header with its options.
#[derive(Clone, Copy)]
struct Header {
    /// The bytes of the header, and zeros.
    bytes: [u8; MOST_HEADER],
    /// The number of bytes of the header.
    len: usize,
    /// The ones' complement sum of the header of the packet that is fragmented; 0xffff if the checksum in it is
    /// correct.
    sum: u16,
}

impl Header {
    /// Copies the header at the start of `bytes`. `None` if it is incomplete or its length field is invalid.
    fn of(bytes: &[u8]) -> Option<Self> {
        let len = Ipv4::ref_from_prefix(bytes).ok()?.0.header_len()?;
        let mut header = Self { bytes: [0; MOST_HEADER], len, sum: checksum::sum(bytes.get(..len)?) };
        header.bytes[..len].copy_from_slice(&bytes[..len]);
        Some(header)
    }

    /// Returns the header of all fragments except the first. It has only the options with the copy flag. `None` if the
    /// options are invalid.
    fn later(&self) -> Option<Self> {
        let mut later = Self { bytes: self.bytes, len: 20, sum: self.sum };
        let mut options = self.bytes.get(20..self.len)?;
        while let [kind, rest @ ..] = options {
            let length = match kind {
                0 => break,
                1 => {
                    options = rest;
                    continue;
                }
                _ => usize::from(*rest.first()?),
            };
            let option = options.get(..length).filter(|_| length >= 2)?;
            if kind & 0x80 != 0 {
                later.bytes[later.len..later.len + length].copy_from_slice(option);
                later.len += length;
            }
            options = &options[length..];
        }
        // Zeros, which mean the end of the options, fill the last 32-bit word.
        let end = later.len.next_multiple_of(4);
        later.bytes[later.len..end].fill(0);
        (later.len, later.bytes[0]) = (end, 0x40 | (end / 4) as u8);
        Some(later)
    }

    /// Writes length, offset and checksum. `payload` is the number of bytes after the header. If the packet's checksum
    /// is wrong, the checksum of every fragment is wrong by the same difference: the header may have been corrupted,
    /// and the next host must detect that (RFC 1624 section 3, RFC 1812 section 4.2.2.5).
    fn finish(&mut self, payload: usize, flags_fragment: u16) {
        let (fixed, options) = self.bytes[..self.len].split_at_mut(20);
        if let Ok(header) = Ipv4::mut_from_bytes(fixed) {
            header.total_length = ((20 + options.len() + payload) as u16).into();
            header.flags_fragment = flags_fragment.into();
            header.update_checksum(options);
            if self.sum != 0xffff {
                let correct = u16::from_ne_bytes(header.checksum.to_bytes());
                header.checksum = U16::from_bytes(checksum::add(correct, self.sum).to_ne_bytes());
            }
        }
    }
}

impl Mtu {
    /// Turns the packet, whose IP header is at `start`, into its first fragment, and creates the other fragments, which
    /// leave after the batch, in order. Returns the gate of the packet: [`Gate::FIRST`], or the gate of a drop. The
    /// packet must be longer than the MTU.
    pub(super) fn fragment(&self, packet: &mut Packet, start: usize, context: &mut Context<'_>) -> Gate {
        let bytes = packet.data().get(start..).unwrap_or_default();
        let Some(mut first) = Header::of(bytes) else { return BAD_LENGTH };
        let Ok((&fixed, _)) = Ipv4::ref_from_prefix(bytes) else { return BAD_LENGTH };
        let total = usize::from(fixed.total_length.get());
        let Some(mut later) = first.later().filter(|_| total >= first.len && total <= bytes.len()) else {
            return BAD_LENGTH;
        };
        let payload = total - first.len;
        // All fragments except the last have a multiple of eight bytes (RFC 791 section 3.2), and at least eight: the
        // least MTU (68) has room for the longest header (60 bytes) and eight bytes.
        let each = |header: &Header| (self.mtu - header.len) / 8 * 8;
        let first_payload = each(&first);
        let (offset, more) = (fixed.fragment_offset(), fixed.flags_fragment.get() & MORE);
        // A datagram has at most 65535 bytes (RFC 791 section 3.1). A fragment whose payload would end beyond that is
        // an attack (CVE-1999-0128, "ping of death").
        if usize::from(offset) * 8 + payload > 65_535 {
            return BAD_LENGTH;
        }
        let mut at = first_payload;
        while at < payload {
            let length = each(&later).min(payload - at);
            let last = at + length == payload;
            let flags = if last { more } else { MORE };
            later.finish(length, (offset + (at / 8) as u16) | flags);
            // If this fails, the fragments that already exist are still sent. Their datagram is never complete.
            let Some(fragment) = context.create(FRAGMENT, Gate::FIRST, packet) else { return POOL_EMPTY };
            let Some(data) = packet.data().get(start + first.len + at..start + first.len + at + length) else {
                return BAD_LENGTH;
            };
            let Some(space) = fragment.append(start + later.len + length) else { return BAD_LENGTH };
            space[..start].copy_from_slice(&packet.data()[..start]);
            space[start..start + later.len].copy_from_slice(&later.bytes[..later.len]);
            space[start + later.len..].copy_from_slice(data);
            at += length;
        }
        packet.truncate(start + first.len + first_payload);
        // The fragment is complete, even if a capture cut the packet.
        packet.set_missing(0);
        // The session of this first fragment must have no ports, like the session of the fragments after it.
        packet.forget_session();
        first.finish(first_payload, offset | MORE);
        if let Some(header) = packet.data_mut().get_mut(start..start + first.len) {
            header.copy_from_slice(&first.bytes[..first.len]);
        }
        Gate::FIRST
    }
}
