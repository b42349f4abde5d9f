//! Translation of the packet that an ICMP error quotes, so that the receiver of the error recognises the quoted packet
//! as its own.

use forebay_packet::Packet;
use forebay_packet::wire::checksum;
use forebay_packet::wire::ipv4::{DCCP, ICMP, Ipv4, TCP, UDP, UDP_LITE};
use zerocopy::FromBytes;

/// Destination unreachable, source quench, time exceeded, parameter problem (RFC 792): the errors that RFC 3022 section
/// 4.3 names. A redirect is for the local network and is not translated.
const ERRORS: [u8; 4] = [3, 4, 11, 12];

/// Length of an ICMP error's own header, which is followed by the quoted packet.
const HEADER: usize = 8;

/// Rewrites one address of the quoted packet: the destination if `destination` is true, otherwise the source. Updates
/// the quoted checksums that cover the address (RFC 3022 section 4.3), and the message's own checksum. `translate`
/// returns the new address; addresses are in host byte order. The packet's bytes stay unchanged if `translate` returns
/// `None`, if the message is not one of [`ERRORS`], or if the quoted header is incomplete.
pub(super) fn translate(packet: &mut Packet, destination: bool, translate: impl Fn(u32) -> Option<u32>) {
    let Some((ICMP, start)) = packet.transport() else { return };
    // An error belongs to the session of the packet that it quotes, so a stored session hash may become wrong.
    packet.forget_session();
    // The rest of the frame after the datagram is padding.
    let end = packet.network_end();
    let message = packet.data_mut().get_mut(..end).and_then(|datagram| datagram.get_mut(start..));
    let Some((header, quoted)) = message.and_then(|message| message.split_first_chunk_mut::<HEADER>()) else {
        return;
    };
    if !ERRORS.contains(&header[0]) {
        return;
    }
    let Ok((ip, rest)) = Ipv4::mut_from_prefix(quoted) else { return };
    let Some(options) = ip.header_len().filter(|_| ip.version_ihl >> 4 == 4).map(|length| length - size_of::<Ipv4>())
    else {
        return;
    };
    let field = if destination { &mut ip.destination } else { &mut ip.source };
    let old = u32::from_be_bytes(*field);
    let Some(new) = translate(old) else { return };
    *field = new.to_be_bytes();
    // The sum of the quoted IP header stays the same, so this change does not affect the message's own checksum.
    ip.checksum.set(checksum::replace32(ip.checksum.get(), old, new));
    let at = match ip.protocol {
        TCP if ip.fragment_offset() == 0 => options + 16,
        UDP | UDP_LITE | DCCP if ip.fragment_offset() == 0 => options + 6,
        _ => return,
    };
    // Usually eight bytes are quoted (RFC 792), which include UDP's checksum but not TCP's.
    let Some(field) = rest.get_mut(at..at + 2) else { return };
    let before = u16::from_be_bytes([field[0], field[1]]);
    if ip.protocol == UDP && before == 0 {
        return;
    }
    let after = checksum::replace32(before, old, new);
    let after = if matches!(ip.protocol, UDP | UDP_LITE) && after == 0 { 0xffff } else { after };
    field.copy_from_slice(&after.to_be_bytes());
    let message = checksum::replace16(u16::from_be_bytes([header[2], header[3]]), before, after);
    header[2..4].copy_from_slice(&message.to_be_bytes());
}
