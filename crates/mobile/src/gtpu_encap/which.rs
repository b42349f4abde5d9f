//! Selects the tunnel of a packet.

use forebay_packet::{Packet, Word};
use forebay_tunnels::entropy::Inner;

use super::tunnels::{Peers, Tunnel, Tunnels};

/// The rule by which a packet's tunnel is found.
pub(super) enum TunnelSelector {
    /// One tunnel for all packets, with its peer if that is an IPv6 peer.
    One(Tunnel, Peers),
    ByDestination(Tunnels),
    ByWord(Tunnels, Word),
    /// The metadata words contain number and peer over IPv4; number 0 means no tunnel.
    BySession {
        teid: Word,
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
    /// Returns the address of a tunnel's peer over IPv6.
    #[inline]
    pub(super) fn peer(&self, tunnel: Tunnel) -> Option<&[u8; 16]> {
        match self {
            Self::One(_, peers) => peers.address(tunnel.peer),
            Self::ByDestination(tunnels) | Self::ByWord(tunnels, _) => tunnels.peers.address(tunnel.peer),
            Self::BySession { .. } => None,
        }
    }

    /// Returns the tunnel of a usual packet: IPv4 with ports.
    #[inline(always)]
    pub(super) fn of_usual(&self, packet: &Packet, inner: &Inner) -> Option<Tunnel> {
        match self {
            Self::One(tunnel, _) => Some(*tunnel),
            Self::ByDestination(tunnels) => tunnels.ipv4.get(inner.destination().into()),
            Self::ByWord(tunnels, word) => tunnels.ipv4.get(packet.word(*word).into()),
            Self::BySession { teid, peer } => tunnel_in_words(packet, *teid, *peer),
        }
    }

    /// Returns the tunnel of any packet.
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
