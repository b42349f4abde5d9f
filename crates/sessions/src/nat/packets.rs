//! Translation of packets that are not plain: packets with tags or options, ICMP queries, and ICMP errors with the
//! packets that they quote.

use forebay_graph::effect::rewrite_ipv4_address;
use forebay_packet::Packet;
use forebay_packet::wire::ipv4::{ICMP, Ipv4, TCP, UDP};
use forebay_packet::wire::{checksum, icmp};
use zerocopy::FromBytes;

use super::gains::as_sent;
use super::translation::Direction;

/// Length of an ICMP header: type, code, checksum, and a word that holds the identifier of a query.
const ICMP_HEADER: usize = 8;

/// Returns the offsets of the checksum and of the translated port in a transport header. For ICMP, the second offset is
/// that of the identifier.
fn fields(protocol: u8, direction: Direction) -> Option<(usize, usize)> {
    let port = if direction == Direction::Out { 0 } else { 2 };
    match protocol {
        TCP => Some((16, port)),
        UDP => Some((6, port)),
        ICMP => Some((2, 4)),
        _ => None,
    }
}

/// Rewrites the source (on the way out) or the destination (on the way in) of a packet whose headers are complete.
/// Returns `None` if the headers are incomplete. The packet may then be changed in part and must be dropped.
pub(super) fn translate(packet: &mut Packet, direction: Direction, (address, port): ([u8; 4], u16)) -> Option<()> {
    rewrite_ipv4_address(packet, direction == Direction::In, address)?;
    let (protocol, start) = packet.transport()?;
    let end = packet.network_end();
    let header = packet.data_mut().get_mut(start..end)?;
    rewrite_port(header, protocol, direction, port);
    Some(())
}

/// Writes a port and updates the checksum. Returns the checksum before and after. If the packet has no checksum, or the
/// header is too short to contain the checksum, writes the port and returns `None`. If the header does not contain the
/// port, changes nothing and returns `None`.
fn rewrite_port(header: &mut [u8], protocol: u8, direction: Direction, port: u16) -> Option<(u16, u16)> {
    let (sum_at, port_at) = fields(protocol, direction)?;
    let field: &mut [u8; 2] = header.get_mut(port_at..)?.first_chunk_mut()?;
    let old = u16::from_be_bytes(std::mem::replace(field, port.to_be_bytes()));
    if protocol == ICMP {
        return icmp::replace_in_message(header, old, port);
    }
    let field: &mut [u8; 2] = header.get_mut(sum_at..)?.first_chunk_mut()?;
    let before = u16::from_be_bytes(*field);
    if protocol == UDP && before == 0 {
        return None;
    }
    let after = as_sent(protocol, checksum::replace16(before, old, port));
    *field = after.to_be_bytes();
    Some((before, after))
}

/// Translates the packet that an ICMP error quotes (RFC 5508 section 4.2). The quoted packet went in the opposite
/// direction of the error, so its destination is translated on the way out, and its source on the way in. The error's
/// own checksum is updated. Returns `None` if the quoted headers are incomplete. The packet may then be changed in part
/// and must be dropped.
pub(super) fn translate_quoted(
    packet: &mut Packet,
    direction: Direction,
    (address, port): ([u8; 4], u16),
) -> Option<()> {
    let (_, start) = packet.transport()?;
    let end = packet.network_end();
    let message = packet.data_mut().get_mut(start..end)?;
    let (header, quoted) = message.split_first_chunk_mut::<ICMP_HEADER>()?;
    let mut sum = u16::from_be_bytes([header[2], header[3]]);
    let (ip, rest) = Ipv4::mut_from_prefix(quoted).ok()?;
    let options = ip.header_len()? - size_of::<Ipv4>();
    let outward = direction == Direction::Out;
    let field = if outward { &mut ip.destination } else { &mut ip.source };
    let (old, new) = (u32::from_be_bytes(*field), u32::from_be_bytes(address));
    *field = address;
    // The sum of the quoted IP header stays the same, so this change does not affect the error's checksum.
    ip.checksum.set(checksum::replace32(ip.checksum.get(), old, new));
    let protocol = ip.protocol;
    let transport = rest.get_mut(options..)?;
    // The quoted packet has the opposite direction, so its port is at the other offset.
    let opposite = if outward { Direction::In } else { Direction::Out };
    let (sum_at, port_at) = fields(protocol, opposite)?;
    // The checksums of TCP and UDP also cover the address. The checksum is missing if only eight bytes of the transport
    // are quoted.
    if protocol != ICMP
        && let Some(field) = transport.get_mut(sum_at..).and_then(<[u8]>::first_chunk_mut::<2>)
    {
        let before = u16::from_be_bytes(*field);
        if protocol == TCP || before != 0 {
            let after = as_sent(protocol, checksum::replace32(before, old, new));
            *field = after.to_be_bytes();
            sum = checksum::replace16(sum, before, after);
        }
    }
    let old_port = transport.get(port_at..)?.first_chunk::<2>().map(|bytes| u16::from_be_bytes(*bytes))?;
    let changed = rewrite_port(transport, protocol, opposite, port);
    sum = checksum::replace16(sum, old_port, port);
    if let Some((before, after)) = changed {
        sum = checksum::replace16(sum, before, after);
    }
    header[2..4].copy_from_slice(&sum.to_be_bytes());
    Some(())
}
