//! Selects the tunnel of a packet.

use forebay_packet::{Packet, Word};
use forebay_tunnels::entropy::Inner;

use super::tunnels::{Peers, Tunnel, Tunnels};

/// The rule by which a packet's tunnel is found.
pub(super) enum TunnelSelector {
    /// One tunnel for all packets. `Peers` contains the tunnel's peer if the peer has an IPv6 address.
    One(Tunnel, Peers),
    /// The inner destination address is the key.
    ByDestination(Tunnels),
    /// The metadata word is the key.
    ByWord(Tunnels, Word),
    /// Metadata words contain the tunnel itself. Identifier 0 means no tunnel.
    BySession {
        /// The word with the tunnel endpoint identifier.
        teid: Word,
        /// The word with the peer's IPv4 address, as a number in host byte order.
        peer: Word,
    },
}

/// Returns the tunnel in a packet's metadata words.
#[inline(always)]
pub(super) fn tunnel_in_words(packet: &Packet, teid: Word, peer: Word) -> Option<Tunnel> {
    let tunnel = Tunnel { teid: packet.word(teid), peer: packet.word(peer) };
    (tunnel.teid != 0).then_some(tunnel)
}

impl TunnelSelector {
    /// Returns the address of a tunnel's peer over IPv6. `None` for [`BySession`](Self::BySession): peers of sessions
    /// have IPv4 addresses.
    #[inline]
    pub(super) fn peer(&self, tunnel: Tunnel) -> Option<&[u8; 16]> {
        match self {
            Self::One(_, peers) => peers.address(tunnel.peer),
            Self::ByDestination(tunnels) | Self::ByWord(tunnels, _) => tunnels.peers.address(tunnel.peer),
            Self::BySession { .. } => None,
        }
    }

    /// Returns the tunnel of a usual packet, which is IPv4 with ports; `None` if it has no tunnel.
    #[inline(always)]
    pub(super) fn of_usual(&self, packet: &Packet, inner: &Inner) -> Option<Tunnel> {
        match self {
            Self::One(tunnel, _) => Some(*tunnel),
            Self::ByDestination(tunnels) => tunnels.ipv4.get(inner.destination().into()),
            Self::ByWord(tunnels, word) => tunnels.ipv4.get(packet.word(*word).into()),
            Self::BySession { teid, peer } => tunnel_in_words(packet, *teid, *peer),
        }
    }

    /// Returns the tunnel of any packet; `None` if it has no tunnel.
    pub(super) fn of(&self, packet: &mut Packet) -> Option<Tunnel> {
        match self {
            Self::One(tunnel, _) => Some(*tunnel),
            Self::ByDestination(tunnels) => match packet.ipv4() {
                Some(header) => tunnels.ipv4.get(u32::from_be_bytes(header.destination).into()),
                None => {
                    let destination = u128::from_be_bytes(packet.ipv6()?.destination);
                    tunnels.ipv6.get((destination >> 64) as u64)
                }
            },
            Self::ByWord(tunnels, word) => tunnels.ipv4.get(packet.word(*word).into()),
            Self::BySession { teid, peer } => tunnel_in_words(packet, *teid, *peer),
        }
    }

    /// Prefetches the slots of a large table in which the batch's packets will be looked up.
    pub(super) fn prefetch(&self, batch: &mut [Packet]) {
        match self {
            Self::ByDestination(tunnels) if tunnels.ipv4.is_large() => {
                for packet in batch {
                    if let Some(header) = packet.ipv4() {
                        tunnels.ipv4.prefetch(u32::from_be_bytes(header.destination).into());
                    }
                }
            }
            Self::ByWord(tunnels, word) if tunnels.ipv4.is_large() => {
                batch.iter().for_each(|packet| tunnels.ipv4.prefetch(packet.word(*word).into()));
            }
            _ => {}
        }
    }
}
