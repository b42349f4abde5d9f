//! The session of a packet in a GTP-U tunnel: the session of the inner packet.
//!
//! The length distinguishes an Ethernet PDU (TS 23.501 section 5.6.10.2) from an IP packet: the length in an IP header
//! is the length of the T-PDU. The version alone is not enough: an Ethernet address whose first hexadecimal digit is 4
//! or 6 would be parsed as an IP header, and the session would change from one frame to the next.

use zerocopy::FromBytes;

use super::SessionKey;
use crate::Network;
use crate::layers::locate_above_ipv4;
use crate::wire::gtpu::{self, Message, kind};
use crate::wire::ipv4::{self, Ipv4};
use crate::wire::ipv6::{self, Ipv6};
use crate::wire::udp::Udp;

/// The most nested tunnels that are parsed. A user may be a base station, whose traffic consists of tunnels too.
const MAX_NESTED_TUNNELS: usize = 4;

/// Returns the session of a datagram to the GTP-U port. `key` is the key of its headers, `payload` its payload.
pub(super) fn key(mut key: SessionKey, mut payload: &[u8]) -> SessionKey {
    for _ in 0..MAX_NESTED_TUNNELS {
        if key.protocol != ipv4::UDP || key.destination_port != gtpu::PORT {
            break;
        }
        // Control messages and invalid messages belong to the session of the two tunnel ends.
        let Ok(message) = Message::parse(payload) else { break };
        match (message.kind, inner(&message)) {
            (kind::G_PDU, Some((inside, carried))) => (key, payload) = (inside, carried),
            // The end marker follows the tunnel's last packet (section 7.3.2).
            (kind::G_PDU | kind::END_MARKER, _) => return of_tunnel(key, message.teid),
            _ => break,
        }
    }
    key
}

/// Returns the key of the tunnel itself ([`SessionKey::TUNNEL`]). `outer` has the outer addresses.
fn of_tunnel(outer: SessionKey, teid: u32) -> SessionKey {
    SessionKey {
        source_port: (teid >> 16) as u16,
        destination_port: teid as u16,
        protocol: SessionKey::TUNNEL,
        ..outer
    }
}

/// Returns the key of the inner packet's headers, and its payload if it is UDP. Returns `None` if the inner packet is
/// not IP.
fn inner<'a>(message: &Message<'a>) -> Option<(SessionKey, &'a [u8])> {
    let packet = message.payload;
    let (network, transport) = match packet.first()? >> 4 {
        4 => {
            let length = Ipv4::ref_from_prefix(packet).ok()?.0.total_length.get();
            (usize::from(length) == packet.len()).then(|| (Network::Ipv4, locate_above_ipv4(packet, 0)))?
        }
        6 => {
            let length = Ipv6::ref_from_prefix(packet).ok()?.0.payload_length.get();
            let is_whole = size_of::<Ipv6>() + usize::from(length) == packet.len();
            is_whole.then(|| (Network::Ipv6, ipv6::upper_layer(packet, 0)))?
        }
        _ => return None,
    };
    let key = SessionKey::of(packet, network, 0, transport, packet.len());
    let carried = transport.and_then(|(_, offset)| packet.get(offset + size_of::<Udp>()..));
    Some((key, carried.unwrap_or_default()))
}

#[cfg(all(test, not(miri)))]
mod tests;
