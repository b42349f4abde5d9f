//! The session of what is in a GTP-U tunnel: the inner packet's.
//!
//! An Ethernet PDU (TS 23.501 section 5.6.10.2) is told from an IP packet by the length, which an IP packet states and
//! which is the T-PDU's; by the version alone an Ethernet address that starts with 4 or 6 would be taken for one, and
//! its frames for sessions that change from one to the next.

use zerocopy::FromBytes;

use super::SessionKey;
use crate::Network;
use crate::layers::locate_above_ipv4;
use crate::wire::gtpu::{self, Message, kind};
use crate::wire::ipv4::{self, Ipv4};
use crate::wire::ipv6::{self, Ipv6};
use crate::wire::udp::Udp;

/// Tunnels in tunnels that are looked through: a user may be a base station, whose traffic is tunnels too.
const MOST: usize = 4;

/// What a datagram to GTP-U's port is a part of: `key` is what its headers show, `payload` what it carries.
pub(super) fn key(mut key: SessionKey, mut payload: &[u8]) -> SessionKey {
    for _ in 0..MOST {
        if key.protocol != ipv4::UDP || key.destination_port != gtpu::PORT {
            break;
        }
        // Control messages, and what is no message at all, are between the two ends.
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

fn of_tunnel(outer: SessionKey, teid: u32) -> SessionKey {
    SessionKey {
        source_port: (teid >> 16) as u16,
        destination_port: teid as u16,
        protocol: SessionKey::TUNNEL,
        ..outer
    }
}

/// What the headers of the packet inside show, and what that carries if it is UDP; `None` where it is not IP.
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
